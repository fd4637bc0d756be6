"""Scalar navigation over a `CsrMap`, for compilation by numba; see `succinct.bits.lanes`.

The functions take any state that the index itself gave out, and DEAD. What a file may hold of
boundaries and next states is bounded here, where it is used.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes, get_bit, lowest_one, popcount, rank1, select_in_word

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)

# The columns of `dense`.
_START, _AT, _WORDS, _LOW = range(4)


class CsrLanes(NamedTuple):
    """Arrays of a `CsrMap`; states are numbered in level order.

    Attributes
    ----------
    masks : uint64 array
        Bit t - low of a row of the dense head: token t continues the prefix.
    firsts : uint32 array [len(masks) + 1]
        The state that the first one at or behind the begin of each word leads to; empty if there
        are no masks.
    dense : int64 array [dense levels, 4]
        For each level the state of its first row, where the row begins in `masks`, words a row,
        and the token of a row's first bit.
    offsets : uint32 or uint64 array
        Where the continuations of state ``first_row + i`` begin in `entries`, and a last end.
    entries : uint64 array
        Token in the low `shift` bits, next state above.
    shift : uint64
    terminal : BitLanes
        The states of keys among those below `first_leaf`; empty if these are none.
    starts : int64 array [levels + 2]
        The first state of every level, and the number of states.
    first_row, first_leaf, n_states : int64
        The first state whose continuations are in `entries`, the first on the last level.
    keys_above : int64
        Number of keys above the last level.
    """

    masks: NDArray[np.uint64]
    firsts: NDArray[np.uint32]
    dense: NDArray[np.int64]
    offsets: NDArray[np.uint32] | NDArray[np.uint64]
    entries: NDArray[np.uint64]
    shift: np.uint64
    terminal: BitLanes
    starts: NDArray[np.int64]
    first_row: np.int64
    first_leaf: np.int64
    n_states: np.int64
    keys_above: np.int64


def _row(index: CsrLanes, number: np.int64) -> tuple[np.int64, np.int64, np.int64]:
    """Of a state in the dense head: where its row begins in `masks`, its words, its low token."""
    level = len(index.dense) - 1
    while index.dense[level, _START] > number:
        level -= 1
    words = index.dense[level, _WORDS]
    at = index.dense[level, _AT] + (number - index.dense[level, _START]) * words
    return at, words, index.dense[level, _LOW]


def _entry(index: CsrLanes, e: np.int64) -> tuple[np.int64, np.uint64]:
    """Token and state of an entry."""
    entry = index.entries[e]
    state = entry >> index.shift
    if state >= np.uint64(index.n_states):
        state = _DEAD
    return np.int64(entry & ((_ONE << index.shift) - _ONE)), np.uint64(state)


def child_range(index: CsrLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """Where the continuations of `state` begin, and how many there are.

    The first value is meant for `find_child`, `nth_child` and `list_children`.
    """
    if state >= np.uint64(index.first_leaf):
        return np.int64(0), np.int64(0)
    number = np.int64(state)
    if number >= index.first_row:
        row = number - index.first_row
        limit = np.int64(len(index.entries))
        begin = min(np.int64(index.offsets[row]), limit)
        end = min(np.int64(index.offsets[row + 1]), limit)
        return begin, np.int64(max(end - begin, np.int64(0)))
    at, words, _ = _row(index, number)
    first = np.int64(index.firsts[at])
    return first, np.int64(index.firsts[at + words]) - first


def nth_child(
    index: CsrLanes, state: np.uint64, first: np.int64, k: np.int64
) -> tuple[np.int64, np.uint64]:
    """Token and state of continuation `k`, below the count that `child_range` gave with `first`."""
    number = np.int64(state)
    if number >= index.first_row:
        return _entry(index, first + k)
    begin, words, low = _row(index, number)
    child = first + k
    at = begin
    end = begin + words
    while end - at > 1:  # the last word of the row that begins with this child or one before
        middle = (at + end) >> 1
        if np.int64(index.firsts[middle]) <= child:
            at = middle
        else:
            end = middle
    bit = select_in_word(index.masks[at], child - np.int64(index.firsts[at]))
    return np.int64(low + ((at - begin) << 6) + bit), np.uint64(child)


def find_child(
    index: CsrLanes, state: np.uint64, first: np.int64, count: np.int64, token: np.int64
) -> np.uint64:
    """State after `token`, or DEAD; `first` and `count` as from `child_range`."""
    if count == 0:
        return _DEAD
    number = np.int64(state)
    if number < index.first_row:
        at, words, low = _row(index, number)
        place = token - low
        if place < 0 or place >= words << 6:
            return _DEAD
        at += place >> 6
        word = index.masks[at]
        bit = _ONE << np.uint64(place & 63)
        if word & bit == np.uint64(0):
            return _DEAD
        return np.uint64(np.int64(index.firsts[at]) + popcount(word & (bit - _ONE)))
    end = first + count
    while first < end:
        middle = (first + end) >> 1
        here, child = _entry(index, middle)
        if here == token:
            return child
        if here < token:
            first = middle + 1
        else:
            end = middle
    return _DEAD


def list_children(
    index: CsrLanes,
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
    number = np.int64(state)
    if number >= index.first_row:
        for k in range(count):
            token, child = _entry(index, first + k)
            tokens[at + k] = token
            states[at + k] = child
        return
    word_at, _, low = _row(index, number)
    word = index.masks[word_at]
    for k in range(count):
        while word == np.uint64(0):
            word_at += 1
            low += 64
            word = index.masks[word_at]
        tokens[at + k] = low + lowest_one(word)
        states[at + k] = first + k
        word &= word - _ONE


def has_children(index: CsrLanes, state: np.uint64) -> bool:
    """Whether some token continues `state`."""
    return child_range(index, state)[1] > 0


def is_terminal(index: CsrLanes, state: np.uint64) -> bool:
    """Whether `state` is a whole key."""
    if state == _DEAD:
        return False
    number = np.int64(state)
    if number >= index.first_leaf:
        return True
    return index.keys_above > 0 and get_bit(index.terminal, number)


def key_number(index: CsrLanes, state: np.uint64) -> np.int64:
    """Number of the key that `state` is, or -1."""
    if not is_terminal(index, state):
        return np.int64(-1)
    number = np.int64(state)
    if number >= index.first_leaf:
        return np.int64(index.keys_above + number - index.first_leaf)
    return rank1(index.terminal, number)


def _children_of(index: CsrLanes, number: np.int64) -> tuple[np.int64, np.int64]:
    """The states [first, end) that continue that of a number below `first_leaf`."""
    first, count = child_range(index, np.uint64(number))
    if number >= index.first_row:
        first += index.n_states - len(index.entries)
    return first, np.int64(first + count)


def extensions(index: CsrLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """The states [first, end) that are next on the way to every longer key; see `descend`."""
    if state >= np.uint64(index.first_leaf):
        return np.int64(0), np.int64(0)
    return descend(index, np.int64(state), np.int64(np.int64(state) + 1))


def descend(index: CsrLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The children of the states [first, end) of one level, which are consecutive too.

    What `extensions` gives, and this makes of it until nothing is left, are ranges of all states
    beyond a state.
    """
    if first >= end or first >= index.first_leaf:
        return np.int64(0), np.int64(0)
    low, _ = _children_of(index, first)
    _, high = _children_of(index, np.int64(end - 1))
    if first < index.first_row:
        return low, high
    # A damaged file must not lead back to a level or past the next.
    level = np.int64(0)
    above = np.int64(len(index.starts) - 1)
    while above - level > 1:
        middle = (level + above) >> 1
        if index.starts[middle] <= first:
            level = middle
        else:
            above = middle
    return max(low, index.starts[level + 1]), min(high, index.starts[level + 2])


def key_range(index: CsrLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The numbers [low, high) of the keys among the states [first, end) of one level."""
    if first >= end:
        return np.int64(0), np.int64(0)
    if first >= index.first_leaf:
        low = index.keys_above - index.first_leaf
        return np.int64(low + first), np.int64(low + end)
    if index.keys_above == 0:
        return np.int64(0), np.int64(0)
    return rank1(index.terminal, first), rank1(index.terminal, end)
