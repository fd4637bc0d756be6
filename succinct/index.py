"""The protocol that every index over token sequences keeps, and reading one from a file."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
import numpy.typing as npt

from succinct import _args, format
from succinct._ragged import flatten
from succinct._walker import Completions, Core, Walker
from succinct.errors import FormatError
from succinct.keys import ItemMap, KeyTable
from succinct.keys.sorting import sort_sequences

if TYPE_CHECKING:
    from succinct.format import StrPath

#: The state of no prefix: it has no continuation, and every step from it leads back to it.
DEAD = np.uint64(2**64 - 1)

States = npt.NDArray[np.uint64]
Tokens = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]

_KINDS: dict[str, type[Index]] = {}


class Index(Walker):
    """A set of token sequences that can be walked token by token.

    This is the common part of the index kinds; build one of those, as
    :meth:`succinct.LoudsTrie.build`.

    A *state* stands for one prefix of a key and for no other. It is a ``np.uint64``, or a uint64
    array; any integer dtype is accepted. :attr:`root` is the state of the empty prefix, ``DEAD``
    the state of whatever is no prefix of a key. A *key number* is one of 0…n-1.

    Methods that take an array of states, tokens or numbers give an array, those that take one
    give one. A number that is no state of the index, a negative token, or one beyond 2**32 - 2
    raises ``ValueError`` with its place; only ``in`` answers False for such tokens, since a
    sequence with one is certainly no key. Whatever is no integer, a bool included, raises
    ``TypeError`` everywhere.

    An index can be pickled and copied: by way of its arrays, as in a file, with its items.
    """

    items: ItemMap | None
    lanes: ClassVar[types.ModuleType]  # the scalar functions that engines compile

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    def __init__(
        self, core: Core, prefixes: Numbers, low: Tokens, high: Tokens, params: Mapping[str, Any]
    ) -> None:
        super().__init__(core)
        self._prefixes = prefixes
        self._low = low
        self._high = high
        self._vocab_size = int(high.max())
        self._params = dict(params)
        self.items = None

    # ---- what there is ----------------------------------------------------------------------

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        raise NotImplementedError

    @property
    def n_states(self) -> int:
        """The number of distinct prefixes of keys, the empty one included."""
        return int(self._prefixes.sum())

    @property
    def max_length(self) -> int:
        """The length of the longest key."""
        return len(self._low)

    @property
    def vocab_size(self) -> int:
        """The largest token plus one."""
        return self._vocab_size

    @property
    def nbytes(self) -> int:
        """Bytes in memory or mapped, with the rank and select directories."""
        return sum(nbytes for _, nbytes in self._parts())

    @property
    def bits_per_key(self) -> float:
        """``8 * nbytes / n_keys``."""
        return 8 * self.nbytes / self.n_keys

    @property
    def root(self) -> np.uint64:
        """The state of the empty prefix."""
        return np.uint64(0)

    def __len__(self) -> int:
        return self.n_keys

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_keys} keys, {self.n_states} states, "
            f"{self.bits_per_key:.1f} bits a key)"
        )

    def token_range(self, step: int) -> tuple[int, int]:
        """The range [low, high) of the tokens that continue a prefix of length `step`.

        Raises
        ------
        IndexError
            If `step` is not in 0…max_length - 1.
        """
        step = self._step(step)
        return int(self._low[step]), int(self._high[step])

    def density(self, step: int) -> float:
        """Valid continuations of the prefixes of length `step`, as a share of all there could be.

        That is continuations / (prefixes * (high - low)) with the range of :meth:`token_range`.

        Raises
        ------
        IndexError
            If `step` is not in 0…max_length - 1.
        """
        low, high = self.token_range(step)
        return int(self._prefixes[step + 1]) / (int(self._prefixes[step]) * (high - low))

    def _step(self, step: int) -> int:
        try:
            step = operator.index(step)
        except TypeError:
            raise TypeError(f"step must be an integer, got {step!r}") from None
        if not 0 <= step < self.max_length:
            raise IndexError(f"step {step} is out of range (0..{self.max_length - 1})")
        return step

    def lane_arrays(self) -> Any:
        """The arrays behind the index, for the functions of :attr:`lanes`."""
        raise NotImplementedError

    def _parts(self) -> list[tuple[str, int]]:
        """Names and bytes of the parts."""
        raise NotImplementedError

    def info(self) -> dict[str, Any]:
        """Sizes and layout, ready for JSON.

        Returns
        -------
        dict
            ``kind``, ``n_keys``, ``n_states``, ``max_length``, ``vocab_size``, ``nbytes``,
            ``bits_per_key``; ``parts``: bytes, bits a key and share of each; ``steps``: prefixes
            before the step, token range and density of each; and what the kind adds.
        """
        nbytes = self.nbytes
        return {
            "kind": type(self).__name__,
            "n_keys": self.n_keys,
            "n_states": self.n_states,
            "max_length": self.max_length,
            "vocab_size": self.vocab_size,
            "nbytes": nbytes,
            "bits_per_key": self.bits_per_key,
            "parts": [
                {
                    "name": name,
                    "nbytes": part,
                    "bits_per_key": 8 * part / self.n_keys,
                    "share": part / nbytes,
                }
                for name, part in self._parts()
            ],
            "steps": [
                {
                    "step": step,
                    "prefixes": int(self._prefixes[step]),
                    "low": self.token_range(step)[0],
                    "high": self.token_range(step)[1],
                    "density": self.density(step),
                }
                for step in range(self.max_length)
            ],
        }

    # ---- walking ----------------------------------------------------------------------------

    @overload
    def children(self, states: int | np.integer[Any]) -> tuple[Tokens, States]: ...
    @overload
    def children(
        self, states: npt.NDArray[Any] | Sequence[Any]
    ) -> tuple[Numbers, Tokens, States]: ...
    @overload
    def children(self, states: npt.ArrayLike) -> Any: ...
    def children(self, states: Any) -> Any:
        """The continuations of states, tokens ascending.

        Returns
        -------
        tokens : uint32 [n], states : uint64 [n]
            Of one state. O(n).
        offsets : int64 [rows + 1], tokens : uint32, states : uint64
            Of an array of states (taken flat): those of row i lie at
            ``offsets[i]:offsets[i + 1]``.
        """
        array = self._states(states)
        flat = _flat(array)
        offsets = np.zeros(flat.size + 1, np.int64)
        self._core.degrees(flat, offsets[1:])
        np.cumsum(offsets, out=offsets)
        tokens = np.empty(offsets[-1], np.uint32)
        children = np.empty(offsets[-1], np.uint64)
        self._core.children(flat, offsets, tokens, children)
        return (offsets, tokens, children) if array.ndim else (tokens, children)

    def allowed_mask(self, states: Any) -> npt.NDArray[np.int32]:
        """The valid next tokens of every state as bits.

        Returns
        -------
        int32 [..., ceil(vocab_size / 32)]
            Token t is bit t % 32 of word t // 32 in the row of its state; the layout of the
            masks that kernels for structured generation take.
        """
        array = self._states(states)
        words = (self.vocab_size + 31) // 32
        mask = np.zeros((array.size, words), np.uint32)
        self._core.allowed_mask(_flat(array), mask, self.vocab_size)
        return mask.view(np.int32).reshape((*array.shape, words))

    # ---- keys -------------------------------------------------------------------------------

    def key_ids(
        self, sequences: Iterable[Sequence[int]] | npt.NDArray[Any] | KeyTable
    ) -> npt.NDArray[np.int64]:
        """The numbers of many sequences, -1 where one is not a key.

        Parameters
        ----------
        sequences : iterable of sequences, integer array [rows, length], or KeyTable
            A table is taken in its own order, that of its key numbers.
        """
        tokens, offsets = _ragged(sequences)
        out = np.empty(len(offsets) - 1, np.int64)
        self._core.lookup(tokens, offsets, out)
        if isinstance(sequences, KeyTable) and sequences.numbers is not None:
            by_number = np.empty_like(out)
            by_number[sequences.numbers] = out
            return by_number
        return out

    def _key_numbers(self, states: States) -> Numbers:
        out = np.empty(states.size, np.int64)
        self._core.key_numbers(states, out)
        return out

    def state_key_ids(self, states: Any) -> Any:
        """The number of the key that each state stands for, -1 where its prefix is no key."""
        array = self._states(states)
        return self._key_numbers(_flat(array)).reshape(array.shape)[()]

    def key_tokens(self, numbers: npt.ArrayLike) -> tuple[Tokens, Numbers]:
        """The tokens of many keys as one ragged array.

        Returns
        -------
        tokens : uint32, offsets : int64 [len(numbers) + 1]
            The tokens of ``numbers[i]`` lie at ``offsets[i]:offsets[i + 1]``.
        """
        array = _args.positions(numbers, self.n_keys, "key number").reshape(-1)
        offsets = np.zeros(array.size + 1, np.int64)
        bad = self._core.key_lengths(array, offsets[1:])
        if bad >= 0:
            raise FormatError(f"key {array[bad]} cannot be read: the index file is damaged")
        np.cumsum(offsets, out=offsets)
        tokens = np.empty(max(1, offsets[-1]), np.uint32)
        self._core.key_tokens(array, offsets[1:], tokens)
        return tokens[: offsets[-1]], offsets

    def prefixes(self, sequence: Sequence[int] | npt.NDArray[Any]) -> Iterator[tuple[int, ...]]:
        """The keys that are prefixes of a sequence, itself included; shortest first."""
        array = _args.sequence(sequence, "sequence")

        def found() -> Iterator[tuple[int, ...]]:
            # States of our own need no check, which takes its time far into a tail.
            state, is_key = np.array([self.root]), np.zeros(1, np.uint8)
            for i in range(min(len(array), self.max_length)):
                self._core.advance(state, array[i : i + 1], state)
                if state[0] == DEAD:
                    return
                self._core.is_terminal(state, is_key)
                if is_key[0]:
                    yield tuple(array[: i + 1].tolist())

        return found()

    def completions(
        self, prefix: Sequence[int] | npt.NDArray[Any] = ()
    ) -> Iterator[tuple[int, ...]]:
        """The keys that begin with a prefix, itself included; lexicographic, one by one."""
        start = _args.sequence(prefix, "prefix").tolist()
        state = self.walk(start)
        if state == DEAD:
            return iter(())
        return Completions(self._core, start, state, self.max_length)

    @property
    def has_tail(self) -> bool:
        """Whether ends of keys are folded into tails."""
        return False

    def from_table_ids(self, ids: npt.ArrayLike) -> Any:
        """Key numbers of this index from those of the KeyTable that it was built from.

        Without tails they are the same. With tails the conversion is worked out once, in
        O(n_keys log n_keys) time and 8 bytes a key, and kept.
        """
        array = _args.positions(ids, self.n_keys, "key number")
        if not self.has_tail:
            return array[()]
        if self._table_order is None:
            self._table_order = self._by_table_number()
        return self._table_order[array][()]

    _table_order: Numbers | None = None

    def _by_table_number(self) -> Numbers:
        # The table numbers keys by length, then lexicographically, so sort them like that.
        tokens, offsets = self.key_tokens(np.arange(self.n_keys))
        order = sort_sequences(tokens, offsets)
        lengths = np.diff(offsets)[order]
        return order[np.argsort(lengths, kind="stable")]

    # ---- files ------------------------------------------------------------------------------

    @property
    def _format_version(self) -> int:
        """The oldest version that has what is in this index."""
        return 1

    @classmethod
    def build(cls, keys: KeyTable) -> Self:
        """Build an index from keys."""
        raise NotImplementedError

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        raise NotImplementedError

    @classmethod
    def _from_parts(cls, parts: format.Parts) -> Self:
        raise NotImplementedError

    def _fault(self) -> str | None:
        """What is wrong with the structure, or None. Looks at everything."""
        prefixes = np.zeros_like(self._prefixes)
        fault: str | None = self._core.fault(prefixes, self._low, self._high)
        if fault is None and not np.array_equal(prefixes, self._prefixes):
            fault = "the counts of prefixes are not those of the structure"
        if fault is None and self.items is not None:
            try:
                self.items.verify()
            except FormatError as error:
                fault = str(error)
        return fault

    @staticmethod
    def _levels(prefixes: Numbers, low: Tokens, high: Tokens) -> dict[str, npt.NDArray[Any]]:
        """The arrays that files of every kind have."""
        return {"level_prefixes": prefixes, "level_low": low, "level_high": high}

    def save(self, path: StrPath, items: ItemMap | None = None) -> None:
        """Write the index, with the names of its items if given, to a safetensors file.

        The file appears whole or not at all; an older one at the path is replaced.

        Raises
        ------
        OSError
            If the file cannot be written.
        ValueError
            If `items` belongs to another index.
        """
        items = self.items if items is None else items
        if items is not None and not isinstance(items, ItemMap):
            raise TypeError(f"items must be an ItemMap, got {type(items).__name__}")
        if items is not None and items.index is not self:
            raise ValueError("these items are bound to another index")
        arrays = self._all_arrays(items)
        format.write(path, type(self).__name__, self._params, arrays, self._format_version)

    def _all_arrays(self, items: ItemMap | None) -> dict[str, npt.NDArray[Any]]:
        arrays = {**self._arrays(), **self._levels(self._prefixes, self._low, self._high)}
        if items is not None:
            arrays |= {f"items/{name}": array for name, array in items.to_arrays().items()}
        return arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_arrays, (type(self).__name__, self._params, self._all_arrays(self.items))


def load(path: StrPath, mmap: bool = True) -> Index:
    """Read an index from a file that its ``save`` wrote.

    Parameters
    ----------
    path : str or path-like
    mmap : bool
        Map the file instead of reading it: labels are read from disk when first touched and
        shared between processes. The bit-vectors are read once either way, to rebuild and check
        their directories. Do not change a mapped file; replacing it, as ``save`` does, is fine.

    Returns
    -------
    Index
        Of the kind that was saved; ``index.items`` is the :class:`succinct.ItemMap` saved with
        it, or None.

    Raises
    ------
    FormatError
        If the file is not an index of ours, is cut short, of a newer version, or its arrays
        disagree. No file makes the index read outside its arrays; ``succinct verify`` also
        checks every byte.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from succinct import KeyTable, LoudsTrie, load
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1, 2, 3), (1, 4)]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "catalog.safetensors")
    ...     trie.save(path)
    ...     (1, 4) in load(path, mmap=False)
    True
    """
    return _from_file(format.read(path, mmap))


def _from_arrays(kind: str, params: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Index:
    """An index from a pickle or a copy."""
    return _from_file(format.IndexFile(Path("index"), kind, params, arrays, {}))


def _from_file(file: format.IndexFile) -> Index:
    parts = format.Parts(file)
    if file.kind not in _KINDS:
        raise parts.error(f"unknown kind of index {file.kind!r:.50}; known are {', '.join(_KINDS)}")
    prefixes = parts.array("level_prefixes", np.int64)
    if len(prefixes) < 2:
        raise parts.error(f"an index has at least one level, got {len(prefixes) - 1}")
    low = parts.array("level_low", np.uint32, len(prefixes) - 1)
    high = parts.array("level_high", np.uint32, len(prefixes) - 1)
    # The bound keeps sums of counts within 64 bits.
    if prefixes[0] != 1 or (prefixes < 1).any() or prefixes.sum(dtype=np.float64) >= 2**62:
        raise parts.error("the counts of prefixes make no sense")
    if (low >= high).any():
        raise parts.error("the ranges of tokens make no sense")
    index = _KINDS[file.kind]._from_parts(parts)
    items = {
        name.removeprefix("items/"): array
        for name, array in file.arrays.items()
        if name.startswith("items/")
    }
    if items:
        try:
            index.items = ItemMap.from_arrays(index, items)
        except ValueError as error:
            raise parts.error(f"the item names make no sense: {error}") from None
    return index


def verify(path: StrPath) -> Index:
    """Load an index file and check every byte of it: checksums, then the structure itself.

    Raises
    ------
    FormatError
        With what is wrong.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from succinct import KeyTable, LoudsTrie, verify
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1, 2, 3), (1, 4)]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "catalog.safetensors")
    ...     trie.save(path)
    ...     verify(path).n_keys
    2
    """
    file = format.read(path)
    damaged = file.damaged()
    if damaged:
        raise FormatError(f"{path}: checksum mismatch in {', '.join(damaged)}")
    index = _from_file(file)
    fault = index._fault()
    if fault is not None:
        raise FormatError(f"{path}: {fault}")
    return index


def _flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array).reshape(-1)


def _ragged(sequences: Any) -> tuple[Tokens, Numbers]:
    """Tokens and offsets of rows, of an iterable of sequences, or of a table."""
    if isinstance(sequences, KeyTable):
        return np.ascontiguousarray(sequences.tokens, np.uint32), sequences.offsets
    if isinstance(sequences, np.ndarray) and sequences.ndim == 2:
        matrix = _args.tokens(sequences, "rows")
        return _flat(matrix), np.arange(len(matrix) + 1, dtype=np.int64) * matrix.shape[1]
    try:
        rows = iter(sequences)
    except TypeError:
        raise TypeError(f"expected sequences of tokens, got {sequences!r:.50}") from None
    lists = list(rows)
    quick = flatten(lists)
    if quick is not None:
        return quick
    lists = [_args.listed(sequence, f"sequences[{i}]") for i, sequence in enumerate(lists)]
    for i, row in enumerate(lists):
        if isinstance(row, np.ndarray) and row.ndim != 1:
            raise ValueError(
                f"sequences[{i}] must be one sequence of tokens, got shape {row.shape}"
            )
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row) for row in lists], out=offsets[1:])
    flat = list(itertools.chain.from_iterable(lists))
    try:
        return _args.sequence(flat, "tokens"), offsets
    except (TypeError, ValueError):
        for i, row in enumerate(lists):  # find the place
            _args.sequence(row, f"sequences[{i}]")
        raise
