from succinct.bits.bitvector cimport packed_t


cdef class PackedArray:
    cdef packed_t p
    cdef readonly object words
    cdef int _view(self, object words, object length, object width) except -1
