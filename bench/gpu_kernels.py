"""Kernels whose latencies set the limits of all others."""

from typing import Any

import numpy as np
from numba import cuda


@cuda.jit
def sync_grid(turns: Any) -> None:
    """Synchronise the grid as many times."""
    grid = cuda.cg.this_grid()
    for _ in range(turns):
        grid.sync()


@cuda.jit
def do_nothing(out: Any) -> None:
    """One store, so that it is not nothing at all."""
    if cuda.grid(1) == 0:
        out[0] = 1


@cuda.jit
def follow(links: Any, turns: Any, out: Any) -> None:
    """Loads each of which waits for the one before."""
    at = np.int64(cuda.grid(1))
    for _ in range(turns):
        at = links[at]
    out[cuda.grid(1)] = at
