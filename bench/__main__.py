"""``python -m bench [--quick] [--json] [--catalog NAME]``: size, build and lookup times.

All rows of a catalog come from one run on one machine and are comparable with one another only.
Times are medians: of three builds, and of five passes over 20,000 keys in random order.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.catalogs import Catalog, catalogs
from bench.peers import Peer, peers

_BUILDS = 3
_PASSES = 5
_LOOKUPS = 20_000


def seconds(call: Callable[[], object], times: int) -> float:
    """Median time of a call, in seconds; garbage is collected before, not during."""
    taken = []
    for _ in range(times):
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
        gc.enable()
    return statistics.median(taken)


def measure(peer: Peer, keys: Any, sequences: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Measure one way to store one catalog."""
    if peer.absent:
        return {"index": peer.name, "note": peer.absent}
    peer.prepare(keys, sequences)
    build = seconds(peer.build, _BUILDS)
    drawn = random.Random(1).choices(sequences, k=_LOOKUPS)
    wanted = peer.encode(drawn)
    one = peer.one

    def one_by_one() -> None:
        for key in wanted:
            one(key)

    row = {
        "index": peer.name,
        "build_s": build,
        "nbytes": peer.nbytes(),
        "bits_per_key": 8 * peer.nbytes() / len(sequences),
        "lookup_ns": seconds(one_by_one, _PASSES) / _LOOKUPS * 1e9,
        "batch_ns": None,
    }
    if peer.batch is not None:
        batch = peer.batch
        row["batch_ns"] = seconds(lambda: batch(wanted), _PASSES) / _LOOKUPS * 1e9
    row["note"] = peer.note
    return row


def measure_catalog(catalog: Catalog) -> dict[str, Any]:
    """Measure all ways to store one catalog."""
    if catalog.absent:
        return {"catalog": catalog.name, "absent": catalog.absent}
    start = time.perf_counter()
    keys = catalog.load()
    loaded = time.perf_counter() - start
    sequences = list(keys)
    rows = []
    for peer in peers():
        rows.append(measure(peer, keys, sequences))
        gc.collect()
    for row in rows:
        for name in ("nbytes", "lookup_ns"):
            if row.get(name):
                row[f"{name}_ratio"] = row[name] / rows[0][name]
    return {"catalog": catalog.name, "n_keys": keys.n_keys, "load_s": loaded, "rows": rows}


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


def show(result: dict[str, Any]) -> None:
    """Print the table of one catalog."""
    if "absent" in result:
        print(f"\n{result['catalog']}: skipped, {result['absent']}")
        return
    print(f"\n{result['catalog']}: {result['n_keys']:,} keys, read in {result['load_s']:.2f} s")
    lines = [list(_COLUMNS)]
    for row in result["rows"]:
        values = ((form, row.get(name)) for name, form in _COLUMNS.items())
        lines.append(["-" if v is None else form.format(v) for form, v in values])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *middle, last = line
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        print("  ".join([*cells, last]).rstrip())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small samples of the large catalogs")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument("--catalog", help="only the catalogs whose name has this in it")
    args = parser.parse_args(argv)
    results = []
    for catalog in catalogs(args.quick):
        if args.catalog and args.catalog not in catalog.name:
            continue
        results.append(measure_catalog(catalog))
        if not args.json:
            show(results[-1])
            sys.stdout.flush()
    if args.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
