# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""From sorted keys to level arrays, in one pass to count and one to fill.

The keys are distinct and in lexicographic order, a prefix before its extensions. Key i then
adds the prefixes that are longer than what it shares with key i - 1, and it is the first key
that has them. So a walk over the keys meets the prefixes of each length in level order, and the
newest prefix of length d - 1 is the parent of the next one of length d.

Every function goes through keys [start, stop). Counts of all parts before tell a part where its
places in each level begin, so that parts can be filled at the same time.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from succinct.bits.bitvector cimport packed_put
from succinct.trie._keys cimport Keys, common, end_of, start_of, token_t

import numpy as np

cdef extern from * nogil:
    int __builtin_clz(unsigned int) noexcept


cdef extern from "succinct/bits/stream.h" nogil:
    ctypedef struct stream_t:
        pass
    void stream_open(stream_t *) noexcept
    void stream_close(stream_t *, uint64_t *) noexcept
    void stream_put(stream_t *, uint64_t *, uint64_t, uint64_t, uint64_t) noexcept
    void stream_set(stream_t *, uint64_t *, uint64_t) noexcept


cdef extern from "succinct/maps/steps_build.h" nogil:
    const uint64_t FIRST, INNER, KEY
    ctypedef struct step_t:
        uint64_t entries, rows, inner_rows, inner_at, final_keys, final_at
    ctypedef struct steps_part_t:
        uint64_t entries, rows, inner, chunks2, chunks3
    void bits_set(uint64_t *, uint64_t) noexcept
    void steps_put(const step_t *, uint64_t *, uint64_t *, uint64_t, uint64_t, int, uint64_t,
                   uint64_t, uint64_t *) noexcept
    void steps_put_row(const step_t *, uint64_t *, uint64_t *, uint64_t, uint64_t) noexcept
    void steps_open(steps_part_t *) noexcept
    void steps_close(steps_part_t *, uint64_t *, uint64_t *) noexcept
    void steps_write(const step_t *, steps_part_t *, uint64_t *, uint64_t *, const uint32_t *,
                     const uint64_t *, uint64_t) noexcept

ctypedef fused offset_t:
    uint32_t
    uint64_t


cdef inline int64_t bit_length(uint32_t x) noexcept nogil:
    return 32 - __builtin_clz(x) if x else 0


# ---- the first pass ------------------------------------------------------------------------------


def count(table, start, stop, int64_t[::1] entries, int64_t[::1] rows, int64_t[::1] keys,
          int64_t[::1] inner, uint32_t[::1] low, uint32_t[::1] high):
    """Count what is new with the keys of a part; all arrays are int64 or uint32 [max_length].

    Of each length d + 1: new prefixes, into `entries[d]`; those that are the first continuation of
    theirs, into `rows[d]`; keys, and keys found to be prefixes of others, into `keys[d]` and
    `inner[d]`. The tokens of step d lie in ``[low[d], high[d])``. All but `low`, which comes as
    large as can be, come zeroed.
    """
    _count(table.tokens, Keys(table), start, stop, entries, rows, keys, inner, low, high)


def _count(token_t[::1] tokens, Keys table, int64_t start, int64_t stop, int64_t[::1] entries,
           int64_t[::1] rows, int64_t[::1] keys, int64_t[::1] inner, uint32_t[::1] low,
           uint32_t[::1] high):
    cdef int64_t i, d, end, next, shared, behind, a = table.before(start)
    cdef int64_t b = start_of(table.offsets, table.fixed, start)
    cdef uint32_t token
    behind = common(&tokens[0], a, b, start_of(table.offsets, table.fixed, start + 1))
    with nogil:
        for i in range(start, stop):
            next = start_of(table.offsets, table.fixed, i + 1)
            shared = behind
            end = end_of(&tokens[0], table, i, b, next, &behind)
            if shared == b - a:
                rows[shared] += 1
                if i:
                    inner[shared - 1] += 1
            for d in range(shared, end - b):
                token = <uint32_t>tokens[b + d]
                entries[d] += 1
                rows[d] += d > shared
                low[d] = min(low[d], token)
                high[d] = max(high[d], token + 1)
            keys[end - b - 1] += 1
            a, b = b, next


def count_rows(table, start, stop, int64_t[::1] entries, uint32_t[::1] low, uint32_t[::1] high):
    """As `count`, for keys of one length, of which all else follows: `entries[d]` gets the keys
    that share d tokens with the one before them."""
    _count_rows(table.tokens, table.fixed_length, start, stop, entries, low, high)


def _count_rows(token_t[::1] tokens, int64_t length, int64_t start, int64_t stop,
                int64_t[::1] entries, uint32_t[::1] low, uint32_t[::1] high):
    cdef int64_t i, d, at = start * length
    cdef uint32_t token
    with nogil:
        for i in range(start, stop):
            entries[common(&tokens[0], at - length, at, at + length) if i else 0] += 1
            # Every token of a step is new in some row, so that all of them can be looked at.
            for d in range(length):
                token = <uint32_t>tokens[at + d]
                low[d] = min(low[d], token)
                high[d] = max(high[d], token + 1)
            at += length


def count_tokens(table, start, stop, int64_t[::1] counts):
    """Add to the counts of tokens how many new prefixes end with each."""
    _count_tokens(table.tokens, Keys(table), start, stop, counts)


def _count_tokens(token_t[::1] tokens, Keys table, int64_t start, int64_t stop,
                  int64_t[::1] counts):
    cdef int64_t i, j, next, shared, behind, b = start_of(table.offsets, table.fixed, start)
    behind = common(&tokens[0], table.before(start), b,
                    start_of(table.offsets, table.fixed, start + 1))
    with nogil:
        for i in range(start, stop):
            next = start_of(table.offsets, table.fixed, i + 1)
            shared = behind
            for j in range(b + shared, end_of(&tokens[0], table, i, b, next, &behind)):
                counts[tokens[j]] += 1
            b = next


def pack_counts(uint64_t[::1] counts, uint32_t width):
    """The count of each token into a word: what it lacks to the largest that fits, above the
    token in `width` bits. Larger counts count as this one."""
    cdef int64_t i
    cdef uint64_t most = (<uint64_t>1 << (64 - width)) - 1
    with nogil:
        for i in range(counts.shape[0]):
            counts[i] = (most - min(counts[i], most)) << width | <uint64_t>i


def unpack_tokens(const uint64_t[::1] words, uint32_t width, uint32_t[::1] tokens,
                  uint32_t[::1] ranks):
    """The tokens of the first words into `tokens`, and the place of each of them into `ranks`."""
    cdef int64_t i
    cdef uint64_t mask = (<uint64_t>1 << width) - 1
    with nogil:
        for i in range(tokens.shape[0]):
            tokens[i] = <uint32_t>(words[i] & mask)
            ranks[tokens[i]] = <uint32_t>i


def count_code_lengths(table, start, stop, const uint32_t[::1] codes, int64_t[:, ::1] lengths):
    """Add to ``lengths[d, n]`` how many new prefixes of length d + 1 end with a token whose code
    has n bits."""
    _count_code_lengths(table.tokens, Keys(table), start, stop, codes, lengths)


def _count_code_lengths(token_t[::1] tokens, Keys table, int64_t start, int64_t stop,
                        const uint32_t[::1] codes, int64_t[:, ::1] lengths):
    cdef int64_t i, d, next, shared, behind, b = start_of(table.offsets, table.fixed, start)
    behind = common(&tokens[0], table.before(start), b,
                    start_of(table.offsets, table.fixed, start + 1))
    with nogil:
        for i in range(start, stop):
            next = start_of(table.offsets, table.fixed, i + 1)
            shared = behind
            for d in range(shared, end_of(&tokens[0], table, i, b, next, &behind) - b):
                lengths[d, bit_length(codes[tokens[b + d]])] += 1
            b = next


def last_tokens(table, start, stop, int64_t[::1] last):
    """Write the token of the last prefix of each length d + 1 that the keys of a part have to
    `last[d]`, unless they have none."""
    _last_tokens(table.tokens, Keys(table), start, stop, last)


def _last_tokens(token_t[::1] tokens, Keys keys, int64_t start, int64_t stop, int64_t[::1] last):
    cdef int64_t i = stop - 1, d = 0, begin, end
    with nogil:
        while i >= start and d < last.shape[0]:
            begin = start_of(keys.offsets, keys.fixed, i)
            end = start_of(keys.offsets, keys.fixed, i + 1)
            while d < end - begin:
                last[d] = tokens[begin + d]
                d += 1
            i -= 1


# ---- the second pass -----------------------------------------------------------------------------


def fill_steps(table, start, stop, const int64_t[:, ::1] steps, uint64_t[::1] bits,
               uint64_t[::1] values, const uint32_t[::1] codes, const int64_t[::1] entries,
               const int64_t[::1] rows, const uint64_t[:, ::1] chunks):
    """Write a part of a step-sliced index into zeroed words; see succinct/maps/steps.h.

    `steps` is the table that says where the parts of every step lie. `codes` are the ranks of
    tokens by frequency, empty if no step needs them. `entries`, `rows` and `chunks` (second and
    third ones of codes) say what the parts before write of every step.
    """
    parts = _StepParts(entries, rows, chunks)
    shared = np.empty(BLOCK + 1, np.int64)
    block = np.empty(BLOCK + steps.shape[0], np.uint64)
    places = np.zeros(steps.shape[0] + 1, np.int64)
    _fill_steps(table.tokens, Keys(table), start, stop, steps, parts, bits, values, codes, shared,
                block, places)
    parts.close(bits, values)


cdef class _StepParts:
    """What has been written of every step."""
    cdef steps_part_t *step
    cdef Py_ssize_t count
    cdef uint8_t[::1] memory

    def __init__(self, const int64_t[::1] entries, const int64_t[::1] rows,
                 const uint64_t[:, ::1] chunks):
        cdef Py_ssize_t d
        self.count = entries.shape[0]
        self.memory = np.zeros(self.count * sizeof(steps_part_t), np.uint8)
        self.step = <steps_part_t *>&self.memory[0]
        for d in range(self.count):
            steps_open(self.step + d)
            self.step[d].entries, self.step[d].rows = entries[d], rows[d]
            # Prefixes with continuations are counted with the first of these; see _fill_steps.
            self.step[d].inner = rows[d + 1] if d + 1 < self.count else 0
            self.step[d].chunks2, self.step[d].chunks3 = chunks[d, 0], chunks[d, 1]

    cdef void close(self, uint64_t[::1] bits, uint64_t[::1] values) noexcept:
        cdef Py_ssize_t d
        for d in range(self.count):
            steps_close(self.step + d, &bits[0], &values[0])


cdef enum:
    BLOCK = 2048  # entries sorted by level at a time, about


def _fill_steps(token_t[::1] tokens, Keys keys, int64_t start, int64_t stop,
                const int64_t[:, ::1] table, _StepParts parts, uint64_t[::1] bits,
                uint64_t[::1] values, const uint32_t[::1] codes, int64_t[::1] shared,
                uint64_t[::1] block, int64_t[::1] places):
    # Writing one level after another keeps what is known of it at hand; so the entries of some
    # keys are put into a block by level, and then those of each level are written.
    cdef const step_t *steps = <const step_t *>&table[0, 0]
    cdef const uint32_t *ranks = &codes[0] if codes.shape[0] else NULL
    cdef int64_t i = start, j, k, d, end, next, size, low, high, at, count, h, next_h
    cdef int64_t a = keys.before(start), b = start_of(keys.offsets, keys.fixed, start), c
    cdef uint64_t first
    h = common(&tokens[0], a, b, start_of(keys.offsets, keys.fixed, start + 1))
    if start and h == b - a:
        parts.step[h - 1].inner += 1  # the part before knew that its last key has continuations
    with nogil:
        while i < stop:
            j, c, size, low, high = i, b, 0, table.shape[0], 0
            while j < stop and size < BLOCK:
                next = start_of(keys.offsets, keys.fixed, j + 1)
                shared[j - i] = h
                j += 1
                next_h = 0
                if j < keys.n:
                    next_h = common(&tokens[0], c, next,
                                    start_of(keys.offsets, keys.fixed, j + 1))
                end = min(next, c + max(h, next_h) + 1) if keys.cut else next
                places[h] += 1
                places[end - c] -= 1
                low, high = min(low, h), max(high, end - c)
                size += end - c - h
                h = next_h
                c = next
            shared[j - i] = h
            at = count = 0
            for d in range(low, high):
                count += places[d]
                places[d] = at
                at += count
            places[high] = 0
            for k in range(j - i):
                next = start_of(keys.offsets, keys.fixed, i + k + 1)
                h, next_h = shared[k], shared[k + 1]
                end = min(next, b + max(h, next_h) + 1) if keys.cut else next
                # What this key adds to an old prefix is its first continuation if that is a key.
                first = FIRST if h == b - a else 0
                for d in range(h, end - b - 1):
                    block[places[d]] = <uint32_t>tokens[b + d] | first | INNER
                    places[d] += 1
                    first = FIRST
                d = end - b - 1
                block[places[d]] = (<uint32_t>tokens[b + d] | first | KEY |
                                    (INNER if next_h == end - b else 0))
                places[d] += 1
                a, b = b, next
            at = 0
            for d in range(low, high):
                steps_write(steps + d, parts.step + d, &bits[0], &values[0], ranks, &block[at],
                            places[d] - at)
                at = places[d]
                places[d] = 0
            h = shared[j - i]
            i = j


def put_steps(table, const int64_t[:, ::1] steps, uint64_t[::1] bits, uint64_t[::1] values,
              const uint32_t[::1] codes):
    """Write a whole step-sliced index as `fill_steps` does, but entry by entry and bit by bit: a
    simple way to the same words."""
    count = len(steps)
    _put_steps(table.tokens, Keys(table), steps, bits, values, codes, np.zeros(count, np.int64),
               np.zeros(count, np.int64), np.zeros((count, 2), np.uint64))


def _put_steps(token_t[::1] tokens, Keys keys, const int64_t[:, ::1] table, uint64_t[::1] bits,
               uint64_t[::1] values, const uint32_t[::1] codes, int64_t[::1] entries,
               int64_t[::1] rows, uint64_t[:, ::1] more):
    cdef const step_t *steps = <const step_t *>&table[0, 0]
    cdef const step_t *s
    cdef int64_t i, d, a = 0, b = 0, end, next, shared, behind = 0
    cdef uint32_t token
    cdef bint first, ended
    with nogil:
        for i in range(keys.n):
            next = start_of(keys.offsets, keys.fixed, i + 1)
            shared = behind
            end = end_of(&tokens[0], keys, i, b, next, &behind)
            for d in range(shared, end - b):
                # A prefix that is new, or was a key without continuations so far, gets its first.
                ended = d == shared and b - a == shared
                first = d > shared or ended
                if first:
                    rows[d] += 1
                    if d:
                        s = steps + d - 1
                        if s.inner_rows < s.entries:
                            bits_set(&bits[0], s.inner_at + entries[d - 1] - 1)
                        if ended and s.final_keys < s.inner_rows:
                            bits_set(&bits[0], s.final_at + rows[d] - 1)
                token = <uint32_t>tokens[b + d]
                steps_put(steps + d, &bits[0], &values[0], rows[d] - 1, entries[d], first, token,
                          codes[token] if codes.shape[0] else 0, &more[d, 0])
                entries[d] += 1
            a, b = b, next


def fill_rows(table, prefixes, const int64_t[:, ::1] dense, uint64_t shift, masks, offsets, entries,
              terminal):
    """Fill the arrays of a compressed-sparse-row index; see `succinct.maps.csr.lanes`.

    They come zeroed; `terminal` are the words of a bit-vector, empty if all keys have one length.
    A row that stays empty gets no offset.
    """
    next_state = np.cumsum(prefixes)  # the first prefix of length d has number next_state[d - 1]
    _fill_rows(table.tokens, Keys(table), next_state, dense, shift, masks, offsets, entries,
               terminal)


def _fill_rows(token_t[::1] tokens, Keys keys, int64_t[::1] next_state,
               const int64_t[:, ::1] dense, uint64_t shift, uint64_t[::1] masks,
               offset_t[::1] offsets, uint64_t[::1] entries, uint64_t[::1] terminal):
    cdef int64_t i, d, a = 0, b = 0, end, shared, state = 0, parent, at, n_dense = dense.shape[0]
    cdef int64_t first_row = next_state[n_dense - 1] if n_dense else 0
    cdef int64_t first_entry = next_state[n_dense], first_leaf = next_state[next_state.shape[0] - 2]
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            for d in range(shared, end - b):
                parent = next_state[d - 1] - 1 if d else 0
                state = next_state[d]
                next_state[d] += 1
                if d < n_dense:
                    at = dense[d, 1] + (parent - dense[d, 0]) * dense[d, 2]
                    bits_set(&masks[at], <int64_t>tokens[b + d] - dense[d, 3])
                else:
                    at = state - first_entry
                    entries[at] = <uint64_t>tokens[b + d] | <uint64_t>state << shift
                    offsets[parent - first_row + 1] = <offset_t>(at + 1)
            if terminal.shape[0] and state < first_leaf:
                bits_set(&terminal[0], state)
            a, b = b, end


def end_steps(const int64_t[:, ::1] table, uint64_t[::1] bits, uint64_t[::1] values):
    """Write where the last row of every step ends, when all parts are written."""
    cdef const step_t *steps = <const step_t *>&table[0, 0]
    cdef Py_ssize_t d
    for d in range(table.shape[0]):
        steps_put_row(steps + d, &bits[0], &values[0], steps[d].rows, steps[d].entries)


cdef struct node_streams_t:
    stream_t topology, terminal, label_high


cdef class _NodeStreams:
    """The bits of the nodes of every level."""
    cdef node_streams_t *level
    cdef Py_ssize_t count
    cdef uint8_t[::1] memory

    def __init__(self, count):
        cdef Py_ssize_t d
        self.count = count
        self.memory = np.empty(count * sizeof(node_streams_t), np.uint8)
        self.level = <node_streams_t *>&self.memory[0]
        for d in range(self.count):
            stream_open(&self.level[d].topology)
            stream_open(&self.level[d].terminal)
            stream_open(&self.level[d].label_high)

    cdef void close(self, uint64_t[::1] topology, uint64_t[::1] terminal,
                    uint64_t[::1] label_high) noexcept:
        cdef Py_ssize_t d
        for d in range(self.count):
            stream_close(&self.level[d].topology, &topology[0])
            stream_close(&self.level[d].terminal, &terminal[0])
            stream_close(&self.level[d].label_high, &label_high[0])


def fill_prefixes(table, start, stop, uint32_t high_width, uint64_t[::1] topology,
                  uint64_t[::1] terminal, uint16_t[::1] slots, uint64_t[::1] label_high,
                  int64_t[::1] nodes, uint32_t[::1] ends=None):
    """Write a part of a LOUDS trie with one node for every prefix into zeroed arrays.

    `nodes[d]` is the number of the next node of length d; length 0 is the root's, which no part
    writes. `topology` and `terminal` are the words of bit-vectors, `slots` and `label_high`, the
    words of a packed array of `high_width` bits, are by node number. If there are `ends`, these get
    the node of each key, and nothing is written to `terminal`.
    """
    streams = _NodeStreams(nodes.shape[0])
    _fill_prefixes(table.tokens, Keys(table), start, stop, nodes, high_width, topology, terminal,
                   slots, label_high, streams, ends)
    streams.close(topology, terminal, label_high)


def _fill_prefixes(token_t[::1] tokens, Keys keys, int64_t start, int64_t stop,
                   int64_t[::1] nodes, uint32_t high_width, uint64_t[::1] topology,
                   uint64_t[::1] terminal, uint16_t[::1] slots, uint64_t[::1] label_high,
                   _NodeStreams streams, uint32_t[::1] ends):
    cdef bint listed = ends is not None
    cdef int64_t i, d = 0, end, node = 0, a = keys.before(start)
    cdef int64_t b = start_of(keys.offsets, keys.fixed, start)
    cdef uint32_t token
    with nogil:
        for i in range(start, stop):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            for d in range(common(&tokens[0], a, b, end), end - b):
                node = nodes[d + 1]
                nodes[d + 1] += 1
                token = <uint32_t>tokens[b + d]
                slots[node] = <uint16_t>token
                # Node u is child number u of all: behind u ones and the zeros of its elders.
                stream_set(&streams.level[d].topology, &topology[0], node + nodes[d])
                if high_width:
                    stream_put(&streams.level[d].label_high, &label_high[0], node * high_width,
                               high_width, token >> 16)
            if listed:
                ends[i - start] = <uint32_t>node
            else:
                stream_set(&streams.level[end - b - 1].terminal, &terminal[0], node)
            a, b = b, end


def put_prefixes(table, int64_t[::1] nodes, uint32_t high_width, uint64_t[::1] topology,
                 uint64_t[::1] terminal, uint16_t[::1] slots, uint64_t[::1] label_high):
    """Write a whole LOUDS trie as `fill_prefixes` does, but bit by bit: a simple way to the same
    words."""
    _put_prefixes(table.tokens, Keys(table), nodes, high_width, topology, terminal, slots,
                  label_high)


def _put_prefixes(token_t[::1] tokens, Keys keys, int64_t[::1] nodes, uint32_t high_width,
                  uint64_t[::1] topology, uint64_t[::1] terminal, uint16_t[::1] slots,
                  uint64_t[::1] label_high):
    cdef int64_t i, d, end, node = 0, a = 0, b = 0
    cdef uint32_t token
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            for d in range(common(&tokens[0], a, b, end), end - b):
                node = nodes[d + 1]
                nodes[d + 1] += 1
                token = <uint32_t>tokens[b + d]
                slots[node] = <uint16_t>token
                bits_set(&topology[0], node + nodes[d])
                if high_width:
                    packed_put(&label_high[0], high_width, node, token >> 16)
            bits_set(&terminal[0], node)
            a, b = b, end
