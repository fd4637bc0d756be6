from succinct.bits.bitvector cimport BitVector, elias_fano_t
from succinct.bits.packed cimport PackedArray


cdef class EliasFano:
    cdef elias_fano_t e
    cdef readonly BitVector high
    cdef readonly PackedArray low
    cdef void _view(self) noexcept
