"""Eligible keys in bitmaps of the device, put under rank there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes
from succinct_gpu._bits import DeviceBitVector
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import as_device_array, is_device_array, wrong_dtype

_WARP = 32
_BLOCK = 256
_SCAN = 1024
# Ones are counted in 32 bits.
_MOST_BITS = 2**32


def pack_bools(bools: Any, per_bitmap: np.int64, halves: Any) -> None:
    """Bits of bitmaps of `per_bitmap` half words each; a warp makes one of them.

    Cost: a coalesced load for each key, one ballot for 32 of them.
    """
    half = np.int64(cuda.grid(1)) // _WARP
    lane = np.int64(cuda.threadIdx.x) % _WARP
    row = half // per_bitmap
    key = (half - row * per_bitmap) * _WARP + lane
    is_one = False
    if row < bools.shape[0] and key < bools.shape[1]:
        is_one = bools[row, key] != 0
    bits = cuda.ballot_sync(0xFFFFFFFF, is_one)
    if lane == 0 and half < halves.size:
        halves[half] = np.uint32(bits)


def copy_words(given: Any, last: np.uint64, words: Any) -> None:
    """Words of bitmaps, of whose last ones only the bits of `last` count.

    Cost: a coalesced load and store for each word.
    """
    at = np.int64(cuda.grid(1))
    row = at // given.shape[1]
    if at < words.size:
        word = np.uint64(0)
        if row < given.shape[0]:
            column = at - row * given.shape[1]
            word = np.uint64(given[row, column])
            if column == given.shape[1] - 1:
                word &= last
        words[at] = word


def count_ones(words: Any, blocks: Any) -> None:
    """Ones of every block of eight words. Cost: eight loads and one store for each."""
    b = np.int64(cuda.grid(1))
    if b < blocks.size:
        ones = np.int64(0)
        for k in range(8):
            ones += np.int64(cuda.popc(words[8 * b + k]))
        blocks[b] = np.uint32(ones)


def sum_before(blocks: Any) -> None:
    """Counts become sums of those before; one block of threads.

    Cost: two loads and a store for each count, by 1,024 threads with a stretch each, and one sum
    over the threads in shared memory.
    """
    sums = cuda.shared.array(_SCAN, np.int64)
    i = np.int64(cuda.threadIdx.x)
    stretch = (np.int64(blocks.size) + _SCAN - 1) // _SCAN
    begin = min(i * stretch, np.int64(blocks.size))
    end = min(begin + stretch, np.int64(blocks.size))
    total = np.int64(0)
    for b in range(begin, end):
        total += np.int64(blocks[b])
    sums[i] = total
    cuda.syncthreads()
    distance = np.int64(1)
    while distance < _SCAN:
        more = sums[i - distance] if i >= distance else np.int64(0)
        cuda.syncthreads()
        sums[i] += more
        cuda.syncthreads()
        distance *= 2
    before = sums[i] - total
    for b in range(begin, end):
        count = np.int64(blocks[b])
        blocks[b] = np.uint32(before)
        before += count


def on_device(allowed: Any) -> bool:
    """Whether eligible keys are on the device."""
    return isinstance(allowed, DeviceBitVector) or is_device_array(allowed)


def read_there(
    allowed: Any, n_keys: int, n_requests: int, stream: Any
) -> tuple[Any, NDArray[np.int64]]:
    """`succinct.decode.eligibility.read_allowed` of a `BitVector` or an array of the device.

    An array has bools or packed words as one of the host, for all requests alike or, with two axes,
    for each. It is copied, in four launches that nothing waits for.
    """
    if isinstance(allowed, DeviceBitVector):
        _check("bits, one for each key", len(allowed), n_keys)
        return allowed.arrays, np.zeros(n_requests, np.int64)
    dtype = np.dtype(allowed.__cuda_array_interface__["typestr"])
    if dtype not in (np.bool_, np.uint64):
        raise wrong_dtype("allowed", "bools or packed uint64 words", dtype)
    shape = allowed.__cuda_array_interface__["shape"]
    if len(shape) not in (1, 2):
        raise ValueError(f"allowed: expected one or two axes, got shape {tuple(shape)}")
    given = as_device_array(allowed, "allowed", dtype, len(shape))
    bitmaps = given if len(shape) == 2 else given.reshape(1, *shape)
    if len(shape) == 2 and len(given) != n_requests:
        raise ValueError(f"allowed: expected {n_requests} bitmaps, got {len(given)}")
    n_words = -(-n_keys // 64)
    packed = dtype == np.uint64
    what = "words of 64 bits" if packed else "bits, one for each key"
    _check(what, int(bitmaps.shape[1]), n_words if packed else n_keys)
    n_bits = 64 * n_words * int(bitmaps.shape[0])
    if n_bits >= _MOST_BITS:
        raise ValueError(
            f"allowed: expected less than {_MOST_BITS} bits in arrays of the device, got {n_bits}; "
            "a BitVector of the host may have more"
        )
    blocks = cuda.device_array(n_bits // 512 + 1, np.uint32, stream=stream)
    words = cuda.device_array(8 * blocks.size, np.uint64, stream=stream)
    if packed:
        last = np.uint64((1 << (n_keys - 1) % 64 + 1) - 1)
        kernel_for(copy_words)[-(-words.size // _BLOCK), _BLOCK, stream](bitmaps, last, words)
    else:
        halves = words.view(np.uint32)
        kernel_for(pack_bools)[-(-halves.size * _WARP // _BLOCK), _BLOCK, stream](
            bitmaps.view(np.uint8), np.int64(2 * n_words), halves
        )
    kernel_for(count_ones)[-(-blocks.size // _BLOCK), _BLOCK, stream](words, blocks)
    kernel_for(sum_before)[1, _SCAN, stream](blocks)
    nothing = cuda.device_array(1, np.uint32, stream=stream)
    supers = cuda.to_device(np.zeros(1, np.uint64), stream=stream)
    lanes = BitLanes(words, blocks, supers, nothing, nothing, np.int64(0), np.int64(0))
    each = 64 * n_words if len(shape) == 2 else 0
    return lanes, np.arange(n_requests, dtype=np.int64) * each


def _check(what: str, length: int, expected: int) -> None:
    if length != expected:
        raise ValueError(f"allowed: expected {expected} {what}, got {length}")
