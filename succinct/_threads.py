"""Work on consecutive parts, done by as many threads as the caller wants."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from succinct import _args

S = TypeVar("S")
T = TypeVar("T")


def read_threads(num_threads: int | None) -> int:
    """The number of threads that a caller asked for; None stands for all processors it may use."""
    if num_threads is not None:
        return _args.at_least_one("num_threads", num_threads)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parts_of(n: int, threads: int, most: int | None = None) -> list[slice]:
    """Consecutive parts of n things, at most `most`, and more than threads: things differ in
    cost."""
    n_parts = 1 if threads == 1 else max(1, min(n if most is None else most, 4 * threads))
    bounds = [n * i // n_parts for i in range(n_parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def in_threads(work: Callable[[S], T], parts: Sequence[S], threads: int) -> list[T]:
    """What the work gives for each part, in order."""
    if threads == 1 or len(parts) == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(threads, len(parts))) as pool:
        return list(pool.map(work, parts))
