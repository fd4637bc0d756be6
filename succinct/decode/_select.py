"""Selecting and sorting scores: plain functions, compiled with the engines that use them.

Scores are compared as unsigned integers (`order32`, `order64`), so that one radix selection and one
radix sort serve everything. Both are stable: of equal scores the one that was found first is taken,
and comes first. Candidates that are found in the order of step, parent and token are thus in the
order of the contract.

The integer rules of `succinct.bits.lanes` apply.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Called for every candidate.
INLINED = ("order32", "order64", "unorder32")

_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_SMALL_SORT = 24

_Keys = NDArray[np.uint64]


class Scratch(NamedTuple):
    """Room to work in.

    Attributes
    ----------
    counts : int64 array [2048]
    chosen : int64 array
        Places that were chosen; as long as the most keys there are.
    spare : int64 array
        As long as `chosen`.
    """

    counts: NDArray[np.int64]
    chosen: NDArray[np.int64]
    spare: NDArray[np.int64]


def new_scratch(size: int) -> Scratch:
    """For up to `size` keys."""
    return Scratch(np.empty(2048, np.int64), np.empty(size, np.int64), np.empty(size, np.int64))


def order32(score: np.float32) -> np.uint64:
    """Unsigned integer of 32 bits that grows with `score`; -0.0 and 0.0 give the same."""
    bits = np.uint64(np.float32(score + np.float32(0.0)).view(np.uint32))
    if bits >> np.uint64(31):
        return np.uint64(bits ^ np.uint64(0xFFFFFFFF))
    return np.uint64(bits | np.uint64(0x80000000))


def unorder32(key: np.uint64) -> np.float32:
    """The score that `order32` made `key` of."""
    if key >> np.uint64(31):
        return np.uint32(key & np.uint64(0x7FFFFFFF)).view(np.float32)
    return np.uint32(key ^ np.uint64(0xFFFFFFFF)).view(np.float32)


def order64(score: np.float64) -> np.uint64:
    """As `order32`, for float64."""
    bits = np.float64(score + np.float64(0.0)).view(np.uint64)
    if bits >> np.uint64(63):
        return np.uint64(bits ^ _LARGEST)
    return np.uint64(bits | np.uint64(0x8000000000000000))


def keep_best(
    keys: _Keys, base: int, n: int, keep: int, n_bytes: int, scratch: Scratch
) -> np.uint64:
    """Put the places of the `keep` largest of ``keys[base:base + n]`` into `chosen`, ascending.

    Of equal keys those at lower places are chosen. Returns the smallest chosen key. Keys are below
    2**(8 * n_bytes). Radix selection from the highest byte down: O(n) whatever the keys are.
    0 < keep <= n.
    """
    counts = scratch.counts
    chosen = scratch.chosen
    prefix = np.uint64(0)
    mask = np.uint64(0)
    wanted = keep
    for byte in range(n_bytes):
        shift = np.uint64(8 * (n_bytes - 1 - byte))
        for digit in range(256):
            counts[digit] = 0
        for i in range(base, base + n):
            if keys[i] & mask == prefix:
                counts[np.int64((keys[i] >> shift) & np.uint64(255))] += 1
        digit = 255
        while counts[digit] < wanted:
            wanted -= counts[digit]
            digit -= 1
        prefix |= np.uint64(digit) << shift
        mask |= np.uint64(255) << shift
        if counts[digit] == wanted:
            # All that begin so are in: the bytes below do not matter.
            break
    found = 0
    ties = wanted
    least = _LARGEST
    for i in range(base, base + n):
        start = keys[i] & mask
        if start > prefix or (start == prefix and ties > 0):
            if start == prefix:
                ties -= 1
            chosen[found] = i
            found += 1
            least = min(least, keys[i])
    return np.uint64(least)


def sort_descending(keys: _Keys, n: int, n_bytes: int, scratch: Scratch) -> None:
    """Sort ``chosen[:n]`` by ``keys[chosen]``, largest first, equal keys in the order given.

    Keys are below 2**(8 * n_bytes).
    """
    chosen = scratch.chosen
    if n <= _SMALL_SORT:
        for i in range(1, n):
            moving = chosen[i]
            j = i
            while j > 0 and keys[chosen[j - 1]] < keys[moving]:
                chosen[j] = chosen[j - 1]
                j -= 1
            chosen[j] = moving
        return
    spare = scratch.spare
    counts = scratch.counts
    for slot in range(256 * n_bytes):
        counts[slot] = 0
    for i in range(n):
        key = keys[chosen[i]]
        for byte in range(n_bytes):
            counts[256 * byte + np.int64((key >> np.uint64(8 * byte)) & np.uint64(255))] += 1
    for byte in range(n_bytes):
        shift = np.uint64(8 * byte)
        base = 256 * byte
        if counts[base + np.int64((keys[chosen[0]] >> shift) & np.uint64(255))] == n:
            continue
        start = 0
        for digit in range(255, -1, -1):
            count = counts[base + digit]
            counts[base + digit] = start
            start += count
        for i in range(n):
            slot = base + np.int64((keys[chosen[i]] >> shift) & np.uint64(255))
            spare[counts[slot]] = chosen[i]
            counts[slot] += 1
        for i in range(n):
            chosen[i] = spare[i]
