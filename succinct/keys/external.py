"""Sorting sequences within a memory limit, with sorted runs on disk.

All files are anonymous temporary files: the operating system removes them when the last map of them
is gone, also when the process is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from . import _scan
from .sequences import NO_OFFSETS, Sequences, joined, narrowest
from .sorting import sorted_unique

# Below this, more time goes into the number of pieces than into their rows.
_LEAST_LIMIT = 1 << 16


def default_limit() -> int:
    """Half of the memory that is available now; no limit where the system does not tell."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def work_bytes(rows: Sequences) -> int:
    """About the memory that sorting takes: order, words and flags a row, and the tokens twice."""
    return 2 * rows.tokens.nbytes + 48 * rows.n_rows


def sort_chunks(
    chunks: Iterable[Sequences], limit: int, temp_dir: str | None, keep: bool
) -> tuple[Sequences, Sequences | None]:
    """`(sorted distinct rows, all rows in input order if keep)` of a stream of chunks.

    In memory as long as the stream is small enough for that, through files otherwise.
    """
    limit = max(limit, _LEAST_LIMIT)
    stream, held, work = iter(chunks), [], 0
    for chunk in stream:
        held.append(chunk)
        work += work_bytes(chunk)
        if work > limit:
            break
    else:
        rows = joined(held)
        return sorted_unique(rows), rows if keep else None

    spool = Spool(temp_dir, np.dtype(np.uint32)) if keep else None

    def everything() -> Iterator[Sequences]:
        held.reverse()
        while held:
            yield held.pop()
        yield from stream

    def spooled() -> Iterator[Sequences]:
        for chunk in everything():
            if spool is not None:
                spool.append(chunk)
            yield chunk

    rows = merged(spooled(), limit, temp_dir)
    return rows, spool.finish() if spool is not None else None


def merged(chunks: Iterable[Sequences], limit: int, temp_dir: str | None) -> Sequences:
    """External merge sort: sorted runs, then one bucket of all runs after another."""
    limit = max(limit, _LEAST_LIMIT)
    runs = [_written(run, temp_dir) for run in _runs(chunks, limit // 2)]
    if len(runs) == 1:
        return runs[0]
    largest = max(run.largest for run in runs)
    n_buckets = -(-2 * sum(map(work_bytes, runs)) // limit)
    edges = [_lower_bounds(run, _splitters(runs, n_buckets)) for run in runs]
    output = Spool(temp_dir, narrowest(largest))
    for i in range(len(edges[0]) - 1):
        parts = [
            run.slice(int(edge[i]), int(edge[i + 1])) for run, edge in zip(runs, edges, strict=True)
        ]
        output.append(sorted_unique(joined(parts)))
    return output.finish()


def pieces(rows: Sequences, limit: int) -> Iterator[Sequences]:
    """Consecutive slices whose sorting takes about `limit` bytes, each of at least one row."""
    count = max(1, -(-work_bytes(rows) // limit))
    step = max(1, -(-rows.n_rows // count))
    for start in range(0, rows.n_rows, step):
        # What is known about the order of the whole says nothing about a part.
        yield replace(rows.slice(start, min(start + step, rows.n_rows)), descent=1)


class Spool:
    """Sequences appended to files, then mapped."""

    def __init__(self, temp_dir: str | None, dtype: np.dtype[Any]) -> None:
        self._dir, self._dtype = temp_dir, dtype
        self._tokens = tempfile.TemporaryFile(dir=temp_dir)  # noqa: SIM115 (closed in finish)
        self._ends = tempfile.TemporaryFile(dir=temp_dir)  # noqa: SIM115
        self._n_rows = self._n_tokens = self._largest = 0
        self._lengths: set[int] = set()

    def append(self, rows: Sequences) -> None:
        if not rows.n_rows:
            return
        self._tokens.write(rows.tokens.astype(self._dtype, copy=False).data)
        # Offsets are written for fixed lengths too: a later chunk may have another length.
        (rows.bounds()[1:] + self._n_tokens).tofile(self._ends)
        self._n_rows += rows.n_rows
        self._n_tokens += len(rows.tokens)
        self._largest = max(self._largest, rows.largest)
        self._lengths.add(rows.length)

    def finish(self) -> Sequences:
        with self._tokens, self._ends:
            length = self._lengths.pop() if len(self._lengths) == 1 else 0
            tokens = _mapped(self._tokens, self._dtype, self._n_tokens)
            offsets = NO_OFFSETS
            if not length:
                # The first offset, 0, is not in the file; it is put in front of the others.
                offsets = np.empty(self._n_rows + 1, np.int64)
                offsets[0] = 0
                offsets[1:] = _mapped(self._ends, np.dtype(np.int64), self._n_rows)
            return Sequences(tokens, offsets, length, self._n_rows, self._largest)


def _mapped(file: IO[bytes], dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    file.flush()
    if not size:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r", shape=(size,)))


def _runs(chunks: Iterable[Sequences], limit: int) -> Iterator[Sequences]:
    held: list[Sequences] = []
    work = 0
    for chunk in chunks:
        for piece in pieces(chunk, limit):
            if held and work + work_bytes(piece) > limit:
                yield sorted_unique(joined(held))
                held, work = [], 0
            held.append(piece)
            work += work_bytes(piece)
    if held:
        yield sorted_unique(joined(held))


def _written(run: Sequences, temp_dir: str | None) -> Sequences:
    spool = Spool(temp_dir, narrowest(run.largest))
    spool.append(run)
    return spool.finish()


def _splitters(runs: list[Sequences], n_buckets: int) -> Sequences:
    """Rows that cut all runs together into about equal parts."""
    total = sum(run.n_rows for run in runs)
    step = max(1, total // (32 * n_buckets))
    samples = [
        _scan_rows(run, np.arange(min(step // 2, run.n_rows - 1), run.n_rows, step)) for run in runs
    ]
    sample = sorted_unique(joined(samples))
    chosen = np.unique(np.arange(1, n_buckets) * sample.n_rows // n_buckets)
    return _scan_rows(sample, chosen.astype(np.int64))


def _scan_rows(rows: Sequences, numbers: NDArray[np.int64]) -> Sequences:
    from .sorting import gathered

    return gathered(rows, numbers)


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
