"""Kernels for tests of the executor: right ones, and one for each fault that it must find."""

import math

import numpy as np
from numba import cuda

FULL = 0xFFFFFFFF


# Right, and checked against numpy


@cuda.jit
def where(out):
    """Which thread this is, in three dimensions."""
    i = cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)
    b = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
    n = cuda.blockDim.x * cuda.blockDim.y * cuda.blockDim.z
    out[b * n + i] = b * 10000 + cuda.laneid * 100 + cuda.warpsize


@cuda.jit
def votes(values, ballot, some, every, same):
    i = cuda.grid(1)
    p = values[i] != 0
    ballot[i] = cuda.ballot_sync(FULL, p)
    some[i] = cuda.any_sync(FULL, p)
    every[i] = cuda.all_sync(FULL, p)
    same[i] = cuda.eq_sync(FULL, p)


@cuda.jit
def shuffles(values, take, up, down, xor):
    i = cuda.grid(1)
    take[i] = cuda.shfl_sync(FULL, values[i], 5)
    up[i] = cuda.shfl_up_sync(FULL, values[i], 3)
    down[i] = cuda.shfl_down_sync(FULL, values[i], 3)
    xor[i] = cuda.shfl_xor_sync(FULL, values[i], 6)


@cuda.jit
def matches(values, like, mask, all_alike):
    i = cuda.grid(1)
    like[i] = cuda.match_any_sync(FULL, values[i])
    m, alike = cuda.match_all_sync(FULL, np.int32(values[i] >> 62))
    mask[i] = m
    all_alike[i] = alike


@cuda.jit
def half_warps(out):
    """Two halves at different operations, each with its own mask."""
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = cuda.ballot_sync(0x0000FFFF, i & 1)
    else:
        out[i] = cuda.ballot_sync(0xFFFF0000, (i >> 1) & 1)


@cuda.jit
def counted(values, out):
    i = cuda.threadIdx.x
    a = cuda.syncthreads_count(np.int32(values[i] > 0))
    b = cuda.syncthreads_and(np.int32(values[i] > 0))
    c = cuda.syncthreads_or(np.int32(values[i] > 0))
    out[i] = a * 100 + (b != 0) * 10 + (c != 0)


@cuda.jit
def words(values, counts, firsts, leading, reversed_):
    i = cuda.grid(1)
    counts[i] = cuda.popc(values[i])
    firsts[i] = cuda.ffs(values[i])
    leading[i] = cuda.clz(values[i])
    reversed_[i] = cuda.brev(values[i])


@cuda.jit
def atomics(totals, floats, doubles, least, most, wrapped, first):
    i = cuda.grid(1)
    cuda.atomic.add(totals, 0, 1)
    cuda.atomic.add(floats, 0, np.float32(1))
    cuda.atomic.add(doubles, 0, np.float64(0.5))
    cuda.atomic.min(least, 0, i - 7)
    cuda.atomic.max(most, 0, np.float32(i))
    cuda.atomic.inc(wrapped, 0, np.uint32(9))
    if cuda.atomic.cas(first, 0, -1, i) == -1:
        cuda.atomic.add(first, 1, 1)


@cuda.jit
def halves(values, out):
    i = cuda.grid(1)
    if i < values.size:
        out[i] = np.float16(np.float32(values[i]) * np.float32(2))


@cuda.jit
def to_half(values, out):
    i = cuda.grid(1)
    if i < values.size:
        out[i] = np.float16(values[i])


@cuda.jit
def to_double(values, out):
    i = cuda.grid(1)
    if i < values.size:
        out[i] = np.float64(values[i])


@cuda.jit
def mathematics(values, out):
    i = cuda.grid(1)
    x = values[i]
    out[i, 0] = math.exp(x)
    out[i, 1] = math.log(x)
    out[i, 2] = math.sqrt(x)
    out[i, 3] = math.pow(x, 1.5)
    out[i, 4] = math.floor(x)
    out[i, 5] = math.isnan(x)


@cuda.jit
def two_arrays(values, out):
    """Static shared arrays of two kinds, and the dynamic one behind them."""
    wide = cuda.shared.array(32, np.int64)
    narrow = cuda.shared.array(32, np.uint8)
    rest = cuda.shared.array(0, np.int32)
    i = cuda.threadIdx.x
    wide[i] = values[i]
    narrow[i] = i
    rest[i] = -i
    cuda.syncthreads()
    out[i] = wide[31 - i] * 1000 + narrow[31 - i] + rest[31 - i]


@cuda.jit
def rotate(a, b, steps):
    """Cooperative: every step reads what other blocks wrote in the step before."""
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for step in range(steps):
        if step % 2:
            a[(i + 1) % a.size] = b[i]
        else:
            b[(i + 1) % a.size] = a[i]
        grid.sync()


@cuda.jit
def warp_ordered(out):
    """Lanes of a warp hand values over by syncwarp; warps do not meet."""
    kept = cuda.shared.array(64, np.int32)
    i = cuda.threadIdx.x
    kept[i] = i
    cuda.syncwarp()
    value = kept[i ^ 31]
    cuda.syncwarp()
    kept[i] = value
    cuda.syncwarp()
    out[i] = kept[i ^ 31]


@cuda.jit
def tuple_of(parts, out):
    i = cuda.grid(1)
    out[i] = parts.words[i] + parts.more.words[0] + parts.shift


@cuda.jit
def count_up(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = i


@cuda.jit(device=True)
def twice(x):
    return x * 2


def to_be_declared(out, factor):
    i = cuda.grid(1)
    out[i] = twice(i) * factor


# Wrong


@cuda.jit
def behind_the_end(a):
    i = cuda.grid(1)
    a[i] = i


@cuda.jit
def before_the_begin(a):
    i = cuda.grid(1)
    value = a[i - 70]  # a negative index counts from the end, once
    if value != 0:
        a[i] = value


@cuda.jit
def outside_shared(a):
    kept = cuda.shared.array(32, np.int64)
    i = cuda.threadIdx.x
    kept[i + a[0]] = i
    cuda.syncthreads()
    a[i] = kept[i]


@cuda.jit
def shared_race(a):
    kept = cuda.shared.array(64, np.int64)
    i = cuda.threadIdx.x
    kept[i] = i
    a[i] = kept[63 - i]


@cuda.jit
def lane_race(a):
    kept = cuda.shared.array(32, np.int64)
    i = cuda.threadIdx.x
    kept[i] = i
    cuda.ballot_sync(FULL, i & 1)  # orders no memory
    a[i] = kept[i ^ 1]


@cuda.jit
def overwritten_too_soon(a):
    kept = cuda.shared.array(64, np.int64)
    i = cuda.threadIdx.x
    kept[i] = i
    cuda.syncthreads()
    value = kept[i ^ 33]
    kept[i] = value
    a[i] = value


@cuda.jit
def block_race(a):
    if cuda.threadIdx.x == 0:
        a[0] = a[0] + 1


@cuda.jit
def mixed_race(a):
    """An atomic operation and a plain read."""
    cuda.atomic.add(a, 0, 1)
    a[cuda.threadIdx.x + 1] = a[0]


@cuda.jit
def two_steps_without_sync(a, b):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    b[i] = a[(i + 1) % a.size]
    a[i] = b[(i + 1) % a.size]
    grid.sync()


@cuda.jit
def nothing_wrote(a):
    kept = cuda.shared.array(64, np.int64)
    i = cuda.threadIdx.x
    a[i] = kept[i]


@cuda.jit
def half_a_block_at_a_barrier(a):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    a[i] = 1


@cuda.jit
def early_return(a):
    i = cuda.threadIdx.x
    if i >= 40:
        return
    cuda.syncthreads()
    a[i] = 1


@cuda.jit
def different_barriers(a):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
        a[i] = 1
    else:
        a[i] = 2
        cuda.syncthreads()


@cuda.jit
def different_operations(a):
    i = cuda.threadIdx.x
    if i % 32 < 16:
        a[i] = cuda.ballot_sync(FULL, i & 1)
    else:
        a[i] = cuda.shfl_sync(FULL, i, 0)


@cuda.jit
def returned_lanes(a):
    i = cuda.threadIdx.x
    if i >= 20:
        return
    a[i] = cuda.ballot_sync(FULL, 1)


@cuda.jit
def not_in_mask(a):
    i = cuda.threadIdx.x
    a[i] = cuda.ballot_sync(0xFFFF, 1)


@cuda.jit
def barrier_against_grid(a):
    grid = cuda.cg.this_grid()
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    else:
        grid.sync()
    a[i] = 1


@cuda.jit
def spins(a):
    while cuda.atomic.add(a, 0, 0) == 0:
        pass


# To be mutated: each line with a barrier, an atomic operation or a tie-break is needed


@cuda.jit
def sorted_matches(labels, queries, positions, counts):
    """Block b looks its queries up among the labels and sorts the positions of the found."""
    found = cuda.shared.array(256, np.int32)
    n_found = cuda.shared.array(1, np.int32)
    b = cuda.blockIdx.x
    i = cuda.threadIdx.x
    if i == 0:
        n_found[0] = 0
    for place in range(i, 256, cuda.blockDim.x):
        found[place] = 1 << 30
    cuda.syncthreads()
    for q in range(i, queries.shape[1], cuda.blockDim.x):
        low = 0
        high = labels.size
        while low < high:
            middle = (low + high) // 2
            if labels[middle] < queries[b, q]:
                low = middle + 1
            else:
                high = middle
        if low < labels.size and labels[low] == queries[b, q]:
            found[cuda.atomic.add(n_found, 0, 1)] = low
    cuda.syncthreads()
    size = 2
    while size <= 256:
        step = size // 2
        while step > 0:
            for place in range(i, 256, cuda.blockDim.x):
                other = place ^ step
                if other > place:
                    first, second = found[place], found[other]
                    if (first > second) == ((place & size) == 0):
                        found[place] = second
                        found[other] = first
            step //= 2
            cuda.syncthreads()
        size *= 2
    for place in range(i, positions.shape[1], cuda.blockDim.x):
        positions[b, place] = found[place]
    if i == 0:
        counts[b] = n_found[0]
