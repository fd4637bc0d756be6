#include "succinct/trie/louds.h"
#include "succinct/bits/isa.h"

#define GROUP 64  /* sequences that walk side by side, so that their cache misses overlap */
#define WINDOW 32 /* slots that are compared at once */

#ifdef X86

/* A bit for each of WINDOW slots that is `low`. */
V3_INLINE uint64_t slots_equal_v3(const uint16_t *slots, uint64_t low) {
    __m256i key = _mm256_set1_epi16((short)low);
    __m256i a = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)slots), key);
    __m256i b = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(slots + 16)), key);
    a = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
    return (uint32_t)_mm256_movemask_epi8(a);
}

V4_INLINE uint64_t slots_equal_v4(const uint16_t *slots, uint64_t low) {
    return _mm512_cmpeq_epi16_mask(_mm512_loadu_si512(slots), _mm512_set1_epi16((short)low));
}

typedef uint64_t (*slots_equal_t)(const uint16_t *slots, uint64_t low);

INLINE uint64_t label_in_window(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token,
                                slots_equal_t slots_equal) {
    if (t->n_nodes < WINDOW) return label_find(t, begin, end, token);
    end = louds_narrow(t, &begin, end, token, WINDOW);
    /* All of the window is read: it must not reach beyond the slots. */
    uint64_t last = t->n_nodes - WINDOW, at = begin < last ? begin : last;
    uint64_t equal = slots_equal(t->slots + at, token & 0xffff) >> (begin - at);
    for (equal &= (1ull << (end - begin)) - 1; equal; equal &= equal - 1) {
        at = begin + (uint64_t)__builtin_ctzll(equal);
        if (packed_get(&t->label_high, at) == token >> 16) return at;
    }
    return DEAD;
}

V3_INLINE uint64_t label_find_v3(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token) {
    return label_in_window(t, begin, end, token, slots_equal_v3);
}

V4_INLINE uint64_t label_find_v4(const louds_t *t, uint64_t begin, uint64_t end, uint64_t token) {
    return label_in_window(t, begin, end, token, slots_equal_v4);
}

#endif

INLINE uint64_t walk(const louds_t *t, uint64_t state, const uint32_t *tokens, uint64_t n,
                     QUERIES) {
    for (uint64_t i = 0; i < n && state != DEAD; i++) state = louds_step(t, state, tokens[i], Q);
    return state;
}

INLINE void lookup_group(const louds_t *t, const uint32_t *tokens, const int64_t *offsets,
                         int64_t *out, size_t n, QUERIES) {
    uint64_t state[GROUP], begin[GROUP], end[GROUP];
    size_t alive[GROUP], n_alive = 0;
    for (size_t i = 0; i < n; i++) {
        state[i] = offsets[i] < offsets[i + 1] ? 0 : DEAD;
        if (state[i] == 0) alive[n_alive++] = i;
    }
    for (int64_t depth = 0; n_alive; depth++) {
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = alive[a];
            if (state[i] > NODE_MASK) continue;
            end[i] = louds_children(t, state[i], &begin[i], select1, select0, drop);
            __builtin_prefetch(t->slots + begin[i]);
        }
        size_t kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = alive[a];
            uint64_t token = tokens[offsets[i] + depth];
            state[i] = state[i] > NODE_MASK
                           ? louds_step_in_chain(t, state[i], token)
                           : louds_find(t, begin[i], end[i], token, label_find);
            if (state[i] == DEAD) continue;
            if (offsets[i] + depth + 1 == offsets[i + 1]) {
                bits_prefetch(&t->terminal, state[i] & NODE_MASK);
            } else {
                marks_prefetch(&t->zeros, state[i] & NODE_MASK);
                alive[kept++] = i;
            }
        }
        n_alive = kept;
    }
    for (size_t i = 0; i < n; i++) out[i] = louds_number(t, state[i], rank1);
}

#define KERNELS(SUFFIX, TARGET, ...)                                                        \
    TARGET static int64_t find_##SUFFIX(const louds_t *t, const uint32_t *tokens, uint64_t n) { \
        return n ? louds_number(t, walk(t, 0, tokens, n, __VA_ARGS__), FIRST(__VA_ARGS__)) : -1; \
    }                                                                                       \
    TARGET static uint64_t walk_##SUFFIX(const louds_t *t, uint64_t state,                  \
                                         const uint32_t *tokens, uint64_t n) {              \
        return walk(t, state, tokens, n, __VA_ARGS__);                                      \
    }                                                                                       \
    TARGET static int64_t number_##SUFFIX(const louds_t *t, uint64_t state) {               \
        return louds_number(t, state, FIRST(__VA_ARGS__));                                  \
    }                                                                                       \
    TARGET static uint64_t children_##SUFFIX(const louds_t *t, uint64_t v, uint64_t *first) { \
        return louds_children(t, v, first, SELECTS(__VA_ARGS__));                           \
    }                                                                                       \
    TARGET static void advance_##SUFFIX(const louds_t *t, const uint64_t *states,           \
                                        const uint32_t *tokens, uint64_t *out, size_t n) {  \
        for (size_t i = 0; i < n; i++)                                                      \
            out[i] = louds_step(t, states[i], tokens[i], __VA_ARGS__);                      \
    }                                                                                       \
    TARGET static void lookup_##SUFFIX(const louds_t *t, const uint32_t *tokens,            \
                                       const int64_t *offsets, int64_t *out, size_t n) {    \
        for (size_t i = 0; i < n; i += GROUP)                                               \
            lookup_group(t, tokens, offsets + i, out + i, n - i < GROUP ? n - i : GROUP,    \
                         __VA_ARGS__);                                                      \
    }                                                                                       \
    static const louds_kernels_t kernels_##SUFFIX = {find_##SUFFIX,   walk_##SUFFIX,        \
                                                     number_##SUFFIX, children_##SUFFIX,    \
                                                     advance_##SUFFIX, lookup_##SUFFIX};

#define FIRST(A, ...) A
#define SELECTS(...) MIDDLE(__VA_ARGS__)
#define MIDDLE(RANK1, SELECT1, SELECT0, DROP, LABEL_FIND) SELECT1, SELECT0, DROP

KERNELS(portable, PORTABLE, bits_rank1, bits_select1, bits_select0, bits_drop, label_find)
#ifdef X86
KERNELS(v3, V3, bits_rank1, bits_select1_v3, bits_select0_v3, bits_drop_v3, label_find_v3)
KERNELS(v4, V4, bits_rank1_v4, bits_select1_v4, bits_select0_v4, bits_drop_v3, label_find_v4)
#endif

const louds_kernels_t *louds_kernels_for(int level) {
    static const louds_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    return kernels[level];
}
