"""Proposals that are on the device: sorted and sifted there, a block for each step of a query.

A line of K proposals is sorted in shared memory by token and place, O(K log2(K)^2 / threads), and
what is padding, NaN, no token, repeated or below the threshold is left out.
"""

from typing import Any

import numpy as np
from numba import cuda

from succinct_gpu._topk import CAPACITY, sort_block

#: Most proposals of a line.
MOST = CAPACITY
#: Threads of a block.
BLOCK = 256
WARPS = 8

_ABSENT = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_MAX_TOKEN = np.int64(0xFFFFFFFE)
_MINUS_INFINITY = np.float32(-np.inf)


def sort_proposals(
    ids: Any,
    values: Any,
    min_token: np.float32,
    tokens: Any,
    logprobs: Any,
    counts: Any,
    first_repeat: Any,
) -> None:
    """Write each line's usable proposals, tokens ascending, and their number.

    The first of equal tokens counts. `first_repeat` becomes the least line that repeats a token.

    Cost of a line: K ids and twice K log-probabilities read, up to 8 K bytes written;
    log2(K)^2 / 2 barriers to sort and two for every 256 of K.
    """
    buffer = cuda.shared.array(CAPACITY, np.uint64)
    per_warp = cuda.shared.array(WARPS, np.int32)
    line = np.int64(cuda.blockIdx.x)
    i = np.int64(cuda.threadIdx.x)
    n = np.int64(ids.shape[1])
    size = np.int64(1)
    while size < n:
        size <<= 1
    k = i
    while k < size:
        # Inverted, since the sort is a descending one, and 0 comes last.
        key = _ABSENT
        if k < n:
            given = np.int64(ids[line, k])
            if np.float32(values[line, k]) > _MINUS_INFINITY and 0 <= given <= _MAX_TOKEN:
                key = ((np.uint64(given) << np.uint64(32)) | np.uint64(k)) ^ _ALL
        buffer[k] = key
        k += BLOCK
    cuda.syncthreads()
    sort_block(buffer, size)
    n_kept = np.int64(0)
    begin = np.int64(0)
    while begin < n:
        k = begin + i
        kept = False
        token = _ABSENT
        value = _MINUS_INFINITY
        if k < n and buffer[k] != _ABSENT:
            key = buffer[k] ^ _ALL
            token = key >> np.uint64(32)
            value = np.float32(values[line, np.int64(key & _LOW)])
            if k > 0 and (buffer[k - 1] ^ _ALL) >> np.uint64(32) == token:
                cuda.atomic.min(first_repeat, 0, line)
            else:
                kept = bool(value > min_token)
        ballot = cuda.ballot_sync(0xFFFFFFFF, kept)
        if cuda.laneid == 0:
            per_warp[i >> 5] = np.int32(cuda.popc(np.uint32(ballot)))
        cuda.syncthreads()
        place = n_kept + cuda.popc(np.uint32(ballot) & np.uint32(cuda.lanemask_lt()))
        for warp in range(WARPS):
            if warp < i >> 5:
                place += np.int64(per_warp[warp])
            n_kept += np.int64(per_warp[warp])
        cuda.syncthreads()
        if kept:
            tokens[line, place] = np.uint32(token)
            logprobs[line, place] = value
        begin += BLOCK
    if i == 0:
        counts[line] = n_kept
