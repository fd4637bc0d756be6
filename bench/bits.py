"""Suite of bits: rank, select and access by length, density and representation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from bench.bit_peers import BATCH, CALLS, OPERATIONS, Bits, InC, Ours, random_words, trace_of
from bench.suite import Options, Plot, Row, Table
from bench.timing import alternating, one_by_one, seconds, wall
from succinct.bits import BitVector, EliasFano, PackedArray

TITLE = "Bits"
INTRO = """
Random independent queries; times are nanoseconds of the thread's processor time for each of them.
`memory` is what a representation takes beside the bits themselves, in percent of them; of what does
not store the bits it is all. Every representation gives the same answers before it is timed.
"""

_PASSES = 7
_CALLS = 20_000
_Points = list[tuple[int, float]]
_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


def tables(options: Options) -> Iterator[Table]:
    """All tables of this suite."""
    if options.quick:
        exponents, densities, queries = (12, 14), (0.05, 0.5), 2_000
    else:
        exponents, densities, queries = (16, 20, 23, 26, 30), (0.01, 0.05, 0.5, 0.9), 1_000_000
    points = list(itertools.product(exponents, densities))
    smaller = [exponent for exponent in exponents if exponent <= 26]
    yield from _rank_select(points, queries)
    yield _threads(smaller[-1], queries)
    yield _elias_fano([point for point in points if point[0] in smaller], queries)
    yield _packed(smaller, queries)


def _rank_select(points: _Points, n_queries: int) -> Iterator[Table]:
    columns = {"length": "2^{}", "density": "{}", "representation": "{}", "memory": "{:.1f} %"}
    for operation in OPERATIONS:
        columns |= {f"{operation}_ns": "{:,.1f}", f"{operation}_ratio": "{:.2f}x"}
    columns["note"] = "{}"
    batch = Table(
        "batches",
        "Rank and select in batches",
        columns,
        text="Batches of a million queries with the answers in a given array, on one thread. The "
        "ratio is to the time of a C implementation of the same directory (one 32-bit count "
        "for each 512 bits, a sample for each 1024 ones and zeros) compiled with "
        "`-O3 -march=native`, in turns with it on the same queries.",
        plots=[
            Plot(
                "length",
                f"{operation}_ns",
                "representation",
                f"Time of {operation} by length (2^n), density 0.5",
                log_x=False,
                where={"density": 0.5},
            )
            for operation in ("rank1", "select1")
        ],
    )
    calls = Table(
        "calls",
        "Rank and select, a call each",
        columns,
        text="Python calls with one query each, from a loop in C (`map`). The ratio is to the "
        "library's bit-vector. `bitarray` counts from the start; `pyroaring` has no select of "
        "zeros. Peers that convert through arrays of bytes are measured to 2^26.",
    )
    for exponent, density in points:
        key = {"length": exponent, "density": density}
        in_batches, called = _point(1 << exponent, density, n_queries)
        batch.rows += [key | row for row in in_batches]
        calls.rows += [key | row for row in called]
    yield batch
    yield calls


def _point(length: int, density: float, n_queries: int) -> tuple[list[Row], list[Row]]:
    """Rows of one length and density: in batches, and a call each."""
    words = random_words(length, density)
    asked = _queries(words, length, n_queries)
    rows: dict[str, Row] = {}
    built: dict[str, Bits] = {}
    for kind in dict.fromkeys((*BATCH, *CALLS)):
        if length <= kind.largest:
            row: Row = {"representation": kind.name}
            try:
                built[kind.name] = bits = kind(words, length)
                row["memory"] = 100 * (8 * bits.nbytes / length - bits.counts_itself)
            except (ImportError, RuntimeError) as error:
                row["note"] = trace_of(error)
            rows[kind.name] = row
    ours = built[Ours.name]
    answers = {name: np.empty_like(queries) for name, queries in asked.items()}
    for name, out in answers.items():
        ours.batch[name](asked[name], out)
    in_batches = {kind.name: dict(rows[kind.name]) for kind in BATCH if kind.name in rows}
    called = {kind.name: dict(rows[kind.name]) for kind in CALLS if kind.name in rows}
    for name in OPERATIONS:
        _time_batches(name, built, in_batches, asked[name], answers[name])
        _time_calls(name, built, called, asked[name], answers[name])
    return list(in_batches.values()), list(called.values())


def _queries(words: _Words, length: int, n_queries: int) -> dict[str, _Ints]:
    rng = np.random.default_rng(2)
    count = int(np.bitwise_count(words).sum())
    limits = {"rank1": length + 1, "rank0": length + 1, "select1": count, "select0": length - count}
    return {name: rng.integers(0, limit, n_queries) for name, limit in limits.items()}


def _time_batches(
    operation: str, built: dict[str, Bits], rows: dict[str, Row], asked: _Ints, wanted: _Ints
) -> None:
    runs: dict[str, Callable[[], object]] = {}
    for name in rows:
        if name in built and operation in built[name].batch:
            run, out = built[name].batch[operation], np.empty_like(asked)
            run(asked, out)
            if not np.array_equal(out, wanted):
                raise AssertionError(f"{name} answers {operation} wrongly")
            runs[name] = lambda run=run, out=out: run(asked, out)
    for name, taken in alternating(runs, _PASSES).items():
        rows[name][f"{operation}_ns"] = taken / len(asked) * 1e9
    _ratios(rows, InC.name, operation)


def _time_calls(
    operation: str, built: dict[str, Bits], rows: dict[str, Row], asked: _Ints, wanted: _Ints
) -> None:
    arguments, expected = asked[:_CALLS].tolist(), wanted[:_CALLS].tolist()
    for name, row in rows.items():
        call = built[name].call.get(operation) if name in built else None
        if call is None:
            continue
        # What scans from the start takes its time: fewer calls of it are enough.
        taken = seconds(lambda call=call: call(arguments[0]), 3)
        count = max(5, min(len(arguments), int(0.02 / taken)))
        if list(map(call, arguments[:count])) != expected[:count]:
            raise AssertionError(f"{name} answers {operation} wrongly")
        row[f"{operation}_ns"] = one_by_one(call, arguments[:count])
    _ratios(rows, Ours.name, operation)


def _ratios(rows: dict[str, Row], to: str, operation: str) -> None:
    base = rows.get(to, {}).get(f"{operation}_ns")
    for row in rows.values():
        if base and f"{operation}_ns" in row:
            row[f"{operation}_ratio"] = row[f"{operation}_ns"] / base


def _threads(exponent: int, n_queries: int) -> Table:
    table = Table(
        "threads",
        "Two threads",
        {
            "operation": "{}",
            "length": "2^{}",
            "one_ns": "{:.1f}",
            "two_ns": "{:.1f}",
            "speedup": "{:.2f}x",
        },
        text="One batch on one thread, and its halves on two: the interpreter lock is released.",
    )
    length = 1 << exponent
    words = random_words(length, 0.5)
    bits = Ours(words, length)
    # Enough work that starting the threads does not count.
    asked = _queries(words, length, 4 * n_queries)
    with ThreadPoolExecutor(2) as pool:
        for operation in OPERATIONS:
            run, queries = bits.batch[operation], asked[operation]
            out = np.empty_like(queries)
            half = len(queries) // 2
            parts = [(queries[:half], out[:half]), (queries[half:], out[half:])]
            taken = alternating(
                {
                    "one": lambda run=run, queries=queries, out=out: run(queries, out),
                    "two": lambda run=run, parts=parts: list(pool.map(lambda p: run(*p), parts)),
                },
                _PASSES,
                wall,
            )
            one, two = (taken[name] / len(queries) * 1e9 for name in ("one", "two"))
            row = {"operation": operation, "length": exponent, "one_ns": one, "two_ns": two}
            table.rows.append(row | {"speedup": one / two})
    return table


def _elias_fano(points: _Points, n_queries: int) -> Table:
    columns = {"length": "2^{}", "density": "{}", "bits_per_value": "{:.2f}"}
    for name in ("access", "next_geq", "rank"):
        columns |= {f"{name}_ns": "{:.1f}", f"{name}_ratio": "{:.2f}x", f"{name}_call_ns": "{:.0f}"}
    columns |= {"select1_ns": "{:.1f}", "sbits_bits": "{}", "sbits_call_ratio": "{}"}
    table = Table(
        "elias-fano",
        "Elias–Fano arrays",
        columns,
        text="The places of the ones of the same bit-vectors as an `EliasFano` array. The ratio "
        "of a batch is to `select1` of the plain bit-vector, in turns with it. `sbits` is its "
        "Elias-Fano array: bits for each value, and the time of a call of `get` beside that of "
        "`access`.",
    )
    for exponent, density in points:
        table.rows.append(_sparse_point(exponent, density, n_queries))
    return table


def _sparse_point(exponent: int, density: float, n_queries: int) -> Row:
    length = 1 << exponent
    words = random_words(length, density)
    vector = BitVector.from_words(words, length)
    values = np.flatnonzero(vector.to_bools())
    array = EliasFano(values)
    asked = _queries(words, length, n_queries)
    index, position = asked["select1"], asked["rank1"] % length
    taken = alternating(
        {
            "select1": lambda: vector.select1(index),
            "access": lambda: array.access(index),
            "next_geq": lambda: array.next_geq(position),
            "rank": lambda: array.rank(position),
        },
        _PASSES,
    )
    row: Row = {
        "length": exponent,
        "density": density,
        "bits_per_value": 8 * array.nbytes / len(values),
        "select1_ns": taken["select1"] / n_queries * 1e9,
    }
    for name, arguments in (("access", index), ("next_geq", position), ("rank", position)):
        row[f"{name}_ns"] = taken[name] / n_queries * 1e9
        row[f"{name}_ratio"] = taken[name] / taken["select1"]
        row[f"{name}_call_ns"] = one_by_one(getattr(array, name), arguments[:_CALLS].tolist())
    try:
        import sbits
    except ImportError as error:
        return row | {"sbits_bits": trace_of(error)}
    theirs = sbits.EliasFano(values.astype(np.uint32))
    if [theirs.get(i) for i in index[:100].tolist()] != array.access(index[:100]).tolist():
        raise AssertionError("sbits answers access wrongly")
    call = one_by_one(theirs.get, index[:_CALLS].tolist())
    row["sbits_bits"] = f"{8 * len(theirs.to_bytes()) / len(values):.2f}"
    row["sbits_call_ratio"] = f"{call / row['access_call_ns']:.2f}x"
    return row


def _packed(exponents: list[int], n_queries: int) -> Table:
    table = Table(
        "packed",
        "Packed arrays",
        {
            "length": "2^{}",
            "width": "{}",
            "bits_per_value": "{:.2f}",
            "get_ns": "{:.2f}",
            "numpy": "{}",
            "numpy_ns": "{:.2f}",
            "ratio": "{:.2f}x",
            "call_ns": "{:.0f}",
        },
        text="`get` of random places in a batch, and numpy's `take` from the narrowest integers "
        "that hold the values.",
    )
    rng = np.random.default_rng(3)
    for exponent in exponents:
        asked = rng.integers(0, 1 << exponent, n_queries)
        for width in (1, 5, 8, 11, 16, 20, 32):
            values = rng.integers(0, 1 << width, 1 << exponent, np.uint64)
            plain = values.astype(np.min_scalar_type((1 << width) - 1))
            packed = PackedArray(values, width)
            out, theirs = np.empty(n_queries, np.uint64), np.empty(n_queries, plain.dtype)
            taken = alternating(
                {
                    "ours": partial(packed.get, asked, out=out),
                    "numpy": partial(plain.take, asked, out=theirs, mode="clip"),
                },
                _PASSES,
            )
            if not np.array_equal(out, theirs):
                raise AssertionError("a packed array gives other values than numpy")
            table.rows.append(
                {
                    "length": exponent,
                    "width": width,
                    "bits_per_value": 8 * packed.nbytes / len(packed),
                    "get_ns": taken["ours"] / n_queries * 1e9,
                    "numpy": str(plain.dtype),
                    "numpy_ns": taken["numpy"] / n_queries * 1e9,
                    "ratio": taken["ours"] / taken["numpy"],
                    "call_ns": one_by_one(packed.__getitem__, asked[:_CALLS].tolist()),
                }
            )
    return table
