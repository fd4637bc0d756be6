"""Filtering first on the device: slots of valid tokens, their scores, their norms.

The beams of all requests are rows. A row has a slot for each token that continues its beam, and
the slots lie in chunks of 64, which are at the same time the tasks of a queue: `open_rows` gives
each row its chunks with one atomic for 256 rows, and whoever fills, multiplies or copies goes
through the queue with a fixed number of blocks, so that no work is spent on empty places. What
fills the slots, and in which order, is nothing that selection sees.

If validity comes as bits instead, a row has a slot for every column of a matrix product.
"""

from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from succinct.bits.lanes import BitLanes
from succinct.trie.lanes import child_range, find_child, nth_child
from succinct_gpu._masking import BLOCK, block_scan, leads_to_eligible, usable

CHUNK = 64
#: What can be wrong with a request: scores that are not finite, too few slots, a token that the
#: output matrix has no row for.
NOT_FINITE, NO_ROOM, NO_ROW = 1, 2, 3

_FULL = 0xFFFFFFFF
_TILE = 16
_PADDED = 17  # so that a column lies in as many banks
_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_TOKEN = np.uint32(0xFFFFFFFF)
_NEGATIVE_INFINITY = np.float32(-inf)
_INFINITY = np.float32(inf)
_ZERO = np.float32(0.0)


class Slots(NamedTuple):
    """The rows of a step of Q requests with B beams, and their slots, on the device.

    Attributes
    ----------
    origins, starts : int64 array [Q * B]
        What `child_range` says of each row, and the place of its first slot.
    counts : int64 array [Q * B]
        Slots of each row; 0 for beams that are not continued.
    firsts : int64 array [Q, B + 1]
        Slots of the rows of a request before each row.
    owners : int32 array [chunks]
        The row that each chunk belongs to, or -1.
    n_chunks : int32 array [1]
    tokens : uint32 array [64 * chunks]
        The largest uint32 in slots that hold no token. No elements if the places say the tokens.
    states : uint64 array [64 * chunks]
        States behind the tokens.
    values : float32 array
        A score in every slot.
    norms : float32 array [Q * B]
        Logarithm of the sum of the powers of the scores of each row.
    status : int32 array [Q]
        0, or what is wrong with the request.
    """

    origins: Any
    starts: Any
    counts: Any
    firsts: Any
    owners: Any
    n_chunks: Any
    tokens: Any
    states: Any
    values: Any
    norms: Any
    status: Any


def clear(words: Any) -> None:
    """Set all words to 0. Cost: a coalesced store each."""
    i = cuda.grid(1)
    while i < words.size:
        words[i] = 0
        i += cuda.gridsize(1)


def open_rows(
    index: Any, limits: Any, states: Any, beam_scores: Any, width: np.int64, slots: Slots
) -> None:
    """Find out how many slots each row has, and where they are; a block for each request.

    With `width` 0 there is a slot for each continuation, otherwise `width` places for every row
    that has one. Two dependent chains of loads at worst: that of `child_range` and the atomic.
    """
    totals = cuda.shared.array(8, np.int64)
    place = cuda.shared.array(1, np.int64)
    request = cuda.blockIdx.x
    n_beams = np.int64(slots.firsts.shape[1]) - np.int64(1)
    done = np.int64(0)
    at = np.int64(0)
    while at < n_beams:
        beam = at + np.int64(cuda.threadIdx.x)
        row = np.int64(request) * n_beams + beam
        count = np.int64(0)
        if beam < n_beams:
            state = usable(states[row], limits)
            score = beam_scores[row]
            if score > _NEGATIVE_INFINITY and score < _INFINITY:
                origin, count = child_range(index, state)
                slots.origins[row] = origin
            if width > 0 and count > 0:
                count = width
        chunks = (count + np.int64(CHUNK - 1)) // CHUNK
        before, used = block_scan(chunks, totals)
        if cuda.threadIdx.x == 0 and width == 0:
            place[0] = np.int64(cuda.atomic.add(slots.n_chunks, 0, np.int32(used)))
        cuda.syncthreads()
        if beam < n_beams:
            if width > 0:
                slots.starts[row] = row * width
            else:
                first = place[0] + before
                slots.starts[row] = first * CHUNK
                owner = np.int32(row)
                if first + chunks > slots.owners.size:
                    owner = np.int32(-1)
                    count = np.int64(0)
                    cuda.atomic.max(slots.status, request, np.int32(NO_ROOM))
                for chunk in range(first, min(first + chunks, np.int64(slots.owners.size))):
                    slots.owners[chunk] = owner
            slots.counts[row] = count
        before, used = block_scan(count, totals)
        if beam < n_beams:
            slots.firsts[request, beam] = done + before
        done += used
        at += BLOCK
    if cuda.threadIdx.x == 0:
        slots.firsts[request, n_beams] = done


def fill_slots(
    index: Any,
    limits: Any,
    states: Any,
    low: np.int64,
    n_columns: np.int64,
    dense: Any,
    slots: Slots,
) -> None:
    """Write the valid tokens to their slots, with the states behind them; blocks of `CHUNK`.

    `dense` holds the scores of `n_columns` tokens from `low` on, for each row, or nothing. A
    thread does one `nth_child` for each of its slots, at most ceil(chunks / blocks) times.
    """
    chunk = np.int64(cuda.blockIdx.x)
    n_chunks = min(np.int64(slots.n_chunks[0]), np.int64(slots.owners.size))
    n_beams = np.int64(slots.firsts.shape[1]) - np.int64(1)
    while chunk < n_chunks:
        row = np.int64(slots.owners[chunk])
        slot = chunk * CHUNK + np.int64(cuda.threadIdx.x)
        k = slot - slots.starts[row] if row >= 0 else np.int64(0)
        if row >= 0 and k < slots.counts[row]:
            token, child = nth_child(index, states[row], slots.origins[row], k)
            valid = child != _DEAD
            column = token - low
            if valid and (column < 0 or column >= n_columns):
                valid = False
                cuda.atomic.max(slots.status, row // n_beams, np.int32(NO_ROW))
            value = _NEGATIVE_INFINITY
            if valid and dense.size > 0:
                value = dense[row, column]
            slots.tokens[slot] = np.uint32(token) if valid else _NO_TOKEN
            slots.states[slot] = child
            slots.values[slot] = value
        chunk += np.int64(cuda.gridDim.x)


def drop_ineligible(index: Any, allowed: BitLanes, allowed_at: Any, slots: Slots) -> None:
    """Empty the slots of tokens that lead to no eligible key of the request; blocks of `CHUNK`.

    O(levels) ranks for each slot at worst, each a few dependent loads.
    """
    chunk = np.int64(cuda.blockIdx.x)
    n_chunks = min(np.int64(slots.n_chunks[0]), np.int64(slots.owners.size))
    n_beams = np.int64(slots.firsts.shape[1]) - np.int64(1)
    while chunk < n_chunks:
        row = np.int64(slots.owners[chunk])
        slot = chunk * CHUNK + np.int64(cuda.threadIdx.x)
        if row >= 0 and slot < slots.starts[row] + slots.counts[row]:
            offset = allowed_at[row // n_beams]
            asked = offset >= 0 and slots.tokens[slot] != _NO_TOKEN
            if asked and not leads_to_eligible(index, slots.states[slot], allowed, offset):
                slots.tokens[slot] = _NO_TOKEN
                slots.values[slot] = _NEGATIVE_INFINITY
        chunk += np.int64(cuda.gridDim.x)


def warp_sum(value: np.float32) -> np.float32:
    """The sum over a warp, of which all lanes must call it, always added up in one order."""
    distance = 16
    while distance > 0:
        value += cuda.shfl_xor_sync(_FULL, value, distance)
        distance >>= 1
    return value


def project(hidden: Any, weight: Any, low: np.int64, slots: Slots) -> None:
    """Write the product of a row's hidden state and each of its tokens' weights to the slots.

    A block holds the hidden state in its dynamic shared memory, of 4 bytes a dimension, and a warp
    multiplies for one token at a time. n valid tokens and H dimensions take n * H loads of
    weights, coalesced, and H / 64 loads of hidden states for each of them at most.
    """
    vector = cuda.shared.array(0, np.float32)
    length = np.int64(hidden.shape[1])
    lane = np.int64(cuda.laneid)
    chunk = np.int64(cuda.blockIdx.x)
    n_chunks = min(np.int64(slots.n_chunks[0]), np.int64(slots.owners.size))
    while chunk < n_chunks:
        row = np.int64(slots.owners[chunk])
        if row >= 0:
            i = np.int64(cuda.threadIdx.x)
            while i < length:
                vector[i] = np.float32(hidden[row, i])
                i += np.int64(BLOCK)
            cuda.syncthreads()
            slot = chunk * CHUNK + np.int64(cuda.threadIdx.x >> 5)
            end = min((chunk + 1) * CHUNK, slots.starts[row] + slots.counts[row])
            while slot < end:
                token = slots.tokens[slot]
                if token != _NO_TOKEN:
                    column = np.int64(token) - low
                    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
                    i = lane
                    while i + 96 < length:  # four loads that do not wait for each other
                        a += vector[i] * np.float32(weight[column, i])
                        b += vector[i + 32] * np.float32(weight[column, i + 32])
                        c += vector[i + 64] * np.float32(weight[column, i + 64])
                        d += vector[i + 96] * np.float32(weight[column, i + 96])
                        i += 128
                    while i < length:
                        a += vector[i] * np.float32(weight[column, i])
                        i += 32
                    total = warp_sum((a + b) + (c + d))
                    if lane == 0:
                        slots.values[slot] = total
                slot += np.int64(BLOCK // 32)
            cuda.syncthreads()
        chunk += np.int64(cuda.gridDim.x)


def multiply(hidden: Any, weight: Any, first: np.int64, out: Any) -> None:
    """``out = hidden @ weight[first : first + width].T`` in tiles, a thread for each product.

    For where there is neither CuPy nor torch: R * width * H / 8 loads, no tensor cores.
    """
    left = cuda.shared.array((_TILE, _PADDED), np.float32)
    right = cuda.shared.array((_TILE, _PADDED), np.float32)
    x, y = np.int64(cuda.threadIdx.x), np.int64(cuda.threadIdx.y)
    column = np.int64(cuda.blockIdx.x) * _TILE + x
    row = np.int64(cuda.blockIdx.y) * _TILE + y
    other = np.int64(cuda.blockIdx.x) * _TILE + y
    n_rows, width = np.int64(out.shape[0]), np.int64(out.shape[1])
    length = np.int64(hidden.shape[1])
    total = _ZERO
    at = np.int64(0)
    while at < length:
        left[y, x] = _ZERO
        right[y, x] = _ZERO
        if at + x < length:
            if row < n_rows:
                left[y, x] = np.float32(hidden[row, at + x])
            if other < width:
                right[y, x] = np.float32(weight[first + other, at + x])
        cuda.syncthreads()
        for i in range(_TILE):
            total += left[y, i] * right[x, i]
        cuda.syncthreads()
        at += _TILE
    if row < n_rows and column < width:
        out[row, column] = total


def normalise(values: Any, width: np.int64, slots: Slots) -> None:
    """Logarithm of the sum of the powers of every row, a block for each; added in one order.

    The scores are those in the slots of a row, or with `width` above 0 as many for every row,
    one row after another. Two passes over them, the second of which finds them in a cache.
    """
    largest = cuda.shared.array(8, np.float32)
    sums = cuda.shared.array(8, np.float32)
    row = np.int64(cuda.blockIdx.x)
    i = np.int64(cuda.threadIdx.x)
    count = slots.counts[row]
    begin = slots.starts[row]
    if width > 0 and count > 0:
        count = width
        begin = row * width
    most = _NEGATIVE_INFINITY
    bad = np.int32(0)
    k = i
    while k < count:
        value = values[begin + k]
        if value < _INFINITY:
            most = max(most, value)
        else:
            bad = np.int32(1)
        k += BLOCK
    distance = 16
    while distance > 0:
        most = max(most, cuda.shfl_xor_sync(_FULL, most, distance))
        distance >>= 1
    if i & 31 == 0:
        largest[i >> 5] = most
    if cuda.syncthreads_or(bad) != 0 and i == 0:
        request = row // (np.int64(slots.firsts.shape[1]) - np.int64(1))
        cuda.atomic.max(slots.status, request, np.int32(NOT_FINITE))
    for warp in range(BLOCK // 32):
        most = max(most, largest[warp])
    total = _ZERO
    k = i
    while k < count:
        value = values[begin + k]
        if value > _NEGATIVE_INFINITY and value < _INFINITY:
            total += np.float32(exp(np.float32(value - most)))
        k += BLOCK
    total = warp_sum(total)
    if i & 31 == 0:
        sums[i >> 5] = total
    cuda.syncthreads()
    if i == 0:
        total = _ZERO
        for warp in range(BLOCK // 32):
            total += sums[warp]
        norm = _NEGATIVE_INFINITY
        if total > _ZERO:
            norm = np.float32(most + np.float32(log(total)))
        slots.norms[row] = norm


def advance(
    index: Any, limits: Any, states: Any, n_beams: np.int64, parents: Any, tokens: Any, out: Any
) -> None:
    """States behind tokens of chosen beams; those of DEAD stay.

    Cost of each: five loads of 4 or 8 bytes, one `child_range` and log2(continuations) loads, one
    after the other, and 8 bytes written.
    """
    i = cuda.grid(1)
    if i < out.size:
        request = i // out.shape[1]
        place = i % out.shape[1]
        if out[request, place] != _DEAD:
            row = request * n_beams + parents[request, place]
            state = usable(states[row], limits)
            first, count = child_range(index, state)
            out[request, place] = find_child(
                index, state, first, count, np.int64(tokens[request, place])
            )
