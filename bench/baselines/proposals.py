"""What searches with proposals are compared with.

All take one query at a time, ``search(token_ids, logprobs)`` with arrays [T, K], and give `Found`.
Those with `exact` give the results of `succinct.beam_search`; the others miss some or give
sequences that are not in the catalog.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.baselines.native import library, pointer
from succinct import KeyTable, LoudsTrie, beam_search

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Setting:
    """How to search: as the arguments of `succinct.beam_search`."""

    beam_width: int
    length_penalty: float = 0.0
    min_token_logprob: float = -inf
    min_logprob: float = -inf

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `beam_search`."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Found:
    """Results of a query, best first. `tokens` is [n, T], of which `lengths` count."""

    scores: _Array
    logprobs: _Array
    lengths: _Array
    tokens: _Array
    numbers: _Array

    @property
    def sequences(self) -> list[tuple[int, ...]]:
        """Tokens of each result."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [tuple(row[:length]) for row, length in rows]


class Ours:
    """The library's search, on any of its indexes."""

    exact = True

    def __init__(self, name: str, index: Any, threads: int | None = None) -> None:
        self.name = name
        self.index = index
        self.nbytes = int(index.nbytes)
        self.threads = threads

    def search(self, token_ids: _Array, logprobs: _Array, setting: Setting) -> Any:
        """Search for one query."""
        return beam_search(
            self.index, token_ids, logprobs, num_threads=self.threads, **setting.arguments()
        )[0]


class _Bits(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("words", "counts", "samples1", "samples0")]


class _Trie(ctypes.Structure):
    _fields_ = [
        *((name, _Bits) for name in ("topology", "terminal", "link", "tail_end")),
        *((name, ctypes.c_void_p) for name in ("slots", "tail", "cache")),
        *((name, ctypes.c_int64) for name in ("n_nodes", "cache_mask", "has_links")),
    ]


class _Query(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("tokens", "logprobs", "factors")),
        *((n, ctypes.c_int64) for n in ("n_steps", "n_proposals", "width", "max_results")),
        *((name, ctypes.c_float) for name in ("min_token", "min_sum")),
    ]


class _Answer(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_void_p) for n in ("scores", "sums", "numbers", "lengths", "tokens")),
        ("phases", ctypes.c_double * 4),
    ]


class _InC:
    """Takes queries to one of the searches in C."""

    exact = True
    name = ""
    nbytes = 0
    threads = 1

    def __init__(self) -> None:
        self._native = library("marisa")
        # Seconds of the last search of MARISA-Opt by phase.
        self.phases: list[float] = []
        self._kept: list[_Array] = []

    def _run(
        self, token_ids: _Array, logprobs: _Array, setting: Setting, max_results: int
    ) -> Found:
        n_steps, n_proposals = token_ids.shape
        tokens = np.ascontiguousarray(token_ids, np.uint32)
        values = np.ascontiguousarray(logprobs, np.float32)
        lengths = np.arange(1, n_steps + 1)
        factors = np.ones(n_steps + 1)
        factors[1:] = [(6.0 / (5.0 + int(n))) ** setting.length_penalty for n in lengths]
        query = _Query(
            pointer(tokens, np.uint32),
            pointer(values, np.float32),
            pointer(factors, np.float64),
            n_steps,
            n_proposals,
            setting.beam_width,
            max_results,
            setting.min_token_logprob,
            setting.min_logprob,
        )
        found = Found(
            np.empty(max_results, np.float64),
            np.empty(max_results, np.float32),
            np.empty(max_results, np.int64),
            np.empty((max_results, n_steps), np.uint32),
            np.empty(max_results, np.int64),
        )
        answer = _Answer(
            pointer(found.scores, np.float64),
            pointer(found.logprobs, np.float32),
            pointer(found.numbers, np.int64),
            pointer(found.lengths, np.int64),
            pointer(found.tokens, np.uint32),
        )
        n = self._call(ctypes.byref(query), ctypes.byref(answer))
        self.phases = list(answer.phases)
        return Found(*(array[:n] for array in found.__dict__.values()))

    def _call(self, query: Any, answer: Any) -> int:
        raise NotImplementedError

    def search(self, token_ids: _Array, logprobs: _Array, setting: Setting) -> Found:
        """Search for one query."""
        return self._run(token_ids, logprobs, setting, setting.beam_width)

    def _bits(self, lanes: Any) -> _Bits:
        """The bits of a vector of the library with a directory of its own."""
        native = library("rank_select")
        blocks = len(lanes.words) // 8
        counts = np.empty(blocks + 17, np.uint32)
        samples = [np.empty(blocks // 2 + 3, np.uint32) for _ in range(2)]
        arrays = [counts, *samples]
        native.build(
            pointer(lanes.words, np.uint64),
            ctypes.c_int64(blocks),
            *(pointer(array, np.uint32) for array in arrays),
        )
        self._kept += [lanes.words, *arrays]
        # As the samples of ones and of zeros together are one for 1024 bits.
        self.nbytes += lanes.words.nbytes + counts.nbytes + 2 * blocks
        return _Bits(lanes.words.ctypes.data, *(array.ctypes.data for array in arrays))

    def _array(self, array: _Array) -> int:
        self._kept.append(array)
        self.nbytes += array.nbytes
        return int(array.ctypes.data)

    def _trie(self, louds: LoudsTrie) -> _Trie:
        """A trie with slots of 32 bits of the structure of a trie of the library."""
        arrays = louds.lane_arrays()
        links = _unpack_bits(arrays.link, int(arrays.n_nodes) if arrays.has_links else 0)
        slots = arrays.slots.astype(np.uint32)
        place = np.flatnonzero(links)
        plain = np.flatnonzero(~links) if len(links) else np.arange(len(slots))
        slots[plain] |= _unpack(arrays.label_high, len(plain)).astype(np.uint32) << 16
        trie = _Trie()
        trie.topology, trie.terminal = self._bits(arrays.topology), self._bits(arrays.terminal)
        if len(place):
            slots[place] |= _unpack(arrays.link_high, len(place)).astype(np.uint32) << 16
            trie.link, trie.tail_end = self._bits(arrays.link), self._bits(arrays.tail_end)
            trie.tail = self._array(_unpack(arrays.tail, int(arrays.tail_length)).astype(np.uint32))
        trie.slots = self._array(slots)
        trie.n_nodes, trie.has_links = len(slots), len(place) > 0
        return trie


class MarisaOpt(_InC):
    """No tails, states kept, a pool of workers, one bounded heap; `match` is how children are
    matched with proposals: as published by a merge, or otherwise."""

    MATCHES = ("merge", "binary search", "linear probe", "per child")

    def __init__(self, keys: KeyTable, threads: int | None = None, match: str = "merge") -> None:
        super().__init__()
        self.threads = threads = threads or len(os.sched_getaffinity(0))
        self.name = "MARISA-Opt"
        if match != "merge":
            self.name += f", {match}"
        if threads == 1:
            self.name += ", one thread"
        self._at = self._trie(LoudsTrie.build(keys, tail=False))
        self._mode = ctypes.c_int64(self.MATCHES.index(match))
        self._native.new_pool.restype = ctypes.c_void_p
        self._native.opt_search.restype = ctypes.c_int64
        self._pool = ctypes.c_void_p(self._native.new_pool(ctypes.c_int64(threads)))
        weakref.finalize(self, self._native.free_pool, self._pool)

    def _call(self, query: Any, answer: Any) -> int:
        trie = ctypes.byref(self._at)
        return int(self._native.opt_search(trie, query, self._pool, self._mode, answer))


class MarisaInt(_InC):
    """Tails, a cache, two walks from the root for each candidate, a partial sort, one thread.

    With `scan` the children are gone through in turn, as in MARISA, and not searched.
    """

    def __init__(self, keys: KeyTable, scan: bool = False) -> None:
        super().__init__()
        self.name = "MARISA-Int, children in turn" if scan else "MARISA-Int"
        self._at = self._trie(LoudsTrie.build(keys, tail=True))
        # As MARISA's cache of normal size: a transition for every 512 keys, 256 at least.
        size = 1 << max(8, (keys.n_keys // 512).bit_length())
        self._at.cache = self._array(np.zeros(size * 3, np.uint32))
        self._at.cache_mask = size - 1
        self._native.fill_cache(ctypes.byref(self._at))
        self._native.int_search.restype = ctypes.c_int64
        self._scan = ctypes.c_int64(scan)

    def _call(self, query: Any, answer: Any) -> int:
        return int(self._native.int_search(ctypes.byref(self._at), query, self._scan, answer))


class Unconstrained(_InC):
    """No index. With `tokens_of` a filter of each position (PPT); with `index`, prefixes of all
    steps that are keys are kept afterwards (post-generation filtering)."""

    exact = False

    def __init__(self, name: str, filters: list[_Array] | None = None, index: Any = None) -> None:
        super().__init__()
        self.name = name
        self._index = index
        self._filters, self._stride = ctypes.c_void_p(None), 0
        if filters is not None:
            self._stride = 1 + max(int(tokens.max(initial=0)) for tokens in filters) // 64
            bools = np.zeros((len(filters), 64 * self._stride), bool)
            for step, tokens in enumerate(filters):
                bools[step, tokens] = True
            words = np.packbits(bools, axis=1, bitorder="little").view(np.uint64)
            self._filters = ctypes.c_void_p(self._array(words))
        elif index is not None:
            self.nbytes = int(index.nbytes)
        self._native.free_search.restype = ctypes.c_int64

    def _call(self, query: Any, answer: Any) -> int:
        stride = ctypes.c_int64(self._stride)
        return int(self._native.free_search(self._filters, stride, query, answer))

    def search(self, token_ids: _Array, logprobs: _Array, setting: Setting) -> Found:
        """Search for one query."""
        found = self._run(token_ids, logprobs, setting, setting.beam_width * len(token_ids))
        if self._index is not None:
            keep = _key_numbers(self._index, found) >= 0
            found = Found(*(array[keep] for array in found.__dict__.values()))
        return Found(*(array[: setting.beam_width] for array in found.__dict__.values()))


class DictTrie:
    """Nested dicts; every beam is one round of Python over the tokens that it shares with the
    proposals, as decoders in Python do it."""

    exact = True
    name = "dict trie"
    threads = 1

    def __init__(self, keys: KeyTable) -> None:
        self.nbytes = 0
        self._root: dict[int, Any] = {}
        for sequence in keys:
            node = self._root
            for token in sequence:
                node = node.setdefault(token, {})
            node[-1] = True

    def search(self, token_ids: _Array, logprobs: _Array, setting: Setting) -> Found:
        """Search for one query."""
        frontier: list[Any] = [(0.0, (), self._root)]
        results: list[Any] = []
        for step, (ids, values) in enumerate(
            zip(token_ids.tolist(), logprobs.astype(np.float32), strict=True)
        ):
            factor = (6.0 / (6.0 + step)) ** setting.length_penalty
            proposed = dict(zip(ids, values, strict=True))
            grown = []
            for parent, (total, prefix, node) in enumerate(frontier):
                for token in node.keys() & proposed.keys():
                    value = proposed[token]
                    score = np.float32(total + value)
                    if not (value > setting.min_token_logprob and score > setting.min_logprob):
                        continue
                    child = node[token]
                    entry = (-score, parent, token, (score, (*prefix, token), child))
                    if -1 in child:
                        results.append((-float(score) * factor, step, parent, token, entry[3]))
                    if len(child) > (-1 in child):
                        grown.append(entry)
            grown.sort(key=lambda entry: entry[:3])
            frontier = [entry[3] for entry in grown[: setting.beam_width]]
            if not frontier:
                break
        results.sort(key=lambda entry: entry[:4])
        results = results[: setting.beam_width]
        tokens = np.zeros((len(results), len(token_ids)), np.uint32)
        for row, (*_, (_, sequence, _)) in zip(tokens, results, strict=True):
            row[: len(sequence)] = sequence
        return Found(
            np.array([-entry[0] for entry in results]),
            np.array([entry[4][0] for entry in results], np.float32),
            np.array([len(entry[4][1]) for entry in results], np.int64),
            tokens,
            np.full(len(results), -1),
        )


def position_tokens(keys: KeyTable) -> list[_Array]:
    """Tokens that some key has at each position."""
    lengths = np.diff(keys.offsets)
    return [
        np.unique(keys.tokens[keys.offsets[:-1][lengths > step] + step]).astype(np.int64)
        for step in range(keys.max_length)
    ]


def _key_numbers(index: Any, found: Found) -> _Array:
    numbers = np.full(len(found.lengths), -1, np.int64)
    for length in np.unique(found.lengths):
        rows = np.flatnonzero(found.lengths == length)
        numbers[rows] = index.key_ids(found.tokens[rows, :length])
    return numbers


def _unpack_bits(lanes: Any, length: int) -> _Array:
    return np.unpackbits(lanes.words.view(np.uint8), bitorder="little")[:length].astype(bool)


def _unpack(lanes: Any, length: int) -> _Array:
    from succinct.bits import PackedArray

    if lanes.width == 0:
        return np.zeros(length, np.uint64)
    return PackedArray.from_storage(lanes.words, length, int(lanes.width))[:]
