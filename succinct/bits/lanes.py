"""Scalar navigation over bit-vectors and packed arrays, for compilation by numba.

The functions are plain Python and import no compiler. `succinct.decode` compiles them for the
CPU, and a CUDA back end can compile the same source as device functions. They also run
uncompiled, which the tests use.

Integers follow one rule, because compilers disagree about mixed operands: positions and counts
are int64, bit patterns are uint64, and both operands of an operation on bit patterns are uint64.

No argument is checked. Each function names its precondition; under it, no function reads outside
its arrays, whatever the arrays hold, provided that the rank and select directories belong to the
words (they are built or verified when an index is loaded).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIRS = np.uint64(0x5555555555555555)
_NIBBLES = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)


class BitLanes(NamedTuple):
    """Arrays of a `BitVector` of n bits.

    Attributes
    ----------
    words : uint64 array [8 * (n // 512 + 1)]
        Bit i is ``words[i // 64] >> (i % 64) & 1``; bits from n on are 0.
    blocks : uint32 array [n // 512 + 1]
        Ones before each block of 512 bits, counted from the start of its superblock.
    supers : uint64 array
        Ones before each superblock of 2**23 blocks.
    samples1, samples0 : uint32 array
        Block of the ones (zeros) numbered 0, 2**shift, 2 * 2**shift, ...; then the last block.
    shift1, shift0 : int64
        Binary logarithm of the distance between samples.
    """

    words: NDArray[np.uint64]
    blocks: NDArray[np.uint32]
    supers: NDArray[np.uint64]
    samples1: NDArray[np.uint32]
    samples0: NDArray[np.uint32]
    shift1: np.int64
    shift0: np.int64


class PackedLanes(NamedTuple):
    """Arrays of a `PackedArray`: value i is bits [i * width, (i + 1) * width) of `words`.

    Attributes
    ----------
    words : uint64 array [ceil(n * width / 64) + 1]
    width : int64
        0 to 64 bits.
    """

    words: NDArray[np.uint64]
    width: np.int64


def popcount(word: np.uint64) -> np.int64:
    """Ones in `word`. Compilers replace it by the target's instruction."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _NIBBLES) + ((word >> np.uint64(2)) & _NIBBLES)
    word = (word + (word >> np.uint64(4))) & _BYTES
    word = word + (word >> np.uint64(8))
    word = word + (word >> np.uint64(16))
    word = word + (word >> np.uint64(32))
    return np.int64(word & np.uint64(127))


def lowest_one(word: np.uint64) -> np.int64:
    """Position of the lowest 1 of `word`, which is not 0."""
    return np.int64(popcount(word ^ (word - _ONE)) - 1)


def select_in_word(word: np.uint64, k: np.int64) -> np.int64:
    """Position of the one numbered `k`, from 0, of `word`, which has more than `k` ones."""
    position = np.int64(0)
    half = np.int64(32)
    while half >= 8:
        count = popcount(word & ((_ONE << np.uint64(half)) - _ONE))
        if k >= count:
            k -= count
            position += half
            word = word >> np.uint64(half)
        half >>= 1
    while k > 0:
        word = word & (word - _ONE)
        k -= 1
    return np.int64(position + lowest_one(word))


def get_bit(bits: BitLanes, i: np.int64) -> bool:
    """Bit `i`; 0 <= i <= n."""
    return bool((bits.words[i >> 6] >> np.uint64(i & 63)) & _ONE)


def rank1(bits: BitLanes, i: np.int64) -> np.int64:
    """Ones before position `i`; 0 <= i <= n."""
    words = bits.words
    block = i >> 9
    rank = np.int64(bits.supers[block >> 23]) + np.int64(bits.blocks[block])
    start = block << 3
    last = i >> 6
    # Always the whole block, without a branch: cheaper than a loop of unforeseeable length.
    for j in range(start, start + 8):
        mask = (_ONE << np.uint64(i & 63)) - _ONE if j == last else _ALL
        rank += popcount(words[j] & (mask if j <= last else np.uint64(0)))
    return np.int64(rank)


def _ones_before(bits: BitLanes, block: np.int64) -> np.int64:
    return np.int64(np.int64(bits.supers[block >> 23]) + np.int64(bits.blocks[block]))


def select1(bits: BitLanes, k: np.int64) -> np.int64:
    """Position of the one numbered `k`, from 0; 0 <= k < number of ones."""
    low = np.int64(bits.samples1[k >> bits.shift1])
    high = np.int64(bits.samples1[(k >> bits.shift1) + 1])
    while low < high:
        middle = (low + high + 1) >> 1
        if _ones_before(bits, middle) <= k:
            low = middle
        else:
            high = middle - 1
    words = bits.words
    rest = k - _ones_before(bits, low)
    j = low << 3
    count = popcount(words[j])
    while rest >= count:
        rest -= count
        j += 1
        count = popcount(words[j])
    return np.int64((j << 6) + select_in_word(words[j], rest))


def select0(bits: BitLanes, k: np.int64) -> np.int64:
    """Position of the zero numbered `k`, from 0; 0 <= k < number of zeros."""
    low = np.int64(bits.samples0[k >> bits.shift0])
    high = np.int64(bits.samples0[(k >> bits.shift0) + 1])
    while low < high:
        middle = (low + high + 1) >> 1
        if (middle << 9) - _ones_before(bits, middle) <= k:
            low = middle
        else:
            high = middle - 1
    words = bits.words
    rest = k - ((low << 9) - _ones_before(bits, low))
    j = low << 3
    count = 64 - popcount(words[j])
    while rest >= count:
        rest -= count
        j += 1
        count = 64 - popcount(words[j])
    return np.int64((j << 6) + select_in_word(words[j] ^ _ALL, rest))


def next_one(bits: BitLanes, i: np.int64, limit: np.int64) -> np.int64:
    """First position of a 1 in [i, limit), or `limit`; 0 <= i and limit <= n."""
    if i >= limit:
        return limit
    j = i >> 6
    word = bits.words[j] & (_ALL << np.uint64(i & 63))
    while word == np.uint64(0):
        j += 1
        if (j << 6) >= limit:
            return limit
        word = bits.words[j]
    found = (j << 6) + lowest_one(word)
    return np.int64(min(found, limit))


def next_zero(bits: BitLanes, i: np.int64, limit: np.int64) -> np.int64:
    """First position of a 0 in [i, limit), or `limit`; 0 <= i and limit <= n."""
    if i >= limit:
        return limit
    j = i >> 6
    word = (bits.words[j] ^ _ALL) & (_ALL << np.uint64(i & 63))
    while word == np.uint64(0):
        j += 1
        if (j << 6) >= limit:
            return limit
        word = bits.words[j] ^ _ALL
    found = (j << 6) + lowest_one(word)
    return np.int64(min(found, limit))


def packed_get(packed: PackedLanes, i: np.int64) -> np.uint64:
    """Value `i`; 0 <= i < n."""
    return get_bits(packed.words, np.int64(i * packed.width), packed.width)


def get_bits(words: NDArray[np.uint64], start: np.int64, width: np.int64) -> np.uint64:
    """The integer of `width` bits that begins at bit `start`."""
    if width == 0:
        return np.uint64(0)
    j = start >> 6
    offset = start & 63
    value = words[j] >> np.uint64(offset)
    if offset + width > 64:
        value = value | (words[j + 1] << np.uint64(64 - offset))
    if width < 64:
        value = value & ((_ONE << np.uint64(width)) - _ONE)
    return np.uint64(value)


class EliasFanoLanes(NamedTuple):
    """Arrays of an `EliasFano` of n values.

    Attributes
    ----------
    high : BitLanes
        Value i sets bit ``(value >> low.width) + i``.
    low : PackedLanes
        The low bits of every value.
    length, zeros : int64
        n, and the zeros of `high`.
    """

    high: BitLanes
    low: PackedLanes
    length: np.int64
    zeros: np.int64


def elias_fano_get(values: EliasFanoLanes, i: np.int64) -> np.uint64:
    """Value `i`; 0 <= i < n."""
    high = np.uint64(select1(values.high, i) - i)
    low = packed_get(values.low, i)
    return np.uint64((high << np.uint64(values.low.width)) | low)


def elias_fano_rank(values: EliasFanoLanes, x: np.uint64) -> np.int64:
    """Number of values less than `x`."""
    bucket = np.int64(x >> np.uint64(values.low.width))
    if bucket < 0 or bucket >= values.zeros:
        return values.length
    begin = np.int64(0)
    if bucket > 0:
        begin = np.int64(select0(values.high, bucket - 1) - (bucket - 1))
    end = np.int64(select0(values.high, bucket) - bucket)
    low = x & ((_ONE << np.uint64(values.low.width)) - _ONE)
    while begin < end:
        middle = (begin + end) >> 1
        if packed_get(values.low, middle) < low:
            begin = middle + 1
        else:
            end = middle
    return begin
