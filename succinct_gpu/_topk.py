"""The best of many 64-bit keys, by a team of blocks: two ways that choose the same.

A key holds an `order32` above and, inverted, the number of its candidate below, which is its place
in the order of parent and token. No two are equal, so there is one order, and neither the order in
which candidates were appended nor the algorithm shows in what is chosen.

Both ways go in rounds, between which the caller synchronises the team. Up to `CAPACITY` keys need
none: the block that takes them over sorts them in shared memory (`load_sorted`).

radix
    A histogram of 11 bits a round finds the digit that the last key to keep has; the search goes
    on among those that share it, and stops as soon as no more than `CAPACITY` keys are left: two
    rounds for scores that differ, six at worst. A last round collects what is left. n keys cost
    n loads a round and, with P threads, n / P steps.
merge
    FlashTrie's Algorithm 5: blocks sort tiles of `CAPACITY` keys, then lists merge two by two
    until one is left (log2(n / CAPACITY) rounds); every element finds its place in the merged
    list by a binary search in the other one, so all threads of the team take part in each round.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

#: Keys that a block sorts in shared memory, and the most that can be kept.
CAPACITY = 4096
#: Rounds of a radix selection that count; each looks at 11 bits.
PASSES = 6
BINS = 2048

_BITS = np.int64(11)
_FULL = 0xFFFFFFFF
_NONE = np.uint64(0)
_LAST_DIGIT = np.uint64(BINS - 1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Lists(NamedTuple):
    """Keys to choose from, and what choosing them needs; two lists for each query.

    Attributes
    ----------
    keys : uint64 array [lists, places]
    counts : int32 array [2, lists]
        How many there are, for even and for odd steps; may be more than there are places.
    spare : uint64 array [lists, places]
        For `merge_round`.
    winners : uint64 array [lists, CAPACITY]
        For `radix_round`.
    n_winners : int32 array [lists]
    histograms : int32 array [lists, PASSES, BINS]
        All 0 between selections.
    """

    keys: Any
    counts: Any
    spare: Any
    winners: Any
    n_winners: Any
    histograms: Any


def append(wanted: Any, key: np.uint64, lists: Lists, parity: np.int64, number: np.int64) -> None:
    """Add the keys of those lanes that have one to a list: one atomic operation for the warp.

    All lanes must call it together.
    """
    ballot = cuda.ballot_sync(_FULL, wanted)
    if ballot != 0:  # the same for all lanes
        leader = cuda.ffs(ballot) - 1
        base = np.int32(0)
        if cuda.laneid == leader:
            many = np.int32(cuda.popc(np.uint32(ballot)))
            base = np.int32(cuda.atomic.add(lists.counts, (parity, number), many))
        base = cuda.shfl_sync(_FULL, base, leader)
        before = cuda.popc(np.uint32(ballot) & np.uint32(cuda.lanemask_lt()))
        place = np.int64(base) + np.int64(before)
        # A hostile index can lead to one child twice.
        if wanted and place < lists.keys.shape[1]:
            lists.keys[number, place] = key


def length_of(lists: Lists, parity: np.int64, number: np.int64) -> np.int64:
    """How many keys a list has."""
    return min(np.int64(lists.counts[parity, number]), np.int64(lists.keys.shape[1]))


# Sorting in a block


def sort_block(buffer: Any, size: np.int64) -> None:
    """Sort ``buffer[:size]`` in shared memory, largest first; size is a power of two (bitonic)."""
    span = np.int64(2)
    while span <= size:
        stride = span >> 1
        while stride > 0:
            i = np.int64(cuda.threadIdx.x)
            while i < size >> 1:
                low = 2 * i - (i & (stride - 1))
                a = buffer[low]
                b = buffer[low + stride]
                if (a < b) == (low & span == 0):
                    buffer[low] = b
                    buffer[low + stride] = a
                i += np.int64(cuda.blockDim.x)
            cuda.syncthreads()
            stride >>= 1
        span <<= 1


def load_sorted(keys: Any, row: np.int64, begin: np.int64, n: np.int64, buffer: Any) -> None:
    """Put ``keys[row, begin:begin + n]``, at most `CAPACITY`, into shared memory and sort them."""
    size = np.int64(1)
    while size < n:
        size <<= 1
    i = np.int64(cuda.threadIdx.x)
    while i < size:
        buffer[i] = keys[row, begin + i] if i < n else _NONE
        i += np.int64(cuda.blockDim.x)
    cuda.syncthreads()
    sort_block(buffer, size)


# Rounds of a selection. `plan` [2, 5] of uint64 in shared memory says how far each of the two
# lists of a query is: rounds done, bits that the keys looked for begin with, which bits these are,
# how many of those keys are to be kept, and how many keys are not below them.


def radix_round(
    lists: Lists,
    number: np.int64,
    n: np.int64,
    keep: np.int64,
    member: np.int64,
    share: np.int64,
    plan: Any,
    row: np.int64,
    counts: Any,
    buffer: Any,
) -> bool:
    """One round of block `member` of `share`; whether `take_radix` may follow instead of another.

    `counts` is int32 shared memory of `BINS`, `buffer` uint64 of `CAPACITY`.
    """
    if n <= CAPACITY:
        return True
    i = np.int64(cuda.threadIdx.x)
    done = np.int64(plan[row, 0])
    if done > PASSES:
        return True
    left = n
    if done > 0:
        left = narrow(lists, number, done - 1, keep, plan, row, counts)
    cuda.syncthreads()
    prefix = plan[row, 1]
    mask = plan[row, 2]
    step = np.int64(cuda.blockDim.x) * share
    k = member * np.int64(cuda.blockDim.x) + i
    if done < PASSES and left > CAPACITY:
        shift = np.uint64(max(np.int64(0), 64 - _BITS * (done + 1)))
        bin_ = i
        while bin_ < BINS:
            counts[bin_] = np.int32(0)
            bin_ += np.int64(cuda.blockDim.x)
        cuda.syncthreads()
        while k < n:
            key = lists.keys[number, k]
            if key & mask == prefix:
                cuda.atomic.add(counts, np.int64((key >> shift) & _LAST_DIGIT), np.int32(1))
            k += step
        cuda.syncthreads()
        bin_ = i
        while bin_ < BINS:
            if counts[bin_] != 0:
                cuda.atomic.add(lists.histograms, (number, done, bin_), counts[bin_])
            bin_ += np.int64(cuda.blockDim.x)
        done += 1
    else:
        while k - i < n:  # the same for all threads of a block
            key = _NONE
            if k < n:
                key = lists.keys[number, k]
            wanted = key & mask >= prefix and key != _NONE
            collect(wanted, key, lists, number)
            k += step
        done = np.int64(PASSES + 1)
    cuda.syncthreads()
    if i == 0:
        plan[row, 0] = np.uint64(done)
    cuda.syncthreads()
    return False


def collect(wanted: Any, key: np.uint64, lists: Lists, number: np.int64) -> None:
    """As `append`, to the winners."""
    ballot = cuda.ballot_sync(_FULL, wanted)
    if ballot != 0:
        leader = cuda.ffs(ballot) - 1
        base = np.int32(0)
        if cuda.laneid == leader:
            many = np.int32(cuda.popc(np.uint32(ballot)))
            base = np.int32(cuda.atomic.add(lists.n_winners, number, many))
        base = cuda.shfl_sync(_FULL, base, leader)
        before = cuda.popc(np.uint32(ballot) & np.uint32(cuda.lanemask_lt()))
        place = np.int64(base) + np.int64(before)
        if wanted and place < CAPACITY:
            lists.winners[number, place] = key


def narrow(
    lists: Lists,
    number: np.int64,
    last: np.int64,
    keep: np.int64,
    plan: Any,
    row: np.int64,
    counts: Any,
) -> np.int64:
    """Find the digit of the last key to keep in the histogram of pass `last`; note it in `plan`.

    Returns how many keys are not below it. Every block of the team finds the same.
    """
    i = np.int64(cuda.threadIdx.x)
    per_thread = np.int64(BINS) // np.int64(cuda.blockDim.x)
    wanted = keep
    if last > 0:
        wanted = np.int64(plan[row, 3])
    total = np.int32(0)
    for k in range(per_thread):
        total += lists.histograms[number, last, i * per_thread + k]
    counts[i] = total
    cuda.syncthreads()
    if i < 32:
        sums_per_lane = np.int64(cuda.blockDim.x) >> 5
        own = np.int32(0)
        for k in range(sums_per_lane):
            own += counts[i * sums_per_lane + k]
        from_here = own
        distance = 1
        while distance < 32:
            other = cuda.shfl_down_sync(_FULL, from_here, distance)
            if i + distance < 32:
                from_here += np.int32(other)
            distance <<= 1
        above = np.int64(from_here - own)
        if above < wanted <= np.int64(from_here):
            slot = (i + 1) * sums_per_lane - 1
            while above + np.int64(counts[slot]) < wanted:
                above += np.int64(counts[slot])
                slot -= 1
            digit = (slot + 1) * per_thread - 1
            here = np.int64(lists.histograms[number, last, digit])
            while above + here < wanted:
                above += here
                digit -= 1
                here = np.int64(lists.histograms[number, last, digit])
            shift = np.uint64(max(np.int64(0), 64 - _BITS * (last + 1)))
            plan[row, 1] = plan[row, 1] | (np.uint64(digit) << shift)
            plan[row, 2] = _ALL << shift
            plan[row, 3] = np.uint64(wanted - above)
            plan[row, 4] = np.uint64(keep - wanted + above + here)
    cuda.syncthreads()
    return np.int64(plan[row, 4])


def take_radix(
    lists: Lists, number: np.int64, n: np.int64, keep: np.int64, buffer: Any, plan: Any, row: int
) -> np.int64:
    """Put the best of a list, largest first, into shared memory, by one block; how many."""
    if n <= CAPACITY:
        load_sorted(lists.keys, number, np.int64(0), n, buffer)
        return min(n, keep)
    found = min(np.int64(lists.n_winners[number]), np.int64(CAPACITY))
    load_sorted(lists.winners, number, np.int64(0), found, buffer)
    i = np.int64(cuda.threadIdx.x)
    if i == 0:
        lists.n_winners[number] = np.int32(0)
    for last in range(PASSES):
        bin_ = i
        while bin_ < BINS:
            lists.histograms[number, last, bin_] = np.int32(0)
            bin_ += np.int64(cuda.blockDim.x)
    return min(found, keep)


def merge_round(
    lists: Lists,
    number: np.int64,
    n: np.int64,
    keep: np.int64,
    member: np.int64,
    share: np.int64,
    plan: Any,
    row: np.int64,
    counts: Any,
    buffer: Any,
) -> bool:
    """As `radix_round`."""
    if n <= CAPACITY:
        return True
    i = np.int64(cuda.threadIdx.x)
    done = np.int64(plan[row, 0])
    tiles = (n + CAPACITY - 1) // CAPACITY
    if done == 0:
        tile = member
        while tile < tiles:
            begin = tile * CAPACITY
            many = min(n - begin, np.int64(CAPACITY))
            load_sorted(lists.keys, number, begin, many, buffer)
            k = i
            while k < min(many, keep):
                lists.keys[number, begin + k] = buffer[k]
                k += np.int64(cuda.blockDim.x)
            cuda.syncthreads()
            tile += share
    else:
        if (np.int64(1) << (done - 1)) >= tiles:
            return True
        k = member * np.int64(cuda.blockDim.x) + i
        n_lists = (tiles + (np.int64(1) << (done - 1)) - 1) >> (done - 1)
        while k < n_lists * keep:
            if done & 1:
                merge_one(lists.keys, lists.spare, number, n, keep, done, k)
            else:
                merge_one(lists.spare, lists.keys, number, n, keep, done, k)
            k += np.int64(cuda.blockDim.x) * share
    cuda.syncthreads()
    if i == 0:
        plan[row, 0] = np.uint64(done + 1)
    cuda.syncthreads()
    return False


def merge_one(
    source: Any,
    target: Any,
    number: np.int64,
    n: np.int64,
    keep: np.int64,
    level: np.int64,
    k: np.int64,
) -> None:
    """Move one element of one list to its place among those of two lists."""
    own = k // keep
    place = k - own * keep
    if place >= sorted_length(n, keep, level, own):
        return
    key = source[number, own * CAPACITY + place]
    other = own ^ 1
    low = np.int64(0)
    high = sorted_length(n, keep, level, other)
    while low < high:
        middle = (low + high) >> 1
        if source[number, other * CAPACITY + middle] > key:
            low = middle + 1
        else:
            high = middle
    if place + low < keep:
        target[number, (own >> 1) * CAPACITY + place + low] = key


def sorted_length(n: np.int64, keep: np.int64, level: np.int64, which: np.int64) -> np.int64:
    """Length of sorted list `which`, from 0, that round `level`, from 1, finds."""
    span = np.int64(CAPACITY) << (level - 1)
    return min(keep, max(np.int64(0), min(span, n - which * span)))


def take_merge(
    lists: Lists, number: np.int64, n: np.int64, keep: np.int64, buffer: Any, plan: Any, row: int
) -> np.int64:
    """As `take_radix`."""
    if n <= CAPACITY:
        load_sorted(lists.keys, number, np.int64(0), n, buffer)
        return min(n, keep)
    in_spare = np.int64(plan[row, 0]) & 1 == 0
    i = np.int64(cuda.threadIdx.x)
    while i < keep:
        buffer[i] = lists.spare[number, i] if in_spare else lists.keys[number, i]
        i += np.int64(cuda.blockDim.x)
    cuda.syncthreads()
    return keep
