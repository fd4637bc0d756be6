"""A step-sliced index in pieces, for those who have no room for the whole.

A piece is what some consecutive keys add to every step: a run of words in each bit-vector and each
array of integers. Where the runs lie follows from counts (the prefix sums of ZeroGR,
arXiv:2607.07723), so pieces are filled in a small buffer and then sent to their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from succinct.bits.bitvector import count_blocks, directory
from succinct.bits.lanes import BitLanes
from succinct.maps import layout as layouts
from succinct.maps import suffixes
from succinct.maps.layout import BITMAP, COLUMN, DAC, HUFFMAN, JOINT, PACKED, RICE, Shape, Step
from succinct.maps.plan import Plan
from succinct.trie import _levels
from succinct.trie.passes import Passes

# Parts of a step, by the columns of their places, and which of these are in the bit-vector.
_SECTIONS = (
    "tree_at", "more2_at", "more3_at", "inner_at", "final_at",
    "tokens_at", "rows_at", "chunk2_at", "chunk3_at",
)  # fmt: skip
_IN_BITS = 5
_FINAL = _SECTIONS.index("final_at")
# Pieces should fill a buffer well, so that parts of the keys are smaller by this factor.
_PARTS_OF_BUFFER = 8

_Words = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Words [begin, end) of a buffer, and what they are: those of `array` from `to` on."""

    array: str
    to: int
    begin: int
    end: int


class Pieces:
    """What a table of keys becomes, piece by piece.

    Parameters
    ----------
    plan : Plan
        Without tails.
    capacity : int
        Words of a buffer, if a piece can be so small.

    Attributes
    ----------
    capacity : int
        Words that a buffer must have.
    sizes : dict
        Words of "bits" and "values".

    Notes
    -----
    One more pass over the keys to count, or several if they are very uneven. In memory is what was
    counted, and the directory of the bit-vector.
    """

    def __init__(self, plan: Plan, capacity: int) -> None:
        assert plan.tails is None
        self.plan = plan
        place, keys = plan.place, plan.passes.keys
        self.sizes = {"bits": 8 * (place.n_bits // 512 + 1), "values": place.n_words}
        n_parts = max(1, _PARTS_OF_BUFFER * sum(self.sizes.values()) // max(1, capacity))
        while True:
            self.passes = Passes(keys, plan.passes.threads, n_parts)
            self._count()
            parts = len(self.passes.parts)
            largest = max(self._words(i, i + 1) for i in range(parts))
            if largest <= capacity or parts < n_parts:
                break
            n_parts *= 2 * -(-largest // capacity)
        vocab = -(-place.vocab_size * place.vocab_width // 64)
        self.capacity = max(capacity, largest, vocab + 9)
        self._ones = np.zeros(self.sizes["bits"] // 8, np.uint32)
        # Words that runs share with others, as far as they are known.
        self._edges: dict[str, dict[int, int]] = {"bits": {}, "values": {}}

    def _count(self) -> None:
        """Where every part begins and ends: bit addresses [parts, steps, sections]."""
        plan, passes = self.plan, self.passes
        parts, n_steps = passes.entries.shape
        self._chunks = plan.codes.chunks(plan.steps, passes)
        self._rows = plan.rows.sizes(passes)
        last = np.full((parts, n_steps), -1, np.int64)
        passes.each(_levels.last_tokens, of_parts=[last])
        ends = np.zeros((parts, n_steps, len(_SECTIONS)), np.int64)
        for i, (step, shape) in enumerate(zip(plan.steps, plan.shapes, strict=True)):
            known = np.maximum.accumulate(np.where(last[:, i] < 0, 0, np.arange(parts)))
            ends[:, i] = self._ends(i, step, shape, last[known, i] - shape.low)
            ends[-1, i] = _lengths(step, shape)
        at = plan.place.table[:, [COLUMN[name] for name in _SECTIONS]]
        self._begins = at + np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
        # Whether its last key has continuations is all that a part says of the next one's rows.
        ends[:, :, _FINAL] = np.minimum(ends[:, :, _FINAL] + 1, ends[-1, :, _FINAL])
        self._stops = at + ends

    def _ends(self, i: int, step: Step, shape: Shape, last: _Numbers) -> _Numbers:
        """Bits that all parts up to each write of every section, or that later ones leave alone;
        `last` is the token of the last entry."""
        passes = self.passes
        entries, rows = (np.cumsum(counts[:, i]) for counts in (passes.entries, passes.rows))
        found = dict.fromkeys(_SECTIONS, np.zeros_like(entries))
        row = np.maximum(rows - 1, 0)
        width = step.rows_width
        if step.kind == BITMAP:
            found["tree_at"] = row * shape.range + last + 1
        elif step.kind == JOINT:
            buckets = self.plan.place.table[i, COLUMN["buckets"]]
            found["tree_at"] = 1 + entries + row * buckets + (last >> step.width)
        elif step.kind in (PACKED, DAC, HUFFMAN):
            if step.rows_kind == layouts.STARTS:
                found["tree_at"] = (entries - rows >> width) + rows
                found["rows_at"] = rows * width
            elif step.rows_kind == layouts.EXTRAS:
                found["tree_at"] = 1 + entries - rows + (row >> width)
                found["rows_at"] = (entries - rows) * width
            elif step.rows_kind == layouts.OFFSETS:
                found["rows_at"] = rows * width
        if step.kind in (JOINT, PACKED, DAC):
            found["tokens_at"] = entries * step.width
        if step.kind == DAC and step.width2:
            second, third = np.cumsum(self._chunks[:, i], axis=0).astype(np.int64).T
            found["more2_at"], found["chunk2_at"] = entries, second * step.width2
            if step.width3:
                found["more3_at"], found["chunk3_at"] = second, third * step.width3
        if step.kind == RICE:
            row_of_table = self.plan.place.table[i]
            width = row_of_table[COLUMN["width2"]] + row_of_table[COLUMN["width3"]]
            found["tokens_at"] = np.cumsum(self._rows[i])
            found["chunk2_at"] = -(-rows >> step.rows_width) * width
        if step.kind == HUFFMAN:
            found["tokens_at"] = bits = np.cumsum(self._rows[i])
            samples = -(-rows >> step.width)
            found["more2_at"] = (bits >> step.width2) + samples
            found["chunk2_at"] = samples * step.width2
        if 0 < step.inner_rows < shape.entries:
            found["inner_at"] = entries
        if 0 < step.final_keys < step.inner_rows:
            found["final_at"] = np.cumsum(passes.rows[:, i + 1])
        ends = np.stack([found[name] for name in _SECTIONS], axis=-1)
        ends[entries == 0] = 0
        return ends

    def _runs(self, begin: int, end: int) -> tuple[_Numbers, _Numbers]:
        """First words and numbers of words of all sections [steps, sections] in some parts."""
        first, stop = self._begins[begin], self._stops[end - 1]
        return first >> 6, np.where(stop > first, (stop + 63 >> 6) - (first >> 6), 0)

    def _words(self, begin: int, end: int) -> int:
        return int(self._runs(begin, end)[1].sum())

    def __iter__(self) -> Iterator[Callable[[_Words], list[Run]]]:
        """What to fill one buffer after another with; to be called in order."""
        yield self._put_ends
        for at, words in self.plan.rows.codes(self.plan.place.table):
            for start in range(0, len(words), self.capacity):
                part = words[start : start + self.capacity]
                yield partial(self._put_code, at // 64 + start, part)
        begin, parts = 0, len(self.passes.parts)
        while begin < parts:
            end = begin + 1
            while end < parts and self._words(begin, end + 1) <= self.capacity:
                end += 1
            yield partial(self._fill, range(begin, end))
            begin = end

    def _put_ends(self, buffer: _Words) -> list[Run]:
        """The tokens by frequency, which are before all steps, and what is behind them: nothing."""
        place, codes = self.plan.place, self.plan.codes
        n = -(-place.vocab_size * place.vocab_width // 64)
        padding = self.sizes["bits"] - -(-place.n_bits // 64)
        buffer[: n + padding + 1] = 0
        if n:
            suffixes.put_values(buffer, 0, codes.tokens, codes.width)
        runs = [
            Run("values", place.vocab_at // 64, 0, n),
            Run("values", self.sizes["values"] - 1, n, n + 1),
            Run("bits", self.sizes["bits"] - padding, n, n + padding),
        ]
        return [run for run in runs if run.begin < run.end]

    def _put_code(self, at: int, words: _Words, buffer: _Words) -> list[Run]:
        """Some words of a code, which lies by itself."""
        buffer[: len(words)] = words
        return [Run("values", at, 0, len(words))]

    def _fill(self, group: range, buffer: _Words) -> list[Run]:
        """What some parts have of all steps."""
        plan = self.plan
        firsts, counts = self._runs(group.start, group.stop)
        places = np.cumsum(counts).reshape(counts.shape) - counts
        columns = [COLUMN[name] for name in _SECTIONS]
        table = plan.place.table.copy()
        table[:, columns] += 64 * (places - firsts)
        buffer[: counts.sum()] = 0
        self.passes.fill_steps(table, buffer, buffer, plan.codes.of_token, self._chunks, group)
        plan.rows.fill(self.passes, self._rows, table, buffer, buffer, group)
        runs = []
        for i, k in zip(*np.nonzero(counts), strict=True):
            array = "bits" if k < _IN_BITS else "values"
            begin, end = int(places[i, k]), int(places[i, k] + counts[i, k])
            run = Run(array, int(firsts[i, k]), begin, end)
            self._join(run, buffer)
            runs.append(run)
        return runs

    def _join(self, run: Run, buffer: _Words) -> None:
        """Merge what runs before have written of the first and the last word."""
        edges = self._edges[run.array]
        for at in {run.begin, run.end - 1}:  # one word may be both
            word = run.to + at - run.begin
            edges[word] = edges.get(word, 0) | int(buffer[at])
            buffer[at] = edges[word]
        if run.array == "bits" and run.end - run.begin > 2:
            count_blocks(buffer[run.begin + 1 : run.end - 1], run.to + 1, self._ones)

    def directory(self) -> BitLanes:
        """The arrays of the bit-vector but its words, when all pieces are filled."""
        for word, bits in self._edges["bits"].items():
            self._ones[word // 8] += bits.bit_count()
        return directory(self._ones, self.plan.place.n_bits)


def _lengths(step: Step, shape: Shape) -> list[int]:
    """Bits of all sections of a step."""
    found = dict.fromkeys(_SECTIONS, 0)
    m = shape.entries
    found["tree_at"] = (layouts.tree_size(step, shape) or (0, 0))[0]
    if step.kind in (PACKED, DAC, HUFFMAN):
        found["rows_at"] = layouts.n_row_values(step.rows_kind, shape) * step.rows_width
    if step.kind in (JOINT, PACKED, DAC):
        found["tokens_at"] = m * step.width
    if step.kind == DAC and step.width2:
        found["more2_at"], found["chunk2_at"] = m, step.chunks2 * step.width2
        if step.width3:
            found["more3_at"], found["chunk3_at"] = step.chunks2, step.chunks3 * step.width3
    if step.kind == RICE:
        found["tokens_at"] = step.chunks2
        found["chunk2_at"] = math.prod(layouts.samples(step, m, shape.rows))
    if step.kind == HUFFMAN:
        n_samples, found["more2_at"] = layouts.huffman_samples(step, shape.rows)
        found["tokens_at"], found["chunk2_at"] = step.chunks2, n_samples * step.width2
    if 0 < step.inner_rows < m:
        found["inner_at"] = m
    if 0 < step.final_keys < step.inner_rows:
        found["final_at"] = step.inner_rows
    return list(found.values())
