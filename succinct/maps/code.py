"""Canonical Huffman codes of limited length over the tokens of a step; see huffman.h."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Bits of the longest code: as in huffman.h.
CODE_BITS = 16
#: Words of 64 bits in front of the tokens by rank.
TABLE_WORDS = CODE_BITS
_LENGTH_BITS = 8

_Words = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.uint32]


class Code(NamedTuple):
    """A code over tokens counted from the lowest.

    Attributes
    ----------
    tokens : uint32 array
        Those that have a code, by rank.
    table : uint32 array [2 * CODE_BITS]
        For each length from 1 on, where codes that are shorter end, left-aligned; then what is
        added to the first bits of one of this length for its rank.
    words : uint32 array
        For each token its left-aligned code and, in the lowest bits, the length of it.
    """

    tokens: _Numbers
    table: _Numbers
    words: _Numbers


def code_of(counts: npt.NDArray[np.int64]) -> Code:
    """The code of tokens that occur so often; at most 2**CODE_BITS of them do."""
    tokens = np.flatnonzero(counts).astype(np.uint32)
    order = np.argsort(counts[tokens], kind="stable")
    lengths = np.empty(len(tokens), np.int64)
    lengths[order] = code_lengths(counts[tokens[order]])
    by_rank = np.argsort(lengths, kind="stable")
    tokens, lengths = tokens[by_rank], lengths[by_rank]
    sizes = np.left_shift(1, CODE_BITS - lengths)
    words = np.zeros(len(counts), np.uint32)
    words[tokens] = (np.cumsum(sizes) - sizes) << _LENGTH_BITS | lengths
    return Code(tokens, _table(np.bincount(lengths, minlength=CODE_BITS + 1)), words)


def code_lengths(weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Lengths of the best code of at most CODE_BITS bits for ascending weights.

    Package-merge (Larmore and Hirschberg, DOI 10.1145/79147.79150).
    """
    n = len(weights)
    lengths = np.zeros(n, np.int64)
    merged = weights
    single = []  # of the sorted weights and packages of each level: which are weights
    for _ in range(CODE_BITS - 1):
        pairs = merged[: len(merged) // 2 * 2].reshape(-1, 2).sum(axis=1)
        merged = np.concatenate([weights, pairs])
        order = np.argsort(merged, kind="stable")
        merged = merged[order]
        single.append(order < n)
    taken = 2 * n - 2
    for weight in reversed(single):
        leaves = int(np.count_nonzero(weight[:taken]))
        lengths[:leaves] += 1
        taken = 2 * (taken - leaves)
    lengths[:taken] += 1
    return lengths


def _table(sizes: npt.NDArray[np.int64]) -> _Numbers:
    """The table of a code with so many codes of each length, from 0 on."""
    place = np.left_shift(1, CODE_BITS - np.arange(CODE_BITS + 1))
    limits = np.cumsum(sizes * place)
    ranks = np.cumsum(sizes)[:-1]
    behind = limits[:-1] >> CODE_BITS - np.arange(1, CODE_BITS + 1)
    return np.concatenate([limits[:-1], ranks - behind]).astype(np.uint32)


def fault(values: _Words, at: int, count: int, width: int, span: int) -> str | None:
    """What is wrong with the code at bit address `at` that has so many tokens, or None."""
    table = values[at // 64 : at // 64 + TABLE_WORDS].view(np.uint32).astype(np.int64)
    limits = np.append(table[:CODE_BITS], 1 << CODE_BITS)
    sizes = np.diff(limits, prepend=0) >> CODE_BITS - np.arange(CODE_BITS + 1)
    if (sizes < 0).any() or sizes.sum() != count or (_table(sizes) != table).any():
        return f"the code does not have {count} tokens"
    words = values[at // 64 + TABLE_WORDS :][: -(-count * width // 64)]
    words = np.append(words, np.zeros(2, np.uint64))
    place = np.arange(count, dtype=np.uint64) * np.uint64(width)
    word, shift = (place >> np.uint64(6)).astype(np.int64), place & np.uint64(63)
    tokens = words[word] >> shift
    tokens |= words[word + 1] << (np.uint64(63) - shift) << np.uint64(1)
    if ((tokens & np.uint64((1 << width) - 1)) >= span).any():
        return f"tokens in the code are not below {span}"
    return None
