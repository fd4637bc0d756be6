"""Proposals: how they are checked, and how they are matched with the children of a row.

Plain Python functions, compiled by `_compile`. Of a row with few children each is looked up among
the proposals, through a table of the step's tokens; of one with many, each proposal among the
children.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct.decode._arrays import (
    NONE,
    Proposals,
    Room,
)
from succinct.decode._select import (
    bit_length,
    sort_descending,
)
from succinct.trie.lanes import (
    find_child,
)

# Called for every row, child or candidate.
INLINED = ("match_children", "search_children")

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)

# What may be wrong with a proposal.
NOTHING, IS_NAN, OUT_OF_RANGE, REPEATED = range(4)
_HASH = np.uint64(0x9E3779B1)

# Stands for the token of a place in the table that several tokens fall to.
_SEVERAL = np.uint32(0xFFFFFFFF)
_MAX_TOKEN = np.int64(0xFFFFFFFE)


def seen_places(n: int) -> int:
    """Places that the hash table of `n` tokens needs."""
    return 1 << (4 * n).bit_length()


def read(
    ids: NDArray[np.int64],
    values: NDArray[np.float32],
    min_token_logprob: np.float32,
    first_counts: bool,
    seen: NDArray[np.uint32],
    proposals: Proposals,
) -> tuple[int, int, int]:
    """Check proposals, and keep those that are of use.

    Parameters
    ----------
    ids, values : arrays [lines, K]
        A value of -inf marks padding.
    min_token_logprob : float32
        Log-probabilities must be larger.
    first_counts : bool
        Whether a token may be repeated, and its first proposal counts.
    seen : uint32 array
        Room for `seen_places`.
    proposals : Proposals
        Is written to.

    Returns
    -------
    fault, line, place
        What is wrong with the first bad proposal, or `NOTHING`.
    """
    shift = np.uint64(33 - bit_length(np.uint64(len(seen))))
    last = len(seen) - 1
    for line in range(ids.shape[0]):
        for at in range(len(seen)):
            seen[at] = np.uint32(0)
        n = 0
        best = NONE
        for k in range(ids.shape[1]):
            value = values[line, k]
            if value == NONE:
                continue
            token = ids[line, k]
            if np.isnan(value):
                return IS_NAN, line, k
            if token < 0 or token > _MAX_TOKEN:
                return OUT_OF_RANGE, line, k
            mark = np.uint32(token + 1)
            at = np.int64(((np.uint64(token) * _HASH) & np.uint64(0xFFFFFFFF)) >> shift)
            while seen[at] != np.uint32(0) and seen[at] != mark:
                at = (at + 1) & last
            if seen[at] == mark:
                if first_counts:
                    continue
                return REPEATED, line, k
            seen[at] = mark
            if value > min_token_logprob:
                proposals.tokens[line, n] = np.uint32(token)
                proposals.logprobs[line, n] = value
                best = max(best, value)
                n += 1
        proposals.counts[line] = n
        proposals.best[line] = best
    return NOTHING, 0, 0


def fill_table(proposals: Proposals, line: int, room: Room, n_tokens: np.int64) -> None:
    """Put the proposals of a line into the table, but for tokens that the index does not have."""
    mask = np.int64(len(room.owners) - 1)
    for k in range(proposals.counts[line]):
        token = np.int64(proposals.tokens[line, k])
        if token < n_tokens:
            place = token & mask
            value = proposals.logprobs[line, k]
            if n_tokens > len(room.owners):
                here = room.table[0, place]
                room.owners[place] = np.uint32(token) if here == NONE else _SEVERAL
                value = max(here, value)
            room.table[0, place] = value


def clear_table(proposals: Proposals, line: int, room: Room) -> None:
    mask = np.int64(len(room.owners) - 1)
    for k in range(proposals.counts[line]):
        room.table[0, np.int64(proposals.tokens[line, k]) & mask] = NONE


def order_by_token(proposals: Proposals, line: int, room: Room) -> None:
    n = proposals.counts[line]
    for k in range(n):
        room.token_keys[k] = np.uint64(_MAX_TOKEN - np.int64(proposals.tokens[line, k]))
        room.scratch.chosen[k] = k
    sort_descending(room.token_keys, n, room.scratch)
    for k in range(n):
        room.order[k] = room.scratch.chosen[k]


def owned(proposals: Proposals, line: int, token: np.int64, room: Room) -> np.float32:
    """Log-probability of a token where several may share a place in the table."""
    place = token & np.int64(len(room.owners) - 1)
    if np.int64(room.owners[place]) == token:
        return np.float32(room.table[0, place])
    if room.owners[place] == _SEVERAL:
        for k in range(proposals.counts[line]):
            if np.int64(proposals.tokens[line, k]) == token:
                return np.float32(proposals.logprobs[line, k])
    return NONE


def match_children(
    values: NDArray[np.float32],
    line: int,
    mask: np.uint64,
    row_sum: np.float32,
    need: np.float32,
    count: np.int64,
    room: Room,
) -> np.int64:
    """Put the places of the listed children whose sum may be larger than `need` into `hits`.

    The sums are put into `totals`, and are not smaller than they should be.
    """
    n = np.uint64(0)
    # A broken file may hold tokens beyond its vocabulary.
    last = np.uint64(values.shape[1] - 1)
    # Unsigned places need no check of sign.
    for k in range(np.uint64(count)):
        # Without a branch, which could not be foreseen.
        place = min(np.uint64(room.tokens[k]) & mask, last)
        total = np.float32(row_sum + values[line, place])
        room.hits[n] = k
        room.totals[n] = total
        n += np.uint64(total > need)
    return np.int64(n)


def search_children(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    row_sum: np.float32,
    need: np.float32,
    proposals: Proposals,
    line: int,
    room: Room,
) -> int:
    """List the children whose sum is larger than `need`, by looking for each proposal.

    The proposals that led to them are put into `hits`.
    """
    n = 0
    for k in range(proposals.counts[line]):
        rank = room.order[k]
        total = np.float32(row_sum + proposals.logprobs[line, rank])
        if total > need:
            token = np.int64(proposals.tokens[line, rank])
            child = find_child(index, state, first, count, token)
            room.tokens[n] = np.uint32(token)
            room.children[n] = child
            room.hits[n] = rank
            room.totals[n] = total
            n += child != _DEAD
    return n
