from libc.stdint cimport uint64_t

from succinct.bits.bitvector cimport BitVector, elias_fano_t, marks_t
from succinct.bits.packed cimport PackedArray


cdef class EliasFano:
    cdef elias_fano_t e
    cdef readonly BitVector high
    cdef readonly PackedArray low
    cdef readonly tuple marks
    cdef int _view(self) except -1
    cdef object _mark(self, uint64_t count, int zeros, marks_t *marks)
