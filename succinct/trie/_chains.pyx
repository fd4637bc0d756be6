# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Chains of prefixes with a single continuation, cut out of sorted keys and folded.

As in ``_levels``, keys are distinct and in lexicographic order.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr

from succinct.bits.bitvector cimport packed_get, packed_put, packed_t
from succinct.trie._keys cimport Keys, common, end_of, start_of, token_t

import numpy as np

from succinct._scratch import scratch
from succinct.keys.sequences import narrowest

ctypedef fused span_t:
    uint8_t
    uint16_t
    uint32_t

ctypedef fused other_t:
    uint8_t
    uint16_t
    uint32_t

ctypedef fused link_t:
    uint32_t
    uint64_t


def chain_ends(table, n_prefixes, max_chain):
    """The prefixes that stay nodes when single-child chains are folded.

    A prefix stays if it is a key or has several continuations; a chain longer than `max_chain`
    is cut. Key after key, the result holds the lengths of the prefixes that stay and that the
    key is the first to have, ascending; the last one of each key is the key's own length.

    Returns
    -------
    ends : unsigned [nodes without the root]
    """
    room = min(n_prefixes, 2 * table.n_keys + n_prefixes // max_chain)
    ends = scratch(room, narrowest(table.max_length))
    path = np.empty(table.max_length + 1, np.uint32)
    used = _chain_ends(table.tokens, Keys(table), max_chain, ends, path)
    return ends[room - used:]


def _chain_ends(token_t[::1] tokens, Keys keys, int64_t max_chain, span_t[::1] ends,
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
                ends[at] = <span_t>path[top]
                # Cut the chain above it from its top, every max_chain tokens.
                below = max(shared, <int64_t>path[top - 1] if top else 0)
                length = path[top] - below
                length -= (length - 1) % max_chain + 1
                while length > 0:
                    at -= 1
                    ends[at] = <span_t>(below + length)
                    length -= max_chain
            next_end = end
            end = b
    return ends.shape[0] - at


def count_chains(table, ends, int64_t[::1] n_nodes, int64_t[::1] n_links):
    """Count the nodes that `ends` lists, and those of them with a chain of tokens, by their depth.

    `n_nodes` and `n_links`, int64 [max_length], come zeroed; the children of the root come first.

    Returns
    -------
    n_tokens, longest, largest : int
        All tokens in chains, those of the longest one, and the largest of them.
    """
    path = np.empty(table.max_length + 1, np.uint32)
    return _count_chains(table.tokens, Keys(table), ends, n_nodes, n_links, path)


def _count_chains(token_t[::1] tokens, Keys keys, const span_t[::1] ends, int64_t[::1] n_nodes,
                  int64_t[::1] n_links, uint32_t[::1] path):
    cdef int64_t i, j, a = 0, b = 0, end, shared, height = 0, at = 0
    cdef int64_t n_tokens = 0, longest = 0
    cdef uint32_t largest = 0
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            while height and path[height - 1] > shared:
                height -= 1
            while shared < end - b:
                n_nodes[height] += 1
                if ends[at] - shared > 1:
                    n_links[height] += 1
                    n_tokens += ends[at] - shared
                    longest = max(longest, ends[at] - shared)
                    for j in range(b + shared, b + ends[at]):
                        largest = max(largest, <uint32_t>tokens[j])
                shared = ends[at]
                path[height] = ends[at]
                height += 1
                at += 1
            a, b = b, end
    return n_tokens, longest, largest


def list_chains(table, ends, spans, uint64_t[::1] last):
    """The lengths of all chains into `spans`, in the order of the table; the zeroed words `last`
    get a bit for the last token of each."""
    _list_chains(table.tokens, Keys(table), ends, spans, last)


def _list_chains(token_t[::1] tokens, Keys keys, const span_t[::1] ends, other_t[::1] spans,
                 uint64_t[::1] last):
    cdef int64_t i, a = 0, b = 0, end, shared, at = 0, used = 0, stop
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            while shared < end - b:
                if ends[at] - shared > 1:
                    spans[used] = <other_t>(ends[at] - shared)
                    used += 1
                    stop = b + ends[at] - 1
                    last[stop >> 6] |= <uint64_t>1 << (stop & 63)
                shared = ends[at]
                at += 1
            a, b = b, end


def fill_chains(table, ends, int64_t[::1] next_node, int64_t[::1] next_link, links,
                uint32_t label_width, uint32_t link_width, uint64_t[::1] topology,
                uint64_t[::1] terminal, uint64_t[::1] link, uint16_t[::1] slots,
                uint64_t[::1] label_high, uint64_t[::1] link_high):
    """Fill the zeroed arrays of a LOUDS trie with one node for every entry of `ends`.

    `links` says where each chain begins in the tail, in the order of the table. A node whose edge
    has one token gets that token's low 16 bits as its slot, its high bits at its place among such
    nodes (the root counts as one); a link node likewise its link. `next_node` and `next_link` are
    the number of the first node of each depth and how many links come before it.
    """
    path = np.empty(table.max_length + 1, np.uint32)
    _fill_chains(table.tokens, Keys(table), ends, next_node, next_link, links, label_width,
                 link_width, topology, terminal, link, slots, label_high, link_high, path)


def _fill_chains(token_t[::1] tokens, Keys keys, const span_t[::1] ends, int64_t[::1] next_node,
                 int64_t[::1] next_link, const link_t[::1] links, uint32_t label_width,
                 uint32_t link_width, uint64_t[::1] topology, uint64_t[::1] terminal,
                 uint64_t[::1] link, uint16_t[::1] slots, uint64_t[::1] label_high,
                 uint64_t[::1] link_high, uint32_t[::1] path):
    cdef int64_t i, a = 0, b = 0, end, shared, height = 0, at = 0, node = 0, parent, bit, used = 0
    cdef uint64_t value
    with nogil:
        topology[0] |= 1  # the super-root
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            shared = common(&tokens[0], a, b, end)
            while height and path[height - 1] > shared:
                height -= 1
            while shared < end - b:
                parent = next_node[height - 1] - 1 if height else 0
                node = next_node[height]
                next_node[height] += 1
                bit = node + parent + 1
                topology[bit >> 6] |= <uint64_t>1 << (bit & 63)
                if ends[at] - shared > 1:
                    value = links[used]
                    used += 1
                    link[node >> 6] |= <uint64_t>1 << (node & 63)
                    if link_width:
                        packed_put(&link_high[0], link_width, next_link[height], value >> 16)
                    next_link[height] += 1
                else:
                    value = tokens[b + shared]
                    if label_width:
                        packed_put(&label_high[0], label_width, node - next_link[height],
                                   value >> 16)
                slots[node] = <uint16_t>value
                shared = ends[at]
                path[height] = ends[at]
                height += 1
                at += 1
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


def gather_backwards(table, const int64_t[::1] last, const int64_t[::1] offsets,
                     const uint32_t[::1] ranks, uint32_t[::1] out):
    """Pieces of the table backwards, one after another: each from its last token, at ``last[i]``,
    as far as it has room in `out`. The rank of a token stands for it, unless `ranks` is empty."""
    if out.shape[0]:
        _gather_backwards(table.tokens, last, offsets, ranks, out)


def _gather_backwards(token_t[::1] tokens, const int64_t[::1] last, const int64_t[::1] offsets,
                      const uint32_t[::1] ranks, uint32_t[::1] out):
    cdef int64_t i, j, at
    cdef const uint32_t *rank = &ranks[0] if ranks.shape[0] else NULL
    with nogil:
        for i in range(last.shape[0]):
            at = last[i] + offsets[i]
            for j in range(offsets[i], offsets[i + 1]):
                out[j] = rank[tokens[at - j]] if rank else <uint32_t>tokens[at - j]


def merge_suffixes(const uint32_t[::1] backwards, const int64_t[::1] offsets,
                   const uint32_t[::1] behind, int64_t link, uint32_t width, int64_t used,
                   uint64_t[::1] tail, uint64_t[::1] tail_end, uint64_t[::1] links):
    """Lay chains out so that one that is a suffix of another shares its place.

    A chain is a suffix of another only if, backwards, it is a prefix of its successor in their
    order; so they are gone through from the last to the first.

    Parameters
    ----------
    backwards, offsets
        The chains in ascending order, each backwards.
    behind, link
        The chain behind them all, or nothing, and where it begins in the tail.
    used
        Length of the tail so far.
    tail, tail_end
        Zeroed words: of the packed tokens, `width` bits each, and of the bits that mark the last
        token of a chain.
    links : uint64 [chains]
        Gets where each chain begins.

    Returns
    -------
    used : int
        Length of the tail then.
    """
    return _merge_suffixes(backwards, offsets, behind, link, width, used, tail, tail_end, links)


def _merge_suffixes(const uint32_t[::1] backwards, const int64_t[::1] offsets,
                    const uint32_t[::1] behind, int64_t next_link, uint32_t width, int64_t used,
                    uint64_t[::1] tail, uint64_t[::1] tail_end, uint64_t[::1] links):
    cdef int64_t j, h, length, next_length = behind.shape[0]
    cdef const uint32_t *chain
    cdef const uint32_t *next_chain = &behind[0] if next_length else NULL
    with nogil:
        for j in range(links.shape[0] - 1, -1, -1):
            chain = &backwards[0] + offsets[j]
            length = offsets[j + 1] - offsets[j]
            h = 0
            if length <= next_length:
                while h < length and chain[h] == next_chain[h]:
                    h += 1
            if h == length:
                next_link += next_length - length
            else:
                next_link = used
                if width:
                    for h in range(length):
                        packed_put(&tail[0], width, used + h, chain[length - 1 - h])
                used += length
                tail_end[(used - 1) >> 6] |= <uint64_t>1 << ((used - 1) & 63)
            links[j] = next_link
            next_chain, next_length = chain, length
    return used


def count_rests(heads, int64_t[::1] n_heads, int64_t[::1] n_rests):
    """Count what lies behind the heads of keys, by the length of the head.

    `n_heads` and `n_rests`, int64 [max_length + 1] of the keys, come zeroed and get all heads and
    those with a rest.

    Returns
    -------
    longest, n_tokens : int
        Length of the longest rest, and the sum of all lengths.
    """
    return _count_rests(heads.tokens, Keys(heads), n_heads, n_rests)


def _count_rests(token_t[::1] tokens, Keys keys, int64_t[::1] n_heads, int64_t[::1] n_rests):
    cdef int64_t i, b = 0, end, next, shared = 0, longest = 0, n_tokens = 0
    with nogil:
        for i in range(keys.n):
            next = start_of(keys.offsets, keys.fixed, i + 1)
            end = end_of(&tokens[0], keys, i, b, next, &shared)
            n_heads[end - b] += 1
            if end < next:
                n_rests[end - b] += 1
                n_tokens += next - end
                longest = max(longest, next - end)
            b = next
    return longest, n_tokens


def list_rests(heads, span_t[::1] spans, uint64_t[::1] last, int64_t[::1] counts):
    """The lengths of all rests into `spans`; the zeroed words `last` get a bit for the last token
    of each in the table, and `counts`, unless empty, one more for each token."""
    _list_rests(heads.tokens, Keys(heads), spans, last, counts)


def _list_rests(token_t[::1] tokens, Keys keys, span_t[::1] spans, uint64_t[::1] last,
                int64_t[::1] counts):
    cdef int64_t i, j, b = 0, end, next, shared = 0, used = 0
    with nogil:
        for i in range(keys.n):
            next = start_of(keys.offsets, keys.fixed, i + 1)
            end = end_of(&tokens[0], keys, i, b, next, &shared)
            if end < next:
                spans[used] = <span_t>(next - end)
                used += 1
                last[(next - 1) >> 6] |= <uint64_t>1 << ((next - 1) & 63)
                if counts.shape[0]:
                    for j in range(end, next):
                        counts[tokens[j]] += 1
            b = next


def places_of(const uint8_t[::1] array, int value, int64_t[::1] out):
    """Where a byte stands in an array, as far as there is room; returns how often it was found."""
    cdef const uint8_t *found
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t used = 0
    if array.shape[0]:
        at = &array[0]
        end = at + array.shape[0]
        with nogil:
            while used < out.shape[0]:
                found = <const uint8_t *>memchr(at, value, end - at)
                if found == NULL:
                    break
                out[used] = found - &array[0]
                used += 1
                at = found + 1
    return used


def by_number(heads, int64_t[::1] head, int64_t[::1] rest, const uint64_t[::1] links,
              uint32_t width, uint64_t[::1] has, uint64_t[::1] out, uint32_t out_width):
    """Put what belongs to the rests of keys, packed, into the order of the numbers of heads.

    `head` and `rest` say for each length of a head how many heads and rests come before it; they
    are advanced. The zeroed words `has` get a bit for each head with a rest.
    """
    _by_number(heads.tokens, Keys(heads), head, rest, links, width, has, out, out_width)


def _by_number(token_t[::1] tokens, Keys keys, int64_t[::1] head, int64_t[::1] rest,
               const uint64_t[::1] links, uint32_t width, uint64_t[::1] has, uint64_t[::1] out,
               uint32_t out_width):
    cdef int64_t i, b = 0, end, next, shared = 0, number, used = 0
    cdef packed_t packed = view_of(links, width)
    with nogil:
        for i in range(keys.n):
            next = start_of(keys.offsets, keys.fixed, i + 1)
            end = end_of(&tokens[0], keys, i, b, next, &shared)
            number = head[end - b]
            head[end - b] += 1
            if end < next:
                has[number >> 6] |= <uint64_t>1 << (number & 63)
                packed_put(&out[0], out_width, rest[end - b], packed_get(&packed, used))
                rest[end - b] += 1
                used += 1
            b = next


cdef packed_t view_of(const uint64_t[::1] words, uint32_t width):
    cdef packed_t view
    view.words, view.length, view.width = &words[0], 0, width  # nobody asks for the length
    view.mask = (<uint64_t>1 << width) - 1
    return view


def replace_packed(uint64_t[::1] words, uint32_t width, const int64_t[::1] places,
                   const int64_t[::1] values):
    """Write values of a packed array at some places, whatever stands there."""
    cdef int64_t i
    cdef uint64_t at, shift, value, mask = (<uint64_t>1 << width) - 1
    with nogil:
        for i in range(places.shape[0]):
            at = places[i] * width
            value = values[i]
            shift = at & 63
            at >>= 6
            words[at] = (words[at] & ~(mask << shift)) | value << shift
            if shift + width > 64:
                at += 1
                words[at] = (words[at] & ~(mask >> (64 - shift))) | value >> (64 - shift)


def put_packed(uint64_t[::1] words, uint32_t width, int64_t first, const int64_t[::1] values):
    """Write a run of values of a packed array into its zeroed words, from number `first` on."""
    cdef int64_t i
    if width == 0:
        return
    with nogil:
        for i in range(values.shape[0]):
            packed_put(&words[0], width, first + i, <uint64_t>values[i])


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
    n_keys, used = _sample_rests(table.tokens, Keys(table), bits, origin, span)
    return None if used > room else (origin[:used], span[:used], n_keys)


def _sample_rests(token_t[::1] tokens, Keys keys, uint32_t bits, int64_t[::1] origin,
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
