"""The two passes over sorted keys that every index is built in, and the threads that share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from succinct._scratch import scratch
from succinct._threads import equal_parts, in_threads, parts_of
from succinct.keys import KeyTable
from succinct.trie import _chains, _levels
from succinct.trie._keys import Heads

#: Tables up to this many times two are not sampled; of larger ones there are about as many keys in
#: the sample.
_SAMPLE = 2**14

Counts = npt.NDArray[np.int64]


class Passes:
    """Passes over the keys of a table, in parts that may be gone through at the same time.

    The first pass, at construction, counts what each part adds to every level. The sums over the
    parts before one say where its own entries begin, so that a second pass fills all parts at once
    (the count, prefix sum and fill of ZeroGR, arXiv:2607.07723).

    Parameters
    ----------
    keys : KeyTable or Heads
        At least one key.
    threads : int
        With 0, everything is counted and written one by one, in the simplest way: what the
        others must come to.
    n_parts : int, optional
        Parts to make, at most; by default some more than threads.

    Attributes
    ----------
    table : KeyTable or Heads
        What the passes go over.
    keys : KeyTable
        The whole keys.
    entries, rows : int64 [parts, max_length]
        New prefixes of each length and those of them that are the first continuations of theirs.
    prefixes : int64 [max_length + 1]
        All distinct prefixes of each length.
    n_keys, inner : int64 [max_length]
        Keys of each length, and those of them that are prefixes of others.
    low, high : uint32 [max_length]
        The tokens of each step lie in [low, high).
    """

    def __init__(self, keys: KeyTable | Heads, threads: int, n_parts: int | None = None) -> None:
        self.table, self.threads = keys, threads
        self.keys = keys.keys if isinstance(keys, Heads) else keys
        # Arrays of as many numbers as a key is long, for every part, are less than the keys.
        most = len(keys.tokens) // keys.max_length
        if n_parts is None:
            self.parts = parts_of(keys.n_keys, max(1, threads), most)
        else:
            self.parts = equal_parts(keys.n_keys, max(1, min(n_parts, most)))
        self.entries, self.rows, n_keys, inner = (self._counts(np.int64) for _ in range(4))
        low, high = self._counts(np.uint32), self._counts(np.uint32)
        low[:] = 2**32 - 1
        if keys.fixed_length is None or isinstance(keys, Heads) or not threads:
            counts = self.entries, self.rows, n_keys, inner, low, high
            self.each(_levels.count, of_parts=counts)
        else:
            self.each(_levels.count_rows, of_parts=[self.entries, low, high])
            # A prefix is the first continuation of one that the same key is the first to have.
            self.rows[0, 0] = 1
            np.cumsum(self.entries, axis=1, out=self.entries)
            self.rows[:, 1:] = self.entries[:, :-1]
            n_keys[0, -1] = keys.n_keys
        self.prefixes = np.concatenate([[1], self.entries.sum(axis=0)])
        self.n_keys, self.inner = n_keys.sum(axis=0), inner.sum(axis=0)
        self.low, self.high = low.min(axis=0), high.max(axis=0)

    def _counts(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Zeros [parts, max_length]; threads that count do not meet in a cache line."""
        length = self.table.max_length
        return np.zeros((len(self.parts), length + 32), dtype)[:, :length]

    def each(
        self,
        function: Callable[..., None],
        *arguments: Any,
        of_parts: Any = (),
        among: range | None = None,
    ) -> None:
        """Call a compiled function for each part, or some of them, with the rows of arrays that
        belong to it."""

        def work(i: int) -> None:
            part = self.parts[i]
            rows = [array[i] for array in of_parts]
            function(self.table, part.start, part.stop, *arguments, *rows)

        in_threads(work, among or range(len(self.parts)), max(1, self.threads))

    def count_tokens(self) -> Counts:
        """How many prefixes end with each token below ``vocab_size``."""
        vocab_size = self.keys.vocab_size
        # A count for each part, as long as they take no more memory than what is counted.
        if len(self.parts) * vocab_size > self.prefixes.sum():
            counts = scratch(vocab_size, np.int64)
            _levels.count_tokens(self.table, 0, self.keys.n_keys, counts)
            return counts
        each = scratch(len(self.parts) * vocab_size, np.int64).reshape(-1, vocab_size)
        self.each(_levels.count_tokens, of_parts=[each])
        return each[0] if len(each) == 1 else np.asarray(each.sum(axis=0))

    def count_code_lengths(self, codes: npt.NDArray[np.uint32]) -> Counts:
        """How many new prefixes of length d + 1 end with a token whose code has n bits, for each
        part: int64 [parts, max_length, 33]."""
        lengths = np.zeros((*self.entries.shape, 33), np.int64)
        self.each(_levels.count_code_lengths, codes, of_parts=[lengths])
        return lengths

    def sample_rests(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], float] | None:
        """What lies behind the last branching of the keys that end with one of a sample of tokens.

        These keys make up whole branches of a trie of reversed keys. None if the table is small, or
        has too few of them or too many.

        Returns
        -------
        origin : int64, span : uint32
            Where in the table what is left of a key begins, and how long it is.
        factor : float
            How many keys there are for each that the sample looked at.
        """
        keys = self.keys
        # There should be several tokens in the sample.
        share = min(keys.n_keys // _SAMPLE, keys.vocab_size // 16).bit_length() - 1
        if share <= 0:
            return None
        sample = _chains.sample_rests(keys, share, 4 * (keys.n_keys >> share))
        if sample is None or len(sample[0]) < _SAMPLE // 16:
            return None
        origin, span, n_keys = sample
        return origin, span, keys.n_keys / n_keys

    def fill_steps(
        self,
        table: npt.NDArray[np.int64],
        bits: npt.NDArray[np.uint64],
        values: npt.NDArray[np.uint64],
        codes: npt.NDArray[np.uint32],
        chunks: npt.NDArray[np.uint64],
        among: range | None = None,
    ) -> None:
        """Write a step-sliced index, or what some parts have of it, into zeroed words.

        `chunks`, uint64 [parts, max_length, 2], counts the second and third chunks of codes;
        the rest is as for the function in ``_levels``.
        """
        if self.threads:
            before = _before(self.entries), _before(self.rows), _before(chunks)
            self.each(_levels.fill_steps, table, bits, values, codes, of_parts=before, among=among)
        else:
            _levels.put_steps(self.table, table, bits, values, codes)
        if among is None or among.stop == len(self.parts):
            _levels.end_steps(table, bits, values)

    def fill_prefixes(
        self,
        high_width: int,
        topology: npt.NDArray[np.uint64],
        terminal: npt.NDArray[np.uint64],
        slots: npt.NDArray[np.uint16],
        label_high: npt.NDArray[np.uint64],
    ) -> None:
        """Write a LOUDS trie with one node for every prefix into zeroed arrays."""
        topology[0] |= np.uint64(1)  # the super-root
        starts = np.cumsum(self.prefixes) - self.prefixes
        nodes = np.ones((len(self.parts), len(starts)), np.int64)
        nodes[:, 1:] = starts[1:] + _before(self.entries)
        arrays = high_width, topology, terminal, slots, label_high
        if self.threads:
            self.each(_levels.fill_prefixes, *arrays, of_parts=[nodes])
        else:
            _levels.put_prefixes(self.keys, nodes[0], *arrays)


def by_frequency(counts: Counts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The tokens that occur, the most frequent first and of equals the smaller one, and the rank of
    each token among them; 0 for the others.

    `counts`, one for each token, are used up: words are sorted in their memory that have a token
    behind what its count lacks to the largest one that there is room for.
    """
    n_tokens, width = int(np.count_nonzero(counts)), max(1, (len(counts) - 1).bit_length())
    words = counts.view(np.uint64)
    _levels.pack_counts(words, width)
    words.sort()
    tokens, ranks = scratch(n_tokens, np.uint32), scratch(len(counts), np.uint32)
    _levels.unpack_tokens(words, width, tokens, ranks)
    return tokens, ranks


def words_of_bits(length: int) -> int:
    """Words of a bit-vector, padded as BitVector wants them."""
    return 8 * (length // 512 + 1)


def _before(counts: Any) -> Any:
    """For each part the sums over the parts before it."""
    return np.cumsum(counts, axis=0, dtype=counts.dtype) - counts
