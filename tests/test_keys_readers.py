"""Readers: text files, Parquet, lines through tokenizers."""

import base64
import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from succinct.keys import KeyTable

OPENERS = {"plain": open, "gzip": gzip.open, "xz": lzma.open, "bzip2": bz2.open}


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(keys: KeyTable) -> list[tuple[int, ...]]:
    """The input rows, as the table remembers them."""
    return [keys.key(number) for number in keys.key_ids.tolist()]


@pytest.mark.parametrize("kind", OPENERS)
def test_text_may_be_compressed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "catalog"
    with OPENERS[kind](path, "wb") as file:
        file.write(b"3 1\t4\n1,5, 9 ,2\r\n  6\n4294967294")
    expected = [(3, 1, 4), (1, 5, 9, 2), (6,), (2**32 - 2,)]
    assert rows_of(KeyTable.from_text(path)) == expected
    assert rows_of(KeyTable.from_text(str(path))) == expected


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("a b\t1 2\nc\t3\n", ["a b", "c"], [(1, 2), (3,)]),
        ("a 1 2\nb,3\nç, 4 5", ["a", "b", "ç"], [(1, 2), (3,), (4, 5)]),
        ("7 1\n7 1\n8\t1\n\n", ["7", "7", "8"], [(1,), (1,), (1,)]),
        ("\ufeffx 1\n", ["x"], [(1,)]),
        ("", [], []),
    ],
)
def test_first_column_may_be_an_item(
    tmp_path: Path, text: str, names: list[str], rows: list[tuple[int, ...]]
) -> None:
    keys = KeyTable.from_text(written(tmp_path / "t", text), items=True)
    assert keys.item_names is not None
    assert list(keys.item_names) == names
    assert rows_of(keys) == rows


@pytest.mark.parametrize(
    ("text", "items", "message"),
    [
        ("1 2\n3 -4\n", False, r"t, line 2: token -4 is not in \[0, 4294967294\]"),
        ("1 2\n3 4294967295\n", False, "t, line 2: token 4294967295 is not in"),
        ("1" * 40, False, "line 1: token 1+ is not in"),
        ("1 2\n3 4.0\n", False, "t, line 2: '4.0' is not an integer"),
        ("1 x\n", False, "t, line 1: 'x' is not an integer"),
        ("# note\n1\n", False, "t, line 1: '#' is not an integer"),
        ("1,,2", False, "t, line 1: no token between two commas"),
        ("1,2,\n", False, "t, line 1: no token between two commas or at an end"),
        (",1\n", False, "t, line 1: no token between two commas or at an end"),
        ("1\n\n2\n", False, "t, line 2 is empty"),
        ("1\n \t\n2\n", False, "t, line 2 is empty"),
        ("1\n" + "\n" * (1 << 22) + "2", False, "t, line 2 is empty"),
        ("a 1\nb\n", True, "t, line 2: no tokens behind the item id 'b'"),
        ("a 1\nb\t\n", True, "t, line 2: no tokens behind the item id 'b'"),
        ("a 1\n\t5\n", True, "t, line 2: the item id in the first column is empty"),
        ("a 1\nb 5 c\n", True, "t, line 2: 'c' is not an integer"),
        (b"a 1\n\xff 5\n", True, "t, line 2: not UTF-8"),
        (b"1\n\xff 5\n", False, r"t, line 2: '\\\\xff' is not an integer"),
    ],
)
def test_text_errors_name_file_and_line(
    tmp_path: Path, text: str | bytes, items: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        KeyTable.from_text(written(tmp_path / "t", text), items=items)


def test_blank_lines_at_the_end_are_allowed(tmp_path: Path) -> None:
    assert list(KeyTable.from_text(written(tmp_path / "t", "1\n\n  \n"))) == [(1,)]
    path = written(tmp_path / "t", "1\n" + "\n" * (1 << 22))
    assert list(KeyTable.from_text(path)) == [(1,)]


def test_text_longer_than_a_block(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [tuple(rng.integers(0, 2**32 - 1, n).tolist()) for n in rng.integers(1, 9, 300_000)]
    text = "\n".join(" ".join(map(str, row)) for row in rows)
    done: list[tuple[int, int | None]] = []
    path = written(tmp_path / "t.gz", gzip.compress(text.encode(), 1))
    keys = KeyTable.from_text(path, progress=lambda *now: done.append(now))
    assert rows_of(keys) == rows
    size = path.stat().st_size
    assert len(done) > 2
    assert done == sorted(done)
    assert done[-1] == (size, size)
    with pytest.raises(ValueError, match="line 300001: 'x' is"):
        KeyTable.from_text(written(tmp_path / "t", text + "\nx"))


@pytest.mark.parametrize("kind", ["gzip", "xz", "bzip2"])
def test_truncated_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "catalog"
    with OPENERS[kind](path, "wb") as file:
        file.write(b"1 2 3\n" * 1000)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match="catalog: truncated or damaged"):
        KeyTable.from_text(path)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\0\0\0\0" + content[middle + 4 :])
    with pytest.raises(ValueError, match="catalog: truncated or damaged"):
        KeyTable.from_text(path)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    for read in (
        KeyTable.from_text,
        lambda path: KeyTable.from_parquet(path, "ids"),
        lambda path: KeyTable.from_lines(path, len),
        lambda path: KeyTable.from_lines(["a"], path),
    ):
        with pytest.raises(FileNotFoundError, match="absent"):
            read(tmp_path / "absent")
        with pytest.raises(IsADirectoryError):
            read(tmp_path)


# Parquet

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

ROWS = [[3, 1], [2], [3, 1], [9, 9, 9]]


def parquet(path: Path, **columns: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=3)
    return path


@pytest.mark.parametrize("make", ["list_", "large_list"])
@pytest.mark.parametrize("value", ["uint16", "int64"])
def test_parquet_lists(tmp_path: Path, make: str, value: str) -> None:
    kind = getattr(pyarrow, make)(getattr(pyarrow, value)())
    path = parquet(tmp_path / "p", ids=pyarrow.array(ROWS, kind), name=["a", "b", "c", "d"])
    assert rows_of(KeyTable.from_parquet(path, "ids")) == list(map(tuple, ROWS))
    keys = KeyTable.from_parquet(path, "ids", items_column="name")
    assert keys.item_names is not None
    assert list(keys.item_names) == ["a", "b", "c", "d"]


def test_parquet_lists_of_fixed_size(tmp_path: Path) -> None:
    rows = [[3, 1], [2, 7], [0, 0], [1, 1]]
    path = parquet(tmp_path / "p", ids=pyarrow.array(rows, pyarrow.list_(pyarrow.int32(), 2)))
    done: list[Any] = []
    keys = KeyTable.from_parquet(path, "ids", progress=lambda *now: done.append(now))
    assert rows_of(keys) == list(map(tuple, rows))
    assert keys.fixed_length == 2
    assert done[-1] == (path.stat().st_size,) * 2


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([[1], [2], [3], [-4]], ValueError, "column 'ids': sequence 3, position 0: token -4"),
        ([[1], None, [3]], ValueError, "column 'ids': row 1 is null"),
        ([[1], [2], [3], [4, None]], ValueError, "column 'ids': row 3, position 1 is null"),
        ([[1], []], ValueError, "column 'ids': sequence 1 is empty"),
        ([[1.5]], TypeError, "must hold lists of integers, not list"),
        ([1], TypeError, "must hold lists of integers, not int64"),
    ],
)
def test_parquet_errors(tmp_path: Path, values: Any, error: type[Exception], message: str) -> None:
    path = parquet(tmp_path / "p", ids=values)
    with pytest.raises(error, match=message):
        KeyTable.from_parquet(path, "ids")


def test_parquet_columns_and_files(tmp_path: Path) -> None:
    path = parquet(tmp_path / "p", ids=[[1]], name=pyarrow.array([None], pyarrow.string()))
    with pytest.raises(ValueError, match="no column 'tokens'; its columns are ids, name"):
        KeyTable.from_parquet(path, "tokens")
    with pytest.raises(ValueError, match="column 'name': row 0 is null"):
        KeyTable.from_parquet(path, "ids", "name")
    with pytest.raises(ValueError, match="q is not a Parquet file"):
        KeyTable.from_parquet(written(tmp_path / "q", b"1 2\n" * 10), "ids")


def test_missing_pyarrow_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "succinct-tries\[parquet\]"'):
        KeyTable.from_parquet(tmp_path / "p", "ids")


# Lines of text


def codes(line: str) -> list[int]:
    return [ord(letter) for letter in line]


def test_lines_through_a_function(tmp_path: Path) -> None:
    lines = ["ab", "ç d", "ab"]
    path = written(tmp_path / "lines", "ab\r\nç d\nab\n\n")
    functions: list[Callable[[str], Any]] = [codes, lambda line: map(ord, line)]
    functions.append(lambda line: np.array(codes(line)))
    for function in functions:
        for source in (lines, iter(lines), path, str(path)):
            keys = KeyTable.from_lines(source, function, items=True)
            assert rows_of(keys) == [tuple(codes(line)) for line in lines]
            assert keys.item_names is not None
            assert list(keys.item_names) == lines


def test_line_errors(tmp_path: Path) -> None:
    path = written(tmp_path / "lines", "ab\n\nb\n")
    with pytest.raises(ValueError, match="lines, line 2 is empty"):
        KeyTable.from_lines(path, codes)
    path.write_bytes(b"ab\n\xff\n")
    with pytest.raises(ValueError, match="lines, line 2: not UTF-8"):
        KeyTable.from_lines(path, codes)
    with pytest.raises(ValueError, match="line 1: no tokens in ''"):
        KeyTable.from_lines(["a", ""], codes)
    with pytest.raises(ValueError, match="line 1, position 0: token -98"):
        KeyTable.from_lines(["a", "b"], lambda line: [-ord(line) if line == "b" else 1])
    with pytest.raises(TypeError, match=r"tokenizer must return integers: .*line 0.* 0\.5"):
        KeyTable.from_lines(["a", "b"], lambda line: [0.5])
    with pytest.raises(TypeError, match="line 1 must be a str, not int 5"):
        KeyTable.from_lines(["a", 5], codes)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="tokenizer must be a path or callable"):
        KeyTable.from_lines(["a"], 5)  # type: ignore[arg-type]


def test_tokenizers_json(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "blue": 5, "red": 70_000}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    lines = ["red blue", "blue", "green red"]
    keys = KeyTable.from_lines(lines, tmp_path / "tokenizer.json")
    assert rows_of(keys) == [(70_000, 5), (5,), (0, 70_000)]
    with pytest.raises(ValueError, match="t is not a tokenizers JSON file"):
        KeyTable.from_lines(lines, written(tmp_path / "t", "{}"))


@pytest.mark.parametrize("kind", ["plain", "gzip", "xz"])
def test_tiktoken_ranks(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("tiktoken")
    pieces = [bytes([byte]) for byte in range(256)] + [b"re", b"red", b" b"]
    text = b"".join(base64.b64encode(p) + b" %d\n" % rank for rank, p in enumerate(pieces))
    with OPENERS[kind](tmp_path / "ranks", "wb") as file:
        file.write(text)
    keys = KeyTable.from_lines(["red b", "e"], tmp_path / "ranks")
    assert rows_of(keys) == [(257, 258), (101,)]
    # A pattern that splits off blanks never sees " b" in one piece.
    keys = KeyTable.from_lines(["red b", "e"], tmp_path / "ranks", pattern=r"\s+|\S+")
    assert rows_of(keys) == [(257, 32, 98), (101,)]


def test_tiktoken_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "ranks", "YQ== 0\nYg==\n")
    with pytest.raises(ValueError, match=r"ranks, line 2: .*a base64 token and its rank"):
        KeyTable.from_lines(["a"], path)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ImportError, match=r'pip install "succinct-tries\[tokenizers\]"'):
        KeyTable.from_lines(["a"], written(path, "YQ== 0\n"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "succinct-tries\[tokenizers\]"'):
        KeyTable.from_lines(["a"], written(path, "{}"))


def test_readers_sort_within_a_memory_limit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [tuple(row) for row in rng.integers(0, 50, (20_000, 3)).tolist()]
    text = "".join(f"i{n}\t{' '.join(map(str, row))}\n" for n, row in enumerate(rows))
    keys = KeyTable.from_text(written(tmp_path / "t", text), items=True, memory_limit=1)
    assert keys.n_keys == len(set(rows))
    assert rows_of(keys) == rows
    assert keys.item_names is not None
    assert keys.item_names[-1] == "i19999"
