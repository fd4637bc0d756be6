"""Index files: round trips, what is pinned of version 1, writing whole or not at all."""

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from succinct import (
    CsrMap,
    FormatError,
    ItemMap,
    KeyTable,
    LoudsTrie,
    StepMap,
    format,
    load,
    verify,
)
from tests.data import make_version_1, make_version_2, make_version_3, make_version_4
from tests.data.make_version_1 import KEYS, NAMES

DATA = Path(__file__).parent / "data"
ROOT = os.geteuid() == 0


@pytest.fixture(params=[False, True], ids=["plain", "tails"])
def trie(request: pytest.FixtureRequest) -> LoudsTrie:
    return LoudsTrie.build(KeyTable.from_sequences(KEYS), tail=request.param)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip(trie: LoudsTrie, tmp_path: Path, mmap: bool) -> None:
    path = tmp_path / "index.safetensors"
    trie.save(path)
    loaded = load(path, mmap=mmap)
    assert isinstance(loaded, LoudsTrie)
    assert loaded.info() == trie.info()
    assert loaded.items is None
    assert [loaded.key(i) for i in range(len(KEYS))] == [trie.key(i) for i in range(len(KEYS))]
    assert list(loaded.completions()) == sorted(KEYS)
    # The arrays come from the map, not from copies, and nothing can write to them.
    assert loaded._core.slots.base is not None
    assert not loaded._core.slots.flags.writeable
    assert not loaded._core.topology.words.flags.writeable


@pytest.mark.parametrize("mmap", [True, False])
def test_saved_again_it_is_the_same_file(trie: LoudsTrie, tmp_path: Path, mmap: bool) -> None:
    trie.items = ItemMap(trie, np.arange(len(KEYS)), NAMES[: len(KEYS)])
    first, second = tmp_path / "first", tmp_path / "second"
    trie.save(first)
    load(first, mmap=mmap).save(second)
    assert first.read_bytes() == second.read_bytes()


def test_any_safetensors_reader_reads_it(trie: LoudsTrie, tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    trie.save(path)
    arrays = load_file(path)
    assert arrays["slots"].dtype == np.uint16
    assert len(arrays["slots"]) == trie.info()["n_nodes"]
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["format_version"]) == ("succinct-tries", "1")
    assert metadata["kind"] == "LoudsTrie"
    assert json.loads(metadata["params"])["n_keys"] == len(KEYS)
    assert json.loads(metadata["checksums"]).keys() == arrays.keys()


def test_str_and_relative_paths(
    trie: LoudsTrie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trie.save("index.safetensors")
    assert load("index.safetensors").n_keys == len(KEYS)
    assert verify("index.safetensors").n_keys == len(KEYS)
    assert files_in(tmp_path) == ["index.safetensors"]


# ---- older versions -----------------------------------------------------------------------------

SCRIPTS = {
    1: make_version_1.main,
    2: make_version_2.main,
    3: make_version_3.main,
    4: make_version_4.main,
}
PINNED = sorted(path for path in DATA.glob("version-*.safetensors") if "csr" not in path.name)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("path", PINNED, ids=[path.stem for path in PINNED])
def test_pinned_files_stay_readable(path: Path, mmap: bool) -> None:
    verify(path)
    index = load(path, mmap=mmap)
    assert type(index) is (StepMap if "steps" in path.name else LoudsTrie)
    assert index.n_keys == len(KEYS)
    assert list(index.completions()) == sorted(KEYS)
    assert sorted(index.key(i) for i in range(len(KEYS))) == sorted(KEYS)
    assert index.info()["tails"]["folded"] == index.has_tail == ("tails" in path.name)
    if "items" in path.name:
        assert index.items is not None
        assert index.items.items(index.key_id((1,))) == ["one", "uno"]
        assert [index.items.items(index.key_id(key))[0] for key in KEYS] == NAMES[:-1]
    else:
        assert index.items is None


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dense", [0, 1])
def test_rows_of_version_1_stay_readable(dense: int, mmap: bool) -> None:
    path = DATA / f"version-1-csr{'-dense' * dense}.safetensors"
    verify(path)
    index = load(path, mmap=mmap)
    assert isinstance(index, CsrMap)
    assert index.dense_levels == dense
    assert list(index.completions()) == sorted(KEYS[: len(KEYS) - dense])
    assert [index.max_fan_out(step) for step in range(index.max_length)] == [
        4 - dense, 2, 2, 1, 1, 1, 1
    ]  # fmt: skip


@pytest.mark.parametrize("version", SCRIPTS)
def test_the_scripts_make_these_files(tmp_path: Path, version: int) -> None:
    SCRIPTS[version](tmp_path)
    assert files_in(tmp_path) == sorted(path.name for path in DATA.glob(f"version-{version}-*"))
    for path in tmp_path.iterdir():
        assert list(load(path).completions()) == list(load(DATA / path.name).completions())
        with safe_open(path, framework="numpy") as file:
            assert file.metadata()["format_version"] == str(version)


# ---- writing ------------------------------------------------------------------------------------


def test_a_loaded_index_goes_on_when_its_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    LoudsTrie.build(KeyTable.from_sequences(KEYS)).save(path)
    mapped = load(path)
    LoudsTrie.build(KeyTable.from_sequences([(5, 5)])).save(path)
    assert list(mapped.completions()) == sorted(KEYS)
    mapped.save(path)
    assert list(load(path).completions()) == sorted(KEYS) == list(mapped.completions())


def test_new_files_follow_the_umask_and_replaced_ones_keep_their_mode(
    trie: LoudsTrie, tmp_path: Path
) -> None:
    path = tmp_path / "index.safetensors"
    umask = os.umask(0o027)
    try:
        trie.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        trie.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(umask)


def test_a_link_stays_a_link(trie: LoudsTrie, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "index.safetensors"
    link.symlink_to(target)
    trie.save(link)  # the target does not exist yet
    trie.save(link)
    assert link.is_symlink()
    assert load(link).n_keys == load(target).n_keys == len(KEYS)
    assert files_in(tmp_path / "there") == [target.name]


def test_a_name_as_long_as_names_can_be(trie: LoudsTrie, tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    trie.save(path)
    assert load(path).n_keys == len(KEYS)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), r"No space left.*index\.safetensors"),
        (KeyboardInterrupt("stop"), "stop"),
    ],
)
def test_failing_half_way_leaves_nothing_and_the_older_file(
    trie: LoudsTrie,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    words: str,
    there: bool,
) -> None:
    path = tmp_path / "index.safetensors"
    if there:
        path.write_bytes(b"older")

    def chunks(array: object) -> list[bytes]:
        raise error

    monkeypatch.setattr(format, "_crc32", lambda array: "00000000")
    monkeypatch.setattr(format, "_chunks", chunks)
    with pytest.raises(type(error), match=words):
        trie.save(path)
    assert files_in(tmp_path) == (["index.safetensors"] if there else [])
    assert not there or path.read_bytes() == b"older"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_last_steps_of_writing_may_fail_too(
    trie: LoudsTrie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, there: bool
) -> None:
    path = tmp_path / "index.safetensors"
    if there:
        path.write_bytes(b"older")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match=r"Input/output error.*index\.safetensors"):
            trie.save(path)
    assert files_in(tmp_path) == (["index.safetensors"] if there else [])
    assert not there or path.read_bytes() == b"older"
    trie.save(path)
    assert verify(path).n_keys == len(KEYS)


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "line\nfeed", "\u00e9", " ", "-"])
def test_odd_names(trie: LoudsTrie, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    trie.save(path)
    assert verify(path).n_keys == load(path, mmap=False).n_keys == len(KEYS)
    assert files_in(tmp_path) == [name]
    path.write_bytes(b"x")
    with pytest.raises(FormatError, match="safetensors"):
        load(path)


def test_names_that_cannot_be(trie: LoudsTrie) -> None:
    for call in (trie.save, load, verify):
        with pytest.raises(ValueError, match="null byte"):
            call("a\0b")


FULL_DISK = """
import resource, signal, sys
from succinct import KeyTable, LoudsTrie
trie = LoudsTrie.build(KeyTable.from_rows([[i % 100, i // 100] for i in range(10_000)]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    trie.save(sys.argv[1])
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 100, 5000, 20_000])
def test_no_room_for_the_file(tmp_path: Path, room: int) -> None:
    path = tmp_path / "index.safetensors"
    path.write_bytes(b"older")
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path, str(room)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "File too large" in ran.stdout
    assert str(path) in ran.stdout
    assert ran.stderr == ""
    assert path.read_bytes() == b"older"
    assert files_in(tmp_path) == ["index.safetensors"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0


def test_paths_that_cannot_be_written(trie: LoudsTrie, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="directory"):
        trie.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing.index"):
        trie.save(tmp_path / "missing" / "index")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(NotADirectoryError, match=r"file.index"):
        trie.save(tmp_path / "file" / "index")
    with pytest.raises(OSError, match=r"too long|nnn"):
        trie.save(tmp_path / ("n" * 256))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe"):
        trie.save(tmp_path / "pipe")
    assert files_in(tmp_path) == ["file", "pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_not_replaced(trie: LoudsTrie, device: str) -> None:
    with pytest.raises(OSError, match=device):
        trie.save(device)
    assert stat.S_ISCHR(os.stat(device).st_mode)


@pytest.mark.skipif(ROOT, reason="the superuser may write everywhere")
def test_a_directory_without_permission(trie: LoudsTrie, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(PermissionError, match=r"locked.index"):
        trie.save(folder / "index")
    assert files_in(folder) == []


def test_items_of_another_index_are_not_saved(trie: LoudsTrie, tmp_path: Path) -> None:
    other = LoudsTrie.build(KeyTable.from_sequences(KEYS))
    items = ItemMap(other, np.arange(len(KEYS)), NAMES[: len(KEYS)])
    with pytest.raises(ValueError, match="another index"):
        trie.save(tmp_path / "index", items)
    with pytest.raises(TypeError, match="ItemMap, got dict"):
        trie.save(tmp_path / "index", {"a": 1})  # type: ignore[arg-type]
    assert files_in(tmp_path) == []


# ---- reading what is none -----------------------------------------------------------------------


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        load(tmp_path / "missing")
    with pytest.raises(OSError, match="directory"):
        load(tmp_path)
    with pytest.raises(OSError, match="no regular file"):
        load("/dev/null")
    with pytest.raises(TypeError, match=r"str|path"):
        load(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 8, b"1\t2 3\n" * 100, b"\xff" * 64])
def test_foreign_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    for mmap in (True, False):
        with pytest.raises(FormatError, match=r"file: expected a safetensors file"):
            load(path, mmap=mmap)
    with pytest.raises(FormatError, match="safetensors"):
        verify(path)
