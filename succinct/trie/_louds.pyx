# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Navigation in a LOUDS trie: the compiled part of :class:`succinct.LoudsTrie`.

Arguments are arrays of the right type, checked by the caller; what a state or a link points to
is checked here, since neither a caller's states nor the contents of a file are trusted.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from succinct._walker cimport Core
from succinct.bits.bitvector cimport (
    BitVector, bits_get, bits_next_one, bits_query_t, bitvector_t, isa_level, kernels_in_use, mark_t,
    marks_fill, marks_refine, marks_shift, marks_size, marks_t, packed_get, packed_t, popcount64,
)
from succinct.bits.packed cimport PackedArray

import numpy as np

from succinct.bits.bitvector import isa

cdef extern from "succinct/trie/louds.h" nogil:
    ctypedef struct louds_t:
        bitvector_t topology, terminal, link, tail_end
        packed_t label_high, link_high, tail
        const uint16_t *slots
        uint64_t n_nodes
        int has_links
        marks_t zeros
    ctypedef int64_t (*find_t)(const louds_t *, const uint32_t *, uint64_t) noexcept nogil
    ctypedef uint64_t (*walk_t)(const louds_t *, uint64_t, const uint32_t *,
                                uint64_t) noexcept nogil
    ctypedef uint64_t (*children_t)(const louds_t *, uint64_t, uint64_t *) noexcept nogil
    ctypedef int64_t (*number_t)(const louds_t *, uint64_t) noexcept nogil
    ctypedef void (*advance_t)(const louds_t *, const uint64_t *, const uint32_t *, uint64_t *,
                               size_t) noexcept nogil
    ctypedef void (*lookup_t)(const louds_t *, const uint32_t *, const int64_t *, int64_t *,
                              size_t) noexcept nogil
    ctypedef struct louds_kernels_t:
        find_t find
        walk_t walk
        number_t number
        children_t children
        advance_t advance
        lookup_t lookup
    const uint64_t NODE_MASK, ONE_PLACE, DEAD, NOWHERE
    const int PLACE_SHIFT
    const louds_kernels_t *louds_kernels_for(int) noexcept
    int louds_is_link(const louds_t *, uint64_t) noexcept
    uint64_t louds_link(const louds_t *, uint64_t) noexcept
    uint64_t louds_label(const louds_t *, uint64_t) noexcept
    uint64_t louds_after(const louds_t *, uint64_t, uint64_t) noexcept
    uint64_t louds_place(const louds_t *, uint64_t) noexcept
    int louds_is_state(const louds_t *, uint64_t) noexcept
    void louds_list(const louds_t *, uint64_t, uint64_t, uint32_t *, uint64_t *) noexcept
    int louds_is_key(const louds_t *, uint64_t) noexcept

def is_tree(BitVector topology):
    """Whether degrees in level order make a tree: "10", and a parent before each of its children.

    There must be one zero more than ones. A vector that passes leads navigation neither in a
    circle nor to a node that does not exist. O(bits / 64) where many nodes wait for their parent's
    turn, as in any bushy tree, O(bits) at worst.
    """
    cdef const bitvector_t *v = &topology.v
    cdef uint64_t i = 0
    cdef int64_t excess = 0  # ones minus zeros so far: negative behind the last bit only
    if v.length < 3 or not bits_get(v, 0) or bits_get(v, 1):
        return False
    with nogil:
        while i < v.length and excess >= 0:
            if excess >= 64 and i & 63 == 0 and i + 64 <= v.length:
                excess += 2 * <int64_t>popcount64(v.words[i >> 6]) - 64
                i += 64
            else:
                excess += 1 if bits_get(v, i) else -1
                i += 1
    return i == v.length and excess == -1


cdef class LoudsCore(Core):
    """Bit-vectors and labels of a LOUDS trie, and the steps through them."""
    cdef readonly BitVector topology, terminal, link, tail_end
    cdef readonly PackedArray label_high, link_high, tail
    cdef readonly object slots
    cdef object marks, finer
    cdef readonly int64_t max_length
    cdef louds_t t
    cdef const louds_kernels_t *kernels
    cdef bits_query_t select1

    def __init__(self, BitVector topology, BitVector terminal, slots, PackedArray label_high,
                 BitVector link, PackedArray link_high, PackedArray tail, BitVector tail_end,
                 int64_t max_length):
        cdef const uint16_t[::1] view = slots
        self.topology, self.terminal, self.link = topology, terminal, link
        self.label_high, self.link_high = label_high, link_high
        self.tail, self.tail_end, self.slots = tail, tail_end, slots
        slots.flags.writeable = False
        self.max_length = max_length
        self.t.topology, self.t.terminal, self.t.link = topology.v, terminal.v, link.v
        self.t.label_high, self.t.link_high = label_high.p, link_high.p
        self.t.tail, self.t.tail_end = tail.p, tail_end.v
        self.t.slots = &view[0]
        self.t.n_nodes = len(terminal)
        self.t.has_links = len(link) > 0
        self._mark()
        self.kernels = louds_kernels_for(isa_level(isa().encode()))
        self.select1 = kernels_in_use().select1

    cdef int _mark(self) except -1:
        """Make the marks of the zeros of the topology, which are the ends of families (marks.h)."""
        cdef bitvector_t *v = &self.t.topology
        cdef marks_t *zeros = &self.t.zeros
        cdef uint64_t[::1] words
        cdef uint64_t count = self.t.n_nodes + 1, n, more = 0
        cdef mark_t *mark
        zeros.shift = marks_shift(v.length, count)
        n = marks_size(v.length, count, zeros.shift)
        if n:
            self.marks = words = np.empty(n, np.uint64)
            zeros.mark = mark = <mark_t *>&words[0]
            with nogil:
                marks_fill(v, 0, v.length, 1, zeros.shift, mark)
                more = marks_refine(v, zeros, count, 1, mark, NULL)
        if more:
            self.finer = words = np.empty(more, np.uint64)
            zeros.finer = <mark_t *>&words[0]
            with nogil:
                marks_refine(v, zeros, count, 1, mark, <mark_t *>&words[0])
        return 0

    @property
    def marks_nbytes(self):
        """Bytes of the marks."""
        return sum(marks.nbytes for marks in (self.marks, self.finer) if marks is not None)

    cdef bint is_state(self, uint64_t state) noexcept nogil:
        return louds_is_state(&self.t, state)

    cdef uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil:
        cdef uint32_t one = <uint32_t>token
        return self.kernels.walk(&self.t, state, &one, 1)

    cdef uint64_t walk(self, uint64_t state, const uint32_t *tokens, uint64_t n) noexcept nogil:
        return self.kernels.walk(&self.t, state, tokens, n)

    cdef int64_t find(self, const uint32_t *tokens, uint64_t n) noexcept nogil:
        return self.kernels.find(&self.t, tokens, n)

    cdef bint ends_key(self, uint64_t state) noexcept nogil:
        return louds_is_key(&self.t, state)

    cdef int64_t key_number(self, uint64_t state) noexcept nogil:
        return self.kernels.number(&self.t, state)

    cdef int64_t degree(self, uint64_t state) noexcept nogil:
        cdef uint64_t first
        if state == DEAD:
            return 0
        if state > NODE_MASK:
            return 1
        return self.kernels.children(&self.t, state, &first) - first

    cdef void list_children(self, uint64_t state, uint32_t *tokens,
                            uint64_t *children) noexcept nogil:
        cdef uint64_t v, first, end
        if state == DEAD:
            return
        if state > NODE_MASK:
            v = louds_place(&self.t, state)
            tokens[0] = 0
            children[0] = DEAD
            if v != NOWHERE:  # else a link of a damaged file
                tokens[0] = <uint32_t>packed_get(&self.t.tail, v)
                children[0] = louds_after(&self.t, state, v)
            return
        end = self.kernels.children(&self.t, state, &first)
        louds_list(&self.t, first, end, tokens, children)

    cdef int64_t key_length(self, int64_t number) noexcept nogil:
        return self.climb(self.select1(&self.t.terminal, number), NULL)

    cdef void read_key(self, int64_t number, uint32_t *end) noexcept nogil:
        self.climb(self.select1(&self.t.terminal, number), end)

    # ---- arrays ------------------------------------------------------------------------------

    def advance(self, const uint64_t[::1] states, const uint32_t[::1] tokens, uint64_t[::1] out):
        """The state behind each state and token."""
        if states.shape[0]:
            with nogil:
                self.kernels.advance(&self.t, &states[0], &tokens[0], &out[0], states.shape[0])

    def lookup(self, const uint32_t[::1] tokens, const int64_t[::1] offsets, int64_t[::1] out):
        """The number of each sequence, or -1."""
        cdef const uint32_t *first = &tokens[0] if tokens.shape[0] else NULL
        if out.shape[0]:
            with nogil:
                self.kernels.lookup(&self.t, first, &offsets[0], &out[0], out.shape[0])

    def allowed_mask(self, const uint64_t[::1] states, uint32_t[:, ::1] mask, int64_t vocab_size):
        """Set bit t % 32 of word t // 32 of row i for every continuation t of state i."""
        cdef Py_ssize_t i
        cdef uint64_t v, k, end, token
        with nogil:
            for i in range(states.shape[0]):
                if states[i] == DEAD:
                    continue
                if states[i] > NODE_MASK:
                    token = packed_get(&self.t.tail, louds_place(&self.t, states[i]))
                    if token < <uint64_t>vocab_size:
                        mask[i, token >> 5] |= <uint32_t>1 << (token & 31)
                    continue
                end = self.kernels.children(&self.t, states[i], &v)
                for k in range(v, end):
                    token = louds_label(&self.t, k)
                    if token < <uint64_t>vocab_size:
                        mask[i, token >> 5] |= <uint32_t>1 << (token & 31)

    cdef int64_t climb(self, uint64_t v, uint32_t *end) noexcept nogil:
        """The length of the prefix of node v, whose tokens go before `end` unless it is NULL;
        -1 if the way up does not end at the root (in a damaged file)."""
        cdef int64_t length = 0
        cdef uint64_t at, last, up, j
        while v:
            at = last = 0
            if louds_is_link(&self.t, v):
                at = louds_link(&self.t, v)
                last = bits_next_one(&self.t.tail_end, at) if at != NOWHERE else at
                if last >= self.t.tail.length:
                    return -1
            length += 1 + last - at
            up = self.select1(&self.t.topology, v)
            if length > self.max_length or up < v + 1:
                return -1
            if end != NULL and louds_is_link(&self.t, v):
                for j in range(at, last + 1):
                    end[<int64_t>(j - at) - length] = <uint32_t>packed_get(&self.t.tail, j)
            elif end != NULL:
                end[-length] = <uint32_t>louds_label(&self.t, v)
            v = up - v - 1
        return length

    def key_lengths(self, const int64_t[::1] numbers, int64_t[::1] out):
        """The length of each key; returns the place of one that is damaged, or -1."""
        cdef Py_ssize_t i, bad = -1
        with nogil:
            for i in range(numbers.shape[0]):
                out[i] = self.climb(self.select1(&self.t.terminal, numbers[i]), NULL)
                if out[i] < 0:
                    bad = i
                    break
        return bad

    def key_tokens(self, const int64_t[::1] numbers, const int64_t[::1] ends, uint32_t[::1] out):
        """Write the tokens of key i before ends[i]; the lengths are those of `key_lengths`."""
        cdef Py_ssize_t i
        cdef uint32_t *base = &out[0]
        with nogil:
            for i in range(numbers.shape[0]):
                self.climb(self.select1(&self.t.terminal, numbers[i]), base + ends[i])

    # ---- the structure itself ----------------------------------------------------------------

    def fault(self, int64_t[::1] prefixes, const uint32_t[::1] low, const uint32_t[::1] high):
        """What is wrong with the structure, or None. O(nodes + tokens in chains).

        Every node of the tree (see `is_tree`) is visited in level order: siblings must ascend,
        leaves must be keys, chains must end inside the tail, tokens lie in the range of their step
        and reach its ends; the prefixes of every length are counted into `prefixes`, which comes
        zeroed.
        """
        cdef uint64_t v, parent, at, last, j, here, before = 0
        cdef int64_t d
        cdef int64_t steps = low.shape[0]
        cdef uint32_t[::1] depth
        depth_array = np.zeros(self.t.n_nodes, np.uint32)
        depth = depth_array
        cdef uint32_t[::1] least = np.full(steps, 2**32 - 1, np.uint32)
        cdef uint32_t[::1] most = np.zeros(steps, np.uint32)
        prefixes[0] = 1
        for v in range(1, self.t.n_nodes):
            parent = self.select1(&self.t.topology, v) - v - 1
            at = last = 0
            if louds_is_link(&self.t, v):
                at = louds_link(&self.t, v)
                if at == NOWHERE:
                    return f"the link of node {v} points outside the tail"
                last = bits_next_one(&self.t.tail_end, at)
                if last == at or last >= self.t.tail.length:
                    return f"the chain of node {v} must have at least two tokens and an end"
                if last - at >= <uint64_t>1 << (64 - PLACE_SHIFT):
                    return f"the chain of node {v} has {last - at + 1} tokens, more than 2**24"
            here = louds_label(&self.t, v)
            if bits_get(&self.t.topology, v + parent) and here <= before:
                return f"the labels of nodes {v - 1} and {v} do not ascend"
            before = here
            for j in range(at, last + 1):
                d = depth[parent] + <int64_t>(j - at)
                here = packed_get(&self.t.tail, j) if last else here
                if d >= steps:
                    return f"node {v} is deeper than {steps} tokens"
                if not low[d] <= here < high[d]:
                    return f"token {here} of node {v} is outside the range of step {d}"
                least[d], most[d] = min(least[d], <uint32_t>here), max(most[d], <uint32_t>here)
                prefixes[d + 1] += 1
            depth[v] = depth[parent] + <uint32_t>(1 + last - at)
            if self.degree(v) == 0 and not bits_get(&self.t.terminal, v):
                return f"leaf {v} is not a key"
        for d in range(steps):
            if prefixes[d + 1] and (least[d] != low[d] or most[d] + 1 != high[d]):
                return f"the tokens of step {d} do not reach the ends of their range"
        return None
