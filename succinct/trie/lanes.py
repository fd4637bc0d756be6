"""Scalar navigation over a `LoudsTrie`, for compilation by numba; see `succinct.bits.lanes`.

A state is ``node | place << 40``. Place 0 is the node itself; place p means that p tokens of the
chain that leads to `node`, a link node, have been taken. The functions take any state that the
trie itself gave out, and DEAD. The contents of slots, links, labels and tail are not trusted: a
link that points outside the tail has no continuation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import (
    BitLanes,
    PackedLanes,
    get_bit,
    next_one,
    next_zero,
    packed_get,
    rank1,
    select0,
    select1,
)

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_PLACE_SHIFT = np.uint64(40)
_NODE_MASK = np.uint64((1 << 40) - 1)
_PLACES = np.int64(1 << 24)
# Stands for the label that a broken link does not have; larger than any token.
_NO_TOKEN = np.int64(0xFFFFFFFF)
# A node has few children, as a rule: look for the end of its run of ones this far on before
# asking for the next zero by number.
_SHORT_RUN = np.int64(128)


class LoudsLanes(NamedTuple):
    """Arrays of a `LoudsTrie` of n nodes, numbered in level order, the root being 0.

    Attributes
    ----------
    topology : BitLanes of 2 * n + 1 bits
        "10", then for every node one 1 for each child and a 0.
    terminal : BitLanes of n bits
    slots : uint16 array [n]
        Low 16 bits of the node's label, or of its link if it is a link node.
    label_high : PackedLanes
        ``label >> 16`` of the nodes that are not link nodes, the root included.
    link : BitLanes of n bits
        Link nodes; 0 bits when `has_links` is 0.
    link_high : PackedLanes
        ``link >> 16`` of the link nodes.
    tail : PackedLanes
        Tokens of the chains.
    tail_length : int64
    tail_end : BitLanes of `tail_length` bits
        Last tokens of chains.
    has_links : int64
    n_nodes : int64
    """

    topology: BitLanes
    terminal: BitLanes
    slots: NDArray[np.uint16]
    label_high: PackedLanes
    link: BitLanes
    link_high: PackedLanes
    tail: PackedLanes
    tail_length: np.int64
    tail_end: BitLanes
    has_links: np.int64
    n_nodes: np.int64


def _node(state: np.uint64) -> np.int64:
    return np.int64(state & _NODE_MASK)


def _place(state: np.uint64) -> np.int64:
    return np.int64(state >> _PLACE_SHIFT)


def _is_link(trie: LoudsLanes, node: np.int64) -> bool:
    return trie.has_links != 0 and get_bit(trie.link, node)


def _link(trie: LoudsLanes, node: np.int64) -> np.int64:
    """Offset into the tail of link node `node`; below 2**57, and not checked against the tail."""
    high = np.int64(packed_get(trie.link_high, rank1(trie.link, node)) & _NODE_MASK)
    return np.int64(np.int64(trie.slots[node]) | (high << 16))


def _label(trie: LoudsLanes, node: np.int64) -> np.int64:
    """First token on the way from its parent to `node`; `_NO_TOKEN` for a broken link."""
    if _is_link(trie, node):
        link = _link(trie, node)
        if link >= trie.tail_length:
            return _NO_TOKEN
        return np.int64(packed_get(trie.tail, link) & np.uint64(0xFFFFFFFF))
    return _own_label(trie, node)


def _own_label(trie: LoudsLanes, node: np.int64) -> np.int64:
    """Label of `node`, which is not a link node."""
    label = np.int64(trie.slots[node])
    if trie.label_high.width != 0:
        index = node
        if trie.has_links != 0:
            index = node - rank1(trie.link, node)
        label |= np.int64(packed_get(trie.label_high, index) & np.uint64(0xFFFF)) << 16
    return np.int64(label)


def _after(trie: LoudsLanes, node: np.int64, position: np.int64, place: np.int64) -> np.uint64:
    """State after the token at `position` of the tail, the one numbered `place` of its chain."""
    if get_bit(trie.tail_end, position):
        return np.uint64(node)
    if place >= _PLACES:
        return _DEAD
    return np.uint64(np.uint64(node) | (np.uint64(place) << _PLACE_SHIFT))


def _enter(trie: LoudsLanes, node: np.int64) -> np.uint64:
    """State after the first token on the way from its parent to `node`."""
    if _is_link(trie, node):
        link = _link(trie, node)
        if link >= trie.tail_length:
            return _DEAD
        return _after(trie, node, link, np.int64(1))
    return np.uint64(node)


def child_range(trie: LoudsLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """Where the continuations of `state` start, and how many there are.

    The first value is the first child's node, or, inside a chain, a position in the tail; it is
    meant for `find_child` and `nth_child`.
    """
    node = _node(state)
    place = _place(state)
    if node >= trie.n_nodes:
        return np.int64(0), np.int64(0)
    if place != 0:
        position = _link(trie, node) + place
        return position, np.int64(position < trie.tail_length)
    zero = select0(trie.topology, node)
    limit = min(zero + 1 + _SHORT_RUN, 2 * trie.n_nodes + 1)
    end = next_zero(trie.topology, zero + 1, limit)
    if end == limit:
        end = select0(trie.topology, node + 1)
    return np.int64(zero - node), np.int64(end - zero - 1)


def nth_child(
    trie: LoudsLanes, state: np.uint64, first: np.int64, k: np.int64
) -> tuple[np.int64, np.uint64]:
    """Token and state of continuation `k`, below the count that `child_range` gave with `first`.

    The state is DEAD if a broken file left no continuation there.
    """
    place = _place(state)
    if place != 0:
        token = np.int64(packed_get(trie.tail, first) & np.uint64(0xFFFFFFFF))
        return token, _after(trie, _node(state), first, np.int64(place + 1))
    node = np.int64(first + k)
    if _is_link(trie, node):
        link = _link(trie, node)
        if link >= trie.tail_length:
            return _NO_TOKEN, _DEAD
        token = np.int64(packed_get(trie.tail, link) & np.uint64(0xFFFFFFFF))
        return token, _after(trie, node, link, np.int64(1))
    return _own_label(trie, node), np.uint64(node)


def find_child(
    trie: LoudsLanes, state: np.uint64, first: np.int64, count: np.int64, token: np.int64
) -> np.uint64:
    """State after `token`, or DEAD; `first` and `count` as from `child_range`."""
    place = _place(state)
    if place != 0:
        if count == 0:
            return _DEAD
        if np.int64(packed_get(trie.tail, first) & np.uint64(0xFFFFFFFF)) != token:
            return _DEAD
        return _after(trie, _node(state), first, np.int64(place + 1))
    low = first
    high = first + count
    while low < high:
        middle = (low + high) >> 1
        label = _label(trie, middle)
        if label == token:
            return _enter(trie, middle)
        if label < token:
            low = middle + 1
        else:
            high = middle
    return _DEAD


def list_children(
    trie: LoudsLanes,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    tokens: NDArray[np.uint32],
    states: NDArray[np.uint64],
    at: np.int64,
) -> None:
    """Write tokens and states of all continuations from place `at` on; as from `child_range`."""
    if trie.has_links == 0:
        # As `_own_label`, without branches and with unsigned places, which need no check of sign.
        words = trie.label_high.words
        bits = np.uint64(trie.label_high.width)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        after = np.uint64(bits != np.uint64(0))
        node = np.uint64(first)
        for place in range(np.uint64(at), np.uint64(at + count)):
            bit = node * bits
            offset = bit & np.uint64(63)
            word = bit >> np.uint64(6)
            high = words[word] >> offset
            high |= (words[word + after] << np.uint64(1)) << (np.uint64(63) - offset)
            tokens[place] = np.uint64(trie.slots[node]) | ((high & mask) << np.uint64(16))
            states[place] = node
            node += np.uint64(1)
        return
    for k in range(count):
        token, child = nth_child(trie, state, first, np.int64(k))
        tokens[at + k] = np.uint32(token & 0xFFFFFFFF)
        states[at + k] = child


def has_children(trie: LoudsLanes, state: np.uint64) -> bool:
    """Whether some token continues `state`; in a broken file also where none does."""
    node = _node(state)
    if node >= trie.n_nodes:
        return False
    # What is no key is there only for what continues it.
    if _place(state) != 0 or not get_bit(trie.terminal, node):
        return True
    return get_bit(trie.topology, np.int64(select0(trie.topology, node) + 1))


def is_terminal(trie: LoudsLanes, state: np.uint64) -> bool:
    """Whether `state` is a whole key."""
    node = _node(state)
    return node < trie.n_nodes and _place(state) == 0 and get_bit(trie.terminal, node)


def key_number(trie: LoudsLanes, state: np.uint64) -> np.int64:
    """Number of the key that `state` is, or -1."""
    if is_terminal(trie, state):
        return rank1(trie.terminal, _node(state))
    return np.int64(-1)


def extensions(trie: LoudsLanes, state: np.uint64) -> tuple[np.int64, np.int64]:
    """The nodes [first, end) that are next on the way to every longer key; see `descend`."""
    node = _node(state)
    if node >= trie.n_nodes:
        return np.int64(0), np.int64(0)
    if _place(state) != 0:
        return node, np.int64(node + 1)
    first, count = child_range(trie, state)
    return first, np.int64(first + count)


def descend(trie: LoudsLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The children of the nodes [first, end) of one level, which are consecutive too.

    What `extensions` gives, and this makes of it until nothing is left, are ranges of all nodes
    that the keys beyond a state end at.
    """
    if first >= end:
        return np.int64(0), np.int64(0)
    low = select0(trie.topology, first) - first
    return np.int64(low), np.int64(select0(trie.topology, end) - end)


def key_range(trie: LoudsLanes, first: np.int64, end: np.int64) -> tuple[np.int64, np.int64]:
    """The numbers [low, high) of the keys that end at nodes [first, end)."""
    return rank1(trie.terminal, first), rank1(trie.terminal, end)


def parent(trie: LoudsLanes, state: np.uint64) -> np.uint64:
    """State of the prefix that is one token shorter; DEAD for the root and for DEAD."""
    node = _node(state)
    place = _place(state)
    if node >= trie.n_nodes or state == np.uint64(0):
        return _DEAD
    if place > 1:
        return np.uint64(np.uint64(node) | (np.uint64(place - 1) << _PLACE_SHIFT))
    if place == 0 and _is_link(trie, node):
        link = _link(trie, node)
        if link >= trie.tail_length:
            return _DEAD
        taken = next_one(trie.tail_end, link, trie.tail_length) - link
        if 0 < taken < _PLACES:
            return np.uint64(np.uint64(node) | (np.uint64(taken) << _PLACE_SHIFT))
    above = select1(trie.topology, node) - node - 1
    # Parents come first in level order; anything else would send a caller round in circles.
    if 0 <= above < node:
        return np.uint64(above)
    return _DEAD
