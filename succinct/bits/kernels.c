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

/* ---- Elias-Fano.  Batches go in groups, so that the low bits are fetched while other queries look
 * at the high ones. */

#define GROUP 32

/* What each instruction set has its own of, as parameters (see bits_query_t). */
#define QUERIES bits_query_t select1, bits_query_t select0, bits_drop_t drop
#define Q select1, select0, drop

INLINE uint64_t ef_get(const elias_fano_t *e, uint64_t i, QUERIES) {
    uint64_t at = marks_select(&e->high, &e->ones, i, 0, NULL, Q);
    return ((at - i) << e->low.width) | packed_get(&e->low, i);
}

INLINE void prefetch_low(const elias_fano_t *e, uint64_t i) {
    __builtin_prefetch(e->low.words + ((i * e->low.width) >> 6));
}

INLINE size_t ef_get_group(const elias_fano_t *e, const int64_t *q, uint64_t *out, size_t n,
                           QUERIES) {
    size_t i;
    for (i = 0; i < n && (uint64_t)q[i] < e->low.length; i++) {
        prefetch_low(e, (uint64_t)q[i]);
        out[i] = marks_select(&e->high, &e->ones, (uint64_t)q[i], 0, NULL, Q);
    }
    for (size_t k = 0; k < i; k++)
        out[k] = ((out[k] - (uint64_t)q[k]) << e->low.width) | packed_get(&e->low, (uint64_t)q[k]);
    return i;
}

/* The values that share the high bits of x: those from value i on, n of them.  The one of the first,
 * or the zero behind them, is bit `at`. */
typedef struct {
    uint64_t at, i, n;
} bucket_t;

INLINE bucket_t ef_bucket(const elias_fano_t *e, uint64_t x, QUERIES) {
    uint64_t high = x >> e->low.width, next;
    bucket_t b = {e->high.length, e->low.length, 0};
    if (high >= e->high.length - e->high.ones) return b;
    if (high == 0) {
        b.at = b.i = 0;
        b.n = bits_next_zero(&e->high, 0);
        return b;
    }
    b.at = marks_select(&e->high, &e->zeros, high - 1, 1, &next, Q) + 1;
    b.i = b.at - high;
    b.n = next - b.at;
    return b;
}

/* How many values are smaller than x, whose bucket is b. */
INLINE uint64_t ef_rank(const elias_fano_t *e, uint64_t x, bucket_t b) {
    uint64_t rest = x & e->low.mask, width = e->low.width, four, count = 0;
    while (b.n > 4) { /* rare where values are spread evenly */
        uint64_t half = b.n >> 1;
        if (packed_get(&e->low, b.i + half) < rest) {
            b.i += half + 1;
            b.n -= half + 1;
        } else {
            b.n = half;
        }
    }
    if (width > 14) {
        while (count < b.n && packed_get(&e->low, b.i + count) < rest) count++;
        return b.i + count;
    }
    /* How many of the last few are smaller cannot be foretold: one load, and no branch on them. */
    memcpy(&four, (const char *)e->low.words + ((b.i * width) >> 3), 8);
    four >>= (b.i * width) & 7;
    for (uint64_t k = 0; k < 4; k++)
        count += (k < b.n) & (((four >> (k * width)) & e->low.mask) < rest);
    return b.i + count;
}

INLINE void ef_rank_group(const elias_fano_t *e, const uint64_t *x, uint64_t *out, size_t n,
                          int next, QUERIES) {
    bucket_t b[GROUP];
    for (size_t k = 0; k < n; k++) {
        b[k] = ef_bucket(e, x[k], Q);
        prefetch_low(e, b[k].i);
    }
    for (size_t k = 0; k < n; k++) {
        uint64_t i = ef_rank(e, x[k], b[k]);
        if (next && i < e->low.length) {
            uint64_t at = b[k].at + (i - b[k].i), w = at >> 6, x = e->high.words[w] >> (at & 63);
            if (x == 0) { /* there is a one: that of value i */
                do x = e->high.words[++w]; while (x == 0);
                at = w << 6;
            }
            at += (uint64_t)__builtin_ctzll(x);
            out[k] = ((at - i) << e->low.width) | packed_get(&e->low, i);
        } else {
            out[k] = next ? UINT64_MAX : i;
        }
    }
}

/* Packed integers and Elias-Fano sequences for TARGET, and the table of its kernels. */
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
KERNELS(portable, 0, PORTABLE, bits_select1, bits_select0, bits_drop)

#ifdef X86

QUERY(rank1_v3, V3, bits_rank1)
QUERY(rank0_v3, V3, rank0_of)
QUERY(select1_v3, V3, bits_select1_v3)
QUERY(select0_v3, V3, bits_select0_v3)
QUERY(next_zero_v3, V3, bits_next_zero)
QUERY(next_one_v3, V3, bits_next_one)
KERNELS(v3, 1, V3, bits_select1_v3, bits_select0_v3, bits_drop_v3)

QUERY(rank1_v4, V4, bits_rank1_v4)
QUERY(rank0_v4, V4, bits_rank0_v4)
QUERY(select1_v4, V4, bits_select1_v4)
QUERY(select0_v4, V4, bits_select0_v4)
QUERY(next_zero_v4, V4, bits_next_zero)
QUERY(next_one_v4, V4, bits_next_one)
KERNELS(v4, 2, V4, bits_select1_v4, bits_select0_v4, bits_drop_v3)

#endif

const bits_kernels_t *kernels_for(const char *name) {
    static const bits_kernels_t *const kernels[] = {ISA_VERSIONS(kernels)};
    int level = isa_level(name);
    return level < 0 ? NULL : kernels[level];
}
