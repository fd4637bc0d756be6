#include "succinct/maps/tails.h"
#include "succinct/bits/isa.h"

#define GROUP 64 /* sequences that walk side by side, so that their cache misses overlap */

/* Sequences that walk side by side: a row of the group for each. */
typedef struct {
    const uint32_t *tokens[GROUP]; /* the next token */
    uint64_t left[GROUP];          /* tokens that are left */
    uint64_t place[GROUP];         /* entry, in a tail the node of the next token */
    size_t number[GROUP];          /* of the sequence in the group */
} walks_t;

INLINE void walk_on(walks_t *to, size_t n, const walks_t *from, size_t i, uint64_t place) {
    to->tokens[n] = from->tokens[i];
    to->left[n] = from->left[i];
    to->place[n] = place;
    to->number[n] = from->number[i];
}

/* The rest of the walks, all inside tails; out has the numbers of their keys so far. */
INLINE void lookup_tails(const steps_t *t, walks_t *w, size_t n, int64_t *out, QUERIES) {
    (void)select0;
    while (n) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t node = w->place[i];
            if (node == 0 || tails_token(t, node, rank1) != *w->tokens[i]) {
                out[w->number[i]] = -1;
                continue;
            }
            w->tokens[i]++;
            w->left[i]--;
            walk_on(w, kept++, w, i, node);
        }
        n = kept;
        kept = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t node = tails_parent(t, w->place[i], select1);
            if (w->left[i]) {
                if (node) steps_prefetch(t, t->suffixes, node - 1);
                walk_on(w, kept++, w, i, node);
            } else if (node) {
                out[w->number[i]] = -1;
            }
        }
        n = kept;
    }
}

INLINE void lookup_group(const steps_t *t, const uint32_t *tokens, const int64_t *offsets,
                         int64_t *out, size_t n, QUERIES) {
    uint64_t entry[GROUP], first[GROUP], end[GROUP];
    size_t alive[GROUP], n_alive = 0, n_tails = 0;
    walks_t tails;
    for (size_t i = 0; i < n; i++) {
        uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]);
        out[i] = -1;
        entry[i] = 0;
        if (length && (t->links || length <= t->n_steps)) alive[n_alive++] = i;
    }
    for (uint64_t depth = 0; n_alive; depth++) {
        const step_t *s = t->step + depth;
        size_t kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = alive[a];
            uint64_t at = (uint64_t)offsets[i] + depth;
            uint64_t p = depth == t->n_steps ? NOWHERE : steps_row(t, depth, entry[i], Q);
            if (p == NOWHERE) {
                out[i] = tails_below(t, depth, entry[i], &tails.place[n_tails], rank1);
                if (out[i] < 0) continue;
                tails.tokens[n_tails] = tokens + at;
                tails.left[n_tails] = (uint64_t)offsets[i + 1] - at;
                tails.number[n_tails++] = i;
                continue;
            }
            end[i] = steps_narrow(t, s, p, tokens[at], &first[i], Q);
            steps_prefetch(t, s, first[i]);
            alive[kept++] = i;
        }
        n_alive = kept;
        kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = alive[a];
            uint64_t at = (uint64_t)offsets[i] + depth;
            entry[i] = steps_pick(t, s, first[i], end[i], tokens[at], rank1);
            if (entry[i] == NOWHERE) continue;
            if (at + 1 == (uint64_t)offsets[i + 1])
                out[i] = tails_number(t, depth + 1, entry[i], rank1);
            else
                alive[kept++] = i;
        }
        n_alive = kept;
    }
    lookup_tails(t, &tails, n_tails, out, Q);
}

INLINE int64_t find(const steps_t *t, const uint32_t *tokens, uint64_t n, QUERIES) {
    uint64_t e = 0, next, depth = 0;
    for (; depth < n; depth++, e = next)
        if ((next = steps_child(t, depth, e, tokens[depth], Q)) == NOWHERE)
            return tails_find(t, depth, e, tokens + depth, n - depth, Q);
    return tails_number(t, depth, e, rank1);
}

/* The length of a key. */
INLINE uint64_t key_length(const steps_t *t, uint64_t number, QUERIES) {
    uint64_t e;
    return steps_key(t, number, &e, Q) + tails_length(t, tails_link(t, number, rank1), select1);
}

INLINE void key_tokens(const steps_t *t, uint64_t number, uint32_t *end, QUERIES) {
    uint64_t e, token, node = tails_link(t, number, rank1), depth = steps_key(t, number, &e, Q);
    end -= tails_length(t, node, select1);
    for (uint32_t *tail = end; node; node = tails_parent(t, node, select1))
        *tail++ = (uint32_t)tails_token(t, node, rank1);
    for (; depth; depth--) {
        e = steps_entry_of_row(t, depth - 1, steps_parent(t, t->step + depth - 1, e, &token, Q),
                               select1);
        *--end = (uint32_t)token;
    }
}

#define FIRST(rank1, ...) rank1

/* One query, many of them, and the table of both, for TARGET. */
#define KERNELS(SUFFIX, TARGET, ...)                                                          \
    TARGET static uint64_t child_##SUFFIX(const steps_t *t, uint64_t depth, uint64_t e,       \
                                          uint64_t token) {                                   \
        return steps_child(t, depth, e, token, __VA_ARGS__);                                  \
    }                                                                                         \
    TARGET static int64_t find_##SUFFIX(const steps_t *t, const uint32_t *tokens,             \
                                        uint64_t n) {                                         \
        return find(t, tokens, n, __VA_ARGS__);                                               \
    }                                                                                         \
    TARGET static int64_t number_##SUFFIX(const steps_t *t, uint64_t depth, uint64_t e) {     \
        return tails_number(t, depth, e, FIRST(__VA_ARGS__));                                 \
    }                                                                                         \
    TARGET static void advance_##SUFFIX(const steps_t *t, const uint64_t *states,             \
                                        const uint32_t *tokens, uint64_t *out, size_t n) {    \
        for (size_t i = 0; i < n; i++)                                                        \
            out[i] = tails_step(t, states[i], tokens[i], __VA_ARGS__);                        \
    }                                                                                         \
    TARGET static void lookup_##SUFFIX(const steps_t *t, const uint32_t *tokens,              \
                                       const int64_t *offsets, int64_t *out, size_t n) {      \
        for (size_t i = 0; i < n; i += GROUP)                                                 \
            lookup_group(t, tokens, offsets + i, out + i, n - i < GROUP ? n - i : GROUP,      \
                         __VA_ARGS__);                                                        \
    }                                                                                         \
    TARGET static void lengths_##SUFFIX(const steps_t *t, const int64_t *numbers,             \
                                        int64_t *out, size_t n) {                             \
        for (size_t i = 0; i < n; i++)                                                        \
            out[i] = (int64_t)key_length(t, (uint64_t)numbers[i], __VA_ARGS__);               \
    }                                                                                         \
    TARGET static void keys_##SUFFIX(const steps_t *t, const int64_t *numbers,                \
                                     const int64_t *ends, uint32_t *out, size_t n) {          \
        for (size_t i = 0; i < n; i++)                                                        \
            key_tokens(t, (uint64_t)numbers[i], out + ends[i], __VA_ARGS__);                  \
    }                                                                                         \
    static const steps_kernels_t kernels_##SUFFIX = {                                         \
        child_##SUFFIX,   find_##SUFFIX,    number_##SUFFIX, advance_##SUFFIX,                \
        lookup_##SUFFIX, lengths_##SUFFIX, keys_##SUFFIX,                                     \
    };

KERNELS(portable, PORTABLE, bits_rank1, bits_select1, bits_select0)
#ifdef X86
KERNELS(v3, V3, bits_rank1, bits_select1_v3, bits_select0_v3)
KERNELS(v4, V4, bits_rank1_v4, bits_select1_v4, bits_select0_v4)
#endif

const steps_kernels_t *steps_kernels_for(int level) {
    static const steps_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    return kernels[level];
}
