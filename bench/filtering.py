"""Suite of filtering first: selective, band and full projection, plans, and scoring first."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from bench.baselines.filtering import naive_selective, scoring_first, unconstrained
from bench.suite import Options, Plot, Row, Table
from bench.timing import no_garbage, per_request, percentiles, samples, wall
from succinct import KeyTable, Plan, StepMap, calibrate, filter_step, overlap, recall
from succinct.decode import Choice, _filter_engine
from succinct.decode.plan import low_quartile

TITLE = "Filtering first"
INTRO = """
One decoding step from hidden states to the best valid continuations, as ZeroGR (arXiv:2607.07723)
orders it, on catalogs with the shape of its three at sizes that fit into memory; every step is on
as many threads as there are cores. No model takes part: hidden states and output matrices are
random, float32, and beams are those that a search with them keeps. All ways but the unconstrained
one keep the same beams.

*selective*, *full* and *band* are `projection=` of `filter_step`: products for the valid tokens
only, for all rows of the output matrix, or for the range of the step's tokens. *naive selective*
copies a row of weights for every valid pair into a temporary matrix; *scoring first* multiplies
everything and then asks the trie beam by beam; *unconstrained* knows no catalog.

Each figure is taken after a warm-up pass that does not count, over ten passes (throughput: four);
the options of a step take turns, and what takes long takes fewer, three at least.
"""

_PASSES = 10
# Seconds for all passes of one option of a step, unless they are three.
_BUDGET = 1.0
# A figure that would take longer than this is left out.
_MOST_WORK = 2**39
_SELECTIVE_SHARE = 0.15
_ORDERS = ("valid", "vocab")


@dataclass(frozen=True)
class Workload:
    """Keys with the valid shares of a published catalog: per step, tokens from `lows` on, `widths`
    of them, and how many continue a prefix."""

    name: str
    vocab_size: int
    lows: tuple[int, ...]
    widths: tuple[int, ...]
    fans: tuple[float, ...]

    def keys(self) -> KeyTable:
        """Keys of these shares."""
        random = np.random.default_rng(7)
        rows: npt.NDArray[np.uint16] = np.empty((1, 0), np.uint16)
        for low, width, fan in zip(self.lows, self.widths, self.fans, strict=True):
            fans = np.full(len(rows), int(fan)) + (random.random(len(rows)) < fan % 1)
            tokens = np.concatenate(
                [_spread(random, width, fans[at : at + 4096]) for at in range(0, len(rows), 4096)]
            )
            rows = np.column_stack([np.repeat(rows, fans, axis=0), tokens + low]).astype(np.uint16)
        return KeyTable.from_rows(rows, key_ids=False)

    def build(self) -> StepMap:
        """An index of its keys."""
        return StepMap.build(self.keys(), tail=False)


def _spread(random: Any, width: int, fans: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """For each fan as many distinct numbers below `width`: one in each of so many equal parts."""
    owners = np.repeat(np.arange(len(fans)), fans)
    firsts = np.cumsum(fans) - fans
    place = np.arange(len(owners)) - firsts[owners]
    sizes = fans[owners]
    low = place * width // sizes
    high = (place + 1) * width // sizes
    return low + (random.random(len(owners)) * (high - low)).astype(np.int64)


def workloads(quick: bool) -> list[Workload]:
    """The three shapes; Synthetic-7 with several vocabularies."""
    bands = (8192, 4096, 2048, 2048, 2048)
    lows = (0, 8192, 12288, 14336, 16384)
    first = 16 if quick else 64
    found = [
        Workload("search", 18432, lows, bands, (first, 586, 72, 2.7, 1.02)),
        Workload("watch", 8192, (0,) * 3, (8192,) * 3, (8 if quick else 64, 7373, 16)),
    ]
    for size in (2048,) if quick else (2048, 4096, 8192, 16384):
        fans = (64 if quick else 2048, 4, 4, 4, 4, 4, 1)
        found.append(Workload(f"synthetic_7_{size}", size, (0,) * 7, (size,) * 7, fans))
    return found


@dataclass(frozen=True)
class Step:
    """The arguments of one step of a search, and what it is."""

    number: int
    hidden: Any
    weight: Any
    index: StepMap
    states: Any
    scores: Any
    beam_width: int
    slots: int

    def call(self, function: Callable[..., Any], **options: Any) -> Any:
        """Do the step."""
        given = self.hidden, self.weight, self.index, self.states, self.scores, self.beam_width
        return function(*given, **options)

    @property
    def share(self) -> float:
        """Valid tokens of a beam by rows of the step's band."""
        low, high = self.index.token_range(self.number)
        return self.slots / (self.states.size * (high - low))

    def work(self, tokens: int) -> int:
        """Multiplications for so many tokens of every beam."""
        return self.states.size * tokens * self.hidden.shape[2]


def search(
    index: StepMap, weight: Any, batch: int, beam_width: int, seed: int = 11
) -> Iterator[Step]:
    """The steps of a search of a batch."""
    random = np.random.default_rng(seed)
    states = np.full((batch, 1), index.root)
    scores = np.zeros((batch, 1), np.float32)
    for number in range(index.max_length):
        hidden = random.standard_normal((*states.shape, weight.shape[1]), np.float32)
        slots = int(index.children(states)[0][-1])
        step = Step(number, hidden, weight, index, states, scores, beam_width, slots)
        yield step
        found = step.call(filter_step)
        states, scores, _, _ = found.padded(int(np.diff(found.offsets).max()))


class _Bench:
    """Sizes, and the indexes and matrices of the workloads."""

    def __init__(self, options: Options) -> None:
        self.quick = options.quick
        self.options = options
        self.passes = 2 if options.quick else _PASSES

    def sizes(self, workload: Workload) -> Iterator[tuple[int, int, int]]:
        """Columns, requests and beams of a batch."""
        if self.quick:
            yield 64, 2, 16
            return
        yield 1024, 1, 128
        if not workload.name.startswith("synthetic"):
            yield 1024, 8, 128
            yield from ((1024, 1, beams) for beams in (64, 256))
            yield 4096, 1, 128

    @property
    def batches(self) -> tuple[int, ...]:
        """Requests of a batch whose throughput is taken."""
        return (1, 4) if self.quick else (1, 4, 8, 16, 32)

    def weight(self, workload: Workload, columns: int) -> Any:
        random = np.random.default_rng(5)
        weight = random.standard_normal((workload.vocab_size, columns), np.float32)
        return weight / np.float32(columns**0.5)


def _times(calls: dict[str, Callable[[], object]], passes: int) -> dict[str, list[float]]:
    """Ms of each call; they take turns. Each is made once before it is timed: the threads of a
    matrix product spin on for a while, and would be in the way of what comes next."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage():
        for turn in range(passes):
            for name, call in calls.items():
                if turn >= 3 and sum(taken[name]) > _BUDGET * 1e3:
                    continue
                call()
                start = time.perf_counter()
                call()
                taken[name].append((time.perf_counter() - start) * 1e3)
    return taken


def tables(options: Options) -> Iterator[Table]:
    """Steps of each workload; then whole searches, phases, ablations."""
    bench = _Bench(options)
    totals, phases, batches = [], [], []
    for workload in workloads(options.quick):
        if not options.wants(workload.name):
            continue
        start = time.perf_counter()
        index = workload.build()
        built = time.perf_counter() - start
        rows, plans = [], []
        for columns, batch, beam_width in bench.sizes(workload):
            weight = bench.weight(workload, columns)
            steps = list(search(index, weight, batch, beam_width))
            plan = calibrate(
                index, weight, [batch], beam_width=beam_width, repeats=3 if options.quick else 7
            )
            rows += [_step_row(step, plan, bench.passes) for step in steps]
            totals.append(_total_row(workload.name, steps, plan, bench.passes))
            phases += _phase_rows(workload.name, steps, plan, bench.passes)
            plans.append(plan)
        batches += _batch_rows(bench, workload, index, plans[: 1 if len(plans) < 2 else 2])
        shape = f"{workload.name}: {index.n_keys:,} keys, {index.nbytes / 2**20:.0f} MiB"
        text = f"Drawn, sorted and built in {built:.1f} s. {_STEP_TEXT.strip()}"
        plots = [Plot("share", "faster", "H", "Full by selective projection", log_x=True)]
        yield Table(workload.name, shape, _STEP_COLUMNS, rows, text, plots)
        if workload.name == "search":
            orders = _order_rows(bench, workload, index)
            plot = Plot("beams", "overlap", "mass", "Overlap of the two orders", log_y=False)
            title = "Filtering first and scoring first"
            yield Table("orders", title, _ORDER_COLUMNS, orders, _ORDER_TEXT, [plot])
    yield Table("searches", "Whole searches", _TOTAL_COLUMNS, totals, _TOTAL_TEXT)
    plot = Plot("batch", "requests_s", "catalog", "Requests a second by batch")
    yield Table("batches", "Throughput by batch", _BATCH_COLUMNS, batches, _BATCH_TEXT, [plot])
    yield Table("phases", "Phases", _PHASE_COLUMNS, phases, _PHASE_TEXT)


_STEP_TEXT = """
Medians in ms. `share` is that of the valid tokens in the band; `faster` is full by selective;
`plan` is the calibrated choice, and `to best` its time by that of the fastest of its options, both
those that a quarter of the times does not exceed.
"""
_STEP_COLUMNS = {
    "step": "{}",
    "H": "{}",
    "batch": "{}",
    "beams": "{}",
    "share": "{:.2%}",
    "selective": "{:.2f}",
    "band": "{:.2f}",
    "full": "{:.2f}",
    "faster": "{:.1f}x",
    "plan": "{:.2f}",
    "choice": "{}",
    "to_best": "{:.3f}",
    "naive": "{:.2f}",
    "scoring_first": "{:.2f}",
}


def _step_row(step: Step, plan: Plan, passes: int) -> Row:
    choice = plan.choice(step.number, len(step.states))
    planned = next(one for one in plan.steps if one.step == step.number)
    calls: dict[str, Callable[[], object]] = {}
    columns = len(step.weight)
    if step.work(columns) * passes <= _MOST_WORK:
        calls["full"] = partial(step.call, filter_step, projection="full")
        if step.work(columns) * passes <= _MOST_WORK / 16:
            calls["scoring_first"] = partial(step.call, scoring_first)
    calls["band"] = partial(step.call, filter_step, projection="band")
    if step.share <= _SELECTIVE_SHARE:
        calls["selective"] = partial(step.call, filter_step, projection="selective")
        if step.slots * step.hidden.shape[2] <= 2**30:
            calls["naive"] = partial(step.call, naive_selective)
    for name, baseline in (("naive", naive_selective), ("scoring_first", scoring_first)):
        if name in calls:
            _check(step, name, baseline)
    # The fastest options beside the plan, so that all are compared in one run.
    near = sorted(planned.seconds, key=lambda name: planned.seconds[name])[:4]
    options = {name: Choice(*name.split("/")) for name in near}
    options["/".join(choice)] = choice
    calls |= {name: partial(step.call, filter_step, plan=way) for name, way in options.items()}
    taken = _times(calls, passes)
    times = {name: statistics.median(each) for name, each in taken.items()}
    row: Row = {
        "step": step.number + 1,
        "H": step.hidden.shape[2],
        "batch": len(step.states),
        "beams": step.states.shape[1],
        "share": step.share,
        "choice": "/".join(choice),
        "plan": times["/".join(choice)],
    }
    row |= {name: times.get(name) for name in _STEP_COLUMNS if name in times}
    low = {name: low_quartile(taken[name]) for name in options}
    row["to_best"] = low["/".join(choice)] / min(low.values())
    if "selective" in times and "full" in times:
        row["faster"] = times["full"] / times["selective"]
    return row


def _check(step: Step, name: str, baseline: Callable[..., Any]) -> None:
    """Raise if a baseline keeps other scores than the library."""
    ours = step.call(filter_step)
    for q, (scores, _, _) in enumerate(step.call(baseline)):
        if len(scores) != len(ours.scores[q]) or not np.allclose(scores, ours.scores[q], atol=2e-4):
            raise AssertionError(f"{name} keeps other beams in step {step.number}, request {q}")


_TOTAL_TEXT = """
All steps of a search, hidden states given, in ms a batch. `scoring first` and `unconstrained` are
left out where they take too long.
"""
_TOTAL_COLUMNS = {
    "catalog": "{}",
    "H": "{}",
    "batch": "{}",
    "beams": "{}",
    "mean_ms": "{:.2f}",
    "spread_ms": "{:.2f}",
    "p50_ms": "{:.2f}",
    "p90_ms": "{:.2f}",
    "p95_ms": "{:.2f}",
    "p99_ms": "{:.2f}",
    "requests_s": "{:,.0f}",
    "unconstrained_ms": "{:.2f}",
    "scoring_first_ms": "{:.2f}",
}


def _total_row(name: str, steps: list[Step], plan: Plan, passes: int) -> Row:
    choices = [plan.choice(step.number, len(step.states)) for step in steps]

    def planned(_: object = None) -> None:
        for step, choice in zip(steps, choices, strict=True):
            step.call(filter_step, plan=choice)

    def without(_: object = None) -> None:
        for step in steps:
            unconstrained(step.hidden, step.weight, step.scores, step.beam_width)

    def after(_: object = None) -> None:
        for step in steps:
            step.call(scoring_first)

    batch = len(steps[0].states)
    row: Row = {
        "catalog": name,
        "H": steps[0].hidden.shape[2],
        "batch": batch,
        "beams": steps[0].beam_width,
    }
    row |= percentiles(per_request(planned, [None], passes))
    row["requests_s"] = batch / row["mean_ms"] * 1e3
    work = sum(step.work(len(step.weight)) for step in steps)
    if work * passes <= _MOST_WORK / 16:
        row["unconstrained_ms"] = statistics.median(samples(without, passes, clock=wall)) * 1e3
        row["scoring_first_ms"] = statistics.median(samples(after, passes, clock=wall)) * 1e3
    return row


_BATCH_TEXT = """
Requests a second, all steps of a search in one call a step, as planned for the nearest of the
batches of 1 and 8; the mean of four passes and their standard deviation.
"""
_BATCH_COLUMNS = {
    "catalog": "{}",
    "H": "{}",
    "beams": "{}",
    "batch": "{}",
    "requests_s": "{:,.0f}",
    "spread": "{:,.1f}",
}


def _batch_rows(
    bench: _Bench, workload: Workload, index: StepMap, plans: list[Plan]
) -> Iterator[Row]:
    columns, _, beam_width = next(bench.sizes(workload))
    weight = bench.weight(workload, columns)
    for batch in bench.batches:
        near = min(plans, key=lambda plan: abs(math.log(plan.steps[0].batch / batch)))
        steps = list(search(index, weight, batch, beam_width))

        def planned(steps: list[Step] = steps, plan: Plan = near) -> None:
            for step in steps:
                step.call(filter_step, plan=plan.choice(step.number, len(step.states)))

        speeds = [batch / taken for taken in samples(planned, 4, clock=wall)]
        row: Row = {"catalog": workload.name, "H": columns, "beams": beam_width, "batch": batch}
        yield row | {
            "requests_s": statistics.fmean(speeds),
            "spread": statistics.pstdev(speeds),
        }


_PHASE_TEXT = """
Where the time of a search goes, in the fastest of the passes on one thread, and what each part of
the design is worth: products of valid tokens only in all steps, holding all candidates; then
holding twice the beam width; then what the plan chose for each step.
"""
_PHASE_COLUMNS = {
    "catalog": "{}",
    "H": "{}",
    "batch": "{}",
    "filter_and_project": "{:.1%}",
    "normalise": "{:.1%}",
    "select": "{:.1%}",
    "selective_ms": "{:.2f}",
    "and_bounded_ms": "{:.2f}",
    "and_plan_ms": "{:.2f}",
}


def _phase_rows(name: str, steps: list[Step], plan: Plan, passes: int) -> Iterator[Row]:
    choices = [plan.choice(step.number, len(step.states)) for step in steps]
    row: Row = {"catalog": name, "H": steps[0].hidden.shape[2], "batch": len(steps[0].states)}

    def run(ways: list[Choice], **options: Any) -> None:
        for step, way in zip(steps, ways, strict=True):
            step.call(filter_step, plan=way, **options)

    clock = _Clock(("normalise", "select"))
    whole, parts = float("inf"), clock.seconds
    with mock.patch.object(_filter_engine, "engine", clock.engine):
        for _ in range(passes + 1):
            start = time.perf_counter()
            clock.restart(lambda: run(choices, num_threads=1))
            taken = time.perf_counter() - start
            if taken < whole:
                whole, parts = taken, clock.seconds
    for part, seconds in parts.items():
        row[part] = seconds / whole
    row["filter_and_project"] = 1 - row["normalise"] - row["select"]
    ablated = {"and_plan_ms": choices}
    if sum(step.slots for step in steps) * steps[0].hidden.shape[2] <= 2**32:
        ablated["selective_ms"] = [Choice("list", "selective", "radix")] * len(steps)
        ablated["and_bounded_ms"] = [Choice("list", "selective", "bounded")] * len(steps)
    times = _times({key: partial(run, ways) for key, ways in ablated.items()}, passes)
    row |= {key: statistics.median(each) for key, each in times.items()}
    yield row


_ORDER_TEXT = """
The share of items that `normalize="valid"` and `normalize="vocab"` both return, and what each finds
of the best 10 of a search of the other order with 512 beams. No trained model takes part: hidden
states lean towards up to four of the valid tokens, by so much that the valid ones together have
the probability `mass`, on average over the beams of all steps.
"""
_ORDER_COLUMNS = {
    "beams": "{}",
    "mass": "{:.3f}",
    "overlap": "{:.4f}",
    "valid_finds": "{:.4f}",
    "vocab_finds": "{:.4f}",
}


def _order_rows(bench: _Bench, workload: Workload, index: StepMap) -> list[Row]:
    weight = bench.weight(workload, 64)
    n_requests = 2 if bench.quick else 16
    widths = (4, 8, 16) if bench.quick else (16, 64, 128, 512)
    rows = []
    for lean in (16.0, 24.0, 48.0):
        model = _Model(index, weight, n_requests, lean)
        both = {(order, width): model.search(order, width) for order in _ORDERS for width in widths}
        best = {order: [keys[:10] for keys in both[order, widths[-1]]] for order in _ORDERS}
        for width in widths:
            valid, vocab = both["valid", width], both["vocab", width]
            rows.append(
                {
                    "beams": width,
                    "mass": round(model.mass(), 3),
                    "overlap": float(overlap(valid, vocab).mean()),
                    "valid_finds": float(recall(valid, best["vocab"]).mean()),
                    "vocab_finds": float(recall(vocab, best["valid"]).mean()),
                }
            )
    return rows


class _Model:
    """Hidden states that depend on the request and the prefix only, and favour valid tokens."""

    _NOISE = 4099

    def __init__(self, index: StepMap, weight: Any, n_requests: int, lean: float) -> None:
        random = np.random.default_rng(17)
        self.index, self.weight, self.lean = index, weight, lean
        shapes = (n_requests, 1, weight.shape[1]), (self._NOISE, weight.shape[1])
        self.users, self.noise = (random.standard_normal(shape, np.float32) for shape in shapes)
        self.masses: list[float] = []

    def hidden(self, states: Any) -> Any:
        """The hidden states of beams."""
        vectors = self.noise[states % self._NOISE] + self.users
        flat = vectors.reshape(-1, vectors.shape[2])
        offsets, tokens, _ = self.index.children(states)
        for row, (begin, end) in enumerate(itertools.pairwise(offsets.tolist())):
            if begin < end:
                few = tokens[begin:end][:: -(-(end - begin) // 4)]
                liked = self.weight[few].sum(axis=0)
                flat[row] += self.lean * liked / np.linalg.norm(liked)
                if row % 16 == 0:
                    powers = np.exp(self.weight @ flat[row])
                    self.masses.append(float(powers[tokens[begin:end]].sum() / powers.sum()))
        return vectors

    def mass(self) -> float:
        """Mean probability of the valid tokens so far."""
        return statistics.fmean(self.masses)

    def search(self, normalize: str, beam_width: int) -> list[Any]:
        """The last states of every request, best first."""
        states = np.full((len(self.users), 1), self.index.root)
        scores = np.zeros(states.shape, np.float32)
        for _ in range(self.index.max_length):
            step = filter_step(
                self.hidden(states),
                self.weight,
                self.index,
                states,
                scores,
                beam_width,
                normalize=normalize,
            )
            states, scores, _, _ = step.padded(beam_width)
        return step.states


class _Clock:
    """Adds up the time in some of the compiled functions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.seconds = dict.fromkeys(names, 0.0)
        self.compiled = _filter_engine.engine()

    def restart(self, call: Callable[[], None]) -> None:
        """Call with the clock at 0."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        call()

    def engine(self) -> _filter_engine.Engine:
        """The compiled functions, timed."""
        timed = {name: self._timed(name) for name in self.seconds}
        return self.compiled._replace(**timed)

    def _timed(self, name: str) -> Callable[..., Any]:
        function = getattr(self.compiled, name)

        def call(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            self.seconds[name] += time.perf_counter() - start
            return result

        return call
