"""Every instruction set of the extension gives the same answers as counting does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given

from succinct import DEAD, BitVector, KeyTable, LoudsTrie, StepMap
from succinct.bits.bitvector import isa, use_isa
from tests.strategies import bit_lists

NAMES = ("portable", "x86-64-v3", "avx512")


@pytest.fixture(params=NAMES)
def chosen(request: pytest.FixtureRequest) -> Iterator[str]:
    before = isa()
    try:
        yield use_isa(request.param)
    except ValueError:
        pytest.skip(f"this processor does not run {request.param}")
    finally:
        use_isa(before)


def check(bits: np.ndarray) -> None:
    vector = BitVector.from_bools(bits)
    ones = np.concatenate([[0], np.cumsum(bits)])
    places = np.arange(len(bits) + 1)
    np.testing.assert_array_equal(vector.rank1(places), ones)
    np.testing.assert_array_equal(vector.rank0(places), places - ones)
    np.testing.assert_array_equal(vector.select1(np.arange(vector.count())), np.flatnonzero(bits))
    np.testing.assert_array_equal(
        vector.select0(np.arange(len(bits) - vector.count())), np.flatnonzero(~bits)
    )
    for i in {0, len(bits) // 2, len(bits)}:  # the scalar road
        assert vector.rank1(i) == ones[i]


@given(bits=bit_lists())
def test_short_vectors(bits: list[bool]) -> None:
    before = isa()
    try:
        for name in NAMES:
            try:
                use_isa(name)
            except ValueError:
                continue
            check(np.array(bits, np.bool_))
    finally:
        use_isa(before)


@pytest.mark.parametrize("density", [0.0005, 0.01, 0.5, 0.97])
def test_blocks_between_samples(chosen: str, density: float) -> None:
    rng = np.random.default_rng(3)
    check(rng.random(300_001) < density)
    # Ones in far clusters: long searches between two samples.
    clustered = np.zeros(600_000, np.bool_)
    clustered[:5000] = clustered[-5000:] = rng.random(5000) < 0.9
    check(clustered)
    check(~clustered)


def test_beyond_one_superblock(chosen: str) -> None:
    length = 2**32 + 2**31 + 77
    at = np.array([5, 2**32 - 1, 2**32, 2**32 + 511, length - 1])
    vector = BitVector.from_indices(at, length)
    np.testing.assert_array_equal(vector.select1(np.arange(5)), at)
    np.testing.assert_array_equal(vector.rank1(at), np.arange(5))
    numbers = np.array([0, 5, 2**31, 2**32 - 3, 2**32 - 2, 2**32 + 100, length - 6])
    zeros = vector.select0(numbers)
    np.testing.assert_array_equal(vector.rank0(zeros), numbers)
    assert not vector[zeros].any()


def test_lookups(chosen: str) -> None:
    rng = np.random.default_rng(4)
    rows = np.unique(rng.integers(0, 70_000, (3000, 3)) % [5, 300, 70_000], axis=0)
    for tail in (False, True):
        trie = LoudsTrie.build(KeyTable.from_rows(rows), tail=tail)
        ids = trie.key_ids(rows)
        assert sorted(ids) == list(range(len(rows)))
        assert (trie.key_ids(np.add(rows, [0, 0, 70_000])) == -1).all()
        states = np.zeros(len(rows), np.uint64)
        for column in rows.T:
            states = trie.advance(states, column)
        np.testing.assert_array_equal(trie.state_key_ids(states), ids)
        assert [trie.key_id(tuple(row)) for row in rows[:50].tolist()] == ids[:50].tolist()


@pytest.mark.parametrize("layout", ["joint", "packed", "sparse"])
def test_rows_of_very_different_length(chosen: str, layout: str) -> None:
    # Rows of one entry, then some of thousands: stretches without a boundary, and crowded ones.
    rng = np.random.default_rng(5)
    widths = np.where(np.arange(3000) % 500 == 499, 6000, 1 + (np.arange(3000) % 7 == 0))
    first = np.repeat(np.arange(3000), widths)
    second = np.concatenate([np.sort(rng.choice(9000, n, replace=False)) for n in widths])
    rows = np.stack([first, second, (first + second) % 5], 1)
    index = StepMap.build(KeyTable.from_rows(rows), layout)
    assert index.key_ids(rows).tolist() == list(range(len(rows)))
    some = rng.integers(0, len(rows), 2000)
    assert [index.key_id(tuple(row)) for row in rows[some].tolist()] == some.tolist()
    assert [index.key(int(i)) for i in some[:100]] == list(map(tuple, rows[some[:100]].tolist()))
    absent = np.stack([first, (second + 1) % 9000], 1)
    states = index.advance(index.advance(index.root, absent[:, 0]), absent[:, 1])
    present = np.isin(absent @ [9000, 1], rows[:, :2] @ [9000, 1])
    np.testing.assert_array_equal(states != DEAD, present)
    offsets, tokens, _ = index.children(index.advance(index.root, np.arange(3000)))
    np.testing.assert_array_equal(np.diff(offsets), widths)
    np.testing.assert_array_equal(tokens, second)
    assert list(index.completions((499,))) == list(map(tuple, rows[first == 499].tolist()))


def test_environment_variable() -> None:
    code = "from succinct.bits.bitvector import isa; print(isa())"

    def run(name: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "SUCCINCT_ISA": name}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )

    assert run("portable").stdout == "portable\n"
    wrong = run("abacus")
    assert wrong.returncode != 0
    assert "must be one of portable" in wrong.stderr
    assert "'abacus'" in wrong.stderr


def test_out_is_filled_and_returned(chosen: str) -> None:
    vector = BitVector.from_bools([1, 0, 1, 1])
    out = np.empty(2, np.int64)
    assert vector.rank1([0, 4], out=out) is out
    assert out.tolist() == [0, 3]
    for wrong in (np.empty(3, np.int64), np.empty(2, np.int32), np.empty(4, np.int64)[::2], [0, 0]):
        with pytest.raises(ValueError, match="out must be"):
            vector.rank1([0, 4], out=wrong)
    with pytest.raises(IndexError, match=r"\[1\] = 5 is out of range"):
        vector.rank1(np.array([0, 5]), out=out)
