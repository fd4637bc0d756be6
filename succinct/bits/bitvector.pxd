from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "succinct/bits/rank_select.h" nogil:
    const int BLOCK_SHIFT
    const int BLOCK_WORDS
    const int SUPER_SHIFT
    const int SAMPLE_SPACING
    ctypedef struct bitvector_t:
        const uint64_t *words
        const uint64_t *supers
        const uint32_t *blocks
        const uint32_t *samples1
        const uint32_t *samples0
        uint64_t length
        uint64_t ones
        uint32_t shift1
        uint32_t shift0
    ctypedef struct packed_t:
        const uint64_t *words
        uint64_t length
        uint64_t mask
        uint32_t width
    uint32_t popcount64(uint64_t) noexcept
    int bits_get(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_rank1(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_select1(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_select0(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_next_zero(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_next_one(const bitvector_t *, uint64_t) noexcept
    uint64_t bits_fill_blocks(const uint64_t *, uint64_t, uint32_t *, uint64_t *) noexcept
    void bits_fill_samples(const bitvector_t *, int, uint32_t, uint32_t *) noexcept
    uint64_t packed_get(const packed_t *, uint64_t) noexcept
    void packed_put(uint64_t *, uint32_t, uint64_t, uint64_t) noexcept


cdef extern from "succinct/bits/marks.h" nogil:
    ctypedef struct mark_t:
        uint32_t at, upto
    ctypedef struct marks_t:
        const mark_t *mark
        uint64_t shift
        const mark_t *finer
    ctypedef struct elias_fano_t:
        bitvector_t high
        packed_t low
        marks_t ones, zeros
    uint64_t marks_shift(uint64_t, uint64_t) noexcept
    uint64_t marks_size(uint64_t, uint64_t, uint64_t) noexcept
    void marks_fill(const bitvector_t *, uint64_t, uint64_t, int, uint64_t, mark_t *) noexcept
    uint64_t marks_refine(const bitvector_t *, const marks_t *, uint64_t, int, mark_t *,
                          mark_t *) noexcept


cdef extern from "succinct/bits/kernels.h" nogil:
    ctypedef uint64_t (*bits_query_t)(const bitvector_t *, uint64_t) noexcept
    ctypedef size_t (*bits_batch_t)(const bitvector_t *, const int64_t *, int64_t *, size_t,
                                    uint64_t) noexcept
    ctypedef size_t (*packed_batch_t)(const packed_t *, const int64_t *, uint64_t *,
                                      size_t) noexcept
    ctypedef size_t (*ef_batch_t)(const elias_fano_t *, const int64_t *, uint64_t *,
                                  size_t) noexcept
    ctypedef uint64_t (*ef_query_t)(const elias_fano_t *, uint64_t) noexcept
    ctypedef void (*ef_values_t)(const elias_fano_t *, const uint64_t *, uint64_t *,
                                 size_t) noexcept
    ctypedef struct bits_kernels_t:
        int level
        bits_query_t rank1, rank0, select1, select0
        bits_batch_t rank1_batch, rank0_batch, select1_batch, select0_batch
        bits_query_t next_zero, next_one
        bits_batch_t next_zero_batch, next_one_batch
        packed_batch_t packed_batch
        ef_query_t ef_get
        ef_batch_t ef_get_batch
        ef_values_t ef_rank_batch, ef_next_batch
    const bits_kernels_t *kernels_for(const char *) noexcept


cdef extern from "succinct/bits/isa.h" nogil:
    const char *isa_names[]
    int isa_level(const char *) noexcept


cdef class BitVector:
    cdef bitvector_t v
    cdef readonly object words
    cdef readonly object blocks
    cdef readonly object supers
    cdef readonly object samples1
    cdef readonly object samples0
    cdef int _build(self, object words, uint64_t length) except -1
    cdef object _query(self, bits_query_t query, bits_batch_t batch, object i, object out,
                       uint64_t limit, str what)


# The functions of the instruction set in use.
cdef const bits_kernels_t *kernels_in_use() noexcept

# The value of an int; 2**64 - 1, which is in no range, for all else and what is negative.
cdef uint64_t plain_int(object i) noexcept

# A Python or numpy integer; arrays, 0-d ones too, take the slower road.
cdef bint is_scalar(object x)
