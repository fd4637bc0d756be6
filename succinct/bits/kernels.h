/* Rank and select of one query and of batches, for several instruction sets in one extension.
 *
 * `kernels_for` picks a table of functions: the one asked for by name, or the best that the
 * processor runs.
 */
#ifndef SUCCINCT_KERNELS_H
#define SUCCINCT_KERNELS_H

#include "succinct/bits/marks.h"

typedef size_t (*packed_batch_t)(const packed_t *, const int64_t *, uint64_t *, size_t);
typedef size_t (*ef_batch_t)(const elias_fano_t *, const int64_t *, uint64_t *, size_t);
typedef uint64_t (*ef_query_t)(const elias_fano_t *, uint64_t);
typedef void (*ef_values_t)(const elias_fano_t *, const uint64_t *, uint64_t *, size_t);
/* Answers queries up to the first that is not in [0, limit) and returns how many. */
typedef size_t (*bits_batch_t)(const bitvector_t *, const int64_t *, int64_t *, size_t, uint64_t);

typedef struct {
    int level; /* of the instruction set, see isa_names */
    bits_query_t rank1, rank0, select1, select0;
    bits_batch_t rank1_batch, rank0_batch, select1_batch, select0_batch;
    bits_query_t next_zero, next_one;
    bits_batch_t next_zero_batch, next_one_batch;
    packed_batch_t packed_batch; /* up to the first position that is out of range */
    ef_query_t ef_get;
    ef_batch_t ef_get_batch; /* likewise */
    ef_values_t ef_rank_batch, ef_next_batch;
} bits_kernels_t;

/* The named kernels, or the best ones for NULL; NULL if this processor does not run them. */
const bits_kernels_t *kernels_for(const char *name);

#endif
