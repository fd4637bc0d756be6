"""What masking is measured beside: STATIC's algorithm, searches without a trie, a call per row.

Written anew from the papers. Each gives, for rows of log-probabilities and what stands for their
prefixes, the valid tokens with their scores; `exact` says whether these are all and no others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct import CsrMap

Floats = NDArray[np.float32]
Found = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]  # row, token and score of each


class Static:
    """STATIC's step (arXiv:2602.22647) behind its dense levels: for every row as many pairs as
    the largest row of the level has, masked where a row has fewer."""

    exact = True

    def __init__(self, index: CsrMap) -> None:
        arrays = index.lane_arrays()
        pairs = arrays.entries.view(np.uint32).reshape(-1, 2).astype(np.int32)
        self.offsets = arrays.offsets.astype(np.int64)
        self.tokens, self.next = pairs[:, 0], pairs[:, 1]
        self.pairs = pairs
        self.first_row = int(arrays.first_row)
        self.index = index
        self.torch = None
        if importlib.util.find_spec("torch"):
            import torch

            self.torch = torch
            self.pairs_t = torch.from_numpy(pairs)
            self.offsets_t = torch.from_numpy(self.offsets)
        self.name = "STATIC in torch" if self.torch else "STATIC in numpy"

    def prepare(self, logprobs: Floats, states: NDArray[np.uint64], step: int) -> Callable[[], Any]:
        """A call that does the step for these rows."""
        width = self.index.max_fan_out(step)
        rows = states.astype(np.int64) - self.first_row
        if self.torch is None:
            return lambda: self._numpy(logprobs, rows, width)
        torch = self.torch
        values, rows_t = torch.from_numpy(logprobs), torch.from_numpy(rows)
        lanes = torch.arange(width)
        last = len(self.pairs_t) - 1

        def call() -> Any:
            with torch.no_grad():
                begin = self.offsets_t[rows_t]
                count = self.offsets_t[rows_t + 1] - begin
                at = (begin[:, None] + lanes).clamp_(max=last)
                pairs = self.pairs_t[at]
                valid = lanes < count[:, None]
                tokens = torch.where(valid, pairs[..., 0], 0)
                scores = values.gather(1, tokens.long())
                scores = torch.where(valid, scores, -torch.inf)
                return tokens, scores, torch.where(valid, pairs[..., 1], 0), valid

        return call

    def _numpy(self, logprobs: Floats, rows: NDArray[np.int64], width: int) -> Any:
        lanes = np.arange(width)
        begin = self.offsets[rows]
        count = self.offsets[rows + 1] - begin
        at = np.minimum(begin[:, None] + lanes, len(self.pairs) - 1)
        pairs = self.pairs[at]
        valid = lanes < count[:, None]
        tokens = np.where(valid, pairs[..., 0], 0)
        scores = np.take_along_axis(logprobs, tokens, axis=1)
        scores = np.where(valid, scores, np.float32(-np.inf))
        return tokens, scores, np.where(valid, pairs[..., 1], 0), valid

    @staticmethod
    def found(result: Any) -> Found:
        """The valid ones of a result."""
        tokens, scores, _, valid = (np.asarray(part) for part in result)
        return np.nonzero(valid)[0], tokens[valid], scores[valid]


class SortedRows:
    """PPV: binary searches among the sorted keys, for all tokens or the `top` best of each row.

    A row's prefix is the range of the keys that begin with it.
    """

    def __init__(self, rows: NDArray[Any], top: int | None = None) -> None:
        self.rows, self.top = rows, top
        self.exact = top is None
        self.name = "sorted rows (PPV exact)" if top is None else f"sorted rows (PPV top {top})"

    def prepare(
        self, logprobs: Floats, begin: NDArray[np.int64], end: NDArray[np.int64], step: int
    ) -> Callable[[], Found]:
        """A call that does the step for rows whose prefixes are the keys [begin, end)."""
        column = self.rows[:, step]

        def call() -> Found:
            n_rows, n_columns = logprobs.shape
            if self.top is None:
                tokens = np.broadcast_to(np.arange(n_columns), (n_rows, n_columns))
            else:
                tokens = np.argpartition(logprobs, -self.top, axis=1)[:, -self.top :]
            low = np.broadcast_to(begin[:, None], tokens.shape).copy()
            high = np.broadcast_to(end[:, None], tokens.shape).copy()
            for _ in range(int((end - begin).max()).bit_length()):
                middle = (low + high) >> 1
                less = (column[np.minimum(middle, len(column) - 1)] < tokens) & (low < high)
                low = np.where(less, middle + 1, low)
                high = np.where(less, high, middle)
            inside = low < end[:, None]
            valid = inside & (column[np.minimum(low, len(column) - 1)] == tokens)
            row, place = np.nonzero(valid)
            token = tokens[row, place]
            return row, token, logprobs[row, token]

        return call


class HashBitmap:
    """A bit for the hash of every prefix of a key; all tokens of a row are tried.

    Bits that prefixes share let tokens pass that are not valid.
    """

    exact = False

    def __init__(self, rows: NDArray[Any], bits: int = 28) -> None:
        self.name = f"hash bitmap, {2**bits >> 23} MiB"
        self.shift = np.uint64(64 - bits)
        self.words = np.zeros(2 ** (bits - 3), np.uint8)
        hashes = np.zeros(len(rows), np.uint64)
        for column in rows.T:
            hashes = self._next(hashes, column.astype(np.uint64))
            at = hashes >> self.shift
            np.bitwise_or.at(self.words, at >> np.uint64(3), self._bit(at))

    @staticmethod
    def _next(hashes: NDArray[np.uint64], tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
        mixed = (hashes ^ (tokens + np.uint64(1))) * np.uint64(0x9E3779B97F4A7C15)
        return mixed ^ (mixed >> np.uint64(29))

    @staticmethod
    def _bit(at: NDArray[np.uint64]) -> NDArray[np.uint8]:
        return np.left_shift(np.uint8(1), (at & np.uint64(7)).astype(np.uint8))

    def prepare(self, logprobs: Floats, prefixes: NDArray[Any]) -> Callable[[], Found]:
        """A call that does the step for rows with these prefixes."""
        hashes = np.zeros(len(prefixes), np.uint64)
        for column in prefixes.T:
            hashes = self._next(hashes, column.astype(np.uint64))
        tokens = np.arange(logprobs.shape[1], dtype=np.uint64)

        def call() -> Found:
            at = self._next(hashes[:, None], tokens) >> self.shift
            valid = self.words[at >> np.uint64(3)] & self._bit(at) != 0
            row, token = np.nonzero(valid)
            return row, token, logprobs[row, token]

        return call


class Hook:
    """A trie of dicts behind a function that is called for every row, which walks to the row's
    prefix and lists what may follow; its tokens stay, the others become -inf.

    That is how ``prefix_allowed_tokens_fn`` of transformers is used and applied.
    """

    name = "prefix_allowed_tokens_fn, dict trie"
    exact = True

    def __init__(self, rows: NDArray[Any]) -> None:
        self.root: dict[int, Any] = {}
        for row in rows.tolist():
            node = self.root
            for token in row:
                node = node.setdefault(token, {})
        self.torch = None
        if importlib.util.find_spec("torch"):
            import torch

            self.torch = torch

    def allowed(self, _batch: int, prefix: Any) -> list[int]:
        """The tokens that may follow a prefix."""
        node = self.root
        for token in prefix.tolist():
            if token not in node:
                return []
            node = node[token]
        return list(node)

    def prepare(self, logprobs: Floats, prefixes: NDArray[Any]) -> Callable[[], Any]:
        """A call that masks these rows."""
        if self.torch is None:
            ids: Any = prefixes.astype(np.int64)
            scores: Any = logprobs
            full = np.full_like
        else:
            ids = self.torch.from_numpy(prefixes.astype(np.int64))
            scores, full = self.torch.from_numpy(logprobs), self.torch.full_like

        def call() -> Any:
            mask = full(scores, -np.inf)
            for row, prefix in enumerate(ids):
                mask[row, self.allowed(row, prefix)] = 0
            return scores + mask

        return call


def unconstrained(logits: Floats) -> list[NDArray[Any]]:
    """The sequences that a beam search without an index keeps for each request.

    `logits` [steps, requests, beams, V] are log-probabilities of every beam of every step.
    """
    n_steps, n_requests, width, n_codes = logits.shape
    out = []
    for request in range(n_requests):
        scores = np.zeros(1, np.float32)
        sequences = np.empty((1, 0), np.uint32)
        for step in range(n_steps):
            total = (scores[:, None] + logits[step, request, : len(scores)]).reshape(-1)
            best = np.argpartition(-total, width - 1)[:width]
            best = best[np.argsort(-total[best], kind="stable")]
            scores = total[best]
            tokens = (best % n_codes).astype(np.uint32)
            sequences = np.column_stack([sequences[best // n_codes], tokens])
        out.append(sequences)
    return out
