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

#define KERNELS(SUFFIX, LEVEL)                                                              \
    static const bits_kernels_t kernels_##SUFFIX = {                                        \
        LEVEL,                                                                              \
        rank1_##SUFFIX, rank0_##SUFFIX, select1_##SUFFIX, select0_##SUFFIX,                 \
        rank1_##SUFFIX##_batch, rank0_##SUFFIX##_batch, select1_##SUFFIX##_batch,           \
        select0_##SUFFIX##_batch,                                                           \
    };

QUERY(rank1_portable, PORTABLE, bits_rank1)
QUERY(rank0_portable, PORTABLE, rank0_of)
QUERY(select1_portable, PORTABLE, bits_select1)
QUERY(select0_portable, PORTABLE, bits_select0)
KERNELS(portable, 0)

#ifdef X86

QUERY(rank1_v3, V3, bits_rank1)
QUERY(rank0_v3, V3, rank0_of)
QUERY(select1_v3, V3, bits_select1_v3)
QUERY(select0_v3, V3, bits_select0_v3)
KERNELS(v3, 1)

QUERY(rank1_v4, V4, bits_rank1_v4)
QUERY(rank0_v4, V4, bits_rank0_v4)
QUERY(select1_v4, V4, bits_select1_v4)
QUERY(select0_v4, V4, bits_select0_v4)
KERNELS(v4, 2)

#endif

const bits_kernels_t *kernels_for(const char *name) {
    static const bits_kernels_t *const kernels[] = {
        &kernels_portable,
#ifdef X86
        &kernels_v3,
        &kernels_v4,
#endif
    };
    int level = isa_level(name);
    return level < 0 ? NULL : kernels[level];
}
