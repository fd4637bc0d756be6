#include "succinct/bits/kernels.h"
#include "succinct/bits/elias_fano.h"
#include "succinct/bits/select_512.h"

static inline uint64_t rank0_of(const bitvector_t *v, uint64_t i) { return i - bits_rank1(v, i); }

#define AHEAD 16       /* queries between the fetch of what one looks at and its turn */
#define FAR (1u << 23) /* bits of a vector that is not at hand in a cache */

/* One query, compiled for TARGET with everything inlined. */
#define SINGLE(NAME, TARGET, BODY) \
    TARGET static uint64_t NAME(const bitvector_t *v, uint64_t i) { return BODY(v, i); }

/* The same and a batch of it, which may fetch what queries look at. */
#define QUERY(NAME, TARGET, BODY, FETCH)                                                    \
    SINGLE(NAME, TARGET, BODY)                                                              \
    TARGET static size_t NAME##_batch(const bitvector_t *v, const int64_t *q, int64_t *out, \
                                      size_t n, uint64_t limit) {                           \
        const bitvector_t own = *v; /* what is written to `out` cannot change it */         \
        size_t i = 0;                                                                       \
        if (FETCH && own.length >= FAR)                                                     \
            for (; i + AHEAD < n && (uint64_t)q[i] < limit; i++) {                          \
                uint64_t later = (uint64_t)q[i + AHEAD];                                    \
                bits_prefetch(&own, later < limit ? later : 0);                             \
                out[i] = (int64_t)BODY(&own, (uint64_t)q[i]);                               \
            }                                                                               \
        for (; i < n && (uint64_t)q[i] < limit; i++)                                        \
            out[i] = (int64_t)BODY(&own, (uint64_t)q[i]);                                   \
        return i;                                                                           \
    }

/* Batches of Elias-Fano queries; those for AVX-512 are in elias_fano.h. */
#define FANO_BATCHES(SUFFIX, TARGET, ...)                                                   \
    TARGET static size_t ef_get_##SUFFIX##_batch(const elias_fano_t *e, const int64_t *q,   \
                                                 uint64_t *out, size_t n) {                 \
        const elias_fano_t own = *e;                                                        \
        size_t done = 0, group, got;                                                        \
        do {                                                                                \
            group = n - done < GROUP ? n - done : GROUP;                                    \
            got = ef_get_group(&own, q + done, out + done, group, __VA_ARGS__);             \
            done += got;                                                                    \
        } while (got == group && done < n);                                                 \
        return done;                                                                        \
    }                                                                                       \
    TARGET static void ef_rank_##SUFFIX##_batch(const elias_fano_t *e, const uint64_t *x,   \
                                                uint64_t *out, size_t n) {                  \
        const elias_fano_t own = *e;                                                        \
        for (size_t i = 0; i < n; i += GROUP)                                               \
            ef_rank_group(&own, x + i, out + i, n - i < GROUP ? n - i : GROUP, 0,           \
                          __VA_ARGS__);                                                     \
    }                                                                                       \
    TARGET static void ef_next_##SUFFIX##_batch(const elias_fano_t *e, const uint64_t *x,   \
                                                uint64_t *out, size_t n) {                  \
        const elias_fano_t own = *e;                                                        \
        for (size_t i = 0; i < n; i += GROUP)                                               \
            ef_rank_group(&own, x + i, out + i, n - i < GROUP ? n - i : GROUP, 1,           \
                          __VA_ARGS__);                                                     \
    }

/* Packed integers and single Elias-Fano values for TARGET, and the table of its kernels. */
#define KERNELS(SUFFIX, LEVEL, TARGET, ...)                                                 \
    TARGET static size_t packed_##SUFFIX(const packed_t *p, const int64_t *q,               \
                                         uint64_t *out, size_t n) {                         \
        const packed_t own = *p;                                                            \
        size_t i;                                                                           \
        for (i = 0; i < n && (uint64_t)q[i] < own.length; i++)                              \
            out[i] = packed_get(&own, (uint64_t)q[i]);                                      \
        return i;                                                                           \
    }                                                                                       \
    TARGET static uint64_t ef_get_##SUFFIX(const elias_fano_t *e, uint64_t i) {             \
        return ef_get(e, i, __VA_ARGS__);                                                   \
    }                                                                                       \
    static const bits_kernels_t kernels_##SUFFIX = {                                        \
        LEVEL,                                                                              \
        rank1_##SUFFIX, rank0_##SUFFIX, select1_##SUFFIX, select0_##SUFFIX,                 \
        rank1_##SUFFIX##_batch, rank0_##SUFFIX##_batch, select1_##SUFFIX##_batch,           \
        select0_##SUFFIX##_batch,                                                           \
        next_zero_##SUFFIX, next_one_##SUFFIX,                                              \
        next_zero_##SUFFIX##_batch, next_one_##SUFFIX##_batch,                              \
        packed_##SUFFIX,                                                                    \
        ef_get_##SUFFIX,                                                                    \
        ef_get_##SUFFIX##_batch, ef_rank_##SUFFIX##_batch, ef_next_##SUFFIX##_batch,        \
    };

QUERY(rank1_portable, PORTABLE, bits_rank1, 1)
QUERY(rank0_portable, PORTABLE, rank0_of, 1)
QUERY(select1_portable, PORTABLE, bits_select1, 0)
QUERY(select0_portable, PORTABLE, bits_select0, 0)
QUERY(next_zero_portable, PORTABLE, bits_next_zero, 1)
QUERY(next_one_portable, PORTABLE, bits_next_one, 1)
FANO_BATCHES(portable, PORTABLE, bits_select1, bits_select0, bits_drop)
KERNELS(portable, 0, PORTABLE, bits_select1, bits_select0, bits_drop)

#ifdef X86

QUERY(rank1_v3, V3, bits_rank1, 1)
QUERY(rank0_v3, V3, rank0_of, 1)
QUERY(select1_v3, V3, bits_select1_v3, 0)
QUERY(select0_v3, V3, bits_select0_v3, 0)
QUERY(next_zero_v3, V3, bits_next_zero, 1)
QUERY(next_one_v3, V3, bits_next_one, 1)
FANO_BATCHES(v3, V3, bits_select1_v3, bits_select0_v3, bits_drop_v3)
KERNELS(v3, 1, V3, bits_select1_v3, bits_select0_v3, bits_drop_v3)

QUERY(rank1_v4, V4, bits_rank1_v4, 1)
QUERY(rank0_v4, V4, bits_rank0_v4, 1)
SINGLE(select1_v4, V4, bits_select1_v4) /* their batches are in select_512.h */
SINGLE(select0_v4, V4, bits_select0_v4)
QUERY(next_zero_v4, V4, bits_next_zero, 1)
QUERY(next_one_v4, V4, bits_next_one, 1)
KERNELS(v4, 2, V4, bits_select1_v4, bits_select0_v4, bits_drop_v3)

#endif

const bits_kernels_t *kernels_for(const char *name) {
    static const bits_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    int level = isa_level(name);
    return level < 0 ? NULL : kernels[level];
}
