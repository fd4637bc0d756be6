"""Pieces of keys sorted backwards, part by part, so that little is held beside the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from succinct._scratch import scratch
from succinct.bits import BitVector
from succinct.keys import KeyTable, sorting
from succinct.keys.sequences import Sequences
from succinct.trie import _chains

Numbers = npt.NDArray[np.int64]

_CHUNK = 1 << 13  # pieces looked at in one go


class Ends:
    """Pieces of the keys of a table, one after another as they lie there.

    Parameters
    ----------
    keys : KeyTable
    last : BitVector
        A one for the last token of each piece.
    spans : unsigned [pieces]
        How many tokens each has.
    by_rank : uint32 [vocab_size], optional
        Tokens in the order in which they are compared; default: by their numbers.
    """

    def __init__(
        self,
        keys: KeyTable,
        last: BitVector,
        spans: npt.NDArray[np.unsignedinteger[Any]],
        by_rank: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        self.keys, self.last, self.spans = keys, last, spans
        self._ranks = np.empty(0 if by_rank is None else len(by_rank), np.uint32)
        if by_rank is not None:
            self._ranks[by_rank] = np.arange(len(by_rank), dtype=np.uint32)
        self.parts = scratch(len(spans), np.uint8)
        self._sizes = [len(spans)]
        if len(spans) > sorting.AT_ONCE:
            splitters = sorting.Splitters(self.rows(sorting.samples(len(spans))))
            sizes = np.zeros(sorting.N_PARTS, np.int64)
            for chunk in self._chunks():
                rows = self.rows(chunk, splitters.taken)
                sizes += splitters.part(rows, self.parts[chunk[0] : chunk[-1] + 1])[0]
            self._sizes = sizes.tolist()

    def __iter__(self) -> Iterator[Numbers]:
        """The pieces of one part after another, each in the order of the table."""
        return self._members(range(len(self._sizes)))

    def __reversed__(self) -> Iterator[Numbers]:
        return self._members(reversed(range(len(self._sizes))))

    def _members(self, parts: Iterable[int]) -> Iterator[Numbers]:
        for part in parts:
            if self._sizes[part]:
                members = np.empty(self._sizes[part], np.int64)
                _chains.places_of(self.parts, part, members)
                yield members

    def rows(self, pieces: Numbers, most: int | None = None) -> Sequences:
        """Pieces one after another, backwards, at most so many tokens of each; ranks for tokens if
        these are compared."""
        spans = self.spans[pieces]
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(spans if most is None else np.minimum(spans, most), out=offsets[1:])
        tokens = np.empty(offsets[-1], np.uint32)
        _chains.gather_backwards(self.keys, self.last.select1(pieces), offsets, self._ranks, tokens)
        return Sequences(tokens, offsets, 0, len(pieces), self.keys.vocab_size - 1)

    def _chunks(self) -> Iterator[Numbers]:
        for start in range(0, len(self.spans), _CHUNK):
            yield np.arange(start, min(start + _CHUNK, len(self.spans)))
