"""Large arrays that are needed for a while."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST = 1 << 18  # bytes; a process can have some ten thousand maps


def scratch(length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros in pages of their own, which the system gets back as soon as the array is let go.

    What malloc has handed out stays with the process while anything lies behind it, and most of an
    index is allocated while the arrays that it is made from are still there.
    """
    dtype = np.dtype(dtype)
    size = length * dtype.itemsize
    if size < _LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(length, dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype, length)
