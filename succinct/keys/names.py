"""Many strings in one array of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from . import _scan


class Names(Sequence[str]):
    """A sequence of strings: UTF-8 bytes one after another, and where each starts.

    Takes the bytes of the text and 4 or 8 bytes a name; a list of str takes about 60 more each.

    Examples
    --------
    >>> names = Names.of(["a", "", "\u00e9t\u00e9"])
    >>> len(names), names[-1], list(names[:2])
    (3, 'été', ['a', ''])
    """

    def __init__(self, text: NDArray[np.uint8], offsets: NDArray[np.unsignedinteger[Any]]) -> None:
        self.text, self.offsets = text, offsets

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Collects an iterable of str; TypeError for anything else in it."""
        if isinstance(names, Names):
            return names
        if isinstance(names, str | bytes):
            raise TypeError(f"names must be an iterable of str, not a {type(names).__name__}")
        if not isinstance(names, Iterable):
            raise TypeError(f"names must be an iterable of str, not {names!r:.50}")
        builder = NamesBuilder()
        builder.extend(names)
        return builder.finish()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Names: ...
    def __getitem__(self, row: int | slice) -> str | Names:
        if isinstance(row, slice):
            return self.gathered(np.arange(len(self), dtype=np.int64)[row])
        if not -len(self) <= row < len(self):
            raise IndexError(f"name {row} is not in [0, {len(self)})")
        row %= len(self)
        return bytes(self.text[int(self.offsets[row]) : int(self.offsets[row + 1])]).decode()

    def gathered(self, rows: NDArray[np.int64]) -> Names:
        """The names of some rows, copied one after another."""
        starts = self.offsets.astype(np.int64)
        lengths = np.diff(starts)
        # The offsets may come from a file; the copying loop does not check them.
        if lengths.min(initial=0) < 0 or starts[0] < 0 or starts[-1] > len(self.text):
            raise ValueError("the offsets of the names do not ascend within their text")
        rows = np.ascontiguousarray(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths[rows], out=offsets[1:])
        text = np.empty(int(offsets[-1]), np.uint8)
        _scan.gather(self.text, starts, 0, rows, text)
        return Names(text, packed_offsets(offsets))


class NamesBuilder:
    """Collects names without a Python object for each."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._lengths: list[NDArray[np.int64]] = []
        self._count = 0

    def extend(self, names: Iterable[str]) -> None:
        lengths: list[int] = []
        for name in names:
            if not isinstance(name, str):
                row = self._count + len(lengths)
                raise TypeError(f"name {row} must be a str, not {type(name).__name__} {name!r}")
            try:
                encoded = name.encode()
            except UnicodeEncodeError as error:
                row = self._count + len(lengths)
                raise ValueError(f"name {row} cannot be encoded as UTF-8: {error}") from None
            lengths.append(len(encoded))
            self._text += encoded
        self.extend_encoded(b"", np.array(lengths, np.int64))

    def extend_encoded(self, text: bytes, lengths: NDArray[np.int64]) -> None:
        """Adds names that lie one after another in valid UTF-8 bytes."""
        self._text += text
        self._lengths.append(lengths)
        self._count += len(lengths)

    def finish(self) -> Names:
        offsets = np.zeros(self._count + 1, np.int64)
        if self._lengths:
            np.cumsum(np.concatenate(self._lengths), out=offsets[1:])
        text = np.frombuffer(self._text, np.uint8) if self._text else np.zeros(0, np.uint8)
        return Names(text, packed_offsets(offsets))


def packed_offsets(offsets: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """Offsets in 4 bytes each where that is enough."""
    return offsets.astype(np.uint32 if offsets[-1] < 1 << 32 else np.uint64)
