"""What building takes of memory, each thing made in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.catalogs import catalogs, semantic_ids
from bench.suite import Options, Row, Table
from succinct import KeyTable, LoudsTrie, StepMap

TITLE = "Memory of building"
INTRO = """
Each row is a process of its own that holds the input in memory and then makes something of it. The
peak is the most that was resident of the process, less the interpreter and the code that it runs.
"""
COLUMNS = {
    "made": "{}",
    "of": "{}",
    "seconds": "{:.2f}",
    "input_bytes": "{:,}",
    "made_bytes": "{:,}",
    "peak_bytes": "{:,}",
    "to_input_and_made": "{:.2f}x",
    "beyond_input_to_made": "{:.2f}x",
}
_TITLES = ("geonames_600k", "ncbi_taxa_600k")
_ROWS = {
    "60 bits": (5, 2**12),
    "80 bits": (5, 2**16),
    "120 bits": (6, 2**20),
}

Made = Any
Case = tuple[int, Callable[[], Made], Callable[[], Made]]


def tables(options: Options) -> Iterator[Table]:
    """The table of what is made of what."""
    table = Table("peaks", "Peak of resident memory", COLUMNS)
    for name in _names(options):
        made, of = name
        command = [sys.executable, "-m", "bench.memory", made, of]
        ran = subprocess.run(
            [*command, *["quick"] * options.quick], capture_output=True, text=True, check=True
        )
        table.rows.append({"made": made, "of": of, **json.loads(ran.stdout)})
    yield table


def _names(options: Options) -> Iterator[tuple[str, str]]:
    absent = {catalog.name for catalog in catalogs(options.quick) if catalog.absent}
    for of in ("Semantic IDs", *(name for name in _TITLES if name not in absent)):
        if options.wants(of):
            yield from ((made, of) for made in _INDEXES)
    for of in (*_ROWS, "ragged"):
        if options.wants(of):
            yield "KeyTable", of


_INDEXES: dict[str, Callable[[KeyTable], Made]] = {
    "StepMap": lambda keys: StepMap.build(keys),
    "StepMap, no tails": lambda keys: StepMap.build(keys, tail=False),
    "LoudsTrie": lambda keys: LoudsTrie.build(keys),
    "LoudsTrie, no chains": lambda keys: LoudsTrie.build(keys, False),
}


def _case(made: str, of: str, quick: bool) -> Case:
    """Bytes of the input, what makes something of it, and the same for a small one."""
    rng = np.random.default_rng(0)
    n = 100_000 if quick else 4_000_000
    if made != "KeyTable":
        if of == "Semantic IDs":
            keys = KeyTable.from_rows(semantic_ids(n))
        else:
            keys = next(c for c in catalogs(quick) if c.name == of).load()
        few = KeyTable.from_sequences([keys.key(i) for i in range(0, keys.n_keys, 500)])
        return keys.nbytes, lambda: _INDEXES[made](keys), lambda: _INDEXES[made](few)
    if of == "ragged":
        lengths = rng.integers(3, 9, n)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # A third of the tokens are frequent, as words are.
        flat = (100_000 * rng.random(offsets[-1]) ** 3).astype(np.uint32)

        def table(n: int) -> KeyTable:
            return KeyTable.from_flat(flat[: offsets[n]], offsets[: n + 1], key_ids=False)

        return flat.nbytes + offsets.nbytes, lambda: table(n), lambda: table(100)
    length, codes = _ROWS[of]
    rows = rng.integers(0, codes, (n, length), np.uint32).astype(f"u{2 if codes <= 2**16 else 4}")

    def table_of(rows: Any) -> KeyTable:
        return KeyTable.from_rows(rows, key_ids=False)

    return rows.nbytes, lambda: table_of(rows), lambda: table_of(rows[:100])


def measure(made: str, of: str, quick: bool) -> Row:
    """Make it, and look at what was resident at most."""
    input_bytes, make, make_small = _case(made, of, quick)
    make_small()  # the code is in memory then
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
    print(json.dumps(measure(sys.argv[1], sys.argv[2], "quick" in sys.argv[3:])))
