/* Rows of tokens as Golomb-Rice codes of their gaps (Rice and Plaunt, DOI 10.1109/TCOM.1971.1090789).
 *
 * A level of rows of very different lengths needs a parameter for each: it follows from the length
 * of the row, which is stored in front of it.  So a row takes about what it takes to say which of
 * the sets of this size it is.  A row is
 *
 *   its length less one, an exponential Golomb code of parameter `width`
 *   its tokens or, where it has more than half of all, those that it lacks: c in ascending order
 *     c = 0: nothing
 *     c = 1: the token, in as many bits as the largest needs
 *     else:  the low k bits of each gap to the one before it, then what is above, in unary
 *
 * One after another in `values`, from tokens_at to chunk3_at.  For the first of every 2^rows_width
 * rows there is a sample at chunk2_at: its first entry, of width2 bits, and its place, of width3.
 *
 * A damaged stream may say anything; no place behind its end is read.
 */
#ifndef SUCCINCT_RICE_H
#define SUCCINCT_RICE_H

#include "succinct/bits/rank_select.h"

#define RICE_NONE UINT64_MAX
#define RICE_WINDOW 56 /* bits that can be read at once from any place */

INLINE uint64_t bit_length64(uint64_t x) { return x ? 64 - (uint64_t)__builtin_clzll(x) : 0; }

/* The best k for c of n tokens, c <= n / 2: the least of which 2^k times the density is not below
 * ln 1.618, a little more than 123 / 256. */
INLINE uint64_t rice_parameter(uint64_t n, uint64_t c) {
    return bit_length64(((2 * n - c) * 123 - 1) / (512 * c));
}

/* The tokens of a row, read one after another. */
typedef struct {
    const uint64_t *values;
    uint64_t end;             /* of the stream */
    uint64_t low, k;          /* place and width of the next low part */
    uint64_t high;            /* place of the next unary part, or RICE_NONE: there is none */
    uint64_t left;            /* coded tokens to come */
    uint64_t next;            /* the least that the next of them can be */
    uint64_t absent, present; /* of an inverted row: the next token that it lacks, has at the least */
    int inverted;
} rice_t;

INLINE uint64_t rice_bits(const rice_t *r, uint64_t at, uint64_t width) {
    uint64_t x;
    if (at > r->end) at = r->end;
    memcpy(&x, (const char *)r->values + (at >> 3), 8);
    return (x >> (at & 7)) & ((1ull << width) - 1);
}

/* The length of the row whose code begins at *at, which moves behind it. */
INLINE uint64_t rice_length(const rice_t *r, uint64_t *at, uint64_t parameter, uint64_t n) {
    uint64_t x = rice_bits(r, *at, RICE_WINDOW), more = x ? (uint64_t)__builtin_ctzll(x) : 0, length;
    if (more > 32) more = 0;
    *at += more + 1;
    length = 1ull << more | rice_bits(r, *at, more);
    *at += more;
    length = (length - 1) << parameter | rice_bits(r, *at, parameter);
    *at += parameter;
    return length < n ? length + 1 : n;
}

/* Begin with the tokens of a row of n possible ones whose code, behind the length, is at `at`. */
INLINE void rice_open(rice_t *r, uint64_t at, uint64_t n, uint64_t length) {
    r->inverted = 2 * length > n;
    r->left = r->inverted ? n - length : length;
    r->low = at;
    r->high = RICE_NONE;
    r->k = r->next = r->present = 0;
    if (r->left == 1) {
        r->k = bit_length64(n - 1);
    } else if (r->left) {
        r->k = rice_parameter(n, r->left);
        r->high = at + r->left * r->k;
    }
}

/* Where the row ends, before any token has been read. */
INLINE uint64_t rice_end(const rice_t *r) {
    uint64_t at = r->high, k = r->left;
    if (k < 2) return r->low + k * r->k;
    for (; at < r->end; at += RICE_WINDOW) {
        uint64_t x = rice_bits(r, at, RICE_WINDOW), ones = popcount64(x);
        if (k <= ones) return at + select64(x, (uint32_t)k - 1) + 1;
        k -= ones;
    }
    return r->end;
}

/* The next coded token, or RICE_NONE. */
INLINE uint64_t rice_coded(rice_t *r) {
    uint64_t token = r->next, x;
    if (r->left == 0) return RICE_NONE;
    r->left--;
    if (r->high != RICE_NONE) {
        uint64_t from = r->high;
        while ((x = rice_bits(r, r->high, RICE_WINDOW)) == 0 && r->high < r->end)
            r->high += RICE_WINDOW;
        if (x) r->high += (uint64_t)__builtin_ctzll(x);
        token += (r->high++ - from) << r->k;
    }
    token += rice_bits(r, r->low, r->k);
    r->low += r->k;
    r->next = token + 1;
    return token;
}

/* The next token of the row; there is one. */
INLINE uint64_t rice_token(rice_t *r) {
    if (!r->inverted) return rice_coded(r);
    if (r->present == 0) r->absent = rice_coded(r);
    while (r->present == r->absent) {
        r->present++;
        r->absent = rice_coded(r);
    }
    return r->present++;
}

/* How many tokens of the row are below this one, or RICE_NONE if it has not this one. */
INLINE uint64_t rice_rank(rice_t *r, uint64_t token) {
    uint64_t below = 0, here;
    while ((here = rice_coded(r)) < token) below++;
    if (r->inverted) return here == token ? RICE_NONE : token - below;
    return here == token ? below : RICE_NONE;
}

#endif
