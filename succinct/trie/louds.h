/* Steps through a LOUDS trie, and the batches that are worth an instruction set of their own.
 *
 * A state is a node, or node | place << PLACE_SHIFT for the prefix that ends `place` tokens into
 * the chain of a link node. What a link points to is checked at every use: the contents of a file
 * are not trusted. States are checked by the caller (louds_is_state).
 */
#ifndef SUCCINCT_LOUDS_H
#define SUCCINCT_LOUDS_H

#include "succinct/bits/marks.h"

#define PLACE_SHIFT 40
#define NODE_MASK ((1ull << PLACE_SHIFT) - 1)
#define ONE_PLACE (1ull << PLACE_SHIFT)
#define DEAD UINT64_MAX
#define NOWHERE UINT64_MAX  /* the place of a link that points outside the tail */
#define NO_TOKEN UINT64_MAX
#define SLOTS_IN_LINE 32 /* of a cache */
#define FETCHED 8        /* lines of a family that are asked for at once */

typedef struct {
    bitvector_t topology, terminal, link, tail_end;
    packed_t label_high, link_high, tail;
    const uint16_t *slots;
    uint64_t n_nodes;
    int has_links;
    marks_t zeros; /* of the topology */
} louds_t;

/* The node in [begin, end) with a label, of a trie without links; or DEAD. */
typedef uint64_t (*label_find_t)(const louds_t *, uint64_t begin, uint64_t end, uint64_t token);

/* What each instruction set has its own of, as parameters (see bits_query_t). */
#define QUERIES                                                                                \
    bits_query_t rank1, bits_query_t select1, bits_query_t select0, bits_drop_t drop,          \
        label_find_t label_find
#define Q rank1, select1, select0, drop, label_find

INLINE int louds_is_link(const louds_t *t, uint64_t v) {
    return t->has_links && bits_get(&t->link, v);
}

/* Where the chain of link node v begins in the tail, or NOWHERE. */
INLINE uint64_t louds_link(const louds_t *t, uint64_t v) {
    uint64_t at = t->slots[v];
    if (t->link_high.width) at |= packed_get(&t->link_high, bits_rank1(&t->link, v)) << 16;
    return at < t->tail.length ? at : NOWHERE;
}

/* The first token on the edge to node v. */
INLINE uint64_t louds_label(const louds_t *t, uint64_t v) {
    if (louds_is_link(t, v)) {
        uint64_t at = louds_link(t, v);
        return at != NOWHERE ? packed_get(&t->tail, at) : NO_TOKEN;
    }
    if (t->label_high.width == 0) return t->slots[v];
    uint64_t among_labels = t->has_links ? v - bits_rank1(&t->link, v) : v;
    return t->slots[v] | packed_get(&t->label_high, among_labels) << 16;
}

/* The state behind the first token on the edge to node v; DEAD if its link is broken. */
INLINE uint64_t louds_entered(const louds_t *t, uint64_t v) {
    if (louds_is_link(t, v)) {
        uint64_t at = louds_link(t, v);
        if (at == NOWHERE) return DEAD;
        if (!bits_get(&t->tail_end, at)) return v | ONE_PLACE;
    }
    return v;
}

/* Where the next token of a state inside a chain lies, or NOWHERE if it is no state. */
INLINE uint64_t louds_place(const louds_t *t, uint64_t state) {
    uint64_t v = state & NODE_MASK, at, next;
    if (v >= t->n_nodes || !louds_is_link(t, v)) return NOWHERE;
    at = louds_link(t, v);
    if (at == NOWHERE) return NOWHERE;
    next = at + (state >> PLACE_SHIFT);
    return next < t->tail.length && next <= bits_next_one(&t->tail_end, at) ? next : NOWHERE;
}

INLINE int louds_is_state(const louds_t *t, uint64_t state) {
    if (state == DEAD) return 1;
    return state > NODE_MASK ? louds_place(t, state) != NOWHERE : state < t->n_nodes;
}

/* The continuations of node v are the nodes [*first, return value). */
INLINE uint64_t louds_children(const louds_t *t, uint64_t v, uint64_t *first, bits_query_t select1,
                               bits_query_t select0, bits_drop_t drop) {
    uint64_t end, begin = marks_select(&t->topology, &t->zeros, v, 1, &end, select1, select0, drop);
    *first = begin - v;
    return end - v - 1;
}

/* Siblings [begin, result) of at most `most` that the one with a label is among, if it is there;
 * of a trie without links. */
INLINE uint64_t louds_narrow(const louds_t *t, uint64_t *begin, uint64_t end, uint64_t token,
                             uint64_t most) {
    uint64_t n = end - *begin, first;
    if (n <= most) return end;
    for (uint64_t i = SLOTS_IN_LINE; i < n && i <= FETCHED * SLOTS_IN_LINE; i += SLOTS_IN_LINE)
        __builtin_prefetch(t->slots + *begin + i);
    first = louds_label(t, *begin);
    if (louds_label(t, end - 1) - first == n - 1) { /* a label for every number, as at the root */
        if (token - first >= n) return *begin;
        *begin += token - first;
        return *begin + 1;
    }
    for (uint64_t half; n > most; n -= half) { /* which half cannot be foretold: no branch */
        half = n >> 1;
        *begin += louds_label(t, *begin + half - 1) < token ? half : 0;
    }
    return *begin + n;
}

INLINE uint64_t label_find(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token) {
    end = louds_narrow(t, &begin, end, token, 1);
    return begin < end && louds_label(t, begin) == token ? begin : DEAD;
}

/* The labels of nodes [begin, end), and the states behind their first tokens. */
INLINE void louds_list(const louds_t *t, uint64_t begin, uint64_t end, uint32_t *tokens,
                       uint64_t *states) {
    /* Links before v: counted on, so that no node needs a rank. */
    uint64_t links = t->has_links && begin < end ? bits_rank1(&t->link, begin) : 0, v;
    for (v = begin; v < end; v++) {
        uint64_t at = t->slots[v], state = v;
        if (!louds_is_link(t, v)) {
            if (t->label_high.width) at |= packed_get(&t->label_high, v - links) << 16;
            tokens[v - begin] = (uint32_t)at;
        } else {
            if (t->link_high.width) at |= packed_get(&t->link_high, links) << 16;
            links++;
            if (at < t->tail.length) {
                tokens[v - begin] = (uint32_t)packed_get(&t->tail, at);
                state = bits_get(&t->tail_end, at) ? v : v | ONE_PLACE;
            } else {
                tokens[v - begin] = (uint32_t)NO_TOKEN;
                state = DEAD;
            }
        }
        states[v - begin] = state;
    }
}

/* The child of a node in [begin, end) by its token, as a state. */
INLINE uint64_t louds_find(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token,
                           label_find_t label_find) {
    /* A branch on a single child goes on with the next step before its label is there. */
    if (!t->has_links && end - begin == 1) return louds_label(t, begin) == token ? begin : DEAD;
    if (!t->has_links) return label_find(t, begin, end, token);
    while (begin < end) {
        uint64_t mid = (begin + end) >> 1, here = louds_label(t, mid);
        if (here < token) begin = mid + 1;
        else if (here > token) end = mid;
        else return louds_entered(t, mid);
    }
    return DEAD;
}

/* The state behind the token at place `at` of the tail, which continues a state inside a chain;
 * DEAD if the chain is longer than a state can tell (in a damaged file). */
INLINE uint64_t louds_after(const louds_t *t, uint64_t state, uint64_t at) {
    if (bits_get(&t->tail_end, at)) return state & NODE_MASK;
    return state + ONE_PLACE > state ? state + ONE_PLACE : DEAD;
}

/* The state behind `token` of a state inside a chain. */
INLINE uint64_t louds_step_in_chain(const louds_t *t, uint64_t state, uint64_t token) {
    uint64_t at = louds_link(t, state & NODE_MASK);
    if (at == NOWHERE) return DEAD;
    at += state >> PLACE_SHIFT;
    if (at >= t->tail.length || packed_get(&t->tail, at) != token) return DEAD;
    return louds_after(t, state, at);
}

INLINE uint64_t louds_step(const louds_t *t, uint64_t state, uint64_t token, QUERIES) {
    uint64_t begin, end;
    (void)rank1;
    if (state == DEAD) return DEAD;
    if (state > NODE_MASK) return louds_step_in_chain(t, state, token);
    end = louds_children(t, state, &begin, select1, select0, drop);
    /* The continuations of the first sibling are near those of the one that is looked for. */
    if (begin < end) marks_prefetch_word(&t->topology, &t->zeros, begin);
    return louds_find(t, begin, end, token, label_find);
}

INLINE int louds_is_key(const louds_t *t, uint64_t state) {
    return state <= NODE_MASK && bits_get(&t->terminal, state);
}

/* The number of the key of a state, or -1. */
INLINE int64_t louds_number(const louds_t *t, uint64_t state, bits_query_t rank1) {
    return louds_is_key(t, state) ? (int64_t)rank1(&t->terminal, state) : -1;
}

/* ---- for several instruction sets (louds_kernels.c) -------------------------------------------- */

typedef struct {
    int64_t (*find)(const louds_t *, const uint32_t *tokens, uint64_t n); /* a number, or -1 */
    uint64_t (*walk)(const louds_t *, uint64_t state, const uint32_t *tokens, uint64_t n);
    int64_t (*number)(const louds_t *, uint64_t state);
    /* The continuations of a node: [*first, result). */
    uint64_t (*children)(const louds_t *, uint64_t v, uint64_t *first);
    /* out[i] = the state behind tokens[i] from states[i] */
    void (*advance)(const louds_t *, const uint64_t *states, const uint32_t *tokens, uint64_t *out,
                    size_t n);
    /* out[i] = the number of the sequence tokens[offsets[i]:offsets[i + 1]], or -1 */
    void (*lookup)(const louds_t *, const uint32_t *tokens, const int64_t *offsets, int64_t *out,
                   size_t n);
} louds_kernels_t;

/* The kernels of an instruction set by its level in isa_names. */
const louds_kernels_t *louds_kernels_for(int level);

#endif
