"""Scalar navigation over a `StepMap`, for compilation by numba; see `succinct.bits.lanes`.

The layout is that of steps.h: one bit-vector, one array of integers, and a table that says where
each step finds its own. The functions take any state that the index itself gave out, and DEAD.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import (
    BitLanes,
    get_bit,
    get_bits,
    lowest_one,
    next_one,
    next_zero,
    popcount,
    rank1,
    select0,
    select1,
    select_in_word,
)
from succinct.maps.huffman import huffman_find, huffman_list, huffman_token
from succinct.maps.layout import (
    BITMAP,
    COLUMN,
    DAC,
    EXTRAS,
    HUFFMAN,
    JOINT,
    ONE,
    PACKED,
    RICE,
    STARTS,
)
from succinct.maps.rice import rice_find, rice_list, rice_row, rice_token

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.uint64(0)
# A row with this many buckets or fewer is scanned from its begin; a longer one is selected in.
_SHORT = np.int64(512)

_ENTRIES = COLUMN["entries"]
_START = COLUMN["start"]
_LOW = COLUMN["low"]
_ROWS = COLUMN["rows"]
_RANGE = COLUMN["range"]
_KIND = COLUMN["kind"]
_WIDTH = COLUMN["width"]
_BUCKETS = COLUMN["buckets"]
_TOKENS_AT = COLUMN["tokens_at"]
_WIDTH2 = COLUMN["width2"]
_WIDTH3 = COLUMN["width3"]
_CHUNK2_AT = COLUMN["chunk2_at"]
_CHUNK3_AT = COLUMN["chunk3_at"]
_MORE2_AT = COLUMN["more2_at"]
_MORE2_ONES = COLUMN["more2_ones"]
_MORE3_AT = COLUMN["more3_at"]
_MORE3_ONES = COLUMN["more3_ones"]
_ROWS_KIND = COLUMN["rows_kind"]
_ROWS_WIDTH = COLUMN["rows_width"]
_ROWS_AT = COLUMN["rows_at"]
_TREE_AT = COLUMN["tree_at"]
_TREE_ONES = COLUMN["tree_ones"]
_INNER_ROWS = COLUMN["inner_rows"]
_INNER_AT = COLUMN["inner_at"]
_INNER_ONES = COLUMN["inner_ones"]
_FINAL_KEYS = COLUMN["final_keys"]
_FINAL_AT = COLUMN["final_at"]
_FINAL_ONES = COLUMN["final_ones"]
_FIRST_KEY = COLUMN["first_key"]

_Step = NDArray[np.int64]


class StepLanes(NamedTuple):
    """Arrays of a `StepMap`.

    Attributes
    ----------
    bits : BitLanes
        All bit-vectors, one after another.
    values : uint64 array
        All integers.
    table : int64 array [steps, columns]
        Where the parts of each step lie; the columns are those of `succinct.maps.layout`.
    tails : int64 array [2, columns]
        Likewise for the labels of the nodes of the tails, and for the links to them; or no rows.
    n_states : int64
    shift : int64
        Bits of a state below its place in a tail.
    vocab_at, vocab_width, vocab_size : int64
        Tokens by frequency: place in `values`, bits a token, number.
    """

    bits: BitLanes
    values: NDArray[np.uint64]
    table: NDArray[np.int64]
    tails: NDArray[np.int64]
    n_states: np.int64
    shift: np.int64
    vocab_at: np.int64
    vocab_width: np.int64
    vocab_size: np.int64


def _value(index: StepLanes, at: np.int64, width: np.int64) -> np.int64:
    return np.int64(get_bits(index.values, at, width))


def _bound(
    index: StepLanes, at: np.int64, width: np.int64, begin: np.int64, end: np.int64, key: np.int64
) -> np.int64:
    """The first of the sorted integers [begin, end) that is not below `key`, or `end`."""
    while begin < end:
        middle = (begin + end) >> 1
        if _value(index, at + middle * width, width) < key:
            begin = middle + 1
        else:
            end = middle
    return begin


def _depth(index: StepLanes, state: np.uint64) -> np.int64:
    """Length of the prefix that `state`, not DEAD, stands for."""
    number = np.int64(state)
    low = np.int64(0)
    high = np.int64(len(index.table))
    while low < high:
        middle = (low + high) >> 1
        if index.table[middle, _START] <= number:
            low = middle + 1
        else:
            high = middle
    return low


def _row(index: StepLanes, depth: np.int64, state: np.uint64) -> np.int64:
    """Number of the row of continuations of `state` in its step, or -1 if it has none."""
    if depth == 0:
        return np.int64(0)
    level = depth - 1
    e = np.int64(state) - index.table[level, _START]
    inner = index.table[level, _INNER_ROWS]
    if inner == index.table[level, _ENTRIES]:
        return np.int64(e)
    if inner == 0 or not get_bit(index.bits, index.table[level, _INNER_AT] + e):
        return np.int64(-1)
    return _rows_before(index, index.table[level], e)


def _rows_before(index: StepLanes, step: _Step, e: np.int64) -> np.int64:
    """Entries before `e` in a step that have continuations; 0 <= e <= number of entries."""
    inner = step[_INNER_ROWS]
    if inner == step[_ENTRIES]:
        return e
    if inner == 0:
        return np.int64(0)
    return np.int64(rank1(index.bits, step[_INNER_AT] + e) - step[_INNER_ONES])


def _keys_before(index: StepLanes, step: _Step, e: np.int64) -> np.int64:
    """Keys before entry `e` of a step, those of the steps before included."""
    p = _rows_before(index, step, e)
    number = step[_FIRST_KEY] + e - p
    final = step[_FINAL_KEYS]
    if final == step[_INNER_ROWS]:
        number += p
    elif final != 0:
        number += rank1(index.bits, step[_FINAL_AT] + p) - step[_FINAL_ONES]
    return np.int64(number)


def _zeros(step: _Step) -> np.int64:
    """Zeros before the tree of a step."""
    return np.int64(step[_TREE_AT] - step[_TREE_ONES])


def _bounds(index: StepLanes, step: _Step, p: np.int64) -> tuple[np.int64, np.int64]:
    """Where row `p` begins and ends, by the boundaries under tokens."""
    kind = step[_ROWS_KIND]
    if kind == ONE:
        return p, np.int64(p + 1)
    width = step[_ROWS_WIDTH]
    rows_at = step[_ROWS_AT]
    tree = step[_TREE_AT]
    limit = np.int64(len(index.bits.words)) << 6
    if kind == STARTS:
        at = select1(index.bits, step[_TREE_ONES] + p)
        end = next_one(index.bits, at + 1, limit) - tree - p - 1
        begin = at - tree - p
        if width != 0:
            begin = (begin << width) | _value(index, rows_at + p * width, width)
            end = (end << width) | _value(index, rows_at + (p + 1) * width, width)
        begin += p
        end += p + 1
    elif kind == EXTRAS:
        bucket = p >> width
        mask = (np.int64(1) << width) - 1
        low = p & mask
        at = select0(index.bits, _zeros(step) + bucket)
        extra = at - tree - bucket
        last = extra + next_zero(index.bits, at + 1, limit) - at - 1
        extra = _bound(index, rows_at, width, extra, last, low)
        begin = p + extra
        if low != mask:
            last = _bound(index, rows_at, width, extra, last, low + 1)
        end = p + 1 + last
    else:
        begin = _value(index, rows_at + p * width, width)
        end = _value(index, rows_at + (p + 1) * width, width)
    entries = step[_ENTRIES]
    # A damaged file can hold anything here.
    begin = min(max(begin, np.int64(0)), entries)
    end = min(max(end, begin), entries)
    return begin, end


def _entries(index: StepLanes, step: _Step, p: np.int64) -> tuple[np.int64, np.int64]:
    """Where row `p` begins and ends."""
    if step[_KIND] == BITMAP:
        at = step[_TREE_AT] + p * step[_RANGE]
        begin = rank1(index.bits, at) - step[_TREE_ONES]
        return begin, np.int64(rank1(index.bits, at + step[_RANGE]) - step[_TREE_ONES])
    if step[_KIND] == JOINT:
        bucket = p * step[_BUCKETS]
        begin = select0(index.bits, _zeros(step) + bucket) - step[_TREE_AT] - bucket
        bucket += step[_BUCKETS]
        end = select0(index.bits, _zeros(step) + bucket) - step[_TREE_AT] - bucket
        return begin, end
    if step[_KIND] == RICE:
        begin, length, _ = rice_row(index.values, step, p)
        return begin, np.int64(begin + length)
    return _bounds(index, step, p)


def _code(index: StepLanes, step: _Step, e: np.int64) -> np.int64:
    """Integer `e` of those in direct-access codes."""
    width = step[_WIDTH]
    width2 = step[_WIDTH2]
    width3 = step[_WIDTH3]
    code = _value(index, step[_TOKENS_AT] + e * width, width)
    if width2 != 0 and get_bit(index.bits, step[_MORE2_AT] + e):
        e = rank1(index.bits, step[_MORE2_AT] + e) - step[_MORE2_ONES]
        code |= _value(index, step[_CHUNK2_AT] + e * width2, width2) << width
        if width3 != 0 and get_bit(index.bits, step[_MORE3_AT] + e):
            e = rank1(index.bits, step[_MORE3_AT] + e) - step[_MORE3_ONES]
            code |= _value(index, step[_CHUNK3_AT] + e * width3, width3) << (width + width2)
    return np.int64(code)


def _coded(index: StepLanes, step: _Step, e: np.int64) -> np.int64:
    """Token of entry `e` from its direct-access code; -1 if a damaged file has none."""
    code = _code(index, step, e)
    if code >= index.vocab_size:
        return np.int64(-1)
    return _value(index, index.vocab_at + code * index.vocab_width, index.vocab_width)


def _nth_bit(index: StepLanes, at: np.int64, k: np.int64, flip: np.uint64) -> np.int64:
    """Place of the one numbered `k` at or after `at`, which exists; of a zero if `flip` is all
    ones."""
    words = index.bits.words
    j = at >> 6
    word = (words[j] ^ flip) & (_ALL << np.uint64(at & 63))
    count = popcount(word)
    while k >= count and j + 1 < len(words):
        k -= count
        j += 1
        word = words[j] ^ flip
        count = popcount(word)
    return np.int64((j << 6) + select_in_word(word, k))


def _token(index: StepLanes, step: _Step, p: np.int64, first: np.int64, k: np.int64) -> np.int64:
    """Token of entry `k` of row `p`, which begins with entry `first`."""
    e = first + k
    kind = step[_KIND]
    if kind == PACKED:
        width = step[_WIDTH]
        return np.int64(step[_LOW] + _value(index, step[_TOKENS_AT] + e * width, width))
    if kind == DAC:
        return _coded(index, step, e)
    if kind == RICE:
        return np.int64(step[_LOW] + rice_token(index.values, step, p, k))
    if kind == HUFFMAN:
        return np.int64(step[_LOW] + huffman_token(index.bits, index.values, step, p, k))
    # Where the row begins in the tree follows from how many ones and zeros come before it.
    per_row = step[_RANGE]
    begin = step[_TREE_AT] + p * per_row
    if kind == JOINT:
        per_row = step[_BUCKETS]
        begin = step[_TREE_AT] + p * per_row + first
    if per_row <= _SHORT:
        at = _nth_bit(index, begin, k, _NONE) - step[_TREE_AT]
    else:
        at = select1(index.bits, step[_TREE_ONES] + e) - step[_TREE_AT]
    if kind == BITMAP:
        return np.int64(step[_LOW] + at - p * step[_RANGE])
    width = step[_WIDTH]
    low = _value(index, step[_TOKENS_AT] + e * width, width)
    return np.int64(step[_LOW] + (((at - 1 - e - p * step[_BUCKETS]) << width) | low))


def _in_tail(index: StepLanes, state: np.uint64) -> np.int64:
    """Node of the next token of a state, not DEAD, inside a tail, 0 at its end; else -1."""
    return np.int64(np.int64(state >> np.uint64(index.shift)) - 1)


def _key_in_tail(index: StepLanes, state: np.uint64) -> np.int64:
    return np.int64(state & ((np.uint64(1) << np.uint64(index.shift)) - np.uint64(1)))


def _has_tail(index: StepLanes, key: np.int64) -> bool:
    if len(index.tails) == 0:
        return False
    links = index.tails[1]
    return bool(links[_ENTRIES] == links[_ROWS] or get_bit(index.bits, links[_INNER_AT] + key))


def _link(index: StepLanes, key: np.int64) -> np.int64:
    """Node where the tail of a key begins that has one."""
    links = index.tails[1]
    place = key
    if links[_ENTRIES] != links[_ROWS]:
        place = rank1(index.bits, links[_INNER_AT] + key) - links[_INNER_ONES]
    # Nodes are bounded by their number, whatever a damaged file says.
    return np.int64(min(_code(index, links, place) + 1, index.tails[0, _ENTRIES]))


def _label(index: StepLanes, node: np.int64) -> np.int64:
    nodes = index.tails[0]
    if nodes[_KIND] == DAC:
        return _coded(index, nodes, node - 1)
    return np.int64(nodes[_LOW] + _code(index, nodes, node - 1))


def _behind(index: StepLanes, node: np.int64, key: np.int64) -> np.uint64:
    """State behind the token of a node, in the tail of a key."""
    nodes = index.tails[0]
    above = select1(index.bits, nodes[_TREE_ONES] + node - 1) - nodes[_TREE_AT] - (node - 1)
    if above >= node:
        above = np.int64(0)
    return np.uint64((np.uint64(above + 1) << np.uint64(index.shift)) | np.uint64(key))


def _tail_below(index: StepLanes, depth: np.int64, state: np.uint64) -> np.int64:
    """Key whose tail begins at a state that has no continuation in the steps, or -1."""
    if len(index.tails) == 0 or depth == 0:
        return np.int64(-1)
    key = _number(index, depth, state)
    if key >= 0 and _has_tail(index, key):
        return key
    return np.int64(-1)


def child_range(index: StepLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """The first entry of the continuations of `state`, and how many there are.

    The first value is meant for `find_child` and `nth_child`. That of a tail is below 0: less the
    node of its next token.
    """
    if state == _DEAD:
        return np.int64(0), np.int64(0)
    node = _in_tail(index, state)
    if node >= 0:
        return np.int64(-node), np.int64(node != 0)
    depth = _depth(index, state)
    p = np.int64(-1)
    if depth < len(index.table):
        p = _row(index, depth, state)
    if p < 0:
        key = _tail_below(index, depth, state)
        if key < 0:
            return np.int64(0), np.int64(0)
        return np.int64(-_link(index, key)), np.int64(1)
    begin, end = _entries(index, index.table[depth], p)
    return begin, np.int64(end - begin)


def nth_child(
    index: StepLanes, state: np.uint64, first: np.int64, k: np.int64
) -> tuple[np.int64, np.uint64]:
    """Token and state of continuation `k`, below the count that `child_range` gave with `first`."""
    if first < 0:
        return _label(index, -first), _behind(index, -first, _tail_key(index, state))
    depth = _depth(index, state)
    step = index.table[depth]
    p = np.int64(0)
    if step[_KIND] < PACKED or step[_KIND] >= RICE:
        p = _row(index, depth, state)
    return _token(index, step, p, first, k), np.uint64(step[_START] + first + k)


def list_children(
    index: StepLanes,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    tokens: NDArray[np.uint32],
    states: NDArray[np.uint64],
    at: np.int64,
) -> None:
    """Write tokens and states of all continuations from place `at` on; as from `child_range`."""
    if count == 0:
        return
    if first < 0:
        token, child = nth_child(index, state, first, np.int64(0))
        tokens[at] = token & 0xFFFFFFFF
        states[at] = child
        return
    depth = _depth(index, state)
    step = index.table[depth]
    kind = step[_KIND]
    width = step[_WIDTH]
    low = step[_LOW]
    start = step[_START] + first
    if kind == PACKED:
        place = step[_TOKENS_AT] + first * width
        for k in range(count):
            tokens[at + k] = low + _value(index, place + k * width, width)
            states[at + k] = start + k
    elif kind == DAC:
        for k in range(count):
            tokens[at + k] = _coded(index, step, first + k) & 0xFFFFFFFF
            states[at + k] = start + k
    elif kind >= RICE:
        p = _row(index, depth, state)
        if kind == RICE:
            rice_list(index.values, step, p, count, tokens, at)
        else:
            huffman_list(index.bits, index.values, step, p, count, tokens, at)
        for k in range(count):
            states[at + k] = start + k
    else:
        # The ones of the row in the tree, word by word; JOINT counts the ones before as well.
        p = _row(index, depth, state)
        origin = step[_TREE_AT] + p * step[_RANGE]
        place = origin
        if kind == JOINT:
            origin = step[_TREE_AT] + 1 + first + p * step[_BUCKETS]
            place = origin - 1
        words = index.bits.words
        j = place >> 6
        word = words[j] & (_ALL << np.uint64(place & 63))
        for k in range(count):
            while word == _NONE and j + 1 < len(words):
                j += 1
                word = words[j]
            token = (j << 6) + lowest_one(word) - origin
            if kind == JOINT:
                entry = step[_TOKENS_AT] + (first + k) * width
                token = ((token - k) << width) | _value(index, entry, width)
            tokens[at + k] = (low + token) & 0xFFFFFFFF
            states[at + k] = start + k
            word &= word - np.uint64(1)


def find_child(
    index: StepLanes, state: np.uint64, first: np.int64, count: np.int64, token: np.int64
) -> np.uint64:
    """State after `token`, or DEAD; `first` and `count` as from `child_range`."""
    if count == 0:
        return _DEAD
    if first < 0:
        if _label(index, -first) != token:
            return _DEAD
        return _behind(index, -first, _tail_key(index, state))
    depth = _depth(index, state)
    step = index.table[depth]
    kind = step[_KIND]
    end = first + count
    if kind == DAC:
        while first < end:
            middle = (first + end) >> 1
            here = _coded(index, step, middle)
            if here == token:
                return np.uint64(step[_START] + middle)
            if here < token:
                first = middle + 1
            else:
                end = middle
        return _DEAD
    key = token - step[_LOW]
    if key < 0 or key >= step[_RANGE]:
        return _DEAD
    if kind >= RICE:
        p = _row(index, depth, state)
        if kind == RICE:
            found = rice_find(index.values, step, p, key)
        else:
            found = huffman_find(index.bits, index.values, step, p, key)
        if found < 0:
            return _DEAD
        return np.uint64(step[_START] + found)
    width = step[_WIDTH]
    if kind == BITMAP:
        at = step[_TREE_AT] + _row(index, depth, state) * step[_RANGE] + key
        if not get_bit(index.bits, at):
            return _DEAD
        return np.uint64(step[_START] + rank1(index.bits, at) - step[_TREE_ONES])
    if kind == JOINT:
        bucket = _row(index, depth, state) * step[_BUCKETS]
        if step[_BUCKETS] <= _SHORT:
            at = _nth_bit(index, step[_TREE_AT] + bucket + first, key >> width, _ALL)
            bucket += key >> width
        else:
            bucket += key >> width
            at = select0(index.bits, _zeros(step) + bucket)
        first = at - step[_TREE_AT] - bucket
        limit = np.int64(len(index.bits.words)) << 6
        end = first + next_zero(index.bits, at + 1, limit) - at - 1
        key = key & ((np.int64(1) << width) - 1)
    found = _bound(index, step[_TOKENS_AT], width, first, end, key)
    if found == end or _value(index, step[_TOKENS_AT] + found * width, width) != key:
        return _DEAD
    return np.uint64(step[_START] + found)


def _goes_on(index: StepLanes, step: _Step, e: np.int64) -> bool:
    """Whether entry `e` of a step has continuations."""
    inner = step[_INNER_ROWS]
    if inner == step[_ENTRIES] or inner == 0:
        return bool(inner != 0)
    return get_bit(index.bits, step[_INNER_AT] + e)


def has_children(index: StepLanes, state: np.uint64) -> bool:
    """Whether some token continues `state`."""
    if state == _DEAD:
        return False
    node = _in_tail(index, state)
    if node >= 0:
        return bool(node != 0)
    depth = _depth(index, state)
    if depth == 0:
        return True
    step = index.table[depth - 1]
    if depth < len(index.table) and _goes_on(index, step, np.int64(state) - step[_START]):
        return True
    return bool(_tail_below(index, depth, state) >= 0)


def _is_cut_key(index: StepLanes, depth: np.int64, state: np.uint64) -> bool:
    """Whether a state outside tails is a key of the steps, which may go on in a tail."""
    if depth == 0:
        return False
    step = index.table[depth - 1]
    e = np.int64(state) - step[_START]
    if not _goes_on(index, step, e):
        return True
    final = step[_FINAL_KEYS]
    if final == 0 or final == step[_INNER_ROWS]:
        return bool(final != 0)
    return get_bit(index.bits, step[_FINAL_AT] + _rows_before(index, step, e))


def _number(index: StepLanes, depth: np.int64, state: np.uint64) -> np.int64:
    """Number of the key of the steps that a state outside tails is, or -1."""
    if not _is_cut_key(index, depth, state):
        return np.int64(-1)
    step = index.table[depth - 1]
    return _keys_before(index, step, np.int64(state) - step[_START])


def _tail_key(index: StepLanes, state: np.uint64) -> np.int64:
    """Key of a state inside a tail, or where one begins."""
    if _in_tail(index, state) >= 0:
        return _key_in_tail(index, state)
    return _number(index, _depth(index, state), state)


def is_terminal(index: StepLanes, state: np.uint64) -> bool:
    """Whether `state` is a whole key."""
    if state == _DEAD:
        return False
    node = _in_tail(index, state)
    if node >= 0:
        return bool(node == 0)
    depth = _depth(index, state)
    if len(index.tails) == 0:
        return _is_cut_key(index, depth, state)
    number = _number(index, depth, state)
    return bool(number >= 0 and not _has_tail(index, number))


def key_number(index: StepLanes, state: np.uint64) -> np.int64:
    """Number of the key that `state` is, or -1."""
    if state == _DEAD:
        return np.int64(-1)
    node = _in_tail(index, state)
    if node >= 0:
        return _key_in_tail(index, state) if node == 0 else np.int64(-1)
    number = _number(index, _depth(index, state), state)
    if number >= 0 and _has_tail(index, number):
        return np.int64(-1)
    return number


def extensions(index: StepLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """The states [first, end) that are next on the way to every longer key; see `descend`.

    In a tail there is only one longer key; first is then below 0: less its number, less one.
    """
    begin, count = child_range(index, state)
    if count == 0:
        return np.int64(0), np.int64(0)
    if begin < 0:
        key = _tail_key(index, state)
        return np.int64(-1 - key), np.int64(-key)
    begin += index.table[_depth(index, state), _START]
    return begin, np.int64(begin + count)


def descend(index: StepLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The children of the states [first, end) of one level, which are consecutive too.

    What `extensions` gives, and this makes of it until nothing is left, are ranges of all states
    beyond a state.
    """
    if first >= end or first < 0:
        return np.int64(0), np.int64(0)
    depth = _depth(index, np.uint64(first))
    if depth == len(index.table):
        return np.int64(0), np.int64(0)
    above = index.table[depth - 1]
    low = _rows_before(index, above, first - above[_START])
    high = _rows_before(index, above, end - above[_START])
    if low >= high:
        return np.int64(0), np.int64(0)
    step = index.table[depth]
    begin, _ = _entries(index, step, low)
    _, stop = _entries(index, step, high - 1)
    return np.int64(step[_START] + begin), np.int64(step[_START] + stop)


def key_range(index: StepLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The numbers [low, high) of the keys that `extensions` or `descend` found beyond a state.

    Among them are those that go on in tails.
    """
    if first >= end:
        return np.int64(0), np.int64(0)
    if first < 0:
        return np.int64(-1 - first), np.int64(-first)
    step = index.table[_depth(index, np.uint64(first)) - 1]
    start = step[_START]
    return _keys_before(index, step, first - start), _keys_before(index, step, end - start)
