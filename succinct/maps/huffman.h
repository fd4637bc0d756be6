/* Rows of tokens in a canonical Huffman code, whole rows coded as sets.
 *
 * A step has one code, at most CODE_BITS bits long, over the tokens that occur in it: short codes
 * first, those of a length by token (Schwartz and Kallick, DOI 10.1145/363958.363993).  Left-aligned
 * in CODE_BITS bits, the codes below a node of the code tree are an interval, and a rank in this
 * order is a token.  A row of c tokens, which is known from the boundaries, is coded from the root:
 *
 *   c = all tokens below the node: nothing
 *   c = 1: the rest of the code of the token, from the highest bit on
 *   else:  how many of them are in the left half, then the left half, then the right half
 *
 * How many: its rank around the middle of what is possible, with k low bits, and what is above them
 * in unary, without the one behind as many zeros as there can be.  A bit says which half a token is
 * in, so sets of random tokens take the entropy of the tokens less log2(c!): counts of c tokens
 * that are as likely to go left as right take what they must.
 *
 * One after another in `values`, from tokens_at to chunk3_at.  There begins the code: for each
 * length from 1 on where the codes that are shorter end, then what is to be added to the first bits
 * of a code of this length for its rank, 32 bits each; then the tokens by rank, of width3 bits.  The
 * first of every 2^width rows has a sample of its place, in an Elias-Fano code: high parts at
 * more2_at, width2 low bits each at chunk2_at.
 *
 * Codes are checked when an index is loaded.  A damaged stream may say anything; no place behind its
 * end is read.
 */
#ifndef SUCCINCT_HUFFMAN_H
#define SUCCINCT_HUFFMAN_H

#include "succinct/bits/rank_select.h"

#define CODE_BITS 16
#define CODE_TABLE (2 * 32 * CODE_BITS) /* bits of the numbers in front of the tokens by rank */

/* ---- the code -------------------------------------------------------------------------------- */

INLINE uint64_t huffman_length(const uint32_t *code, uint64_t x) {
    uint32_t length = 0;
    for (int i = 0; i < CODE_BITS; i++) length += (uint32_t)x >= code[i];
    return length;
}

/* The tokens whose codes are below x, a left-aligned code or where one would begin. */
INLINE uint64_t huffman_rank(const uint32_t *code, uint64_t x, uint64_t length) {
    return (uint32_t)(code[CODE_BITS - 1 + length] + (uint32_t)(x >> (CODE_BITS - length)));
}

INLINE uint64_t huffman_below(const uint32_t *code, uint64_t x) {
    return huffman_rank(code, x, huffman_length(code, x));
}

/* How the number of c tokens that are in the left half of a node is coded. */
typedef struct {
    uint64_t least, most, middle, width;
} huffman_split_t;

INLINE huffman_split_t huffman_split(uint64_t c, uint64_t left, uint64_t right) {
    huffman_split_t s;
    uint64_t spread = c < left + right - c ? c : left + right - c;
    s.least = c > right ? c - right : 0;
    s.most = c < left ? c : left;
    s.middle = c >> 1;
    if (s.middle < s.least) s.middle = s.least;
    if (s.middle > s.most) s.middle = s.most;
    /* About the logarithm of the standard deviation. */
    s.width = spread < 8 ? 0 : (62 - (uint64_t)__builtin_clzll(spread)) >> 1;
    return s;
}

/* Numbers on both sides of the middle take turns, as long as there are some on both. */
INLINE uint64_t huffman_fold(const huffman_split_t *s, uint64_t x) {
    uint64_t below = s->middle - s->least, above = s->most - s->middle;
    uint64_t both = below < above ? below : above, far = x > s->middle ? x - s->middle : s->middle - x;
    if (far > both) return both + far;
    return x > s->middle ? 2 * far - 1 : 2 * far;
}

INLINE uint64_t huffman_unfold(const huffman_split_t *s, uint64_t rank) {
    uint64_t below = s->middle - s->least, above = s->most - s->middle;
    uint64_t both = below < above ? below : above;
    if (rank > 2 * both) return below < above ? s->middle + (rank - both) : s->middle - (rank - both);
    return rank & 1 ? s->middle + (rank + 1) / 2 : s->middle - rank / 2;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A stream of bits, of which the next ones are on top of `window`. */
typedef struct {
    const uint64_t *values;
    const uint32_t *code;
    uint64_t end;            /* of the stream; the tokens by rank are CODE_TABLE behind it */
    uint64_t count, width;   /* of the tokens by rank */
    uint64_t at, window, have;
    uint8_t shortest, longest; /* codes */
} huffman_t;

INLINE void huffman_open(huffman_t *h, const uint64_t *values, uint64_t at, uint64_t end,
                         uint64_t count, uint64_t width) {
    const uint32_t *code = (const uint32_t *)(values + (end >> 6));
    uint64_t longest = huffman_length(code, (1 << CODE_BITS) - 1);
    *h = (huffman_t){.values = values, .code = code, .end = end, .count = count, .width = width,
                     .at = at, .shortest = (uint8_t)huffman_length(code, 0),
                     .longest = (uint8_t)longest};
}

INLINE uint64_t reverse64(uint64_t x) {
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(x);
}

INLINE void huffman_fill(huffman_t *h) {
    uint64_t x, at = h->at < h->end ? h->at : h->end;
    memcpy(&x, (const char *)h->values + (at >> 3), 8);
    h->window = reverse64(x >> (at & 7));
    h->have = 56;
}

INLINE void huffman_skip(huffman_t *h, uint64_t width) {
    h->at += width;
    h->window <<= width;
    h->have -= width;
}

INLINE uint64_t huffman_bits(huffman_t *h, uint64_t width) {
    if (h->have < width) huffman_fill(h);
    uint64_t x = width ? h->window >> (64 - width) : 0;
    huffman_skip(h, width);
    return x;
}

/* A number up to `most`, in unary. */
INLINE uint64_t huffman_unary(huffman_t *h, uint64_t most) {
    uint64_t n = 0, zeros;
    while (n < most) {
        if (h->have == 0) huffman_fill(h);
        zeros = h->window ? (uint64_t)__builtin_clzll(h->window) : 64;
        if (zeros < h->have && zeros < most - n) {
            huffman_skip(h, zeros + 1);
            return n + zeros;
        }
        if (zeros > h->have) zeros = h->have;
        if (zeros > most - n) zeros = most - n;
        huffman_skip(h, zeros);
        n += zeros;
    }
    return n;
}

INLINE uint64_t huffman_left(huffman_t *h, uint64_t c, uint64_t left, uint64_t right) {
    huffman_split_t s = huffman_split(c, left, right);
    uint64_t last = s.most - s.least, rank;
    if (last == 0) return s.least;
    rank = huffman_unary(h, last >> s.width) << s.width;
    rank |= huffman_bits(h, s.width);
    return huffman_unfold(&s, rank < last ? rank : last);
}

/* The length of the code whose first `depth` bits are those of x, with the rest of it in *x. */
INLINE uint64_t huffman_code(huffman_t *h, uint64_t *x, uint64_t depth) {
    uint64_t length;
    if (h->have < CODE_BITS) huffman_fill(h);
    *x |= h->window >> (64 - CODE_BITS) >> depth;
    length = huffman_length(h->code, *x);
    huffman_skip(h, length - depth);
    return length;
}

INLINE uint64_t huffman_token(const huffman_t *h, uint64_t rank) {
    uint64_t x, at = h->end + CODE_TABLE + rank * h->width;
    memcpy(&x, (const char *)h->values + (at >> 3), 8);
    return (x >> (at & 7)) & ((1ull << h->width) - 1);
}

/* What is done with n tokens from a rank on. */
typedef void (*huffman_visit_t)(void *to, const huffman_t *h, uint64_t rank, uint64_t n);

/* What is below a node: c of n tokens, which are those from rank `begin` on; lengths of the codes of
 * the first and the last. */
typedef struct {
    uint32_t c, n, begin;
    uint8_t first, last;
} huffman_node_t;

/* Read a row of c tokens. */
INLINE void huffman_read(huffman_t *h, uint64_t c, huffman_visit_t visit, void *to) {
    huffman_node_t waiting[CODE_BITS + 1]; /* right halves, by depth */
    huffman_node_t node = {(uint32_t)c, (uint32_t)h->count, 0, h->shortest, h->longest}, right;
    uint64_t x = 0, depth = 0, left;
    uint32_t mask = 0; /* which of these there are */
    if (c >= node.n) {
        visit(to, h, 0, node.n);
        return;
    }
    if (c == 0) return;
    for (;;) {
        while (node.c > 1 && node.c < node.n) {
            uint64_t half = 1ull << (CODE_BITS - 1 - depth++), middle = x + half;
            right = node;
            if (node.first == node.last) { /* all codes have this length: x is not needed */
                node.n >>= 1;
                right.n = node.n;
                right.begin += node.n;
            } else {
                right.first = (uint8_t)huffman_length(h->code, middle);
                right.begin = (uint32_t)huffman_rank(h->code, middle, right.first);
                node.last = (uint8_t)huffman_length(h->code, middle - 1);
                node.n = right.begin - node.begin;
                right.n -= node.n;
            }
            left = huffman_left(h, node.c, node.n, right.n);
            if (left == 0) {
                x = middle;
                node = right;
            } else if (left < node.c) {
                right.c -= (uint32_t)left;
                waiting[depth] = right;
                mask |= 1u << depth;
                node.c = (uint32_t)left;
            }
        }
        if (node.c > 1) {
            visit(to, h, node.begin, node.c);
        } else if (node.first == node.last) {
            visit(to, h, node.begin + huffman_bits(h, node.first - depth), 1);
        } else {
            uint64_t length = huffman_code(h, &x, depth);
            visit(to, h, huffman_rank(h->code, x, length), 1);
        }
        if (!mask) return;
        depth = 31 - (uint64_t)__builtin_clz(mask);
        mask ^= 1u << depth;
        node = waiting[depth];
        x = (x >> (CODE_BITS - depth) | 1) << (CODE_BITS - depth);
    }
}

INLINE void huffman_visit_none(void *to, const huffman_t *h, uint64_t rank, uint64_t n) {
    (void)to, (void)h, (void)rank, (void)n;
}

/* How many tokens are below one, and whether it is there. */
typedef struct {
    uint64_t token, below, found;
} huffman_search_t;

INLINE void huffman_visit_search(void *to, const huffman_t *h, uint64_t rank, uint64_t n) {
    huffman_search_t *search = to;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t token = huffman_token(h, rank + i);
        search->below += token < search->token;
        search->found |= token == search->token;
    }
}

INLINE void huffman_visit_first(void *to, const huffman_t *h, uint64_t rank, uint64_t n) {
    (void)n;
    *(uint64_t *)to = huffman_token(h, rank);
}

INLINE void huffman_visit_write(void *to, const huffman_t *h, uint64_t rank, uint64_t n) {
    uint32_t **at = to;
    for (uint64_t i = 0; i < n; i++) *(*at)++ = (uint32_t)huffman_token(h, rank + i);
}

/* Shell's sort (DOI 10.1145/368370.368387): rows are short, as a rule. */
static inline void tokens_sort(uint32_t *tokens, uint64_t n) {
    uint64_t gap = 1;
    while (gap < n / 3) gap = 3 * gap + 1;
    for (; gap; gap /= 3) {
        for (uint64_t i = gap, j; i < n; i++) {
            uint32_t token = tokens[i];
            for (j = i; j >= gap && tokens[j - gap] > token; j -= gap) tokens[j] = tokens[j - gap];
            tokens[j] = token;
        }
    }
}

#define SORTED_ROW 1024 /* longer rows are read several times rather than sorted */

/* Token k, in ascending order, of a row of c that begins where the stream is. */
static inline uint64_t huffman_select(const huffman_t *h, uint64_t c, uint64_t k) {
    huffman_t row = *h;
    uint64_t low = 0, high = (1ull << h->width) - 1;
    if (c == 1) {
        huffman_read(&row, c, huffman_visit_first, &low);
        return low;
    }
    if (c <= SORTED_ROW) {
        uint32_t tokens[SORTED_ROW], *end = tokens;
        huffman_read(&row, c, huffman_visit_write, &end);
        while (end < tokens + c) *end++ = 0; /* only in a damaged file */
        tokens_sort(tokens, c);
        return tokens[k];
    }
    while (low < high) { /* the largest that not more than k are below */
        huffman_search_t search = {(low + high + 1) >> 1, 0, 0};
        row = *h;
        huffman_read(&row, c, huffman_visit_search, &search);
        if (search.below <= k) low = search.token; else high = search.token - 1;
    }
    return low;
}

#endif
