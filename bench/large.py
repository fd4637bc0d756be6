"""Sorted tables of any size, made as a stream: the input of `bench.billion`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

LEVELS = 5
CODES = 2048  # codes of a level; level l has [2048 l, 2048 (l + 1))
_BITS = 11
_SKEW = 0.9
_BATCH = 1 << 22  # rows made at a time, unless one prefix has more
_SKEWED_ROUNDS = 4

U64 = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.uint16]


def blocks(n: int) -> Iterator[Rows]:
    """Distinct synthetic Semantic IDs in lexicographic order: uint16 ``[m, 5]``, n rows together.

    Given its prefix, a code follows Zipf's law over an order of the codes that is particular to
    the prefix. The rows of each prefix of two codes are drawn until they are as many as its share
    of n; the same n gives the same rows.
    """
    share = np.arange(1, CODES + 1, dtype=np.float64) ** -_SKEW
    quantiles = np.searchsorted(np.cumsum(share / share.sum()), (np.arange(2**16) + 0.5) / 2**16)
    table = np.minimum(quantiles, CODES - 1).astype(np.uint64)
    counts = _shares(n, share / share.sum())
    starts = np.concatenate([[0], np.cumsum(counts)])
    first = 0
    while first < len(counts):
        stop = int(np.searchsorted(starts, starts[first] + _BATCH, "right")) - 1
        stop = min(max(stop, first + 1), len(counts))
        if starts[stop] > starts[first]:
            yield _batch(table, first, counts[first:stop])
        first = stop


def _shares(n: int, share: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """How many of n rows begin with each of the 2048 * 2048 pairs of codes."""
    every = np.arange(CODES, dtype=np.uint64)
    weights = np.empty((CODES, CODES))
    for first, weight in enumerate(share[_permuted(every, np.uint64(1))]):
        weights[first] = weight * share[_permuted(every, np.uint64(first + 2))]
    edges = np.floor(n * np.cumsum(weights.reshape(-1) / weights.sum()))
    edges[-1] = n
    return np.diff(edges, prepend=0).astype(np.int64)


def _permuted(ranks: U64, prefix: np.uint64) -> Any:
    # An odd factor permutes the residues modulo a power of two.
    with np.errstate(over="ignore"):
        mixed = _mix.py_func(prefix)
        return (ranks * (mixed | np.uint64(1)) + (mixed >> np.uint64(40))) % np.uint64(CODES)


def _batch(table: U64, first: int, counts: npt.NDArray[np.int64]) -> Rows:
    found = np.empty(0, np.uint64)
    missing, turn = counts, 0
    while missing.any():
        drawn = np.empty(int(missing.sum()), np.uint64)
        _draw(table, first, missing, turn, turn < _SKEWED_ROUNDS, drawn)
        found = np.concatenate([found, drawn])
        found.sort()
        found = found[np.concatenate([[True], found[1:] != found[:-1]])]
        prefixes = (found >> np.uint64(3 * _BITS)).astype(np.int64)
        missing = counts - np.bincount(prefixes, minlength=len(counts))
        turn += 1
    rows = np.empty((len(found), LEVELS), np.uint16)
    _unpack(found, first, rows)
    return rows


@njit(cache=False)  # type: ignore[untyped-decorator]
def _mix(x: Any) -> Any:
    # The finaliser of MurmurHash3 for 64 bits.
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _draw(table: Any, first: int, missing: Any, turn: int, skewed: bool, out: Any) -> None:
    place = 0
    for p in range(len(missing)):
        prefix = np.uint64(first + p)
        stream = _mix(_mix(prefix) + np.uint64(turn))
        for j in range(missing[p]):
            random = _mix(stream + np.uint64(j))
            word = prefix
            for level in range(3):
                bits = (random >> np.uint64(16 * level)) & np.uint64(0xFFFF)
                mixed = _mix(word)
                rank = table[bits] if skewed else bits
                code = rank * (mixed | np.uint64(1)) + (mixed >> np.uint64(40))
                word = word << np.uint64(_BITS) | code & np.uint64(CODES - 1)
            out[place] = word - (np.uint64(first) << np.uint64(3 * _BITS))
            place += 1


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _unpack(words: Any, first: int, out: Any) -> None:
    for i in range(len(words)):
        word = words[i] + (np.uint64(first) << np.uint64(3 * _BITS))
        for level in range(LEVELS):
            code = (word >> np.uint64(_BITS * (LEVELS - 1 - level))) & np.uint64(CODES - 1)
            out[i, level] = code + np.uint64(CODES * level)


def cut(rows: Rows) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Keys of several lengths from the rows of a block: flat tokens, and the length of each.

    One prefix in eight of length 3 and of length 4 takes the place of what continues it, and
    another one in eight is a key beside its continuations. Keys stay sorted and distinct, also
    from block to block, as no two blocks share a prefix of two codes.
    """
    word = np.zeros(len(rows), np.uint64)
    new = np.ones(len(rows), np.bool_)  # the row is the first with its prefix
    whole = np.ones(len(rows), np.bool_)  # no prefix has taken the place of the row
    taken = []
    for level in range(LEVELS):
        code = rows[:, level] - np.uint16(CODES * level)
        word = word << np.uint64(_BITS) | code.astype(np.uint64)
        new[1:] = word[1:] != word[:-1]
        new[:1] = True
        kind = _hashed(word) & np.uint64(7) if 2 <= level < LEVELS - 1 else word * np.uint64(0)
        if 2 <= level < LEVELS - 1:
            taken.append(whole & new & (kind <= 1))
            whole &= kind != 0
    taken.append(whole)
    chosen = np.stack(taken, 1)  # by row, shorter keys first: the order of keys
    lengths = np.broadcast_to(np.arange(3, LEVELS + 1), chosen.shape)[chosen]
    of_row = np.broadcast_to(np.arange(len(rows))[:, None], chosen.shape)[chosen]
    keep = np.arange(LEVELS) < lengths[:, None]
    return rows[of_row][keep], lengths


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _hashed(words: Any) -> Any:
    out = np.empty_like(words)
    for i in range(len(words)):
        out[i] = _mix(words[i]) >> np.uint64(20)
    return out


def write_rows(path: Path, n: int, progress: Callable[[int], object]) -> None:
    """Write n rows to an ``.npy`` file; `progress` is called with the rows of each block."""
    with open(path, "wb") as file:
        _header(file, (n, LEVELS), "<u2")
        for rows in blocks(n):
            rows.tofile(file)
            progress(len(rows))


def write_ragged(
    tokens: Path, offsets: Path, n: int, progress: Callable[[int], object]
) -> tuple[int, int]:
    """Write what `cut` makes of n rows to two ``.npy`` files; the numbers of keys and tokens."""
    n_keys = n_tokens = 0
    with open(tokens, "wb") as token_file, open(offsets, "wb") as offset_file:
        # Headers of one size, whatever the numbers: they are written again at the end.
        _header(token_file, (2**62,), "<u2")
        _header(offset_file, (2**62,), "<i8")
        np.zeros(1, np.int64).tofile(offset_file)
        for rows in blocks(n):
            flat, lengths = cut(rows)
            flat.tofile(token_file)
            (n_tokens + np.cumsum(lengths)).tofile(offset_file)
            n_keys += len(lengths)
            n_tokens += len(flat)
            progress(len(rows))
        token_file.seek(0)
        offset_file.seek(0)
        _header(token_file, (n_tokens,), "<u2")
        _header(offset_file, (n_keys + 1,), "<i8")
    return n_keys, n_tokens


def _header(file: Any, shape: tuple[int, ...], dtype: str) -> None:
    text = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (117 - len(text)) + b"\n"
    file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    file.flush()
