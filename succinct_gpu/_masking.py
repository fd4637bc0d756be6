"""Masking on the device: which tokens continue each row's state.

One block a row. The kernels that fill rows go through the vocabulary in tiles: threads mark the
continuations that lie in the tile in shared memory, then write the tile, coalesced. A row of V
columns and d continuations costs O(V + d) work in V / 4096 rounds of three barriers; the loads that
depend on each other are those of one child lookup a round. Listing candidates costs O(d), in rounds
of 256 continuations.

Kernels that call `is_wanted` are compiled with `every_key` in its place where every key is
eligible.
"""

from math import exp, log
from typing import Any

import numpy as np
from numba import cuda

from succinct.bits.lanes import BitLanes
from succinct.decode.eligibility import is_eligible, reaches_eligible
from succinct.trie.lanes import child_range, is_terminal, nth_child

BLOCK = 256
_FULL = 0xFFFFFFFF
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


def block_scan(value: np.int64, totals: Any) -> tuple[np.int64, np.int64]:
    """The sum of the values of all threads before this one, and of all of the block.

    For blocks of `BLOCK` threads, which must all call it; `totals` is shared memory of int64 [8].
    """
    lane = cuda.laneid
    warp = cuda.threadIdx.x >> 5
    upto = np.int64(value)
    distance = 1
    while distance < 32:
        below = cuda.shfl_up_sync(_FULL, upto, distance)
        if lane >= distance:
            upto += below
        distance *= 2
    if lane == 31:
        totals[warp] = upto
    cuda.syncthreads()
    before = upto - value
    total = np.int64(0)
    for other in range(BLOCK // 32):
        if other < warp:
            before += totals[other]
        total += totals[other]
    cuda.syncthreads()
    return before, total


def leads_to_eligible(index: Any, state: np.uint64, allowed: BitLanes, offset: np.int64) -> bool:
    """Whether a state is an eligible key or a prefix of one."""
    return bool(
        (is_terminal(index, state) and is_eligible(index, state, allowed, offset))
        or reaches_eligible(index, state, allowed, offset)
    )


def is_wanted(index: Any, state: np.uint64, allowed: BitLanes, allowed_at: Any, row: Any) -> bool:
    """Whether a state leads to a key that the request of a row may get."""
    offset = allowed_at[row]
    return bool(offset < 0 or leads_to_eligible(index, state, allowed, offset))


def every_key(index: Any, state: np.uint64, allowed: BitLanes, allowed_at: Any, row: Any) -> bool:
    """As `is_wanted` where every key is eligible."""
    return True


def children_of_row(index: Any, state: np.uint64, span: Any) -> tuple[np.int64, np.int64]:
    """What `child_range` says, found by one thread for its block, all of which must call this;
    `span` is shared memory of int64 [2]."""
    if cuda.threadIdx.x == 0:
        first, count = child_range(index, state)
        span[0] = first
        span[1] = count
    cuda.syncthreads()
    return span[0], span[1]


def mark_tile(
    index: Any,
    allowed: BitLanes,
    allowed_at: Any,
    row: Any,
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
                if (
                    token >= begin
                    and child != _DEAD
                    and is_wanted(index, child, allowed, allowed_at, row)
                ):
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
    allowed: BitLanes,
    allowed_at: Any,
    low: np.int64,
    logits: Any,
    minus_infinity: Any,
    absolute: Any,
) -> None:
    """Overwrite the bits of all logits but those of valid tokens.

    `logits` [R, V] of the tokens from `low` on holds the bits of floats as unsigned integers, as
    are the bits of -inf, and the mask `absolute` of all bits but the sign; 0 keeps NaN.

    Cost of a row with d continuations: the logits of these are read, V - d written; one
    `child_range` and, in each of V / 4,096 rounds of three barriers, one `nth_child` deep.
    """
    marks = cuda.shared.array(_TILE_WORDS, np.uint32)
    span = cuda.shared.array(2, np.int64)
    row = cuda.blockIdx.x
    i = cuda.threadIdx.x
    width = np.int64(logits.shape[1])
    state = usable(states[row], limits)
    first, count = children_of_row(index, state, span)
    done = np.int64(0)
    begin = np.int64(0)
    while begin < width:
        if i < _TILE_WORDS:
            marks[i] = _NONE
        cuda.syncthreads()
        done = mark_tile(
            index, allowed, allowed_at, row, state, first, count, done, low + begin, marks
        )
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


def mask_rows(
    index: Any, limits: Any, states: Any, allowed: BitLanes, allowed_at: Any, words: Any
) -> None:
    """Write the bitmask of valid tokens of every row; `words` [R, W] of uint32.

    Cost of a row: V / 8 bytes written, otherwise as `constrain_rows`.
    """
    marks = cuda.shared.array(_TILE_WORDS, np.uint32)
    span = cuda.shared.array(2, np.int64)
    row = cuda.blockIdx.x
    i = cuda.threadIdx.x
    state = usable(states[row], limits)
    first, count = children_of_row(index, state, span)
    done = np.int64(0)
    begin = np.int64(0)
    while begin < words.shape[1] * 32:
        if i < _TILE_WORDS:
            marks[i] = _NONE
        cuda.syncthreads()
        done = mark_tile(index, allowed, allowed_at, row, state, first, count, done, begin, marks)
        word = (begin >> 5) + i
        if i < _TILE_WORDS and word < words.shape[1]:
            words[row, word] = marks[i]
        cuda.syncthreads()
        begin += _TILE


def count_children(index: Any, limits: Any, states: Any, counts: Any) -> None:
    """Number of continuations of every state. Cost: 16 bytes and one `child_range` each."""
    row = cuda.grid(1)
    if row < states.size:
        _, count = child_range(index, usable(states[row], limits))
        counts[row] = count


def list_rows(
    index: Any,
    limits: Any,
    states: Any,
    allowed: BitLanes,
    allowed_at: Any,
    logits: Any,
    width: np.int64,
    offsets: Any,
    counts: Any,
    tokens: Any,
    scores: Any,
    next_states: Any,
    valid: Any,
) -> None:
    """List the valid continuations of every row in order, and count them; a block for each row.

    Their places are `width` for every row, or with 0 those from ``offsets[r]`` on to the next; with
    no offsets they are only counted. Places that are left over are filled, and so are all of a
    row that has more than `width`. `valid` may be empty.

    Cost of a row with d continuations: one `child_range` by one thread, d times `nth_child` and a
    logit behind each, 16 or 17 bytes written for each place; two barriers for every 256 of d.
    """
    totals = cuda.shared.array(8, np.int64)
    span = cuda.shared.array(2, np.int64)
    row = np.int64(cuda.blockIdx.x)
    state = usable(states[row], limits)
    first, count = children_of_row(index, state, span)
    begin = row * width
    room = width
    if width == 0 and offsets.size > 0:
        begin = offsets[row]
        room = offsets[row + 1] - begin
    done = np.int64(0)
    at = np.int64(0)
    while at < count:
        k = at + np.int64(cuda.threadIdx.x)
        wanted = np.int64(0)
        token, child = np.int64(0), _DEAD
        if k < count:
            token, child = nth_child(index, state, first, k)
            if (
                child != _DEAD
                and 0 <= token < logits.shape[1]
                and is_wanted(index, child, allowed, allowed_at, row)
            ):
                wanted = np.int64(1)
        before, used = block_scan(wanted, totals)
        place = done + before
        if wanted != 0 and place < room:
            score = np.float32(logits[row, token])
            if score != score:
                score = _MINUS_INFINITY
            tokens[begin + place] = np.uint32(token)
            scores[begin + place] = score
            next_states[begin + place] = child
            if valid.size > 0:
                valid[begin + place] = True
        done += used
        at += np.int64(BLOCK)
    if cuda.threadIdx.x == 0:
        counts[row] = done
    if width > 0 and done > width:
        done = np.int64(0)
        cuda.syncthreads()  # what was written above is overwritten
    k = done + np.int64(cuda.threadIdx.x)
    while k < room:
        tokens[begin + k] = np.uint32(0)
        scores[begin + k] = _MINUS_INFINITY
        next_states[begin + k] = _DEAD
        if valid.size > 0:
            valid[begin + k] = False
        k += np.int64(BLOCK)


def block_max(value: np.float64, parts: Any) -> np.float64:
    """The largest value of the threads of a block, which must all call it; `parts` is shared."""
    distance = 16
    while distance > 0:
        value = max(value, cuda.shfl_xor_sync(_FULL, value, distance))
        distance >>= 1
    if cuda.laneid == 0:
        parts[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()
    for warp in range(BLOCK // 32):
        value = max(value, parts[warp])
    cuda.syncthreads()
    return value


def block_sum(value: np.float64, parts: Any) -> np.float64:
    """The sum of the values, added in one order; otherwise as `block_max`."""
    distance = 16
    while distance > 0:
        value += cuda.shfl_xor_sync(_FULL, value, distance)
        distance >>= 1
    if cuda.laneid == 0:
        parts[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()
    total = np.float64(0.0)
    for warp in range(BLOCK // 32):
        total += parts[warp]
    cuda.syncthreads()
    return total


def normalise_rows(
    logits: Any, over_all: bool, width: np.int64, offsets: Any, counts: Any, scores: Any
) -> None:
    """Log-softmax of the scores that `list_rows` wrote, over them or over all logits of a row.

    A block for each row, in float64, as on the CPU: two passes, and one over the scores.
    """
    parts = cuda.shared.array(8, np.float64)
    row = np.int64(cuda.blockIdx.x)
    i = np.int64(cuda.threadIdx.x)
    begin, n = row * width, counts[row]
    if width == 0:
        begin = offsets[row]
        n = min(n, offsets[row + 1] - begin)
    elif n > width:
        n = np.int64(0)
    end = np.int64(logits.shape[1]) if over_all else n
    most = np.float64(_MINUS_INFINITY)
    k = i
    while k < end:
        value = np.float64(np.float32(logits[row, k]) if over_all else scores[begin + k])
        if value > most:
            most = value
        k += BLOCK
    most = block_max(most, parts)
    total = np.float64(0.0)
    k = i
    while k < end:
        value = np.float64(np.float32(logits[row, k]) if over_all else scores[begin + k])
        if value == most:
            total += 1.0
        elif value < most:
            total += np.float64(exp(value - most))
        k += BLOCK
    total = block_sum(total, parts)
    log_sum = np.float64(0.0)
    if most > _MINUS_INFINITY and total > 0.0:
        log_sum = np.float64(log(total))
    k = i
    while k < n:
        value = np.float64(scores[begin + k])
        if value == most and most > _MINUS_INFINITY:
            value = np.float64(0.0)
        elif value > _MINUS_INFINITY:
            value -= most
        scores[begin + k] = np.float32(value - log_sum)
        k += BLOCK
