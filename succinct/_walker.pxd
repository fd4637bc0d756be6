from libc.stdint cimport int64_t, uint32_t, uint64_t


# Navigation through the arrays of one index: what a kind of index must know of a single state.
# Methods take states of the index or DEAD, and nothing below checks that again. The base class is
# an index without keys.
cdef class Core:
    # Whether a number is a state of the index, or DEAD.
    cdef bint is_state(self, uint64_t state) noexcept nogil
    # The state behind tokens, or DEAD.
    cdef uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil
    cdef uint64_t walk(self, uint64_t state, const uint32_t *tokens, uint64_t n) noexcept nogil
    # Whether the prefix of a state is a key, and the number of that key or -1.
    cdef bint ends_key(self, uint64_t state) noexcept nogil
    cdef int64_t key_number(self, uint64_t state) noexcept nogil
    # The number of continuations of a state; and their tokens, which ascend, and states, written.
    cdef int64_t degree(self, uint64_t state) noexcept nogil
    cdef void list_children(self, uint64_t state, uint32_t *tokens, uint64_t *children) noexcept nogil
    # The number of a sequence from the root, or -1.
    cdef int64_t find(self, const uint32_t *tokens, uint64_t n) noexcept nogil
    # The length of a key, -1 if it is damaged; write its tokens before `end`.
    cdef int64_t key_length(self, int64_t number) noexcept nogil
    cdef void read_key(self, int64_t number, uint32_t *end) noexcept nogil


# The keys that begin with a prefix, one after the other: depth first, in compiled code.
cdef class Completions:
    cdef Core core
    cdef uint64_t state
    cdef int64_t base, depth, max_length, size
    cdef bint entered
    cdef uint32_t[::1] path, tokens
    cdef uint64_t[::1] states
    cdef int64_t[:, ::1] places
    cdef int push(self, int64_t n) except -1


cdef class Walker:
    cdef readonly Core _core
    cdef uint64_t known  # the state that was given last, which needs no check
    cdef int64_t number_of_keys  # -1 before it is first asked for
    cdef uint64_t _walk(self, object sequence, str what) except? 0xdead
    cdef int64_t _find(self, object sequence) except? -2
    cdef bint _is_state(self, uint64_t state)
