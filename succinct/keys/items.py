"""The map from a key to the items that have it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _args
from ..errors import FormatError
from .names import Names, packed_offsets
from .table import KeyTable


class KeyNumbering(Protocol):
    """What an ItemMap needs of an index."""

    @property
    def n_keys(self) -> int: ...

    def from_table_ids(self, ids: Any, /) -> Any: ...


class ItemMap:
    """Item names of every key of an index; several items may share a key.

    Names are kept in the order of the index's key numbers, so that the items of one key lie
    together: three flat arrays that are stored in the index file and memory-mapped with it.

    Parameters
    ----------
    index : LoudsTrie or another index
        The index whose key numbers `items` takes.
    keys : KeyTable or array_like of int64, shape [R]
        The table that the index was built from, or the `KeyTable.key_ids` of its input rows.
    names : iterable of str, length R
        The name of the item of each input row.

    Raises
    ------
    ValueError
        There are more or fewer names than rows, or a key number that the table cannot have.
    TypeError
        A name is not a str.

    Notes
    -----
    Space: the UTF-8 bytes of the names, and 4 bytes (8 beyond 4 GiB) each for a name and for a key.
    Time: O(R log R) to make, O(items) for each call of `items`.

    Examples
    --------
    >>> from succinct import ItemMap, KeyTable, LoudsTrie
    >>> keys = KeyTable.from_sequences([(1, 2, 3), (7,), (1, 2, 3)])
    >>> trie = LoudsTrie.build(keys)
    >>> items = ItemMap(trie, keys, ["a", "x", "b"])
    >>> items.items(trie.key_id((1, 2, 3)))
    ['a', 'b']
    """

    def __init__(
        self, index: KeyNumbering, keys: KeyTable | ArrayLike, names: Iterable[str]
    ) -> None:
        if not (hasattr(index, "n_keys") and hasattr(index, "from_table_ids")):
            raise TypeError(f"expected an index such as LoudsTrie, not {type(index).__name__}")
        ids = keys.key_ids if isinstance(keys, KeyTable) else _args.integers(keys, "key numbers")
        if ids.ndim != 1:
            raise ValueError(f"key numbers must have one dimension, not shape {ids.shape}")
        outside = (ids < 0) | (ids >= index.n_keys)
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(f"row {row}: key number {ids[row]} is not in [0, {index.n_keys})")
        collected = Names.of(names)
        if len(collected) != len(ids):
            raise ValueError(f"{len(ids)} rows need as many names, not {len(collected)}")
        numbers = np.asarray(index.from_table_ids(ids.astype(np.int64)), np.int64)
        offsets = np.zeros(index.n_keys + 1, np.int64)
        np.cumsum(np.bincount(numbers, minlength=index.n_keys), out=offsets[1:])
        # Stable: the items of a key keep the order of the input.
        self._names = collected.gathered(np.argsort(numbers, kind="stable"))
        self._offsets = packed_offsets(offsets)
        self._index = index

    @property
    def index(self) -> Any:
        """The index that the map is bound to."""
        return self._index

    @property
    def n_items(self) -> int:
        """Number of names."""
        return len(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Bytes of the names and both arrays of offsets."""
        return sum(array.nbytes for array in self.to_arrays().values())

    def items(self, key_number: int) -> list[str]:
        """Names of all items that have a key, in input order.

        Parameters
        ----------
        key_number : int
            A key number of `index`.

        Raises
        ------
        IndexError
            The index has no key of that number.
        TypeError
            It is not an integer.
        """
        try:
            key_number = operator.index(key_number)
        except TypeError:
            raise TypeError(
                f"key number must be an integer, not {type(key_number).__name__}"
            ) from None
        n_keys = len(self._offsets) - 1
        if not 0 <= key_number < n_keys:
            raise IndexError(f"key number {key_number} is not in [0, {n_keys})")
        first, stop = int(self._offsets[key_number]), int(self._offsets[key_number + 1])
        if not first <= stop <= len(self._names):
            raise FormatError(f"items of key {key_number}: offsets {first}, {stop} do not ascend")
        try:
            return [self._names[row] for row in range(first, stop)]
        except UnicodeDecodeError as error:
            raise FormatError(f"items of key {key_number}: {error}") from None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that hold the map.

        Returns
        -------
        dict
            ``text``: uint8, the UTF-8 bytes of all names in the order of their keys;
            ``name_offsets``: uint32 or uint64 [n_items + 1], where each name starts in `text`;
            ``key_offsets``: uint32 or uint64 [n_keys + 1], the first name of each key.
        """
        return {
            "text": self._names.text,
            "name_offsets": self._names.offsets,
            "key_offsets": self._offsets,
        }

    @classmethod
    def from_arrays(cls, index: KeyNumbering, arrays: Mapping[str, NDArray[Any]]) -> ItemMap:
        """Makes a map of the arrays of `to_arrays`, without a copy.

        Raises
        ------
        FormatError
            An array is missing, or their dtypes or sizes do not fit each other or the index. What
            lies between the first and the last offset is looked at when it is used, or by `verify`.
        """
        expected = {"text": "u1", "name_offsets": "u4 u8", "key_offsets": "u4 u8"}
        for name, dtypes in expected.items():
            if name not in arrays:
                raise FormatError(f"item array {name} is missing")
            array = arrays[name]
            if array.ndim != 1 or array.dtype.str[1:] not in dtypes.split():
                raise FormatError(
                    f"item array {name} must have one dimension and a dtype of {dtypes}, "
                    f"not shape {array.shape} and {array.dtype}"
                )
        names = Names(arrays["text"], arrays["name_offsets"])
        offsets = arrays["key_offsets"]
        if len(offsets) != index.n_keys + 1:
            raise FormatError(
                f"item array key_offsets must have {index.n_keys + 1} entries, not {len(offsets)}"
            )
        _check_ends("name_offsets", names.offsets, len(names.text))
        _check_ends("key_offsets", offsets, len(names))
        made = cls.__new__(cls)
        made._index, made._names, made._offsets = index, names, offsets
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        if getattr(self._index, "items", None) is self:  # it comes with its index
            return operator.attrgetter("items"), (self._index,)
        return ItemMap.from_arrays, (self._index, self.to_arrays())

    def verify(self) -> None:
        """Checks all offsets and that the names are UTF-8; FormatError says what is wrong."""
        for name, array in (("name_offsets", self._names.offsets), ("key_offsets", self._offsets)):
            falls = array[1:] < array[:-1]
            if falls.any():
                raise FormatError(f"item array {name} falls at entry {int(np.argmax(falls)) + 1}")
        for key in range(len(self._offsets) - 1):
            self.items(key)


def _check_ends(name: str, offsets: NDArray[Any], size: int) -> None:
    if not len(offsets) or offsets[0] != 0 or int(offsets[-1]) != size:
        ends = f"{offsets[0]} to {offsets[-1]}" if len(offsets) else "nothing"
        raise FormatError(f"item array {name} must run from 0 to {size}, but has {ends}")
