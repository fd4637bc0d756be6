/* Tails of a StepMap: what of a key lies behind its last branching.
 *
 * The steps hold keys that are cut behind the first token which they share with no other key.  The
 * rest of a key, its *tail*, is a link to a node of the trie of all reversed tails: the next token
 * is the label of the node, the place behind it the node's parent, the end the root.  So tails that
 * end alike share their nodes.
 *
 * The nodes lie in level order; node v > 0 is entry v - 1 of `suffixes`, whose tree has a one for
 * every node behind as many zeros as the number of its parent.  Entry j of `links` is the node
 * where the tail of key j begins, less one, among the keys that have one; a bit a key says which.
 *
 * A state inside a tail is (node + 1) << shift | key, `node` being that of the next token and `key`
 * the number of the key, which is why no walk ever looks for the link again.
 */
#ifndef SUCCINCT_TAILS_H
#define SUCCINCT_TAILS_H

#include "succinct/maps/steps.h"

INLINE uint64_t tails_state(const steps_t *t, uint64_t node, uint64_t key) {
    return (node + 1) << t->shift | key;
}

/* The node of a state that is not DEAD, or NOWHERE if the state is not inside a tail. */
INLINE uint64_t tails_node(const steps_t *t, uint64_t state) { return (state >> t->shift) - 1; }

INLINE uint64_t tails_key(const steps_t *t, uint64_t state) {
    return state & ((1ull << t->shift) - 1);
}

INLINE int tails_has(const steps_t *t, uint64_t key) {
    const step_t *s = t->links;
    return s && (s->entries == s->rows || bits_get(&t->bits, s->inner_at + key));
}

/* What is stored of where the tail of a key begins; 0 if it has none. */
INLINE uint64_t tails_stored_link(const steps_t *t, uint64_t key, bits_query_t rank1) {
    const step_t *s = t->links;
    if (!tails_has(t, key)) return 0;
    if (s->entries != s->rows) key = rank1(&t->bits, s->inner_at + key) - s->inner_ones;
    return steps_code(t, s, key, rank1) + 1;
}

/* Where the tail of a key begins: a node, whatever a file says; 0 if it has none. */
INLINE uint64_t tails_link(const steps_t *t, uint64_t key, bits_query_t rank1) {
    uint64_t node = tails_stored_link(t, key, rank1);
    return node && node > t->suffixes->entries ? t->suffixes->entries : node;
}

INLINE uint64_t tails_token(const steps_t *t, uint64_t node, bits_query_t rank1) {
    const step_t *s = t->suffixes;
    if (s->kind == DAC) return steps_dac(t, s, node - 1, rank1);
    return s->low + steps_code(t, s, node - 1, rank1);
}

/* What is stored as the parent of a node. */
INLINE uint64_t tails_stored_parent(const steps_t *t, uint64_t node, bits_query_t select1) {
    const step_t *s = t->suffixes;
    return select1(&t->bits, s->tree_ones + node - 1) - s->tree_at - (node - 1);
}

/* The parent of a node. Parents come first in level order: whatever a file says, tails end. */
INLINE uint64_t tails_parent(const steps_t *t, uint64_t node, bits_query_t select1) {
    uint64_t parent = tails_stored_parent(t, node, select1);
    return parent < node ? parent : 0;
}

INLINE uint64_t tails_length(const steps_t *t, uint64_t node, bits_query_t select1) {
    uint64_t n = 0;
    for (; node; node = tails_parent(t, node, select1)) n++;
    return n;
}

/* Whether a number with a place inside a tail is a state. */
INLINE int tails_is_state(const steps_t *t, uint64_t state, bits_query_t rank1,
                          bits_query_t select1) {
    uint64_t node = tails_node(t, state), key = tails_key(t, state), at;
    if (!t->links || key >= t->links->rows || !(at = tails_link(t, key, rank1)) || node >= at)
        return 0;
    while (at > node) at = tails_parent(t, at, select1);
    return at == node;
}

/* The number of the key that entry e is, a prefix of length `depth`; -1 if it is none or goes on
 * in a tail. */
INLINE int64_t tails_number(const steps_t *t, uint64_t depth, uint64_t e, bits_query_t rank1) {
    int64_t key = steps_number(t, depth, e, rank1);
    return key >= 0 && tails_has(t, (uint64_t)key) ? -1 : key;
}

/* The key whose tail begins behind entry e, a prefix of length `depth` without continuations in the
 * steps; *node is where.  Or -1. */
INLINE int64_t tails_below(const steps_t *t, uint64_t depth, uint64_t e, uint64_t *node,
                           bits_query_t rank1) {
    int64_t key;
    if (!t->links || depth == 0) return -1;
    key = steps_number(t, depth, e, rank1);
    *node = key < 0 ? 0 : tails_link(t, (uint64_t)key, rank1);
    return *node ? key : -1;
}

/* The state behind `token` of any state. */
INLINE uint64_t tails_step(const steps_t *t, uint64_t state, uint64_t token, QUERIES) {
    uint64_t depth, e, p, node, first, end;
    int64_t key;
    const step_t *s;
    if (state == DEAD) return DEAD;
    if (state >> t->shift) {
        node = tails_node(t, state);
        key = (int64_t)tails_key(t, state);
    } else {
        depth = steps_depth(t, state);
        e = steps_entry(t, depth, state);
        p = depth == t->n_steps ? NOWHERE : steps_row(t, depth, e, Q);
        if (p != NOWHERE) {
            s = t->step + depth;
            end = steps_narrow(t, s, p, token, &first, Q);
            e = steps_pick(t, s, first, end, token, Q);
            return e == NOWHERE ? DEAD : s->start + e;
        }
        key = tails_below(t, depth, e, &node, rank1);
        if (key < 0) return DEAD;
    }
    if (node == 0 || tails_token(t, node, rank1) != token) return DEAD;
    return tails_state(t, tails_parent(t, node, select1), (uint64_t)key);
}

/* The number of the key whose tail, behind entry e as in tails_below, is tokens[0:n]; or -1. */
INLINE int64_t tails_find(const steps_t *t, uint64_t depth, uint64_t e, const uint32_t *tokens,
                          uint64_t n, QUERIES) {
    uint64_t node;
    int64_t key = tails_below(t, depth, e, &node, rank1);
    UNUSED_Q;
    if (key < 0) return -1;
    for (uint64_t i = 0; i < n; i++) {
        if (node == 0 || tails_token(t, node, rank1) != tokens[i]) return -1;
        node = tails_parent(t, node, select1);
    }
    return node ? -1 : key;
}

#endif
