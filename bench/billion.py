"""``python -m bench.billion``: an index of a billion keys, built in its file.

Writes a table of sorted five-token keys of 16 bits into a directory, maps it, builds an index
straight into a file beside it, and looks keys up in that file. Anonymous memory is what the process
cannot give back; pages of mapped files are not part of it. With --curve, tables of several sizes,
of keys of one length and of several.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bench.large import write_ragged, write_rows
from bench.machine import machine
from bench.report import as_json, as_text, write_markdown
from bench.suite import Plot, Row, Table
from succinct import KeyTable, LoudsTrie, StepMap
from succinct.index import Index

TITLE = "Building"
INTRO = """
Tables are sorted and lie in memory-mapped files; both passes over the keys are in the times, the
check that a table is sorted is apart. The index is built in its file (`path=`), and its checksums
and the flush to the disk count. StepMaps are built without tails, LoudsTries without folded chains.
Anonymous memory is the largest that the whole process was seen to have during check and build. Keys
are synthetic Semantic IDs in bands of 2048 codes, skewed given the prefix; of the ragged ones two
in five have three or four tokens.
"""
COLUMNS = {
    "index": "{}",
    "keys": "{}",
    "n_keys": "{:,}",
    "threads": "{}",
    "check_s": "{:.2f}",
    "build_s": "{:.2f}",
    "keys_per_s": "{:,.0f}",
    "table_bytes": "{:,}",
    "file_bytes": "{:,}",
    "bits_per_key": "{:.2f}",
    "anonymous_mb": "{:,.0f}",
    "lookup_ns": "{:,.0f}",
}
_KINDS: dict[str, Callable[..., Index]] = {
    "StepMap small": lambda keys, **where: StepMap.build(keys, "small", False, **where),
    "StepMap packed": lambda keys, **where: StepMap.build(keys, "packed", **where),
    "StepMap sparse": lambda keys, **where: StepMap.build(keys, "sparse", **where),
    "LoudsTrie": lambda keys, **where: LoudsTrie.build(keys, False, **where),
}
_LOOKUPS = 100_000
_CHECKED = 300  # of them one by one


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement."""
    parser = argparse.ArgumentParser(prog="python -m bench.billion", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files go; they are removed")
    parser.add_argument("-n", "--keys", type=_numbers, default=[10**9], help="1e9, or 1e6,1e7,...")
    parser.add_argument("--kind", action="append", choices=list(_KINDS), help="the default is all")
    parser.add_argument("--ragged", action="store_true", help="keys of several lengths as well")
    parser.add_argument("--threads", type=_numbers, default=[2], help="2, or 1,2")
    parser.add_argument("--keep", action="store_true", help="keep the tables, and take those kept")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument("--markdown", type=Path, metavar="DIR", help="write a page and plots there")
    args = parser.parse_args(argv)
    kinds = args.kind or list(_KINDS)
    table = Table("building", "Time and size", COLUMNS, plots=_PLOTS)
    for n in args.keys:
        for ragged in (False, True) if args.ragged else (False,):
            with _table(args.folder, n, ragged, args.keep) as files:
                for kind in kinds:
                    for threads in args.threads:
                        row = measure(files, args.folder, kind, threads)
                        table.rows.append(row)
                        took = f"{row['n_keys']:,} keys in {row['build_s']:.2f} s"
                        print(f"{row['series']}, {threads} threads: {took}", file=sys.stderr)
    if args.json:
        print(json.dumps({"machine": machine(), **as_json(table)}, indent=2))
    else:
        print(as_text(table))
    if args.markdown:
        write_markdown(args.markdown, "building", TITLE, INTRO, machine(), [table])
    return 0


_PLOTS = [
    Plot("n_keys", "bits_per_key", "series", "Size of the file", log_y=False),
    Plot("n_keys", "build_s", "series", "Time to build"),
]


def _numbers(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",")]


@contextmanager
def _table(folder: Path, n: int, ragged: bool, keep: bool) -> Iterator[list[Path]]:
    """The files of a table: rows, or tokens and offsets."""
    name = f"{'ragged' if ragged else 'rows'}-{n}"
    files = [folder / f"{name}.npy"] + [folder / f"{name}-offsets.npy"] * ragged
    try:
        if not (keep and all(file.exists() for file in files)):
            with tqdm(total=n, desc=name, unit=" rows", unit_scale=True, **_bar()) as bar:
                if ragged:
                    write_ragged(files[0], files[1], n, bar.update)
                else:
                    write_rows(files[0], n, bar.update)
        yield files
    finally:
        if not keep:
            for file in files:
                file.unlink(missing_ok=True)


def measure(files: list[Path], folder: Path, kind: str, threads: int) -> Row:
    """Build one index of a table in a file, and look keys up in it."""
    out = folder / "index.safetensors"
    try:
        with _Watched(kind) as watched:
            arrays = [np.load(file, mmap_mode="r") for file in files]
            read = KeyTable.from_flat if len(arrays) == 2 else KeyTable.from_rows
            keys = read(*arrays, key_ids=False)
            checked = time.perf_counter()
            index = _KINDS[kind](keys, num_threads=threads, path=out)
            built = time.perf_counter()
        shape = "ragged" if len(files) == 2 else "fixed"
        return {
            "index": kind,
            "keys": shape,
            "series": f"{kind}, {shape}",
            "n_keys": index.n_keys,
            "threads": threads,
            "check_s": checked - watched.start,
            "build_s": built - checked,
            "keys_per_s": index.n_keys / (built - checked),
            "table_bytes": sum(file.stat().st_size for file in files),
            "file_bytes": out.stat().st_size,
            "bits_per_key": 8 * out.stat().st_size / index.n_keys,
            "anonymous_mb": watched.most / 2**20,
            "lookup_ns": _look_up(keys, index),
        }
    finally:
        out.unlink(missing_ok=True)


def _look_up(keys: KeyTable, index: Index) -> float:
    """Check random keys, and sequences that are none, against the table; time of a lookup."""
    count = min(_LOOKUPS, index.n_keys)
    places = np.random.default_rng(0).integers(0, index.n_keys, count)
    length = keys.fixed_length
    queries: Any
    if length:
        queries = keys.tokens.reshape(-1, length)[places]
    else:
        queries = [np.array(_tokens(keys, place)) for place in places.tolist()]
    start = time.perf_counter()
    found = index.key_ids(queries)
    taken = time.perf_counter() - start
    if length and not np.array_equal(found, places):
        raise AssertionError("keys are found under wrong numbers")
    for number, query in zip(found[:_CHECKED].tolist(), queries, strict=False):
        if number < 0 or index.key(number) != tuple(query.tolist()):
            raise AssertionError(f"key {query.tolist()} is found as number {number}")
    others = [[*query[:-1].tolist(), int(query[-1]) ^ 1] for query in queries[:_CHECKED]]
    for number, other in zip(index.key_ids(others).tolist(), others, strict=True):
        if (number >= 0) != (_place(keys, other) >= 0):
            raise AssertionError(f"{other} is found as number {number}")
    return taken / count * 1e9


def _place(keys: KeyTable, sequence: list[int]) -> int:
    """The place of a sequence in the order of the table, or -1."""
    low, high = 0, keys.n_keys
    while low < high:
        middle = (low + high) // 2
        here = _tokens(keys, middle)
        if here == sequence:
            return middle
        low, high = (middle + 1, high) if here < sequence else (low, middle)
    return -1


def _tokens(keys: KeyTable, place: int) -> list[int]:
    if keys.fixed_length:
        start, stop = place * keys.fixed_length, (place + 1) * keys.fixed_length
    else:
        start, stop = keys.offsets[place : place + 2].tolist()
    tokens: list[int] = keys.tokens[start:stop].tolist()
    return tokens


class _Watched:
    """The anonymous memory of the process, looked at several times a second; a clock beside."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> _Watched:
        self.most = _anonymous()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.start = time.perf_counter()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        with tqdm(desc=self.what, bar_format="{desc} {elapsed}{postfix}", **_bar()) as bar:
            while not self.over.wait(0.02):
                self.most = max(self.most, _anonymous())
                bar.set_postfix_str(f"{self.most >> 20} MiB")


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not tell the anonymous memory of a process")


def _bar() -> dict[str, Any]:
    return {"disable": not sys.stderr.isatty(), "file": sys.stderr, "leave": False}


if __name__ == "__main__":
    sys.exit(main())
