"""What a table of keys becomes as a :class:`succinct.StepMap`: the choices, then their filling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from succinct.maps import layout as layouts
from succinct.maps import suffixes
from succinct.maps.layout import Shape, Step
from succinct.maps.rows import Rows
from succinct.maps.suffixes import Tails
from succinct.trie.passes import Passes, by_frequency

#: Larger tokens get no codes: their ranks are found in a table.
MAX_CODED = 2**26

_Words = npt.NDArray[np.uint64]


class Plan:
    """The representation and the place of every step, and of the tails if there are any.

    Attributes
    ----------
    steps : list of Step
    tail_steps : list of Step
        Labels of the nodes of the tails, and links to them.
    place : Layout
    """

    def __init__(self, passes: Passes, wanted: Sequence[str], tails: Tails | None = None) -> None:
        self.passes, self.tails = passes, tails
        prefixes = passes.prefixes
        inner = prefixes[1:] - passes.n_keys + passes.inner
        shapes = layouts.shapes(prefixes, passes.low, passes.high, inner, passes.inner)
        steps = [
            layouts.choose("small" if name in layouts.MEASURED else name, shape)
            for name, shape in zip(wanted, shapes, strict=True)
        ]
        links: list[tuple[Step, Shape]] = []
        if tails is not None:
            # To the codes the labels are one more step, in which every row has one entry.
            labels, linked = tails.shapes
            shapes.append(labels)
            steps.append(layouts.choose("packed", labels))
            wanted = [*wanted, "small"]
            links = [(suffixes.choose_links(linked, tails.links), linked)]
        self.codes = _Codes(passes, wanted, tails)
        coded = self.codes.improve(wanted, shapes, steps)
        vocab = (len(self.codes.tokens), self.codes.width) if coded else (0, 0)
        n = len(passes.low)
        self.rows = Rows(passes, wanted[:n], shapes[:n], steps)
        stored = [*zip(steps[n:], shapes[n:], strict=True), *links]
        self.steps, self.tail_steps = steps[:n], [step for step, _ in stored]
        self.shapes = shapes[:n]
        self.place = layouts.lay_out(self.steps, shapes[:n], vocab, stored)

    def fill(self, bits: _Words, values: _Words) -> None:
        """Write everything into zeroed words; once, as it lets go of what is written."""
        place, codes = self.place, self.codes
        if self.tails is not None:
            # What is zero takes no memory yet: so tails and steps are hardly held at once.
            suffixes.fill(self.tails, place, codes.of_token, bits, values)
            self.tails = codes.tails = None
        if place.vocab_size:
            suffixes.put_values(values, place.vocab_at, codes.tokens, codes.width)
        del codes.tokens
        chunks = codes.chunks(self.steps, self.passes)
        self.passes.fill_steps(place.table, bits, values, codes.of_token, chunks)
        for at, words in self.rows.codes(place.table):
            values[at // 64 : at // 64 + len(words)] = words
        self.rows.fill(self.passes, self.rows.sizes(self.passes), place.table, bits, values)


class _Codes:
    """Ranks of tokens by frequency, for the steps that get direct-access codes.

    `tokens` are those in use, the most frequent first; `of_token` the ranks, empty if no step
    needs them; `width` the bits of the largest token.
    """

    def __init__(self, passes: Passes, wanted: Sequence[str], tails: Tails | None) -> None:
        self.passes = passes
        self.tails = tails
        self.vocab_size = passes.keys.vocab_size
        self.width = (self.vocab_size - 1).bit_length()
        self.tokens: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.of_token: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.forced = "dac" in wanted
        if self.forced and self.vocab_size > MAX_CODED:
            raise ValueError(
                f"layout: codes by frequency need tokens below {MAX_CODED}, "
                f"got {self.vocab_size - 1}"
            )

    def improve(self, wanted: Sequence[str], shapes: Sequence[Shape], steps: list[Step]) -> bool:
        """Give codes to the steps that must have them or become smaller, if that pays for the
        list of tokens; whether one has them."""
        open_to = [i for i, name in enumerate(wanted) if name in ("small", "dac")]
        entries = sum(shapes[i].entries for i in open_to)
        # Counting must not take more memory than what is counted.
        if not self.forced and self.vocab_size > min(MAX_CODED, entries):
            return False
        self._rank()
        lengths = [*self.lengths.sum(axis=0)]
        if self.tails is not None:
            labels = self.tails.trie.labels()
            lengths.append(sum(layouts.code_lengths(self.of_token[chunk]) for chunk in labels))
        better = {}
        saved = 0.0
        for i in open_to:
            shapes[i].code_lengths = lengths[i]
            coded = layouts.choose("dac", shapes[i])
            gain = layouts.size(steps[i], shapes[i]) - layouts.size(coded, shapes[i])
            if wanted[i] == "dac" or gain > 0:
                better[i] = coded
                saved += max(gain, 0)
        if not self.forced and saved <= self.width * len(self.tokens):
            self.of_token = self.of_token[:0]
            return False
        for i, coded in better.items():
            steps[i] = coded
        return True

    def _rank(self) -> None:
        """Rank the tokens; how many entries of each step have codes of so many bits."""
        counts = self.passes.count_tokens()
        if self.tails is not None:
            for labels in self.tails.trie.labels():
                np.add.at(counts, labels, 1)
        self.tokens, self.of_token = by_frequency(counts)
        del counts
        self.lengths = self.passes.count_code_lengths(self.of_token)

    def chunks(self, steps: Sequence[Step], passes: Passes) -> npt.NDArray[np.uint64]:
        """How many codes of each part and step have a second and a third chunk."""
        chunks = np.zeros((*passes.entries.shape, 2), np.uint64)
        if any(step.kind == layouts.DAC for step in steps):
            own = passes is self.passes
            lengths = self.lengths if own else passes.count_code_lengths(self.of_token)
            for i, step in enumerate(steps):
                if step.kind == layouts.DAC:
                    for k, width in enumerate((step.width, step.width + step.width2)):
                        chunks[:, i, k] = lengths[:, i, width + 1 :].sum(axis=1)
        return chunks
