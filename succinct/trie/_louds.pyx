# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Navigation in a LOUDS trie: the compiled part of :class:`succinct.LoudsTrie`.

Arguments are arrays of the right type, checked by the caller; what a state or a link points to
is checked here, since neither a caller's states nor the contents of a file are trusted.
"""

from cpython.number cimport PyNumber_AsSsize_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from succinct.bits.bitvector cimport (
    BitVector, bits_get, bits_next_one, bits_rank1, bits_select0, bits_select1, bitvector_t,
    packed_get, packed_t,
)
from succinct.bits.packed cimport PackedArray

import numpy as np

cdef enum:
    PLACE_SHIFT = 40  # a state is node | place in its chain << PLACE_SHIFT

cdef uint64_t NODE_MASK = (<uint64_t>1 << PLACE_SHIFT) - 1
cdef uint64_t ONE_PLACE = <uint64_t>1 << PLACE_SHIFT
cdef uint64_t DEAD = <uint64_t>-1
cdef uint64_t NOWHERE = <uint64_t>-1  # the place of a link that points outside the tail
cdef uint64_t NO_TOKEN = <uint64_t>-1


cdef str _shown(items):
    """A sequence for an error message, cut if it is long."""
    return repr(items) if len(items) <= 20 else f"{list(items[:20])} and {len(items) - 20} more"


cdef class LoudsCore:
    """Bit-vectors and labels of a LOUDS trie, and the steps through them."""
    cdef readonly BitVector topology, terminal, link, tail_end
    cdef readonly PackedArray label_high, link_high, tail
    cdef readonly object slots
    cdef readonly int64_t max_length
    cdef bitvector_t topo, term, linked, ends
    cdef packed_t highs, link_highs, tokens
    cdef const uint16_t *slot
    cdef uint64_t n_nodes
    cdef bint has_links

    def __init__(self, BitVector topology, BitVector terminal, slots, PackedArray label_high,
                 BitVector link, PackedArray link_high, PackedArray tail, BitVector tail_end,
                 int64_t max_length):
        cdef const uint16_t[::1] view = slots
        self.topology, self.terminal, self.link = topology, terminal, link
        self.label_high, self.link_high = label_high, link_high
        self.tail, self.tail_end, self.slots = tail, tail_end, slots
        slots.flags.writeable = False
        self.topo, self.term, self.linked, self.ends = topology.v, terminal.v, link.v, tail_end.v
        self.highs, self.link_highs, self.tokens = label_high.p, link_high.p, tail.p
        self.slot = &view[0]
        self.n_nodes = len(terminal)
        self.has_links = len(link) > 0
        self.max_length = max_length

    # ---- one node, one state -----------------------------------------------------------------

    cdef inline bint is_link(self, uint64_t v) noexcept nogil:
        return self.has_links and bits_get(&self.linked, v)

    cdef inline uint64_t link_of(self, uint64_t v) noexcept nogil:
        """Where the chain of link node v begins in the tail, or NOWHERE."""
        cdef uint64_t at = self.slot[v]
        if self.link_highs.width:
            at |= packed_get(&self.link_highs, bits_rank1(&self.linked, v)) << 16
        return at if at < self.tokens.length else NOWHERE

    cdef inline uint64_t label(self, uint64_t v) noexcept nogil:
        """The first token on the edge to node v."""
        cdef uint64_t at
        if self.is_link(v):
            at = self.link_of(v)
            return packed_get(&self.tokens, at) if at != NOWHERE else NO_TOKEN
        at = v
        if self.highs.width == 0:
            return self.slot[v]
        if self.has_links:
            at -= bits_rank1(&self.linked, v)
        return self.slot[v] | packed_get(&self.highs, at) << 16

    cdef inline uint64_t first_child(self, uint64_t v) noexcept nogil:
        return bits_select0(&self.topo, v) - v

    cdef inline uint64_t entered(self, uint64_t v) noexcept nogil:
        """The state behind the first token on the edge to node v."""
        cdef uint64_t at
        if self.is_link(v):
            at = self.link_of(v)
            if at != NOWHERE and not bits_get(&self.ends, at):
                return v | ONE_PLACE
        return v

    cdef inline uint64_t place_in_tail(self, uint64_t state) noexcept nogil:
        """Where the next token of a state inside a chain lies, or NOWHERE if it is no state."""
        cdef uint64_t v = state & NODE_MASK, at, next_at
        if v >= self.n_nodes or not self.is_link(v):
            return NOWHERE
        at = self.link_of(v)
        if at == NOWHERE:
            return NOWHERE
        next_at = at + (state >> PLACE_SHIFT)
        return next_at if next_at <= bits_next_one(&self.ends, at) and \
            next_at < self.tokens.length else NOWHERE

    cdef inline bint is_state(self, uint64_t state) noexcept nogil:
        if state == DEAD:
            return True
        if state > NODE_MASK:
            return self.place_in_tail(state) != NOWHERE
        return state < self.n_nodes

    cdef inline uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil:
        cdef uint64_t v, at, begin, end, mid, here
        if state == DEAD:
            return DEAD
        if state > NODE_MASK:
            v = state & NODE_MASK
            at = self.link_of(v)
            at = at + (state >> PLACE_SHIFT) if at != NOWHERE else NOWHERE
            if at >= self.tokens.length or packed_get(&self.tokens, at) != token:
                return DEAD
            return v if bits_get(&self.ends, at) else state + ONE_PLACE
        begin = self.first_child(state)
        end = bits_select0(&self.topo, state + 1) - state - 1
        while begin < end:
            mid = (begin + end) >> 1
            here = self.label(mid)
            if here < token:
                begin = mid + 1
            elif here > token:
                end = mid
            else:
                return self.entered(mid)
        return DEAD

    cdef inline int64_t degree(self, uint64_t state) noexcept nogil:
        if state == DEAD:
            return 0
        if state > NODE_MASK:
            return 1
        return bits_select0(&self.topo, state + 1) - bits_select0(&self.topo, state) - 1

    cdef inline bint ends_key(self, uint64_t state) noexcept nogil:
        return state <= NODE_MASK and bits_get(&self.term, state)

    # ---- arrays ------------------------------------------------------------------------------

    def bad_state(self, const uint64_t[::1] states):
        """The place of the first number that is no state and not DEAD, or -1."""
        cdef Py_ssize_t i, bad = -1
        with nogil:
            for i in range(states.shape[0]):
                if not self.is_state(states[i]):
                    bad = i
                    break
        return bad

    def advance(self, const uint64_t[::1] states, const uint32_t[::1] tokens, uint64_t[::1] out):
        """The state behind each state and token."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.step(states[i], tokens[i])

    def walk_items(self, items):
        """The state of a prefix given as a list or tuple of integers."""
        cdef uint64_t state = 0
        cdef int64_t token
        for item in items:
            try:
                token = PyNumber_AsSsize_t(item, OverflowError)
            except OverflowError:
                token = -1
            if not 0 <= token < 0xffffffff:
                raise ValueError(f"token {item} in {_shown(items)} is out of range (0..2**32 - 2)")
            state = self.step(state, token)
        return state

    def walk(self, const uint32_t[::1] tokens):
        """The state of a prefix."""
        cdef uint64_t state = 0
        cdef Py_ssize_t i
        with nogil:
            for i in range(tokens.shape[0]):
                state = self.step(state, tokens[i])
                if state == DEAD:
                    break
        return state

    def degrees(self, const uint64_t[::1] states, int64_t[::1] out):
        """The number of continuations of each state."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.degree(states[i])

    def children(self, const uint64_t[::1] states, const int64_t[::1] offsets,
                 uint32_t[::1] tokens, uint64_t[::1] children):
        """Write the continuations of state i to [offsets[i], offsets[i + 1])."""
        cdef Py_ssize_t i
        cdef int64_t at
        cdef uint64_t v
        with nogil:
            for i in range(states.shape[0]):
                at = offsets[i]
                if states[i] == DEAD:
                    continue
                if states[i] > NODE_MASK:
                    v = self.place_in_tail(states[i])
                    tokens[at] = <uint32_t>packed_get(&self.tokens, v)
                    children[at] = states[i] & NODE_MASK if bits_get(&self.ends, v) \
                        else states[i] + ONE_PLACE
                    continue
                v = self.first_child(states[i])
                while at < offsets[i + 1]:
                    tokens[at] = <uint32_t>self.label(v)
                    children[at] = self.entered(v)
                    at += 1
                    v += 1

    def expand(self, uint64_t state):
        """Whether a state is that of a key, the tokens and the states of its continuations."""
        cdef uint64_t v, k, at
        cdef list tokens = [], states = []
        if state > NODE_MASK:
            at = self.place_in_tail(state)
            if at != NOWHERE:
                tokens.append(packed_get(&self.tokens, at))
                states.append(state & NODE_MASK if bits_get(&self.ends, at) else state + ONE_PLACE)
        else:
            v = self.first_child(state)
            for k in range(<uint64_t>self.degree(state)):
                tokens.append(self.label(v + k))
                states.append(self.entered(v + k))
        return self.ends_key(state), tokens, states

    def is_terminal(self, const uint64_t[::1] states, uint8_t[::1] out):
        """Whether each state is that of a key."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.ends_key(states[i])

    def key_numbers(self, const uint64_t[::1] states, int64_t[::1] out):
        """The number of the key that each state stands for, or -1."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = <int64_t>bits_rank1(&self.term, states[i]) if self.ends_key(states[i]) \
                    else -1

    def lookup(self, const uint32_t[::1] tokens, const int64_t[::1] offsets, int64_t[::1] out):
        """The number of each sequence, or -1."""
        cdef Py_ssize_t i
        cdef int64_t j
        cdef uint64_t state
        with nogil:
            for i in range(out.shape[0]):
                state = 0 if offsets[i] < offsets[i + 1] else DEAD
                for j in range(offsets[i], offsets[i + 1]):
                    state = self.step(state, tokens[j])
                    if state == DEAD:
                        break
                out[i] = <int64_t>bits_rank1(&self.term, state) if self.ends_key(state) else -1

    def allowed_mask(self, const uint64_t[::1] states, uint32_t[:, ::1] mask, int64_t vocab_size):
        """Set bit t % 32 of word t // 32 of row i for every continuation t of state i."""
        cdef Py_ssize_t i
        cdef uint64_t v, k, token
        with nogil:
            for i in range(states.shape[0]):
                if states[i] == DEAD:
                    continue
                if states[i] > NODE_MASK:
                    token = packed_get(&self.tokens, self.place_in_tail(states[i]))
                    if token < <uint64_t>vocab_size:
                        mask[i, token >> 5] |= <uint32_t>1 << (token & 31)
                    continue
                v = self.first_child(states[i])
                for k in range(<uint64_t>self.degree(states[i])):
                    token = self.label(v + k)
                    if token < <uint64_t>vocab_size:
                        mask[i, token >> 5] |= <uint32_t>1 << (token & 31)

    cdef int64_t climb(self, uint64_t v, uint32_t *end) noexcept nogil:
        """The length of the prefix of node v, whose tokens go before `end` unless it is NULL;
        -1 if the way up does not end at the root (in a damaged file)."""
        cdef int64_t length = 0
        cdef uint64_t at, last, up, j
        while v:
            at = last = 0
            if self.is_link(v):
                at = self.link_of(v)
                last = bits_next_one(&self.ends, at) if at != NOWHERE else at
                if last >= self.tokens.length:
                    return -1
            length += 1 + last - at
            up = bits_select1(&self.topo, v)
            if length > self.max_length or up < v + 1:
                return -1
            if end != NULL and self.is_link(v):
                for j in range(at, last + 1):
                    end[<int64_t>(j - at) - length] = <uint32_t>packed_get(&self.tokens, j)
            elif end != NULL:
                end[-length] = <uint32_t>self.label(v)
            v = up - v - 1
        return length

    def key_lengths(self, const int64_t[::1] numbers, int64_t[::1] out):
        """The length of each key; returns the place of one that is damaged, or -1."""
        cdef Py_ssize_t i, bad = -1
        with nogil:
            for i in range(numbers.shape[0]):
                out[i] = self.climb(bits_select1(&self.term, numbers[i]), NULL)
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
                self.climb(bits_select1(&self.term, numbers[i]), base + ends[i])

    # ---- the structure itself ----------------------------------------------------------------

    def fault(self, int64_t[::1] prefixes, const uint32_t[::1] low, const uint32_t[::1] high):
        """What is wrong with the structure, or None. O(nodes + tokens in chains).

        Every node is visited in level order and must have a parent before it, siblings must
        ascend, leaves must be keys, chains must end inside the tail, tokens lie in the range of
        their step; the prefixes of every length are counted into `prefixes`, which comes zeroed.
        """
        cdef uint64_t v, parent, at, last, j, here, before = 0
        cdef int64_t d
        cdef int64_t steps = low.shape[0]
        cdef uint32_t[::1] depth
        depth_array = np.zeros(self.n_nodes, np.uint32)
        depth = depth_array
        if not bits_get(&self.topo, 0) or bits_get(&self.topo, 1):
            return "the topology does not begin with a super-root"
        if bits_get(&self.term, 0):
            return "the root is a key"
        prefixes[0] = 1
        for v in range(1, self.n_nodes):
            at = bits_select1(&self.topo, v)
            if at < v + 1 or at - v - 1 >= v:
                return f"node {v} does not come behind its parent"
            parent = at - v - 1
            at = last = 0
            if self.is_link(v):
                at = self.link_of(v)
                if at == NOWHERE:
                    return f"the link of node {v} points outside the tail"
                last = bits_next_one(&self.ends, at)
                if last == at or last >= self.tokens.length:
                    return f"the chain of node {v} must have at least two tokens and an end"
            here = self.label(v)
            if bits_get(&self.topo, v + parent) and here <= before:
                return f"the labels of nodes {v - 1} and {v} do not ascend"
            before = here
            for j in range(at, last + 1):
                d = depth[parent] + <int64_t>(j - at)
                here = packed_get(&self.tokens, j) if last else here
                if d >= steps:
                    return f"node {v} is deeper than {steps} tokens"
                if not low[d] <= here < high[d]:
                    return f"token {here} of node {v} is outside the range of step {d}"
                prefixes[d + 1] += 1
            depth[v] = depth[parent] + <uint32_t>(1 + last - at)
            if self.degree(v) == 0 and not bits_get(&self.term, v):
                return f"leaf {v} is not a key"
        return None
