"""The best candidates of every request, by radix selection.

A candidate's key is its score, made an unsigned integer that grows with it, above its rank among
the candidates of its request, inverted: all keys differ, and their order is the total order of
the contract. Passes over 11 bits at a time narrow down which keys can be among the best, until
the rest fits into shared memory and is sorted there.

With few candidates one block does all of it for a request, the winners' tokens and states
included. With many, blocks share the passes: each pass counts digits in global memory, and the
next one works out from the counts what is left.
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from succinct.decode._select import order32, unorder32
from succinct_gpu._filtering import Slots
from succinct_gpu._masking import BLOCK, block_scan

#: The most that are kept of a request.
MOST = 4096
#: Passes after which every key is known.
PASSES = 6
DIGITS = 2048

_BITS = 11
_NONE = np.uint64(0)
_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_RANKS = np.uint64(0xFFFFFFFF)
_NEGATIVE_INFINITY = np.float32(-inf)


class Winners(NamedTuple):
    """What a step keeps: arrays [Q, width] on the device, best first, padded.

    Attributes
    ----------
    states : uint64
        DEAD where there is none.
    scores : float32
        -inf where there is none.
    tokens : uint32
    parents : int64
        Numbers of the beams within the request that were continued.
    counts : int32 array [Q]
        How many there are.
    """

    states: Any
    scores: Any
    tokens: Any
    parents: Any
    counts: Any


def _row_of(firsts: Any, request: np.int64, rank: np.int64) -> np.int64:
    """The row of a request that has the candidate of this rank."""
    low = np.int64(0)
    high = np.int64(firsts.shape[1]) - np.int64(1)
    while low + 1 < high:
        middle = (low + high) >> 1
        if firsts[request, middle] <= rank:
            low = middle
        else:
            high = middle
    return low


def _key(slots: Slots, beam_scores: Any, request: np.int64, rank: np.int64) -> np.uint64:
    """Key of a candidate; 0 if it is none."""
    n_beams = np.int64(slots.firsts.shape[1]) - np.int64(1)
    beam = _row_of(slots.firsts, request, rank)
    row = request * n_beams + beam
    value = slots.values[slots.starts[row] + rank - slots.firsts[request, beam]]
    if not value > _NEGATIVE_INFINITY:
        return _NONE
    score = np.float32(beam_scores[row] + np.float32(value - slots.norms[row]))
    if not score > _NEGATIVE_INFINITY:
        return _NONE
    return np.uint64((order32(score) << np.uint64(32)) | (_RANKS - np.uint64(rank)))


def _shift(turn: np.int64) -> np.int64:
    """Bits below the digit that a pass looks at."""
    return max(np.int64(64 - _BITS) - np.int64(_BITS) * turn, np.int64(0))


def _digit(key: np.uint64, turn: np.int64) -> np.int64:
    mask = np.uint64(DIGITS - 1)
    if turn == PASSES - 1:
        mask = np.uint64((1 << (64 - _BITS * (PASSES - 1))) - 1)
    return np.int64((key >> np.uint64(_shift(turn))) & mask)


def _is_within(key: np.uint64, bound: np.uint64, turn: np.int64) -> bool:
    """Whether a key has the digits of `bound` that the passes before this one found."""
    if key == _NONE:
        return False
    if turn == 0:
        return True
    above = np.uint64(_shift(turn - np.int64(1)))
    return bool(key >> above == bound >> above)


def _narrow(
    counts: Any, need: np.int64, turn: np.int64, bound: np.uint64, totals: Any, found: Any
) -> tuple[np.uint64, np.int64, np.int64]:
    """What the counts of digits say, by all threads of a block.

    Returns the bound with one more digit, such that `need` of the keys within the former bound
    are at least as large; how many of them belong to larger digits; and to this one.
    """
    i = np.int64(cuda.threadIdx.x)
    each = np.int64(DIGITS // BLOCK)
    top = np.int64(DIGITS - 1) - i * each
    mine = np.int64(0)
    for k in range(each):
        mine += np.int64(counts[top - k])
    before, total = block_scan(mine, totals)
    if i == 0:
        found[0] = np.int64(0)
        found[1] = before
        found[2] = total
    cuda.syncthreads()
    if before < need <= before + mine:
        above = before
        digit = top
        while above + np.int64(counts[digit]) < need:
            above += np.int64(counts[digit])
            digit -= np.int64(1)
        found[0] = digit
        found[1] = above
        found[2] = np.int64(counts[digit])
    cuda.syncthreads()
    digit, above, inside = found[0], found[1], found[2]
    cuda.syncthreads()
    return bound | (np.uint64(digit) << np.uint64(_shift(turn))), above, inside


def _sort_and_gather(
    kept: Any,
    found: np.int64,
    low: np.int64,
    slots: Slots,
    request: np.int64,
    winners: Winners,
) -> None:
    """Sort the keys in shared memory by a bitonic network and write what they stand for."""
    i = np.int64(cuda.threadIdx.x)
    size = np.int64(1)
    while size < found:
        size *= 2
    k = found + i
    while k < size:
        kept[k] = _NONE
        k += BLOCK
    cuda.syncthreads()
    run = np.int64(2)
    while run <= size:
        distance = run >> 1
        while distance > 0:
            k = i
            while k < size // 2:
                at = ((k & ~(distance - np.int64(1))) << 1) | (k & (distance - np.int64(1)))
                a, b = kept[at], kept[at + distance]
                if (a < b) == ((at & run) == 0):
                    kept[at] = b
                    kept[at + distance] = a
                k += BLOCK
            cuda.syncthreads()
            distance >>= 1
        run *= 2
    width = np.int64(winners.scores.shape[1])
    number = min(found, width)
    if slots.status[request] != 0:
        number = np.int64(0)
    if i == 0:
        winners.counts[request] = np.int32(number)
    k = i
    while k < width:
        state, score = _DEAD, _NEGATIVE_INFINITY
        token, parent = np.uint32(0), np.int64(0)
        if k < number:
            rank = np.int64(_RANKS - (kept[k] & _RANKS))
            parent = _row_of(slots.firsts, request, rank)
            place = rank - slots.firsts[request, parent]
            score = unorder32(kept[k] >> np.uint64(32))
            if slots.tokens.size > 0:
                n_beams = np.int64(slots.firsts.shape[1]) - np.int64(1)
                slot = slots.starts[request * n_beams + parent] + place
                token = slots.tokens[slot]
                state = slots.states[slot]
            else:
                token = np.uint32(low + place)
                state = _NONE  # `advance` finds it
        winners.states[request, k] = state
        winners.scores[request, k] = score
        winners.tokens[request, k] = token
        winners.parents[request, k] = parent
        k += BLOCK


def select_in_block(
    beam_scores: Any, room: np.int64, low: np.int64, slots: Slots, winners: Winners
) -> None:
    """The winners of a request by one block, and their tokens and states.

    n candidates, of which more than `room` do not fit, take two to three passes of n / 256
    dependent loads as a rule, seven at worst, and log(room)**2 / 2 barriers to sort.
    """
    kept = cuda.shared.array(MOST, np.uint64)
    counts = cuda.shared.array(DIGITS, np.int32)
    totals = cuda.shared.array(8, np.int64)
    found = cuda.shared.array(3, np.int64)
    n_kept = cuda.shared.array(1, np.int32)
    request = np.int64(cuda.blockIdx.x)
    i = np.int64(cuda.threadIdx.x)
    n = slots.firsts[request, slots.firsts.shape[1] - 1]
    need = np.int64(winners.scores.shape[1])
    bound = np.uint64(1)
    larger = np.int64(0)
    rest = n
    turn = np.int64(0)
    while larger + rest > room and turn < PASSES:
        if turn == 0:
            bound = _NONE
        k = i
        while k < DIGITS:
            counts[k] = 0
            k += BLOCK
        cuda.syncthreads()
        k = i
        while k < n:
            key = _key(slots, beam_scores, request, k)
            if _is_within(key, bound, turn):
                cuda.atomic.add(counts, _digit(key, turn), np.int32(1))
            k += BLOCK
        cuda.syncthreads()
        bound, above, rest = _narrow(counts, need - larger, turn, bound, totals, found)
        larger += above
        turn += 1
    if i == 0:
        n_kept[0] = 0
    cuda.syncthreads()
    bound = max(bound, np.uint64(1))
    k = i
    while k < n:
        key = _key(slots, beam_scores, request, k)
        if key >= bound:
            kept[cuda.atomic.add(n_kept, 0, np.int32(1))] = key
        k += BLOCK
    cuda.syncthreads()
    _sort_and_gather(kept, np.int64(n_kept[0]), low, slots, request, winners)


def _bound_after(
    digits: Any,
    request: np.int64,
    turns: np.int64,
    room: np.int64,
    need: np.int64,
    n: np.int64,
    totals: Any,
    found: Any,
) -> tuple[np.uint64, bool]:
    """What the first passes have found out, by all threads of a block: the bound so far, and
    whether the keys from it on fit into `room`."""
    bound = _NONE
    larger = np.int64(0)
    rest = n
    turn = np.int64(0)
    while larger + rest > room and turn < turns:
        counts = digits[turn, request]
        bound, above, rest = _narrow(counts, need - larger, turn, bound, totals, found)
        larger += above
        turn += 1
    return bound, bool(larger + rest <= room)


def count_digits(
    beam_scores: Any,
    room: np.int64,
    turn: np.int64,
    need: np.int64,
    slots: Slots,
    digits: Any,
) -> None:
    """One pass over the candidates of a request by several blocks, unless all is known.

    `digits` [PASSES, Q, DIGITS] counts, from 0. The grid is [Q, blocks for each].

    Cost of each of c candidates of B beams: log2(B) loads, one after the other, of sums that all
    share, three more behind them, and for those that may win an atomic in shared memory; at most
    `DIGITS` global atomics and a handful of barriers for each block.
    """
    counts = cuda.shared.array(DIGITS, np.int32)
    totals = cuda.shared.array(8, np.int64)
    found = cuda.shared.array(3, np.int64)
    request = np.int64(cuda.blockIdx.x)
    i = np.int64(cuda.threadIdx.x)
    n = slots.firsts[request, slots.firsts.shape[1] - 1]
    bound, fits = _bound_after(digits, request, turn, room, need, n, totals, found)
    if not fits:
        k = i
        while k < DIGITS:
            counts[k] = 0
            k += BLOCK
        cuda.syncthreads()
        k = np.int64(cuda.blockIdx.y) * BLOCK + i
        while k < n:
            key = _key(slots, beam_scores, request, k)
            if _is_within(key, bound, turn):
                cuda.atomic.add(counts, _digit(key, turn), np.int32(1))
            k += np.int64(cuda.gridDim.y) * BLOCK
        cuda.syncthreads()
        k = i
        while k < DIGITS:
            if counts[k] != 0:
                cuda.atomic.add(digits, (turn, request, k), counts[k])
            k += BLOCK


def collect(
    beam_scores: Any,
    room: np.int64,
    need: np.int64,
    slots: Slots,
    digits: Any,
    n_kept: Any,
    kept: Any,
) -> None:
    """Write the keys that can win to `kept` [Q, MOST], in no order; the grid is that of
    `count_digits`.

    Cost: each candidate is read once more as there, and one atomic for each key that is kept.
    """
    totals = cuda.shared.array(8, np.int64)
    found = cuda.shared.array(3, np.int64)
    request = np.int64(cuda.blockIdx.x)
    n = slots.firsts[request, slots.firsts.shape[1] - 1]
    turns = np.int64(PASSES)
    bound, _ = _bound_after(digits, request, turns, room, need, n, totals, found)
    bound = max(bound, np.uint64(1))
    k = np.int64(cuda.blockIdx.y) * BLOCK + np.int64(cuda.threadIdx.x)
    while k < n:
        key = _key(slots, beam_scores, request, k)
        if key >= bound:
            kept[request, cuda.atomic.add(n_kept, request, np.int32(1))] = key
        k += np.int64(cuda.gridDim.y) * BLOCK


def finish(n_kept: Any, kept: Any, low: np.int64, slots: Slots, winners: Winners) -> None:
    """Sort what `collect` found and write the winners, a block for each request.

    Cost: log2(kept)^2 / 2 barriers, then for each winner of B beams log2(B) loads, one after the
    other, two that gather 12 bytes, and 24 bytes written.
    """
    mine = cuda.shared.array(MOST, np.uint64)
    request = np.int64(cuda.blockIdx.x)
    found = min(np.int64(n_kept[request]), np.int64(MOST))
    k = np.int64(cuda.threadIdx.x)
    while k < found:
        mine[k] = kept[request, k]
        k += BLOCK
    _sort_and_gather(mine, found, low, slots, request, winners)
