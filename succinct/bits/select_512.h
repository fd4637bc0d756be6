/* Batches of select for AVX-512: groups of queries in three passes, so that the words of many are
 * on their way while others are looked at.
 *
 * The first pass guesses the block of each query by its share of the way between two samples, eight
 * at once.  The second compares the counts of 16 blocks around the guess, and asks for the words of
 * the block.  The third finds the word, four queries at once, and the bit, one by one: PDEP is
 * scalar.  Whatever is out of the ordinary (a guess far off, a border of superblocks) is left to
 * select_512.
 */
#ifndef SUCCINCT_SELECT_512_H
#define SUCCINCT_SELECT_512_H

#include "succinct/bits/isa.h"

#ifdef X86

#define SELECT_GROUP 64
#define WINDOW 16

typedef struct {
    uint64_t first[SELECT_GROUP]; /* block of the window */
    uint64_t block[SELECT_GROUP];
    uint64_t rest[SELECT_GROUP];  /* ones (or zeros) to go: in the superblock, then in the block */
    __mmask8 lanes[SELECT_GROUP / 8]; /* what is not left to others */
} selects_t;

/* What blocks [lo, lo + WINDOW) of a superblock have before them. */
V4_INLINE __m512i window_512(const bitvector_t *v, uint64_t lo, int zeros) {
    __m512i before = _mm512_loadu_si512(v->blocks + lo), bits;
    if (!zeros) return before;
    bits = _mm512_setr_epi32(0, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 5632,
                             6144, 6656, 7168, 7680);
    bits = _mm512_add_epi32(bits, _mm512_set1_epi32((int)(uint32_t)(lo << BLOCK_SHIFT)));
    return _mm512_sub_epi32(bits, before);
}

V4_INLINE void guess_512(const bitvector_t *v, selects_t *s, int i, __m512i k, int zeros) {
    const uint32_t *samples = zeros ? v->samples0 : v->samples1;
    uint32_t spacing = zeros ? v->shift0 : v->shift1;
    __m128i shift = _mm_cvtsi32_si128((int)spacing);
    __m512i pair = _mm512_i64gather_epi64(_mm512_srl_epi64(k, shift), samples, 4);
    __m512i lo = _mm512_and_si512(pair, set_512(UINT32_MAX)), hi = _mm512_srli_epi64(pair, 32);
    __m512i left = _mm512_and_si512(k, set_512((1ull << spacing) - 1)), at, super, base;
    at = _mm512_mul_epu32(left, _mm512_sub_epi64(hi, lo));
    at = _mm512_srl_epi64(_mm512_add_epi64(at, set_512(1ull << spacing >> 1)), shift);
    at = _mm512_sub_epi64(_mm512_add_epi64(lo, at), set_512(WINDOW / 2 - 1));
    at = _mm512_max_epi64(at, _mm512_setzero_si512());
    at = _mm512_min_epi64(at, set_512((v->length >> BLOCK_SHIFT) + 1 - WINDOW));
    s->lanes[i / 8] = 0xff;
    if (v->length >> (SUPER_SHIFT + BLOCK_SHIFT)) {
        super = _mm512_srli_epi64(lo, SUPER_SHIFT);
        hi = _mm512_or_si512(_mm512_xor_si512(lo, hi), _mm512_xor_si512(lo, at));
        lo = _mm512_xor_si512(lo, _mm512_add_epi64(at, set_512(WINDOW - 1)));
        hi = _mm512_srli_epi64(_mm512_or_si512(lo, hi), SUPER_SHIFT);
        s->lanes[i / 8] = _mm512_testn_epi64_mask(hi, hi);
        base = _mm512_i64gather_epi64(super, v->supers, 8);
        if (zeros)
            base = _mm512_sub_epi64(_mm512_slli_epi64(super, SUPER_SHIFT + BLOCK_SHIFT), base);
        k = _mm512_sub_epi64(k, base);
    }
    _mm512_storeu_si512(s->first + i, at);
    _mm512_storeu_si512(s->rest + i, k);
}

V4_INLINE void block_in_window_512(const bitvector_t *v, selects_t *s, int q, int zeros) {
    __m512i wanted = _mm512_set1_epi32((int)(uint32_t)s->rest[q]);
    uint32_t within = _mm512_cmple_epu32_mask(window_512(v, s->first[q], zeros), wanted);
    s->block[q] = s->first[q] + (uint64_t)__builtin_popcount(within) - 1;
    __builtin_prefetch(v->words + s->block[q] * BLOCK_WORDS);
}

V4_INLINE void check_block_512(const bitvector_t *v, selects_t *s, int i, int zeros) {
    /* The block behind the one that was found must be in the window, too, if there is one. */
    __m512i last = set_512(v->length >> BLOCK_SHIFT), block = _mm512_loadu_si512(s->block + i);
    __m512i rest = _mm512_loadu_si512(s->rest + i), before;
    __m512i passed = _mm512_sub_epi64(block, _mm512_loadu_si512(s->first + i));
    __mmask8 lanes = s->lanes[i / 8];
    lanes = _mm512_mask_cmplt_epu64_mask(lanes, passed, set_512(WINDOW - 1)) |
            _mm512_mask_cmpeq_epi64_mask(lanes, block, last);
    block = _mm512_maskz_mov_epi64(lanes, block);
    before = _mm512_cvtepu32_epi64(_mm512_i64gather_epi32(block, v->blocks, 4));
    if (zeros) {
        before = _mm512_sub_epi64(_mm512_slli_epi64(block, BLOCK_SHIFT), before);
        before = _mm512_and_si512(before, set_512(UINT32_MAX));
    }
    s->lanes[i / 8] = lanes;
    _mm512_storeu_si512(s->block + i, block);
    _mm512_storeu_si512(s->rest + i, _mm512_maskz_sub_epi64(lanes, rest, before));
}

V4_INLINE void bit_in_block_512(const bitvector_t *v, const selects_t *s, int i, int64_t *out,
                                int zeros) {
    static const uint16_t by_query[32] = {0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,
                                          13, 17, 21, 25, 29, 2, 6, 10, 14, 18, 22,
                                          26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
    static const uint16_t to_query[32] = {0, 0, 0, 0, 0, 0, 0, 0, 4,  4,  4,  4,  4,  4,  4,  4,
                                          8, 8, 8, 8, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12, 12};
    uint16_t before[32];
    uint64_t flip = zeros ? ~0ull : 0;
    __m512i counts[4], here, sums, rest;
    for (int q = 0; q < 4; q++)
        counts[q] = _mm512_popcnt_epi64(
            _mm512_loadu_si512(v->words + s->block[i + q] * BLOCK_WORDS));
    here = _mm512_or_si512(
        _mm512_or_si512(counts[0], _mm512_slli_epi64(counts[1], 16)),
        _mm512_or_si512(_mm512_slli_epi64(counts[2], 32), _mm512_slli_epi64(counts[3], 48)));
    /* The eight counts of a query side by side, and their sums in three shifted additions. */
    here = _mm512_permutexvar_epi16(_mm512_loadu_si512(by_query), here);
    if (zeros) here = _mm512_sub_epi16(_mm512_set1_epi16(64), here);
    sums = _mm512_add_epi16(here, _mm512_bslli_epi128(here, 2));
    sums = _mm512_add_epi16(sums, _mm512_bslli_epi128(sums, 4));
    sums = _mm512_add_epi16(sums, _mm512_bslli_epi128(sums, 8));
    rest = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(s->rest + i)));
    rest = _mm512_permutexvar_epi16(_mm512_loadu_si512(to_query), rest);
    uint32_t within = _mm512_cmple_epu16_mask(sums, rest);
    _mm512_storeu_si512(before, _mm512_sub_epi16(sums, here));
    for (int q = 0; q < 4; q++, within >>= 8) {
        uint64_t j = (uint64_t)__builtin_popcount(within & 0xff) & 7;
        uint64_t at = s->block[i + q] * BLOCK_WORDS + j;
        uint64_t bit = pdep_select(v->words[at] ^ flip, s->rest[i + q] - before[8 * q + (int)j]);
        out[i + q] = (int64_t)((at << 6) + bit);
    }
}

V4 static __attribute__((noinline)) uint64_t select_one_512(const bitvector_t *v, uint64_t k,
                                                            int zeros) {
    return select_512(v, k, zeros);
}

V4_INLINE size_t select_batch_512(const bitvector_t *v, const int64_t *q, int64_t *out, size_t n,
                                  uint64_t limit, int zeros) {
    const bitvector_t own = *v; /* what is written to `out` cannot change it */
    size_t done = 0;
    selects_t s;
    for (; done + SELECT_GROUP <= n && own.length >> BLOCK_SHIFT >= WINDOW; done += SELECT_GROUP) {
        __mmask8 in_range = 0xff;
        int64_t asked[SELECT_GROUP]; /* `out` may be `q` */
        for (int i = 0; i < SELECT_GROUP; i += 8) {
            __m512i k = _mm512_loadu_si512(q + done + i);
            in_range = _mm512_mask_cmplt_epu64_mask(in_range, k, set_512(limit));
            _mm512_storeu_si512(asked + i, k);
        }
        if (in_range != 0xff) break;
        for (int i = 0; i < SELECT_GROUP; i += 8)
            guess_512(&own, &s, i, _mm512_loadu_si512(asked + i), zeros);
        for (int i = 0; i < SELECT_GROUP; i++) block_in_window_512(&own, &s, i, zeros);
        for (int i = 0; i < SELECT_GROUP; i += 8) check_block_512(&own, &s, i, zeros);
        for (int i = 0; i < SELECT_GROUP; i += 4) bit_in_block_512(&own, &s, i, out + done, zeros);
        for (int i = 0; i < SELECT_GROUP; i += 8)
            for (uint32_t others = 0xffu & ~s.lanes[i / 8]; others; others &= others - 1) {
                int at = i + __builtin_ctz(others);
                out[done + (size_t)at] = (int64_t)select_one_512(&own, (uint64_t)asked[at], zeros);
            }
    }
    for (; done < n && (uint64_t)q[done] < limit; done++)
        out[done] = (int64_t)select_one_512(&own, (uint64_t)q[done], zeros);
    return done;
}

V4 static size_t select1_v4_batch(const bitvector_t *v, const int64_t *q, int64_t *out, size_t n,
                                  uint64_t limit) {
    return select_batch_512(v, q, out, n, limit, 0);
}

V4 static size_t select0_v4_batch(const bitvector_t *v, const int64_t *q, int64_t *out, size_t n,
                                  uint64_t limit) {
    return select_batch_512(v, q, out, n, limit, 1);
}

#endif

#endif
