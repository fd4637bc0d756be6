"""No file, whatever its bytes, makes the library crash, hang or read outside its arrays."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from succinct import FormatError, ItemMap, KeyTable, LoudsTrie, load, verify
from tests.hostile import ODD_VALUES, content, words_of, write

KEYS = [(1, 2), (1, 3), (7, 6, 5)]


def make(path: Path, tail: bool = True, items: bool = True) -> None:
    keys = KeyTable.from_sequences(KEYS)
    trie = LoudsTrie.build(keys, tail=tail)
    trie.save(path, ItemMap(trie, keys, ["one", "zwei", "drei é"]) if items else None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "index.safetensors"
    make(path)
    return path


# ---- seeds, in a process of their own that may crash --------------------------------------------


@pytest.mark.parametrize(
    ("first", "count", "malloc"),
    [
        (0, 80, "default"),
        (80, 40, "debug"),
        pytest.param(200, 1800, "debug", marks=pytest.mark.slow),
    ],
)
def test_damaged_files_never_crash(first: int, count: int, malloc: str) -> None:
    if count > 100 and os.environ.get("HYPOTHESIS_PROFILE") != "thorough":
        pytest.skip("minutes long; HYPOTHESIS_PROFILE=thorough runs it")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hostile", str(first), str(count)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONMALLOC": malloc, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    seeds = [line for line in ran.stdout.splitlines() if line.startswith("seed ")]
    assert ran.returncode == 0, f"{seeds[-1:]}: exit status {ran.returncode}\n{ran.stderr}"
    loaded, refused = (int(n) for n in ran.stdout.split("loaded ")[-1].split(", refused "))
    assert min(loaded, refused) > count // 5, "the damage is too coarse, or too fine"


# ---- what load refuses, and how it says so ------------------------------------------------------


PARAMS = (
    "n_nodes", "n_keys", "label_high_width", "link_high_width", "tail_length", "tail_width",
    "tails",
)  # fmt: skip


@pytest.mark.parametrize("name", PARAMS)
def test_every_param_is_checked(path: Path, name: str) -> None:
    params, arrays, _ = content(path)
    right = params[name]
    near = [right - 1, right + 1] if isinstance(right, int) else []
    for value in [*ODD_VALUES, *near, -(10**400), [[0] * 100], {str(i): i for i in range(9)}]:
        if (value == right and type(value) is type(right)) or (value is None and name == "tails"):
            continue
        write(path, {**params, name: value}, arrays)
        try:
            with pytest.raises(FormatError, match=r"index\.safetensors: ") as raised:
                load(path)
        except pytest.fail.Exception:
            # A width may be another one as long as the sizes fit: the tokens differ then.
            assert name.endswith("width"), value
            with pytest.raises(FormatError):
                verify(path)
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value > 2**48:
            assert name in str(raised.value)
        assert len(str(raised.value)) < 400 + len(str(path))
    if name != "tails":
        del params[name]
        write(path, params, arrays)
        with pytest.raises(FormatError, match=name):
            load(path)


ARRAYS = (
    "topology", "terminal", "slots", "label_high", "link", "link_high", "tail", "tail_end",
    "level_prefixes", "level_low", "level_high",
    "items/text", "items/name_offsets", "items/key_offsets",
)  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: None,
        lambda a: a[:-1],
        lambda a: a[:0],
        lambda a: np.concatenate([a, a[-1:]]),
        lambda a: np.concatenate([a] * 9),
        lambda a: a.reshape(1, -1),
        lambda a: a.reshape(-1, 1),
        lambda a: np.zeros((0, 5), a.dtype),
        lambda a: a[0],
        lambda a: a.astype(np.float64),
        lambda a: a.astype(np.bool_),
        lambda a: a.astype(np.int16),
        lambda a: a.astype(np.uint8 if a.dtype != np.uint8 else np.uint16),
    ],
)
def test_every_array_is_checked(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    params, arrays, _ = content(path)
    assert set(arrays) == set(ARRAYS)
    arrays[name] = change(arrays[name])
    if arrays[name] is None:
        del arrays[name]
    write(path, params, arrays)
    for mmap in (True, False):
        with pytest.raises(FormatError, match=r"index\.safetensors: .*") as raised:
            load(path, mmap=mmap)
        # The text of the items may be too short for their offsets, a level missing for all.
        assert name.removeprefix("items/") in str(raised.value) or name[:5] in ("items", "level")


def test_an_array_more_does_no_harm(path: Path) -> None:
    params, arrays, _ = content(path)
    write(path, params, {**arrays, "extra": np.arange(3, dtype=np.uint8)})
    assert verify(path).n_keys == 3


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"format": None}, "expected an index file of succinct-tries.*None"),
        ({"format": "other"}, "expected an index file of succinct-tries.*'other'"),
        ({"format_version": None}, "format version is ''.*reads 1 to 4"),
        ({"format_version": "5"}, "format version is '5'.*a newer release may read it"),
        ({"format_version": "0"}, "format version is '0'"),
        ({"format_version": "-1"}, "format version is '-1'"),
        ({"format_version": "1.0"}, "format version is '1.0'"),
        ({"format_version": "²"}, "format version"),
        ({"format_version": "1" * 5000}, "format version"),
        ({"format_version": "0000000012"}, "format version is '0000000012'"),
        ({"format_version": "\u0661"}, "format version"),
        ({"kind": None}, "unknown kind of index ''; known are LoudsTrie"),
        ({"kind": "Index"}, "unknown kind of index 'Index'"),
        ({"kind": "x" * 5000}, "unknown kind of index 'xxx"),
        ({"format": "x" * 5000}, "expected an index file of succinct-tries.*'xxx"),
        ({"params": None}, "no JSON object 'params'"),
        ({"params": "[]"}, "no JSON object 'params'"),
        ({"params": "[" * 100_000}, "no JSON object 'params'"),
        ({"params": '{"n_nodes": ' + "9" * 5000 + "}"}, "no JSON object 'params'"),
        ({"params": '{"n_nodes": NaN}'}, "n_nodes"),
        ({"params": "{}"}, "n_nodes"),
        ({"checksums": None}, "no JSON object 'checksums'"),
        ({"checksums": "{}"}, "checksums name other arrays"),
        ({"checksums": '{"slots": 1'}, "no JSON object 'checksums'"),
    ],
)
def test_metadata_is_checked(path: Path, metadata: dict[str, Any], words: str) -> None:
    params, arrays, _ = content(path)
    write(path, params, arrays, metadata)
    with pytest.raises(FormatError, match=words) as raised:
        load(path)
    assert len(str(raised.value)) < 300 + len(str(path))


def test_a_file_cut_short_or_longer(path: Path) -> None:
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(FormatError, match="safetensors"):
            load(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(FormatError, match="safetensors"):
        load(path)


@pytest.mark.parametrize("length", [0, 1, 2, 10**8, 10**8 + 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_the_length_of_the_header(path: Path, length: int) -> None:
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(FormatError, match="safetensors"):
        load(path)


def with_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite the header of a file, whatever comes of it."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["slots"].update(dtype="F16"),
        lambda h: h["slots"].update(dtype="X"),
        lambda h: h["slots"].update(dtype=3),
        lambda h: h["slots"].update(shape=[2**64]),
        lambda h: h["slots"].update(shape=[-1]),
        lambda h: h["slots"].update(shape=[2**62, 4]),
        lambda h: h["slots"].update(shape=[1] * 99 + h["slots"]["shape"]),
        lambda h: h["slots"].update(shape=None),
        lambda h: h["slots"].update(data_offsets=[0, 2**63]),
        lambda h: h["slots"].update(data_offsets=[8, 0]),
        lambda h: h["slots"].update(data_offsets=h["topology"]["data_offsets"]),
        lambda h: h["slots"].update(data_offsets=[-2, 0]),
        lambda h: h.update(none={"dtype": "U8", "shape": [0, 2**63], "data_offsets": [0, 0]}),
        lambda h: h.update(slots=[1, 2]),
        lambda h: h.pop("slots"),
        lambda h: h.update(__metadata__=None),
        lambda h: h.update(__metadata__={"format": 1}),
        lambda h: h.pop("__metadata__"),
    ],
)
def test_headers(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    before = path.read_bytes()
    with_header(path, change)
    if path.read_bytes()[8:200] == before[8:200]:
        pytest.skip("nothing was changed")
    for mmap in (True, False):
        with pytest.raises(FormatError, match=r"index\.safetensors"):
            load(path, mmap=mmap)


def test_a_number_of_more_digits_than_python_reads(path: Path) -> None:
    with_header(path, lambda h: h["slots"].update(extra="HERE"))
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    head = data[8:end].replace(b'"HERE"', b"9" * 5000)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])
    with pytest.raises(FormatError, match=r"index\.safetensors: .*header"):
        load(path)


def test_unaligned_arrays(path: Path) -> None:
    # As another program might write them: the header is not padded to the width of the types.
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    path.write_bytes(
        (length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :]
    )
    with pytest.raises(FormatError, match="aligned"):
        load(path)


@pytest.mark.parametrize(
    "bits",
    [
        "0011", "1101", "1001101", "1010011", "1001011", "1011010001", "0110",
    ],
)  # fmt: skip
def test_a_topology_that_is_no_tree(tmp_path: Path, bits: str) -> None:
    # Circles, nodes before their parents, a super-root of degree 0 or 2, ones at the end.
    n = bits.count("1")
    bits = bits + "0" * (2 * n + 1 - len(bits))
    path = tmp_path / "index.safetensors"
    make(path, tail=False, items=False)
    params, arrays, _ = content(path)
    params |= {"n_nodes": n, "n_keys": 1}
    arrays |= {
        "topology": words_of([int(bit) for bit in bits]),
        "terminal": words_of([0] * (n - 1) + [1]),
        "slots": np.zeros(n, np.uint16),
        "level_prefixes": np.array([1, *([1] * (n - 1))]),
        "level_low": np.zeros(n - 1, np.uint32),
        "level_high": np.ones(n - 1, np.uint32),
    }
    write(path, params, arrays)
    with pytest.raises(FormatError, match="no tree"):
        load(path)


@pytest.mark.parametrize(
    ("array", "value", "words"),
    [
        ("level_prefixes", [1, 2**62, 2**62, 2**62], "counts of prefixes make no sense"),
        ("level_prefixes", [1, -1, 3, 3], "counts of prefixes make no sense"),
        ("level_prefixes", [2, 2, 3, 1], "counts of prefixes make no sense"),
        ("level_prefixes", [1, 0, 3, 3], "counts of prefixes make no sense"),
        ("level_prefixes", [1, 1, 1, 1], "cannot be 4 prefixes"),
        ("level_prefixes", [1], "at least one level"),
        ("level_low", [9, 9, 9], "ranges of tokens make no sense"),
        ("level_high", [8, 7, 2**32 - 1], "do not fit the widths"),
    ],
)
def test_levels(path: Path, array: str, value: list[int], words: str) -> None:
    params, arrays, _ = content(path)
    arrays[array] = np.array(value, arrays[array].dtype)
    write(path, params, arrays)
    with pytest.raises(FormatError, match=words):
        load(path)


def test_without_tails_every_prefix_is_a_node(tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    make(path, tail=False, items=False)
    params, arrays, _ = content(path)
    arrays["level_prefixes"][1] += 1
    write(path, params, arrays)
    with pytest.raises(FormatError, match="cannot be 8 prefixes"):
        load(path)


@pytest.mark.parametrize(
    ("array", "bit", "other", "words"),
    [
        ("terminal", 0, 2, "root is a key"),
        ("link", 0, 2, "root has a link"),
        ("tail_end", 2, 0, "does not end with the end of a chain"),
        ("topology", 11, 0, "'topology': bits behind the last"),
        ("topology", 10, 0, "no tree"),
        ("topology", 10, 6, "no tree"),
        ("terminal", 63, 2, "'terminal': bits behind the last"),
        ("terminal", 2, 2, "2 nodes are keys, expected 3"),
        ("topology", 2, 2, "the topology has 4 nodes, expected 5"),
    ],
)
def test_bits(path: Path, array: str, bit: int, other: int, words: str) -> None:
    """Swapping two bits keeps the count."""
    params, arrays, _ = content(path)
    bits = np.unpackbits(arrays[array].view(np.uint8), bitorder="little")
    if bit == other:
        bits[bit] ^= 1
    else:
        bits[[bit, other]] = bits[[other, bit]]
    arrays[array] = np.packbits(bits, bitorder="little").view(np.uint64)
    write(path, params, arrays)
    with pytest.raises(FormatError, match=words):
        load(path)


# ---- what verify finds --------------------------------------------------------------------------


def test_verify_finds_every_flipped_bit(tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    make(path)
    verify(path)
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    for bit in range(8 * start, 8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(FormatError, match="checksum mismatch in"):
            verify(path)
        data[bit // 8] ^= 1 << bit % 8


# Nodes of the tree with tails: 0 the root, 1 for 1, 2 for 7 6 5 (a link to tail 0), 3 and 4 for
# 2 and 3.
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slots": [0, 1, 0, 3, 3]}, "labels of nodes 3 and 4 do not ascend"),
        ({"slots": [0, 1, 0, 3, 2]}, "labels of nodes 3 and 4 do not ascend"),
        ({"slots": [0, 1, 3, 2, 3]}, "link of node 2 points outside the tail"),
        ({"slots": [0, 1, 2, 2, 3]}, "chain of node 2 must have at least two tokens"),
        ({"slots": [0, 1, 1, 2, 3]}, "tokens of step 0 do not reach the ends of their range"),
        ({"slots": [0, 0, 0, 2, 3]}, "token 0 of node 1 is outside the range of step 0"),
        ({"slots": [0, 2, 0, 2, 3]}, "tokens of step 0 do not reach the ends of their range"),
        ({"terminal": [0, 1, 1, 1, 0]}, "leaf 4 is not a key"),
        ({"level_low": [1, 2, 4]}, "tokens of step 2 do not reach the ends of their range"),
        ({"level_high": [8, 7, 7]}, "tokens of step 2 do not reach the ends of their range"),
        ({"level_low": [1, 3, 5]}, "token 2 of node 3 is outside the range of step 1"),
        ({"level_high": [8, 6, 6]}, "token 6 of node 2 is outside the range of step 1"),
        ({"level_prefixes": [1, 2, 2, 2]}, "counts of prefixes are not those of the structure"),
        (
            {"level_prefixes": [1, 2, 4], "level_low": [1, 2], "level_high": [8, 7]},
            "node 2 is deeper than 2 tokens",
        ),
        ({"items/key_offsets": [0, 2, 1, 3]}, "key_offsets falls at entry 2"),
        ({"items/name_offsets": [0, 7, 3, 14]}, "name_offsets falls at entry 2"),
        ({"items/text": list(b"\xff" * 14)}, "utf-8"),
    ],
)
def test_verify_finds_structural_nonsense(path: Path, changes: dict[str, Any], words: str) -> None:
    params, arrays, _ = content(path)
    assert arrays["slots"].tolist() == [0, 1, 0, 2, 3]
    for name, values in changes.items():
        if name == "terminal":
            arrays[name] = words_of(values)
        else:
            arrays[name] = np.array(values, arrays[name].dtype)
    write(path, params, arrays)
    load(path)  # it is harmless
    with pytest.raises(FormatError, match=words):
        verify(path)


def test_verify_finds_a_chain_longer_than_a_state_can_tell(tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    make(path, items=False)
    params, arrays, _ = content(path)
    length = 2**24 + 1
    end = np.zeros(length, np.bool_)
    end[-1] = True
    params |= {"tail_length": length, "tail_width": 0}
    arrays |= {"tail": np.zeros(1, np.uint64), "tail_end": words_of(end)}
    write(path, params, arrays)
    trie = load(path)
    assert isinstance(trie, LoudsTrie)
    last = np.uint64(2 | (2**24 - 1) << 40)
    assert trie.children(last)[1].tolist() == [2**64 - 1]
    assert trie.advance(last, 0) == np.uint64(2**64 - 1)
    with pytest.raises(FormatError, match=r"chain of node 2 has 16777217 tokens"):
        verify(path)


def test_a_broken_link_has_no_continuation(path: Path) -> None:
    params, arrays, _ = content(path)
    arrays["slots"][2] = 65_535
    write(path, params, arrays)
    trie = load(path)
    assert list(trie.completions()) == [(1, 2), (1, 3)]
    assert (7, 6, 5) not in trie
    assert trie.walk((7,)) == np.uint64(2**64 - 1)
    assert trie.children(trie.root)[1].tolist() == [1, 2**64 - 1]
    assert trie.key_ids(KEYS).tolist().count(-1) == 1
    number = next(iter({0, 1, 2} - set(trie.key_ids(KEYS).tolist())))
    with pytest.raises(FormatError, match=f"key {number} cannot be read"):
        trie.key(number)
