"""What building takes of memory, each thing made in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.catalogs import Catalog, catalogs, semantic_ids, taxa
from bench.suite import Options, Row, Table
from succinct import KeyTable, LoudsTrie, StepMap
from succinct.index import Index

TITLE = "Memory of building"
INTRO = """
Each row is a process of its own that holds the input in memory and then makes something of it. The
peak is the most that was resident of the process, less the interpreter and the code that it runs.

Rows that fit into 64 bits, or into 16 more, are packed, sorted and unpacked in the memory of the
table. Other rows are copied to one of 64 parts of the table by their first tokens, and each part is
sorted apart. Tails and chains are sorted in up to 256 parts, from the keys where they lie; a tail
then has as many bits for the place it leads to as the number of all tokens in tails needs, one or
two bytes for its length and one for its part, which for titles of a few tokens is nearly as much as
an index of 40 bits a key. Arrays as long as the vocabulary are held one or two at a time.
"""
COLUMNS = {
    "made": "{}",
    "of": "{}",
    "input_bytes": "{:,}",
    "made_bytes": "{:,}",
    "peak_bytes": "{:,}",
    "to_input_and_made": "{:.2f}x",
    "beyond_input_to_made": "{:.2f}x",
}
# More than are sorted at once: all code is in memory then.
_FEW = 1 << 17
_TITLES = ("geonames_600k", "ncbi_taxa_600k", "ncbi_taxa")
_ROWS = {
    "60 bits": (5, 2**12),
    "80 bits": (5, 2**16),
    "120 bits": (6, 2**20),
}

_Arrays = dict[str, npt.NDArray[Any]]


def tables(options: Options) -> Iterator[Table]:
    """The table of what is made of what."""
    table = Table("peaks", "Peak of resident memory", COLUMNS)
    for of, kinds in _inputs(options):
        with tempfile.TemporaryDirectory() as folder:
            for name, array in _arrays(of, options.quick).items():
                np.save(Path(folder, name), array)
            for made in kinds:
                command = [sys.executable, "-m", "bench.memory", made, folder]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                table.rows.append({"made": made, "of": of, **json.loads(ran.stdout)})
    yield table


def _inputs(options: Options) -> Iterator[tuple[str, list[str]]]:
    for of in ("Semantic IDs", *_titles(options.quick)):
        if options.wants(of):
            yield of, list(_INDEXES)
    for of in (*_ROWS, "ragged"):
        if options.wants(of):
            yield of, ["KeyTable"]


_INDEXES: dict[str, Callable[[KeyTable], Index]] = {
    "StepMap": lambda keys: StepMap.build(keys),
    "StepMap, no tails": lambda keys: StepMap.build(keys, tail=False),
    "LoudsTrie": lambda keys: LoudsTrie.build(keys),
    "LoudsTrie, no chains": lambda keys: LoudsTrie.build(keys, False),
}


def _titles(quick: bool) -> dict[str, Catalog]:
    """Catalogs of titles that are at hand, by name."""
    found = [*catalogs(quick), taxa(quick)]
    return {c.name: c for c in found if c.name in _TITLES and not c.absent}


def _arrays(of: str, quick: bool) -> _Arrays:
    """Tokens, and offsets of sequences of several lengths."""
    rng = np.random.default_rng(0)
    n = 100_000 if quick else 4_000_000
    if of == "Semantic IDs":
        return {"tokens": semantic_ids(n)}
    if of in _ROWS:
        length, codes = _ROWS[of]
        rows = rng.integers(0, codes, (n, length), np.uint32)
        return {"tokens": rows.astype(np.uint16 if codes <= 2**16 else np.uint32)}
    if of == "ragged":
        offsets = np.concatenate([[0], np.cumsum(rng.integers(3, 9, n))])
        # Some tokens are much more frequent than others, as words are.
        tokens = (100_000 * rng.random(offsets[-1]) ** 3).astype(np.uint32)
        return {"tokens": tokens, "offsets": offsets}
    keys = _titles(quick)[of].load()
    return {"tokens": keys.tokens, "offsets": keys.offsets}


def _table(tokens: npt.NDArray[Any], offsets: npt.NDArray[Any] | None, n: int) -> KeyTable:
    """A table of the first n keys."""
    if offsets is None:
        return KeyTable.from_rows(tokens[:n], key_ids=False)
    return KeyTable.from_flat(tokens[: offsets[n]], offsets[: n + 1], key_ids=False)


def measure(made: str, folder: Path) -> Row:
    """Make it of the arrays in a folder, and look at what was resident at most."""
    tokens = np.load(folder / "tokens.npy")
    file = folder / "offsets.npy"
    offsets = np.load(file) if file.exists() else None
    n = len(tokens) if offsets is None else len(offsets) - 1
    input_bytes = tokens.nbytes + (0 if offsets is None else offsets.nbytes)
    few = min(n, _FEW)
    if made == "KeyTable":
        _table(tokens, offsets, few)

        def make() -> KeyTable | Index:
            return _table(tokens, offsets, n)

    else:
        first = _table(tokens, offsets, few)
        for tail in (True, False):
            LoudsTrie.build(first, tail)
            StepMap.build(first, tail=tail)
        del first
        keys = _table(tokens, offsets, n)

        def make() -> KeyTable | Index:
            return _INDEXES[made](keys)

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = _status("VmRSS")
    start = time.perf_counter()
    result = make()
    seconds = time.perf_counter() - start
    beyond = _status("VmHWM") - before
    return {
        "seconds": seconds,
        "input_bytes": input_bytes,
        "made_bytes": result.nbytes,
        "peak_bytes": input_bytes + beyond,
        "to_input_and_made": (input_bytes + beyond) / (input_bytes + result.nbytes),
        "beyond_input_to_made": beyond / result.nbytes,
    }


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"the system does not tell {name} of a process")


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
