"""Sorting sequences within a memory limit, with sorted runs on disk.

All files are anonymous temporary files: the operating system removes them when the last map of them
is gone, also when the process is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from . import _scan
from .sequences import NO_OFFSETS, Sequences, joined, narrowest
from .sorting import AT_ONCE, gathered, sorted_unique

# Below this, more time goes into the number of pieces than into their rows.
LEAST_LIMIT = 1 << 16

# Bytes for each row of those that are sorted at once.
_ROW_AT_ONCE = 64
# Buckets are planned to be smaller than the limit, in quarters, as they are not equal.
_UNEVEN = 5
# Samples that say where a bucket ends.
_SAMPLES = 64
# Rows that a file gets in one go.
_WRITTEN = 1 << 15


def default_limit() -> int:
    """Half of the memory that is available now; no limit where the system does not tell."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def work_bytes(rows: Sequences) -> int:
    """About the memory that sorting takes: the result, and an eighth of it for a part at a time."""
    each = rows.length * narrowest(rows.largest).itemsize
    if rows.length:
        result = max(8, each) * rows.n_rows
    else:
        result = narrowest(rows.largest).itemsize * len(rows.tokens) + 8 * rows.n_rows
    return result + result // 8


def within(rows: Sequences, limit: int) -> int:
    """The part of a limit that `work_bytes` of rows like these can have: a part at a time may be
    what is sorted at once, with words and order."""
    work = work_bytes(rows)
    return max(limit - _ROW_AT_ONCE * AT_ONCE, limit * work // (work + _ROW_AT_ONCE * rows.n_rows))


def _streamed_bytes(rows: Sequences) -> int:
    """Likewise for rows that are one of several chunks: there are a chunk and a copy of it."""
    return work_bytes(rows) + 2 * rows.nbytes


def sort_chunks(
    chunks: Iterable[Sequences], limit: int, temp_dir: str | None, keep: bool
) -> tuple[Sequences, Sequences | None]:
    """`(sorted distinct rows, all rows in input order if keep)` of a stream of chunks.

    In memory as long as the stream is small enough for that, through files otherwise.
    """
    stream, held, work = iter(chunks), [], 0
    for chunk in stream:
        held.append(chunk)
        work += _streamed_bytes(chunk)
        if chunk.n_rows and work > within(chunk, limit):
            break
    else:
        rows = joined(held)
        return sorted_unique(rows), rows if keep else None

    def everything() -> Iterator[Sequences]:
        held.reverse()
        while held:
            yield held.pop()
        yield from stream

    if not keep:
        return merged(everything(), limit, temp_dir), None
    with Spool(temp_dir, np.dtype(np.uint32)) as spool:
        rows = merged(map(spool.passed, everything()), limit, temp_dir)
        return rows, spool.finish()


def merged(chunks: Iterable[Sequences], limit: int, temp_dir: str | None) -> Sequences:
    """External merge sort: sorted runs, then one bucket of all runs after another."""
    # No variable must hold a run while the next one is made.
    runs = list(map(partial(_written, temp_dir), _runs(chunks, limit)))
    if len(runs) == 1:
        return runs[0]
    largest = max(run.largest for run in runs)
    work = sum(map(_streamed_bytes, runs))
    room = min(within(run, limit) for run in runs)
    n_buckets = -(-_UNEVEN * work // (4 * max(1, room)))
    edges = [_lower_bounds(run, _splitters(runs, n_buckets)) for run in runs]
    with Spool(temp_dir, narrowest(largest)) as output:
        for i in range(len(edges[0]) - 1):
            parts = [
                run.slice(int(edge[i]), int(edge[i + 1]))
                for run, edge in zip(runs, edges, strict=True)
            ]
            output.passed(sorted_unique(joined(parts)))
        return output.finish(descent=-1)


def pieces(rows: Sequences, limit: int) -> Iterator[Sequences]:
    """Consecutive slices whose sorting takes about `limit` bytes, each of at least one row."""
    count = max(1, -(-work_bytes(rows) // max(1, within(rows, limit))))
    step = max(1, -(-rows.n_rows // count))
    for start in range(0, rows.n_rows, step):
        yield rows.slice(start, min(start + step, rows.n_rows))


class Spool:
    """Sequences appended to two files, which are mapped by `finish` and closed by `with`."""

    def __init__(self, temp_dir: str | None, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._n_rows = self._n_tokens = self._largest = 0
        self._lengths: set[int] = set()
        with ExitStack() as files:
            self._tokens = files.enter_context(tempfile.TemporaryFile(dir=temp_dir))
            self._ends = files.enter_context(tempfile.TemporaryFile(dir=temp_dir))
            self._ends.write(bytes(8))  # the first offset
            self._files = files.pop_all()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def passed(self, rows: Sequences) -> Sequences:
        """Appends the rows and returns them."""
        if rows.n_rows:
            for start in range(0, rows.n_rows, _WRITTEN):
                part = rows.slice(start, min(start + _WRITTEN, rows.n_rows))
                part.tokens.astype(self._dtype, copy=False).tofile(self._tokens)
                # Offsets of rows of one length too: a later chunk may have another one.
                first = self._n_tokens + rows.span(0, start)[1]
                (part.bounds()[1:] + first).tofile(self._ends)
            self._n_rows += rows.n_rows
            self._n_tokens += len(rows.tokens)
            self._largest = max(self._largest, rows.largest)
            self._lengths.add(rows.length)
        return rows

    def finish(self, descent: int = 0) -> Sequences:
        """All rows that were appended, mapped from the files."""
        length = self._lengths.pop() if len(self._lengths) == 1 else 0
        tokens = _mapped(self._tokens, self._dtype, self._n_tokens)
        offsets = NO_OFFSETS
        if not length:
            offsets = _mapped(self._ends, np.dtype(np.int64), self._n_rows + 1)
        return Sequences(tokens, offsets, length, self._n_rows, self._largest, descent)


def _mapped(file: IO[bytes], dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    file.flush()
    if not size:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r", shape=(size,)))


def _runs(chunks: Iterable[Sequences], limit: int) -> Iterator[Sequences]:
    held: list[Sequences] = []
    work = 0
    for chunk in chunks:
        if not chunk.n_rows:
            continue
        large = work_bytes(chunk) > within(chunk, limit)
        if held and (large or work + _streamed_bytes(chunk) > within(chunk, limit)):
            yield sorted_unique(joined(held))
            held, work = [], 0
        if large:
            yield from map(sorted_unique, pieces(chunk, limit))
        else:
            held.append(chunk)
            work += _streamed_bytes(chunk)
    if held:
        yield sorted_unique(joined(held))


def _written(temp_dir: str | None, run: Sequences) -> Sequences:
    with Spool(temp_dir, narrowest(run.largest)) as spool:
        spool.passed(run)
        return spool.finish(descent=-1)


def _splitters(runs: list[Sequences], n_buckets: int) -> Sequences:
    """Rows that cut all runs together into about equal parts."""
    total = sum(run.n_rows for run in runs)
    step = max(1, total // (_SAMPLES * n_buckets))
    samples = [
        gathered(run, np.arange(min(step // 2, run.n_rows - 1), run.n_rows, step)) for run in runs
    ]
    sample = sorted_unique(joined(samples))
    chosen = np.unique(np.arange(1, n_buckets) * sample.n_rows // n_buckets)
    return gathered(sample, chosen.astype(np.int64))


def _lower_bounds(run: Sequences, splitters: Sequences) -> NDArray[np.int64]:
    edges = np.zeros(splitters.n_rows + 2, np.int64)
    edges[-1] = run.n_rows
    edges[1:-1] = lower_bound(run, splitters, exact=False)
    return edges


def lower_bound(rows: Sequences, queries: Sequences, exact: bool) -> NDArray[np.int64]:
    """Number of sorted `rows` smaller than each query; with `exact`, -1 where it is no row."""
    found = np.empty(queries.n_rows, np.int64)
    _scan.search_rows(
        rows.tokens,
        rows.offsets,
        rows.length,
        rows.n_rows,
        queries.tokens.astype(np.uint32, copy=False),
        queries.bounds(),
        exact,
        found,
    )
    return found
