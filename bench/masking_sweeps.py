"""Masking over sizes of catalogs, vocabularies and rows, and a search without constraint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.baselines.masking import Static, unconstrained
from bench.suite import Options, Plot, Row, Table
from bench.timing import alternating, per_request, percentiles, wall
from succinct import CsrMap, KeyTable, StepMap, candidates

# Beams of two requests, as STATIC is measured with.
_BEAMS = 140
_COLUMNS = {
    "us": "{:,.0f}",
    "static_us": "{:,.0f}",
    "speedup": "{:,.1f}x",
}


def sweeps(options: Options, drawn: Any, skew: float) -> Iterator[Table]:
    """Tables over keys, vocabularies and fan-outs; `drawn` draws catalogs."""
    sizes = (2_000, 5_000) if options.quick else (100_000, 1_000_000, 5_000_000, 10_000_000)
    codes = (256, 2048) if options.quick else (256, 2048, 8192, 32768)
    fans = (2, 64) if options.quick else tuple(2**i for i in range(1, 16, 2))
    passes = 2 if options.quick else 10
    table = Table(
        "keys",
        f"Sizes of catalogs, {_BEAMS} beams",
        {"ids": "{}", "keys": "{:,}", "step": "{}", **_COLUMNS, "build_s": "{:.2f}",
         "bytes_per_key": "{:.1f}", "formula": "{:.1f}", "stepmap": "{:.1f}"},
        text="`build_s` and `bytes_per_key` are those of the `CsrMap`, from sorted keys; `formula` "
        "is what STATIC states for its own arrays, and `stepmap` a `StepMap` of the same keys.",
        plots=[Plot("keys", "us", "ids", "A step behind the dense levels")],
    )  # fmt: skip
    for name, exponent in (("skewed", skew), ("uniform", 0.0)):
        for n in sizes:
            keys = KeyTable.from_rows(drawn(n, 8, 2048, exponent), key_ids=False)
            start = time.perf_counter()
            index = CsrMap.build(keys, dense_levels=2)
            row: Row = {"ids": name, "keys": keys.n_keys, "step": 3}
            row["build_s"] = time.perf_counter() - start
            row["bytes_per_key"] = index.nbytes / keys.n_keys
            row["formula"] = ((4 + 1 / 8) * 2048**2 + 12 * keys.n_keys * 6) / keys.n_keys
            row["stepmap"] = StepMap.build(keys).nbytes / keys.n_keys
            table.rows.append(row | _beside(index, keys.tokens.reshape(-1, 8), 3, passes))
    yield table
    table = Table(
        "vocabularies",
        f"Vocabularies, a million skewed ids, {_BEAMS} beams",
        {"V": "{:,}", "step": "{}", "largest": "{:,}", "mean": "{:,.1f}", **_COLUMNS},
    )
    for size in codes:
        n = 5_000 if options.quick else 1_000_000
        keys = KeyTable.from_rows(drawn(n, 8, size, skew), key_ids=False)
        index = CsrMap.build(keys, dense_levels=1)
        for step in (1, 2, 4):
            found = _beside(index, keys.tokens.reshape(-1, 8), step, passes)
            table.rows.append({"V": size, "step": step} | found)
    yield table
    table = Table(
        "fans",
        f"Continuations of a prefix, all prefixes alike, {_BEAMS} beams",
        {"fan": "{:,}", **_COLUMNS},
        text="Every row is as wide as the widest, which is what slices of fixed length are best "
        "at.",
        plots=[Plot("fan", "speedup", "what", "Speedup over STATIC's algorithm")],
    )
    for fan in fans:
        prefixes = np.repeat(np.arange(_BEAMS, dtype=np.uint16), fan)
        tokens = np.tile(np.arange(fan, dtype=np.uint16), _BEAMS)
        rows = np.column_stack([prefixes, tokens])
        index = CsrMap.build(KeyTable.from_rows(rows, key_ids=False), dense_levels=1)
        table.rows.append({"fan": fan, "what": "CsrMap"} | _beside(index, rows, 1, passes))
    yield table


def _beside(index: CsrMap, rows: NDArray[Any], step: int, passes: int) -> Row:
    """A step of beams at prefixes of random keys, beside STATIC's algorithm, on one thread."""
    random = np.random.default_rng(step)
    prefixes = rows[random.integers(0, len(rows), _BEAMS), :step]
    states = np.full(_BEAMS, index.root)
    for column in prefixes.T:
        states = index.advance(states, column)
    logprobs = random.normal(size=(_BEAMS, index.vocab_size)).astype(np.float32)
    static = Static(index)
    if static.torch is not None:
        static.torch.set_num_threads(1)
    calls = {
        "ours": partial(candidates, logprobs, index, states, num_threads=1),
        "static": static.prepare(logprobs, states, step),
    }
    wanted = calls["ours"]()
    if not np.array_equal(static.found(calls["static"]())[1], wanted.tokens):
        raise AssertionError("STATIC's algorithm finds other continuations")
    taken = alternating(calls, passes, clock=wall)
    return {
        "largest": index.max_fan_out(step),
        "mean": len(wanted.tokens) / _BEAMS,
        "us": taken["ours"] * 1e6,
        "static_us": taken["static"] * 1e6,
        "speedup": taken["static"] / taken["ours"],
    }


def batches(options: Options, catalog: Any) -> Table:
    """A step of many requests at once; `catalog` draws beams of prefixes and has a `CsrMap`."""
    table = Table(
        "batches",
        f"Batches of requests with 70 beams each, step 3 of {catalog.keys.n_keys:,} skewed ids",
        {
            "batch": "{}",
            "method": "{}",
            **dict.fromkeys(("mean_ms", "spread_ms", "p50_ms", "p95_ms", "p99_ms"), "{:,.3f}"),
            "requests_s": "{:,.0f}",
            "speedup": "{:,.1f}x",
        },
        text="One call for all rows of a batch, on one thread; `speedup` is by the median.",
        plots=[Plot("batch", "requests_s", "method", "Requests a second by batch")],
    )
    static = Static(catalog.csr)
    if static.torch is not None:
        static.torch.set_num_threads(1)
    for batch in (1, 4) if options.quick else (1, 4, 8, 16, 32):
        _, prefixes, logprobs = catalog.beams(3, 70 * batch)
        states = catalog.walked(catalog.csr, prefixes)
        calls = {
            "CsrMap": partial(candidates, logprobs, catalog.csr, states, num_threads=1),
            static.name: static.prepare(logprobs, states, 3),
        }
        rows: list[Row] = []
        for name, call in calls.items():
            taken = per_request(lambda call: call(), [call] * 10, 2 if options.quick else 10)
            rows.append({"batch": batch, "method": name, **percentiles(taken)})
            rows[-1]["requests_s"] = batch / rows[-1]["mean_ms"] * 1e3
        for row in rows:
            row["speedup"] = rows[1]["p50_ms"] / row["p50_ms"]
        table.rows += rows
    return table


def searches(options: Options, rows: NDArray[Any], index: CsrMap) -> Table:
    """Whole searches: constrained, unconstrained, and filtered once they are complete."""
    table = Table(
        "searches",
        f"Whole searches of two requests with 70 beams, {index.n_keys:,} skewed ids",
        {"method": "{}", "ms": "{:,.2f}", "results": "{}", "valid": "{:.1%}"},
        text="Log-probabilities come from no model: noise, and on one token a row, that of a key "
        "drawn for the request, a bonus. `valid` is the share of the results that are keys; "
        "*filtered afterwards* drops the others, so that fewer are left. On one thread.",
    )
    n_requests, width, length = 2, 70, rows.shape[1]
    random = np.random.default_rng(3)
    truth = rows[random.integers(0, len(rows), n_requests)]
    logits = random.normal(size=(length, n_requests, width, index.vocab_size)).astype(np.float32)
    for step in range(length):
        for request in range(n_requests):
            logits[step, request, :, truth[request, step]] += 8
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    def constrained() -> list[Any]:
        return _constrained(index, logits)

    def free() -> list[Any]:
        return unconstrained(logits)

    def filtered() -> list[Any]:
        return [found[index.key_ids(found) >= 0] for found in unconstrained(logits)]

    calls = {"candidates": constrained, "unconstrained": free, "filtered afterwards": filtered}
    taken = alternating(calls, 3 if options.quick else 10, clock=wall)
    for name, call in calls.items():
        results = [found for found in call() if len(found)]
        everything = np.concatenate(results) if results else np.empty((0, length), rows.dtype)
        valid = (index.key_ids(everything) >= 0).mean() if len(everything) else 1.0
        table.rows.append(
            {"method": name, "ms": taken[name] * 1e3, "results": len(everything), "valid": valid}
        )
    return table


def _constrained(index: CsrMap, logits: NDArray[np.float32]) -> list[NDArray[Any]]:
    """The keys that a beam search over `candidates` keeps for each request."""
    out = []
    for request in range(logits.shape[1]):
        states, scores = np.array([index.root]), np.zeros(1, np.float32)
        sequences = np.empty((1, 0), np.uint32)
        for step in range(len(logits)):
            found = candidates(logits[step, request, : len(states)], index, states, num_threads=1)
            rows = np.repeat(np.arange(len(states)), np.diff(found.offsets))
            total = scores[rows] + found.scores
            best = np.argsort(-total, kind="stable")[: logits.shape[2]]
            states, scores = found.next_states[best], total[best]
            sequences = np.column_stack([sequences[rows[best]], found.tokens[best]])
        out.append(sequences)
    return out
