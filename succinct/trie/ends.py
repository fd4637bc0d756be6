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

_OF_PART = 7000  # about, at most
_NO_RANKS = np.empty(0, np.uint32)


class Ends:
    """Pieces of the keys of a table, one after another as they lie there.

    Parameters
    ----------
    keys : KeyTable
    last : BitVector
        A one for the last token of each piece.
    spans : unsigned [pieces]
        How many tokens each has.
    ranks : uint32 [vocab_size], optional
        What tokens are compared by; default: their numbers.
    """

    def __init__(
        self,
        keys: KeyTable,
        last: BitVector,
        spans: npt.NDArray[np.unsignedinteger[Any]],
        ranks: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        self.keys, self.last, self.spans = keys, last, spans
        self.ranks = _NO_RANKS if ranks is None else ranks
        n = len(spans)
        self.parts = scratch(n, np.uint8)
        self._sizes = [n]
        if n > sorting.AT_ONCE:
            # A part takes much more memory than its pieces, but parts are numbers of eight bits.
            n_parts = min(max(sorting.N_PARTS, 1 << (n // _OF_PART).bit_length()), 256)
            sample = self.rows(sorting.samples(n, n_parts))
            splitters = sorting.Splitters(sample, n_parts)
            sizes = np.zeros(n_parts, np.int64)
            _chains.part_ends(
                keys, last.words, spans, self.ranks, splitters.bits, splitters.taken,
                splitters.words, self.parts, sizes,
            )  # fmt: skip
            self._sizes = sizes.tolist()

    def order_settled(self) -> None:
        """Let go of the ranks: rows have tokens from now on."""
        self.ranks = _NO_RANKS

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

    def rows(self, pieces: Numbers) -> Sequences:
        """Pieces one after another, backwards, with tokens or their ranks."""
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(self.spans[pieces], out=offsets[1:])
        tokens = np.empty(offsets[-1], np.uint32)
        _chains.gather_backwards(self.keys, self.last.select1(pieces), offsets, self.ranks, tokens)
        return Sequences(tokens, offsets, 0, len(pieces), self.keys.vocab_size - 1)
