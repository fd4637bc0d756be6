"""Checks of arguments that several layers share: what came, what was expected, and where."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from succinct._ragged import has_bool

#: The largest token; 2**32 - 1 is left to packed forms that need a mark for none.
MAX_TOKEN = 2**32 - 2
# Device types of DLPack whose memory the processor reads: its own, pinned, managed.
_READABLE = (1, 3, 11, 13)


def integers(x: Any, what: str, error: type[Exception] = ValueError) -> npt.NDArray[Any]:
    """An array of any integer dtype from an array-like; nothing is converted silently.

    Raises
    ------
    TypeError
        If the elements are not integers (booleans and floats are none).
    ValueError
        If a nested list is ragged.
    error
        If an element does not fit into 64 bits.
    """
    try:
        array = np.asarray(x)
    except (ValueError, OverflowError) as cause:
        raise ValueError(f"{what} must be a regular array of integers: {cause}") from None
    if array.dtype.kind in "iu":
        if isinstance(x, (list, tuple)) and has_bool(x):
            raise TypeError(f"{what} must be integers, got a bool among them")
        return array
    if not isinstance(x, np.ndarray):
        if array.size == 0:
            return array.astype(np.int64)
        # A list that mixes small and large integers comes out as floats or objects; so do
        # objects that are integers by __index__.
        exact = np.asarray(x, dtype=np.object_)
        values: list[Any] = exact.reshape(-1).tolist()
        if all(hasattr(v, "__index__") and not isinstance(v, (bool, np.bool_)) for v in values):
            exact = np.array([operator.index(v) for v in values], np.object_).reshape(exact.shape)
            values = exact.reshape(-1).tolist()
            outside = [i for i, v in enumerate(values) if not 0 <= v < 2**64]
            if outside:
                raise error(
                    f"{what}{place(exact, outside[0])} = {values[outside[0]]} is out of range"
                )
            return exact.astype(np.uint64)
    raise TypeError(f"{what} must be integers, got {describe(x, array)}")


def describe(x: Any, array: npt.NDArray[Any]) -> str:
    """What came, in the words of an error message."""
    if isinstance(x, np.ndarray) or array.ndim:
        return f"an array of dtype {array.dtype}"
    return f"{x!r} ({type(x).__name__})"


def place(array: npt.NDArray[Any], flat_index: int) -> str:
    """The index of a flat position in an array of any shape, as it is written: ``[3, 17]``."""
    if array.ndim == 0:
        return ""
    return str([int(i) for i in np.unravel_index(flat_index, array.shape)])


def at_least_one(name: str, value: SupportsIndex) -> int:
    """An integer argument that must be positive."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if number < 1:
        raise ValueError(f"{name}: expected at least 1, got {number}")
    return number


def _in_range(
    array: npt.NDArray[Any], low: int, high: int, what: str, error: type[Exception]
) -> None:
    if array.size and (int(array.min()) < low or int(array.max()) > high):
        flat = array.reshape(-1)
        bad = int(np.flatnonzero((flat < low) | (flat > high))[0])
        wanted = f"{low}..{high}" if high >= low else "none is valid"
        raise error(f"{what}{place(array, bad)} = {int(flat[bad])} is out of range ({wanted})")


def positions(x: Any, limit: int, what: str = "position") -> npt.NDArray[np.int64]:
    """Contiguous int64 positions in [0, limit).

    Raises
    ------
    IndexError
        If one is out of range; the message names its place.
    """
    array = integers(x, what, IndexError)
    _in_range(array, 0, limit - 1, what, IndexError)
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)


def plain_positions(x: Any, limit: int, what: str = "position") -> npt.NDArray[np.int64]:
    """As `positions`, but what is int64 and contiguous already is left to be checked in use."""
    if type(x) is np.ndarray and x.dtype == np.int64 and x.flags.c_contiguous:
        return x
    return positions(x, limit, what)


def checked_out(out: Any, like: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to write results to, if it is one for queries like `like`.

    Raises
    ------
    ValueError
        If type, shape or memory layout are not those needed.
    """
    dtype = np.dtype(dtype)
    if (
        not isinstance(out, np.ndarray)
        or out.dtype != dtype
        or out.shape != like.shape
        or not out.flags.c_contiguous
        or not out.flags.writeable
    ):
        got = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else repr(out)
        raise ValueError(
            f"out must be a writable C-contiguous {dtype} array of shape {like.shape}, got {got}"
        )
    return out


def values64(x: Any, what: str = "value") -> npt.NDArray[np.uint64]:
    """Contiguous uint64 values from non-negative integers; a view of them where it can be one.

    Raises
    ------
    ValueError
        If one is negative; the message names its place.
    """
    if type(x) is np.ndarray and x.dtype == np.uint64 and x.flags.c_contiguous:
        return x
    array = integers(x, what)
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        _in_range(array, 0, 2**63 - 1, what, ValueError)
    if array.dtype == np.int64 and array.flags.c_contiguous:
        return array.view(np.uint64)
    return np.ascontiguousarray(array, dtype=np.uint64).reshape(array.shape)


def tokens(x: Any, what: str = "token") -> npt.NDArray[np.uint32]:
    """Contiguous uint32 tokens.

    Raises
    ------
    ValueError
        If one is negative or greater than 2**32 - 2; the message names its place.
    """
    array = integers(x, what)
    _in_range(array, 0, MAX_TOKEN, what, ValueError)
    return np.ascontiguousarray(array, dtype=np.uint32).reshape(array.shape)


def listed(sequence: Any, what: str) -> Any:
    """A sequence as numpy takes it; generators and the like become lists.

    Raises
    ------
    TypeError
        If it cannot be gone through.
    """
    if isinstance(sequence, (np.ndarray, list, tuple)):
        return sequence
    try:
        return list(sequence)
    except TypeError:
        raise TypeError(f"{what} must be a sequence of integers, got {sequence!r:.50}") from None


def sequence(x: Any, what: str = "sequence") -> npt.NDArray[np.uint32]:
    """The tokens of one sequence, from whatever holds one.

    Raises
    ------
    ValueError
        As `tokens` does, or if there is more than one dimension.
    """
    array = tokens(listed(x, what), what)
    if array.ndim != 1:
        raise ValueError(f"{what} must be one sequence of tokens, got shape {array.shape}")
    return array


def on_host(name: str, x: Any) -> Any:
    """An array of what exports memory of the processor; anything else as it is.

    Raises
    ------
    ValueError
        If the memory is that of a device, or cannot be exported.
    """
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack_device__"):
        device = x.__dlpack_device__()
        if int(device[0]) not in _READABLE:
            raise ValueError(
                f"{name}: expected memory that the processor reads, got DLPack device "
                f"{device[0]!s}; copy it to the host, or use succinct_gpu"
            )
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError) as error:
            raise ValueError(f"{name}: {error}") from None
    if hasattr(x, "__cuda_array_interface__"):
        raise ValueError(
            f"{name}: expected memory that the processor reads, got an array of CUDA; copy it to "
            "the host, or use succinct_gpu"
        )
    return x
