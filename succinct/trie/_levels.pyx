# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""From sorted keys to level arrays, in one pass to count and one to fill.

The keys are distinct and in lexicographic order, a prefix before its extensions. Key i then
adds the prefixes that are longer than what it shares with key i - 1, and it is the first key
that has them. So a walk over the keys meets the prefixes of each length in level order, and the
newest prefix of length d - 1 is the parent of the next one of length d.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from succinct.bits.bitvector cimport packed_put

import numpy as np

cdef extern from * nogil:
    int __builtin_clz(unsigned int) noexcept


cdef extern from "succinct/maps/steps.h" nogil:
    ctypedef struct step_t:
        uint64_t entries, rows, inner_rows, inner_at, final_keys, final_at
    void bits_set(uint64_t *, uint64_t) noexcept
    void steps_put(const step_t *, uint64_t *, uint64_t *, uint64_t, uint64_t, int, uint64_t,
                   uint64_t, uint64_t *) noexcept
    void steps_put_row(const step_t *, uint64_t *, uint64_t *, uint64_t, uint64_t) noexcept

ctypedef fused token_t:
    const uint8_t
    const uint16_t
    const uint32_t
    const uint64_t


cdef inline int64_t start_of(const int64_t *offsets, int64_t fixed, int64_t i) noexcept nogil:
    return i * fixed if offsets == NULL else offsets[i]


cdef inline int64_t common(token_t *tokens, int64_t a, int64_t b, int64_t end) noexcept nogil:
    """Length of the common prefix of the sequence [a, b) and the one [b, end) behind it."""
    cdef int64_t n = min(b - a, end - b), h = 0
    while h < n and tokens[a + h] == tokens[b + h]:
        h += 1
    return h


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


def level_sizes(table):
    """Count the prefixes of every length, and the range of the tokens at every step.

    Returns
    -------
    prefixes : int64 [max_length + 1]
        Distinct prefixes of each length; one of length 0.
    low, high : uint32 [max_length]
        The tokens of each step lie in [low, high).
    """
    prefixes = np.zeros(table.max_length + 1, np.int64)
    low = np.full(table.max_length, 2**32 - 1, np.uint32)
    high = np.zeros(table.max_length, np.uint32)
    prefixes[0] = 1
    _level_sizes(table.tokens, _Keys(table), prefixes, low, high)
    return prefixes, low, high


def _level_sizes(token_t[::1] tokens, _Keys keys, int64_t[::1] prefixes, uint32_t[::1] low,
                 uint32_t[::1] high):
    cdef int64_t i, d, a = 0, b = 0, end, shared
    cdef uint32_t token
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            for d in range(shared, end - b):
                token = <uint32_t>tokens[b + d]
                prefixes[d + 1] += 1
                low[d] = min(low[d], token)
                high[d] = max(high[d], token + 1)
            a, b = b, end


def level_keys(table):
    """Count the keys of every length, and those of them that are prefixes of other keys.

    Returns
    -------
    keys, inner : int64 [max_length]
        Of length d at place d - 1.
    """
    keys = np.zeros(table.max_length, np.int64)
    inner = np.zeros(table.max_length, np.int64)
    if table.fixed_length is not None:
        keys[table.max_length - 1] = table.n_keys
    else:
        _level_keys(table.tokens, _Keys(table), keys, inner)
    return keys, inner


def _level_keys(token_t[::1] tokens, _Keys table, int64_t[::1] keys, int64_t[::1] inner):
    cdef int64_t i, a = 0, b = 0, end
    with nogil:
        for i in range(table.n):
            end = start_of(table.offsets, table.fixed, i + 1)
            keys[end - b - 1] += 1
            if i and common(&tokens[0], a, b, end) == b - a:
                inner[b - a - 1] += 1
            a, b = b, end


def count_tokens(table, int64_t[::1] counts):
    """Add to the counts of tokens how many prefixes end with each."""
    _count_tokens(table.tokens, _Keys(table), counts)


def _count_tokens(token_t[::1] tokens, _Keys keys, int64_t[::1] counts):
    cdef int64_t i, j, a = 0, b = 0, end
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            for j in range(b + common(&tokens[0], a, b, end), end):
                counts[tokens[j]] += 1
            a, b = b, end


def count_code_lengths(table, const uint32_t[::1] codes, int64_t[:, ::1] lengths):
    """Add to ``lengths[d, n]`` how many prefixes of length d + 1 end with a token whose code has
    n bits."""
    _count_code_lengths(table.tokens, _Keys(table), codes, lengths)


def _count_code_lengths(token_t[::1] tokens, _Keys keys, const uint32_t[::1] codes,
                        int64_t[:, ::1] lengths):
    cdef int64_t i, d, a = 0, b = 0, end
    cdef uint32_t code
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            for d in range(common(&tokens[0], a, b, end), end - b):
                code = codes[tokens[b + d]]
                lengths[d, bit_length(code)] += 1
            a, b = b, end


def fill_steps(table, steps, bits, values, const uint32_t[::1] codes):
    """Fill the arrays of a step-sliced index, which come zeroed; see succinct/maps/steps.h.

    `steps` is the table that says where the parts of every step lie, `bits` and `values` are
    words. `codes` are the ranks of tokens by frequency, empty if no step needs them.
    """
    count = len(steps)
    # By level: the next entry, the next row, and how many tokens took a second and third chunk.
    # A part of the keys could be filled on its own from its sums of all parts before.
    _fill_steps(table.tokens, _Keys(table), steps, bits, values, codes, np.zeros(count, np.int64),
                np.zeros(count, np.int64), np.zeros((count, 2), np.uint64))


def _fill_steps(token_t[::1] tokens, _Keys keys, const int64_t[:, ::1] table, uint64_t[::1] bits,
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
        for d in range(table.shape[0]):
            steps_put_row(steps + d, &bits[0], &values[0], rows[d], entries[d])


def fill_prefixes(table, prefixes, uint32_t high_width, topology, terminal, slots, label_high):
    """Fill the arrays of a LOUDS trie with one node for every prefix.

    The arrays come zeroed: `topology` and `terminal` as the words of bit-vectors, `slots` uint16
    and `label_high` the words of a packed array of `high_width` bits, both by node number.
    """
    next_node = np.cumsum(prefixes)  # the first node of length d has number next_node[d - 1]
    _fill_prefixes(table.tokens, _Keys(table), next_node, high_width, topology, terminal, slots,
                   label_high)


def _fill_prefixes(token_t[::1] tokens, _Keys keys, int64_t[::1] next_node, uint32_t high_width,
                   uint64_t[::1] topology, uint64_t[::1] terminal, uint16_t[::1] slots,
                   uint64_t[::1] label_high):
    cdef int64_t i, d, a = 0, b = 0, end, shared, node = 0, parent, at
    cdef uint32_t token
    with nogil:
        topology[0] |= 1  # the super-root
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            for d in range(shared, end - b):
                parent = next_node[d - 1] - 1 if d else 0
                node = next_node[d]
                next_node[d] += 1
                # Node u is child number u of all: behind u ones and the zeros of its elders.
                at = node + parent + 1
                topology[at >> 6] |= <uint64_t>1 << (at & 63)
                token = <uint32_t>tokens[b + d]
                slots[node] = <uint16_t>token
                if high_width:
                    packed_put(&label_high[0], high_width, node, token >> 16)
            terminal[node >> 6] |= <uint64_t>1 << (node & 63)
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
