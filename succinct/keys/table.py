"""KeyTable: the sorted, distinct token sequences that every index is built from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _scan, external
from .files import Path, Progress
from .names import NamesBuilder
from .parquet import list_column
from .sequences import (
    Sequences,
    Tokens,
    chunks_of,
    from_flat_arrays,
    from_matrix,
)
from .sorting import differs, sorted_order, sorted_places, sorted_unique
from .text import Tokenizer, integer_lines, tokenized_lines

# What finding the places of rows takes of memory for each, about.
_PLACE_BYTES = 16
_CHUNK = 1 << 16  # rows at a time


class KeyTable:
    """Sorted, distinct keys: token sequences of one or of several lengths.

    The keys lie one after another in one flat array in lexicographic order (a prefix before its
    extensions), each token in the fewest whole bytes that the vocabulary needs. Read level by level
    this array is a trie, which is all that an index is built from. Keys are *numbered* in level
    order: shorter keys first, lexicographically among keys of one length.

    Make one with `from_rows`, `from_sequences`, `from_flat`, `from_text`, `from_parquet` or
    `from_lines`. Input may come in any order and with duplicates.

    Parameters
    ----------
    rows, source, n_rows
        Internal; use the constructors named above.

    Attributes
    ----------
    tokens : ndarray of uint8, uint16, uint32 or uint64, shape [T]
        All keys one after another, read-only.
    n_keys : int
        Number of distinct keys.
    n_duplicates : int
        Number of input rows that were dropped because they repeat another row.
    fixed_length : int or None
        Length of every key, None if they differ or if there are no keys.
    max_length : int
        Length of the longest key, 0 without keys.
    vocab_size : int
        Largest token + 1, 0 without keys.

    Notes
    -----
    Space: T tokens of 1, 2 or 4 bytes, and 8 bytes a key for offsets unless all keys have one
    length. Time: O(T + N log N) word operations for N rows; sorted distinct rows are checked in one
    pass and used where they lie, also in a memory-mapped file. They must then not be changed while
    the table is in use; the same holds for unsorted arrays until `key_ids` has been asked for.

    Examples
    --------
    >>> keys = KeyTable.from_sequences([(2,), (1, 2, 4), (1, 2, 3), (2,)])
    >>> keys.n_keys, keys.n_duplicates, keys.max_length, keys.vocab_size
    (3, 1, 3, 5)
    >>> list(keys)
    [(2,), (1, 2, 3), (1, 2, 4)]
    >>> keys.key_ids
    array([0, 2, 1, 0])
    >>> (1, 2, 4) in keys, keys.key_id((1, 2, 4)), keys.key(2)
    (True, 2, (1, 2, 4))
    """

    def __init__(
        self,
        rows: Sequences,
        *,
        n_rows: int,
        source: Sequences | None,
        keep: bool = True,
        limit: int = 1 << 62,
        item_names: Sequence[str] | None = None,
    ) -> None:
        rows.tokens.flags.writeable = False
        self._rows = rows
        self._n_rows = n_rows
        self._source = source
        self._keep = keep
        self._limit = limit
        self._item_names = item_names
        self._offsets: NDArray[np.int64] | None = None
        self._key_ids: NDArray[np.int64] | None = None
        self._max_length: int | None = None
        # Place in `tokens` order of each key number, and the inverse; None while they are equal.
        self._places: NDArray[np.int64] | None = None
        self._numbers: NDArray[np.int64] | None = None

    # Constructors

    @classmethod
    def from_rows(
        cls,
        rows: ArrayLike,
        *,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
    ) -> KeyTable:
        """Makes a table of keys of one length.

        Parameters
        ----------
        rows : array_like of any integer dtype, shape [N, L]
            One key a row; any byte order and memory layout, also a memory map (`np.load` with
            `mmap_mode="r"`). N may be 0.
        key_ids : bool
            Keep what `KeyTable.key_ids` is computed from. False lets go of the input at once.
        memory_limit : int, optional
            Bytes that sorting may take; beyond that, sorted runs go to temporary files. Default:
            half of the memory available.
        temp_dir : path, optional
            Directory of those files; default: that of the system.

        Raises
        ------
        TypeError
            The rows are not integers.
        ValueError
            A token is out of range, the rows are empty or of different lengths.

        Examples
        --------
        >>> keys = KeyTable.from_rows(np.array([[1, 9], [1, 2], [1, 9]]))
        >>> keys.n_keys, keys.fixed_length, keys.tokens
        (2, 2, array([1, 2, 1, 9], dtype=uint8))
        """
        if not hasattr(rows, "__array__"):
            stream = _equal_lengths(chunks_of(rows, "row"))  # type: ignore[arg-type]
            return cls._from_chunks(stream, key_ids, memory_limit, temp_dir)
        matrix = np.asarray(rows)
        return cls._from_array(from_matrix(matrix), key_ids, memory_limit, temp_dir)

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Iterable[int] | NDArray[Any]],
        *,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
    ) -> KeyTable:
        """Makes a table of an iterable of token sequences, which is read once, as a stream.

        Parameters
        ----------
        sequences : iterable of sequences of int
            Tuples, lists, one-dimensional integer arrays, ...; a generator will do.
        key_ids, memory_limit, temp_dir
            See `from_rows`.

        Raises
        ------
        TypeError
            A sequence or a token is of a wrong type, for example a string or a float.
        ValueError
            A sequence is empty or a token out of range.

        Examples
        --------
        >>> KeyTable.from_sequences((i, i % 2) for i in range(3)).tokens
        array([0, 0, 1, 1, 2, 0], dtype=uint8)
        """
        return cls._from_chunks(chunks_of(sequences), key_ids, memory_limit, temp_dir)

    @classmethod
    def from_flat(
        cls,
        tokens: ArrayLike,
        offsets: ArrayLike,
        *,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
    ) -> KeyTable:
        """Makes a table of sequences that lie one after another in a flat array.

        Parameters
        ----------
        tokens : array_like of any integer dtype, shape [T]
            All tokens.
        offsets : array_like of any integer dtype, shape [N + 1]
            Sequence i is ``tokens[offsets[i]:offsets[i + 1]]``; starts at 0, ends at T.
        key_ids, memory_limit, temp_dir
            See `from_rows`.

        Raises
        ------
        TypeError
            An array is not of an integer dtype.
        ValueError
            A token is out of range, a sequence is empty, or the offsets do not fit the tokens.

        Examples
        --------
        >>> list(KeyTable.from_flat(np.array([5, 6, 5]), np.array([0, 2, 3])))
        [(5,), (5, 6)]
        """
        rows = from_flat_arrays(_array(tokens), _array(offsets))
        return cls._from_array(rows, key_ids, memory_limit, temp_dir)

    @classmethod
    def from_text(
        cls,
        path: Path,
        items: bool = False,
        *,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> KeyTable:
        """Makes a table of a text file with one sequence of decimal integers a line.

        Integers are separated by blanks or tabs, or by a comma with or without blanks around it.
        There are no comments; blank lines are allowed at the end of the file only.

        Parameters
        ----------
        path : path
            Plain or compressed by gzip, xz or bzip2, which is told by the content.
        items : bool
            The first column is the name of an item, in UTF-8: what stands before the first tab of
            the line, or where it has none before the first blank or comma. See `item_names`.
        key_ids, memory_limit, temp_dir
            See `from_rows`.
        progress : callable, optional
            Called now and then with the bytes of the file read so far and their total.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            A line is not a list of tokens, or a compressed file is truncated; the message names the
            file and the line.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        ...     _ = file.write("red\\t3 1 4\\nblue\\t3 1\\n")
        ...     file.flush()
        ...     keys = KeyTable.from_text(file.name, items=True)
        >>> list(keys), list(keys.item_names)
        ([(3, 1), (3, 1, 4)], ['red', 'blue'])
        """
        names = NamesBuilder() if items else None
        chunks = integer_lines(path, names, progress)
        return cls._from_chunks(chunks, key_ids, memory_limit, temp_dir, names)

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        column: str,
        items_column: str | None = None,
        *,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> KeyTable:
        """Makes a table of a list column of a Parquet file, read batch by batch.

        Needs pyarrow: ``pip install "succinct-tries[parquet]"``.

        Parameters
        ----------
        path : path
            A Parquet file.
        column : str
            Name of a column of lists (also large or of fixed size) of any integer type.
        items_column : str, optional
            Column with the names of the items. See `item_names`.
        key_ids, memory_limit, temp_dir
            See `from_rows`.
        progress
            See `from_text`.

        Raises
        ------
        ImportError
            pyarrow is not installed.
        OSError, TypeError, ValueError
            The file cannot be read or is not Parquet, a column is absent or of another type, a row
            or a token is null, a sequence is empty, or a token out of range.
        """
        names = None if items_column is None else NamesBuilder()
        chunks = list_column(path, column, items_column, names, progress)
        return cls._from_chunks(chunks, key_ids, memory_limit, temp_dir, names)

    @classmethod
    def from_lines(
        cls,
        source: Path | Iterable[str],
        tokenizer: Tokenizer,
        items: bool = False,
        *,
        pattern: str | None = None,
        key_ids: bool = True,
        memory_limit: int | None = None,
        temp_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> KeyTable:
        """Makes a table of lines of text, tokenized.

        Parameters
        ----------
        source : path or iterable of str
            A UTF-8 text file (plain or compressed, see `from_text`) of one text a line, or texts.
        tokenizer : path or callable
            A `tokenizers` JSON file; a tiktoken rank file (lines of a base64 token and its rank);
            either may be compressed and needs ``pip install "succinct-tries[tokenizers]"``. Or any
            function from a str to integers. Special tokens are never added.
        items : bool
            Keep the lines as names of the items. See `item_names`.
        pattern : str, optional
            Regular expression by which a tiktoken encoding splits words; default: cl100k_base's.
        key_ids, memory_limit, temp_dir
            See `from_rows`.
        progress
            See `from_text`.

        Raises
        ------
        ImportError
            The tokenizer's package is not installed.
        OSError
            A file cannot be read.
        ValueError
            A line has no tokens, or a file is not of a known kind.

        Examples
        --------
        >>> list(KeyTable.from_lines(["ab", "c"], lambda line: list(line.encode())))
        [(99,), (97, 98)]
        """
        names = NamesBuilder() if items else None
        chunks = tokenized_lines(source, tokenizer, pattern, names, progress)
        return cls._from_chunks(chunks, key_ids, memory_limit, temp_dir, names)

    @classmethod
    def _from_array(
        cls, rows: Sequences, key_ids: bool, memory_limit: int | None, temp_dir: Path | None
    ) -> KeyTable:
        limit = _limit(memory_limit)
        source = rows if key_ids else None
        if rows.descent >= 0 and external.work_bytes(rows) > external.within(rows, limit):
            unique = external.merged([rows], limit, _directory(temp_dir))
        else:
            unique = sorted_unique(rows)
        if unique is rows:
            # The input may be writable and stay so; only this view of it is not.
            unique = replace(rows, tokens=rows.tokens.view())
        return cls(unique, n_rows=rows.n_rows, source=source, keep=key_ids, limit=limit)

    @classmethod
    def _from_chunks(
        cls,
        chunks: Iterable[Sequences],
        key_ids: bool,
        memory_limit: int | None,
        temp_dir: Path | None,
        names: NamesBuilder | None = None,
    ) -> KeyTable:
        limit = _limit(memory_limit)
        n_rows = 0

        def counted() -> Iterator[Sequences]:
            nonlocal n_rows
            for chunk in chunks:
                n_rows += chunk.n_rows
                yield chunk

        rows, source = external.sort_chunks(counted(), limit, _directory(temp_dir), key_ids)
        item_names = None if names is None else names.finish()
        return cls(
            rows, n_rows=n_rows, source=source, keep=key_ids, limit=limit, item_names=item_names
        )

    # The table

    @property
    def n_keys(self) -> int:
        return self._rows.n_rows

    @property
    def n_duplicates(self) -> int:
        return self._n_rows - self._rows.n_rows

    @property
    def fixed_length(self) -> int | None:
        return self._rows.length or None

    @property
    def max_length(self) -> int:
        if self._max_length is None:
            self._max_length = self._rows.length
            if not self._rows.length and self.n_keys:
                self._max_length = _scan.row_lengths(self._rows.offsets)[1]
        return self._max_length

    @property
    def vocab_size(self) -> int:
        return self._rows.largest + 1 if self.n_keys else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens and, where lengths differ, of the offsets."""
        return self._rows.nbytes

    @property
    def tokens(self) -> Tokens:
        return self._rows.tokens

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each key starts in `tokens` and the last ends: int64, shape [n_keys + 1]."""
        if self._offsets is None:
            self._offsets = self._rows.bounds().view()
            self._offsets.flags.writeable = False
        return self._offsets

    @property
    def numbers(self) -> NDArray[np.int64] | None:
        """Key number of each key in `tokens` order, int64 [n_keys]; None if that is 0, 1, 2, ..."""
        self._number()
        return self._numbers

    def _number(self) -> None:
        if self._numbers is not None or self._rows.length or not self.n_keys:
            return
        numbers, places = np.empty((2, self.n_keys), np.int64)
        _scan.number_rows(
            self._rows.offsets, np.zeros(self.max_length + 1, np.int64), numbers, places
        )
        self._numbers, self._places = numbers, places
        self._numbers.flags.writeable = False

    @property
    def key_ids(self) -> NDArray[np.int64]:
        """Key number of each input row, int64, shape [input rows].

        Computed when first asked for: the input is sorted once more, this time with its row
        numbers, which takes a few times as long as the table itself did, and a few bytes a row
        besides the result.

        Raises
        ------
        ValueError
            The table was made with ``key_ids=False``.
        """
        if self._key_ids is None:
            if not self._keep:
                raise ValueError("key_ids are not available: the table was made with key_ids=False")
            self._key_ids = self._computed_key_ids()
            self._key_ids.flags.writeable = False
            self._source = None
        return self._key_ids

    def _computed_key_ids(self) -> NDArray[np.int64]:
        source = self._source
        assert source is not None
        if source.descent < 0 and not source.repeats:
            places = np.arange(source.n_rows)
        elif source.descent < 0:
            places = np.cumsum(differs(source), dtype=np.int64) - 1
        elif _PLACE_BYTES * source.n_rows <= self._limit:
            places = sorted_places(source)
        else:
            # Rows of a sorted piece are looked up in order, which goes through the table once.
            places = np.empty(source.n_rows, np.int64)
            row = 0
            for piece in external.pieces(source, self._limit // 4):
                order, distinct = sorted_order(piece)
                unique = sorted_unique(piece)
                found = external.lower_bound(self._rows, unique, exact=True)
                places[row + order] = found[np.cumsum(distinct) - 1]
                row += piece.n_rows
        numbers = self.numbers
        if numbers is not None:
            for start in range(0, len(places), _CHUNK):
                chunk = places[start : start + _CHUNK]
                chunk[:] = numbers[chunk]
        return places

    @property
    def item_names(self) -> Sequence[str] | None:
        """Names of the input rows where the reader was asked for them, else None."""
        return self._item_names

    # Lookup

    def key(self, number: int) -> tuple[int, ...]:
        """The key of a number, a tuple of int; IndexError if there is no such number."""
        if not 0 <= number < self.n_keys:
            raise IndexError(f"key number {number} is not in [0, {self.n_keys})")
        self._number()
        place = number if self._places is None else int(self._places[number])
        start, stop = self._rows.span(place, place + 1)
        return tuple(self._rows.tokens[start:stop].tolist())

    def key_id(self, sequence: Iterable[int]) -> int:
        """The number of a key; O(length * log n_keys).

        Raises
        ------
        KeyError
            The sequence is not a key.
        ValueError, TypeError
            It is not a sequence of tokens.
        """
        sequence = tuple(sequence)
        found = -1
        if sequence:
            (query,) = chunks_of([sequence])
            found = int(external.lower_bound(self._rows, query, exact=True)[0])
        if found < 0:
            raise KeyError(sequence)
        return found if self.numbers is None else int(self.numbers[found])

    def __contains__(self, sequence: Iterable[int]) -> bool:
        try:
            self.key_id(sequence)
        except (KeyError, ValueError):
            return False
        return True

    def __len__(self) -> int:
        return self.n_keys

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """The keys as tuples of int, in the order of their numbers."""
        return (self.key(number) for number in range(self.n_keys))

    def __repr__(self) -> str:
        return (
            f"KeyTable(n_keys={self.n_keys}, n_duplicates={self.n_duplicates}, "
            f"max_length={self.max_length}, vocab_size={self.vocab_size}, nbytes={self.nbytes})"
        )


def _array(values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(values)
    # numpy makes floats of an empty list.
    return array.astype(np.int64) if isinstance(values, list | tuple) and not len(array) else array


def _directory(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _limit(memory_limit: int | None) -> int:
    if memory_limit is None:
        return external.default_limit()
    if memory_limit <= 0:
        raise ValueError(f"memory_limit must be a positive number of bytes, not {memory_limit}")
    return max(memory_limit, external.LEAST_LIMIT)


def _equal_lengths(chunks: Iterable[Sequences]) -> Iterator[Sequences]:
    row, length = 0, 0
    for chunk in chunks:
        if chunk.n_rows:
            lengths = np.diff(chunk.bounds())
            length = length or int(lengths[0])
            if (lengths != length).any():
                place = int(np.argmax(lengths != length))
                raise ValueError(
                    f"row {row + place} has {lengths[place]} tokens where row 0 has {length}; "
                    "rows must have one length (from_sequences takes any lengths)"
                )
        row += chunk.n_rows
        yield chunk
