#include "succinct/bits/kernels.h"
#include "succinct/bits/isa.h"

static inline uint64_t rank0_of(const bitvector_t *v, uint64_t i) { return i - bits_rank1(v, i); }

/* One query and a batch of it, compiled for TARGET with everything inlined. */
#define QUERY(NAME, TARGET, BODY)                                                           \
    TARGET static uint64_t NAME(const bitvector_t *v, uint64_t i) { return BODY(v, i); }    \
    TARGET static size_t NAME##_batch(const bitvector_t *v, const int64_t *q, int64_t *out, \
                                      size_t n, uint64_t limit) {                           \
        const bitvector_t own = *v; /* what is written to `out` cannot change it */         \
        size_t i;                                                                           \
        for (i = 0; i < n && (uint64_t)q[i] < limit; i++)                                   \
            out[i] = (int64_t)BODY(&own, (uint64_t)q[i]);                                   \
        return i;                                                                           \
    }

INLINE uint64_t ef_get(const elias_fano_t *e, uint64_t i, bits_query_t select1) {
    return ((select1(&e->high, i) - i) << e->low.width) | packed_get(&e->low, i);
}

/* Values smaller than x: those of lower buckets, then those in the bucket of x. `*bit` is where
 * the next value's one is in the high bits, or the zero that ends the bucket. */
INLINE uint64_t ef_rank(const elias_fano_t *e, uint64_t x, bits_query_t select0, uint64_t *bit) {
    uint64_t bucket = x >> e->low.width, rest = x & e->low.mask, begin, at;
    *bit = e->high.length;
    if (bucket >= e->high.length - e->high.ones) return e->low.length;
    begin = bucket ? select0(&e->high, bucket - 1) + 1 : 0;
    /* Buckets are short where values are spread evenly; search the others by halves. */
    for (at = begin; at < begin + 8; at++)
        if (!bits_get(&e->high, at) || packed_get(&e->low, at - bucket) >= rest) {
            *bit = at;
            return at - bucket;
        }
    begin = at;
    at = bits_next_zero(&e->high, begin);
    while (begin < at) {
        uint64_t mid = (begin + at) >> 1;
        if (packed_get(&e->low, mid - bucket) < rest) begin = mid + 1; else at = mid;
    }
    *bit = begin;
    return begin - bucket;
}

INLINE uint64_t ef_next(const elias_fano_t *e, uint64_t x, bits_query_t select0) {
    uint64_t bit, i = ef_rank(e, x, select0, &bit);
    if (i >= e->low.length) return UINT64_MAX;
    bit = bits_next_one(&e->high, bit);
    return ((bit - i) << e->low.width) | packed_get(&e->low, i);
}

/* Packed integers and Elias-Fano sequences for TARGET, and the table of its kernels. */
#define KERNELS(SUFFIX, LEVEL, TARGET, SELECT1, SELECT0)                                    \
    TARGET static size_t packed_##SUFFIX(const packed_t *p, const int64_t *q,               \
                                         uint64_t *out, size_t n) {                         \
        const packed_t own = *p;                                                            \
        size_t i;                                                                           \
        for (i = 0; i < n && (uint64_t)q[i] < own.length; i++)                              \
            out[i] = packed_get(&own, (uint64_t)q[i]);                                      \
        return i;                                                                           \
    }                                                                                       \
    TARGET static uint64_t ef_get_##SUFFIX(const elias_fano_t *e, uint64_t i) {             \
        return ef_get(e, i, SELECT1);                                                       \
    }                                                                                       \
    TARGET static size_t ef_get_##SUFFIX##_batch(const elias_fano_t *e, const int64_t *q,   \
                                                 uint64_t *out, size_t n) {                 \
        const elias_fano_t own = *e;                                                        \
        size_t i;                                                                           \
        for (i = 0; i < n && (uint64_t)q[i] < own.low.length; i++)                          \
            out[i] = ef_get(&own, (uint64_t)q[i], SELECT1);                                 \
        return i;                                                                           \
    }                                                                                       \
    TARGET static void ef_rank_##SUFFIX##_batch(const elias_fano_t *e, const uint64_t *x,   \
                                                uint64_t *out, size_t n) {                  \
        const elias_fano_t own = *e;                                                        \
        uint64_t bit;                                                                       \
        for (size_t i = 0; i < n; i++) out[i] = ef_rank(&own, x[i], SELECT0, &bit);         \
    }                                                                                       \
    TARGET static void ef_next_##SUFFIX##_batch(const elias_fano_t *e, const uint64_t *x,   \
                                                uint64_t *out, size_t n) {                  \
        const elias_fano_t own = *e;                                                        \
        for (size_t i = 0; i < n; i++) out[i] = ef_next(&own, x[i], SELECT0);               \
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

QUERY(rank1_portable, PORTABLE, bits_rank1)
QUERY(rank0_portable, PORTABLE, rank0_of)
QUERY(select1_portable, PORTABLE, bits_select1)
QUERY(select0_portable, PORTABLE, bits_select0)
QUERY(next_zero_portable, PORTABLE, bits_next_zero)
QUERY(next_one_portable, PORTABLE, bits_next_one)
KERNELS(portable, 0, PORTABLE, bits_select1, bits_select0)

#ifdef X86

QUERY(rank1_v3, V3, bits_rank1)
QUERY(rank0_v3, V3, rank0_of)
QUERY(select1_v3, V3, bits_select1_v3)
QUERY(select0_v3, V3, bits_select0_v3)
QUERY(next_zero_v3, V3, bits_next_zero)
QUERY(next_one_v3, V3, bits_next_one)
KERNELS(v3, 1, V3, bits_select1_v3, bits_select0_v3)

QUERY(rank1_v4, V4, bits_rank1_v4)
QUERY(rank0_v4, V4, bits_rank0_v4)
QUERY(select1_v4, V4, bits_select1_v4)
QUERY(select0_v4, V4, bits_select0_v4)
QUERY(next_zero_v4, V4, bits_next_zero)
QUERY(next_one_v4, V4, bits_next_one)
KERNELS(v4, 2, V4, bits_select1_v4, bits_select0_v4)

#endif

const bits_kernels_t *kernels_for(const char *name) {
    static const bits_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    int level = isa_level(name);
    return level < 0 ? NULL : kernels[level];
}
