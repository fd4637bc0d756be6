# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
from libc.stdint cimport int64_t


cdef class Keys:
    """Where the keys begin, whatever the table stores for that."""

    def __init__(self, table):
        cdef const int64_t[::1] view
        self.n = table.n_keys
        self.offsets = NULL
        if table.fixed_length is None:
            view = self.hold = table.offsets
            self.offsets = &view[0]
        else:
            self.fixed = table.fixed_length

    cdef int64_t before(self, int64_t i) noexcept nogil:
        """Where the key before key i begins; before the first, an empty one at 0."""
        return start_of(self.offsets, self.fixed, i - 1) if i else 0
