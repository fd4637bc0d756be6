"""Suite of indexes: size, build and lookup of every way to store a catalog."""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.catalogs import Catalog, catalogs
from bench.peers import Ours, Peer, peers
from bench.suite import Options, Row, Table, add_ratios
from bench.timing import alternating, one_by_one, samples, seconds, wall
from succinct import KeyTable

TITLE = "Maps and tries"
INTRO = """
Each catalog in every layout of the library and in every peer that is installed. Semantic IDs come
from MiniOneRec and GenRec, titles from GeoNames and the NCBI taxonomy (600,000 of each, tokenized
with cl100k); the synthetic ids have five levels in bands of 2,048, skewed given their prefix.

Times are processor time of one thread. `build_s` is the median of three builds from sorted keys, or
the first where that takes more than a second.
Lookups are those of 20,000 keys in random order: `lookup_ns` a Python call each, `batch_ns` in one
call, of an array of rows where the keys have one length and of a list of tuples where not. `key_ns`
and `keys_ns` go back from numbers to keys, one by one and in a batch. `stream` is how many keys a
second come when all are gone through in order. What an array of rows is for the library, bytes or
text are for a peer: turning sequences into them is not timed. Ratios are to the
first row; more means larger or slower than it. The trie of packed levels is C that was compiled for
this processor: its lookups one by one are a loop in C, without calls from Python.
"""

_BUILDS = 3
_PASSES = 5
_LOOKUPS = 20_000
_STREAMED = 200_000
_COLUMNS = {
    "index": "{}",
    "build_s": "{:.3f}",
    "nbytes": "{:,}",
    "bits_per_key": "{:,.1f}",
    "nbytes_ratio": "{:.2f}x",
    "lookup_ns": "{:,.0f}",
    "lookup_ns_ratio": "{:.2f}x",
    "batch_ns": "{:,.0f}",
    "batch_ns_ratio": "{:.2f}x",
    "key_ns": "{:,.0f}",
    "keys_ns": "{:,.0f}",
    "stream": "{:,.0f}/s",
    "note": "{}",
}


def tables(options: Options) -> Iterator[Table]:
    """A table for each catalog, and one of lookups on two threads."""
    threads = _thread_table()
    for catalog in catalogs(options.quick):
        if not options.wants(catalog.name):
            continue
        if catalog.absent:
            text = f"Skipped: {catalog.absent}."
            yield Table(catalog.name, catalog.name, {"index": "{}"}, text=text)
            continue
        start = time.perf_counter()
        keys = catalog.load()
        text = f"Read in {time.perf_counter() - start:.2f} s."
        rows = _rows(keys, threads, catalog)
        title = f"{catalog.name}: {keys.n_keys:,} keys"
        yield Table(catalog.name, title, _COLUMNS, rows, text)
    if threads.rows:
        yield threads


def _rows(keys: KeyTable, threads: Table, catalog: Catalog) -> list[Row]:
    sequences = list(keys)
    rows = []
    for peer in peers():
        rows.append(measure(peer, keys, sequences))
        if isinstance(peer, Ours) and keys.n_keys >= 100_000:
            threads.rows.append({"catalog": catalog.name} | _on_threads(peer, sequences))
        gc.collect()
    for entry in ("nbytes", "lookup_ns", "batch_ns"):
        add_ratios(rows, entry, rows[0])
    return rows


def measure(peer: Peer, keys: KeyTable, sequences: Sequence[tuple[int, ...]]) -> Row:
    """Measure one way to store one catalog."""
    row: Row = {"index": peer.name}
    if not peer.absent:
        peer.prepare(keys, sequences)
    if peer.absent:
        return row | {"note": peer.absent}
    if peer.note != "bytes only":
        built = samples(peer.build, 1, warm_up=False)
        if built[0] < 1:
            built += samples(peer.build, _BUILDS - 1, warm_up=False)
        row["build_s"] = statistics.median(built)
        row |= _times(peer, sequences)
    nbytes = peer.nbytes()
    return row | {
        "nbytes": nbytes,
        "bits_per_key": 8 * nbytes / len(sequences),
        "note": peer.note,
    }


def _times(peer: Peer, sequences: Sequence[tuple[int, ...]]) -> Row:
    drawn = random.Random(1).choices(sequences, k=_LOOKUPS)
    row: Row = {}
    if peer.each is None:
        row["lookup_ns"] = one_by_one(peer.one, peer.encode(drawn), _PASSES)
    else:
        each, wanted = peer.each, peer.encode_batch(drawn)
        row["lookup_ns"] = seconds(lambda: each(wanted), _PASSES) / _LOOKUPS * 1e9
    if peer.batch is not None:
        batch, wanted = peer.batch, peer.encode_batch(drawn)
        row["batch_ns"] = seconds(lambda: batch(wanted), _PASSES) / _LOOKUPS * 1e9
    numbers = np.random.default_rng(1).integers(0, len(sequences), _LOOKUPS)
    if peer.key is not None:
        row["key_ns"] = one_by_one(peer.key, numbers[: _LOOKUPS // 4].tolist(), _PASSES)
    if peer.many_keys is not None:
        many = peer.many_keys
        row["keys_ns"] = seconds(lambda: many(numbers), _PASSES) / _LOOKUPS * 1e9
    if peer.stream is not None:
        stream, count = peer.stream, min(_STREAMED, len(sequences))
        taken = seconds(lambda: deque(itertools.islice(stream(), count), maxlen=0), 3)
        row["stream"] = count / taken
    return row


def _thread_table() -> Table:
    return Table(
        "threads",
        "Lookups on two threads",
        {
            "catalog": "{}",
            "index": "{}",
            "one_ns": "{:,.0f}",
            "two_ns": "{:,.0f}",
            "speedup": "{:.2f}x",
        },
        text="A batch of 400,000 keys of one length as an array on one thread, and its halves on "
        "two; titles are cut to those of the most frequent length.",
    )


def _on_threads(peer: Ours, sequences: Sequence[tuple[int, ...]]) -> Row:
    lengths = np.array(list(map(len, sequences)))
    length = int(np.bincount(lengths).argmax())
    rows = np.array(list(itertools.compress(sequences, lengths == length)), np.uint32)
    rows = rows[np.random.default_rng(1).integers(0, len(rows), 20 * _LOOKUPS)]
    halves = np.split(rows, 2)
    look_up: Any = peer.batch
    with ThreadPoolExecutor(2) as pool:
        taken = alternating(
            {
                "one": lambda: look_up(rows),
                "two": lambda: list(pool.map(look_up, halves)),
            },
            _PASSES,
            wall,
        )
    one, two = (taken[name] / len(rows) * 1e9 for name in ("one", "two"))
    return {"index": peer.name, "one_ns": one, "two_ns": two, "speedup": one / two}
