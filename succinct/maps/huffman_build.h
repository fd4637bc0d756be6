/* Writing rows of tokens in a Huffman code; see huffman.h. */
#ifndef SUCCINCT_HUFFMAN_BUILD_H
#define SUCCINCT_HUFFMAN_BUILD_H

#include "succinct/bits/stream.h"
#include "succinct/maps/huffman.h"

#define WORD_LENGTH_BITS 8 /* a word of a code: its left-aligned bits, and its length below them */

/* Where rows are written to, or would be. */
typedef struct {
    const uint32_t *code;
    uint64_t count; /* of tokens in the code */
    stream_t *to;   /* NULL: bits are counted */
    uint64_t *values;
    uint64_t at;
} huffman_writer_t;

INLINE void huffman_put(huffman_writer_t *w, uint64_t width, uint64_t value) {
    if (w->to && width) stream_put(w->to, w->values, w->at, width, reverse64(value) >> (64 - width));
    w->at += width;
}

INLINE void huffman_put_left(huffman_writer_t *w, uint64_t c, uint64_t left, uint64_t right,
                             uint64_t x) {
    huffman_split_t s = huffman_split(c, left, right);
    uint64_t last = s.most - s.least, rank = huffman_fold(&s, x), high = rank >> s.width;
    if (last == 0) return;
    w->at += high;
    if (high < last >> s.width) huffman_put(w, 1, 1);
    huffman_put(w, s.width, rank & ((1ull << s.width) - 1));
}

/* Write c words, ascending, that are below the node at x of so many bits, and so many others. */
static void huffman_put_below(huffman_writer_t *w, const uint32_t *words, uint64_t c, uint64_t x,
                              uint64_t depth, uint64_t below, uint64_t n) {
    uint64_t half = 1ull << (CODE_BITS - 1 - depth), middle, left = 0;
    if (c == 0 || c == n) return;
    if (c == 1) {
        uint64_t length = words[0] & ((1u << WORD_LENGTH_BITS) - 1), rest = length - depth;
        uint64_t bits = words[0] >> WORD_LENGTH_BITS >> (CODE_BITS - length);
        huffman_put(w, rest, bits & ((1ull << rest) - 1));
        return;
    }
    while (left < c && words[left] >> WORD_LENGTH_BITS < x + half) left++;
    middle = huffman_below(w->code, x + half);
    huffman_put_left(w, c, middle - below, n - (middle - below), left);
    huffman_put_below(w, words, left, x, depth + 1, below, middle - below);
    huffman_put_below(w, words + left, c - left, x + half, depth + 1, middle,
                      n - (middle - below));
}

/* Write a row of c tokens, given by their words, which get sorted. */
static inline void huffman_put_row(huffman_writer_t *w, uint32_t *words, uint64_t c) {
    tokens_sort(words, c);
    huffman_put_below(w, words, c, 0, 0, 0, w->count);
}

#endif
