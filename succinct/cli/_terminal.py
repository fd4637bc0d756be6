"""What the commands share: tables, sizes, JSON, progress bars and checks of output paths."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def print_json(document: object) -> None:
    """Print one JSON document."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    print()


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns, numbers to the right."""
    body = [list(row) for row in rows]
    cells = [list(header), *([cell(value) for value in row] for row in body)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    numeric = [
        all(isinstance(row[column], int | float | None) for row in body)
        for column in range(len(header))
    ]
    for line in cells:
        columns = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(columns).rstrip())


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 0.1 else f"{value:,.2f}"
    return str(value)


def counted(n: int, what: str) -> str:
    """A number of things: "1 key", "1,000 keys"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


@contextmanager
def stages(total: int) -> Iterator[Any]:
    """A progress bar over named stages, on the standard error if that is a terminal.

    Yields two functions: one to call with the name of each stage as it begins, and one that a
    stage may call with what is done of it and the total, which is None if it is not known.
    """
    bar = tqdm(
        total=total,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
        bar_format="{desc:<14} {bar} {n_fmt}/{total_fmt} [{elapsed}]",
        leave=False,
        **_size(),
    )
    started = 0
    current = ""
    over = threading.Event()

    def begin(name: str) -> None:
        nonlocal started, current
        if started:
            bar.update()
        started += 1
        current = name
        bar.set_description_str(name)

    def part(done: int, whole: int | None) -> None:
        if whole and not bar.disable:
            # Drawn by the clock: a reader calls this more often than is worth drawing.
            bar.set_description_str(f"{current} {100 * done // whole} %", refresh=False)

    def tick() -> None:
        # A stage is one long call, so somebody else has to keep the clock running.
        while not over.wait(0.5):
            bar.refresh()

    clock = threading.Thread(target=tick, daemon=True)
    if not bar.disable:
        clock.start()
    try:
        yield begin, part
    finally:
        over.set()
        if not bar.disable:
            clock.join()
        bar.close()


def progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """Iterate with a progress bar on the standard error if that is a terminal."""
    bar: Iterable[T] = tqdm(
        items,
        total=total,
        desc=what,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
        leave=False,
        **_size(),
    )
    return bar


def _size() -> dict[str, int]:
    # Terminals that do not know their size say 0 by 0, and tqdm would then draw nothing.
    columns, lines = shutil.get_terminal_size()
    return {"ncols": min(100, columns), "nrows": lines}


def check_writable(path: Path) -> None:
    """Raise OSError if a file cannot be made at `path`: before long work, not after it."""
    if path.is_dir():
        raise IsADirectoryError(21, "expected the path of a file, got a directory", str(path))
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(2, "there is no such directory to write to", str(folder))
    try:
        # A real attempt: permission bits say nothing about read-only file systems.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, f"cannot write here: {error.strerror}", str(folder)) from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there complete or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes private files
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
