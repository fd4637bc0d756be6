"""Taking time. All that is timed is timed here, so that all of it is timed alike.

What runs on one thread is timed by the processor time of that thread, so that it does not count
when the machine does something else meanwhile; what runs on several threads by the clock on the
wall.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

wall = time.perf_counter


@contextmanager
def no_garbage() -> Iterator[None]:
    """Collect garbage before, and not during, what is timed.

    What is left is not looked at again, until `bench.__main__` ends: compilers leave so much that
    collections would take longer than many a measurement.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def samples(
    call: Callable[[], object],
    times: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.thread_time,
) -> list[float]:
    """Seconds of each of so many calls, after one that does not count."""
    if warm_up:
        call()
    taken = []
    with no_garbage():
        for _ in range(times):
            start = clock()
            call()
            taken.append(clock() - start)
    return taken


def seconds(call: Callable[[], object], times: int, warm_up: bool = True) -> float:
    """Median time of a call, in seconds."""
    return statistics.median(samples(call, times, warm_up))


def one_by_one(
    function: Callable[[Any], object], arguments: Sequence[Any], times: int = 5
) -> float:
    """Median time of one call among calls from a loop that runs in C, in ns."""
    taken = seconds(lambda: deque(map(function, arguments), maxlen=0), times)
    return taken / len(arguments) * 1e9


def per_request(
    call: Callable[[Any], object],
    requests: Iterable[Any],
    passes: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Seconds of each request in each of so many passes, after one that does not count."""
    requests = list(requests)
    taken = []
    with no_garbage():
        for _ in range(passes + 1):
            row = []
            for request in requests:
                start = clock()
                call(request)
                row.append(clock() - start)
            taken.append(row)
    return taken[1:]


def percentiles(taken: list[list[float]]) -> dict[str, float]:
    """Mean, spread of the passes' means and percentiles of pooled requests, in ms."""
    pooled = np.array(taken) * 1e3
    p50, p90, p95, p99 = np.percentile(pooled, (50, 90, 95, 99))
    spread = float(pooled.mean(axis=1).std())
    return {
        "mean_ms": float(pooled.mean()),
        "spread_ms": spread,
        "p50_ms": float(p50),
        "p90_ms": float(p90),
        "p95_ms": float(p95),
        "p99_ms": float(p99),
    }


def alternating(
    calls: dict[str, Callable[[], object]],
    times: int,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, float]:
    """Median seconds of each call, taken in turns, so that all see the same machine."""
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage():
        for _ in range(times):
            for name, call in calls.items():
                start = clock()
                call()
                taken[name].append(clock() - start)
    return {name: statistics.median(row) for name, row in taken.items()}
