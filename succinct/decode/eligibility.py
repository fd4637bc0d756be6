"""Which keys a request may get: bitmaps over key numbers, and what they say of a state.

The keys beyond a state are, level by level, consecutive in the index and in their numbers. Whether
one of them is eligible is therefore whether a range of the bitmap has a one: a difference of two
ranks for each level, and nothing of the index is rebuilt.

The integer rules of `succinct.bits.lanes` apply to the scalar functions, which are compiled with
the engines that use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct._args import describe
from succinct.bits import BitVector
from succinct.bits.lanes import BitLanes, get_bit, next_one, rank1
from succinct.index import Index
from succinct.trie.lanes import descend, extensions, is_terminal, key_number, key_range

# Those of the navigation that are long and called rarely.
RARE = ("descend", "extensions", "key_number", "key_range")
INLINED = ("any_eligible", "is_eligible")

#: Eligible keys: one bitmap for all requests, or one (or None) for each.
Allowed = BitVector | ArrayLike | Sequence[BitVector | ArrayLike | None]

# The offset of a request that may get every key.
EVERY = np.int64(-1)
# A range of this many bits or fewer is looked through.
_SHORT = np.int64(512)


def any_eligible(allowed: BitLanes, low: np.int64, high: np.int64) -> bool:
    """Whether one of the bits [low, high) is set."""
    if high - low <= _SHORT:
        return bool(next_one(allowed, low, high) < high)
    return bool(rank1(allowed, high) > rank1(allowed, low))


def is_eligible(index: Any, state: np.uint64, allowed: BitLanes, offset: np.int64) -> bool:
    """Whether the key that `state` is may be a result of the request whose bits are at `offset`."""
    return bool(offset < 0 or get_bit(allowed, offset + key_number(index, state)))


def reaches_eligible(index: Any, state: np.uint64, allowed: BitLanes, offset: np.int64) -> bool:
    """Whether an eligible key properly extends the prefix of `state`.

    O(levels) ranks in the index and in the bitmap at worst; it stops at the first level that has
    an eligible key.
    """
    if offset < 0:
        return True
    first, end = extensions(index, state)
    return eligible_beyond(index, first, end, allowed, offset)


def eligible_beyond(
    index: Any, first: np.int64, end: np.int64, allowed: BitLanes, offset: np.int64
) -> bool:
    """Whether an eligible key lies in what `extensions` of a state gave, or below it."""
    while first < end:
        low, high = key_range(index, first, end)
        if any_eligible(allowed, offset + low, offset + high):
            return True
        first, end = descend(index, first, end)
    return False


def find_eligible(
    index: Any,
    allowed: BitLanes,
    offsets: NDArray[np.int64],
    begins: NDArray[np.int64],
    states: NDArray[np.uint64],
    keep: NDArray[np.bool_],
) -> None:
    """Whether each of the `states` is an eligible key or leads to one.

    Those of row r are ``begins[r]`` to ``begins[r + 1]``, and its bits are at ``offsets[r]`` of
    `allowed`.
    """
    for r in range(len(offsets)):
        offset = offsets[r]
        for i in range(begins[r], begins[r + 1]):
            state = states[i]
            # The number of what is no key is -1.
            is_key = offset < 0 or (
                is_terminal(index, state) and is_eligible(index, state, allowed, offset)
            )
            keep[i] = is_key or reaches_eligible(index, state, allowed, offset)


def mark_eligible(
    index: Index,
    allowed: BitLanes,
    offsets: NDArray[np.int64],
    begins: NDArray[np.int64],
    states: NDArray[np.uint64],
    keep: NDArray[np.bool_],
) -> None:
    """`find_eligible`, compiled for the kind of `index`."""
    # Imports numba.
    from succinct.decode._compile import compiled_find_eligible

    find = compiled_find_eligible(index.lanes)
    find(index.lane_arrays(), allowed, offsets, begins, states, keep)


def read_allowed(
    allowed: Allowed | None, n_keys: int, n_requests: int
) -> tuple[BitLanes, NDArray[np.int64]]:
    """Check eligible keys and put them under rank.

    Parameters
    ----------
    allowed : BitVector, array, sequence or None
        Bits over key numbers: a `BitVector`, a bool array [n_keys], or a uint64 array
        [ceil(n_keys / 64)] whose bit i % 64 of word i // 64 stands for key i; for all requests
        alike. Or one of these for each request, as a sequence or as a two-dimensional array; None
        in a sequence lets that request have every key, and instead of it all requests.

    Returns
    -------
    BitLanes
        All bitmaps, one after another.
    int64 array [n_requests]
        Where the bits of each request begin; -1 if it may get every key.

    Raises
    ------
    TypeError
        If something has the wrong type or dtype.
    ValueError
        If there are not as many bits as keys, or as many bitmaps as requests.

    Notes
    -----
    O(n_keys / 64) for each bitmap; nothing for one `BitVector` that all requests share.
    """
    if allowed is None:
        return _NONE, np.full(n_requests, EVERY)
    if isinstance(allowed, BitVector):
        _check_length("allowed", len(allowed), n_keys)
        return allowed.lane_arrays(), np.zeros(n_requests, np.int64)
    many = isinstance(allowed, (list, tuple)) and not all(
        isinstance(item, (bool, np.bool_)) for item in allowed
    )
    if not many:
        array = np.asarray(allowed)
        if array.ndim != 2:
            words = _words("allowed", array, n_keys)
            bits = BitVector.from_words(words, n_keys)
            return bits.lane_arrays(), np.zeros(n_requests, np.int64)
        allowed = list(array)
    assert isinstance(allowed, (list, tuple))
    if len(allowed) != n_requests:
        raise ValueError(f"allowed: expected {n_requests} bitmaps, got {len(allowed)}")
    n_words = -(-n_keys // 64)
    offsets = np.full(n_requests, EVERY)
    parts: list[NDArray[np.uint64]] = []
    for request, item in enumerate(allowed):
        if item is not None:
            offsets[request] = 64 * n_words * len(parts)
            parts.append(_words(f"allowed[{request}]", item, n_keys))
    if not parts:
        return _NONE, offsets
    words = np.concatenate(parts)
    return BitVector.from_words(words, 64 * len(words)).lane_arrays(), offsets


def _check_length(
    name: str, length: int, expected: int, what: str = "bits, one for each key"
) -> None:
    if length != expected:
        raise ValueError(f"{name}: expected {expected} {what}, got {length}")


def _words(name: str, bits: Any, n_keys: int) -> NDArray[np.uint64]:
    """The words of one bitmap; bits behind the last key may be anything."""
    n_words = -(-n_keys // 64)
    if isinstance(bits, BitVector):
        _check_length(name, len(bits), n_keys)
        return bits.words[:n_words]
    array = np.asarray(bits)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got shape {array.shape}")
    if array.dtype == np.bool_:
        _check_length(name, len(array), n_keys)
        return BitVector.from_bools(array).words[:n_words]
    if array.dtype != np.uint64:
        raise TypeError(
            f"{name}: expected bools or packed uint64 words, got {describe(bits, array)}"
        )
    _check_length(name, len(array), n_words, "words of 64 bits")
    return array


_NONE = BitVector.from_indices([], 0).lane_arrays()
