"""CsrMap: a dense head for the first steps, compressed sparse rows behind it."""

from __future__ import annotations

import itertools
import operator
import types
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from succinct.bits import BitVector
from succinct.format import Parts
from succinct.index import Index, Numbers, Tokens
from succinct.keys import KeyTable
from succinct.maps.csr import lanes
from succinct.maps.csr._csr import CsrCore
from succinct.maps.csr.lanes import CsrLanes
from succinct.trie import _levels
from succinct.trie.passes import Passes

Offsets = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint64]

#: From this many states on, boundaries are 64-bit and next states use the bits that tokens leave.
WIDE = 2**32
#: Words that the masks of a dense head may have; far beyond what memory holds.
MAX_MASK_WORDS = 2**36
_DENSE_BYTES = 12  # of a word of a mask with its state
_ENTRY_BYTES = 8
_OFFSET_BYTES = 4


class CsrMap(Index):
    """Dense masks for the first steps, and for the others compressed sparse rows.

    The sparse transition matrix of STATIC (arXiv:2602.22647): for each prefix of the first
    `dense_levels` lengths a bit-packed mask over the tokens of the step (the start mask is that of
    the empty prefix), and behind them row boundaries and stacked pairs of a token and the state
    that it leads to. A step reads two words of a mask, or two boundaries and log2(continuations)
    pairs, and listing the continuations of a prefix reads them in one run: this is the index for
    speed, where :class:`succinct.StepMap` and :class:`succinct.LoudsTrie` are those for size.

    Where STATIC has a state for every token of a dense row, this has one for every 64: that of the
    first continuation behind, to which the ones before a token are added. A row of the dense head
    covers the tokens in use at its step, and there is one for each prefix that exists. So the
    masks, states, boundaries and pairs never take more than STATIC's
    ``(4 + 1/8) * V**d + 12 * N * (L - d)`` bytes for N keys of L tokens below V >= 5 and d dense
    levels, and mostly far less. Keys of several lengths take a bit and its rank directory for
    every prefix above the last level more; 36 bytes a level hold its sizes.

    Build one with :meth:`build`; :meth:`save` it and :func:`succinct.load` it.

    Notes
    -----
    States are the numbers of the prefixes in level order, key numbers those of the
    :class:`succinct.KeyTable`. From 2**32 states on, boundaries have 64 bits, and the pairs are
    still 64 bits: the token takes what the largest one needs and the state the rest.

    Examples
    --------
    >>> from succinct import CsrMap, KeyTable
    >>> index = CsrMap.build(KeyTable.from_sequences([(1, 2, 3), (1, 2, 4), (2,)]))
    >>> (1, 2, 3) in index, (1, 2) in index
    (True, False)
    >>> tokens, states = index.children(index.walk((1, 2)))
    >>> tokens.tolist(), states.tolist()
    ([3, 4], [4, 5])
    """

    _core: CsrCore
    _fan_outs: Numbers
    lanes: ClassVar[types.ModuleType] = lanes

    @classmethod
    def build(cls, keys: KeyTable, dense_levels: int | Literal["auto"] = "auto") -> Self:
        """Build an index from a table of keys.

        Parameters
        ----------
        keys : KeyTable
            At least one key.
        dense_levels : int or "auto"
            How many steps, from the first, are answered by dense masks; more than the longest key
            has tokens are as many as it has. "auto" takes the number with which the index is
            smallest. A dense step takes 12 bytes for each prefix before it and each 64 tokens in
            use at it.

        Raises
        ------
        ValueError
            If there is no key, or `dense_levels` is negative or would take an impossible amount
            of memory.
        TypeError
            If `keys` is no KeyTable, or `dense_levels` is neither an integer nor "auto".

        Notes
        -----
        One pass over the keys to count and one to fill, O(tokens); memory is that of the index.

        Examples
        --------
        >>> from succinct import CsrMap, KeyTable
        >>> keys = KeyTable.from_rows([[0, 7], [1, 7], [1, 9]])
        >>> [step["layout"] for step in CsrMap.build(keys, dense_levels=1).info()["steps"]]
        ['dense', 'csr']
        """
        if not isinstance(keys, KeyTable):
            raise TypeError(
                f"expected a KeyTable, got {type(keys).__name__}; make one with "
                "KeyTable.from_sequences, from_rows, from_flat, ..."
            )
        wanted = _dense_levels(dense_levels)
        if keys.n_keys == 0:
            raise ValueError("an index needs at least one key, got an empty KeyTable")
        passes = Passes(keys, 1)
        prefixes, low, high = passes.prefixes, passes.low, passes.high
        n_levels = len(low)
        n_dense = _smallest(prefixes, low, high) if wanted is None else min(wanted, n_levels)
        dense, n_words = _dense_table(n_dense, prefixes, low, high)
        starts = _starts(prefixes)
        if n_words > MAX_MASK_WORDS or (n_dense and starts[n_dense + 1] >= 2**32):
            raise ValueError(
                f"dense_levels: {n_dense} levels would take {_DENSE_BYTES * n_words} bytes for "
                f"{starts[n_dense + 1]} states, which is too large; fewer levels take less"
            )
        shift = 32
        if starts[-1] >= WIDE:
            shift = max(1, (keys.vocab_size - 1).bit_length())
            if int(starts[-1]).bit_length() + shift > 64:
                raise ValueError(
                    f"{starts[-1]} states and tokens of {shift} bits do not fit 64 bits together"
                )
        masks = np.zeros(n_words, np.uint64)
        n_rows = int(starts[n_levels] - starts[n_dense])
        offsets: Offsets = np.zeros(n_rows + 1, np.uint32)
        if starts[-1] >= WIDE:
            offsets = offsets.astype(np.uint64)
        entries = np.empty(starts[-1] - starts[n_dense + 1], np.uint64)
        keys_above = keys.n_keys - int(prefixes[-1])
        n_bits = int(starts[n_levels]) if keys_above else 0
        terminal = np.zeros(8 * (n_bits // 512 + 1), np.uint64)
        _levels.fill_rows(keys, prefixes, dense, shift, masks, offsets, entries, terminal[:n_bits])
        if keys_above:
            np.maximum.accumulate(offsets, out=offsets)  # rows without continuations
        bits = BitVector.from_storage(terminal, n_bits)
        core = CsrCore(
            masks, _firsts(masks), dense, offsets, entries, shift, bits, starts, keys_above
        )
        fan_outs = np.zeros(n_levels, np.int64)
        core.largest_rows(fan_outs)
        return cls._of(core, fan_outs, prefixes, low, high)

    @classmethod
    def _of(
        cls, core: CsrCore, fan_outs: Numbers, prefixes: Numbers, low: Tokens, high: Tokens
    ) -> Self:
        n_keys = core.keys_above + int(prefixes[-1])
        params = {
            "n_keys": n_keys,
            "dense_levels": len(core.dense),
            "token_bits": core.shift,
            "offset_bits": 8 * core.offsets.itemsize,
        }
        self = cls(core, prefixes, low, high, params)
        self._fan_outs = fan_outs
        return self

    def lane_arrays(self) -> CsrLanes:
        """The arrays behind the index, for the functions of ``succinct.maps.csr.lanes``."""
        core = self._core
        return CsrLanes(
            masks=core.masks,
            firsts=core.firsts,
            dense=core.dense,
            offsets=core.offsets,
            entries=core.entries,
            shift=np.uint64(core.shift),
            terminal=core.terminal.lane_arrays(),
            starts=core.starts,
            first_row=np.int64(core.first_row),
            first_leaf=np.int64(core.first_leaf),
            n_states=np.int64(core.n_states),
            keys_above=np.int64(core.keys_above),
        )

    # ---- sizes and files --------------------------------------------------------------------

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return int(self._params["n_keys"])

    @property
    def dense_levels(self) -> int:
        """The number of steps that are answered by dense masks."""
        return len(self._core.dense)

    def max_fan_out(self, step: int) -> int:
        """The largest number of continuations that a prefix of length `step` has.

        What a slice of fixed length must hold at that step, and what ``candidates`` must be
        padded to so that nothing is cut off.

        Raises
        ------
        IndexError
            If `step` is not in 0…max_length - 1.

        Examples
        --------
        >>> from succinct import CsrMap, KeyTable
        >>> index = CsrMap.build(KeyTable.from_rows([[0, 7], [1, 7], [1, 9]]))
        >>> [index.max_fan_out(step) for step in range(index.max_length)]
        [2, 2]
        """
        return int(self._fan_outs[self._step(step)])

    def _parts(self) -> list[tuple[str, int]]:
        core = self._core
        return [
            ("masks", core.masks.nbytes),
            ("states", core.firsts.nbytes),
            ("offsets", core.offsets.nbytes),
            ("entries", core.entries.nbytes),
            ("terminal", core.terminal.nbytes),
            ("levels", core.dense.nbytes + self._fan_outs.nbytes),
        ]

    def info(self) -> dict[str, Any]:
        """As for every index; every step also has its ``layout``, bytes and ``max_fan_out``."""
        info = super().info()
        offset, entry = self._core.offsets.itemsize, self._core.entries.itemsize
        for i, step in enumerate(info["steps"]):
            rows = int(self._prefixes[i])
            nbytes = offset * rows + entry * int(self._prefixes[i + 1])
            step["max_fan_out"] = self.max_fan_out(i)
            step["layout"] = "dense" if i < self.dense_levels else "csr"
            if i < self.dense_levels:
                nbytes = _DENSE_BYTES * rows * int(self._core.dense[i, lanes._WORDS])
            step["nbytes"] = nbytes
            step["bits_per_key"] = 8 * nbytes / self.n_keys
        return info

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        core = self._core
        return {
            "masks": core.masks,
            "offsets": core.offsets,
            "entries": core.entries,
            "terminal": core.terminal.words,
            "level_fan_outs": self._fan_outs,
        }

    @classmethod
    def _from_parts(cls, parts: Parts) -> Self:
        prefixes = parts.array("level_prefixes", np.int64)
        low, high = parts.array("level_low", np.uint32), parts.array("level_high", np.uint32)
        n_levels = len(low)
        n_dense = parts.integer("dense_levels", 0, n_levels)
        dense, n_words = _dense_table(n_dense, prefixes, low, high)
        starts = _starts(prefixes)
        masks = parts.array("masks", np.uint64, n_words)
        shift = parts.integer("token_bits", 1, 32)
        if int(high.max()) > 1 << shift:
            raise parts.error(f"token_bits is {shift}, but tokens go up to {int(high.max()) - 1}")
        offset_bits = parts.integer("offset_bits", 32, 64)
        if offset_bits not in (32, 64):
            raise parts.error(f"offset_bits must be 32 or 64, got {offset_bits}")
        n_rows = int(starts[n_levels] - starts[n_dense])
        offsets = parts.array("offsets", f"u{offset_bits // 8}", n_rows + 1)
        entries = parts.array("entries", np.uint64, int(starts[-1] - starts[n_dense + 1]))
        keys_above = parts.integer("n_keys", 1, 2**63 - 1) - int(prefixes[-1])
        if not 0 <= keys_above < int(starts[n_levels]):
            raise parts.error("n_keys is not possible with these counts of prefixes")
        n_bits = int(starts[n_levels]) if keys_above else 0
        try:
            terminal = BitVector.from_storage(parts.array("terminal", np.uint64), n_bits)
        except ValueError as error:
            raise parts.error(f"array 'terminal': {error}") from None
        if terminal.rank1(n_bits) != keys_above:
            raise parts.error(
                f"{terminal.rank1(n_bits)} prefixes above the last level are keys, expected "
                f"{keys_above}"
            )
        if n_dense and starts[n_dense + 1] >= 2**32:
            raise parts.error("the dense levels have too many prefixes")
        bounds = [*dense[:, lanes._AT].tolist(), n_words]
        for step, (begin, end) in enumerate(itertools.pairwise(bounds)):
            ones = int(np.bitwise_count(masks[begin:end]).sum(dtype=np.int64))
            if ones != prefixes[step + 1]:
                raise parts.error(
                    f"array 'masks': {ones} ones at step {step}, expected {prefixes[step + 1]}"
                )
        fan_outs = parts.array("level_fan_outs", np.int64, n_levels)
        if (fan_outs < 1).any() or (fan_outs > prefixes[1:]).any():
            raise parts.error("the largest fan-outs make no sense")
        core = CsrCore(
            masks, _firsts(masks), dense, offsets, entries, shift, terminal, starts, keys_above
        )
        return cls._of(core, fan_outs, prefixes, low, high)

    def _fault(self) -> str | None:
        fault = super()._fault()
        fan_outs = np.zeros_like(self._fan_outs)
        self._core.largest_rows(fan_outs)
        if fault is None and not np.array_equal(fan_outs, self._fan_outs):
            fault = "the largest fan-outs are not those of the structure"
        return fault


def _dense_levels(wanted: Any) -> int | None:
    """The number asked for, or None if it is to be picked."""
    if isinstance(wanted, str) and wanted == "auto":
        return None
    try:
        if isinstance(wanted, (bool, np.bool_)):
            raise TypeError
        number = operator.index(wanted)
    except TypeError:
        raise TypeError(f'dense_levels: expected an integer or "auto", got {wanted!r}') from None
    if number < 0:
        raise ValueError(f"dense_levels: expected 0 or more, got {number}")
    return number


def _starts(prefixes: Numbers) -> Numbers:
    """The first state of every level, and the number of all."""
    starts = np.zeros(len(prefixes) + 1, np.int64)
    np.cumsum(prefixes, out=starts[1:])
    return starts


def _row_words(low: Tokens, high: Tokens) -> list[int]:
    """Words of a dense row of each step; rows begin with a multiple of 64 tokens."""
    return [(b + 63) // 64 - a // 64 for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _smallest(prefixes: Numbers, low: Tokens, high: Tokens) -> int:
    """The number of dense levels that makes the smallest index; the largest such number."""
    counts, words = prefixes.tolist(), _row_words(low, high)
    total = best = 0
    chosen = 0
    for level, n_words in enumerate(words):
        sparse = _ENTRY_BYTES * counts[level + 1] + _OFFSET_BYTES * counts[level]
        total += _DENSE_BYTES * counts[level] * n_words - sparse
        if total <= best and sum(counts[: level + 2]) < 2**32:
            best, chosen = total, level + 1
    return chosen


def _dense_table(
    n_dense: int, prefixes: Numbers, low: Tokens, high: Tokens
) -> tuple[npt.NDArray[np.int64], int]:
    """The table of `succinct.maps.csr.lanes`, and the words of all masks."""
    rows = []
    start = at = 0
    counts, words = prefixes.tolist(), _row_words(low, high)
    for level in range(n_dense):
        rows.append((start, min(at, 2**62), words[level], int(low[level]) & ~63))
        start += counts[level]
        at += counts[level] * words[level]
    return np.array(rows, np.int64).reshape(n_dense, 4), at


def _firsts(masks: Words) -> npt.NDArray[np.uint32]:
    """The state of the first one at or behind the begin of each word, and behind the last."""
    if len(masks) == 0:
        return np.empty(0, np.uint32)
    firsts = np.empty(len(masks) + 1, np.uint32)
    firsts[0] = 1
    np.cumsum(np.bitwise_count(masks), dtype=np.uint32, out=firsts[1:])
    firsts[1:] += np.uint32(1)
    return firsts
