"""Masking on the device: which tokens continue each row's state.

One block a row. The kernels that fill rows go through the vocabulary in tiles: threads mark the
continuations that lie in the tile in shared memory, then write the tile, coalesced. A row of V
columns and d continuations costs O(V + d) work in V / 4096 rounds of three barriers; the loads that
depend on each other are those of one child lookup a round. Listing candidates costs O(d).
"""

from typing import Any

import numpy as np
from numba import cuda

from succinct.trie.lanes import child_range, nth_child

BLOCK = 256
_TILE = 4096
_TILE_WORDS = 128
_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.uint32(0)
_MINUS_INFINITY = np.float32(-np.inf)


def usable(state: np.uint64, limits: Any) -> np.uint64:
    """The state, or DEAD if the index cannot have given it out; see `DeviceIndex`."""
    if state < limits[0] or limits[1] <= state < limits[2]:
        return state
    return _DEAD


def mark_tile(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    done: np.int64,
    begin: np.int64,
    marks: Any,
) -> np.int64:
    """Set the bits of the continuations in [begin, begin + tile), by all threads of a block.

    `done` continuations lie before the tile; returns how many lie before the next. The marks must
    be 0 and are complete on return.
    """
    i = np.int64(cuda.threadIdx.x)
    more = True
    while more:
        k = done + i
        inside = np.int32(0)
        if k < count:
            token, child = nth_child(index, state, first, k)
            if token < begin + _TILE:
                inside = np.int32(1)
                if token >= begin and child != _DEAD:
                    place = token - begin
                    bit = np.uint32(1) << np.uint32(place & 31)
                    cuda.atomic.or_(marks, place >> 5, np.uint32(bit))
        found = cuda.syncthreads_count(inside)
        done += np.int64(found)
        more = found == cuda.blockDim.x
    return done


def constrain_rows(
    index: Any,
    limits: Any,
    states: Any,
    low: np.int64,
    logits: Any,
    minus_infinity: Any,
    absolute: Any,
) -> None:
    """Overwrite the bits of all logits but those of valid tokens.

    `logits` [R, V] of the tokens from `low` on holds the bits of floats as unsigned integers, as
    are the bits of -inf, and the mask `absolute` of all bits but the sign; 0 keeps NaN.
    """
    marks = cuda.shared.array(_TILE_WORDS, np.uint32)
    row = cuda.blockIdx.x
    i = cuda.threadIdx.x
    width = np.int64(logits.shape[1])
    state = usable(states[row], limits)
    first, count = child_range(index, state)
    done = np.int64(0)
    begin = np.int64(0)
    while begin < width:
        if i < _TILE_WORDS:
            marks[i] = _NONE
        cuda.syncthreads()
        done = mark_tile(index, state, first, count, done, low + begin, marks)
        place = np.int64(i)
        while place < _TILE and begin + place < width:
            valid = (marks[place >> 5] >> np.uint32(place & 31)) & np.uint32(1) != _NONE
            if valid:  # unless it is NaN
                valid = logits[row, begin + place] & absolute <= minus_infinity & absolute
            if not valid:
                logits[row, begin + place] = minus_infinity
            place += BLOCK
        cuda.syncthreads()
        begin += _TILE


def mask_rows(index: Any, limits: Any, states: Any, words: Any) -> None:
    """Write the bitmask of valid tokens of every row; `words` [R, W] of uint32."""
    marks = cuda.shared.array(_TILE_WORDS, np.uint32)
    row = cuda.blockIdx.x
    i = cuda.threadIdx.x
    state = usable(states[row], limits)
    first, count = child_range(index, state)
    done = np.int64(0)
    begin = np.int64(0)
    while begin < words.shape[1] * 32:
        if i < _TILE_WORDS:
            marks[i] = _NONE
        cuda.syncthreads()
        done = mark_tile(index, state, first, count, done, begin, marks)
        word = (begin >> 5) + i
        if i < _TILE_WORDS and word < words.shape[1]:
            words[row, word] = marks[i]
        cuda.syncthreads()
        begin += _TILE


def count_children(index: Any, limits: Any, states: Any, counts: Any) -> None:
    """Number of continuations of every state."""
    row = cuda.grid(1)
    if row < states.size:
        _, count = child_range(index, usable(states[row], limits))
        counts[row] = count


def list_candidates(
    index: Any,
    limits: Any,
    states: Any,
    logits: Any,
    offsets: Any,
    tokens: Any,
    scores: Any,
    next_states: Any,
) -> None:
    """Write the continuations of row r to places from ``offsets[r]`` on, none behind the next."""
    row = cuda.blockIdx.x
    state = usable(states[row], limits)
    first, count = child_range(index, state)
    begin = offsets[row]
    room = min(count, offsets[row + 1] - begin)
    k = np.int64(cuda.threadIdx.x)
    while k < room:
        token, child = nth_child(index, state, first, k)
        score = _MINUS_INFINITY
        if 0 <= token < logits.shape[1]:
            score = np.float32(logits[row, token])
            if score != score:
                score = _MINUS_INFINITY
        tokens[begin + k] = np.uint32(token)
        scores[begin + k] = score
        next_states[begin + k] = child
        k += np.int64(cuda.blockDim.x)
