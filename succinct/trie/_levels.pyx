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

import numpy as np

cdef extern from * nogil:
    int __builtin_clz(unsigned int) noexcept


cdef extern from "succinct/keys/compare.h" nogil:
    uint64_t bytes_common(const void *, const void *, uint64_t) noexcept


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

ctypedef fused token_t:
    const uint8_t
    const uint16_t
    const uint32_t
    const uint64_t

ctypedef fused offset_t:
    uint32_t
    uint64_t


cdef inline int64_t start_of(const int64_t *offsets, int64_t fixed, int64_t i) noexcept nogil:
    return i * fixed if offsets == NULL else offsets[i]


cdef inline int64_t common(token_t *tokens, int64_t a, int64_t b, int64_t end) noexcept nogil:
    """Length of the common prefix of the sequence [a, b) and the one [b, end) behind it."""
    cdef int64_t n = min(b - a, end - b)
    return bytes_common(tokens + a, tokens + b, n * sizeof(token_t)) // sizeof(token_t)


cdef inline int64_t bit_length(uint32_t x) noexcept nogil:
    return 32 - __builtin_clz(x) if x else 0


cdef class _Keys:
    """Where the keys begin, whatever the table stores for that."""
    cdef const int64_t *offsets
    cdef int64_t fixed, n
    cdef object hold

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


# ---- the first pass ------------------------------------------------------------------------------


def count(table, start, stop, int64_t[::1] entries, int64_t[::1] rows, int64_t[::1] keys,
          int64_t[::1] inner, uint32_t[::1] low, uint32_t[::1] high):
    """Count what is new with the keys of a part; all arrays are int64 or uint32 [max_length].

    Of each length d + 1: new prefixes, into `entries[d]`; those that are the first continuation of
    theirs, into `rows[d]`; keys, and keys found to be prefixes of others, into `keys[d]` and
    `inner[d]`. The tokens of step d lie in ``[low[d], high[d])``. All but `low`, which comes as
    large as can be, come zeroed.
    """
    _count(table.tokens, _Keys(table), start, stop, entries, rows, keys, inner, low, high)


def _count(token_t[::1] tokens, _Keys table, int64_t start, int64_t stop, int64_t[::1] entries,
           int64_t[::1] rows, int64_t[::1] keys, int64_t[::1] inner, uint32_t[::1] low,
           uint32_t[::1] high):
    cdef int64_t i, d, end, shared, a = table.before(start)
    cdef int64_t b = start_of(table.offsets, table.fixed, start)
    cdef uint32_t token
    with nogil:
        for i in range(start, stop):
            end = start_of(table.offsets, table.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
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
            a, b = b, end


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
    _count_tokens(table.tokens, _Keys(table), start, stop, counts)


def _count_tokens(token_t[::1] tokens, _Keys table, int64_t start, int64_t stop,
                  int64_t[::1] counts):
    cdef int64_t i, j, end, a = table.before(start)
    cdef int64_t b = start_of(table.offsets, table.fixed, start)
    with nogil:
        for i in range(start, stop):
            end = start_of(table.offsets, table.fixed, i + 1)
            for j in range(b + common(&tokens[0], a, b, end), end):
                counts[tokens[j]] += 1
            a, b = b, end


def count_code_lengths(table, start, stop, const uint32_t[::1] codes, int64_t[:, ::1] lengths):
    """Add to ``lengths[d, n]`` how many new prefixes of length d + 1 end with a token whose code
    has n bits."""
    _count_code_lengths(table.tokens, _Keys(table), start, stop, codes, lengths)


def _count_code_lengths(token_t[::1] tokens, _Keys table, int64_t start, int64_t stop,
                        const uint32_t[::1] codes, int64_t[:, ::1] lengths):
    cdef int64_t i, d, end, a = table.before(start)
    cdef int64_t b = start_of(table.offsets, table.fixed, start)
    with nogil:
        for i in range(start, stop):
            end = start_of(table.offsets, table.fixed, i + 1)
            for d in range(common(&tokens[0], a, b, end), end - b):
                lengths[d, bit_length(codes[tokens[b + d]])] += 1
            a, b = b, end


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
    _fill_steps(table.tokens, _Keys(table), start, stop, steps, parts, bits, values, codes, shared,
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


def _fill_steps(token_t[::1] tokens, _Keys keys, int64_t start, int64_t stop,
                const int64_t[:, ::1] table, _StepParts parts, uint64_t[::1] bits,
                uint64_t[::1] values, const uint32_t[::1] codes, int64_t[::1] shared,
                uint64_t[::1] block, int64_t[::1] places):
    # Writing one level after another keeps what is known of it at hand; so the entries of some
    # keys are put into a block by level, and then those of each level are written.
    cdef const step_t *steps = <const step_t *>&table[0, 0]
    cdef const uint32_t *ranks = &codes[0] if codes.shape[0] else NULL
    cdef int64_t i = start, j, k, d, end, size, low, high, at, count, h, next_h
    cdef int64_t a = keys.before(start), b = start_of(keys.offsets, keys.fixed, start), c
    cdef uint64_t first
    h = common(&tokens[0], a, b, start_of(keys.offsets, keys.fixed, start + 1))
    if start and h == b - a:
        parts.step[h - 1].inner += 1  # the part before knew that its last key has continuations
    with nogil:
        while i < stop:
            j, c, size, low, high = i, b, 0, table.shape[0], 0
            while j < stop and size < BLOCK:
                end = start_of(keys.offsets, keys.fixed, j + 1)
                shared[j - i] = h
                places[h] += 1
                places[end - c] -= 1
                low, high = min(low, h), max(high, end - c)
                size += end - c - h
                j += 1
                h = 0
                if j < keys.n:
                    h = common(&tokens[0], c, end, start_of(keys.offsets, keys.fixed, j + 1))
                c = end
            shared[j - i] = h
            at = count = 0
            for d in range(low, high):
                count += places[d]
                places[d] = at
                at += count
            places[high] = 0
            for k in range(j - i):
                end = start_of(keys.offsets, keys.fixed, i + k + 1)
                h, next_h = shared[k], shared[k + 1]
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
                a, b = b, end
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
    _put_steps(table.tokens, _Keys(table), steps, bits, values, codes, np.zeros(count, np.int64),
               np.zeros(count, np.int64), np.zeros((count, 2), np.uint64))


def _put_steps(token_t[::1] tokens, _Keys keys, const int64_t[:, ::1] table, uint64_t[::1] bits,
               uint64_t[::1] values, const uint32_t[::1] codes, int64_t[::1] entries,
               int64_t[::1] rows, uint64_t[:, ::1] more):
    cdef const step_t *steps = <const step_t *>&table[0, 0]
    cdef const step_t *s
    cdef int64_t i, d, a = 0, b = 0, end, shared
    cdef uint32_t token
    cdef bint first, ended
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
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
            a, b = b, end


def fill_rows(table, prefixes, const int64_t[:, ::1] dense, uint64_t shift, masks, offsets, entries,
              terminal):
    """Fill the arrays of a compressed-sparse-row index; see `succinct.maps.csr.lanes`.

    They come zeroed; `terminal` are the words of a bit-vector, empty if all keys have one length.
    A row that stays empty gets no offset.
    """
    next_state = np.cumsum(prefixes)  # the first prefix of length d has number next_state[d - 1]
    _fill_rows(table.tokens, _Keys(table), next_state, dense, shift, masks, offsets, entries,
               terminal)


def _fill_rows(token_t[::1] tokens, _Keys keys, int64_t[::1] next_state,
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
                  int64_t[::1] nodes):
    """Write a part of a LOUDS trie with one node for every prefix into zeroed arrays.

    `nodes[d]` is the number of the next node of length d; length 0 is the root's, which no part
    writes. `topology` and `terminal` are the words of bit-vectors, `slots` and `label_high`, the
    words of a packed array of `high_width` bits, are by node number.
    """
    streams = _NodeStreams(nodes.shape[0])
    _fill_prefixes(table.tokens, _Keys(table), start, stop, nodes, high_width, topology, terminal,
                   slots, label_high, streams)
    streams.close(topology, terminal, label_high)


def _fill_prefixes(token_t[::1] tokens, _Keys keys, int64_t start, int64_t stop,
                   int64_t[::1] nodes, uint32_t high_width, uint64_t[::1] topology,
                   uint64_t[::1] terminal, uint16_t[::1] slots, uint64_t[::1] label_high,
                   _NodeStreams streams):
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
            stream_set(&streams.level[end - b - 1].terminal, &terminal[0], node)
            a, b = b, end


def put_prefixes(table, int64_t[::1] nodes, uint32_t high_width, uint64_t[::1] topology,
                 uint64_t[::1] terminal, uint16_t[::1] slots, uint64_t[::1] label_high):
    """Write a whole LOUDS trie as `fill_prefixes` does, but bit by bit: a simple way to the same
    words."""
    _put_prefixes(table.tokens, _Keys(table), nodes, high_width, topology, terminal, slots,
                  label_high)


def _put_prefixes(token_t[::1] tokens, _Keys keys, int64_t[::1] nodes, uint32_t high_width,
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


def chain_ends(table, n_prefixes, max_chain):
    """The prefixes that stay nodes when single-child chains are folded.

    A prefix stays if it is a key or has several continuations; a chain longer than `max_chain`
    is cut. Key after key, the result holds the lengths of the prefixes that stay and that the
    key is the first to have, ascending; the last one of each key is the key's own length.

    Returns
    -------
    ends : uint32 [nodes without the root]
    """
    room = min(n_prefixes, 2 * table.n_keys + n_prefixes // max_chain)
    ends = np.empty(room, np.uint32)
    path = np.empty(table.max_length + 1, np.uint32)
    used = _chain_ends(table.tokens, _Keys(table), max_chain, ends, path)
    return ends[room - used:]


def _chain_ends(token_t[::1] tokens, _Keys keys, int64_t max_chain, uint32_t[::1] ends,
                uint32_t[::1] path):
    # From the last key to the first: `path` holds the known branchings above the key, and those
    # that later keys show. All branchings that key i is the first to have are known at key i.
    cdef int64_t i, b, end, shared, height = 0, at = ends.shape[0], top, length, below
    cdef int64_t shared_next = 0, next_end
    end = start_of(keys.offsets, keys.fixed, keys.n)
    next_end = end
    with nogil:
        for i in range(keys.n - 1, -1, -1):
            b = start_of(keys.offsets, keys.fixed, i)
            length = end - b
            shared_next = common(&tokens[0], b, end, next_end) if i + 1 < keys.n else 0
            while height and path[height - 1] > shared_next:
                height -= 1
            if shared_next and (height == 0 or path[height - 1] != shared_next):
                path[height] = <uint32_t>shared_next
                height += 1
            if height == 0 or path[height - 1] != length:
                path[height] = <uint32_t>length
                height += 1
            shared = 0
            if i:
                shared = common(&tokens[0], start_of(keys.offsets, keys.fixed, i - 1), b, end)
            top = height
            while top and path[top - 1] > shared:
                top -= 1
                at -= 1
                ends[at] = path[top]
                # Cut the chain above it from its top, every max_chain tokens.
                below = max(shared, <int64_t>path[top - 1] if top else 0)
                length = path[top] - below
                length -= (length - 1) % max_chain + 1
                while length > 0:
                    at -= 1
                    ends[at] = <uint32_t>(below + length)
                    length -= max_chain
            next_end = end
            end = b
    return ends.shape[0] - at


def fill_chains(table, const uint32_t[::1] ends, topology, terminal, origin, span):
    """Fill the arrays of a LOUDS trie with one node for every entry of `ends`.

    `topology` and `terminal` come zeroed as the words of bit-vectors. For every node, `origin`
    (int64) gets the place in the table of the first token on its edge and `span` (uint32) the
    number of these tokens; both are by node number, with nothing for the root.
    """
    depth = np.zeros(table.max_length + 1, np.int64)
    path = np.empty(table.max_length + 1, np.uint32)
    _count_chains(table.tokens, _Keys(table), ends, depth, path)
    next_node = 1 + np.cumsum(depth) - depth
    _fill_chains(table.tokens, _Keys(table), ends, next_node, path, topology, terminal, origin,
                 span)


def _count_chains(token_t[::1] tokens, _Keys keys, const uint32_t[::1] ends, int64_t[::1] depth,
                  uint32_t[::1] path):
    cdef int64_t i, a = 0, b = 0, end, shared, height = 0, at = 0
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            while height and path[height - 1] > shared:
                height -= 1
            while True:
                path[height] = ends[at]
                depth[height] += 1
                height += 1
                at += 1
                if ends[at - 1] == end - b:
                    break
            a, b = b, end


def _fill_chains(token_t[::1] tokens, _Keys keys, const uint32_t[::1] ends,
                 int64_t[::1] next_node, uint32_t[::1] path, uint64_t[::1] topology,
                 uint64_t[::1] terminal, int64_t[::1] origin, uint32_t[::1] span):
    cdef int64_t i, a = 0, b = 0, end, shared, height = 0, at = 0, node = 0, parent, bit
    with nogil:
        topology[0] |= 1  # the super-root
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            while height and path[height - 1] > shared:
                height -= 1
            while True:
                parent = next_node[height - 1] - 1 if height else 0
                node = next_node[height]
                next_node[height] += 1
                bit = node + parent + 1
                topology[bit >> 6] |= <uint64_t>1 << (bit & 63)
                origin[node] = b + shared
                span[node] = <uint32_t>(ends[at] - shared)
                shared = ends[at]
                path[height] = ends[at]
                height += 1
                at += 1
                if shared == end - b:
                    break
            terminal[node >> 6] |= <uint64_t>1 << (node & 63)
            a, b = b, end


def gather_chains(table, const int64_t[::1] origin, const uint32_t[::1] span, bint backwards):
    """The tokens of chains one after another, each forwards or backwards.

    Returns
    -------
    tokens : uint32
    offsets : int64 [chains + 1]
    """
    offsets = np.zeros(len(span) + 1, np.int64)
    np.cumsum(span, out=offsets[1:])
    out = np.empty(offsets[len(span)], np.uint32)
    if len(out):
        _gather(table.tokens, origin, offsets, backwards, out)
    return out, offsets


def _gather(token_t[::1] tokens, const int64_t[::1] origin, const int64_t[::1] offsets,
            bint backwards, uint32_t[::1] out):
    cdef int64_t i, j, a, b
    with nogil:
        for i in range(origin.shape[0]):
            a, b = offsets[i], offsets[i + 1]
            for j in range(b - a):
                out[b - 1 - j if backwards else a + j] = <uint32_t>tokens[origin[i] + j]


def merge_suffixes(const uint32_t[::1] backwards, const int64_t[::1] offsets,
                   const int64_t[::1] order):
    """Lay chains out so that one that is a suffix of another shares its place.

    `backwards` and `offsets` are the chains, each backwards; `order` sorts them. A chain is a
    suffix of another only if, backwards, it is a prefix of its successor in that order.

    Returns
    -------
    links : int64 [chains]
        Where each chain begins in the tail.
    tail : uint32
    last : int64
        Positions in the tail of the last tokens of the chains.
    """
    cdef int64_t n = order.shape[0], j, h, a, length, next_a = 0, next_length = 0, used = 0
    cdef int64_t merged = 0, next_link = 0
    links_array = np.empty(n, np.int64)
    tail_array = np.empty(backwards.shape[0], np.uint32)
    last_array = np.empty(n, np.int64)
    cdef int64_t[::1] links = links_array, last = last_array
    cdef uint32_t[::1] tail = tail_array
    with nogil:
        for j in range(n - 1, -1, -1):
            a = offsets[order[j]]
            length = offsets[order[j] + 1] - a
            h = 0
            if length <= next_length:
                while h < length and backwards[a + h] == backwards[next_a + h]:
                    h += 1
            if h == length:
                next_link += next_length - length
            else:
                next_link = used
                for h in range(length):
                    tail[used + h] = backwards[a + length - 1 - h]
                used += length
                last[merged] = used - 1
                merged += 1
            links[order[j]] = next_link
            next_a, next_length = a, length
    return links_array, tail_array[:used].copy(), last_array[:merged].copy()


def fill_slots(table, const int64_t[::1] origin, const uint32_t[::1] span,
               const int64_t[::1] links, uint32_t label_width, uint32_t link_width, slots,
               label_high, link_high):
    """Fill the labels and links of nodes with folded chains, in node order.

    A node whose edge has one token gets that token's low 16 bits as its slot, its high bits at
    its place among such nodes (the root counts as one); a link node likewise its link.
    """
    _fill_slots(table.tokens, origin, span, links, label_width, link_width, slots, label_high,
                link_high)


def _fill_slots(token_t[::1] tokens, const int64_t[::1] origin, const uint32_t[::1] span,
                const int64_t[::1] links, uint32_t label_width, uint32_t link_width,
                uint16_t[::1] slots, uint64_t[::1] label_high, uint64_t[::1] link_high):
    cdef int64_t v, n_links = 0
    cdef uint32_t token
    with nogil:
        for v in range(1, origin.shape[0]):
            if span[v] > 1:
                slots[v] = <uint16_t>links[n_links]
                if link_width:
                    packed_put(&link_high[0], link_width, n_links, <uint64_t>links[n_links] >> 16)
                n_links += 1
            else:
                token = <uint32_t>tokens[origin[v]]
                slots[v] = <uint16_t>token
                if label_width:
                    packed_put(&label_high[0], label_width, v - n_links, token >> 16)


def cut_lengths(table):
    """How long the keys are when each is cut behind its last branching.

    Returns
    -------
    lengths : uint32 [n_keys]
        What each key shares with another one, and one token more if it has one.
    """
    lengths = np.empty(table.n_keys, np.uint32)
    _cut_lengths(table.tokens, _Keys(table), lengths)
    return lengths


def _cut_lengths(token_t[::1] tokens, _Keys keys, uint32_t[::1] lengths):
    cdef int64_t i, b = 0, end, next_end, before = 0, behind
    end = start_of(keys.offsets, keys.fixed, 1)
    with nogil:
        for i in range(keys.n):
            behind = 0
            next_end = end
            if i + 1 < keys.n:
                next_end = start_of(keys.offsets, keys.fixed, i + 2)
                behind = common(&tokens[0], b, end, next_end)
            lengths[i] = <uint32_t>min(max(before, behind) + 1, end - b)
            before = behind
            b, end = end, next_end


def sample_rests(table, uint32_t bits, int64_t room):
    """What a share of 2**-bits of all last tokens leaves of the keys cut behind their branching.

    Returns
    -------
    origin : int64, span : uint32
        Where the rest of each key begins that has one, and how long it is; at most `room` of them,
        else None.
    n_keys : int
        Keys that end with one of these tokens.
    """
    origin, span = np.empty(room, np.int64), np.empty(room, np.uint32)
    n_keys, used = _sample_rests(table.tokens, _Keys(table), bits, origin, span)
    return None if used > room else (origin[:used], span[:used], n_keys)


def _sample_rests(token_t[::1] tokens, _Keys keys, uint32_t bits, int64_t[::1] origin,
                  uint32_t[::1] span):
    cdef int64_t i, a = 0, b = 0, end, shared, n_keys = 0, used = 0, room = origin.shape[0]
    cdef uint32_t hashed
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            # The upper bits of a product with an odd number: Fibonacci hashing.
            hashed = <uint32_t>tokens[end - 1] * <uint32_t>2654435769
            if <uint64_t>hashed >> (32 - bits) == 0:
                n_keys += 1
                shared = common(&tokens[0], a, b, end)
                if i + 1 < keys.n:
                    shared = max(shared, common(&tokens[0], b, end, start_of(
                        keys.offsets, keys.fixed, i + 2)))
                if shared + 1 < end - b:
                    if used == room:
                        used += 1
                        break
                    origin[used] = b + shared + 1
                    span[used] = <uint32_t>(end - b - shared - 1)
                    used += 1
            a, b = b, end
    return n_keys, used
