/* Lookups in batches for AVX-512: in a level with marks, eight rows and tokens at once.
 *
 * A level takes four passes over a group, so that what one of them looks at is on its way while the
 * one before is at work on others: marks and words, the bounds of rows, integers, entries.  Queries
 * out of the ordinary (long rows, far boundaries) and other kinds of levels are left to steps.h,
 * and so are indexes with tails.
 */
#ifndef SUCCINCT_LOOKUP_512_H
#define SUCCINCT_LOOKUP_512_H

#include "succinct/maps/steps.h"
#include "succinct/bits/marks_512.h"

#define LONG_ROW 16 /* integers that are looked at one after the other */

/* Sequences of a group side by side. */
typedef struct {
    uint64_t row[GROUP], token[GROUP]; /* of the level; behind its lowest token */
    uint64_t first[GROUP], n[GROUP];   /* entries where the token may be */
    uint64_t entry[GROUP];             /* NOWHERE if it is not there */
    size_t number[GROUP];              /* of the sequence in the group */
} lanes_t;

#define OF_ONE bits_rank1, bits_select1_v3, bits_select0_v3, bits_drop_v3, values_equal_v3
V3 static __attribute__((noinline)) uint64_t narrow_one(const steps_t *t, const step_t *s,
                                                        uint64_t p, uint64_t token,
                                                        uint64_t *first) {
    return steps_narrow(t, s, p, token, first, OF_ONE);
}

V3 static __attribute__((noinline)) uint64_t pick_one(const steps_t *t, const step_t *s,
                                                      uint64_t first, uint64_t end,
                                                      uint64_t token) {
    return steps_pick(t, s, first, end, token, OF_ONE);
}

/* Whether the tokens of a level can be found by the functions below. */
V4_INLINE int suits_512(const steps_t *t, const step_t *s) {
    if (s->kind != JOINT && s->kind != PACKED) return 0;
    if (s->kind == PACKED && s->rows_kind == ONE) return 1;
    if (s->kind == PACKED && s->rows_kind != EXTRAS && (s->rows_kind != STARTS || s->rows_width))
        return 0;
    return t->marks[s - t->step].mark != NULL;
}

/* How many of n integers from number `first` on are smaller than `key`, and how many not larger.
 * Lanes with more than LONG_ROW are taken off. */
V4_INLINE void count_512(const uint64_t *values, uint64_t at, uint64_t width, __m512i first,
                         __m512i n, __m512i key, __m512i *below, __m512i *upto, __mmask8 *lanes) {
    __m512i one = set_512(1), mask = set_512((1ull << width) - 1), few = mask, here;
    uint64_t at_once = width ? 57 / width : LONG_ROW;
    uint64_t sure = at_once < 2 ? 1 : 2; /* that the loop ends sooner cannot be foretold */
    __mmask8 some, counts;
    *below = *upto = _mm512_setzero_si512();
    *lanes = _mm512_mask_cmple_epu64_mask(*lanes, n, set_512(LONG_ROW));
    for (uint64_t i = 0, j = 0;; i++, j++) {
        some = _mm512_mask_cmpgt_epu64_mask(*lanes, n, set_512(i));
        if (i >= sure && some == 0) break;
        if (i == 0 || j == at_once) {
            __m512i bit = _mm512_mullo_epi64(_mm512_add_epi64(first, set_512(i)), set_512(width));
            few = from_bit_512(values, _mm512_add_epi64(bit, set_512(at)), some);
            j = 0;
        }
        here = _mm512_and_si512(few, mask);
        few = _mm512_srl_epi64(few, _mm_cvtsi64_si128((long long)width));
        counts = _mm512_mask_cmplt_epu64_mask(some, here, key);
        *below = _mm512_mask_add_epi64(*below, counts, *below, one);
        counts = _mm512_mask_cmple_epu64_mask(some, here, key);
        *upto = _mm512_mask_add_epi64(*upto, counts, *upto, one);
    }
}

/* Where the tokens may be, and a fetch of what is there. */
V4_INLINE void narrow_512(const steps_t *t, const step_t *s, lanes_t *l, group_512_t *g, size_t n) {
    const marks_t *marks = t->marks + (s - t->step);
    uint64_t zeros = s->kind == JOINT || s->rows_kind == EXTRAS, flip = zeros ? ~0ull : 0;
    uint64_t width = s->kind == JOINT ? s->width : s->rows_width;
    __m128i shift = _mm_cvtsi64_si128((long long)width);
    __m512i one = set_512(1), start = set_512(s->tree_at), low = set_512((1ull << width) - 1);
    int marked = s->kind == JOINT || s->rows_kind != ONE;
    for (size_t i = 0; i < n; i += 8) {
        __m512i row = _mm512_loadu_si512(l->row + i), token = _mm512_loadu_si512(l->token + i);
        __m512i k, w, x, rest;
        __mmask8 lanes = n - i < 8 ? (__mmask8)((1u << (n - i)) - 1) : 0xff;
        g->lanes[i / 8] = _mm512_mask_cmplt_epu64_mask(lanes, token, set_512(s->range));
        if (!marked) continue;
        if (s->kind == JOINT)
            k = _mm512_add_epi64(_mm512_mullo_epi64(row, set_512(s->buckets)),
                                 _mm512_srl_epi64(token, shift));
        else
            k = _mm512_srl_epi64(row, shift);
        marks_512(&t->bits, marks, k, flip, &w, &x, &rest, g->lanes + i / 8);
        _mm512_storeu_si512(l->entry + i, k);
        _mm512_storeu_si512(g->w + i, w);
        _mm512_storeu_si512(g->x + i, x);
        _mm512_storeu_si512(g->rest + i, rest);
    }
    if (marked) drop_512(g, n);
    for (size_t i = 0; i < n; i += 8) {
        __m512i row = _mm512_loadu_si512(l->row + i), first = row, count = one;
        if (marked) {
            __m512i k = _mm512_loadu_si512(l->entry + i), w = _mm512_loadu_si512(g->w + i);
            __m512i x = _mm512_loadu_si512(g->x + i), at, below, upto;
            at = _mm512_add_epi64(_mm512_slli_epi64(w, 6), ctz_512(x));
            x = _mm512_and_si512(x, _mm512_sub_epi64(x, one));
            next_word_512(&t->bits, flip, &w, &x, g->lanes + i / 8);
            count = _mm512_add_epi64(_mm512_slli_epi64(w, 6), ctz_512(x));
            count = _mm512_sub_epi64(count, at);
            first = _mm512_sub_epi64(at, start);
            if (zeros) {
                first = _mm512_sub_epi64(first, k);
                count = _mm512_sub_epi64(count, one);
            }
            if (s->kind == PACKED && zeros) {
                count_512(t->values, s->rows_at, width, first, count, _mm512_and_si512(row, low),
                          &below, &upto, g->lanes + i / 8);
                first = _mm512_add_epi64(_mm512_add_epi64(first, row), below);
                count = _mm512_add_epi64(_mm512_sub_epi64(upto, below), one);
            }
        }
        _mm512_storeu_si512(l->first + i, first);
        _mm512_storeu_si512(l->n + i, count);
    }
    for (size_t i = 0; i < n; i++)
        if (g->lanes[i / 8] >> (i & 7) & 1) steps_prefetch(t, s, l->first[i]);
}

/* The entries of the tokens. */
V4_INLINE void pick_512(const steps_t *t, const step_t *s, lanes_t *l, const group_512_t *g,
                        size_t n) {
    __m512i low = set_512(s->kind == JOINT ? (1ull << s->width) - 1 : ~0ull);
    for (size_t i = 0; i < n; i += 8) {
        __m512i first = _mm512_loadu_si512(l->first + i), count = _mm512_loadu_si512(l->n + i);
        __m512i key = _mm512_and_si512(_mm512_loadu_si512(l->token + i), low), below, upto;
        __mmask8 lanes = g->lanes[i / 8], there;
        count_512(t->values, s->tokens_at, s->width, first, count, key, &below, &upto, &lanes);
        there = _mm512_mask_cmplt_epu64_mask(lanes, below, upto);
        first = _mm512_mask_add_epi64(set_512(NOWHERE), there, first, below);
        _mm512_storeu_si512(l->entry + i, first);
        for (uint32_t others = 0xffu & ~lanes; others; others &= others - 1) {
            size_t at = i + (size_t)__builtin_ctz(others);
            if (at >= n || l->token[at] >= s->range) continue;
            uint64_t token = s->low + l->token[at], begin, end;
            end = narrow_one(t, s, l->row[at], token, &begin);
            l->entry[at] = pick_one(t, s, begin, end, token);
        }
    }
}

V4_INLINE void lookup_v4_group(const steps_t *t, const uint32_t *tokens, const int64_t *offsets,
                                int64_t *out, size_t n, QUERIES) {
    lanes_t l;
    group_512_t g;
    size_t n_alive = 0;
    if (t->links) {
        lookup_group(t, tokens, offsets, out, n, Q);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]);
        out[i] = -1;
        l.number[n_alive] = i;
        l.entry[n_alive] = 0;
        n_alive += length && length <= t->n_steps;
    }
    for (uint64_t depth = 0; n_alive; depth++) {
        const step_t *s = t->step + depth;
        size_t kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = l.number[a];
            uint64_t p = steps_row(t, depth, l.entry[a], Q);
            l.row[kept] = p;
            l.token[kept] = tokens[(uint64_t)offsets[i] + depth] - s->low;
            l.number[kept] = i;
            kept += p != NOWHERE;
        }
        n_alive = kept;
        if (suits_512(t, s)) {
            narrow_512(t, s, &l, &g, n_alive);
            pick_512(t, s, &l, &g, n_alive);
        } else if (s->kind == BITMAP) {
            for (size_t a = 0; a < n_alive; a++) {
                l.first[a] = s->tree_at + l.row[a] * s->range + l.token[a];
                if (l.token[a] >= s->range) l.first[a] = NOWHERE;
                else bits_prefetch(&t->bits, l.first[a]);
            }
            for (size_t a = 0; a < n_alive; a++) {
                uint64_t at = l.first[a];
                l.entry[a] = at != NOWHERE && bits_get(&t->bits, at)
                                 ? rank1(&t->bits, at) - s->tree_ones : NOWHERE;
            }
        } else {
            for (size_t a = 0; a < n_alive; a++) {
                l.n[a] = narrow_one(t, s, l.row[a], s->low + l.token[a], &l.first[a]);
                steps_prefetch(t, s, l.first[a]);
            }
            for (size_t a = 0; a < n_alive; a++)
                l.entry[a] = pick_one(t, s, l.first[a], l.n[a], s->low + l.token[a]);
        }
        kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = l.number[a];
            uint64_t e = l.entry[a];
            if (e == NOWHERE) continue;
            if ((uint64_t)offsets[i] + depth + 1 == (uint64_t)offsets[i + 1]) {
                out[i] = tails_number(t, depth + 1, e, rank1);
            } else {
                l.number[kept] = i;
                l.entry[kept++] = e;
            }
        }
        n_alive = kept;
    }
}

#endif
