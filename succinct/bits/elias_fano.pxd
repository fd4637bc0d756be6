from succinct.bits.bitvector cimport BitVector
from succinct.bits.packed cimport PackedArray


cdef class EliasFano:
    cdef readonly BitVector high
    cdef readonly PackedArray low
