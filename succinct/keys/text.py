"""Reading token sequences from text: integers, or words through a tokenizer."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from succinct._args import MAX_TOKEN

from . import _scan
from .files import Path, Progress, blocks
from .names import NamesBuilder
from .sequences import Sequences, chunks_of, from_flat_arrays, narrowed

Tokenizer = Path | Callable[[str], Iterable[int]]

CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
"""How cl100k_base splits a text into words before it merges bytes."""

_BATCH = 1 << 14


def integer_lines(
    path: Path, names: NamesBuilder | None, progress: Progress | None
) -> Iterator[Sequences]:
    """Chunks of the sequences of a text file; the first column goes to `names` if given."""
    row = 0
    source = blocks(path, progress)
    for block in source:
        count = block.count(b"\n")
        tokens = np.empty(len(block) // 2 + 1, np.uint32)
        ends = np.empty(count + 1, np.int64)
        columns = np.empty(2 * count if names is not None else 0, np.int64)
        text = np.frombuffer(block, np.uint8)
        lines, place = _scan.parse_lines(text, names is not None, MAX_TOKEN, tokens, ends, columns)
        if place >= 0 and (block[place:].strip() or any(rest.strip() for rest in source)):
            line = block[place : block.index(b"\n", place)]
            _explain(f"{os.fsdecode(path)}, line {row + lines + 1}", line, names is not None)
        if names is not None:
            _add_names(names, block, columns[: 2 * lines], f"{os.fsdecode(path)}, line", row)
        used = tokens[: ends[lines]]
        yield narrowed(from_flat_arrays(used, ends[: lines + 1], row))
        row += lines


def _add_names(names: NamesBuilder, block: bytes, columns: Any, where: str, row: int) -> None:
    bounds = columns.tolist()
    parts = [block[i:j] for i, j in zip(bounds[::2], bounds[1::2], strict=True)]
    encoded = b"".join(parts)
    try:
        encoded.decode()
    except UnicodeDecodeError:
        for i, part in enumerate(parts):
            _decoded(part, f"{where} {row + i + 1}")
    names.extend_encoded(encoded, columns[1::2] - columns[::2])


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8: {error}") from None


def _explain(where: str, line: bytes, items: bool) -> NoReturn:
    """Raises what is wrong with a line that the parser did not take."""
    text = line.decode(errors="backslashreplace").rstrip("\r")
    if not text.strip():
        raise ValueError(f"{where} is empty; a sequence has at least one token")
    if items:
        name, separator, text = text.partition("\t")
        if not separator:
            name, text = [*re.split("[ ,]", name, maxsplit=1), ""][:2]
        if not name:
            raise ValueError(f"{where}: the item id in the first column is empty")
        if not text.strip():
            raise ValueError(f"{where}: no tokens behind the item id {name!r}")
    for value in re.split(r"[ \t\r]*,[ \t\r]*|[ \t\r]+", text.strip(" \t\r")):
        if not value:
            raise ValueError(f"{where}: no token between two commas or at an end of {text!r}")
        if not re.fullmatch("-?[0-9]+", value):
            raise ValueError(f"{where}: {value!r} is not an integer")
        if not 0 <= int(value) <= MAX_TOKEN:
            raise ValueError(f"{where}: token {value} is not in [0, {MAX_TOKEN}]")
    raise ValueError(f"{where}: {text!r} is not a list of integers")


def tokenized_lines(
    source: Path | Iterable[str],
    tokenizer: Tokenizer,
    pattern: str | None,
    names: NamesBuilder | None,
    progress: Progress | None,
) -> Iterator[Sequences]:
    """Chunks of the sequences that a tokenizer makes of lines of text."""
    encode = encoder(tokenizer, pattern)
    if isinstance(source, str | os.PathLike):
        batches, where, first = _text_batches(source, progress), f"{os.fsdecode(source)}, line", 1
    else:
        batches, where, first = _batches(source), "line", 0
    row = first
    for lines in batches:
        sequences = encode(lines)
        for i, sequence in enumerate(sequences):
            if len(sequence) == 0:
                raise ValueError(f"{where} {row + i}: no tokens in {lines[i]!r}")
        if names is not None:
            names.extend(lines)
        try:
            yield from chunks_of(sequences, where, row)
        except TypeError as error:
            raise TypeError(f"the tokenizer must return integers: {error}") from None
        row += len(lines)


def _text_batches(path: Path, progress: Progress | None) -> Iterator[list[str]]:
    row = 1
    source = blocks(path, progress)
    for block in source:
        lines = [line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]]
        blank = not all(lines)
        if blank:
            # Blank lines are allowed at the end of the file.
            place = lines.index(b"")
            if any(lines[place:]) or any(rest.strip() for rest in source):
                raise ValueError(
                    f"{os.fsdecode(path)}, line {row + place} is empty; "
                    "a sequence has at least one token"
                )
            del lines[place:]
        for start in range(0, len(lines), _BATCH):
            batch = lines[start : start + _BATCH]
            try:
                yield b"\n".join(batch).decode().split("\n")
            except UnicodeDecodeError:
                for i, line in enumerate(batch):
                    _decoded(line, f"{os.fsdecode(path)}, line {row + start + i}")
                raise
        row += len(lines)


def _batches(source: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    row = 0
    for row, line in enumerate(source):
        if not isinstance(line, str):
            raise TypeError(f"line {row} must be a str, not {type(line).__name__} {line!r}")
        batch.append(line)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def encoder(tokenizer: Tokenizer, pattern: str | None = None) -> Callable[[list[str]], list[Any]]:
    """A function from lines to their token sequences.

    `tokenizer` is a function from a str to integers, or the path of a `tokenizers` JSON file or of
    a tiktoken rank file, either of which may be compressed.
    """
    if not isinstance(tokenizer, str | os.PathLike):
        if not callable(tokenizer):
            raise TypeError(f"tokenizer must be a path or callable, not {tokenizer!r}")
        function = tokenizer
        return lambda lines: [_sized(function(line)) for line in lines]
    content = b"".join(blocks(tokenizer))
    if content.lstrip().startswith(b"{"):
        return _tokenizers_encoder(content, os.fsdecode(tokenizer))
    return _tiktoken_encoder(content, os.fsdecode(tokenizer), pattern or CL100K_PATTERN)


def _sized(sequence: Any) -> Any:
    return sequence if hasattr(sequence, "__len__") else list(sequence)


def _tokenizers_encoder(content: bytes, path: str) -> Callable[[list[str]], list[Any]]:
    try:
        import tokenizers
    except ImportError as error:
        raise _missing("tokenizers", error) from None
    try:
        model = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # the package raises plain Exception
        raise ValueError(f"{path} is not a tokenizers JSON file: {error}") from None

    def encode(lines: list[str]) -> list[Any]:
        return [found.ids for found in model.encode_batch(lines, add_special_tokens=False)]

    return encode


def _tiktoken_encoder(content: bytes, path: str, pattern: str) -> Callable[[list[str]], list[Any]]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(
                f"{path}, line {number}: expected a tokenizers JSON, or a tiktoken rank file "
                f"with a base64 token and its rank on each line, got {line!r:.60}"
            ) from None
    try:
        import tiktoken
    except ImportError as error:
        raise _missing("tiktoken", error) from None
    encoding = tiktoken.Encoding(
        name="ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
    # Its batch call hands every line to a pool of threads, which costs more than encoding it.
    encode = encoding.encode_ordinary
    return lambda lines: [encode(line) for line in lines]


def _missing(package: str, error: ImportError) -> ImportError:
    return ImportError(
        f"reading text with {package} needs it installed: "
        f'pip install "succinct-tries[tokenizers]" ({error})'
    )
