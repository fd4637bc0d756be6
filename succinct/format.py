"""Index files: named arrays and scalars in a safetensors file, written whole or not at all.

The metadata of the file names the format, its version, the kind of index, the scalars (as JSON)
and a CRC-32 of every array, so that any safetensors reader can get at the arrays and ours can
tell a damaged file. What a bit-vector's words determine (rank directory, select samples) is
not stored but rebuilt at load: nothing in a file can make a rank lie.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap as mmap_file
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from succinct.errors import FormatError

FORMAT = "succinct-tries"
VERSION = 4

_DTYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_CHUNK = 1 << 24  # bytes written or checksummed at a time

Array = npt.NDArray[Any]
StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class IndexFile:
    """What an index file holds: the kind of index, its scalars, its arrays, their checksums."""

    path: Path
    kind: str
    params: dict[str, Any]
    arrays: dict[str, Array]
    checksums: dict[str, str]

    def damaged(self) -> list[str]:
        """Names of the arrays that do not match their checksum. Reads the whole file."""
        return [name for name, a in self.arrays.items() if _crc32(a) != self.checksums.get(name)]


def _chunks(array: Array) -> list[memoryview]:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return [data[i : i + _CHUNK].data for i in range(0, len(data), _CHUNK)]


def _crc32(array: Array) -> str:
    crc = 0
    for chunk in _chunks(array):
        crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def write(
    path: StrPath,
    kind: str,
    params: Mapping[str, Any],
    arrays: Mapping[str, Array],
    version: int = 1,
) -> None:
    """Write an index file: a temporary file beside the target, fsync, rename.

    `version` is the oldest format version whose readers understand the content.

    Raises
    ------
    OSError
        If the file cannot be written; an older file at the path is then untouched.
    """
    checksums = {name: _crc32(array) for name, array in arrays.items()}
    head, order = _header(kind, params, arrays, checksums, version)
    with replacing(Path(path)) as file:
        file.write(head)
        for name in order:
            for chunk in _chunks(arrays[name]):
                file.write(chunk)


@contextlib.contextmanager
def created(
    path: StrPath,
    kind: str,
    params: Mapping[str, Any],
    arrays: Mapping[str, Array],
    open_arrays: Mapping[str, tuple[npt.DTypeLike, int]],
    version: int = 1,
) -> Iterator[dict[str, Array]]:
    """Write an index file of which some arrays are filled while it lies on the disk.

    Yields the `open_arrays`, given by type and length, zeroed and mapped from a temporary file
    beside the target. At the end of the block checksums are computed, and the file is flushed and
    renamed. After an error in the block nothing has changed.

    Raises
    ------
    OSError
        If the file cannot be written. All its space is taken at the beginning.
    """
    # What is not known yet is said in placeholders of the same shape, none of them in memory.
    arrays = {
        **arrays,
        **{
            name: np.broadcast_to(np.zeros((), dtype), length)
            for name, (dtype, length) in open_arrays.items()
        },
    }
    checksums = dict.fromkeys(arrays, "0" * 8)
    head, order = _header(kind, params, arrays, checksums, version)
    size = len(head) + sum(array.nbytes for array in arrays.values())
    with replacing(Path(path)) as file:
        # A full disk must be met here: where a map is written to, it would end the process.
        _allocate(file.fileno(), size)
        mapped = np.frombuffer(mmap_file(file.fileno(), size), np.uint8)
        place, in_file = len(head), {}
        for name in order:
            array = arrays[name]
            in_file[name] = mapped[place : place + array.nbytes].view(array.dtype)
            place += array.nbytes
            if name not in open_arrays:
                in_file[name][:] = array.reshape(-1)
        yield {name: in_file[name] for name in open_arrays}
        checksums = {name: _crc32(array) for name, array in in_file.items()}
        head, _ = _header(kind, params, arrays, checksums, version)
        file.write(head)


def _allocate(handle: int, size: int) -> None:
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.ftruncate(handle, size)  # a file system that cannot reserve space


def _header(
    kind: str,
    params: Mapping[str, Any],
    arrays: Mapping[str, Array],
    checksums: Mapping[str, str],
    version: int,
) -> tuple[bytes, list[str]]:
    """The bytes in front of the arrays, and the order in which these follow."""
    # Wide types first, so that every array is aligned in the file and can be mapped as it is.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "format_version": str(version),
            "kind": kind,
            "params": json.dumps(dict(params), sort_keys=True, allow_nan=False),
            "checksums": json.dumps({name: checksums[name] for name in order}),
        }
    }
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head, order


class replacing:
    """A binary file that takes the place of `path` when the block ends well, and only then."""

    def __init__(self, path: Path) -> None:
        path = Path(os.path.realpath(path))  # through a link, to the file that it names
        if path.is_dir():
            raise IsADirectoryError(f"expected a file to write, got a directory: {path}")
        if path.exists() and not path.is_file():
            raise OSError(f"expected a file to write, got a device or the like: {path}")
        self.path = path

    def __enter__(self) -> Any:
        # A short name, since that of the target may be as long as names can be.
        self.temporary = self.path.with_name(f".{secrets.token_hex(8)}.succinct.tmp")
        try:
            self.file = open(self.temporary, "x+b")
        except OSError as error:
            raise self._named(error) from None
        # Before the content, which not everybody may read; some file systems have no modes.
        with contextlib.suppress(OSError):
            os.fchmod(self.file.fileno(), stat.S_IMODE(self.path.stat().st_mode))
        return self.file

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        try:
            try:
                if kind is None:
                    self.file.flush()
                    os.fsync(self.file.fileno())
            finally:
                self.file.close()  # may fail where writing has failed
            if kind is None:
                os.replace(self.temporary, self.path)
        except OSError as failure:
            raise self._named(failure) from None
        finally:
            self.temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise self._named(error) from None
        if kind is None:
            _sync_directory(self.path.parent)

    def _named(self, error: OSError) -> OSError:
        """The error with the path of the target, which the caller knows."""
        return OSError(error.errno, error.strerror, str(self.path))


def _sync_directory(path: Path) -> None:
    """Make the renaming last; the file is complete either way, so a failure is none of saving."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: StrPath, mmap: bool = True) -> IndexFile:
    """Read an index file; with `mmap` the arrays are read-only views of the mapped file.

    Raises
    ------
    FormatError
        If it is not a safetensors file, was not written by this library, is of a newer format
        version, or lacks what every index file has.
    OSError
        If it cannot be read.
    """
    path = Path(path)
    size = path.stat().st_size
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no regular file"
        raise OSError(f"expected an index file, got {kind}: {path}")
    try:
        # The safetensors library checks the header: ranges, overlaps, sizes against the file.
        with safe_open(path, framework="numpy") as opened:
            metadata = opened.metadata() or {}
    except SafetensorError as error:
        raise FormatError(
            f"{path}: expected a safetensors file, but it is damaged, cut short or something "
            f"else ({error})"
        ) from None
    if metadata.get("format") != FORMAT:
        raise FormatError(
            f"{path}: expected an index file of {FORMAT}, got a safetensors file whose format "
            f"is {metadata.get('format')!r:.50}"
        )
    version = metadata.get("format_version", "")
    if version not in map(str, range(1, VERSION + 1)):
        raise FormatError(
            f"{path}: its format version is {version!r:.50}, this release reads 1 to {VERSION}; "
            "a newer release may read it"
        )
    params = _json_object(path, metadata, "params")
    checksums = _json_object(path, metadata, "checksums")
    try:
        arrays = _arrays(path, size, mmap)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        # What the safetensors library lets pass: absurd dimensions, numbers and the like.
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: its header makes no sense ({error!r:.200})") from None
    if set(checksums) != set(arrays):
        raise FormatError(f"{path}: the checksums name other arrays than the file has")
    return IndexFile(path, metadata.get("kind", ""), params, arrays, checksums)


def _json_object(path: Path, metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        value = json.loads(metadata.get(name, ""))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FormatError(f"{path}: its metadata has no JSON object {name!r}")
    return value


def _arrays(path: Path, size: int, mmap: bool) -> dict[str, Array]:
    data: Array
    if mmap:
        data = np.memmap(path, np.uint8, mode="r")
    else:
        data = np.fromfile(path, np.uint8)
        data.flags.writeable = False
    if data.size != size:
        raise FormatError(f"{path}: the file changed while it was read")
    head = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + head].tobytes())
    body = np.asarray(data)[8 + head :]
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            raise FormatError(
                f"{path}: array {name!r} has type {entry['dtype']}, expected one of "
                f"{', '.join(_DTYPES)}"
            )
        begin, end = entry["data_offsets"]
        if (8 + head + begin) % dtype.itemsize:
            raise FormatError(f"{path}: array {name!r} is not aligned to its type")
        arrays[name] = body[begin:end].view(dtype).reshape(entry["shape"])
    return arrays


class Parts:
    """The scalars and arrays of an :class:`IndexFile`, taken out one by one with checks.

    Every method raises :class:`FormatError` with the path and the name of the part.
    """

    def __init__(self, file: IndexFile) -> None:
        self.file = file

    def error(self, message: str) -> FormatError:
        """An error about the file."""
        return FormatError(f"{self.file.path}: {message}")

    def integer(self, name: str, low: int, high: int) -> int:
        """A scalar of the params, low <= value <= high."""
        value = self.file.params.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(f"{name} must be an integer in {low}..{high}, got {value!r:.50}")
        return value

    def numbers(self, name: str, keys: Collection[str]) -> dict[str, float] | None:
        """An object of the params with these keys and a finite number for each, or null."""
        value = self.file.params.get(name)
        if value is not None and not (
            isinstance(value, dict)
            and value.keys() == set(keys)
            and all(type(v) in (int, float) and abs(v) < 2**63 for v in value.values())
        ):
            raise self.error(
                f"{name} must be null or an object with a number for each of "
                f"{', '.join(sorted(keys))}, got {value!r:.50}"
            )
        return value

    def array(self, name: str, dtype: npt.DTypeLike, length: int | None = None) -> Array:
        """A one-dimensional array of the given type and, if stated, length."""
        array = self.file.arrays.get(name)
        if array is None:
            raise self.error(f"array {name!r} is missing")
        if array.dtype != dtype or array.ndim != 1:
            raise self.error(
                f"array {name!r} must be one-dimensional {np.dtype(dtype)}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if length is not None and len(array) != length:
            raise self.error(f"array {name!r} must have {length} elements, got {len(array)}")
        return array
