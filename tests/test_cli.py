"""The command line: what it prints, what it writes, and how it fails."""

import gzip
import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from succinct import KeyTable, LoudsTrie, load
from succinct.cli import _COMMANDS, _parser, main
from succinct.decode import BeamResult

KEYS = [(2, 5, 1), (2, 5, 3), (2, 7, 1), (4,), (4, 6), (2, 5, 1)]
NAMES = ["apple", "pear", "plum", "egg", "omelette", "pome"]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.tsv.gz"
    lines = (f"{n}\t{' '.join(map(str, k))}\n" for n, k in zip(NAMES, KEYS, strict=True))
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


@pytest.fixture
def index(catalog: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = catalog.with_name("index.safetensors")
    assert main(["build", str(catalog), "--items", "-o", str(path)]) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def proposals(tmp_path: Path) -> Path:
    path = tmp_path / "proposals.npz"
    logprobs = np.log([[0.7, 0.1, 0.2], [0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]).astype(np.float32)
    np.savez(path, token_ids=[[2, 4, 9], [5, 6, 7], [1, 3, 8]], logprobs=logprobs)
    return path


def fails(argv: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must end with code 1 and one line; return the line."""
    assert main([str(word) for word in argv]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("succinct: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def misused(argv: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that is called wrongly; return what it says."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in argv])
    assert ended.value.code == 2
    return capsys.readouterr().err


def run(*argv: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "succinct", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore


# build


@pytest.mark.parametrize("tail", ["auto", "yes", "no"])
def test_build(catalog: Path, tail: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = catalog.with_name("index.safetensors")
    assert main(["build", str(catalog), "--items", "--tail", tail, "-o", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert captured.err == ""
    assert summary["n_keys"] == 5
    assert summary["n_duplicates"] == 1
    assert summary["n_items"] == 6
    assert summary["file_bytes"] == out.stat().st_size
    index = load(out)
    assert isinstance(index, LoudsTrie)
    assert index.items is not None
    assert index.items.items(index.key_id((2, 5, 1))) == ["apple", "pome"]


def test_build_names_its_output(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(catalog), "--items"]) == 0
    assert "5 keys (1 duplicate), 6 items" in capsys.readouterr().out
    assert catalog.with_name("catalog.safetensors").exists()


def test_build_from_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "keys.npy", np.array([[3, 1], [2, 9], [3, 1]]))
    assert main(["build", str(tmp_path / "keys.npy"), "--memory-limit", "1G"]) == 0
    assert list(load(tmp_path / "keys.safetensors").completions()) == [(2, 9), (3, 1)]


def test_build_from_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"sid": [[3, 1], [2]]}), tmp_path / "keys.parquet")
    assert main(["build", str(tmp_path / "keys.parquet"), "--column", "sid"]) == 0
    assert list(load(tmp_path / "keys.safetensors").completions()) == [(2,), (3, 1)]


def test_build_from_lines(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"new": 0, "york": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "titles.txt").write_text("new york\nyork\n")
    argv = ["build", str(tmp_path / "titles.txt"), "--tokenizer", str(tmp_path / "words.json")]
    assert main(argv) == 0
    assert list(load(tmp_path / "titles.safetensors").completions()) == [(0, 1), (1,)]


def test_build_replaces_only_when_complete(
    catalog: Path, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = index.read_bytes()
    bad = catalog.with_name("bad.txt")
    bad.write_text("1 2\n3 -4\n")
    assert "line 2" in fails(["build", bad, "-o", index], capsys)
    assert index.read_bytes() == before
    assert sorted(p.name for p in index.parent.iterdir()) == [
        "bad.txt",
        "catalog.tsv.gz",
        "index.safetensors",
    ]
    assert main(["build", str(catalog), "--items", "--tail", "no", "-o", str(index)]) == 0
    assert index.read_bytes() != before


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "at least one key"), (b"1 x\n", "line 1"), (b"1 2\n\xff\n", "line 2")],
)
def test_build_from_bad_text(
    tmp_path: Path, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content)
    assert said in fails(["build", path], capsys)
    assert not (tmp_path / "keys.safetensors").exists()


@pytest.mark.parametrize("name", ["keys.gz", "keys.xz", "keys.npy"])
@pytest.mark.parametrize("content", [b"", b"neither packed nor an array"])
def test_build_from_broken_files(
    tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    fails(["build", path], capsys)


def test_build_from_truncated_gzip(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog.write_bytes(catalog.read_bytes()[:-9])
    assert str(catalog) in fails(["build", catalog, "--items"], capsys)


def test_build_checks_its_output_first(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no such directory" in fails(["build", catalog, "-o", tmp_path / "no" / "x"], capsys)
    assert "got a directory" in fails(["build", catalog, "-o", tmp_path], capsys)
    assert "replace the input" in fails(["build", catalog, "-o", catalog], capsys)
    assert "no such file" in fails(["build", tmp_path / "absent.txt"], capsys)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["build", "keys.parquet"], "--column"),
        (["build", "keys.txt", "--column", "sid"], "--column"),
        (["build", "keys.npy", "--items"], "--items"),
        (["build", "keys.npy", "--tokenizer", "x.json"], "--tokenizer"),
        (["build", "keys.txt", "--tail", "maybe"], "'auto', 'yes', 'no'"),
        (["build", "keys.txt", "--kind", "hash"], "'louds', 'steps', 'csr'"),
        (["build", "keys.txt", "--kind", "csr", "--tail", "no"], "--kind louds or steps"),
        (["build", "keys.txt", "--layout", "fast"], "--kind steps"),
        (["build", "keys.txt", "--kind", "csr", "--threads", "2"], "--threads goes with"),
        (["build", "keys.txt", "--dense-levels", "2"], "--kind csr"),
        (["build", "keys.txt", "--kind", "csr", "--dense-levels", "-1"], "expected a number"),
        (["build", "keys.txt", "--kind", "csr", "--dense-levels", "9" * 20], "expected a number"),
        (["build", "keys.txt", "--memory-limit", "lots"], "500M"),
        (["build", "keys.txt", "--memory-limit", "0"], "500M"),
        (["build", "keys.txt", "--tial", "no"], "did you mean --tail?"),
        (["info", "x", "--nonsense"], "there are: --help, --json"),
        (["search", "x", "y", "--beam-width", "ten"], "separated by commas"),
        (["demo", "--words", "0"], "at least 1"),
        (["bulid"], "build"),
        ([], "build, info, search, verify, demo"),
    ],
)
def test_wrong_calls(argv: list[object], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in misused(argv, capsys)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("steps", []),
        ("steps", ["--layout", "fast", "--threads", "2"]),
        ("csr", []),
        ("csr", ["--dense-levels", "2"]),
    ],
)
def test_build_of_maps(
    kind: str, options: list[str], catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "map.safetensors"
    argv = ["build", catalog, "--items", "--kind", kind, *options, "-o", out, "--json"]
    assert main([str(argument) for argument in argv]) == 0
    assert (
        json.loads(capsys.readouterr().out)["kind"] == {"steps": "StepMap", "csr": "CsrMap"}[kind]
    )
    assert main(["info", str(out)]) == 0
    assert "layout" in capsys.readouterr().out
    assert main(["verify", str(out)]) == 0


# info and verify


def test_info(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(index), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == "LoudsTrie"
    assert facts["n_keys"] == 5
    assert facts["n_states"] == 9
    assert facts["n_items"] == 6
    assert [step["prefixes"] for step in facts["steps"]] == [1, 2, 3]
    assert sum(part["nbytes"] for part in facts["parts"]) == facts["nbytes"]
    assert facts["tails"]["nbytes_plain"] > 0
    assert main(["info", str(index)]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ["topology", "density", "alpha", "n_items"])


def test_verify(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(index)]) == 0
    assert "are right" in capsys.readouterr().out
    assert main(["verify", str(index), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_verify_finds_a_flipped_bit(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(index.read_bytes())
    data[-1] ^= 1
    index.write_bytes(data)
    assert "checksum" in fails(["verify", index], capsys)
    assert main(["verify", str(index), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert "checksum" in document["problem"]


@pytest.mark.parametrize("command", ["info", "verify"])
@pytest.mark.parametrize("content", [None, b"", b"x" * 100])
def test_unreadable_indexes(
    command: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "index.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in fails([command, path], capsys)


# search


def test_search(index: Path, proposals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(index), str(proposals), "--beam-width", "3", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    (result,) = json.loads(captured.out)["results"]
    assert result["sequences"] == [[2, 5, 1], [4], [2, 7, 1]]
    assert result["items"] == [["apple", "pome"], ["egg"], ["plum"]]
    assert result["scores"] == sorted(result["scores"], reverse=True)
    assert main(["search", str(index), str(proposals)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("query 0: 5 results\n")
    assert "2 5 1  apple, pome" in text


def test_search_options(index: Path, proposals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["search", str(index), str(proposals), "--json", "--beam-width", "3,1,1"]
    argv += ["--max-results", "2", "--length-penalty", "1", "--min-token-logprob", "-5"]
    assert main([*argv, "--min-logprob", "-1.5", "--threads", "1"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["sequences"] == [[2, 5, 1]]
    assert result["scores"][0] == pytest.approx(np.log(0.7 * 0.5 * 0.7) * 6 / 8)


def test_search_writes_the_wire_format(
    index: Path, proposals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = index.with_name("out.bin")
    assert main(["search", str(index), str(proposals), "-o", str(out), "--beam-width", "2"]) == 0
    assert BeamResult.from_bytes(out.read_bytes())[0].sequences == [(2, 5, 1), (4,)]
    assert "2 results" in capsys.readouterr().out


def test_search_without_items(
    tmp_path: Path, proposals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.safetensors"
    LoudsTrie.build(KeyTable.from_sequences(KEYS)).save(path)
    assert main(["search", str(path), str(proposals), "--json"]) == 0
    assert "items" not in json.loads(capsys.readouterr().out)["results"][0]


def test_search_finding_nothing(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.npz"
    np.savez(path, token_ids=np.array([[9]]), logprobs=np.array([[-1.0]], dtype=np.float32))
    assert main(["search", str(index), str(path)]) == 0
    assert capsys.readouterr().out == "query 0: 0 results\n"


def test_search_with_bad_proposals(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.npz"
    argv = ["search", index, path]
    assert "No such file" in fails(argv, capsys)
    path.write_bytes(b"PK\x03\x04 and no more")
    assert str(path) in fails(argv, capsys)
    np.savez(path, ids=[[1]])
    assert "token_ids and logprobs, got ids" in fails(argv, capsys)
    with open(path, "wb") as file:
        np.save(file, np.array([[1]]))
    assert str(path) in fails(argv, capsys)
    np.savez(path, token_ids=[[1]], logprobs=np.array([[np.nan]], dtype=np.float32))
    assert "nan" in fails(argv, capsys).lower()
    assert "beam" in fails([*argv, "--beam-width", "0"], capsys)


def test_search_without_queries(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.npz"
    np.savez(path, token_ids=np.zeros((0, 1, 1), int), logprobs=np.zeros((0, 1, 1), np.float32))
    assert main(["search", str(index), str(path)]) == 0
    assert "no query" in capsys.readouterr().out


# catalogs from pipes, empty ones, and ones that look as if they had names


@pytest.mark.parametrize("packed", [False, True])
def test_build_from_a_pipe(tmp_path: Path, packed: bool) -> None:
    output = tmp_path / "piped.safetensors"
    text = b"1 2 3\n1 4\n"
    command = [sys.executable, "-m", "succinct", "build", "-", "-o", str(output)]
    content = gzip.compress(text) if packed else text
    done = subprocess.run(command, input=content, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(load(output).completions()) == [(1, 2, 3), (1, 4)]
    assert run("build", "-").returncode == 2


def test_build_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nothing.txt"
    path.touch()
    assert "nothing.txt: the catalog is empty" in fails(["build", path], capsys)
    assert "directory" in fails(["build", tmp_path, "-o", tmp_path / "x"], capsys)


def test_hint_at_forgotten_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "catalog.txt"
    for text, hint in [("17 1 2\n18 1 2\n", True), ("1 2\n1 3\n2 3\n", False), ("1\n2\n", False)]:
        path.write_text(text)
        assert main(["build", str(path)]) == 0
        assert ("--items" in capsys.readouterr().err) == hint


# the program as a whole


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("succinct ")


def test_as_a_process(index: Path, proposals: Path) -> None:
    done = run("search", index, proposals, "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    json.loads(done.stdout)
    done = run("info", index.with_name("absent"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert run("info").returncode == 2


def test_closed_pipe(index: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "succinct", "info", str(index)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr == ""


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(_COMMANDS["info"], "run", interrupted)
    assert main(["info", "x"]) == 130
    assert capsys.readouterr().err == "succinct: interrupted\n"


def test_progress_bar_needs_a_terminal(catalog: Path) -> None:
    assert run("build", catalog, "--items").stderr == ""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "succinct", "build", str(catalog), "--items"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child) as process:
        os.close(child)
        shown = b""
        while select.select([parent], [], [], 60)[0]:
            try:
                shown += os.read(parent, 4096)
            except OSError:  # the other side is closed
                break
        assert process.wait(60) == 0
    os.close(parent)
    assert b"reading" in shown
    assert b"3 [" in shown


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
    commands = next(a for a in _parser()._actions if a.dest == "command").choices
    for name, command in commands.items():  # type: ignore[union-attr]
        assert f"## {name}\n" in page
        for action in command._actions:  # type: ignore[attr-defined]
            for option in action.option_strings:
                assert option in ("-h", "--help") or option in page, option
