/* Queries of Elias-Fano sequences, alone and in batches.
 *
 * Batches go in groups, so that the low bits are fetched while other queries look at the high ones.
 */
#ifndef SUCCINCT_ELIAS_FANO_H
#define SUCCINCT_ELIAS_FANO_H

#include "succinct/bits/isa.h"
#include "succinct/bits/marks.h"

#define GROUP 64
#include "succinct/bits/marks_512.h"

/* What each instruction set has its own of, as parameters (see bits_query_t). */
#define QUERIES bits_query_t select1, bits_query_t select0, bits_drop_t drop
#define Q select1, select0, drop

INLINE uint64_t ef_get(const elias_fano_t *e, uint64_t i, QUERIES) {
    uint64_t at = marks_select(&e->high, &e->ones, i, 0, NULL, Q);
    return ((at - i) << e->low.width) | packed_get(&e->low, i);
}

INLINE void prefetch_low(const elias_fano_t *e, uint64_t i) {
    __builtin_prefetch(e->low.words + ((i * e->low.width) >> 6));
}

INLINE size_t ef_get_group(const elias_fano_t *e, const int64_t *q, uint64_t *out, size_t n,
                           QUERIES) {
    size_t i;
    for (i = 0; i < n && (uint64_t)q[i] < e->low.length; i++) {
        prefetch_low(e, (uint64_t)q[i]);
        out[i] = marks_select(&e->high, &e->ones, (uint64_t)q[i], 0, NULL, Q);
    }
    for (size_t k = 0; k < i; k++)
        out[k] = ((out[k] - (uint64_t)q[k]) << e->low.width) | packed_get(&e->low, (uint64_t)q[k]);
    return i;
}

/* The values that share the high bits of x: those from value i on, n of them.  The one of the first,
 * or the zero behind them, is bit `at`. */
typedef struct {
    uint64_t at, i, n;
} bucket_t;

INLINE bucket_t ef_bucket(const elias_fano_t *e, uint64_t x, QUERIES) {
    uint64_t high = x >> e->low.width, next;
    bucket_t b = {e->high.length, e->low.length, 0};
    if (high >= e->high.length - e->high.ones) return b;
    if (high == 0) {
        b.at = b.i = 0;
        b.n = bits_next_zero(&e->high, 0);
        return b;
    }
    b.at = marks_select(&e->high, &e->zeros, high - 1, 1, &next, Q) + 1;
    b.i = b.at - high;
    b.n = next - b.at;
    return b;
}

/* How many values are smaller than x, whose bucket is b. */
INLINE uint64_t ef_rank(const elias_fano_t *e, uint64_t x, bucket_t b) {
    uint64_t rest = x & e->low.mask, width = e->low.width, four, count = 0;
    while (b.n > 4) { /* rare where values are spread evenly */
        uint64_t half = b.n >> 1;
        if (packed_get(&e->low, b.i + half) < rest) {
            b.i += half + 1;
            b.n -= half + 1;
        } else {
            b.n = half;
        }
    }
    if (width > 14) {
        while (count < b.n && packed_get(&e->low, b.i + count) < rest) count++;
        return b.i + count;
    }
    /* How many of the last few are smaller cannot be foretold: one load, and no branch on them. */
    memcpy(&four, (const char *)e->low.words + ((b.i * width) >> 3), 8);
    four >>= (b.i * width) & 7;
    for (uint64_t k = 0; k < 4; k++)
        count += (k < b.n) & (((four >> (k * width)) & e->low.mask) < rest);
    return b.i + count;
}

INLINE void ef_rank_group(const elias_fano_t *e, const uint64_t *x, uint64_t *out, size_t n,
                          int next, QUERIES) {
    bucket_t b[GROUP];
    for (size_t k = 0; k < n; k++) {
        b[k] = ef_bucket(e, x[k], Q);
        prefetch_low(e, b[k].i);
    }
    for (size_t k = 0; k < n; k++) {
        uint64_t i = ef_rank(e, x[k], b[k]);
        if (next && i < e->low.length) {
            uint64_t at = b[k].at + (i - b[k].i), w = at >> 6, x = e->high.words[w] >> (at & 63);
            if (x == 0) { /* there is a one: that of value i */
                do x = e->high.words[++w]; while (x == 0);
                at = w << 6;
            }
            at += (uint64_t)__builtin_ctzll(x);
            out[k] = ((at - i) << e->low.width) | packed_get(&e->low, i);
        } else {
            out[k] = next ? UINT64_MAX : i;
        }
    }
}

#ifdef X86

/* ---- AVX-512: eight queries at once.  Whichever of them are out of the ordinary (a search over
 * many words, a crowded bucket) are left to the functions above. ------------------------------- */

/* Integers i < 2**32 of at most 57 bits, with what lies behind them. */
V4_INLINE __m512i packed_512(const packed_t *p, __m512i i, __mmask8 lanes) {
    return from_bit_512(p->words, _mm512_mul_epu32(i, set_512(p->width)), lanes);
}

V3 static __attribute__((noinline)) uint64_t ef_get_one(const elias_fano_t *e, uint64_t i) {
    return ef_get(e, i, bits_select1_v3, bits_select0_v3, bits_drop_v3);
}

V3 static __attribute__((noinline)) uint64_t ef_rank_one(const elias_fano_t *e, uint64_t x,
                                                         int next) {
    uint64_t out;
    ef_rank_group(e, &x, &out, 1, next, bits_select1_v3, bits_select0_v3, bits_drop_v3);
    return out;
}

/* Whether the sequence is one for the functions below; with marks it has less than 2**32 values. */
V4_INLINE int ef_suits_512(const elias_fano_t *e, const marks_t *marks) {
    return marks->mark != NULL && e->low.width <= 57;
}

/* The values at GROUP positions, which are in range. */
V4_INLINE void ef_get_512(const elias_fano_t *e, const int64_t *q, uint64_t *out) {
    group_512_t g;
    __m128i width = _mm_cvtsi64_si128((long long)e->low.width);
    for (int i = 0; i < GROUP; i += 8) {
        __m512i w, x, rest, k = _mm512_loadu_si512(q + i);
        g.lanes[i / 8] = 0xff;
        marks_512(&e->high, &e->ones, k, 0, &w, &x, &rest, g.lanes + i / 8);
        _mm512_storeu_si512(out + i, packed_512(&e->low, k, 0xff));
        _mm512_storeu_si512(g.w + i, w);
        _mm512_storeu_si512(g.x + i, x);
        _mm512_storeu_si512(g.rest + i, rest);
    }
    drop_512(&g, GROUP);
    for (int i = 0; i < GROUP; i += 8) {
        __m512i at = _mm512_slli_epi64(_mm512_loadu_si512(g.w + i), 6);
        at = _mm512_add_epi64(at, ctz_512(_mm512_loadu_si512(g.x + i)));
        at = _mm512_sll_epi64(_mm512_sub_epi64(at, _mm512_loadu_si512(q + i)), width);
        __m512i low = _mm512_and_si512(_mm512_loadu_si512(out + i), set_512(e->low.mask));
        _mm512_storeu_si512(out + i, _mm512_or_si512(at, low));
        for (uint32_t others = 0xffu & ~g.lanes[i / 8]; others; others &= others - 1) {
            int k = i + __builtin_ctz(others);
            out[k] = ef_get_one(e, (uint64_t)q[k]);
        }
    }
}

/* How many of the n values from `place` on are smaller than what a query asks for, where there are
 * `lanes`; n is at most 4 there, and `few` begins with the low bits of the first. */
V4_INLINE __m512i ef_smaller_512(const elias_fano_t *e, __m512i query, __m512i place, __m512i n,
                                 __m512i few, __mmask8 lanes) {
    __m512i one = set_512(1), mask = set_512(e->low.mask), count = _mm512_setzero_si512(), here;
    query = _mm512_and_si512(query, mask);
    for (uint64_t k = 0; k < 4; k++) {
        __mmask8 some = _mm512_mask_cmpgt_epu64_mask(lanes, n, set_512(k));
        here = e->low.width > 14 && k
                   ? packed_512(&e->low, _mm512_add_epi64(place, set_512(k)), some)
                   : _mm512_srl_epi64(few, _mm_cvtsi64_si128((long long)(k * e->low.width)));
        some = _mm512_mask_cmplt_epu64_mask(some, _mm512_and_si512(here, mask), query);
        count = _mm512_mask_add_epi64(count, some, count, one);
    }
    return count;
}

/* As ef_rank_group, for GROUP queries.  The first pass has no branches, so that its loads need not
 * wait for each other. */
V4_INLINE void ef_rank_512(const elias_fano_t *e, const uint64_t *x, uint64_t *out, int next) {
    const bitvector_t *v = &e->high;
    const uint64_t width = e->low.width;
    group_512_t g;
    __m128i shift = _mm_cvtsi64_si128((long long)width);
    __m512i one = set_512(1), zero = _mm512_setzero_si512(), w, word, rest;
    __m512i last = set_512(v->length - v->ones - 1); /* the last bucket */
    __m512i whole = set_512((v->length >> BLOCK_SHIFT << BLOCK_SHIFT) + 7 * 64);
    for (int i = 0; i < GROUP; i += 8) {
        __m512i k = _mm512_sub_epi64(_mm512_srl_epi64(_mm512_loadu_si512(x + i), shift), one);
        g.lanes[i / 8] = _mm512_cmplt_epu64_mask(k, last); /* not the first, nor behind the last */
        marked_512(v, &e->zeros, k, ~0ull, &w, &word, &rest, g.lanes[i / 8]);
        _mm512_storeu_si512(g.w + i, w);
        _mm512_storeu_si512(g.x + i, word);
        _mm512_storeu_si512(g.rest + i, rest);
    }
    for (int i = 0; i < GROUP; i += 8) {
        word = _mm512_loadu_si512(g.x + i);
        rest = _mm512_loadu_si512(g.rest + i);
        __m512i count = _mm512_popcnt_epi64(word);
        if (!_mm512_mask_cmple_epu64_mask(g.lanes[i / 8], count, rest)) continue;
        w = _mm512_loadu_si512(g.w + i);
        beyond_marks_512(v, ~0ull, &w, &word, &rest, g.lanes + i / 8);
        _mm512_storeu_si512(g.w + i, w);
        _mm512_storeu_si512(g.x + i, word);
        _mm512_storeu_si512(g.rest + i, rest);
    }
    drop_512(&g, GROUP);
    for (int i = 0; i < GROUP; i += 8) {
        __m512i query = _mm512_loadu_si512(x + i), high = _mm512_srl_epi64(query, shift);
        __m512i at, place, bits = zero, few = zero, count = zero, n;
        __mmask8 lanes = g.lanes[i / 8];
        /* The bucket: n values from value `place` on, the one of the first at bit `at`. */
        at = _mm512_slli_epi64(_mm512_loadu_si512(g.w + i), 6);
        at = _mm512_add_epi64(at, ctz_512(_mm512_loadu_si512(g.x + i)));
        at = _mm512_add_epi64(at, one);
        place = _mm512_sub_epi64(at, high);
        if (next || width) { /* the high bits from there on, of which there are 57 */
            lanes = _mm512_mask_cmple_epu64_mask(lanes, at, whole);
            bits = from_bit_512(v->words, at, lanes);
        }
        if (width) {
            n = ctz_512(_mm512_andnot_si512(bits, set_512(~0ull)));
            lanes = _mm512_mask_cmple_epu64_mask(lanes, n, set_512(4));
            few = packed_512(&e->low, place, lanes);
            count = ef_smaller_512(e, query, place, n, few, lanes);
            place = _mm512_add_epi64(place, count);
        }
        if (next) {
            bits = _mm512_srlv_epi64(bits, count); /* the first one there is that of the value */
            lanes = _mm512_mask_test_epi64_mask(lanes, bits, bits);
            high = _mm512_sll_epi64(_mm512_add_epi64(high, ctz_512(bits)), shift);
            if (width > 11) {
                few = packed_512(&e->low, place, lanes);
            } else if (width) { /* the low bits of five values are there */
                few = _mm512_srlv_epi64(few, _mm512_mul_epu32(count, set_512(width)));
            }
            place = _mm512_or_si512(high, _mm512_and_si512(few, set_512(e->low.mask)));
        }
        g.lanes[i / 8] = lanes;
        _mm512_storeu_si512(out + i, _mm512_mask_mov_epi64(query, lanes, place));
    }
    for (int i = 0; i < GROUP; i += 8)
        for (uint32_t others = 0xffu & ~g.lanes[i / 8]; others; others &= others - 1) {
            int k = i + __builtin_ctz(others);
            out[k] = ef_rank_one(e, out[k], next);
        }
}

V4 static size_t ef_get_v4_batch(const elias_fano_t *e, const int64_t *q, uint64_t *out, size_t n) {
    const elias_fano_t own = *e;
    size_t done = 0;
    if (ef_suits_512(&own, &own.ones))
        for (; done + GROUP <= n; done += GROUP) {
            __mmask8 in_range = 0xff;
            for (int i = 0; i < GROUP; i += 8)
                in_range = _mm512_mask_cmplt_epu64_mask(in_range, _mm512_loadu_si512(q + done + i),
                                                        set_512(own.low.length));
            if (in_range != 0xff) break;
            ef_get_512(&own, q + done, out + done);
        }
    for (; done < n && (uint64_t)q[done] < own.low.length; done++)
        out[done] = ef_get_one(&own, (uint64_t)q[done]);
    return done;
}

V4_INLINE void ef_values_512(const elias_fano_t *e, const uint64_t *x, uint64_t *out, size_t n,
                             int next) {
    const elias_fano_t own = *e;
    size_t done = 0;
    if (ef_suits_512(&own, &own.zeros))
        for (; done + GROUP <= n; done += GROUP) ef_rank_512(&own, x + done, out + done, next);
    for (; done < n; done++) out[done] = ef_rank_one(&own, x[done], next);
}

V4 static void ef_rank_v4_batch(const elias_fano_t *e, const uint64_t *x, uint64_t *out, size_t n) {
    ef_values_512(e, x, out, n, 0);
}

V4 static void ef_next_v4_batch(const elias_fano_t *e, const uint64_t *x, uint64_t *out, size_t n) {
    ef_values_512(e, x, out, n, 1);
}

#endif

#endif
