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

#ifdef X86
/* Eight integers at once, each in a byte, or four of at most 14 bits. */
V3_INLINE uint64_t values_equal_v3(const uint64_t *values, uint64_t at, uint64_t width,
                                   uint64_t begin, uint64_t end, uint64_t key, uint64_t *behind) {
    uint64_t most = width < 8 ? 8 : 4, lane = 64 / most, ones, tops, run, n, below, upto;
    if (width > 14) return values_equal(values, at, width, begin, end, key, behind);
    begin = values_narrow(values, at, width, begin, end, key, most);
    n = end - begin < most ? end - begin : most;
    ones = width < 8 ? 0x0101010101010101 : 0x0001000100010001;
    tops = ones << (lane - 1);
    memcpy(&run, (const char *)values + ((at + begin * width) >> 3), 8);
    run = _pdep_u64(run >> ((at + begin * width) & 7), (ones << width) - ones);
    /* The top bit of a lane stays in a subtraction where what is taken away is not more. */
    uint64_t lanes = _bzhi_u64(tops, (uint32_t)(n * lane));
    upto = (uint64_t)__builtin_popcountll(((key * ones | tops) - run) & lanes);
    below = n - (uint64_t)__builtin_popcountll(((run | tops) - key * ones) & lanes);
    *behind = begin + upto;
    while (upto == n && *behind < end && values_get(values, at + *behind * width, width) == key)
        ++*behind;
    return begin + below;
}
#endif

INLINE void walk_on(walks_t *to, size_t n, const walks_t *from, size_t i, uint64_t place) {
    to->tokens[n] = from->tokens[i];
    to->left[n] = from->left[i];
    to->place[n] = place;
    to->number[n] = from->number[i];
}

/* The rest of the walks, all inside tails; out has the numbers of their keys so far. */
INLINE void lookup_tails(const steps_t *t, walks_t *w, size_t n, int64_t *out, QUERIES) {
    UNUSED_Q;
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
            entry[i] = steps_pick(t, s, first[i], end[i], tokens[at], Q);
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

/* The state behind tokens[0:n], or DEAD. */
INLINE uint64_t walk(const steps_t *t, uint64_t state, const uint32_t *tokens, uint64_t n,
                     QUERIES) {
    uint64_t e, depth, next, i = 0;
    if (state == DEAD || n == 0) return state;
    if (!(state >> t->shift)) {
        depth = steps_depth(t, state);
        for (e = steps_entry(t, depth, state); i < n; i++, depth++, e = next)
            if ((next = steps_child(t, depth, e, tokens[i], Q)) == NOWHERE) break;
        state = depth ? t->step[depth - 1].start + e : 0;
        if (i < n && !t->links) return DEAD;
    }
    for (; i < n && state != DEAD; i++) state = tails_step(t, state, tokens[i], Q);
    return state;
}

/* ---- continuations --------------------------------------------------------------------------- */

/* The continuations of one prefix: entries [first, end) of row p of a step; or, if `node` is not 0,
 * the one token of that node, in the tail of key `key`. */
typedef struct {
    const step_t *step;
    uint64_t p, first, end, node, key;
} family_t;

INLINE family_t family_of(const steps_t *t, uint64_t state, QUERIES) {
    family_t f = {t->step, 0, 0, 0, 0, 0};
    uint64_t depth, e;
    int64_t key;
    if (state == DEAD) return f;
    if (state >> t->shift) {
        f.node = tails_node(t, state);
        f.key = tails_key(t, state);
    } else {
        depth = steps_depth(t, state);
        e = steps_entry(t, depth, state);
        f.p = depth < t->n_steps ? steps_row(t, depth, e, Q) : NOWHERE;
        if (f.p != NOWHERE) {
            f.step = t->step + depth;
            f.end = steps_entries(t, f.step, f.p, &f.first, Q);
            return f;
        }
        key = tails_below(t, depth, e, &f.node, rank1);
        if (key < 0) f.node = 0;
        f.key = (uint64_t)key;
    }
    f.end = f.node != 0;
    return f;
}

/* What is done with a token and its place among its siblings. */
typedef void (*visit_t)(void *to, uint64_t i, uint64_t token);

typedef struct {
    visit_t visit;
    void *to;
    uint64_t low, i;
} visit_row_t;

INLINE void visit_row(void *to, const huffman_t *h, uint64_t rank, uint64_t n) {
    visit_row_t *row = to;
    for (uint64_t i = 0; i < n; i++)
        row->visit(row->to, row->i++, row->low + huffman_token(h, rank + i));
}

INLINE void visit_tokens(const steps_t *t, const family_t *f, visit_t visit, void *to, QUERIES) {
    const step_t *s = f->step;
    uint64_t n = f->end - f->first, at, next, w, x;
    if (n == 0) return;
    if (f->node) {
        visit(to, 0, tails_token(t, f->node, rank1));
    } else if (s->kind == PACKED) {
        for (uint64_t i = 0; i < n; i++)
            visit(to, i, s->low + values_get(t->values, s->tokens_at + (f->first + i) * s->width,
                                             s->width));
    } else if (s->kind == DAC) {
        for (uint64_t i = 0; i < n; i++) visit(to, i, steps_dac(t, s, f->first + i, rank1));
    } else if (s->kind == RICE) {
        rice_t row;
        next = f->p;
        rice_seek(t, s, &next, NOWHERE, &at, &row);
        for (uint64_t i = 0; i < n; i++) visit(to, i, s->low + rice_token(&row));
    } else if (s->kind == HUFFMAN) { /* in another order */
        huffman_t row;
        visit_row_t tokens = {visit, to, s->low, 0};
        next = huffman_seek(t, s, f->p, &at, &row, Q);
        huffman_read(&row, next - at, visit_row, &tokens);
        for (; tokens.i < n; tokens.i++) visit(to, tokens.i, s->low);
    } else { /* the next n ones, which are there: they were counted when the index was loaded */
        at = s->kind == BITMAP ? s->tree_at + f->p * s->range
                               : steps_mark(t, s, f->p * s->buckets, 1, &next, Q) + 1;
        w = at >> 6;
        x = t->bits.words[w] & ~0ull << (at & 63);
        for (uint64_t i = 0; i < n; i++) {
            while (x == 0) x = t->bits.words[++w];
            next = (w << 6 | (uint64_t)__builtin_ctzll(x)) - at;
            x &= x - 1;
            if (s->kind == JOINT)
                next = (next - i) << s->width |
                       values_get(t->values, s->tokens_at + (f->first + i) * s->width, s->width);
            visit(to, i, s->low + next);
        }
    }
}

INLINE void visit_write(void *to, uint64_t i, uint64_t token) {
    ((uint32_t *)to)[i] = (uint32_t)token;
}

INLINE void children(const steps_t *t, uint64_t state, uint32_t *tokens, uint64_t *states,
                     QUERIES) {
    family_t f = family_of(t, state, Q);
    visit_tokens(t, &f, visit_write, tokens, Q);
    if (f.step->kind == HUFFMAN) tokens_sort(tokens, f.end - f.first);
    if (f.node)
        *states = tails_state(t, tails_parent(t, f.node, select1), f.key);
    else
        for (uint64_t e = f.first; e < f.end; e++) *states++ = f.step->start + e;
}

typedef struct {
    uint32_t *words;
    uint64_t vocab_size;
} mask_t;

INLINE void visit_mask(void *to, uint64_t i, uint64_t token) {
    mask_t *mask = to;
    (void)i;
    if (token < mask->vocab_size) mask->words[token >> 5] |= 1u << (token & 31);
}

/* One lookup and one walk, for TARGET. */
#define SINGLE(SUFFIX, TARGET, ...)                                                           \
    TARGET static int64_t find_##SUFFIX(const steps_t *t, const uint32_t *tokens,             \
                                        uint64_t n) {                                         \
        return find(t, tokens, n, __VA_ARGS__);                                               \
    }                                                                                         \
    TARGET static uint64_t walk_##SUFFIX(const steps_t *t, uint64_t state,                    \
                                         const uint32_t *tokens, uint64_t n) {                \
        return walk(t, state, tokens, n, __VA_ARGS__);                                        \
    }

#define FIRST(rank1, ...) rank1

/* Many of each question for TARGET, and the table with them and the single ones of ONE. */
#define KERNELS(SUFFIX, TARGET, ONE, ...)                                                     \
    TARGET static void degrees_##SUFFIX(const steps_t *t, const uint64_t *states,             \
                                        int64_t *out, size_t n) {                             \
        for (size_t i = 0; i < n; i++) {                                                      \
            family_t f = family_of(t, states[i], __VA_ARGS__);                                \
            out[i] = (int64_t)(f.end - f.first);                                              \
        }                                                                                     \
    }                                                                                         \
    TARGET static void children_##SUFFIX(const steps_t *t, const uint64_t *states,            \
                                         const int64_t *offsets, uint32_t *tokens,            \
                                         uint64_t *out, size_t n) {                           \
        for (size_t i = 0; i < n; i++)                                                        \
            children(t, states[i], tokens + offsets[i], out + offsets[i], __VA_ARGS__);       \
    }                                                                                         \
    TARGET static void mask_##SUFFIX(const steps_t *t, const uint64_t *states, uint32_t *out, \
                                     size_t row, uint64_t vocab_size, size_t n) {             \
        for (size_t i = 0; i < n; i++) {                                                      \
            family_t f = family_of(t, states[i], __VA_ARGS__);                                \
            mask_t mask = {out + i * row, vocab_size};                                        \
            visit_tokens(t, &f, visit_mask, &mask, __VA_ARGS__);                              \
        }                                                                                     \
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
            lookup_##SUFFIX##_group(t, tokens, offsets + i, out + i,                          \
                                    n - i < GROUP ? n - i : GROUP, __VA_ARGS__);              \
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
        find_##ONE,       walk_##ONE,     number_##SUFFIX,  advance_##SUFFIX,                 \
        lookup_##SUFFIX,  lengths_##SUFFIX, keys_##SUFFIX,  degrees_##SUFFIX,                 \
        children_##SUFFIX, mask_##SUFFIX,                                                     \
    };

#define PLAIN bits_rank1, bits_select1, bits_select0, bits_drop, values_equal
#define lookup_portable_group lookup_group
#define lookup_v3_group lookup_group
SINGLE(portable, PORTABLE, PLAIN)
KERNELS(portable, PORTABLE, portable, PLAIN)
#ifdef X86
#define OF_V3 bits_rank1, bits_select1_v3, bits_select0_v3, bits_drop_v3, values_equal_v3
#define OF_V4 bits_rank1_v4, bits_select1_v4, bits_select0_v4, bits_drop_v3, values_equal_v3
#include "succinct/maps/lookup_512.h"
SINGLE(v3, V3, OF_V3)
KERNELS(v3, V3, v3, OF_V3)
/* One lookup waits for one result after the other: there vectors are slower. */
KERNELS(v4, V4, v3, OF_V4)
#endif

const steps_kernels_t *steps_kernels_for(int level) {
    static const steps_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    return kernels[level];
}
