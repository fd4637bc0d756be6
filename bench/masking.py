"""Suite of masking: candidates and constrain beside STATIC's algorithm and what else is used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.baselines.masking import HashBitmap, Hook, SortedRows, Static
from bench.catalogs import mix
from bench.masking_sweeps import batches, searches, sweeps
from bench.suite import Options, Plot, Row, Table
from bench.timing import alternating, wall
from succinct import CsrMap, KeyTable, LoudsTrie, StepMap, candidates, constrain

TITLE = "Masking"
INTRO = """
Full log-probabilities and states in, valid continuations out, on Semantic IDs of eight tokens below
2,048, as STATIC (arXiv:2602.22647) is measured. Its benchmarks draw tokens uniformly, so that all
prefixes of a length have about as many continuations; here there are also skewed catalogs, in which
a token follows its prefix by Zipf's law. Beams are prefixes of keys drawn at random.

Before anything is timed, what is meant to be exact is compared with the library. All calls of a row
are timed in turns, so that each finds the caches as the others leave them; medians of ten, on one
thread unless it says otherwise. What runs on two threads also waits for whatever else the second
core is given.
"""

_LENGTH = 8
_CODES = 2048
_SKEW = 1.2
_BEAMS = 1000


def drawn(n: int, length: int, codes: int, skew: float, seed: int = 1) -> NDArray[np.uint16]:
    """Rows [n, length]; `skew` is the exponent of Zipf's law, 0 for none.

    Which tokens are frequent after a prefix is particular to the prefix.
    """
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(np.arange(1, codes + 1, dtype=np.float64) ** -skew)
    cumulative /= cumulative[-1]
    rows = np.empty((n, length), np.uint16)
    prefix = np.zeros(n, np.uint64)
    for step in range(length):
        rank = np.searchsorted(cumulative, rng.random(n)).astype(np.uint64)
        mixed = mix(prefix)
        rows[:, step] = (rank * (mixed | np.uint64(1)) + (mixed >> np.uint64(40))) % np.uint64(
            codes
        )
        prefix = mix(prefix ^ (rows[:, step] + np.uint64(1)))
    return rows


class _Catalog:
    """A catalog, the indexes of it, and beams at every step."""

    def __init__(self, name: str, rows: NDArray[np.uint16]) -> None:
        self.name = name
        self.keys = KeyTable.from_rows(rows, key_ids=False)
        self.rows = self.keys.tokens.reshape(-1, rows.shape[1])
        self.csr = CsrMap.build(self.keys, dense_levels=2)

    def beams(self, step: int, n: int = _BEAMS) -> tuple[Any, Any, Any]:
        """The numbers of keys drawn, their prefixes, and their log-probabilities."""
        rng = np.random.default_rng(step)
        drawn_keys = rng.integers(0, len(self.rows), n)
        logits = rng.normal(size=(n, _CODES)).astype(np.float32)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return drawn_keys, np.ascontiguousarray(self.rows[drawn_keys, :step]), logits

    def walked(self, index: Any, prefixes: Any) -> Any:
        """The states of prefixes."""
        states = np.full(len(prefixes), index.root, np.uint64)
        for column in prefixes.T:
            states = index.advance(states, column)
        return states

    def ranges(self, drawn_keys: Any, step: int) -> tuple[Any, Any]:
        """For each drawn key, the keys [begin, end) that share its first tokens."""
        changed = np.flatnonzero((self.rows[1:, :step] != self.rows[:-1, :step]).any(axis=1)) + 1
        bounds = np.concatenate([[0], changed, [len(self.rows)]])
        at = np.searchsorted(bounds, drawn_keys, side="right") - 1
        return bounds[at], bounds[at + 1]


def tables(options: Options) -> Iterator[Table]:
    """All tables of this suite."""
    size = 20_000 if options.quick else 5_000_000
    catalogs = [
        _Catalog(name, drawn(size, _LENGTH, _CODES, skew))
        for name, skew in (("skewed", _SKEW), ("uniform", 0.0))
    ]
    yield _steps(options, catalogs)
    yield _others(options, catalogs[0])
    yield _hook(options)
    yield batches(options, catalogs[0])
    yield searches(options, catalogs[0].rows, catalogs[0].csr)
    del catalogs
    yield from sweeps(options, drawn, _SKEW)


def _check(name: str, found: Any, wanted: Any) -> None:
    rows = np.repeat(np.arange(len(wanted.offsets) - 1), np.diff(wanted.offsets))
    for got, expected in zip(found, (rows, wanted.tokens, wanted.scores), strict=True):
        if not np.array_equal(got, expected):
            raise AssertionError(f"{name} finds other continuations")


def _steps(options: Options, catalogs: list[_Catalog]) -> Table:
    table = Table(
        "steps",
        f"Microseconds of a step, {_BEAMS:,} beams, {catalogs[0].keys.n_keys:,} keys",
        {
            "ids": "{}",
            "step": "{}",
            "largest": "{:,}",
            "mean": "{:,.1f}",
            "method": "{}",
            "us": "{:,.0f}",
            "speedup": "{:,.1f}x",
        },
        text="`largest` is the largest number of continuations of a prefix at the step, `mean` "
        "that of the beams; `speedup` is the time of STATIC's algorithm by the row's. In the rows "
        "of two threads torch has two as well.",
        plots=[Plot("step", "us", "method", "Skewed ids", log_x=False, where={"ids": "skewed"})],
    )
    for catalog in catalogs:
        static = Static(catalog.csr)
        fast = StepMap.build(catalog.keys, layout="fast")
        small = StepMap.build(catalog.keys)
        for step in range(2, _LENGTH):
            _, prefixes, logprobs = catalog.beams(step)
            calls: dict[str, Any] = {}
            for name, index in (("CsrMap", catalog.csr), ("StepMap, fast", fast),
                                ("StepMap, small", small)):  # fmt: skip
                states = catalog.walked(index, prefixes)
                calls[name] = partial(candidates, logprobs, index, states, num_threads=1)
                if name == "CsrMap":
                    calls[static.name] = static.prepare(logprobs, states, step)
                    calls["CsrMap, two threads"] = partial(
                        candidates, logprobs, index, states, num_threads=2
                    )
            wanted = calls["CsrMap"]()
            _check(static.name, static.found(calls[static.name]()), wanted)
            for name in ("StepMap, fast", "StepMap, small"):
                found = calls[name]()
                if not all(map(np.array_equal, found[:3], wanted[:3])):
                    raise AssertionError(f"{name} finds other continuations")
            rows = _timed(calls, static, 3 if options.quick else 10)
            base: Row = {"ids": catalog.name, "step": step}
            base["largest"] = catalog.csr.max_fan_out(step)
            base["mean"] = len(wanted.tokens) / len(prefixes)
            table.rows += [base | row for row in rows]
    return table


def _timed(calls: dict[str, Any], static: Static, times: int) -> list[Row]:
    """One thread each, and two each; the speedups are beside STATIC with as many."""
    rows = []
    for threads in (1, 2):
        if static.torch is not None:
            static.torch.set_num_threads(threads)
        chosen = {
            name: call
            for name, call in calls.items()
            if name == static.name or ("two" in name) == (threads == 2)
        }
        taken = alternating(chosen, times, clock=wall)
        base = taken[static.name]
        for name, seconds in taken.items():
            if name == static.name and threads == 2:
                name = f"{name}, two threads"
            rows.append({"method": name, "us": seconds * 1e6, "speedup": base / seconds})
    return rows


def _others(options: Options, catalog: _Catalog) -> Table:
    table = Table(
        "others",
        f"Without a trie, {catalog.keys.n_keys:,} skewed ids, {_BEAMS:,} beams",
        {
            "step": "{}",
            "method": "{}",
            "exact": "{}",
            "ms": "{:,.2f}",
            "slower": "{:,.0f}x",
            "missed": "{:.1%}",
            "wrong": "{:.3%}",
        },
        text="`missed` is the share of the valid continuations that a method does not find, "
        "`wrong` the share of those it finds that are not valid.",
    )
    peers = [SortedRows(catalog.rows), SortedRows(catalog.rows, top=50)]
    bitmap = HashBitmap(catalog.rows)
    for step in (2, 5):
        keys, prefixes, logprobs = catalog.beams(step)
        states = catalog.walked(catalog.csr, prefixes)
        ranges = catalog.ranges(keys, step)
        calls: dict[str, Any] = {
            "CsrMap": partial(candidates, logprobs, catalog.csr, states, num_threads=1)
        }
        for peer in peers:
            calls[peer.name] = peer.prepare(logprobs, *ranges, step)
        calls[bitmap.name] = bitmap.prepare(logprobs, prefixes)
        wanted = calls["CsrMap"]()
        _check(peers[0].name, calls[peers[0].name](), wanted)
        valid = _numbers(np.repeat(np.arange(_BEAMS), np.diff(wanted.offsets)), wanted.tokens)
        taken = alternating(calls, 1 if options.quick else 3, clock=wall)
        for name, seconds in taken.items():
            row: Row = {"step": step, "method": name, "exact": "yes", "ms": seconds * 1e3}
            row["slower"] = seconds / taken["CsrMap"]
            if name in (peers[1].name, bitmap.name):
                found = _numbers(*calls[name]()[:2])
                right = np.isin(found, valid).sum()
                row["exact"] = "no"
                row["missed"], row["wrong"] = 1 - right / len(valid), 1 - right / len(found)
            table.rows.append(row)
    return table


def _numbers(rows: Any, tokens: Any) -> Any:
    return rows.astype(np.int64) * _CODES + tokens


def _hook(options: Options) -> Table:
    table = Table(
        "hook",
        "Masking 512 rows, beside a Python call per row",
        {"columns": "{:,}", "step": "{}", "method": "{}", "us": "{:,.0f}", "speedup": "{:,.0f}x"},
        text="A catalog of 200,000 skewed ids, which the dicts take some gigabytes for at larger "
        "sizes; the logits have as many columns as there are ids in a level, or as a language "
        "model has tokens, of which the ids are some. The hook masks the rows whole, as "
        "`constrain` does, which cannot be quicker than to *fill* the array with one value; "
        "`candidates` is all that a decoder needs, and writes no row. Two threads may be used by "
        "all.",
    )
    catalog = _Catalog("skewed", drawn(5_000 if options.quick else 200_000, _LENGTH, _CODES, _SKEW))
    hook = Hook(catalog.rows)
    louds = LoudsTrie.build(catalog.keys)
    large = 4_096 if options.quick else 32_768
    for columns, step in ((_CODES, 1), (_CODES, 3), (_CODES, 6), (large, 1), (large, 3)):
        _, prefixes, logprobs = catalog.beams(step, 512)
        if columns > _CODES:
            more = np.zeros((len(logprobs), columns), np.float32)
            more[:, :_CODES] = logprobs
            logprobs = more
        calls: dict[str, Any] = {hook.name: hook.prepare(logprobs, prefixes)}
        wanted = np.asarray(calls[hook.name]())
        for name, index in (("CsrMap", catalog.csr), ("LoudsTrie", louds)):
            states = catalog.walked(index, prefixes)
            if not np.array_equal(constrain(logprobs.copy(), index, states), wanted):
                raise AssertionError(f"{name} masks otherwise")
            masked = logprobs.copy()
            calls[f"constrain, {name}"] = partial(constrain, masked, index, states)
            calls[f"candidates, {name}"] = partial(candidates, logprobs, index, states)
        calls["fill"] = partial(logprobs.copy().fill, -np.inf)
        taken = alternating(calls, 3 if options.quick else 10, clock=wall)
        for name, seconds in taken.items():
            speedup = taken[hook.name] / seconds
            table.rows.append(
                {
                    "columns": columns,
                    "step": step,
                    "method": name,
                    "us": seconds * 1e6,
                    "speedup": speedup,
                }
            )
    return table
