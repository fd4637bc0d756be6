"""Selecting and sorting scores: plain functions, compiled with the engines that use them.

Scores are compared as unsigned integers (`order32`, `order64`), so that one selection and one radix
sort serve everything. Both are stable: of equal scores the one that was found first is taken,
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


def bit_length(n: np.uint64) -> np.int64:
    """Bits of `n` up to the highest that is set."""
    bits = np.int64(0)
    while n > np.uint64(0):
        n = n >> np.uint64(1)
        bits += 1
    return bits


def keep_best(keys: _Keys, base: int, n: int, keep: int, scratch: Scratch) -> np.uint64:
    """Put the places of the `keep` largest of ``keys[base:base + n]`` into `chosen`, ascending.

    Of equal keys those at lower places are chosen. Returns the smallest chosen key.
    0 < keep <= n. Counts how many keys lie in equal parts of their range, and then in parts of
    the part that holds the border: O(n) for each round, of which one or two are the rule.
    """
    counts = scratch.counts
    chosen = scratch.chosen
    low = keys[base]
    high = low
    for i in range(base, base + n):
        low = min(low, keys[i])
        high = max(high, keys[i])
    digit_bits = min(np.int64(11), bit_length(np.uint64(n)))
    wanted = keep
    while True:
        shift = np.uint64(max(np.int64(0), bit_length(high - low) - digit_bits))
        last = np.int64((high - low) >> shift)
        for digit in range(last + 1):
            counts[digit] = 0
        for i in range(base, base + n):
            if low <= keys[i] <= high:
                counts[np.int64((keys[i] - low) >> shift)] += 1
        digit = last
        while counts[digit] < wanted:
            wanted -= counts[digit]
            digit -= 1
        low += np.uint64(digit) << shift
        high = low + min(high - low, (np.uint64(1) << shift) - np.uint64(1))
        if counts[digit] == wanted or shift == np.uint64(0):
            break
    found = 0
    ties = wanted
    least = _LARGEST
    for i in range(base, base + n):
        key = keys[i]
        if key > high or (key >= low and ties > 0):
            if key <= high:
                ties -= 1
            chosen[found] = i
            found += 1
            least = min(least, key)
    return np.uint64(least)


def sort_descending(keys: _Keys, n: int, scratch: Scratch) -> None:
    """Sort ``chosen[:n]`` by ``keys[chosen]``, largest first, equal keys in the order given.

    A radix sort of as few digits as the range of the keys needs.
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
    low = keys[chosen[0]]
    high = low
    for i in range(n):
        low = min(low, keys[chosen[i]])
        high = max(high, keys[chosen[i]])
    bits = bit_length(high - low)
    passes = (bits + 9) // 10
    digit_bits = (bits + passes - 1) // max(passes, np.int64(1))
    mask = (np.uint64(1) << np.uint64(digit_bits)) - np.uint64(1)
    for digit_pass in range(passes):
        shift = np.uint64(digit_pass * digit_bits)
        for digit in range(np.int64(mask) + 1):
            counts[digit] = 0
        for i in range(n):
            counts[np.int64(((high - keys[chosen[i]]) >> shift) & mask)] += 1
        start = 0
        for digit in range(np.int64(mask) + 1):
            count = counts[digit]
            counts[digit] = start
            start += count
        for i in range(n):
            digit = np.int64(((high - keys[chosen[i]]) >> shift) & mask)
            spare[counts[digit]] = chosen[i]
            counts[digit] += 1
        for i in range(n):
            chosen[i] = spare[i]
