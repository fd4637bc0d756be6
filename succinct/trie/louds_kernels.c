#include "succinct/trie/louds.h"
#include "succinct/bits/isa.h"

#define GROUP 32 /* sequences that walk side by side, so that their cache misses overlap */

INLINE void lookup_group(const louds_t *t, const uint32_t *tokens, const int64_t *offsets,
                         int64_t *out, size_t n, bits_query_t select0) {
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
            end[i] = louds_children(t, state[i], &begin[i], select0);
            __builtin_prefetch(t->slots + ((begin[i] + end[i]) >> 1));
        }
        size_t kept = 0;
        for (size_t a = 0; a < n_alive; a++) {
            size_t i = alive[a];
            uint64_t token = tokens[offsets[i] + depth];
            state[i] = state[i] > NODE_MASK ? louds_step_in_chain(t, state[i], token)
                                            : louds_find(t, begin[i], end[i], token);
            if (state[i] == DEAD || offsets[i] + depth + 1 == offsets[i + 1]) continue;
            alive[kept++] = i;
        }
        n_alive = kept;
    }
    for (size_t i = 0; i < n; i++) out[i] = louds_number(t, state[i]);
}

#define KERNELS(SUFFIX, TARGET, SELECT0)                                                    \
    TARGET static uint64_t step_##SUFFIX(const louds_t *t, uint64_t state, uint64_t token) { \
        return louds_step(t, state, token, SELECT0);                                        \
    }                                                                                       \
    TARGET static int64_t number_##SUFFIX(const louds_t *t, uint64_t state) {               \
        return louds_number(t, state);                                                      \
    }                                                                                       \
    TARGET static void advance_##SUFFIX(const louds_t *t, const uint64_t *states,           \
                                        const uint32_t *tokens, uint64_t *out, size_t n) {  \
        for (size_t i = 0; i < n; i++) out[i] = louds_step(t, states[i], tokens[i], SELECT0); \
    }                                                                                       \
    TARGET static void lookup_##SUFFIX(const louds_t *t, const uint32_t *tokens,            \
                                       const int64_t *offsets, int64_t *out, size_t n) {    \
        for (size_t i = 0; i < n; i += GROUP)                                               \
            lookup_group(t, tokens, offsets + i, out + i, n - i < GROUP ? n - i : GROUP,    \
                         SELECT0);                                                          \
    }                                                                                       \
    static const louds_kernels_t kernels_##SUFFIX = {                                       \
        step_##SUFFIX, number_##SUFFIX, advance_##SUFFIX, lookup_##SUFFIX};

KERNELS(portable, PORTABLE, bits_select0)
#ifdef X86
KERNELS(v3, V3, bits_select0_v3)
KERNELS(v4, V4, bits_select0_v4)
#endif

const louds_kernels_t *louds_kernels_for(int level) {
    static const louds_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    return kernels[level];
}
