/* Steps through a StepMap: one level of prefixes per step, each in a representation of its own.
 *
 * The entries of level l are the distinct prefixes of length l + 1 in lexicographic order.  Those
 * that continue one prefix are a *row*; rows are numbered like the prefixes of the level above
 * that have continuations.  All bit-vectors lie one after another in `bits`, which has one
 * directory; all integers lie in `values`.  Where a step finds its own is written in its row of a
 * table (step_t), which is a row of int64 for Python and numba as well.
 *
 * Trees, in `bits`; a token counts from the lowest of its step here:
 *   BITMAP   bit row * range + token
 *   JOINT    Elias-Fano code of row * range + token, with rows aligned to whole buckets of
 *            2^width values: a zero, then for every bucket a one per entry and a zero
 * Tokens, in `values`, under boundaries:
 *   PACKED   `width` bits a token
 *   DAC      ranks of tokens by frequency, in chunks of width, width2 and width3 bits; a flag with
 *            every chunk but the last says whether another one follows
 *   RICE     gaps between tokens, row after row, with boundaries of their own (rice.h)
 *   HUFFMAN  whole rows in a Huffman code, row after row (huffman.h)
 * Boundaries of the rows of PACKED, DAC and HUFFMAN:
 *   ONE      every row has one entry
 *   STARTS   Elias-Fano code of (first entry - row) for every row and the end; with no low bits
 *            that is a one for every first entry and a zero for every other
 *   EXTRAS   Elias-Fano code of the row of every entry that is not the first of its row
 *   OFFSETS  plain integers of 32 or 64 bits
 *
 * Counts of ones are checked when an index is loaded, so a select stays inside its part; whatever
 * else comes out of the contents is bounded where it is used.
 */
#ifndef SUCCINCT_STEPS_H
#define SUCCINCT_STEPS_H

#include "succinct/bits/marks.h"
#include "succinct/maps/huffman.h"
#include "succinct/maps/rice.h"

enum { BITMAP, JOINT, PACKED, DAC, RICE, HUFFMAN };
enum { ONE, STARTS, EXTRAS, OFFSETS };

#define DEAD UINT64_MAX
#define NOWHERE UINT64_MAX

/* The names and their order are those of succinct/maps/layout.py. */
typedef struct {
    uint64_t entries, start, rows, low, range;         /* start: the state of entry 0 */
    uint64_t kind, width, buckets, tokens_at;          /* buckets a row; bit address in values */
    uint64_t width2, width3, chunk2_at, chunk3_at;     /* DAC; see rice.h, huffman.h */
    uint64_t more2_at, more2_ones, more3_at, more3_ones;
    uint64_t rows_kind, rows_width, rows_at;
    uint64_t tree_at, tree_ones;                       /* place in bits, ones before it */
    uint64_t inner_rows, inner_at, inner_ones;         /* entries with continuations */
    uint64_t final_keys, final_at, final_ones;         /* those of them that are keys */
    uint64_t first_key;                                /* keys on the levels above */
} step_t;

typedef struct {
    const step_t *step;
    uint64_t n_steps, n_states;
    bitvector_t bits;
    const marks_t *marks;                       /* of every step */
    const uint64_t *values;
    uint64_t vocab_at, vocab_width, vocab_size; /* DAC: tokens by frequency, in values */
    const step_t *suffixes, *links;             /* tails (tails.h), or NULL */
    uint64_t shift;                             /* bits of a state below its place in a tail */
} steps_t;

/* The first of the integers [begin, end) of a sorted run that is not below `key`, or end; *behind
 * is the first that is above it. */
typedef uint64_t (*values_equal_t)(const uint64_t *values, uint64_t at, uint64_t width,
                                   uint64_t begin, uint64_t end, uint64_t key, uint64_t *behind);

/* What each instruction set has its own of, as parameters (see bits_query_t). */
#define QUERIES                                                                              \
    bits_query_t rank1, bits_query_t select1, bits_query_t select0, bits_drop_t drop,        \
        values_equal_t equal
#define Q rank1, select1, select0, drop, equal
#define UNUSED_Q (void)rank1, (void)select1, (void)select0, (void)drop, (void)equal

/* ---- integers -------------------------------------------------------------------------------- */

/* `width` <= 32 bits from bit address `at`; a word is always left to read behind them. */
INLINE uint64_t values_get(const uint64_t *values, uint64_t at, uint64_t width) {
    uint64_t x;
    memcpy(&x, (const char *)values + (at >> 3), 8);
    return (x >> (at & 7)) & ((1ull << width) - 1);
}

/* The start of fewer than `most` integers of a sorted run that are, or lie before, the first that
 * is not below `key`. */
INLINE uint64_t values_narrow(const uint64_t *values, uint64_t at, uint64_t width, uint64_t begin,
                              uint64_t end, uint64_t key, uint64_t most) {
    for (uint64_t n = end - begin, half; n >= most; n -= half) {
        half = n >> 1; /* which half cannot be foretold: no branch */
        begin += values_get(values, at + (begin + half - 1) * width, width) < key ? half : 0;
    }
    return begin;
}

INLINE uint64_t values_equal(const uint64_t *values, uint64_t at, uint64_t width, uint64_t begin,
                             uint64_t end, uint64_t key, uint64_t *behind) {
    uint64_t below = 0, upto = 0, n;
    begin = values_narrow(values, at, width, begin, end, key, 8);
    n = end - begin < 8 ? end - begin : 8;
    for (uint64_t i = begin; i < begin + n; i++) {
        uint64_t here = values_get(values, at + i * width, width);
        below += here < key;
        upto += here <= key;
    }
    *behind = begin + upto;
    while (upto == n && *behind < end && values_get(values, at + *behind * width, width) == key)
        ++*behind;
    return begin + below;
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* The length of the prefix of a state below n_states. */
INLINE uint64_t steps_depth(const steps_t *t, uint64_t state) {
    uint64_t low = 0, high = t->n_steps;
    while (low < high) {
        uint64_t mid = (low + high) >> 1;
        if (t->step[mid].start <= state) low = mid + 1; else high = mid;
    }
    return low;
}

/* The row of the continuations of entry e among the prefixes of length `depth`, or NOWHERE. */
INLINE uint64_t steps_row(const steps_t *t, uint64_t depth, uint64_t e, QUERIES) {
    const step_t *s = t->step + depth - 1;
    UNUSED_Q;
    if (depth == 0) return 0;
    if (s->inner_rows == s->entries) return e;
    if (s->inner_rows == 0 || !bits_get(&t->bits, s->inner_at + e)) return NOWHERE;
    return rank1(&t->bits, s->inner_at + e) - s->inner_ones;
}

/* The entry of row p above a level; the reverse of steps_row. */
INLINE uint64_t steps_entry_of_row(const steps_t *t, uint64_t depth, uint64_t p, bits_query_t select1) {
    const step_t *s = t->step + depth - 1;
    if (depth == 0) return 0;
    if (s->inner_rows == s->entries) return p;
    return select1(&t->bits, s->inner_ones + p) - s->inner_at;
}

INLINE uint64_t zeros_before(const step_t *s) { return s->tree_at - s->tree_ones; }

/* The place of one (or zero) number k of the tree of a step, not its last; *next is that of the
 * one behind. */
INLINE uint64_t steps_mark(const steps_t *t, const step_t *s, uint64_t k, int zeros,
                           uint64_t *next, QUERIES) {
    UNUSED_Q;
    return marks_select(&t->bits, t->marks + (s - t->step), k, zeros, next, select1, select0, drop);
}

/* Entries [*first, result) are those of row p; by the boundaries under tokens. */
INLINE uint64_t steps_bounds(const steps_t *t, const step_t *s, uint64_t p, uint64_t *first,
                             QUERIES) {
    uint64_t begin, end, at, next, width = s->rows_width, mask = (1ull << width) - 1;
    if (s->rows_kind == ONE) {
        *first = p;
        return p + 1;
    }
    if (s->rows_kind == STARTS) {
        at = steps_mark(t, s, p, 0, &next, Q);
        end = next - s->tree_at - p - 1;
        begin = at - s->tree_at - p;
        if (width) {
            begin = begin << width | values_get(t->values, s->rows_at + p * width, width);
            end = end << width | values_get(t->values, s->rows_at + (p + 1) * width, width);
        }
        begin += p;
        end += p + 1;
    } else if (s->rows_kind == EXTRAS) {
        uint64_t bucket = p >> width, extra, limit;
        at = steps_mark(t, s, bucket, 1, &next, Q);
        extra = at - s->tree_at - bucket;
        extra = equal(t->values, s->rows_at, width, extra, extra + next - at - 1, p & mask, &limit);
        begin = p + extra;
        end = p + 1 + limit;
    } else if (s->rows_width == 32) {
        const uint32_t *offsets = (const uint32_t *)(t->values + (s->rows_at >> 6));
        begin = offsets[p];
        end = offsets[p + 1];
    } else {
        const uint64_t *offsets = t->values + (s->rows_at >> 6);
        begin = offsets[p];
        end = offsets[p + 1];
    }
    if (begin > s->entries) begin = s->entries;
    if (end > s->entries) end = s->entries;
    *first = begin;
    return end < begin ? begin : end;
}

/* The sample of a group of rows: its place, which goes into *first as an entry, too. */
INLINE uint64_t rice_sample(const steps_t *t, const step_t *s, uint64_t group, uint64_t *first) {
    uint64_t at = s->chunk2_at + group * (s->width2 + s->width3);
    *first = values_get(t->values, at, s->width2);
    if (*first > s->entries) *first = s->entries;
    return s->tokens_at + values_get(t->values, at + s->width2, s->width3);
}

/* Begin with the tokens of the row that has entry e or, if e is NOWHERE, of row *p, from the first
 * row of a group of them on.  Entries [*first, result) are those of the row. */
INLINE uint64_t rice_seek(const steps_t *t, const step_t *s, uint64_t *p, uint64_t e,
                          uint64_t *first, rice_t *r) {
    uint64_t row = *p >> s->rows_width << s->rows_width;
    uint64_t at = rice_sample(t, s, *p >> s->rows_width, first), length, end;
    r->values = t->values, r->end = s->chunk3_at;
    for (;; row++, *first = end, at = rice_end(r)) {
        length = rice_length(r, &at, s->width, s->range);
        end = *first + length < s->entries ? *first + length : s->entries;
        rice_open(r, at, s->range, length);
        if (e == NOWHERE ? row >= *p : e < end || row + 1 >= s->rows) break;
    }
    *p = row;
    return end;
}

/* Entries [*first, result) are those of row p. */
INLINE uint64_t steps_entries(const steps_t *t, const step_t *s, uint64_t p, uint64_t *first,
                              QUERIES) {
    if (s->kind == BITMAP) {
        *first = rank1(&t->bits, s->tree_at + p * s->range) - s->tree_ones;
        return rank1(&t->bits, s->tree_at + (p + 1) * s->range) - s->tree_ones;
    }
    if (s->kind == JOINT) {
        uint64_t bucket = p * s->buckets, next;
        *first = steps_mark(t, s, bucket, 1, &next, Q) - s->tree_at - bucket;
        bucket += s->buckets;
        if (s->buckets == 1) return next - s->tree_at - bucket;
        return select0(&t->bits, zeros_before(s) + bucket) - s->tree_at - bucket;
    }
    if (s->kind == RICE) {
        rice_t row;
        return rice_seek(t, s, &p, NOWHERE, first, &row);
    }
    return steps_bounds(t, s, p, first, Q);
}

/* ---- rows of HUFFMAN ------------------------------------------------------------------------- */

/* Rows one after another, by the boundaries under tokens. */
typedef struct {
    uint64_t p, first; /* the row, and its first entry */
    uint64_t at;       /* place in the tree: STARTS of the one of p, EXTRAS of its first extra */
} rows_t;

INLINE rows_t rows_open(const steps_t *t, const step_t *s, uint64_t p, QUERIES) {
    rows_t rows = {p, p, 0};
    uint64_t width = s->rows_width, bucket = p >> width, next, extra, limit;
    UNUSED_Q;
    if (s->rows_kind == STARTS) {
        rows.at = steps_mark(t, s, p, 0, &next, Q);
        extra = rows.at - s->tree_at - p;
        if (width) extra = extra << width | values_get(t->values, s->rows_at + p * width, width);
        rows.first = p + extra;
    } else if (s->rows_kind == EXTRAS) {
        rows.at = steps_mark(t, s, bucket, 1, &next, Q) + 1;
        extra = rows.at - s->tree_at - bucket - 1;
        limit = extra + next - rows.at;
        rows.at -= extra;
        extra = equal(t->values, s->rows_at, width, extra, limit, p & ((1ull << width) - 1), &limit);
        rows.at += extra;
        rows.first = p + extra;
    }
    if (rows.first > s->entries) rows.first = s->entries;
    return rows;
}

/* Go on with the next row; returns how many entries the last one has. */
INLINE uint64_t rows_next(const steps_t *t, const step_t *s, rows_t *rows) {
    uint64_t width = s->rows_width, mask = (1ull << width) - 1, p = rows->p++, first = rows->first;
    uint64_t end = p + 1, extra;
    if (s->rows_kind == STARTS) {
        rows->at = bits_next_one(&t->bits, rows->at + 1);
        extra = rows->at - s->tree_at - end;
        if (width) extra = extra << width | values_get(t->values, s->rows_at + end * width, width);
        end += extra;
    } else if (s->rows_kind == EXTRAS) {
        extra = rows->at - s->tree_at - (p >> width) - 1;
        while (bits_get(&t->bits, rows->at) &&
               values_get(t->values, s->rows_at + extra * width, width) == (p & mask))
            rows->at++, extra++;
        end += extra;
        if ((p & mask) == mask) rows->at = bits_next_zero(&t->bits, rows->at) + 1;
    }
    if (end > s->entries) end = s->entries;
    if (end < first) end = first; /* only in a damaged file, as above */
    rows->first = end;
    return end - first;
}

/* Begin with the tokens of row p, from the first row of its group on.  Entries [*first, result) are
 * those of the row. */
INLINE uint64_t huffman_seek(const steps_t *t, const step_t *s, uint64_t p, uint64_t *first,
                             huffman_t *h, QUERIES) {
    uint64_t group = p >> s->width, place = select1(&t->bits, s->more2_ones + group);
    rows_t rows = rows_open(t, s, group << s->width, Q);
    place = (place - s->more2_at - group) << s->width2 |
            values_get(t->values, s->chunk2_at + group * s->width2, s->width2);
    huffman_open(h, t->values, s->tokens_at + place, s->chunk3_at, s->buckets, s->width3);
    while (rows.p < p) huffman_read(h, rows_next(t, s, &rows), huffman_visit_none, NULL);
    *first = rows.first;
    return rows.first + rows_next(t, s, &rows);
}

/* Write the tokens of row p, ascending, of which there may be as many as have a code. */
INLINE void huffman_row(const steps_t *t, const step_t *s, uint64_t p, uint32_t *tokens, QUERIES) {
    huffman_t h;
    uint64_t first, end = huffman_seek(t, s, p, &first, &h, Q);
    uint32_t *to = tokens;
    huffman_read(&h, end - first, huffman_visit_write, &to);
    tokens_sort(tokens, (uint64_t)(to - tokens));
    while (to > tokens) *--to += (uint32_t)s->low;
}

/* Token k of those of row p, in ascending order. */
INLINE uint64_t huffman_nth(const steps_t *t, const step_t *s, uint64_t p, uint64_t e, QUERIES) {
    huffman_t h;
    uint64_t first, end = huffman_seek(t, s, p, &first, &h, Q);
    return s->low + (first <= e && e < end ? huffman_select(&h, end - first, e - first) : 0);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

INLINE uint64_t steps_code(const steps_t *t, const step_t *s, uint64_t e, bits_query_t rank1) {
    uint64_t code = values_get(t->values, s->tokens_at + e * s->width, s->width);
    if (s->width2 && bits_get(&t->bits, s->more2_at + e)) {
        e = rank1(&t->bits, s->more2_at + e) - s->more2_ones;
        code |= values_get(t->values, s->chunk2_at + e * s->width2, s->width2) << s->width;
        if (s->width3 && bits_get(&t->bits, s->more3_at + e)) {
            e = rank1(&t->bits, s->more3_at + e) - s->more3_ones;
            code |= values_get(t->values, s->chunk3_at + e * s->width3, s->width3)
                    << (s->width + s->width2);
        }
    }
    return code;
}

INLINE uint64_t steps_dac(const steps_t *t, const step_t *s, uint64_t e, bits_query_t rank1) {
    uint64_t code = steps_code(t, s, e, rank1);
    if (code >= t->vocab_size) return NOWHERE;
    return values_get(t->values, t->vocab_at + code * t->vocab_width, t->vocab_width);
}

/* How far the tokens of a row have been read: to begin with, `at` is NOWHERE. */
typedef struct {
    uint64_t at; /* the place in the tree of the last entry */
    rice_t rice;
} reader_t;

/* The token of entry e of row p, with a reader that has read entry e - 1 or nothing. */
INLINE uint64_t steps_token(const steps_t *t, const step_t *s, uint64_t p, uint64_t e,
                            reader_t *reader, QUERIES) {
    uint64_t *at = &reader->at;
    UNUSED_Q;
    if (s->kind == PACKED)
        return s->low + values_get(t->values, s->tokens_at + e * s->width, s->width);
    if (s->kind == DAC) return steps_dac(t, s, e, rank1);
    if (s->kind == HUFFMAN) return huffman_nth(t, s, p, e, Q);
    if (s->kind == RICE) {
        if (*at == NOWHERE) {
            rice_seek(t, s, &p, NOWHERE, at, &reader->rice);
            for (; *at < e; ++*at) rice_token(&reader->rice);
        }
        return s->low + rice_token(&reader->rice);
    }
    *at = *at == NOWHERE ? select1(&t->bits, s->tree_ones + e) : bits_next_one(&t->bits, *at + 1);
    if (s->kind == BITMAP) return s->low + *at - s->tree_at - p * s->range;
    return s->low + ((*at - s->tree_at - 1 - e - p * s->buckets) << s->width |
                     values_get(t->values, s->tokens_at + e * s->width, s->width));
}

/* Where in row p the token must be, if at all: [*first, result), for steps_pick.  The two are
 * apart so that a batch can fetch what the second looks at. */
INLINE uint64_t steps_narrow(const steps_t *t, const step_t *s, uint64_t p, uint64_t token,
                             uint64_t *first, QUERIES) {
    uint64_t z = token - s->low;
    *first = 0;
    if (z >= s->range) return 0;
    if (s->kind == BITMAP) {
        *first = s->tree_at + p * s->range + z;
        return *first + 1;
    }
    if (s->kind == JOINT) {
        uint64_t bucket = p * s->buckets + (z >> s->width);
        uint64_t next, at = steps_mark(t, s, bucket, 1, &next, Q);
        *first = at - s->tree_at - bucket;
        return *first + next - at - 1;
    }
    if (s->kind == RICE) {
        rice_t row;
        uint64_t end = rice_seek(t, s, &p, NOWHERE, first, &row), below = rice_rank(&row, z);
        if (below >= end - *first) return *first;
        *first += below;
        return *first + 1;
    }
    if (s->kind == HUFFMAN) {
        huffman_t row;
        huffman_search_t search = {z, 0, 0};
        uint64_t end = huffman_seek(t, s, p, first, &row, Q);
        huffman_read(&row, end - *first, huffman_visit_search, &search);
        *first += search.below;
        return search.found && *first < end ? *first + 1 : *first;
    }
    return steps_bounds(t, s, p, first, Q);
}

/* The entry of the token, or NOWHERE. */
INLINE uint64_t steps_pick(const steps_t *t, const step_t *s, uint64_t first, uint64_t end,
                           uint64_t token, QUERIES) {
    UNUSED_Q;
    if (s->kind >= RICE) return first < end ? first : NOWHERE;
    if (s->kind == BITMAP)
        return first < end && bits_get(&t->bits, first) ? rank1(&t->bits, first) - s->tree_ones : NOWHERE;
    if (s->kind == DAC) {
        while (first < end) {
            uint64_t mid = (first + end) >> 1, here = steps_dac(t, s, mid, rank1);
            if (here < token) first = mid + 1;
            else if (here > token) end = mid;
            else return mid;
        }
        return NOWHERE;
    }
    uint64_t key = token - s->low;
    if (s->kind == JOINT) key &= (1ull << s->width) - 1;
    if (end - first == 1) /* a branch that goes on with the next step before the token is there */
        return values_get(t->values, s->tokens_at + first * s->width, s->width) == key ? first
                                                                                       : NOWHERE;
    first = equal(t->values, s->tokens_at, s->width, first, end, key, &end);
    return first < end ? first : NOWHERE;
}

INLINE void steps_prefetch(const steps_t *t, const step_t *s, uint64_t first) {
    if (s->kind == BITMAP) {
        bits_prefetch(&t->bits, first);
    } else {
        __builtin_prefetch((const char *)t->values + ((s->tokens_at + first * s->width) >> 3));
    }
}

/* The entry behind `token` of entry e, a prefix of length `depth`; or NOWHERE. */
INLINE uint64_t steps_child(const steps_t *t, uint64_t depth, uint64_t e, uint64_t token, QUERIES) {
    const step_t *s = t->step + depth;
    uint64_t p, first, end;
    if (depth == t->n_steps || (p = steps_row(t, depth, e, Q)) == NOWHERE) return NOWHERE;
    end = steps_narrow(t, s, p, token, &first, Q);
    return steps_pick(t, s, first, end, token, Q);
}

INLINE uint64_t steps_entry(const steps_t *t, uint64_t depth, uint64_t state) {
    return depth ? state - t->step[depth - 1].start : 0;
}

/* Of an Elias-Fano code of s, let F(x) be ones + (zeros << rows_width), counted over the bits of
 * its tree before place x.  The last x with F(x) <= e; *zeros are those before it. */
INLINE uint64_t steps_balance(const steps_t *t, const step_t *s, uint64_t e, uint64_t *zeros) {
    uint64_t width = s->rows_width, at = s->tree_at, ones = 0, low, high;
    low = at >> BLOCK_SHIFT; /* first the last block that begins there or before */
    high = t->bits.length >> BLOCK_SHIFT;
    while (low < high) {
        uint64_t mid = (low + high + 1) >> 1, x = (mid << BLOCK_SHIFT) - s->tree_at;
        uint64_t k = bits_before(&t->bits, mid) - s->tree_ones;
        if (k + ((x - k) << width) <= e) low = mid; else high = mid - 1;
    }
    if (low << BLOCK_SHIFT > at) {
        at = low << BLOCK_SHIFT;
        ones = bits_before(&t->bits, low) - s->tree_ones;
    }
    *zeros = at - s->tree_at - ones;
    for (uint64_t size = 64; size;) { /* then whole words, then halves of what is left of one */
        uint64_t n = size == 64 ? 64 - (at & 63) : size, k, mask = n == 64 ? ~0ull : (1ull << n) - 1;
        if (at + n > t->bits.length || (at & 63) + n > 64) { size >>= 1; continue; }
        k = popcount64(t->bits.words[at >> 6] >> (at & 63) & mask);
        if (ones + k + ((*zeros + n - k) << width) <= e) {
            at += n;
            ones += k;
            *zeros += n - k;
            if (size < 64) size >>= 1;
        } else {
            size >>= 1;
        }
    }
    return at;
}

/* The row of entry e, by the boundaries under tokens. */
INLINE uint64_t steps_row_of(const steps_t *t, const step_t *s, uint64_t e, QUERIES) {
    uint64_t p, at, low, high;
    if (s->rows_kind == ONE) return e;
    if (s->rows_kind == STARTS && s->rows_width == 0) {
        p = rank1(&t->bits, s->tree_at + e + 1) - s->tree_ones;
        if (p) p--; /* 0 only where a damaged file begins with a zero */
        return p < s->rows ? p : s->rows - 1;
    }
    low = 0, high = s->rows - 1;
    if (s->rows_kind == EXTRAS) {
        /* The last bucket of rows that begins at e or before, then its extra entries up to e. */
        uint64_t bucket, extra, limit, width = s->rows_width;
        at = steps_balance(t, s, e, &bucket);
        if (bucket && bits_get(&t->bits, at)) bucket--;
        if (bucket > high >> width) bucket = high >> width;
        at = select0(&t->bits, zeros_before(s) + bucket);
        extra = at - s->tree_at - bucket;
        limit = extra + bits_next_zero(&t->bits, at + 1) - at - 1;
        while (extra < limit &&
               (bucket << width) + values_get(t->values, s->rows_at + extra * width, width) + 1 +
                       extra <= e)
            extra++;
        p = e < extra ? 0 : e - extra;
        return p < s->rows ? p : high;
    }
    if (s->rows_kind == STARTS) {
        /* Low bits aside, the last row that begins at e or before; it is at most so many off. */
        at = steps_balance(t, s, e, &p);
        p = at - s->tree_at - p;
        if (p < high) high = p;
        low = high >> s->rows_width ? high - (1ull << s->rows_width) : 0;
    }
    while (low < high) { /* the last row that begins at e or before */
        uint64_t mid = (low + high + 1) >> 1, first;
        steps_bounds(t, s, mid, &first, Q);
        if (first <= e) low = mid; else high = mid - 1;
    }
    return low;
}

/* The row of entry e, and its token.  The reverse of steps_child. */
INLINE uint64_t steps_parent(const steps_t *t, const step_t *s, uint64_t e, uint64_t *token,
                             QUERIES) {
    uint64_t p, at, low, high;
    reader_t reader = {.at = NOWHERE};
    if (s->kind == RICE) { /* the last group that begins at e or before, then its rows */
        uint64_t first;
        for (low = 0, high = (s->rows - 1) >> s->rows_width; low < high;) {
            uint64_t mid = (low + high + 1) >> 1;
            rice_sample(t, s, mid, &first);
            if (first <= e) low = mid; else high = mid - 1;
        }
        p = low << s->rows_width;
        rice_seek(t, s, &p, e, &first, &reader.rice);
        for (; first < e; first++) rice_token(&reader.rice);
        *token = s->low + rice_token(&reader.rice);
        return p;
    }
    if (s->kind == BITMAP) {
        at = select1(&t->bits, s->tree_ones + e) - s->tree_at;
        *token = s->low + at % s->range;
        return at / s->range;
    }
    if (s->kind == JOINT) {
        uint64_t bucket = select1(&t->bits, s->tree_ones + e) - s->tree_at - e;
        if (bucket) bucket--; /* 0 only where a damaged file begins with a one */
        *token = s->low + ((bucket % s->buckets) << s->width |
                           values_get(t->values, s->tokens_at + e * s->width, s->width));
        p = bucket / s->buckets;
        return p < s->rows ? p : s->rows - 1;
    }
    if (s->kind == HUFFMAN) {
        p = steps_row_of(t, s, e, Q);
        *token = huffman_nth(t, s, p, e, Q);
        return p;
    }
    *token = steps_token(t, s, 0, e, &reader, Q);
    return steps_row_of(t, s, e, Q);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Say where the marks of a step lie, which are written unless `mark` is NULL; returns how many. */
static inline uint64_t steps_fill_marks(const steps_t *t, const step_t *s, marks_t *m,
                                        mark_t *mark) {
    int zeros = s->kind == JOINT || s->rows_kind == EXTRAS;
    uint64_t length, count, others = s->entries - s->rows; /* as in _tree_size of layout.py */
    m->mark = m->finer = NULL;
    if (s->kind == BITMAP || s->kind == RICE) return 0;
    if (s->kind == JOINT) {
        count = s->rows * s->buckets + 1;
        length = count + s->entries;
    } else if (s->rows_kind == STARTS) {
        count = s->rows + 1;
        length = count + (others >> s->rows_width);
    } else if (s->rows_kind == EXTRAS) {
        count = (s->rows >> s->rows_width) + 2;
        length = count + others;
    } else {
        return 0;
    }
    m->begin = s->tree_at;
    m->first = zeros ? zeros_before(s) : s->tree_ones;
    m->shift = marks_shift(length, count);
    count = marks_size(length, count, m->shift);
    if (count && mark) {
        marks_fill(&t->bits, m->begin, length, zeros, m->shift, mark);
        m->mark = mark;
    }
    return count;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Whether entry e of a level is a key: every one without continuations is. */
INLINE int steps_is_key(const steps_t *t, const step_t *s, uint64_t e, bits_query_t rank1) {
    uint64_t p = e;
    if (s->inner_rows == 0) return 1;
    if (s->inner_rows < s->entries) {
        if (!bits_get(&t->bits, s->inner_at + e)) return 1;
        if (s->final_keys == 0) return 0;
        p = rank1(&t->bits, s->inner_at + e) - s->inner_ones;
    }
    if (s->final_keys == 0 || s->final_keys == s->inner_rows) return s->final_keys != 0;
    return bits_get(&t->bits, s->final_at + p);
}

/* Keys on the level before entry e <= entries. */
INLINE uint64_t steps_keys_before(const steps_t *t, const step_t *s, uint64_t e, bits_query_t rank1) {
    uint64_t p = e;
    if (s->inner_rows < s->entries)
        p = s->inner_rows ? rank1(&t->bits, s->inner_at + e) - s->inner_ones : 0;
    e -= p;
    if (s->final_keys == s->inner_rows) return e + p;
    if (s->final_keys) e += rank1(&t->bits, s->final_at + p) - s->final_ones;
    return e;
}

/* The number of the key that entry e is, a prefix of length `depth`; or -1. */
INLINE int64_t steps_number(const steps_t *t, uint64_t depth, uint64_t e, bits_query_t rank1) {
    const step_t *s = t->step + depth - 1;
    if (depth == 0 || !steps_is_key(t, s, e, rank1)) return -1;
    return (int64_t)(s->first_key + steps_keys_before(t, s, e, rank1));
}

/* The length of key `number`; its entry is *e. */
INLINE uint64_t steps_key(const steps_t *t, uint64_t number, uint64_t *e, QUERIES) {
    uint64_t low = 0, high = t->n_steps - 1;
    UNUSED_Q;
    while (low < high) { /* the last level that begins with this key or before */
        uint64_t mid = (low + high + 1) >> 1;
        if (t->step[mid].first_key <= number) low = mid; else high = mid - 1;
    }
    const step_t *s = t->step + low;
    uint64_t depth = low + 1, k = number - s->first_key;
    if (s->final_keys == s->inner_rows) {
        *e = k;
    } else if (s->inner_rows == s->entries) {
        *e = select1(&t->bits, s->final_ones + k) - s->final_at;
    } else if (s->final_keys == 0) {
        *e = select0(&t->bits, s->inner_at - s->inner_ones + k) - s->inner_at;
    } else {
        for (low = 0, high = s->entries - 1; low < high;) {
            uint64_t mid = (low + high + 1) >> 1;
            if (steps_keys_before(t, s, mid, rank1) <= k) low = mid; else high = mid - 1;
        }
        *e = low;
    }
    return depth;
}

/* ---- for several instruction sets (steps_kernels.c) ------------------------------------------ */

typedef struct {
    int64_t (*find)(const steps_t *, const uint32_t *tokens, uint64_t n); /* a number, or -1 */
    uint64_t (*walk)(const steps_t *, uint64_t state, const uint32_t *tokens, uint64_t n);
    int64_t (*number)(const steps_t *, uint64_t depth, uint64_t e);
    /* out[i] = the state behind tokens[i] from states[i] */
    void (*advance)(const steps_t *, const uint64_t *states, const uint32_t *tokens, uint64_t *out,
                    size_t n);
    /* out[i] = the number of the sequence tokens[offsets[i]:offsets[i + 1]], or -1 */
    void (*lookup)(const steps_t *, const uint32_t *tokens, const int64_t *offsets, int64_t *out,
                   size_t n);
    /* out[i] = the length of key numbers[i] */
    void (*lengths)(const steps_t *, const int64_t *numbers, int64_t *out, size_t n);
    /* Write the tokens of key numbers[i] before out + ends[i]. */
    void (*keys)(const steps_t *, const int64_t *numbers, const int64_t *ends, uint32_t *out,
                 size_t n);
    /* out[i] = the number of continuations of states[i] */
    void (*degrees)(const steps_t *, const uint64_t *states, int64_t *out, size_t n);
    /* Write the continuations of states[i] to tokens + offsets[i] and children + offsets[i]. */
    void (*children)(const steps_t *, const uint64_t *states, const int64_t *offsets,
                     uint32_t *tokens, uint64_t *children, size_t n);
    /* Set the bits of the continuations below vocab_size of states[i] in words mask + i * row. */
    void (*mask)(const steps_t *, const uint64_t *states, uint32_t *mask, size_t row,
                 uint64_t vocab_size, size_t n);
} steps_kernels_t;

/* The kernels of an instruction set by its level in isa_names. */
const steps_kernels_t *steps_kernels_for(int level);

#endif
