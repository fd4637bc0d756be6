# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
from libc.stdint cimport int64_t


class Heads:
    """The keys of a table, each cut behind its last branching; nothing is copied.

    Passes take it for a table. `max_length` is the length of the longest one.
    """

    def __init__(self, keys, max_length):
        self.keys, self.max_length = keys, max_length
        self.n_keys, self.fixed_length = keys.n_keys, keys.fixed_length
        self.tokens, self.vocab_size = keys.tokens, keys.vocab_size

    @property
    def offsets(self):
        return self.keys.offsets


cdef class Keys:
    """Where the keys begin, whatever the table stores for that.

    The keys of `Heads` end behind their last branching. What a key shares with the one before it is
    the same, whether that one is looked at as a whole or so far.
    """

    def __init__(self, table):
        cdef const int64_t[::1] view
        self.n = table.n_keys
        self.cut = isinstance(table, Heads)
        self.offsets = NULL
        if table.fixed_length is None:
            view = self.hold = table.offsets
            self.offsets = &view[0]
        else:
            self.fixed = table.fixed_length

    cdef int64_t before(self, int64_t i) noexcept nogil:
        """Where the key before key i begins; before the first, an empty one at 0."""
        return start_of(self.offsets, self.fixed, i - 1) if i else 0
