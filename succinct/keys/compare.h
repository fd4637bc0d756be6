/* Comparing keys, eight bytes at a time. */
#ifndef SUCCINCT_COMPARE_H
#define SUCCINCT_COMPARE_H

#include <stdint.h>
#include <string.h>

#include "succinct/bits/rank_select.h"

INLINE uint64_t bytes_apart(const char *a, const char *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x ^ y;
}

/* How many of n bytes are equal before the first that differs. */
INLINE uint64_t bytes_common(const void *left, const void *right, uint64_t n) {
    const char *a = left, *b = right;
    uint64_t i, x;
    if (n < 8) {
        for (i = 0; i < n && a[i] == b[i];) i++;
        return i;
    }
    for (i = 0; i + 8 < n; i += 8)
        if ((x = bytes_apart(a + i, b + i))) return i + (__builtin_ctzll(x) >> 3);
    i = n - 8; /* the last bytes, and some that are known to be equal */
    return (x = bytes_apart(a + i, b + i)) ? i + (__builtin_ctzll(x) >> 3) : n;
}

/* How many of n ascending splitters, a power of two less one, are not above a word. */
INLINE uint64_t splitters_upto(const uint64_t *splitters, uint64_t n, uint64_t word) {
    uint64_t count = 0;
    for (uint64_t half = (n + 1) / 2; half; half /= 2)
        count += splitters[count + half - 1] <= word ? half : 0;
    return count;
}

#endif
