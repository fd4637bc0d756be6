"""Suite of indexes: size, build and lookup of every way to store a catalog."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.catalogs import Catalog, catalogs
from bench.peers import Peer, peers
from bench.suite import Options, Row, Table, add_ratios
from bench.timing import one_by_one, seconds

TITLE = "Maps and tries"
INTRO = """
Each catalog is stored in every layout of the library and in every peer that is installed. Turning
token sequences into what a peer takes as keys is not timed. Times are medians: of three builds, and
of five passes over 20,000 keys in random order.
"""

_BUILDS = 3
_PASSES = 5
_LOOKUPS = 20_000
_COLUMNS = {
    "index": "{}",
    "build_s": "{:.3f}",
    "nbytes": "{:,}",
    "bits_per_key": "{:.1f}",
    "nbytes_ratio": "{:.2f}x",
    "lookup_ns": "{:,.0f}",
    "batch_ns": "{:,.0f}",
    "lookup_ns_ratio": "{:.2f}x",
    "note": "{}",
}


def tables(options: Options) -> Iterator[Table]:
    """A table for each catalog."""
    for catalog in catalogs(options.quick):
        if options.wants(catalog.name):
            yield measure_catalog(catalog)


def measure(peer: Peer, keys: Any, sequences: Sequence[tuple[int, ...]]) -> Row:
    """Measure one way to store one catalog."""
    if peer.absent:
        return {"index": peer.name, "note": peer.absent}
    peer.prepare(keys, sequences)
    build = seconds(peer.build, _BUILDS, warm_up=False)
    wanted = peer.encode(random.Random(1).choices(sequences, k=_LOOKUPS))
    row = {
        "index": peer.name,
        "build_s": build,
        "nbytes": peer.nbytes(),
        "bits_per_key": 8 * peer.nbytes() / len(sequences),
        "lookup_ns": one_by_one(peer.one, wanted, _PASSES),
    }
    if peer.batch is not None:
        batch = peer.batch
        row["batch_ns"] = seconds(lambda: batch(wanted), _PASSES) / _LOOKUPS * 1e9
    row["note"] = peer.note
    return row


def measure_catalog(catalog: Catalog) -> Table:
    """Measure all ways to store one catalog."""
    if catalog.absent:
        return Table(catalog.name, f"{catalog.name}: skipped, {catalog.absent}", {"index": "{}"})
    start = time.perf_counter()
    keys = catalog.load()
    loaded = time.perf_counter() - start
    sequences = list(keys)
    rows = []
    for peer in peers():
        rows.append(measure(peer, keys, sequences))
        gc.collect()
    for entry in ("nbytes", "lookup_ns"):
        add_ratios(rows, entry, rows[0])
    title = f"{catalog.name}: {keys.n_keys:,} keys, read in {loaded:.2f} s"
    return Table(catalog.name, title, _COLUMNS, rows)
