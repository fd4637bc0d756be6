"""Reading files that may be compressed, with progress and errors that name the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BufferedReader
from os import PathLike
from typing import IO

Path = str | PathLike[str]
Progress = Callable[[int, int | None], None]
"""Called with the bytes of the file that have been read and their total."""

_BLOCK = 1 << 22


def blocks(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The decompressed content in blocks of whole lines, each with a newline at its end.

    gzip, xz and bzip2 are told by their first bytes. A UTF-8 byte order mark is left out.
    """
    with ExitStack() as files:
        raw = files.enter_context(open(path, "rb"))
        # A pipe knows neither its length nor its place.
        total = os.fstat(raw.fileno()).st_size if raw.seekable() else None
        stream = files.enter_context(_decompressed(raw))
        rest, start = b"", True
        while True:
            try:
                block = stream.read(_BLOCK)
            except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise ValueError(f"{_name(path)}: truncated or damaged: {error}") from error
            except OSError as error:
                if error.errno is not None:
                    raise
                raise ValueError(f"{_name(path)}: truncated or damaged: {error}") from error
            if start:
                block, start = block.removeprefix(b"\xef\xbb\xbf"), False
            if progress is not None:
                progress(raw.tell() if total is not None else 0, total)
            if not block:
                break
            whole, newline, tail = block.rpartition(b"\n")
            if newline:
                yield rest + whole + newline
                rest = tail
            else:
                rest += block
        if rest:
            yield rest + b"\n"


def _decompressed(raw: BufferedReader) -> IO[bytes]:
    head = raw.peek(10)[:10]
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(raw, "rb")  # type: ignore[return-value]
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(raw, "rb")
    # A line of text may start with "BZh"; the magic number of the first block is part of the test.
    if head.startswith(b"BZh") and head[4:] in (b"1AY&SY", b"\x17rE8P\x90"):
        return bz2.open(raw, "rb")
    return raw


def _name(path: Path) -> str:
    return os.fsdecode(path)
