// Batches of `rank_select.h`, and the arrays that it needs.
#include "rank_select.h"

// Fills counts[n_blocks + 1 + 16] and the samples; returns the number of ones.
int64_t build(const uint64_t *words, int64_t n_blocks, uint32_t *counts, uint32_t *samples1,
              uint32_t *samples0) {
  uint64_t total = 0, next1 = 0, next0 = 0, n1 = 0, n0 = 0;
  for (int64_t b = 0; b < n_blocks; b++) {
    counts[b] = (uint32_t)total;
    for (int j = 0; j < 8; j++) total += ones(words[8 * b + j]);
    uint64_t zeros = ((uint64_t)(b + 1) << BLOCK_SHIFT) - total;
    for (; next1 < total; next1 += 1 << SAMPLE_SHIFT) samples1[n1++] = (uint32_t)b;
    for (; next0 < zeros; next0 += 1 << SAMPLE_SHIFT) samples0[n0++] = (uint32_t)b;
  }
  counts[n_blocks] = (uint32_t)total;
  for (int j = 1; j <= 16; j++) counts[n_blocks + j] = UINT32_MAX;
  samples1[n1] = samples0[n0] = (uint32_t)(n_blocks - 1);
  return (int64_t)total;
}

void rank1(const uint64_t *words, const uint32_t *counts, const uint32_t *samples,
           const int64_t *asked, int64_t *answers, int64_t n) {
  for (int64_t i = 0; i < n; i++) answers[i] = (int64_t)rank(words, counts, (uint64_t)asked[i]);
}

void rank0(const uint64_t *words, const uint32_t *counts, const uint32_t *samples,
           const int64_t *asked, int64_t *answers, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    answers[i] = asked[i] - (int64_t)rank(words, counts, (uint64_t)asked[i]);
}

void select1(const uint64_t *words, const uint32_t *counts, const uint32_t *samples,
             const int64_t *asked, int64_t *answers, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    answers[i] = (int64_t)select_bit(words, counts, samples, (uint64_t)asked[i], 0);
}

void select0(const uint64_t *words, const uint32_t *counts, const uint32_t *samples,
             const int64_t *asked, int64_t *answers, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    answers[i] = (int64_t)select_bit(words, counts, samples, (uint64_t)asked[i], ~0ull);
}
