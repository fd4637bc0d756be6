/* Rank and select over plain 64-bit words.
 *
 * Bit i of a vector is bit i % 64 of words[i / 64].  The words fill whole blocks of 512 bits, and
 * there is always a block that holds position `length`; bits from `length` on are zero.  The
 * directory costs 32 bits a block (6.25 %), the select samples at most 0.9 % each:
 *
 *   supers[s]    ones before superblock s, of 2^23 blocks = 2^32 bits
 *   blocks[b]    ones before block b, counted from the start of its superblock
 *   samples1[j]  block that holds one number j << shift1; a last entry names the last block
 *   samples0[j]  the same for zeros, with shift0
 *
 * A sample every 2^shift ones is one every 4096 to 8192 bits whatever the density, so that select
 * looks at a handful of blocks in sparse vectors too.
 *
 * Preconditions are the caller's: positions and numbers are in range.
 */
#ifndef SUCCINCT_RANK_SELECT_H
#define SUCCINCT_RANK_SELECT_H

#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define BLOCK_SHIFT 9          /* 512 bits */
#define BLOCK_WORDS 8
#define SUPER_SHIFT 23         /* blocks in a superblock */
#define SAMPLE_SPACING 4096    /* bits between two samples, on average */

typedef struct {
    const uint64_t *words;
    const uint64_t *supers;
    const uint32_t *blocks;
    const uint32_t *samples1;
    const uint32_t *samples0;
    uint64_t length;
    uint64_t ones;
    uint32_t shift1;
    uint32_t shift0;
} bitvector_t;

/* A query of one position or number. Functions built on queries take them as parameters, so that
 * each instruction set inlines its own. */
typedef uint64_t (*bits_query_t)(const bitvector_t *, uint64_t);

static inline uint32_t popcount64(uint64_t x) { return (uint32_t)__builtin_popcountll(x); }

/* Position of the one number k of x (k < popcount(x)): narrow down by halves. */
static inline uint32_t select64(uint64_t x, uint32_t k) {
    uint32_t at = 0, below;
    below = popcount64(x & 0xffffffffu);
    if (k >= below) { k -= below; at += 32; x >>= 32; }
    below = popcount64(x & 0xffffu);
    if (k >= below) { k -= below; at += 16; x >>= 16; }
    below = popcount64(x & 0xffu);
    if (k >= below) { k -= below; at += 8; x >>= 8; }
    for (x &= 0xffu; k; k--) x &= x - 1;
    return at + (uint32_t)__builtin_ctzll(x);
}

static inline int bits_get(const bitvector_t *v, uint64_t i) {
    return (int)((v->words[i >> 6] >> (i & 63)) & 1);
}

/* Fetch what the rank of bit i looks at. */
static inline void bits_prefetch(const bitvector_t *v, uint64_t i) {
    __builtin_prefetch(v->words + (i >> 6));
    __builtin_prefetch(v->blocks + (i >> BLOCK_SHIFT));
}

/* Ones before block b. */
static inline uint64_t bits_before(const bitvector_t *v, uint64_t b) {
    return v->supers[b >> SUPER_SHIFT] + v->blocks[b];
}

/* Ones in [0, i), 0 <= i <= length. */
static inline uint64_t bits_rank1(const bitvector_t *v, uint64_t i) {
    uint64_t b = i >> BLOCK_SHIFT, r = bits_before(v, b);
    const uint64_t *p = v->words + b * BLOCK_WORDS;
    uint64_t k = (i >> 6) & 7;
    for (uint64_t j = 0; j < k; j++) r += popcount64(p[j]);
    return r + popcount64(p[k] & ((1ull << (i & 63)) - 1));
}

/* Zeros before block b. */
static inline uint64_t bits_zeros_before(const bitvector_t *v, uint64_t b) {
    return (b << BLOCK_SHIFT) - bits_before(v, b);
}

/* The block of one number k: the last one between two samples with at most k ones before it. */
static inline uint64_t bits_block_of_one(const bitvector_t *v, uint64_t k) {
    uint64_t lo = v->samples1[k >> v->shift1], hi = v->samples1[(k >> v->shift1) + 1];
    while (hi - lo > 8) {
        uint64_t mid = (lo + hi + 1) >> 1;
        if (bits_before(v, mid) <= k) lo = mid; else hi = mid - 1;
    }
    while (lo < hi && bits_before(v, lo + 1) <= k) lo++;
    return lo;
}

/* The block of zero number k. */
static inline uint64_t bits_block_of_zero(const bitvector_t *v, uint64_t k) {
    uint64_t lo = v->samples0[k >> v->shift0], hi = v->samples0[(k >> v->shift0) + 1];
    while (hi - lo > 8) {
        uint64_t mid = (lo + hi + 1) >> 1;
        if (bits_zeros_before(v, mid) <= k) lo = mid; else hi = mid - 1;
    }
    while (lo < hi && bits_zeros_before(v, lo + 1) <= k) lo++;
    return lo;
}

/* Position of one number k, 0 <= k < ones. */
static inline uint64_t bits_select1(const bitvector_t *v, uint64_t k) {
    uint64_t block = bits_block_of_one(v, k), at = block * BLOCK_WORDS, here;
    k -= bits_before(v, block);
    while (k >= (here = popcount64(v->words[at]))) { k -= here; at++; }
    return (at << 6) + select64(v->words[at], (uint32_t)k);
}

/* Position of zero number k, 0 <= k < length - ones. */
static inline uint64_t bits_select0(const bitvector_t *v, uint64_t k) {
    uint64_t block = bits_block_of_zero(v, k), at = block * BLOCK_WORDS, here;
    k -= bits_zeros_before(v, block);
    while (k >= (here = 64 - popcount64(v->words[at]))) { k -= here; at++; }
    return (at << 6) + select64(~v->words[at], (uint32_t)k);
}

/* Smallest j >= i with bit j zero, or length; 0 <= i <= length. */
static inline uint64_t bits_next_zero(const bitvector_t *v, uint64_t i) {
    if (i >= v->length) return v->length;
    uint64_t w = i >> 6, x = ~v->words[w] >> (i & 63), last = v->length >> 6;
    if (x) { i += (uint64_t)__builtin_ctzll(x); return i < v->length ? i : v->length; }
    while (++w <= last) {
        x = ~v->words[w];
        if (x) { i = (w << 6) + (uint64_t)__builtin_ctzll(x); return i < v->length ? i : v->length; }
    }
    return v->length;
}

/* Smallest j >= i with bit j one, or length; 0 <= i <= length. */
static inline uint64_t bits_next_one(const bitvector_t *v, uint64_t i) {
    if (i >= v->length) return v->length;
    uint64_t w = i >> 6, x = v->words[w] >> (i & 63), last = v->length >> 6;
    if (x) return i + (uint64_t)__builtin_ctzll(x);
    while (++w <= last)
        if (v->words[w]) return (w << 6) + (uint64_t)__builtin_ctzll(v->words[w]);
    return v->length;
}

/* Fill the directory of `n_blocks` blocks; returns the number of ones. */
static inline uint64_t bits_fill_blocks(const uint64_t *words, uint64_t n_blocks, uint32_t *blocks,
                                        uint64_t *supers) {
    uint64_t total = 0, base = 0;
    for (uint64_t b = 0; b < n_blocks; b++) {
        if ((b & ((1ull << SUPER_SHIFT) - 1)) == 0) supers[b >> SUPER_SHIFT] = base = total;
        blocks[b] = (uint32_t)(total - base);
        for (int j = 0; j < BLOCK_WORDS; j++) total += popcount64(words[b * BLOCK_WORDS + j]);
    }
    return total;
}

/* Fill the samples of the ones (or zeros) of v, whose blocks are filled. */
static inline void bits_fill_samples(const bitvector_t *v, int zeros, uint32_t shift,
                                     uint32_t *samples) {
    uint64_t n_blocks = (v->length >> BLOCK_SHIFT) + 1;
    uint64_t count = zeros ? v->length - v->ones : v->ones, next = 0, j = 0;
    for (uint64_t b = 0; b < n_blocks && next < count; b++) {
        uint64_t end = count;
        if (b + 1 < n_blocks) end = zeros ? bits_zeros_before(v, b + 1) : bits_before(v, b + 1);
        for (; next < end; next += 1ull << shift) samples[j++] = (uint32_t)b;
    }
    samples[j] = (uint32_t)(n_blocks - 1);
}

/* ---- packed integers: value i is bits [i * width, (i + 1) * width) of the words ------------- */

typedef struct {
    const uint64_t *words; /* one word more than the values fill */
    uint64_t length;
    uint64_t mask;
    uint32_t width; /* 0..64 */
} packed_t;

/* Value i, i < length. */
static inline uint64_t packed_get(const packed_t *p, uint64_t i) {
    if (p->width == 0) return 0; /* there may be one word only */
    uint64_t at = i * p->width, shift = at & 63;
    const uint64_t *w = p->words + (at >> 6);
    /* The double shift keeps shift = 0 defined. */
    return ((w[0] >> shift) | ((w[1] << 1) << (63 - shift))) & p->mask;
}

/* Or value i into words that are still zero there. */
static inline void packed_put(uint64_t *words, uint32_t width, uint64_t i, uint64_t value) {
    uint64_t at = i * width, shift = at & 63;
    words[at >> 6] |= value << shift;
    if (shift + width > 64) words[(at >> 6) + 1] |= value >> (64 - shift);
}

#endif
