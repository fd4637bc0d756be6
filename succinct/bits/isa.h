/* Rank and select for instruction sets that the baseline of the build does not promise.
 *
 * A function marked V3 or V4 is compiled for x86-64-v3 or AVX-512 with everything inlined that it
 * calls; it runs only where the processor has them (see isa_level).
 */
#ifndef SUCCINCT_ISA_H
#define SUCCINCT_ISA_H

#include "succinct/bits/rank_select.h"

static const char *const isa_names[] = {"portable", "x86-64-v3", "avx512"};

#define PORTABLE __attribute__((flatten))

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>

/* ---- x86-64-v3: the same code, with POPCNT for the counts and PDEP for the last word -------- */

#define V3 __attribute__((target("popcnt,bmi,bmi2,lzcnt,avx2"), flatten))
#define V3_INLINE __attribute__((target("popcnt,bmi,bmi2,lzcnt,avx2"), always_inline)) static inline

V3_INLINE uint64_t pdep_select(uint64_t x, uint64_t k) {
    return (uint64_t)__builtin_ctzll(_pdep_u64(1ull << k, x));
}

V3_INLINE uint64_t bits_drop_v3(uint64_t x, uint64_t k) { return _pdep_u64(~0ull << k, x); }

/* The one (or zero) number `rest` of the block, as a position in the vector. */
V3_INLINE uint64_t in_block_v3(const bitvector_t *v, uint64_t block, uint64_t rest, int zeros) {
    uint64_t at = block * BLOCK_WORDS, flip = zeros ? ~0ull : 0, here;
    while (rest >= (here = (uint64_t)__builtin_popcountll(v->words[at] ^ flip))) {
        rest -= here;
        at++;
    }
    return (at << 6) + pdep_select(v->words[at] ^ flip, rest);
}

V3_INLINE uint64_t bits_select1_v3(const bitvector_t *v, uint64_t k) {
    uint64_t block = bits_block_of_one(v, k);
    return in_block_v3(v, block, k - bits_before(v, block), 0);
}

V3_INLINE uint64_t bits_select0_v3(const bitvector_t *v, uint64_t k) {
    uint64_t block = bits_block_of_zero(v, k);
    return in_block_v3(v, block, k - bits_zeros_before(v, block), 1);
}

/* ---- AVX-512: eight words, or sixteen block counts, at once -------------------------------- */

#define ISA512 "popcnt,bmi,bmi2,lzcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq"
#define V4 __attribute__((target(ISA512), flatten))
#define V4_INLINE __attribute__((target(ISA512), always_inline)) static inline

V4_INLINE __m512i set_512(uint64_t x) { return _mm512_set1_epi64((long long)x); }

V4_INLINE uint64_t bits_rank1_v4(const bitvector_t *v, uint64_t i) {
    uint64_t b = i >> BLOCK_SHIFT, k = (i >> 6) & 7;
    const uint64_t *p = v->words + b * BLOCK_WORDS;
    /* Words before word k count whole, word k up to bit i, the others not at all. */
    __m512i upto = _mm512_mask_set1_epi64(_mm512_set1_epi64(-1), (__mmask8)(1u << k),
                                          (long long)((1ull << (i & 63)) - 1));
    __m512i words = _mm512_maskz_and_epi64((__mmask8)((2u << k) - 1), _mm512_loadu_si512(p), upto);
    /* Eight counts of at most 64 add up as bytes. */
    __m128i counts = _mm512_cvtepi64_epi8(_mm512_popcnt_epi64(words));
    return bits_before(v, b) +
           (uint64_t)_mm_cvtsi128_si64(_mm_sad_epu8(counts, _mm_setzero_si128()));
}

V4_INLINE uint64_t bits_rank0_v4(const bitvector_t *v, uint64_t i) { return i - bits_rank1_v4(v, i); }

/* The last block in [lo, hi] with at most k ones (or zeros) before it, hi - lo <= 16; `k` is
 * counted from the start of the superblock that holds both. */
V4_INLINE uint64_t block_512(const bitvector_t *v, uint64_t lo, uint64_t hi, uint64_t k,
                             int zeros) {
    __mmask16 valid = (__mmask16)((1u << (hi - lo)) - 1);
    __m512i before = _mm512_maskz_loadu_epi32(valid, v->blocks + lo + 1);
    if (zeros) {
        uint32_t first = (uint32_t)((lo + 1) << BLOCK_SHIFT);
        __m512i bits = _mm512_add_epi32(
            _mm512_set1_epi32((int)first),
            _mm512_setr_epi32(0, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 5632,
                              6144, 6656, 7168, 7680));
        before = _mm512_sub_epi32(bits, before);
    }
    __mmask16 within = _mm512_mask_cmple_epu32_mask(valid, before, _mm512_set1_epi32((int)k));
    return lo + (uint64_t)__builtin_popcount(within);
}

V4_INLINE uint64_t in_block_512(const bitvector_t *v, uint64_t block, uint64_t rest, int zeros) {
    const uint64_t *p = v->words + block * BLOCK_WORDS;
    __m512i zero = _mm512_setzero_si512(), words = _mm512_loadu_si512(p), sum;
    if (zeros) words = _mm512_xor_si512(words, _mm512_set1_epi64(-1));
    sum = _mm512_popcnt_epi64(words); /* inclusive prefix sums in three shifted additions */
    sum = _mm512_add_epi64(sum, _mm512_alignr_epi64(sum, zero, 7));
    sum = _mm512_add_epi64(sum, _mm512_alignr_epi64(sum, zero, 6));
    sum = _mm512_add_epi64(sum, _mm512_alignr_epi64(sum, zero, 4));
    __m512i wanted = _mm512_set1_epi64((long long)rest);
    uint32_t j = (uint32_t)__builtin_popcount(_mm512_cmple_epu64_mask(sum, wanted));
    /* Ones before word j: element j - 1 of the sums, or 0. */
    __m512i exclusive = _mm512_alignr_epi64(sum, zero, 7);
    uint64_t before = (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(
        _mm512_permutexvar_epi64(_mm512_set1_epi64(j), exclusive)));
    uint64_t word = zeros ? ~p[j] : p[j];
    return (block << BLOCK_SHIFT) + (j << 6) + pdep_select(word, rest - before);
}

V4_INLINE uint64_t select_512(const bitvector_t *v, uint64_t k, int zeros) {
    const uint32_t *sample =
        zeros ? v->samples0 + (k >> v->shift0) : v->samples1 + (k >> v->shift1);
    uint64_t lo = sample[0], hi = sample[1], base, rest;
    if ((lo ^ hi) >> SUPER_SHIFT) { /* across superblocks: rare, search as the portable code does */
        lo = zeros ? bits_block_of_zero(v, k) : bits_block_of_one(v, k);
        rest = k - (zeros ? bits_zeros_before(v, lo) : bits_before(v, lo));
        return in_block_512(v, lo, rest, zeros);
    }
    base = v->supers[lo >> SUPER_SHIFT];
    if (zeros) base = (lo >> SUPER_SHIFT << (SUPER_SHIFT + BLOCK_SHIFT)) - base;
    rest = k - base;
    while (hi - lo > 16) {
        uint64_t mid = (lo + hi + 1) >> 1;
        uint64_t before = v->blocks[mid];
        if (zeros) before = (uint32_t)((mid << BLOCK_SHIFT) - before);
        if (before <= rest) lo = mid; else hi = mid - 1;
    }
    lo = block_512(v, lo, hi, rest, zeros);
    rest -= zeros ? (uint32_t)((lo << BLOCK_SHIFT) - v->blocks[lo]) : v->blocks[lo];
    return in_block_512(v, lo, rest, zeros);
}

V4_INLINE uint64_t bits_select1_v4(const bitvector_t *v, uint64_t k) { return select_512(v, k, 0); }
V4_INLINE uint64_t bits_select0_v4(const bitvector_t *v, uint64_t k) { return select_512(v, k, 1); }

#endif

/* The addresses of the versions of something, in the order of isa_names. */
#ifdef X86
#define ISA_VERSIONS(NAME) &NAME##_portable, &NAME##_v3, &NAME##_v4
#else
#define ISA_VERSIONS(NAME) &NAME##_portable
#endif

/* The place in isa_names of the best instruction set that this processor runs, or of the named
 * one; -1 if it is unknown or the processor does not run it. */
static inline int isa_level(const char *name) {
    int best = 0;
#ifdef X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("avx2"))
        best = 1;
    if (best == 1 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vpopcntdq"))
        best = 2;
#endif
    if (name == NULL) return best;
    for (int level = 0; level <= best; level++)
        if (strcmp(name, isa_names[level]) == 0) return level;
    return -1;
}

#endif
