/* Writing the steps of a StepMap: one entry after another, or many of a step at a time.  What is
 * coded by whole rows, RICE and the tokens of HUFFMAN, is not written here (_rows.pyx). */
#ifndef SUCCINCT_STEPS_BUILD_H
#define SUCCINCT_STEPS_BUILD_H

#include "succinct/bits/stream.h"
#include "succinct/maps/steps.h"

/* ---- one by one ----------------------------------------------------------------------------- */

INLINE void bits_set(uint64_t *bits, uint64_t i) { bits[i >> 6] |= 1ull << (i & 63); }

/* Or `value` into integers that are still zero there. */
INLINE void values_put(uint64_t *values, uint64_t at, uint64_t width, uint64_t value) {
    uint64_t shift = at & 63;
    if (width == 0) return;
    values[at >> 6] |= value << shift;
    if (shift + width > 64) values[(at >> 6) + 1] |= value >> (64 - shift);
}

/* Write that row p begins with entry e; row `rows` is the end. */
INLINE void steps_put_row(const step_t *s, uint64_t *bits, uint64_t *values, uint64_t p,
                          uint64_t e) {
    uint64_t width = s->rows_width, value = e - p;
    if (s->kind < PACKED || s->kind == RICE) return;
    if (s->rows_kind == STARTS) {
        bits_set(bits, s->tree_at + (value >> width) + p);
        values_put(values, s->rows_at + p * width, width, value & ((1ull << width) - 1));
    } else if (s->rows_kind == OFFSETS) {
        values_put(values, s->rows_at + p * width, width, e);
    }
}

/* Write entry e, of row p.  `code` is the rank of the token by frequency, for DAC, and more[0..1]
 * count its second and third chunks. */
INLINE void steps_put(const step_t *s, uint64_t *bits, uint64_t *values, uint64_t p, uint64_t e,
                      int first, uint64_t token, uint64_t code, uint64_t *more) {
    uint64_t width = s->width, z = token - s->low;
    if (s->kind == RICE) return;
    if (s->kind == BITMAP) {
        bits_set(bits, s->tree_at + p * s->range + z);
        return;
    }
    if (s->kind == JOINT) {
        bits_set(bits, s->tree_at + 1 + e + p * s->buckets + (z >> width));
        values_put(values, s->tokens_at + e * width, width, z & ((1ull << width) - 1));
        return;
    }
    if (s->kind == PACKED) {
        values_put(values, s->tokens_at + e * width, width, z);
    } else if (s->kind == DAC) {
        values_put(values, s->tokens_at + e * width, width, code & ((1ull << width) - 1));
        code >>= width;
        if (code) {
            bits_set(bits, s->more2_at + e);
            values_put(values, s->chunk2_at + more[0] * s->width2, s->width2,
                       code & ((1ull << s->width2) - 1));
            code >>= s->width2;
            if (code) {
                bits_set(bits, s->more3_at + more[0]);
                values_put(values, s->chunk3_at + more[1] * s->width3, s->width3, code);
                more[1]++;
            }
            more[0]++;
        }
    }
    if (first) {
        steps_put_row(s, bits, values, p, e);
    } else if (s->rows_kind == EXTRAS) {
        uint64_t i = e - p - 1;
        bits_set(bits, s->tree_at + 1 + i + (p >> s->rows_width));
        values_put(values, s->rows_at + i * s->rows_width, s->rows_width,
                   p & ((1ull << s->rows_width) - 1));
    }
}

/* ---- many at a time -------------------------------------------------------------------------- */

/* An entry on its way into a step: its token and, above, what it is. */
#define FIRST (1ull << 32) /* the first continuation of its prefix */
#define INNER (1ull << 33) /* has continuations */
#define KEY (1ull << 34)

INLINE uint64_t is_first(uint64_t entry) { return entry >> 32 & 1; }

/* What has been written of a step, and its parts: each is written from beginning to end. */
typedef struct {
    uint64_t entries, rows, inner, chunks2, chunks3;
    stream_t tree, tokens, row_values, more2, chunk2, more3, chunk3, inner_flags, final_flags;
} steps_part_t;

static inline void steps_open(steps_part_t *part) {
    stream_t *streams = &part->tree;
    for (int i = 0; i < 9; i++) stream_open(streams + i);
}

static inline void steps_close(steps_part_t *part, uint64_t *bits, uint64_t *values) {
    stream_close(&part->tree, bits);
    stream_close(&part->tokens, values);
    stream_close(&part->row_values, values);
    stream_close(&part->more2, bits);
    stream_close(&part->chunk2, values);
    stream_close(&part->more3, bits);
    stream_close(&part->chunk3, values);
    stream_close(&part->inner_flags, bits);
    stream_close(&part->final_flags, bits);
}

/* Trees of bits and, with them, the low bits of tokens. */
INLINE void steps_write_trees(const step_t *s, steps_part_t *part, uint64_t *bits,
                              uint64_t *values, const uint64_t *entries, uint64_t n) {
    stream_t tree = part->tree, tokens = part->tokens;
    uint64_t width = s->width, mask = (1ull << width) - 1, e = part->entries, p = part->rows - 1;
    for (uint64_t i = 0; i < n; i++, e++) {
        uint64_t z = (uint32_t)entries[i] - s->low;
        p += is_first(entries[i]);
        if (s->kind == BITMAP) {
            stream_set(&tree, bits, s->tree_at + p * s->range + z);
        } else {
            stream_set(&tree, bits, s->tree_at + 1 + e + p * s->buckets + (z >> width));
            stream_put(&tokens, values, s->tokens_at + e * width, width, z & mask);
        }
    }
    part->tree = tree, part->tokens = tokens;
}

INLINE void steps_write_tokens(const step_t *s, steps_part_t *part, uint64_t *values,
                               const uint64_t *entries, uint64_t n) {
    uint64_t width = s->width, at = s->tokens_at + part->entries * width;
    uint32_t low = (uint32_t)s->low;
    if (width == 16) { /* nothing shares such a token's memory */
        uint16_t *to = (uint16_t *)values + (at >> 4);
        for (uint64_t i = 0; i < n; i++) to[i] = (uint16_t)((uint32_t)entries[i] - low);
    } else if (width == 32) {
        uint32_t *to = (uint32_t *)values + (at >> 5);
        for (uint64_t i = 0; i < n; i++) to[i] = (uint32_t)entries[i] - low;
    } else {
        stream_t tokens = part->tokens;
        for (uint64_t i = 0; i < n; i++, at += width)
            stream_put(&tokens, values, at, width, (uint32_t)entries[i] - low);
        part->tokens = tokens;
    }
}

INLINE void steps_write_codes(const step_t *s, steps_part_t *part, uint64_t *bits,
                              uint64_t *values, const uint32_t *codes, const uint64_t *entries,
                              uint64_t n) {
    uint64_t width = s->width, mask = (1ull << width) - 1, mask2 = (1ull << s->width2) - 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t e = part->entries + i, code = codes[(uint32_t)entries[i]];
        stream_put(&part->tokens, values, s->tokens_at + e * width, width, code & mask);
        if (!(code >>= width)) continue;
        stream_set(&part->more2, bits, s->more2_at + e);
        stream_put(&part->chunk2, values, s->chunk2_at + part->chunks2 * s->width2, s->width2,
                   code & mask2);
        e = part->chunks2++;
        if (!(code >>= s->width2)) continue;
        stream_set(&part->more3, bits, s->more3_at + e);
        stream_put(&part->chunk3, values, s->chunk3_at + part->chunks3 * s->width3, s->width3,
                   code);
        part->chunks3++;
    }
}

/* Boundaries under tokens. */
INLINE void steps_write_rows(const step_t *s, steps_part_t *part, uint64_t *bits,
                             uint64_t *values, const uint64_t *entries, uint64_t n) {
    stream_t tree = part->tree, low = part->row_values;
    uint64_t width = s->rows_width, mask = (1ull << width) - 1, e = part->entries, p = part->rows;
    uint64_t i;
    if (s->rows_kind == OFFSETS) {
        /* Without a branch: what begins no row goes where nobody looks.  The place may lie before
         * the words, for those who keep only what comes later. */
        int64_t at = (int64_t)s->rows_at >> 6;
        uint64_t trash;
        if (width == 32) {
            uint32_t *to = (uint32_t *)(values + at);
            for (i = 0; i < n; i++) {
                *(is_first(entries[i]) ? to + p : (uint32_t *)&trash) = (uint32_t)(e + i);
                p += is_first(entries[i]);
            }
        } else {
            uint64_t *to = values + at;
            for (i = 0; i < n; i++) {
                *(is_first(entries[i]) ? to + p : &trash) = e + i;
                p += is_first(entries[i]);
            }
        }
    } else if (s->rows_kind == STARTS && width == 0) {
        for (i = 0; i < n; i++)
            stream_put(&tree, bits, s->tree_at + e + i, 1, is_first(entries[i]));
    } else if (s->rows_kind == STARTS) {
        for (i = 0; i < n; i++) {
            uint64_t value = e + i - p;
            if (!is_first(entries[i])) continue;
            stream_set(&tree, bits, s->tree_at + (value >> width) + p);
            stream_put(&low, values, s->rows_at + p * width, width, value & mask);
            p++;
        }
    } else if (s->rows_kind == EXTRAS) {
        for (i = 0; i < n; i++) {
            uint64_t row = p - 1, extra = e + i - p;
            if (is_first(entries[i])) {
                p++;
                continue;
            }
            stream_set(&tree, bits, s->tree_at + 1 + extra + (row >> width));
            stream_put(&low, values, s->rows_at + extra * width, width, row & mask);
        }
    }
    part->tree = tree, part->row_values = low;
}

/* Which entries have continuations, and which of these are keys. */
INLINE void steps_write_flags(const step_t *s, steps_part_t *part, uint64_t *bits,
                              const uint64_t *entries, uint64_t n) {
    int inner = s->inner_rows < s->entries, final = s->final_keys < s->inner_rows;
    if (s->inner_rows == 0 || !(inner || s->final_keys)) return;
    for (uint64_t i = 0; i < n; i++) {
        if (!(entries[i] & INNER)) continue;
        if (inner) stream_set(&part->inner_flags, bits, s->inner_at + part->entries + i);
        if (final && entries[i] & KEY)
            stream_set(&part->final_flags, bits, s->final_at + part->inner);
        part->inner++;
    }
}

/* Write the next entries of a step. */
static inline void steps_write(const step_t *s, steps_part_t *part, uint64_t *bits,
                               uint64_t *values, const uint32_t *codes, const uint64_t *entries,
                               uint64_t n) {
    if (s->kind < PACKED) {
        steps_write_trees(s, part, bits, values, entries, n);
    } else if (s->kind != RICE) {
        if (s->kind == PACKED) steps_write_tokens(s, part, values, entries, n);
        if (s->kind == DAC) steps_write_codes(s, part, bits, values, codes, entries, n);
        steps_write_rows(s, part, bits, values, entries, n);
    }
    steps_write_flags(s, part, bits, entries, n);
    part->entries += n;
    for (uint64_t i = 0; i < n; i++) part->rows += is_first(entries[i]);
}

#endif
