# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Navigation in a step-sliced index: the compiled part of :class:`succinct.StepMap`.

Arguments are arrays of the right type, checked by the caller; states are checked by `bad_state`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from succinct._walker cimport Core
from succinct.bits.bitvector cimport (
    BitVector, bits_query_t, bits_rank1, bits_select1, bitvector_t, isa_level,
    mark_t, marks_t,
)

import numpy as np

from succinct.bits.bitvector import isa

cdef extern from "succinct/maps/steps.h" nogil:
    ctypedef struct step_t:
        uint64_t entries, start, rows, low, range, kind, buckets
    ctypedef struct steps_t:
        const step_t *step
        uint64_t n_steps, n_states
        bitvector_t bits
        const marks_t *marks
        const uint64_t *values
        uint64_t vocab_at, vocab_width, vocab_size
        const step_t *suffixes
        const step_t *links
        uint64_t shift
    ctypedef struct steps_kernels_t:
        int64_t (*find)(const steps_t *, const uint32_t *, uint64_t) noexcept nogil
        uint64_t (*walk)(const steps_t *, uint64_t, const uint32_t *, uint64_t) noexcept nogil
        int64_t (*number)(const steps_t *, uint64_t, uint64_t) noexcept nogil
        void (*advance)(const steps_t *, const uint64_t *, const uint32_t *, uint64_t *,
                        size_t) noexcept nogil
        void (*lookup)(const steps_t *, const uint32_t *, const int64_t *, int64_t *,
                       size_t) noexcept nogil
        void (*lengths)(const steps_t *, const int64_t *, int64_t *, size_t) noexcept nogil
        void (*keys)(const steps_t *, const int64_t *, const int64_t *, uint32_t *,
                     size_t) noexcept nogil
        void (*degrees)(const steps_t *, const uint64_t *, int64_t *, size_t) noexcept nogil
        void (*children)(const steps_t *, const uint64_t *, const int64_t *, uint32_t *,
                         uint64_t *, size_t) noexcept nogil
        void (*mask)(const steps_t *, const uint64_t *, uint32_t *, size_t, uint64_t,
                     size_t) noexcept nogil
    const uint64_t DEAD, NOWHERE
    const uint64_t HUFFMAN
    ctypedef struct reader_t:
        uint64_t at
    const steps_kernels_t *steps_kernels_for(int) noexcept
    uint64_t steps_fill_marks(const steps_t *, const step_t *, marks_t *, mark_t *) noexcept
    uint64_t steps_depth(const steps_t *, uint64_t) noexcept
    uint64_t steps_entry(const steps_t *, uint64_t, uint64_t) noexcept
    int steps_is_key(const steps_t *, const step_t *, uint64_t, bits_query_t) noexcept

cdef extern from "succinct/maps/tails.h" nogil:
    uint64_t tails_node(const steps_t *, uint64_t) noexcept
    uint64_t tails_key(const steps_t *, uint64_t) noexcept
    uint64_t tails_stored_link(const steps_t *, uint64_t, bits_query_t) noexcept
    uint64_t tails_stored_parent(const steps_t *, uint64_t, bits_query_t) noexcept
    uint64_t tails_token(const steps_t *, uint64_t, bits_query_t) noexcept
    uint64_t tails_parent(const steps_t *, uint64_t, bits_query_t) noexcept
    int tails_is_state(const steps_t *, uint64_t, bits_query_t, bits_query_t) noexcept
    int64_t tails_number(const steps_t *, uint64_t, uint64_t, bits_query_t) noexcept

# What only the check of the structure asks, without an instruction set of its own.
cdef extern from * nogil:
    """
    #define PLAIN bits_rank1, bits_select1, bits_select0, bits_drop, values_equal
    #define plain_row(t, depth, e) steps_row(t, depth, e, PLAIN)
    #define plain_entries(t, s, p, first) steps_entries(t, s, p, first, PLAIN)
    #define plain_token(t, s, p, e, at) steps_token(t, s, p, e, at, PLAIN)
    #define plain_parent(t, s, e, token) steps_parent(t, s, e, token, PLAIN)
    #define plain_row_of(t, s, e) steps_row_of(t, s, e, PLAIN)
    #define plain_huffman_row(t, s, p, tokens) huffman_row(t, s, p, tokens, PLAIN)
    #define plain_key(t, number, e) steps_key(t, number, e, PLAIN)
    """
    uint64_t plain_row(const steps_t *, uint64_t, uint64_t) noexcept
    uint64_t plain_entries(const steps_t *, const step_t *, uint64_t, uint64_t *) noexcept
    uint64_t plain_token(const steps_t *, const step_t *, uint64_t, uint64_t, reader_t *) noexcept
    uint64_t plain_parent(const steps_t *, const step_t *, uint64_t, uint64_t *) noexcept
    uint64_t plain_row_of(const steps_t *, const step_t *, uint64_t) noexcept
    void plain_huffman_row(const steps_t *, const step_t *, uint64_t, uint32_t *) noexcept
    uint64_t plain_key(const steps_t *, uint64_t, uint64_t *) noexcept


def marks_nbytes(const int64_t[:, ::1] table):
    """Bytes of the marks of all steps."""
    cdef steps_t t
    cdef marks_t marks
    cdef Py_ssize_t i
    cdef uint64_t n = 0
    for i in range(table.shape[0]):
        n += steps_fill_marks(&t, <const step_t *>&table[i, 0], &marks, NULL)
    return n * sizeof(mark_t)


cdef class StepsCore(Core):
    """The arrays of a step-sliced index, and the steps through them."""
    cdef readonly BitVector bits
    cdef readonly object values, table, tails
    cdef object marks, places
    cdef readonly uint64_t max_length, marks_nbytes
    cdef steps_t t
    cdef const steps_kernels_t *kernels

    def __init__(self, BitVector bits, values, table, tails, vocab_at, vocab_width, vocab_size,
                 max_length):
        cdef const uint64_t[::1] words = values
        cdef const int64_t[:, ::1] rows = table
        self.bits, self.values, self.table, self.tails = bits, values, table, tails
        self.max_length = max_length
        values.flags.writeable = table.flags.writeable = tails.flags.writeable = False
        self.t.step = <const step_t *>&rows[0, 0]
        self.t.n_steps = rows.shape[0]
        self.t.n_states = self.t.step[rows.shape[0] - 1].start + \
            self.t.step[rows.shape[0] - 1].entries
        self.t.bits = bits.v
        self._mark()
        self.t.values = &words[0]
        self.t.vocab_at, self.t.vocab_width, self.t.vocab_size = vocab_at, vocab_width, vocab_size
        self.t.shift = 63  # with no tail, no state has a place in one
        if len(tails):
            rows = tails
            self.t.suffixes, self.t.links = <const step_t *>&rows[0, 0], <const step_t *>&rows[1, 0]
            self.t.shift = int(self.t.n_states).bit_length()
        self.kernels = steps_kernels_for(isa_level(isa().encode()))

    @property
    def shift(self):
        """Bits of a state below its place in a tail."""
        return self.t.shift

    cdef int _mark(self) except -1:
        """Make the marks of all steps (marks.h)."""
        cdef uint64_t[::1] words
        cdef uint8_t[::1] places
        cdef marks_t *marks
        cdef mark_t *mark
        cdef uint64_t i
        self.marks_nbytes = marks_nbytes(self.table)
        self.marks = np.empty(self.marks_nbytes // sizeof(uint64_t) + 1, np.uint64)
        self.places = np.empty(self.t.n_steps * sizeof(marks_t), np.uint8)
        words, places = self.marks, self.places
        mark, marks = <mark_t *>&words[0], <marks_t *>&places[0]
        with nogil:
            for i in range(self.t.n_steps):
                mark += steps_fill_marks(&self.t, self.t.step + i, marks + i, mark)
        self.t.marks = marks
        return 0

    cdef bint is_state(self, uint64_t state) noexcept nogil:
        return state < self.t.n_states or state == DEAD or \
            tails_is_state(&self.t, state, bits_rank1, bits_select1)

    cdef uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil:
        cdef uint32_t one = <uint32_t>token
        return self.kernels.walk(&self.t, state, &one, 1)

    cdef uint64_t walk(self, uint64_t state, const uint32_t *tokens, uint64_t n) noexcept nogil:
        return self.kernels.walk(&self.t, state, tokens, n)

    cdef int64_t degree(self, uint64_t state) noexcept nogil:
        cdef int64_t n
        self.kernels.degrees(&self.t, &state, &n, 1)
        return n

    cdef void list_children(self, uint64_t state, uint32_t *tokens,
                            uint64_t *children) noexcept nogil:
        cdef int64_t begin = 0
        self.kernels.children(&self.t, &state, &begin, tokens, children, 1)

    cdef int64_t key_length(self, int64_t number) noexcept nogil:
        cdef int64_t length
        self.kernels.lengths(&self.t, &number, &length, 1)
        return length if <uint64_t>length <= self.max_length else -1

    cdef void read_key(self, int64_t number, uint32_t *end) noexcept nogil:
        cdef int64_t at = 0
        self.kernels.keys(&self.t, &number, &at, end, 1)

    cdef int64_t find(self, const uint32_t *tokens, uint64_t n) noexcept nogil:
        return self.kernels.find(&self.t, tokens, n)

    cdef bint ends_key(self, uint64_t state) noexcept nogil:
        cdef uint64_t depth, e
        if state == DEAD or state == 0:
            return False
        if state >> self.t.shift:
            return tails_node(&self.t, state) == 0
        depth = steps_depth(&self.t, state)
        e = steps_entry(&self.t, depth, state)
        if self.t.links != NULL:
            return tails_number(&self.t, depth, e, bits_rank1) >= 0
        return steps_is_key(&self.t, self.t.step + depth - 1, e, bits_rank1)

    cdef int64_t key_number(self, uint64_t state) noexcept nogil:
        cdef uint64_t depth
        if state == DEAD:
            return -1
        if state >> self.t.shift:
            return -1 if tails_node(&self.t, state) else tails_key(&self.t, state)
        depth = steps_depth(&self.t, state)
        return self.kernels.number(&self.t, depth, steps_entry(&self.t, depth, state))

    # ---- arrays ------------------------------------------------------------------------------

    def advance(self, const uint64_t[::1] states, const uint32_t[::1] tokens, uint64_t[::1] out):
        """The state behind each state and token."""
        if states.shape[0]:
            with nogil:
                self.kernels.advance(&self.t, &states[0], &tokens[0], &out[0], states.shape[0])

    def degrees(self, const uint64_t[::1] states, int64_t[::1] out):
        """The number of continuations of each state."""
        if states.shape[0]:
            with nogil:
                self.kernels.degrees(&self.t, &states[0], &out[0], states.shape[0])

    def children(self, const uint64_t[::1] states, const int64_t[::1] offsets,
                 uint32_t[::1] tokens, uint64_t[::1] children):
        """Write the continuations of state i to [offsets[i], offsets[i + 1])."""
        if tokens.shape[0]:
            with nogil:
                self.kernels.children(&self.t, &states[0], &offsets[0], &tokens[0], &children[0],
                                      states.shape[0])

    def lookup(self, const uint32_t[::1] tokens, const int64_t[::1] offsets, int64_t[::1] out):
        """The number of each sequence, or -1."""
        cdef const uint32_t *first = &tokens[0] if tokens.shape[0] else NULL
        if out.shape[0]:
            with nogil:
                self.kernels.lookup(&self.t, first, &offsets[0], &out[0], out.shape[0])

    def allowed_mask(self, const uint64_t[::1] states, uint32_t[:, ::1] mask, int64_t vocab_size):
        """Set bit t % 32 of word t // 32 of row i for every continuation t of state i."""
        if states.shape[0]:
            with nogil:
                self.kernels.mask(&self.t, &states[0], &mask[0, 0], mask.shape[1], vocab_size,
                                  states.shape[0])

    def key_lengths(self, const int64_t[::1] numbers, int64_t[::1] out):
        """The length of each key; the place of the first that a damaged file makes longer than any
        key, or -1."""
        cdef Py_ssize_t i, bad = -1
        if numbers.shape[0]:
            with nogil:
                self.kernels.lengths(&self.t, &numbers[0], &out[0], numbers.shape[0])
                for i in range(out.shape[0]):
                    if <uint64_t>out[i] > self.max_length:
                        bad = i
                        break
        return bad

    def key_tokens(self, const int64_t[::1] numbers, const int64_t[::1] ends, uint32_t[::1] out):
        """Write the tokens of key i before ends[i]; the lengths are those of `key_lengths`."""
        if numbers.shape[0]:
            with nogil:
                self.kernels.keys(&self.t, &numbers[0], &ends[0], &out[0], numbers.shape[0])

    # ---- the structure itself ----------------------------------------------------------------

    def fault(self, int64_t[::1] prefixes, const uint32_t[::1] low, const uint32_t[::1] high):
        """What is wrong with the structure, or None. O(n log n).

        Rows must follow one another without gaps and none be empty, tokens ascend in them and
        span the range of their step, and every entry must be found from its parent and know it.
        The prefixes of every length are counted into `prefixes`, which comes zeroed.
        """
        cdef uint64_t depth, p, e, token, before, next_entry, below, above, first, end
        cdef uint64_t above_it
        cdef const step_t *s
        cdef reader_t reader
        cdef uint32_t[::1] least = np.full(low.shape[0], 2**32 - 1, np.uint32)
        cdef uint32_t[::1] most = np.zeros(low.shape[0], np.uint32)
        cdef uint32_t[::1] tokens
        cdef bint whole  # rows that are read at once: token by token would take too long
        prefixes[0] = 1
        for depth in range(self.t.n_steps):
            s = self.t.step + depth
            whole = s.kind == HUFFMAN
            if whole:
                tokens = np.empty(s.buckets, np.uint32)
            next_entry, below, above = 0, NOWHERE, 0
            for p in range(s.rows):
                end = plain_entries(&self.t, s, p, &first)
                if first != next_entry or first >= end:
                    return f"row {p} of step {depth} does not begin where the one before ends"
                next_entry = end
                reader.at, before = NOWHERE, 0
                if whole:
                    if end - first > s.buckets:
                        return f"row {p} of step {depth} has {end - first} of {s.buckets} tokens"
                    plain_huffman_row(&self.t, s, p, &tokens[0])
                for e in range(first, end):
                    if whole:
                        token = tokens[e - first]
                    else:
                        token = <uint32_t>plain_token(&self.t, s, p, e, &reader)
                    if e > first and token <= before:
                        return f"the tokens of row {p} of step {depth} do not ascend"
                    before = token
                    below, above = min(below, token), max(above, token)
                    if whole:
                        above_it = plain_row_of(&self.t, s, e)
                    else:
                        above_it = plain_parent(&self.t, s, e, &token)
                    if above_it != p or token != before:
                        return f"entry {e} of step {depth} does not lead back to row {p}"
                prefixes[depth + 1] += end - first
            if next_entry != s.entries:
                return f"the rows of step {depth} hold {next_entry} of {s.entries} entries"
            if below != s.low or above != s.low + s.range - 1:
                return f"the tokens of step {depth} do not span {s.low}..{s.low + s.range - 1}"
            least[depth], most[depth] = <uint32_t>below, <uint32_t>above
        if self.t.links != NULL:
            wrong = self.tail_fault(prefixes, least, most)
            if wrong is not None:
                return wrong
        for depth in range(<uint64_t>low.shape[0]):
            if least[depth] != low[depth] or most[depth] + 1 != high[depth]:
                return f"the tokens of step {depth} do not span {low[depth]}..{high[depth] - 1}"
        return None

    cdef object tail_fault(self, int64_t[::1] prefixes, uint32_t[::1] least, uint32_t[::1] most):
        """What is wrong with the tails. Their prefixes and tokens are counted in."""
        cdef uint64_t key, e, node, depth, token
        for node in range(1, self.t.suffixes.entries + 1):
            if tails_stored_parent(&self.t, node, bits_select1) >= node:
                return f"node {node} of the tails comes before its parent"
        for key in range(self.t.links.rows):
            node = tails_stored_link(&self.t, key, bits_rank1)
            if node == 0:
                continue
            if node > self.t.suffixes.entries:
                return f"the tail of key {key} begins at a node that does not exist"
            depth = plain_key(&self.t, key, &e)
            if depth < self.t.n_steps and plain_row(&self.t, depth, e) != NOWHERE:
                return f"key {key} goes on in a tail and in the steps"
            while node:
                if depth >= <uint64_t>least.shape[0]:
                    return f"key {key} is longer than {depth} tokens"
                token = tails_token(&self.t, node, bits_rank1)
                if token > 2**32 - 2:
                    return f"the label of node {node} of the tails is no token"
                least[depth] = min(least[depth], <uint32_t>token)
                most[depth] = max(most[depth], <uint32_t>token)
                depth += 1
                prefixes[depth] += 1
                node = tails_parent(&self.t, node, bits_select1)
        return None
