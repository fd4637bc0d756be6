"""Filtering first: the stages of one step, and how beams are parted for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from succinct import _args
from succinct.bits.lanes import BitLanes
from succinct.decode.eligibility import mark_eligible
from succinct.decode.filtered import Choice, FilterStep, Floats, Integers
from succinct.index import Index

if TYPE_CHECKING:
    from succinct.decode._filter_engine import Engine

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

# Slots, and entries of a matrix of scores, that are held at a time.
_SLOTS = 1 << 22
# What a multiplication costs on its own, in multiplications inside a matrix product; and what it
# costs to read a weight for one, in the same unit. The first came out between 3 and 20 for 8 to
# 1,024 beams: a rule of thumb, which `calibrate` replaces by times.
_SELECTIVE_COST = 12


def _array(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(_args.on_host(name, values))
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name}: expected an array, got rows of different lengths") from None


def read_matrix(name: str, values: npt.ArrayLike, n_axes: int, shape: str) -> npt.NDArray[Any]:
    array = _array(name, values)
    if array.dtype not in (np.float32, np.float16):
        raise TypeError(f"{name}: expected float32 or float16, got {array.dtype}")
    if array.ndim != n_axes:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return array


class _Rows(NamedTuple):
    """Beams that are worked on together, and the valid tokens of each."""

    first: int  # number of the first beam among the live ones
    lists: Integers  # which list of tokens each beam has
    begins: Integers  # of the lists
    tokens: npt.NDArray[np.uint32]
    states: npt.NDArray[np.uint64]
    mask: npt.NDArray[np.uint32] | None = None  # instead of lists


class _Winners(NamedTuple):
    """Continuations that were kept: live beam, score, token and, if known, state."""

    rows: Integers
    scores: Floats
    tokens: npt.NDArray[np.uint32]
    states: npt.NDArray[np.uint64]


class Job:
    """One call: the checked arguments, and the stages of the work."""

    width: int
    everything = False  # keep all, tokens ascending, whatever `width` is; for requests of one beam
    normalize: str
    allowed: BitLanes
    allowed_at: Integers

    def __init__(
        self,
        hidden: npt.ArrayLike,
        weight: npt.ArrayLike,
        index: Index,
        states: npt.ArrayLike,
        beam_scores: npt.ArrayLike,
        token_offset: SupportsIndex | None,
    ) -> None:
        if not isinstance(index, Index):
            raise TypeError(f"index: expected an index such as StepMap, got {type(index).__name__}")
        self.index = index
        vectors = read_matrix("hidden", hidden, 3, "[Q, B, H]")
        self.weight = read_matrix("weight", weight, 2, "[V, H]")
        n_columns = vectors.shape[2]
        if self.weight.shape[1] != n_columns:
            raise ValueError(
                f"weight: expected {n_columns} columns, as many as hidden has, "
                f"got {self.weight.shape[1]}"
            )
        self.shape = vectors.shape[:2]
        self.n_requests = self.shape[0]
        checked = index._states(_args.on_host("states", states))
        scores = _array("beam_scores", beam_scores)
        if scores.dtype.kind not in "fiu":
            raise TypeError(f"beam_scores: expected floating point numbers, got {scores.dtype}")
        for name, array in (("states", checked), ("beam_scores", scores)):
            if array.shape != self.shape:
                raise ValueError(
                    f"{name}: expected the shape of hidden without its last axis, {self.shape}, "
                    f"got {array.shape}"
                )
        with np.errstate(over="ignore"):
            scores = scores.astype(np.float32)
        wrong = ~(scores < np.inf)
        if wrong.any():
            at = int(wrong.reshape(-1).argmax())
            raise ValueError(
                f"beam_scores{_args.place(scores, at)}: expected a finite number or -inf, "
                f"got {scores.reshape(-1)[at]}"
            )
        self._read_offset(token_offset)

        flat = checked.reshape(-1)
        degrees = np.empty(flat.size, np.int64)
        index._core.degrees(flat, degrees)
        live = np.flatnonzero((degrees > 0) & (scores.reshape(-1) > -np.inf))
        self.live = live
        self.states = flat[live]
        self.scores = scores.reshape(-1)[live]
        self.degrees = degrees[live]
        self.requests = live // max(self.shape[1], 1)
        # Read-only, so that compiled code sees one type whatever the caller has.
        self.hidden = np.ascontiguousarray(vectors, np.float32).reshape(flat.size, n_columns).view()
        self.hidden.flags.writeable = False
        self.first_state = self.states[0] if len(live) else None
        self.work = int(self.degrees.sum()) * self.hidden.shape[1]

    def _read_offset(self, token_offset: SupportsIndex | None) -> None:
        rows = self.weight.shape[0]
        if token_offset is None:
            self.offset = 0
            if rows < self.index.vocab_size:
                raise ValueError(
                    f"weight: expected at least {self.index.vocab_size} rows, as many as the "
                    f"index has tokens, got {rows}; token_offset= is for the head of one step"
                )
            return
        try:
            self.offset = token_offset.__index__()
        except AttributeError:
            raise TypeError(
                f"token_offset: expected an int, got {type(token_offset).__name__}"
            ) from None
        if not 0 <= self.offset <= _args.MAX_TOKEN:
            raise ValueError(f"token_offset: expected 0 to {_args.MAX_TOKEN}, got {self.offset}")

    # ---- stages -----------------------------------------------------------------------------

    def run(self, choice: Choice | None, run: Map, threads: int) -> FilterStep:
        from succinct.decode._filter_engine import engine

        self.engine: Engine = engine()
        self.map, self.threads = run, threads
        found = list(self._winners(choice))
        if not found:
            found = [_Winners(*(np.empty(0, kind) for kind in (np.int64, "f4", "u4", "u8")))]
        rows, scores, tokens, states = map(np.concatenate, zip(*found, strict=True))
        requests = self.requests[rows]
        counts = np.bincount(requests, minlength=self.n_requests)
        if self.split:
            # Parts of a request have each given their best.
            order = np.lexsort((tokens, rows, -scores, requests))
            firsts = np.cumsum(counts) - counts
            place = np.arange(len(order)) - firsts[requests]
            order = order[place < self.width]
            rows, scores, tokens, states = (a[order] for a in (rows, scores, tokens, states))
            counts = np.minimum(counts, self.width)
        offsets = np.zeros(self.n_requests + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        parents = self.live[rows] % max(self.shape[1], 1)
        return FilterStep(offsets, scores, tokens, parents, states)

    def _winners(self, choice: Choice | None) -> Iterator[_Winners]:
        self.split = False
        columns = self.weight.shape[0]
        restricted = bool((self.allowed_at >= 0).any())
        mapping = choice.mapping if choice and not (restricted or self.everything) else "list"
        cost = self.degrees if mapping == "list" else np.full(len(self.live), columns)
        for part in self._spans(0, len(self.live), cost, _SLOTS):
            if restricted:
                rows = self._eligible(part)
                if len(rows.tokens) == 0:
                    continue
            else:
                rows = self._listed(part) if mapping == "list" else self._masked(part)
            low, high = _extent(rows)
            if low < self.offset or high > self.offset + columns:
                wrong = low if low < self.offset else high - 1
                raise ValueError(
                    f"weight: expected a row for every valid token, got rows for {self.offset} to "
                    f"{self.offset + columns - 1} and token {wrong}"
                )
            here = choice or self._estimate(part, high - low)
            if here.projection == "selective":
                yield from self._selective(part, rows, here)
            else:
                if here.projection == "full":
                    low, high = self.offset, self.offset + columns
                yield from self._dense(part, rows, here, low, high)

    def _spans(self, first: int, last: int, cost: Integers, limit: int) -> list[slice]:
        """Parts of the live beams that cost up to `limit` each, at least one beam; whole
        requests, if they are cheap enough."""
        ends = np.cumsum(cost[first:last])
        spans = []
        at = first
        before = 0
        while at < last:
            end = first + int(np.searchsorted(ends, before + limit, "right"))
            end = max(end, at + 1)
            if end < last and self.requests[end] == self.requests[end - 1]:
                start = int(np.searchsorted(self.requests, self.requests[end]))
                if start > at:
                    end = start
                else:
                    self.split = True
            spans.append(slice(at, end))
            before = int(ends[end - 1 - first])
            at = end
        return spans

    def _listed(self, part: slice) -> _Rows:
        """The valid tokens of some beams, once for each distinct state."""
        states = self.states[part]
        distinct = np.sort(states)
        if (distinct[1:] == distinct[:-1]).any():
            states, lists = np.unique(states, return_inverse=True)
        else:
            lists = np.arange(len(states))
        bounds = [len(states) * i // self.threads for i in range(self.threads + 1)]
        parts = [states[a:b] for a, b in itertools.pairwise(bounds) if a < b]
        found = list(self.map(self.index.children, parts))
        if len(found) == 1:
            return _Rows(part.start, lists, *found[0])
        sizes, tokens, children = zip(*found, strict=True)
        begins = np.zeros(len(states) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(size) for size in sizes]), out=begins[1:])
        return _Rows(part.start, lists, begins, np.concatenate(tokens), np.concatenate(children))

    def _eligible(self, part: slice) -> _Rows:
        """The valid tokens of some beams that lead to eligible keys, once for each beam."""
        allowed_at = self.allowed_at[self.requests]

        def work(span: slice) -> tuple[Integers, Any, Any]:
            begins, tokens, states = self.index.children(self.states[span])
            keep = np.empty(len(states), np.bool_)
            mark_eligible(self.index, self.allowed, allowed_at[span], begins, states, keep)
            kept = np.concatenate([[0], np.cumsum(keep)])
            return np.diff(kept[begins]), tokens[keep], states[keep]

        spans = self._shares(part, self.degrees)
        counts, tokens, states = map(np.concatenate, zip(*self.map(work, spans), strict=True))
        self.degrees[part] = counts
        begins = np.concatenate([[0], np.cumsum(counts)])
        return _Rows(part.start, np.arange(len(counts)), begins, tokens, states)

    def _masked(self, part: slice) -> _Rows:
        """The valid tokens of some beams as rows of bits."""
        parts = np.array_split(self.states[part], self.threads)
        mask = np.concatenate(list(self.map(self.index.allowed_mask, parts)))
        none = np.empty(0, np.int64)
        tokens, states = none.astype(np.uint32), none.astype(np.uint64)
        return _Rows(part.start, none, none, tokens, states, mask.view(np.uint32))

    def _estimate(self, part: slice, band: int) -> Choice:
        slots = int(self.degrees[part].sum())
        n = part.stop - part.start
        selective = _SELECTIVE_COST * slots
        dense = band * (n + _SELECTIVE_COST)
        return Choice(projection="selective" if selective <= dense else "band")

    def _selective(self, part: slice, rows: _Rows, choice: Choice) -> list[_Winners]:
        """Winners among some beams by products of single vectors."""
        weight, tokens, offset = self._factors(rows.tokens)

        def work(span: slice) -> _Winners:
            counts = self.degrees[span]
            starts = np.cumsum(counts) - counts
            lists = rows.lists[span.start - rows.first : span.stop - rows.first]
            # Beams in the same state one after another.
            order = np.argsort(lists, kind="stable")
            values = np.empty(int(counts.sum()), np.float32)
            hidden, live, begins = self.hidden, self.live[span], rows.begins
            self.engine.project(
                hidden, live, weight, offset, order, lists, begins, tokens, starts, values
            )
            return self._best(span, rows, choice, values, starts, counts)

        return list(self.map(work, self._shares(part, self.degrees)))

    def _factors(
        self, tokens: npt.NDArray[np.uint32]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32], np.int64]:
        """A matrix that compiled code can read, tokens, and the token of its first row."""
        weight = self.weight
        offset = np.int64(self.offset)
        if not weight.flags.c_contiguous or (weight.dtype == np.float16 and not _reads_half()):
            # Only the rows that are needed, each once.
            distinct, inverse = np.unique(tokens, return_inverse=True)
            weight = np.ascontiguousarray(weight[distinct - offset], np.float32)
            tokens = inverse.astype(np.uint32)
            offset = np.int64(0)
        weight = weight.view(np.uint16 if weight.dtype == np.float16 else np.float32)
        weight.flags.writeable = False
        return weight, tokens, offset

    def _dense(
        self, part: slice, rows: _Rows, choice: Choice, low: int, high: int
    ) -> Iterator[_Winners]:
        """Winners among some beams by matrix products for the tokens from `low` to `high`."""
        width = high - low
        factor = self.weight[low - self.offset : high - self.offset].astype(np.float32, copy=False)
        cost = np.full(len(self.live), width)
        blocks = self._spans(part.start, part.stop, cost, _SLOTS)
        room = np.empty(width * max(block.stop - block.start for block in blocks), np.float32)
        for block in blocks:
            live = self.live[block]
            hidden = self.hidden[live[0] : live[-1] + 1]
            if len(hidden) != len(live):
                hidden = self.hidden[live]
            dense = room[: width * len(live)].reshape(-1, width)
            np.matmul(hidden, factor.T, out=dense)

            def work(span: slice, dense: Floats = dense, block: slice = block) -> _Winners:
                part = dense[span.start - block.start : span.stop - block.start]
                return self._among(span, rows, choice, part, low)

            cost = self.degrees if rows.mask is None else cost
            yield from self.map(work, self._shares(block, cost))

    def _among(self, span: slice, rows: _Rows, choice: Choice, dense: Floats, low: int) -> _Winners:
        """Winners among beams whose scores for the tokens from `low` on are rows of `dense`."""
        n, width = dense.shape
        flat = dense.reshape(-1)
        starts = np.arange(n) * width
        counts = np.full(n, width)
        norms = None
        if self.normalize == "vocab":
            norms = self._norms(span, flat, starts, counts)
        here = slice(span.start - rows.first, span.stop - rows.first)
        if rows.mask is not None:
            self.engine.drop_invalid(dense, np.int64(low), rows.mask[here])
            return self._best(span, rows, choice, flat, starts, counts, norms, low)
        counts = self.degrees[span]
        starts = np.cumsum(counts) - counts
        values = np.empty(int(counts.sum()), np.float32)
        lists, begins, tokens = rows.lists[here], rows.begins, rows.tokens
        self.engine.pick(dense, np.int64(low), lists, begins, tokens, starts, values)
        return self._best(span, rows, choice, values, starts, counts, norms)

    def _shares(self, part: slice, cost: Integers) -> list[slice]:
        """Parts for the threads, more of them than threads."""
        if self.threads == 1:
            return [part]
        total = int(cost[part].sum())
        return self._spans(part.start, part.stop, cost, -(-total // (4 * self.threads)))

    def _norms(self, span: slice, values: Floats, starts: Integers, counts: Integers) -> Floats:
        norms = np.empty(len(starts), np.float32)
        bad = self.engine.normalise(values, starts, counts, norms)
        if bad >= 0:
            row = int(self.live[span.start + bad])
            request, beam = divmod(row, self.shape[1])
            cause = "the hidden state" if not np.isfinite(self.hidden[row]).all() else "weight"
            raise ValueError(
                f"hidden[{request}, {beam}]: expected finite scores of tokens, got nan or inf; "
                f"look for it in {cause}"
            )
        return norms

    def _best(
        self,
        span: slice,
        rows: _Rows,
        choice: Choice,
        values: Floats,
        starts: Integers,
        counts: Integers,
        norms: Floats | None = None,
        low: int = 0,
    ) -> _Winners:
        """Winners among beams whose scores lie in slots of `values`."""
        if norms is None:
            norms = self._norms(span, values, starts, counts)
        if self.everything:
            return self._all(span, rows, values, starts, counts, norms)
        owners = self.requests[span]
        bounds = np.flatnonzero(owners[1:] != owners[:-1]) + 1
        requests = np.concatenate([[0], bounds, [len(owners)]])
        slots = np.add.reduceat(counts, requests[:-1])
        most = int(slots.max())
        width = min(self.width, most)
        # Where nothing has to be dropped on the way, all candidates are held.
        room = 2 * width if choice.selection == "bounded" and 2 * width < most else most + 1
        size = int(np.minimum(slots, width).sum())
        kept = np.empty(len(slots), np.int64)
        scores = np.empty(size, np.float32)
        winners = np.empty(size, np.int64)
        places = np.empty(size, np.int64)
        beam_scores = self.scores[span]
        self.engine.select(
            values,
            starts,
            counts,
            beam_scores,
            norms,
            requests,
            width,
            room,
            kept,
            scores,
            winners,
            places,
        )
        found = int(kept.sum())
        scores, winners, places = scores[:found], winners[:found], places[:found]
        if rows.mask is not None:
            tokens = (places + low).astype(np.uint32)
            states = self.index.advance(self.states[span][winners], tokens)
        else:
            at = rows.begins[rows.lists[winners + (span.start - rows.first)]] + places
            tokens, states = rows.tokens[at], rows.states[at]
        return _Winners(winners + span.start, scores, tokens, states)

    def _all(
        self,
        span: slice,
        rows: _Rows,
        values: Floats,
        starts: Integers,
        counts: Integers,
        norms: Floats,
    ) -> _Winners:
        """All valid tokens of some beams but those of probability 0, in the order of lists."""
        beams = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(beams)) - (np.cumsum(counts) - counts)[beams]
        scores = values[starts[beams] + places] - norms[beams]
        possible = scores > -np.inf
        beams, places, scores = beams[possible], places[possible], scores[possible]
        at = rows.begins[rows.lists[beams + (span.start - rows.first)]] + places
        return _Winners(beams + span.start, scores, rows.tokens[at], rows.states[at])


def _reads_half() -> bool:
    """Whether the processor converts float16 itself."""
    from llvmlite.binding import get_host_cpu_features

    return bool(get_host_cpu_features().get("f16c", False))


def _extent(rows: _Rows) -> tuple[int, int]:
    """The range of the valid tokens of some beams."""
    if rows.mask is None:
        return int(rows.tokens.min()), int(rows.tokens.max()) + 1
    bits = np.unpackbits(np.bitwise_or.reduce(rows.mask).view(np.uint8), bitorder="little")
    places = np.flatnonzero(bits)
    return int(places[0]), int(places[-1]) + 1
