"""What is measured: ways to store a set of token sequences and to look sequences up in it.

Turning token sequences into what a library takes as keys is `prepare` and `encode`; neither is
timed.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench.baselines.native import library, pointer
from bench.baselines.proposals import MarisaInt, MarisaOpt
from succinct import CsrMap, KeyTable, LoudsTrie, StepMap

Sequences = Sequence[tuple[int, ...]]
_DICT_LIMIT = 200_000  # nested dicts of more keys are weighed on that many and scaled up


class Peer:
    """One way to store the keys.

    What is None is not offered: `batch` looks many keys up, `key` gives the key of a number,
    `many_keys` those of an array of numbers, and `stream` goes through all keys in their order.
    `each` looks many keys up one after the other, where a call from Python would take longer.
    """

    name = ""
    absent = ""
    note = ""
    batch: Callable[[Any], Any] | None = None
    each: Callable[[Any], Any] | None = None
    key: Callable[[int], Any] | None = None
    many_keys: Callable[[Any], Any] | None = None
    stream: Callable[[], Iterable[Any]] | None = None

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        """Bring the keys into the form that `build` takes."""

    def build(self) -> None:
        """Build the index."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Bytes of the index."""
        raise NotImplementedError

    def encode(self, sequences: Sequences) -> Sequence[Any]:
        """Bring sequences into the form that `one` takes."""
        return sequences

    def encode_batch(self, sequences: Sequences) -> Any:
        """Bring sequences into the form that `batch` takes."""
        return self.encode(sequences)

    def one(self, key: Any) -> Any:
        """Number of one key."""
        raise NotImplementedError


class Ours(Peer):
    """An index of the library; `make` builds it from a table of keys."""

    def __init__(self, name: str, make: Callable[[KeyTable], Any]) -> None:
        self.name = name
        self._make = make

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        self._keys = keys

    def build(self) -> None:
        index = self._make(self._keys)
        self._index, self.one, self.batch = index, index.key_id, index.key_ids
        self.key, self.many_keys, self.stream = index.key, index.key_tokens, index.completions

    def nbytes(self) -> int:
        return int(self._index.nbytes)

    def encode_batch(self, sequences: Sequences) -> Any:
        # What has one length is an array of rows to whoever has many.
        fixed = self._keys.fixed_length is not None
        return np.array(sequences, np.uint32) if fixed else sequences


class PackedTrie(Peer):
    """A trie of packed levels in C: tokens in as few bits as they need, and bits of siblings."""

    name = "packed levels in C, -march=native"
    note = "no calls from Python"

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        self._keys = keys
        self._trie: ctypes.c_void_p | None = None
        try:
            self._native = library("packed_trie")
        except RuntimeError as error:
            self.absent = str(error)
            return
        self._native.packed_build.restype = ctypes.c_void_p
        self._native.packed_bytes.restype = ctypes.c_int64
        self.each = partial(self._look_up, self._native.packed_one_by_one)
        self.batch = partial(self._look_up, self._native.packed_batch)

    def build(self) -> None:
        self.free()
        tokens = np.ascontiguousarray(self._keys.tokens, np.uint32)  # held during the call
        offsets = self._keys.offsets
        self._trie = ctypes.c_void_p(
            self._native.packed_build(
                pointer(tokens, np.uint32),
                pointer(offsets, np.int64),
                ctypes.c_int64(len(offsets) - 1),
                ctypes.c_int64(self._keys.max_length),
            )
        )

    def free(self) -> None:
        """Give the memory back."""
        if self._trie is not None:
            self._native.packed_free(self._trie)
            self._trie = None

    def nbytes(self) -> int:
        nbytes = int(self._native.packed_bytes(self._trie))
        self.free()
        return nbytes

    def encode_batch(self, sequences: Sequences) -> Any:
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum(list(map(len, sequences)), out=offsets[1:])
        tokens = np.fromiter(itertools.chain.from_iterable(sequences), np.uint32, int(offsets[-1]))
        return tokens, offsets

    def _look_up(self, function: Any, asked: Any) -> Any:
        tokens, offsets = asked
        out = np.empty(len(offsets) - 1, np.int64)
        function(
            self._trie,
            pointer(tokens, np.uint32),
            pointer(offsets, np.int64),
            pointer(out, np.int64),
            ctypes.c_int64(len(out)),
        )
        return out


class Published(Peer):
    """Bytes of the tries that FlashTrie is compared with; their searches are in another suite."""

    def __init__(self, kind: type[MarisaInt] | type[MarisaOpt]) -> None:
        self.name = f"{kind.__name__.replace('Marisa', 'MARISA-')}, 32-bit slots"
        self.note = "bytes only"
        self._kind = kind

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        try:
            self._trie = self._kind(keys)
        except RuntimeError as error:
            self.absent = str(error)

    def nbytes(self) -> int:
        return self._trie.nbytes


class Marisa(Peer):
    """marisa-trie, at the settings that take the fewest bytes for a sample of the keys."""

    def __init__(self, kind: str, name: str, encode: Callable[[tuple[int, ...]], Any]) -> None:
        self.name = f"marisa-trie, {name}"
        self._kind, self._encode = kind, encode
        if find_spec("marisa_trie") is None:
            self.absent = "marisa-trie is not installed"

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        import marisa_trie

        self._make = getattr(marisa_trie, self._kind)
        self._keys = self.encode(sequences)
        # Neighbours share prefixes, so the sample is a run of keys and not every n-th.
        sample = self._keys[: max(50_000, len(self._keys) // 10)]
        options = [
            {"num_tries": n, "binary": b, "order": o, "cache_size": marisa_trie.TINY_CACHE}
            for n in (1, 2, 3, 5, 8)
            for b in (False, True)
            for o in (marisa_trie.LABEL_ORDER, marisa_trie.WEIGHT_ORDER)
        ]
        self._options = min(options, key=lambda o: len(self._make(sample, **o).tobytes()))
        self.note = f"{self._options['num_tries']} tries"

    def build(self) -> None:
        self._trie = self._make(self._keys, **self._options)
        self.one, self.key, self.stream = (
            self._trie.get,
            self._trie.restore_key,
            self._trie.iterkeys,
        )

    def nbytes(self) -> int:
        return len(self._trie.tobytes())

    def encode(self, sequences: Sequences) -> Sequence[Any]:
        return list(map(self._encode, sequences))


def as_text(sequence: tuple[int, ...]) -> str:
    """A character for each token; none is NUL or a surrogate, which utf-8 cannot encode."""
    return "".join(chr(t + 1 if t + 1 < 0xD800 else t + 0x801) for t in sequence)


def as_words(sequence: tuple[int, ...]) -> bytes:
    """Four bytes for each token, the most significant first."""
    return np.array(sequence, dtype=">u4").tobytes()


class Ducer(Peer):
    """ducer.Map: a finite-state transducer over bytes, four for each token."""

    name = "ducer, 4 bytes"

    def __init__(self) -> None:
        if find_spec("ducer") is None:
            self.absent = "ducer is not installed"

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        self._items = [(key, number) for number, key in enumerate(sorted(self.encode(sequences)))]

    def build(self) -> None:
        import ducer

        self._data = ducer.Map.build(":memory:", self._items)
        index = ducer.Map(self._data)
        self.one, self.stream = index.get, index.keys

    def nbytes(self) -> int:
        return len(memoryview(self._data))

    def encode(self, sequences: Sequences) -> Sequence[Any]:
        return list(map(as_words, sequences))


class HashTable(Peer):
    """A Python dict from tuples to numbers."""

    name = "dict of tuples"

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        self._keys = sequences

    def build(self) -> None:
        self._numbers = {sequence: number for number, sequence in enumerate(self._keys)}
        self.one, self.stream = self._numbers.__getitem__, self._numbers.keys

    def nbytes(self) -> int:
        # Tokens are small integers, many of them shared.
        return sys.getsizeof(self._numbers) + sum(map(sys.getsizeof, self._keys))


class NestedDicts(Peer):
    """A dict per node, from token to child, as published decoders use; -1 maps to the number."""

    name = "nested dicts"

    def prepare(self, keys: KeyTable, sequences: Sequences) -> None:
        self._keys = sequences

    def build(self) -> None:
        self._root: dict[int, Any] = {}
        for number, sequence in enumerate(self._keys):
            node = self._root
            for token in sequence:
                node = node.setdefault(token, {})
            node[-1] = number

    def nbytes(self) -> int:
        # The dicts only: tokens are small integers, many of them shared.
        share = min(1.0, _DICT_LIMIT / len(self._keys))
        stop = share * len(self._root)
        nbytes, pending = 0, [c for i, c in enumerate(self._root.values()) if i < stop]
        weighed = 0
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                nbytes += sys.getsizeof(node)
                pending.extend(node.values())
            else:
                weighed += 1
        if weighed < len(self._keys):
            self.note = f"bytes from {weighed:,} keys"
        return nbytes * len(self._keys) // weighed + sys.getsizeof(self._root)

    def one(self, key: tuple[int, ...]) -> int:
        node = self._root
        for token in key:
            node = node[token]
        return int(node[-1])


def peers() -> list[Peer]:
    """The library first, then the others."""
    return [
        Ours("StepMap, small", StepMap.build),
        Ours("StepMap, small, no tails", partial(StepMap.build, tail=False)),
        Ours("StepMap, fast", partial(StepMap.build, layout="fast")),
        Ours("LoudsTrie", LoudsTrie.build),
        Ours("LoudsTrie, no tails", partial(LoudsTrie.build, tail=False)),
        Ours("CsrMap", CsrMap.build),
        PackedTrie(),
        Published(MarisaInt),
        Published(MarisaOpt),
        Marisa("Trie", "utf-8", as_text),
        Marisa("BinaryTrie", "4 bytes", as_words),
        Ducer(),
        HashTable(),
        NestedDicts(),
    ]
