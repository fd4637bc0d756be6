# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Chains of prefixes with a single continuation, cut out of sorted keys and folded.

As in ``_levels``, keys are distinct and in lexicographic order.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from succinct.bits.bitvector cimport packed_get, packed_put, packed_t
from succinct.trie._keys cimport Keys, common, end_of, start_of, token_t

import numpy as np

from succinct._scratch import scratch
from succinct.keys.sequences import narrowest

ctypedef fused span_t:
    uint8_t
    uint16_t
    uint32_t

cdef extern from "succinct/keys/compare.h" nogil:
    uint64_t splitters_upto(const uint64_t *, uint64_t, uint64_t) noexcept

cdef extern from * nogil:
    int __builtin_ctzll(unsigned long long) noexcept


cdef struct ones_t:
    const uint64_t *words
    int64_t word, n_words, length
    uint64_t rest


cdef ones_t ones_of(const uint64_t[::1] words, int64_t length):
    """The ones of a bit-vector of some length, for `next_of`."""
    cdef ones_t ones
    ones.words, ones.word, ones.n_words, ones.length = &words[0], 0, words.shape[0], length
    ones.rest = words[0]
    return ones


cdef inline int64_t next_of(ones_t *ones) noexcept nogil:
    """The place of the next one; behind the last one, the length."""
    cdef int64_t at
    while ones.rest == 0:
        ones.word += 1
        if ones.word == ones.n_words:
            ones.word -= 1
            return ones.length
        ones.rest = ones.words[ones.word]
    at = 64 * ones.word + __builtin_ctzll(ones.rest)
    ones.rest &= ones.rest - 1
    return at


cdef inline void set_bit(uint64_t[::1] words, int64_t at) noexcept nogil:
    words[at >> 6] |= <uint64_t>1 << (at & 63)


def find_chains(table, int64_t max_chain, uint64_t[::1] starts, span_t[::1] spans,
                uint64_t[::1] last):
    """What is left of the prefixes when single-child chains are folded.

    A prefix stays a node if it is a key or has several continuations; a chain longer than
    `max_chain` is cut. The edge to a node is marked where its tokens lie in the table, in the key
    that is the first to have them: the zeroed words `starts` get a bit for the first token, and if
    there are several, a *chain*, `last` one for the last token. The lengths of chains, in the order
    of the table, come to the end of `spans`.

    Returns
    -------
    n_links, n_tokens, longest, largest : int
        Chains, all tokens in them, those of the longest one, and the largest of them.
    """
    path = np.empty(table.max_length + 1, np.uint32)
    return _find_chains(table.tokens, Keys(table), max_chain, starts, spans, last, path)


def _find_chains(token_t[::1] tokens, Keys keys, int64_t max_chain, uint64_t[::1] starts,
                 span_t[::1] spans, uint64_t[::1] last, uint32_t[::1] path):
    # From the last key to the first: `path` holds the known branchings above the key, and those
    # that later keys show. All branchings that key i is the first to have are known at key i.
    cdef int64_t i, j, b, end, shared, height = 0, at = spans.shape[0], top, length, below, stop
    cdef int64_t shared_next = 0, before, n_tokens = 0, longest = 0, span
    cdef uint32_t largest = 0
    end = start_of(keys.offsets, keys.fixed, keys.n)
    with nogil:
        for i in range(keys.n - 1, -1, -1):
            b = start_of(keys.offsets, keys.fixed, i)
            length = end - b
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
                before = start_of(keys.offsets, keys.fixed, i - 1)
                shared = common(&tokens[0], before, b, end)
            top = height
            while top and path[top - 1] > shared:
                top -= 1
                stop = path[top]
                below = max(shared, <int64_t>path[top - 1] if top else 0)
                # Chains are cut from the top, every max_chain tokens.
                length = stop - below
                length -= (length - 1) % max_chain + 1
                while stop > below:
                    set_bit(starts, b + below + length)
                    span = stop - below - length
                    if span > 1:
                        at -= 1
                        spans[at] = <span_t>span
                        set_bit(last, b + stop - 1)
                        n_tokens += span
                        longest = max(longest, span)
                        for j in range(b + below + length, b + stop):
                            largest = max(largest, <uint32_t>tokens[j])
                    stop = below + length
                    length -= max_chain
            shared_next = shared
            end = b
    return spans.shape[0] - at, n_tokens, longest, largest


def count_nodes(table, const uint64_t[::1] starts, int64_t[::1] n_nodes, int64_t[::1] n_links):
    """Count the nodes, and those of them with a chain of tokens, by their depth.

    `n_nodes` and `n_links`, int64 [max_length], come zeroed; the children of the root come first.
    """
    cdef Keys keys = Keys(table)
    cdef uint32_t[::1] path = np.empty(table.max_length + 1, np.uint32)
    cdef ones_t ones = ones_of(starts, len(table.tokens))
    cdef int64_t i, b = 0, end, height = 0, start = next_of(&ones), stop
    with nogil:
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            while height and path[height - 1] > start - b:
                height -= 1
            while start < end:
                stop = next_of(&ones)
                n_nodes[height] += 1
                n_links[height] += min(stop, end) - start > 1
                path[height] = <uint32_t>(min(stop, end) - b)
                height += 1
                start = stop
            b = end


def fill_chains(table, const uint64_t[::1] starts, int64_t[::1] next_node, int64_t[::1] next_link,
                const uint64_t[::1] links, uint32_t width, uint32_t label_width,
                uint32_t link_width, uint64_t[::1] topology, uint64_t[::1] terminal,
                uint64_t[::1] link, uint16_t[::1] slots, uint64_t[::1] label_high,
                uint64_t[::1] link_high):
    """Fill the zeroed arrays of a LOUDS trie with one node for every one of `starts`.

    `links`, packed in `width` bits, says where each chain begins in the tail, in the order of the
    table. A node whose edge has one token gets that token's low 16 bits as its slot, its high bits
    at its place among such nodes (the root counts as one); a link node likewise its link.
    `next_node` and `next_link` are the number of the first node of each depth and how many links
    come before it.
    """
    path = np.empty(table.max_length + 1, np.uint32)
    _fill_chains(table.tokens, Keys(table), starts, next_node, next_link, links, width, label_width,
                 link_width, topology, terminal, link, slots, label_high, link_high, path)


def _fill_chains(token_t[::1] tokens, Keys keys, const uint64_t[::1] starts,
                 int64_t[::1] next_node, int64_t[::1] next_link, const uint64_t[::1] packed_links,
                 uint32_t width, uint32_t label_width, uint32_t link_width,
                 uint64_t[::1] topology, uint64_t[::1] terminal, uint64_t[::1] link,
                 uint16_t[::1] slots, uint64_t[::1] label_high, uint64_t[::1] link_high,
                 uint32_t[::1] path):
    cdef ones_t ones = ones_of(starts, tokens.shape[0])
    cdef packed_t links = view_of(packed_links, width)
    cdef int64_t i, b = 0, end, height = 0, node = 0, parent, used = 0, start = next_of(&ones), stop
    cdef uint64_t value
    with nogil:
        topology[0] |= 1  # the super-root
        for i in range(keys.n):
            end = start_of(keys.offsets, keys.fixed, i + 1)
            while height and path[height - 1] > start - b:
                height -= 1
            while start < end:
                stop = next_of(&ones)
                parent = next_node[height - 1] - 1 if height else 0
                node = next_node[height]
                next_node[height] += 1
                set_bit(topology, node + parent + 1)
                if min(stop, end) - start > 1:
                    value = packed_get(&links, used)
                    used += 1
                    set_bit(link, node)
                    if link_width:
                        packed_put(&link_high[0], link_width, next_link[height], value >> 16)
                    next_link[height] += 1
                else:
                    value = tokens[start]
                    if label_width:
                        packed_put(&label_high[0], label_width, node - next_link[height],
                                   value >> 16)
                slots[node] = <uint16_t>value
                path[height] = <uint32_t>(min(stop, end) - b)
                height += 1
                start = stop
            set_bit(terminal, node)
            b = end


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


def part_ends(table, const uint64_t[::1] last, const span_t[::1] spans,
              const uint32_t[::1] ranks, int bits, int64_t count, const uint64_t[::1] splitters,
              uint8_t[::1] parts, int64_t[::1] sizes):
    """``parts[i]`` = how many of the splitters, a power of two less one, are not above the last
    `count` tokens of piece i, or their ranks, each plus one in `bits` bits, the last one highest.
    Adds up the pieces of each part."""
    _part_ends(table.tokens, last, spans, ranks, bits, count, splitters, parts, sizes)


def _part_ends(token_t[::1] tokens, const uint64_t[::1] last, const span_t[::1] spans,
               const uint32_t[::1] ranks, int bits, int64_t count, const uint64_t[::1] splitters,
               uint8_t[::1] parts, int64_t[::1] sizes):
    cdef ones_t ones = ones_of(last, tokens.shape[0])
    cdef int64_t i, j, at, n, part
    cdef uint64_t word
    cdef const uint32_t *rank = &ranks[0] if ranks.shape[0] else NULL
    with nogil:
        for i in range(spans.shape[0]):
            at = next_of(&ones)
            n = min(<int64_t>spans[i], count)
            word = 0
            for j in range(at, at - n, -1):
                word = (word << bits) + (rank[tokens[j]] if rank else <uint64_t>tokens[j]) + 1
            if n < count:
                word <<= bits * (count - n)
            part = splitters_upto(&splitters[0], splitters.shape[0], word)
            parts[i] = <uint8_t>part
            sizes[part] += 1


def merge_suffixes(const uint32_t[::1] backwards, const int64_t[::1] offsets,
                   const int64_t[::1] order, const uint32_t[::1] behind, int64_t link,
                   uint32_t width, int64_t used, uint64_t[::1] tail, uint64_t[::1] tail_end,
                   const int64_t[::1] places, uint32_t link_width, uint64_t[::1] links):
    """Lay chains out so that one that is a suffix of another shares its place.

    A chain is a suffix of another only if, backwards, it is a prefix of its successor in their
    order; so they are gone through from the last to the first.

    Parameters
    ----------
    backwards, offsets, order
        The chains, each backwards, and their ascending order.
    behind, link
        The chain behind them all, or nothing, and where it begins in the tail.
    used
        Length of the tail so far.
    tail, tail_end
        Zeroed words: of the packed tokens, `width` bits each, and of the bits that mark the last
        token of a chain.
    places, links
        Zeroed words get where each chain begins, packed in `link_width` bits, at its place.

    Returns
    -------
    used, link : int
        Length of the tail then, and where the first chain in the order begins.
    """
    return _merge_suffixes(backwards, offsets, order, behind, link, width, used, tail, tail_end,
                           places, link_width, links)


def _merge_suffixes(const uint32_t[::1] backwards, const int64_t[::1] offsets,
                    const int64_t[::1] order, const uint32_t[::1] behind, int64_t next_link,
                    uint32_t width, int64_t used, uint64_t[::1] tail, uint64_t[::1] tail_end,
                    const int64_t[::1] places, uint32_t link_width, uint64_t[::1] links):
    cdef int64_t i, j, h, length, next_length = behind.shape[0]
    cdef const uint32_t *chain
    cdef const uint32_t *next_chain = &behind[0] if next_length else NULL
    with nogil:
        for j in range(order.shape[0] - 1, -1, -1):
            i = order[j]
            chain = &backwards[0] + offsets[i]
            length = offsets[i + 1] - offsets[i]
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
                set_bit(tail_end, used - 1)
            packed_put(&links[0], link_width, places[i], next_link)
            next_chain, next_length = chain, length
    return used, next_link


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
                set_bit(last, next - 1)
                if counts.shape[0]:
                    for j in range(end, next):
                        counts[tokens[j]] += 1
            b = next


def places_of(const uint8_t[::1] array, uint8_t value, int64_t[::1] out):
    """Where a byte stands in an array, as far as there is room; returns how often it was found."""
    cdef int64_t i, at = 0, used = 0, n = array.shape[0], room = out.shape[0]
    cdef uint64_t bytes, low = 0x7F7F7F7F7F7F7F7F, pattern = <uint64_t>value * 0x0101010101010101
    with nogil:
        while at + 8 <= n and used < room:
            memcpy(&bytes, &array[at], 8)
            bytes ^= pattern
            # The upper bit of each byte that is zero: adding carries into it unless it is.
            bytes = ~(((bytes & low) + low) | bytes | low)
            while bytes and used < room:
                out[used] = at + (__builtin_ctzll(bytes) >> 3)
                used += 1
                bytes &= bytes - 1
            at += 8
        for i in range(at, n):
            if array[i] == value and used < room:
                out[used] = i
                used += 1
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
                set_bit(has, number)
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
    origin, span = scratch(room, np.int64), scratch(room, np.uint32)
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
