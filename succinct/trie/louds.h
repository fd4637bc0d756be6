/* Steps through a LOUDS trie, and the batches that are worth an instruction set of their own.
 *
 * A state is a node, or node | place << PLACE_SHIFT for the prefix that ends `place` tokens into
 * the chain of a link node. What a link points to is checked at every use: the contents of a file
 * are not trusted. States are checked by the caller (louds_is_state).
 */
#ifndef SUCCINCT_LOUDS_H
#define SUCCINCT_LOUDS_H

#include "succinct/bits/rank_select.h"

#define PLACE_SHIFT 40
#define NODE_MASK ((1ull << PLACE_SHIFT) - 1)
#define ONE_PLACE (1ull << PLACE_SHIFT)
#define DEAD UINT64_MAX
#define NOWHERE UINT64_MAX  /* the place of a link that points outside the tail */
#define NO_TOKEN UINT64_MAX

typedef struct {
    bitvector_t topology, terminal, link, tail_end;
    packed_t label_high, link_high, tail;
    const uint16_t *slots;
    uint64_t n_nodes;
    int has_links;
} louds_t;

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
INLINE uint64_t louds_children(const louds_t *t, uint64_t v, uint64_t *first, bits_query_t select0) {
    uint64_t begin = select0(&t->topology, v);
    *first = begin - v;
    return bits_next_zero(&t->topology, begin + 1) - v - 1;
}

/* The child of a node in [begin, end) by its token, as a state. */
INLINE uint64_t louds_find(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token) {
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

INLINE uint64_t louds_step(const louds_t *t, uint64_t state, uint64_t token, bits_query_t select0) {
    uint64_t begin, end;
    if (state == DEAD) return DEAD;
    if (state > NODE_MASK) return louds_step_in_chain(t, state, token);
    end = louds_children(t, state, &begin, select0);
    return louds_find(t, begin, end, token);
}

INLINE int louds_is_key(const louds_t *t, uint64_t state) {
    return state <= NODE_MASK && bits_get(&t->terminal, state);
}

/* The number of the key of a state, or -1. */
INLINE int64_t louds_number(const louds_t *t, uint64_t state) {
    return louds_is_key(t, state) ? (int64_t)bits_rank1(&t->terminal, state) : -1;
}

/* ---- for several instruction sets (kernels.c) ------------------------------------------------ */

typedef struct {
    uint64_t (*step)(const louds_t *, uint64_t state, uint64_t token);
    int64_t (*number)(const louds_t *, uint64_t state);
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
