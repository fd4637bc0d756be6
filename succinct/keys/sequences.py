"""Token sequences as flat arrays, and the checks that every input passes before any work."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from succinct._args import MAX_TOKEN
from succinct._ragged import has_bool

from . import _scan

Tokens = NDArray[np.unsignedinteger[Any]]
NO_OFFSETS: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Sequences:
    """`n_rows` checked sequences: rows of `length` tokens, or bounded by `offsets` if that is 0.

    `largest` is the largest token (0 without rows). `descent` is the first row that is smaller
    than its predecessor, -1 if there is none and 0 if that is not known. In sorted rows `repeats`
    counts those that are equal to their predecessor.
    """

    tokens: Tokens
    offsets: NDArray[np.int64]
    length: int
    n_rows: int
    largest: int
    descent: int = 0
    repeats: int = 0

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + self.offsets.nbytes

    def bounds(self) -> NDArray[np.int64]:
        """Offsets of all rows, computed where the length is fixed."""
        if self.length:
            return np.arange(self.n_rows + 1, dtype=np.int64) * self.length
        return self.offsets

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Where the tokens of rows [start, stop) lie."""
        if self.length:
            return start * self.length, stop * self.length
        return int(self.offsets[start]), int(self.offsets[stop])

    def slice(self, start: int, stop: int) -> Sequences:
        """Rows [start, stop): tokens as a view, offsets moved to start from 0."""
        first, last = self.span(start, stop)
        offsets = NO_OFFSETS
        if not self.length:
            offsets = self.offsets[start : stop + 1] - first
        tokens = self.tokens[first:last]
        descent = -1 if self.descent < 0 and not self.repeats else 0
        return Sequences(tokens, offsets, self.length, stop - start, self.largest, descent)


def narrowest(largest: int) -> np.dtype[Any]:
    """The narrowest unsigned dtype that holds `largest`."""
    for dtype in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    return np.dtype(np.uint64)


def from_matrix(rows: NDArray[Any]) -> Sequences:
    """Checks a matrix of tokens; no copy if it is C-contiguous and of native byte order."""
    if rows.ndim != 2:
        raise ValueError(f"rows must be a matrix [N, L], not an array of shape {rows.shape}")
    n_rows, length = rows.shape
    flat = _integers(rows, "rows").reshape(-1)
    if n_rows and not length:
        raise ValueError("row 0 is empty; a sequence has at least one token")

    def place(position: int) -> str:
        return f"row {position // length}, column {position % length}"

    return _scanned(flat, NO_OFFSETS, length, n_rows, place)


def from_flat_arrays(
    tokens: NDArray[Any], offsets: NDArray[Any], first: int = 0, what: str = "sequence"
) -> Sequences:
    """Checks flat tokens and their offsets; messages name `what` and its number from `first`."""
    if tokens.ndim != 1:
        raise ValueError(f"tokens must have one dimension, not shape {tokens.shape}")
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError(f"offsets must have shape [N + 1], not {offsets.shape}")
    if offsets.dtype.kind not in "iu":
        raise TypeError(f"offsets must be integers, not {offsets.dtype}")
    flat = _integers(tokens, "tokens")
    bounds = np.ascontiguousarray(offsets, np.int64)
    n_rows = len(bounds) - 1
    if bounds[0] != 0:
        raise ValueError(f"offsets must start at 0, not at {bounds[0]}")
    shortest, longest, row = _scan.row_lengths(bounds) if n_rows else (0, 0, -1)
    if row >= 0:
        if bounds[row] == bounds[row + 1]:
            raise ValueError(f"{what} {first + row} is empty; a sequence has at least one token")
        raise ValueError(
            f"offsets must ascend: offsets[{row}] is {bounds[row]}, "
            f"offsets[{row + 1}] is {bounds[row + 1]}"
        )
    if bounds[-1] != len(flat):
        raise ValueError(
            f"the last offset must be the number of tokens, {len(flat)}, not {bounds[-1]}"
        )

    def place(position: int) -> str:
        row = int(np.searchsorted(bounds, position, side="right")) - 1
        return f"{what} {first + row}, position {position - int(bounds[row])}"

    length = longest if shortest == longest else 0
    return _scanned(flat, NO_OFFSETS if length else bounds, length, n_rows, place)


def chunks_of(
    sequences: Iterable[Any], what: str = "sequence", first: int = 0
) -> Iterator[Sequences]:
    """Reads an iterable of sequences in chunks of about a million tokens.

    Messages name `what` and the number of the sequence, counted from `first`.
    """
    size = 1 << 20
    if isinstance(sequences, str | bytes | bytearray):
        raise TypeError(f"{what}s must be an iterable of token sequences, not {_kind(sequences)}")
    if not isinstance(sequences, Iterable) and not hasattr(sequences, "__getitem__"):
        raise TypeError(f"{what}s must be an iterable of token sequences, got {sequences!r:.50}")
    buffer, ends = array("q"), array("q", [0])
    for row, sequence in enumerate(sequences, first):
        if isinstance(sequence, np.ndarray):
            values = _one_dimension(sequence, f"{what} {row}")
            buffer.frombytes(values.astype(np.int64, copy=False).tobytes())
        elif isinstance(sequence, str | bytes | bytearray):
            raise TypeError(
                f"{what} {row} must be a sequence of integers, not {_kind(sequence)} {sequence!r}"
            )
        else:
            if type(sequence) in (tuple, list) and has_bool(sequence):
                _explain(sequence, f"{what} {row}")
            try:
                buffer.extend(sequence)
            except (TypeError, OverflowError):
                _explain(sequence, f"{what} {row}")
        if len(buffer) == ends[-1]:
            raise ValueError(f"{what} {row} is empty; a sequence has at least one token")
        ends.append(len(buffer))
        if len(buffer) >= size:
            yield _chunk(buffer, ends, first, what)
            buffer, ends, first = array("q"), array("q", [0]), row + 1
    yield _chunk(buffer, ends, first, what)


def joined(chunks: list[Sequences]) -> Sequences:
    """All chunks one after another, in the narrowest dtype that fits, with the order checked."""
    chunks = [chunk for chunk in chunks if chunk.n_rows]
    if len(chunks) == 1:
        return chunks[0]
    largest = max((chunk.largest for chunk in chunks), default=0)
    n_rows = sum(chunk.n_rows for chunk in chunks)
    tokens: Tokens = np.empty(sum(len(chunk.tokens) for chunk in chunks), narrowest(largest))
    lengths = {chunk.length for chunk in chunks}
    length = lengths.pop() if len(lengths) == 1 else 0
    offsets = NO_OFFSETS if length else np.zeros(n_rows + 1, np.int64)
    place = row = 0
    for chunk in chunks:
        tokens[place : place + len(chunk.tokens)] = chunk.tokens
        if not length:
            offsets[row + 1 : row + chunk.n_rows + 1] = chunk.bounds()[1:] + place
        place += len(chunk.tokens)
        row += chunk.n_rows
    _, _, descent, repeats = _scan.scan(tokens, offsets, length, n_rows, MAX_TOKEN)
    return Sequences(tokens, offsets, length, n_rows, largest, descent, repeats)


def narrowed(rows: Sequences) -> Sequences:
    """The rows in the narrowest dtype: 64 bits a token would be most of a stream's memory."""
    return replace(rows, tokens=rows.tokens.astype(narrowest(rows.largest)))


def _chunk(buffer: Any, ends: Any, first: int, what: str) -> Sequences:
    tokens = np.frombuffer(buffer, np.int64) if len(buffer) else np.zeros(0, np.int64)
    return narrowed(from_flat_arrays(tokens, np.array(ends, np.int64), first, what))


def _integers(array: NDArray[Any], what: str) -> NDArray[Any]:
    """`array` itself if its memory can be read as it lies, else a contiguous native copy."""
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} must have an integer dtype, not {array.dtype}")
    return np.require(array, array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


def _scanned(
    flat: NDArray[Any], offsets: NDArray[np.int64], length: int, n_rows: int, place: Any
) -> Sequences:
    # Read as unsigned, a negative token lies above the largest value of the signed dtype.
    limit = min(MAX_TOKEN, int(np.iinfo(flat.dtype).max))
    tokens = flat.view(f"u{flat.itemsize}")
    bad, largest, descent, repeats = _scan.scan(tokens, offsets, length, n_rows, limit)
    if bad >= 0:
        raise ValueError(f"{place(bad)}: token {flat[bad]} is not in [0, {MAX_TOKEN}]")
    if not n_rows:
        length, offsets = 0, np.zeros(1, np.int64)
    return Sequences(tokens, offsets, length, n_rows, largest, descent, repeats)


def _one_dimension(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.ndim != 1:
        raise ValueError(f"{what} must have one dimension, not shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} must have an integer dtype, not {array.dtype}")
    if array.dtype.kind == "u" and array.itemsize == 8 and (array > MAX_TOKEN).any():
        _explain(array.tolist(), what)
    return array


def _explain(sequence: Any, what: str) -> NoReturn:
    """Raises the error of the first element that is no token."""
    try:
        elements = list(sequence)
    except TypeError:
        raise TypeError(f"{what} must be a sequence of integers, not {_kind(sequence)}") from None
    for position, element in enumerate(elements):
        if isinstance(element, bool) or not hasattr(element, "__index__"):
            raise TypeError(
                f"{what}, position {position}: {element!r} is {_kind(element)}, not an integer"
            )
        if not 0 <= int(element) <= MAX_TOKEN:
            raise ValueError(
                f"{what}, position {position}: token {element} is not in [0, {MAX_TOKEN}]"
            )
    raise TypeError(f"{what}, a {type(sequence).__name__}, could not be read as integers")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
