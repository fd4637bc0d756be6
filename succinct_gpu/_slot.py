"""What searches need on the device besides their input, and the launch of the kernel."""

from typing import Any

import numpy as np


def allocate(
    queries: int,
    steps: int,
    width: int,
    results: int,
    places: int,
    merges: bool,
    others: int,
) -> tuple[Any, ...]:
    """Rows, lists, paths, results so far and flags, if that and `others` bytes are free.

    Raises
    ------
    MemoryError
        If the device has less.
    """
    from numba import cuda

    from succinct_gpu import _beam, _topk

    tiles = -(-places // _topk.CAPACITY)
    spare = -(-tiles // 2) * _topk.CAPACITY if merges and tiles > 1 else 1
    row, result = (2, queries, width), (2, queries, results)
    shapes: list[tuple[Any, list[tuple[tuple[int, ...], Any]]]] = [
        (_beam.Rows, [(row, np.uint64), (row, np.float32), ((2, queries), np.int64)]),
        (
            _topk.Lists,
            [
                ((2 * queries, places), np.uint64),
                ((2, 2 * queries), np.int32),
                ((2 * queries, spare), np.uint64),
                ((2 * queries, _topk.CAPACITY), np.uint64),
                ((2 * queries,), np.int32),
                ((2 * queries, _topk.PASSES, _topk.BINS), np.int32),
            ],
        ),
        (_beam.Notes, [((queries, steps, width), dtype) for dtype in (np.int32, np.uint32)]),
        (
            _beam.Found,
            [
                *((result, t) for t in (np.float32, np.uint64, np.int32, np.int32, np.uint32)),
                ((queries,), np.int64),
                ((queries,), np.int64),
            ],
        ),
        (lambda flags: (flags,), [((queries, _beam.FLAGS), np.int32)]),
    ]
    needed = others + sum(
        int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        for _, fields in shapes
        for shape, dtype in fields
    )
    free = cuda.current_context().get_memory_info()[0]
    if needed > free:
        raise MemoryError(
            f"the search takes {needed} bytes and the device has {free} free; make room for "
            "fewer queries, beams or proposals; on the CPU succinct does the same"
        )
    return tuple(
        kind(*(cuda.device_array(shape, dtype) for shape, dtype in fields))
        for kind, fields in shapes
    )


def start(
    kernel: Any,
    arguments: list[Any],
    queries: int,
    work: int,
    blocks: dict[int, int],
    stream: Any,
) -> None:
    """Launch a search with as many blocks as are resident at once and have something to do.

    Parameters
    ----------
    kernel
        `_beam.search`, compiled for an index.
    arguments : list
        All but the first, the blocks of a team.
    work : int
        Most continuations that a query looks at in a step.
    blocks : dict
        Where to remember how many blocks are resident, by their threads.
    """
    from succinct_gpu._expand import BLOCK

    threads = 64
    while threads < min(work, BLOCK):
        threads *= 2
    if threads not in blocks:
        signature = tuple(map(kernel.typeof_pyval, [np.int64(1), *arguments]))
        compiled = kernel.compile(signature)
        blocks[threads] = int(compiled.max_cooperative_grid_blocks(threads))
    most = blocks[threads]
    # More threads than continuations to look at would only have to be waited for.
    share = max(1, min(most // queries, -(-work // threads)))
    grid = queries * share if queries <= most else most
    kernel[grid, threads, stream](np.int64(share), *arguments)
