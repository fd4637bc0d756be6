// Rank and select with one count of 32 bits for each block of 512 bits, and a sample of every
// 1024th one and zero, over fewer than 2^32 bits. Scalar code, or AVX-512 where the compiler may
// use it. Words are padded to whole blocks with one block behind the last position.
#pragma once
#include <stdint.h>
#if defined(__BMI2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { BLOCK_SHIFT = 9, SAMPLE_SHIFT = 10 };

static inline uint64_t ones(uint64_t word) { return (uint64_t)__builtin_popcountll(word); }

static inline uint64_t place_of(uint64_t word, uint64_t k) {
#ifdef __BMI2__
  return (uint64_t)__builtin_ctzll(_pdep_u64(1ull << k, word));
#else
  for (; k; k--) word &= word - 1;
  return (uint64_t)__builtin_ctzll(word);
#endif
}

// Ones (or zeros, with `flip` all ones) before a block.
static inline uint64_t before(const uint32_t *counts, uint64_t block, uint64_t flip) {
  return flip ? (block << BLOCK_SHIFT) - counts[block] : counts[block];
}

static inline uint64_t rank(const uint64_t *words, const uint32_t *counts, uint64_t i) {
  const uint64_t *block = words + ((i >> BLOCK_SHIFT) << 3);
  uint64_t count = counts[i >> BLOCK_SHIFT];
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512DQ__)
  // Lane j keeps its lowest (i mod 512) - 64 j bits: none if that is negative, all from 64 on.
  __m512i starts = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448);
  __m512i kept = _mm512_sub_epi64(_mm512_set1_epi64((long long)(i & 511)), starts);
  __m512i one = _mm512_set1_epi64(1);
  __m512i mask = _mm512_sub_epi64(_mm512_sllv_epi64(one, kept), one);
  __mmask8 lanes = _mm512_cmpgt_epi64_mask(kept, _mm512_setzero_si512());
  __m512i bits = _mm512_maskz_and_epi64(lanes, _mm512_loadu_si512(block), mask);
  return count + (uint64_t)_mm512_reduce_add_epi64(_mm512_popcnt_epi64(bits));
#else
  unsigned last = (i >> 6) & 7;
  for (unsigned j = 0; j < last; j++) count += ones(block[j]);
  return count + ones(block[last] & ((1ull << (i & 63)) - 1));
#endif
}

static inline uint64_t in_block(const uint64_t *block, uint64_t k, uint64_t flip) {
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512DQ__)
  __m512i zero = _mm512_setzero_si512();
  __m512i bits = _mm512_xor_si512(_mm512_loadu_si512(block), _mm512_set1_epi64((long long)flip));
  __m512i each = _mm512_popcnt_epi64(bits), sums = each;
  sums = _mm512_add_epi64(sums, _mm512_alignr_epi64(sums, zero, 7));
  sums = _mm512_add_epi64(sums, _mm512_alignr_epi64(sums, zero, 6));
  sums = _mm512_add_epi64(sums, _mm512_alignr_epi64(sums, zero, 4));
  __mmask8 passed = _mm512_cmple_epu64_mask(sums, _mm512_set1_epi64((long long)k));
  uint64_t word = (uint64_t)__builtin_popcount(passed);
  __m512i start = _mm512_permutexvar_epi64(_mm512_set1_epi64((long long)word),
                                           _mm512_sub_epi64(sums, each));
  k -= (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(start));
  return (word << 6) + place_of(block[word] ^ flip, k);
#else
  uint64_t word = 0, count;
  while (k >= (count = ones(block[word] ^ flip))) {
    k -= count;
    word++;
  }
  return (word << 6) + place_of(block[word] ^ flip, k);
#endif
}

static inline uint64_t select_bit(const uint64_t *words, const uint32_t *counts,
                                  const uint32_t *samples, uint64_t k, uint64_t flip) {
  uint64_t low = samples[k >> SAMPLE_SHIFT], high = samples[(k >> SAMPLE_SHIFT) + 1];
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512DQ__)
  enum { SCAN = 16 };
#else
  enum { SCAN = 8 };
#endif
  while (high - low > SCAN) {
    uint64_t middle = (low + high + 1) >> 1;
    if (before(counts, middle, flip) <= k) low = middle;
    else high = middle - 1;
  }
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512DQ__)
  __m512i next = _mm512_loadu_si512(counts + low + 1);
  if (flip) {
    __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i starts = _mm512_add_epi32(_mm512_set1_epi32((int)(low + 1)), steps);
    next = _mm512_sub_epi32(_mm512_slli_epi32(starts, BLOCK_SHIFT), next);
  }
  __mmask16 valid = (__mmask16)((1u << (high - low)) - 1);
  __mmask16 passed = _mm512_mask_cmple_epu32_mask(valid, next, _mm512_set1_epi32((int)k));
  low += (uint64_t)__builtin_popcount(passed);
#else
  while (low < high && before(counts, low + 1, flip) <= k) low++;
#endif
  k -= before(counts, low, flip);
  return (low << BLOCK_SHIFT) + in_block(words + (low << 3), k, flip);
}
