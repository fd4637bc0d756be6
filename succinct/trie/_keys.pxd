"""Sorted keys as the passes over them see them: tokens one after another, and where keys begin."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "succinct/keys/compare.h" nogil:
    uint64_t bytes_common(const void *, const void *, uint64_t) noexcept


ctypedef fused token_t:
    const uint8_t
    const uint16_t
    const uint32_t
    const uint64_t


cdef inline int64_t start_of(const int64_t *offsets, int64_t fixed, int64_t i) noexcept nogil:
    return i * fixed if offsets == NULL else offsets[i]


cdef inline int64_t common(token_t *tokens, int64_t a, int64_t b, int64_t end) noexcept nogil:
    """Length of the common prefix of the sequence [a, b) and the one [b, end) behind it."""
    cdef int64_t n = min(b - a, end - b)
    return bytes_common(tokens + a, tokens + b, n * sizeof(token_t)) // sizeof(token_t)


cdef class Keys:
    cdef const int64_t *offsets
    cdef int64_t fixed, n
    cdef bint cut
    cdef object hold

    cdef int64_t before(self, int64_t i) noexcept nogil


cdef inline int64_t end_of(token_t *tokens, Keys keys, int64_t i, int64_t b, int64_t end,
                           int64_t *shared) noexcept nogil:
    """Where key i ends, which is [b, end): there, or one token behind its last branching.

    `shared` is how many tokens it shares with the key before it, and then with the one behind it.
    """
    cdef int64_t before = shared[0]
    shared[0] = 0
    if i + 1 < keys.n:
        shared[0] = common(tokens, b, end, start_of(keys.offsets, keys.fixed, i + 2))
    return min(b + max(before, shared[0]) + 1, end) if keys.cut else end
