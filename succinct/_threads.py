"""Work on consecutive parts, done by as many threads as the caller wants."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from succinct import _args

# Beyond these, more threads are of no use.
_MOST_THREADS = 256

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
    return equal_parts(n, n_parts)


def equal_parts(n: int, n_parts: int) -> list[slice]:
    """Consecutive parts of n things, of equal size or almost."""
    bounds = [n * i // n_parts for i in range(n_parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def in_threads(work: Callable[[S], T], parts: Sequence[S], threads: int) -> list[T]:
    """What the work gives for each part, in order.

    The caller works as well, and waits for no thread that has not begun. After an error no part is
    begun; that of the first part which has one is raised.
    """
    if threads == 1 or len(parts) <= 1:
        return [work(part) for part in parts]
    done: dict[int, T] = {}
    failed: dict[int, BaseException] = {}
    # Threads take numbers from it in turn.
    numbers = iter(range(len(parts)))

    def take_part() -> None:
        for i in numbers:
            if failed:
                break
            try:
                done[i] = work(parts[i])
            except BaseException as error:
                failed[i] = error

    pool = _pool()
    helpers = [pool.submit(take_part) for _ in range(min(threads, len(parts)) - 1)]
    take_part()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    if failed:
        raise failed[min(failed)]
    return [done[i] for i in range(len(parts))]


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that are kept for the next call; they begin when they are first needed."""
    return ThreadPoolExecutor(_MOST_THREADS, "succinct")


# A forked process has none of the threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
