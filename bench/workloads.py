"""Proposals to search with: grids like those of models that write all positions at once.

No model is at hand, so a query is a key of the catalog drawn at random, and the tokens of a
position are a coherent head and a noise tail:

- the head holds the `head` best tokens of a model that knows the key: at each position the key's
  own token, and then the tokens that go on from the key's prefix in the catalog, the more frequent
  at the position the sooner (with some chance);
- the tail holds tokens drawn from those of all keys at that position, by frequency, without regard
  to the positions before: plausible one by one, and as a rule no key together.

Log-probabilities belong to ranks and not to tokens, so that the tail inherits those of the ranks
that it fills: rank j has a probability in proportion to (j + 1)^-s over the vocabulary, with s
drawn from 1 to 2 for each position. The construction follows appendix K of FlashTrie
(arXiv:2607.10044); with head 0 nothing is coherent, with a head as wide as the grid all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from succinct import KeyTable, LoudsTrie


@dataclass(frozen=True)
class Grids:
    """Proposals of a set of queries, [Q, T, K]; a position's best first."""

    token_ids: npt.NDArray[np.uint32]
    logprobs: npt.NDArray[np.float32]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.token_ids, self.logprobs, strict=True)

    def __len__(self) -> int:
        return len(self.token_ids)

    def best(self, n: int) -> Grids:
        """The best n proposals of each position."""
        return Grids(self.token_ids[:, :, :n].copy(), self.logprobs[:, :, :n].copy())

    def first(self, n: int) -> Grids:
        """The first n queries."""
        return Grids(self.token_ids[:n], self.logprobs[:n])


class Proposer:
    """Draws grids over a catalog."""

    def __init__(self, keys: KeyTable) -> None:
        self._trie = LoudsTrie.build(keys, tail=False)
        lengths = np.diff(keys.offsets)
        self._positions = []
        for step in range(keys.max_length):
            tokens = keys.tokens[keys.offsets[:-1][lengths > step] + step]
            distinct, counts = np.unique(tokens, return_counts=True)
            self._positions.append((distinct.astype(np.int64), np.log(counts)))
        self.vocab_size = keys.vocab_size

    def grids(
        self, n_queries: int, n_steps: int, n_proposals: int, head: int, seed: int = 1
    ) -> Grids:
        """Proposals of so many queries, the same for a seed."""
        rng = np.random.default_rng(seed)
        ids = np.empty((n_queries, n_steps, n_proposals), np.uint32)
        for query in range(n_queries):
            truth = self._trie.key(int(rng.integers(self._trie.n_keys)))
            for step in range(n_steps):
                ids[query, step] = self._step(truth, step, n_proposals, head, rng)
        skew = rng.uniform(1.0, 2.0, (n_queries, n_steps, 1))
        values = -skew * np.log(np.arange(1, n_proposals + 1))
        ranks = np.log(np.arange(1, self.vocab_size + 1))
        total = [[np.exp(-s * ranks).sum() for s in row] for row in skew[:, :, 0]]
        values -= np.log(total)[:, :, None]
        return Grids(ids, values.astype(np.float32))

    def _step(
        self, truth: tuple[int, ...], step: int, n: int, head: int, rng: np.random.Generator
    ) -> npt.NDArray[Any]:
        if step < len(self._positions):
            tokens, weights = self._positions[step]
        else:
            tokens, weights = np.empty(0, np.int64), np.empty(0)
        # Adding Gumbel noise to log-weights and taking the largest draws without replacement.
        order = np.argsort(-(weights + rng.gumbel(size=len(tokens))), kind="stable")
        drawn = tokens[order]
        best = np.empty(0, np.int64)
        if head and step < len(truth):
            following, _ = self._trie.children(self._trie.walk(truth[:step]))
            coherent = drawn[np.isin(drawn, following)]
            best = np.concatenate(([truth[step]], coherent[coherent != truth[step]]))[:head]
        rest = drawn[~np.isin(drawn, best)][: n - len(best)]
        # A position may have fewer tokens than are asked for: others are not in the catalog.
        unknown = np.arange(self.vocab_size, self.vocab_size + n - len(best) - len(rest))
        return np.concatenate((best, rest, unknown))
