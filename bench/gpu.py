"""``python -m bench.gpu``: what a device takes, beside what it could take at least.

On a machine with a device it builds the compiled modules, runs the tests that need a device, and
prints Markdown, all in less than four minutes; windows of time begin before the first copy to the
device or launch and end when the host has the answer, or after a wait where the answer stays. With
``--executor`` it runs where there is no device, with fewer batches and a small model, and prints
how often kernels load, synchronise and so on, instead of times.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import succinct_gpu as sg
from bench.filtering import Workload
from bench.report import as_text
from bench.suite import Row, Table
from succinct import CsrMap, KeyTable, LoudsTrie, StepMap
from succinct_gpu import simt

ROOT = Path(__file__).parents[1]
# Seconds for everything; what has not begun by then is left out.
_MOST_SECONDS = 225
_TEST_SECONDS = 70
_PASSES = 20
# What a model with the constants of an H200 says of FlashTrie's search and ZeroGR's five steps.
_SEARCH_LIMIT_US = 170.0
_STEPS_LIMIT_US = 170.0

_COUNTS = {
    "launches": "{}",
    "global_loads": "{:,}",
    "global_stores": "{:,}",
    "global_atomics": "{:,}",
    "shared_atomics": "{:,}",
    "barriers": "{:,}",
    "warp_operations": "{:,}",
    "grid_syncs": "{}",
}
_TIMES = {"median_us": "{:,.1f}", "least_us": "{:,.1f}", "limit_us": "{:,.1f}", "ratio": "{:.1f}"}


class Bench:
    """Measures calls on the device, or counts in the executor."""

    def __init__(self, executor: bool) -> None:
        self.executor = executor
        self.columns = _COUNTS if executor else _TIMES
        self._began = time.perf_counter()

    def has_time(self) -> bool:
        """Whether something more may begin."""
        return self.executor or time.perf_counter() - self._began < _MOST_SECONDS

    def measure(
        self, call: Callable[[], object], limit_us: float | None = None, passes: int = _PASSES
    ) -> Row:
        """Entries of a row: times of `call`, which need not wait, or its counts."""
        from numba import cuda

        if self.executor:
            call()
            with simt.record() as seen:
                call()
            row = {"launches": len(seen.launches), **seen.counters._asdict()}
            return {name: row[name] for name in _COUNTS}
        taken = []
        unused = min(3, passes - 1)
        for turn in range(passes + unused):
            cuda.synchronize()
            start = time.perf_counter()
            call()
            cuda.synchronize()
            if turn >= unused:
                taken.append(1e6 * (time.perf_counter() - start))
        row = {"median_us": statistics.median(taken), "least_us": min(taken)}
        if limit_us is not None:
            row |= {"limit_us": limit_us, "ratio": row["median_us"] / limit_us}
        return row


def latencies(bench: Bench) -> Table:
    """Of a grid sync, of a node of a graph, of a gather: per one, from many."""
    from numba import cuda

    from bench import gpu_kernels as kernels
    from succinct_gpu._graphs import Captured

    turns = 4 if bench.executor else 1000
    table = Table("latencies", "Latencies", {"what": "{}", "number": "{:,}", **bench.columns})
    sm = int(cuda.get_current_device().MULTIPROCESSOR_COUNT)
    out = cuda.to_device(np.zeros(32, np.int64))
    n = 1 << (10 if bench.executor else 27)
    order = np.random.default_rng(0).permutation(n)
    links = np.empty(n, np.int64)
    links[order] = np.roll(order, -1)  # one circle through everything
    there = cuda.to_device(links)

    launches = SimpleNamespace(stream=0, step=None)

    def launch() -> None:
        for _ in range(turns):
            kernels.do_nothing[1, 32, launches.stream](out)

    launches.launch = launch
    graph = Captured(launches)
    for what, call in (
        ("grid sync", lambda: kernels.sync_grid[sm, 128](turns)),
        ("launch", launch),
        ("node of a graph", graph.launch),
        ("gather", lambda: kernels.follow[1, 1](there, turns, out)),
    ):
        row = bench.measure(call)
        if not bench.executor:
            row = {name: value / turns for name, value in row.items()}
        table.rows.append({"what": what, "number": turns, **row})
    table.text = "Each is the share of one in a call that does `number` of them."
    return table


def searches(bench: Bench) -> Iterator[Table]:
    """FlashTrie: one search, and batches; then the phases of a search."""
    from bench.workloads import Proposer

    random = np.random.default_rng(1)
    n_keys, length, vocab_size = 1_000_000, 8, 50_000
    # Few continuations each, as titles have.
    rows = np.floor(vocab_size * random.random((n_keys, length)) ** 4).astype(np.uint32)
    trie = LoudsTrie.build(KeyTable.from_rows(rows))
    proposer = Proposer(KeyTable.from_rows(rows[:20_000]))
    device = sg.to_device(trie)
    widths = 100, 1000
    table = Table("searches", "Searches over proposals (FlashTrie)",
                  {"batch": "{}", "beam": "{}", "proposals": "{}", **bench.columns})  # fmt: skip
    table.text = (
        f"Of {n_keys:,} keys of {length} tokens; proposals are on the host, and so are results: "
        "both copies are in the window."
    )
    for width in widths:
        for batch in (1,) if bench.executor else (1, 2, 4, 8):
            if not bench.has_time():
                break
            grids = proposer.grids(batch, length, width, width // 2)
            # One kernel is enough for counts, which it does not change.
            searcher = sg.Searcher(device, max_batch=batch, max_beam_width=width,
                                   max_proposals=width, max_steps=length,
                                   timed=bench.executor)  # fmt: skip

            def call(searcher: Any = searcher, grids: Any = grids, width: int = width) -> None:
                searcher.search(grids.token_ids, grids.logprobs, beam_width=width)

            limit = _SEARCH_LIMIT_US if (batch, width) == (1, 1000) else None
            row = {"batch": batch, "beam": width, "proposals": width}
            table.rows.append(row | bench.measure(call, limit))
    yield table
    if not bench.has_time():
        return
    unit = "accesses to memory" if bench.executor else "cycles of the clock"
    columns = {"beam": "{}", "phase": "{}", "step": "{}", "clock": "{:,}", "share": "{:.3f}"}
    table = Table("phases", "Phases of a search", columns)
    table.text = (
        f"In {unit}, by a kernel that reads the clock between them. Waiting for other blocks "
        "belongs to a phase. Shares are of all phases together."
    )
    for width in widths:
        grids = proposer.grids(1, length, width, width // 2)
        searcher = sg.Searcher(device, max_beam_width=width, max_proposals=width,
                               max_steps=length, timed=True)  # fmt: skip
        for _ in range(1 if bench.executor else 3):
            searcher.search(grids.token_ids, grids.logprobs, beam_width=width)
        phases = searcher.phases
        assert phases is not None
        found = [("expand", i + 1, int(n)) for i, n in enumerate(phases.expand[0])]
        found += [("select", i + 1, int(n)) for i, n in enumerate(phases.select[0])]
        found += [("trace back", "", int(phases.trace[0]))]
        total = sum(spent for _, _, spent in found)
        for phase, step, spent in found:
            row = {"beam": width, "phase": phase, "step": step}
            table.rows.append(row | {"clock": spent, "share": spent / total})
    yield table


def masking(bench: Bench) -> Table:
    """STATIC: one step of a batch of beams in the middle of a search."""
    from numba import cuda

    random = np.random.default_rng(2)
    n_keys, vocab_size, n_rows = 1_000_000, 2048, 140
    index = CsrMap.build(KeyTable.from_rows(random.integers(0, vocab_size, (n_keys, 5))))
    device = sg.to_device(index)
    table = Table("masking", "A step of masking (STATIC)",
                  {"step": "{}", "function": "{}", "rows": "{}", **bench.columns})  # fmt: skip
    table.text = "Logits float32, states and answers stay on the device; the window has the wait."
    states = np.full(n_rows, index.root)
    for step in range(4):
        if not bench.has_time():
            break
        width = max(1, int(np.diff(index.children(states)[0]).max()))
        logits = cuda.to_device(random.standard_normal((n_rows, vocab_size)).astype(np.float32))
        places = cuda.to_device(states)
        for name, call in (
            ("constrain", lambda a=logits, b=places: sg.constrain(a, device, b)),
            (
                "candidates, padded",
                lambda a=logits, b=places, w=width: sg.candidates(a, device, b, width=w),
            ),
            ("allowed_mask", lambda b=places: device.allowed_mask(b)),
        ):
            row = {"step": step + 1, "function": name, "rows": n_rows}
            table.rows.append(row | bench.measure(call))
        offsets, _, children = index.children(states)
        states = children[(offsets[:-1] + random.integers(0, np.diff(offsets)))]
    return table


def filtering(bench: Bench) -> Iterator[Table]:
    """ZeroGR: the steps of a search, by every way, and other structures in the same pipeline."""
    from numba import cuda

    lows, bands = (0, 64, 96, 112, 128), (64, 32, 16, 16, 16)
    fans, head_size, length, width = (8, 4.0, 3.0, 2.0, 1.02), 144, 33, 6
    if not bench.executor:
        lows, bands = (0, 8192, 12288, 14336, 16384), (8192, 4096, 2048, 2048, 2048)
        fans, head_size, length, width = (64, 586.0, 72.0, 2.7, 1.02), 18432, 1024, 128
    keys = Workload("search", head_size, lows, bands, fans).keys()
    kinds = {
        "StepMap": StepMap.build(keys, tail=False),
        "CsrMap (STATIC)": CsrMap.build(keys),
        "LoudsTrie (FlashTrie)": LoudsTrie.build(keys, tail=False),
    }
    random = np.random.default_rng(3)
    weight = (random.standard_normal((head_size, length)) / length**0.5).astype(np.float16)
    head = cuda.to_device(weight)
    ways = {
        "selective": {"projection": "selective"},
        "band": {"projection": "band"},
        "full head": {"projection": "full"},
        "scoring first": {"projection": "full", "normalize": "vocab"},
    }
    columns = {"batch": "{}", "structure": "{}", "way": "{}", "step": "{}", **bench.columns}
    table = Table("filtering", "Steps from hidden states (ZeroGR)", columns)
    table.text = (
        f"float16, {length} dimensions, a head of {head_size:,} rows, beam width {width}; "
        f"{keys.n_keys:,} keys. Hidden states and beams are on the device and winners stay there; "
        "the window has the launches, as one graph where there is a device, and the wait."
    )
    for batch in (1,) if bench.executor else (1, 32):
        for kind, index in kinds.items():
            device = sg.to_device(index)
            states = np.full((batch, 1), index.root)
            scores = np.zeros((batch, 1), np.float32)
            for step in range(index.max_length):
                hidden = random.standard_normal((*states.shape, length)).astype(np.float16)
                given = [cuda.to_device(array) for array in (hidden, states, scores)]
                found = None
                for way, options in ways.items():
                    if not bench.has_time() or (kind != "StepMap" and way != "selective"):
                        continue
                    captured = sg.capture_step(given[0], head, device, given[1], given[2], width,
                                               step=step, **options)  # fmt: skip
                    row = {"batch": batch, "structure": kind, "way": way, "step": step + 1}
                    table.rows.append(row | bench.measure(captured.launch))
                    found = found or [part.copy_to_host() for part in captured.step[:2]]
                if found is None:
                    break
                states, scores = found
    yield table
    if not bench.executor:
        yield sums(table)


def sums(steps: Table) -> Table:
    """All steps together, beside the limit."""
    table = Table("search", "All five steps of ZeroGR's search",
                  {"batch": "{}", "structure": "{}", "way": "{}", **_TIMES})  # fmt: skip
    totals: dict[tuple[Any, ...], list[Row]] = {}
    for row in steps.rows:
        totals.setdefault((row["batch"], row["structure"], row["way"]), []).append(row)
    for (batch, kind, way), rows in totals.items():
        taken = {name: sum(row[name] for row in rows) for name in ("median_us", "least_us")}
        row = {"batch": batch, "structure": kind, "way": way, **taken}
        if batch == 32 and way == "band":
            row |= {"limit_us": _STEPS_LIMIT_US, "ratio": taken["median_us"] / _STEPS_LIMIT_US}
        table.rows.append(row)
    return table


def builds(bench: Bench) -> Table:
    """ZeroGR: an index that is built on the device, and what its parts are worth."""
    n_keys, width = (2000, 64) if bench.executor else (10_000_000, 2048)
    keys = KeyTable.from_rows(np.random.default_rng(4).integers(0, width, (n_keys, 4)))
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    table = Table("builds", "Builds of an index on the device",
                  {"buffers": "{}", "threads": "{}", **bench.columns})  # fmt: skip
    table.text = (
        f"Of {n_keys:,} keys of 4 tokens; 0 buffers stand for an index that is built on the host "
        "and copied as a whole. The window is from keys that are sorted to an index that is there."
    )
    for buffers in (2, 1, 0):
        for used in sorted({1, threads}):
            if bench.has_time():
                transfer = sg.Transfer(buffers, threads=used)
                row = {"buffers": buffers, "threads": used}
                build = partial(sg.build_on_device, keys, "fast", transfer=transfer)
                table.rows.append(row | bench.measure(build, passes=3))
    return table


def tables(bench: Bench) -> Iterator[Table]:
    """Everything that is measured."""
    yield latencies(bench)
    if bench.has_time():
        yield from searches(bench)
    if bench.has_time():
        yield masking(bench)
    if bench.has_time() and not bench.executor:  # no kernels run, so nothing is to be counted
        yield builds(bench)
    if bench.has_time():
        yield from filtering(bench)


def prepare() -> Iterator[str]:
    """Build the compiled modules and run the tests that need a device; says how it went."""
    build = "from setuptools import setup; setup()"
    for what, command, limit in (
        ("build", [sys.executable, "-c", build, "build_ext", "--inplace"], 120),
        ("tests", [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"], _TEST_SECONDS),
    ):
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=limit, capture_output=True, text=True)
            lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
            yield f"{what}: {'ok' if done.returncode == 0 else 'failed'}, {lines[-1]}"
        except subprocess.TimeoutExpired:
            yield f"{what}: not done within {limit} s"


def markdown(table: Table) -> str:
    """A table as Markdown."""
    lines = [f"## {table.title}", "", table.text, ""]
    lines += ["| " + " | ".join(name.replace("_", " ") for name in table.columns) + " |"]
    lines += ["|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(cells) + " |" for cells in table.cells()]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--executor", action="store_true", help="count what kernels do, on the CPU")
    parser.add_argument("--text", action="store_true", help="tables for a terminal")
    args = parser.parse_args(argv)
    if not args.executor and not sg.is_available():
        parser.error("there is no CUDA device; --executor counts what kernels do without one")
    bench = Bench(args.executor)
    if not args.executor:
        from numba import cuda

        for line in prepare():
            print(line, flush=True)
        name = cuda.get_current_device().name
        print(f"device: {name.decode() if isinstance(name, bytes) else name}\n")
    with simt.session() if args.executor else nullcontext():
        for table in tables(bench):
            print(as_text(table) if args.text else markdown(table), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
