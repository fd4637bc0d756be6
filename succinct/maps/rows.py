"""Steps whose rows are coded as wholes: which these are, how large they become, their filling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from succinct.maps import _rows, suffixes
from succinct.maps import code as codes
from succinct.maps import layout as layouts
from succinct.maps.code import Code
from succinct.maps.layout import COLUMN, HUFFMAN, RICE, Shape, Step, Table
from succinct.trie.passes import Passes

#: Steps get Golomb-Rice or, if that is not enough, Huffman codes, which are smaller and slower than
#: all else, if without them the index is larger by this factor than the least it needs.
_TOO_LARGE = 1.1

_NO_CODE = Code(*(np.empty(0, np.uint32),) * 3)

_Words = npt.NDArray[np.uint64]


class _Measured(NamedTuple):
    """What one step comes to."""

    least: float  # bits, whatever codes it has
    by_labels: float  # those of codes of single tokens
    counts: Table  # of the tokens
    typical: float  # tokens of the row of an entry drawn at random


class Rows:
    """Whole rows in codes, for the steps that must have them or are far too large without; these
    are put into `steps`."""

    def __init__(
        self,
        passes: Passes,
        wanted: Sequence[str],
        shapes: Sequence[Shape],
        steps: list[Step],
    ) -> None:
        self.passes, self.shapes, self.steps = passes, shapes, steps
        # Of the rows of each part.
        self._rice_sizes: dict[int, Table] = {}
        self._huffman_sizes: dict[int, Table] = {}
        self._codes: dict[int, Code] = {}
        plain = list(steps)
        for i, name in enumerate(wanted):
            if name == "rice":
                self._rice_sizes[i] = sizes = _measure_rice(passes, i, shapes[i])
                shapes[i].rice_sizes = sizes.sum(axis=0)
                steps[i] = layouts.choose("rice", shapes[i])
            elif name == "huffman":
                if shapes[i].range > layouts.MAX_CODES:
                    raise ValueError(
                        f"layout: a Huffman code needs tokens in a range of {layouts.MAX_CODES}, "
                        f"those of step {i} lie in one of {shapes[i].range}"
                    )
                steps[i] = self._huffman(i, self._measure(i).counts)
        now = sum(map(layouts.size, plain, shapes))
        found = {
            i: self._measure(i)
            for i, shape in enumerate(shapes)
            # What is counted must not take more memory than what is built, nor must it take long to
            # find that there is nothing to gain.
            if wanted[i] == "small"
            and 16 * shape.range <= shape.entries < shape.rows * shape.range
            and self._size(i) > now / 64
        }
        if found:
            self._improve(found, now)

    def _size(self, i: int, step: Step | None = None) -> float:
        return layouts.size(step or self.steps[i], self.shapes[i])

    def _improve(self, found: dict[int, _Measured], now: float) -> None:
        """Give codes to some of the steps that were measured, as long as all take too much."""
        plain = {i: self.steps[i] for i in found}
        most = _TOO_LARGE * (now + sum(found[i].least - self._size(i) for i in found))
        rice = {i: layouts.choose("rice", self.shapes[i]) for i in found}
        now = self._take(rice, found, now, most)
        if now > most:
            promising = [i for i in found if found[i].by_labels < self._size(i)]
            huffman = {i: self._huffman(i, found[i].counts) for i in promising}
            now = self._take(huffman, found, now, most)
            now = self._take_back(plain, now, most)
        # What room is left goes into samples, which make steps faster.
        while coded := [i for i in found if self.steps[i].kind in (RICE, HUFFMAN)]:
            i = max(coded, key=lambda i: layouts.group(self.steps[i]))
            width = layouts.group(self.steps[i]) - 1
            if width < 0:
                break
            denser = layouts.with_group(self.steps[i], self.shapes[i], width)
            now += self._size(i, denser) - self._size(i)
            if now > most:
                break
            self.steps[i] = denser

    def _take(
        self, others: dict[int, Step], found: dict[int, _Measured], now: float, most: float
    ) -> float:
        """Replace steps by others, as long as all take too much, those first that gain most for
        what it takes to read their rows; returns what all take then."""
        gains = {i: self._size(i) - self._size(i, step) for i, step in others.items()}
        for i in sorted(gains, key=lambda i: -gains[i] / found[i].typical):
            if now > most and gains[i] > 0:
                now -= gains[i]
                self.steps[i] = others[i]
        return now

    def _take_back(self, plain: dict[int, Step], now: float, most: float) -> float:
        """What was taken before may not be needed any more."""
        losses = {i: self._size(i, step) - self._size(i) for i, step in plain.items()}
        for i in sorted(losses, key=lambda i: losses[i]):
            if now + losses[i] <= most:
                now += losses[i]
                self.steps[i] = plain[i]
        return now

    def _measure(self, i: int) -> _Measured:
        shape = self.shapes[i]
        parts = len(self.passes.parts)
        lengths = np.zeros((parts, shape.range + 1), np.int64)
        each = np.zeros((parts, shape.range), np.int64)
        self._rice_sizes[i] = sizes = _measure_rice(self.passes, i, shape, lengths, each)
        shape.rice_sizes = sizes.sum(axis=0)
        of_length, counts = lengths.sum(axis=0), each.sum(axis=0)
        by_labels = layouts.least_label_bits(shape, of_length, counts)
        least = min(by_labels, layouts.least_bits(shape, of_length))
        typical = float(of_length @ np.arange(shape.range + 1) ** 2 / shape.entries)
        return _Measured(least, by_labels, counts, typical)

    def _huffman(self, i: int, counts: Table) -> Step:
        self._codes[i] = code = codes.code_of(counts)
        self._huffman_sizes[i] = sizes = _measure_huffman(self.passes, i, self.shapes[i], code)
        self.shapes[i].huffman_sizes = int(sizes.sum()), len(code.tokens)
        return layouts.choose("huffman", self.shapes[i])

    def sizes(self, passes: Passes) -> dict[int, Table]:
        """Bits of the rows of each part, for the steps that have such."""
        found = {}
        own = passes is self.passes
        for i, step in enumerate(self.steps):
            if step.kind == RICE:
                sizes = self._rice_sizes[i] if own else _measure_rice(passes, i, self.shapes[i])
                found[i] = sizes[:, 0] + sizes[:, 1 + step.width]
            elif step.kind == HUFFMAN:
                arguments = passes, i, self.shapes[i], self._codes[i]
                found[i] = self._huffman_sizes[i] if own else _measure_huffman(*arguments)
        return found

    def fill(
        self,
        passes: Passes,
        sizes: dict[int, Table],
        table: Table,
        bits: _Words,
        values: _Words,
        among: range | None = None,
    ) -> None:
        """Write the rows of all steps that have so many bits in each part, into zeroed words."""
        for i, of_parts in sizes.items():
            counts = passes.entries[:, i], passes.rows[:, i], of_parts
            before = [np.cumsum(count) - count for count in counts]
            code = self._codes[i] if self.steps[i].kind == HUFFMAN else _NO_CODE
            arguments = table[i], bits, values, code.table, code.words
            passes.each(_rows.fill, i, *arguments, of_parts=before, among=among)

    def codes(self, table: Table) -> Iterator[tuple[int, _Words]]:
        """Where in the integers the code of each step lies that has one, as a bit address, and its
        words."""
        for i, step in enumerate(self.steps):
            if step.kind == HUFFMAN:
                code, span = self._codes[i], self.shapes[i].range
                words = np.zeros(-(-layouts.huffman_code(step, span) // 64), np.uint64)
                words[: codes.TABLE_WORDS] = code.table.view(np.uint64)
                width = (span - 1).bit_length()
                suffixes.put_values(words, 64 * codes.TABLE_WORDS, code.tokens, width)
                yield int(table[i, COLUMN["chunk3_at"]]), words


def _measure_rice(
    passes: Passes,
    i: int,
    shape: Shape,
    lengths: Table | None = None,
    counts: Table | None = None,
) -> Table:
    """Bits of the tokens of the rows of step i in Golomb-Rice codes and, for each parameter, of
    their lengths: int64 [parts, 1 + RICE_PARAMETERS]; rows of each length go to `lengths`, and
    tokens to `counts`."""
    parts = len(passes.parts)
    sizes = np.zeros((parts, 1 + layouts.RICE_PARAMETERS), np.int64)
    none = np.empty((parts, 0), np.int64)
    each = [none if array is None else array for array in (lengths, counts)]
    passes.each(_rows.measure, i, shape.low, shape.range, of_parts=[*each, sizes])
    return sizes


def _measure_huffman(passes: Passes, i: int, shape: Shape, code: Code) -> Table:
    """Bits of the rows of step i: int64 [parts]."""
    sizes = np.zeros((len(passes.parts), 1), np.int64)
    arguments = shape.low, code.table, len(code.tokens), code.words
    passes.each(_rows.measure_code, i, *arguments, of_parts=[sizes])
    return sizes[:, 0]
