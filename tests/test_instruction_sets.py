"""Every instruction set of the extension gives the same answers as counting does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from succinct import DEAD, BitVector, EliasFano, KeyTable, LoudsTrie, StepMap
from succinct.bits.bitvector import isa, use_isa
from tests.strategies import bit_lists, sorted_values

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
    if 0 < vector.count() < 64:  # a whole group of queries in a short vector
        asked = np.resize(np.arange(vector.count()), 130)
        np.testing.assert_array_equal(vector.select1(asked), np.flatnonzero(bits)[asked])
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
    vector = BitVector.from_bools(clustered)
    for select, count in (
        (vector.select1, vector.count()),
        (vector.select0, len(vector) - vector.count()),
    ):
        numbers = rng.integers(0, count, 1000)
        want = select(numbers)
        for at in (0, 70, 999):
            wrong = numbers.copy()
            wrong[at] = count
            with pytest.raises(IndexError, match=rf"\[{at}\] = {count} is out of range"):
                select(wrong)
        assert select(numbers, out=numbers) is numbers  # in place
        np.testing.assert_array_equal(numbers, want)


def test_beyond_one_superblock(chosen: str) -> None:
    length = 2**32 + 2**31 + 77
    at = np.array([5, 2**32 - 1, 2**32, 2**32 + 511, length - 1])
    vector = BitVector.from_indices(at, length)
    np.testing.assert_array_equal(vector.select1(np.arange(5)), at)
    np.testing.assert_array_equal(vector.select1(np.resize(np.arange(5), 70)), np.resize(at, 70))
    np.testing.assert_array_equal(vector.rank1(at), np.arange(5))
    numbers = np.array([0, 5, 2**31, 2**32 - 3, 2**32 - 2, 2**32 + 100, length - 6])
    near = 2**32 + np.arange(-30, 30) * 700  # on both sides of the border, and across it
    numbers = np.concatenate([numbers, near, near - 2**31])
    zeros = vector.select0(numbers)
    np.testing.assert_array_equal(vector.rank0(zeros), numbers)
    assert not vector[zeros].any()
    with pytest.raises(IndexError, match=rf"\[100\] = {length + 1} is out of range"):
        vector.rank1(np.where(np.arange(len(zeros)) < 100, zeros, length + 1))


@pytest.mark.parametrize(
    ("values", "top"),
    [
        (lambda rng: rng.integers(0, 5_000, 20_000), 5_000),  # no low bits
        (lambda rng: rng.integers(0, 2**20, 20_000), 2**20),
        (lambda rng: rng.integers(0, 2**36, 20_000), 2**37),
        (lambda rng: rng.integers(0, 2**63, 500), 2**63),
        (lambda rng: rng.integers(2**63 - 9, 2**63, 5), 2**63),
        # Crowded buckets, equal values, and long stretches with none.
        (lambda rng: rng.integers(0, 40, 3_000) * 2**15 + rng.integers(0, 300, 3_000), 2**21),
        (lambda rng: np.append(rng.integers(0, 100, 9_000), 2**25 + np.arange(9_000)), 2**26),
        (lambda rng: np.append(np.arange(9_000), 9_000 + 2_000 * np.arange(9)), 2**15),
    ],
)
def test_elias_fano(chosen: str, values: Callable[[np.random.Generator], Any], top: int) -> None:
    rng = np.random.default_rng(6)
    held = np.sort(values(rng)).astype(np.uint64)
    sequence = EliasFano(held)
    near = (held[:2_000, None] + np.array([-1, 0, 1]).astype(np.uint64)).ravel()
    bounds = np.concatenate([near, rng.integers(0, top, 3_000).astype(np.uint64), held[-999:] + 1])
    bounds = np.append(bounds[bounds < 2**63 + 1], np.uint64(2**64 - 1))
    rng.shuffle(bounds)
    rank = np.searchsorted(held, bounds)
    following = np.append(held, np.uint64(2**64 - 1))[rank]
    for n in (len(bounds), 64, 63, 8, 1):
        np.testing.assert_array_equal(sequence.rank(bounds[:n]), rank[:n])
        np.testing.assert_array_equal(sequence.next_geq(bounds[:n]), following[:n])
    assert sequence.next_geq(bounds, out=bounds) is bounds  # in place
    np.testing.assert_array_equal(bounds, following)
    places = rng.integers(0, len(held), 20_000)
    np.testing.assert_array_equal(sequence.access(places), held[places])
    own = places.copy()
    sequence.access(own, out=own.view(np.uint64))  # in place
    np.testing.assert_array_equal(own.view(np.uint64), held[places])
    for at in (0, 100, len(places) - 1):
        wrong = places.copy()
        wrong[at] = len(held)
        with pytest.raises(IndexError, match=rf"\[{at}\] = {len(held)} is out of range"):
            sequence.access(wrong)


@given(values=sorted_values().filter(bool))
def test_elias_fano_borders(values: list[int]) -> None:
    held, one = np.array(values, np.uint64), np.uint64(1)
    bounds = np.unique(np.concatenate([held, held + one, np.maximum(held, one) - one]))
    bounds = np.resize(bounds, 200)  # whole groups of queries and some more
    rank = np.searchsorted(held, bounds)
    following = np.append(held, np.uint64(2**64 - 1))[rank]
    places = np.resize(np.arange(len(held)), 200)
    before = isa()
    try:
        for name in NAMES:
            try:
                use_isa(name)
            except ValueError:
                continue
            sequence = EliasFano(held)
            np.testing.assert_array_equal(sequence.rank(bounds), rank)
            np.testing.assert_array_equal(sequence.next_geq(bounds), following)
            np.testing.assert_array_equal(sequence.access(places), held[places])
    finally:
        use_isa(before)


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


def test_labels_alike_in_their_low_bits(chosen: str) -> None:
    # Families of 1, 2, … 40 and of 500, whose labels differ beyond the low 16 bits only, or lie
    # close together; those in the last slots too.
    low, high = np.divmod(np.arange(40 * 41 // 2), 40)
    family = np.append(np.repeat(np.arange(40), np.arange(1, 41)), np.full(500, 40))
    label = np.append(low + (high % 3 << 16) + high // 3 * 2, 7 * np.arange(500) << 8)
    rows = np.unique(np.stack([family, label], 1), axis=0)
    trie = LoudsTrie.build(KeyTable.from_rows(rows))
    every = np.stack(np.meshgrid(np.arange(41), np.append(np.unique(label), 2**32 - 2)), 2)
    every = every.reshape(-1, 2)
    number = {tuple(row): i for i, row in enumerate(rows.tolist())}
    want = [number.get(tuple(row), -1) for row in every.tolist()]
    assert trie.key_ids(every).tolist() == want
    states = trie.advance(trie.advance(trie.root, every[:, 0]), every[:, 1])
    assert trie.state_key_ids(states).tolist() == want
    assert [tuple(row) in trie for row in every[:500].tolist()] == [i >= 0 for i in want[:500]]


@pytest.mark.parametrize("layout", ["joint", "packed", "sparse", "louds"])
def test_rows_of_very_different_length(chosen: str, layout: str) -> None:
    # Rows of one entry, then some of thousands: stretches without a boundary, and crowded ones.
    rng = np.random.default_rng(5)
    widths = np.where(np.arange(3000) % 500 == 499, 6000, 1 + (np.arange(3000) % 7 == 0))
    first = np.repeat(np.arange(3000), widths)
    second = np.concatenate([np.sort(rng.choice(9000, n, replace=False)) for n in widths])
    rows = np.stack([first, second, (first + second) % 5], 1)
    keys = KeyTable.from_rows(rows)
    index = LoudsTrie.build(keys, tail=False) if layout == "louds" else StepMap.build(keys, layout)
    assert index.key_ids(rows).tolist() == list(range(len(rows)))
    some = rng.integers(0, len(rows), 2000)
    assert [index.key_id(tuple(row)) for row in rows[some].tolist()] == some.tolist()
    assert [index.key(int(i)) for i in some[:100]] == list(map(tuple, rows[some[:100]].tolist()))
    absent = np.stack([first, (second + 1) % 9000], 1)
    states = index.advance(index.advance(index.root, absent[:, 0]), absent[:, 1])
    present = np.isin(absent @ [9000, 1], rows[:, :2] @ [9000, 1])
    np.testing.assert_array_equal(states != DEAD, present)
    asked = np.stack([first, absent[:, 1], (first + second + 1) % 5], 1)
    number = {tuple(row): i for i, row in enumerate(rows.tolist())}
    want = [number.get(tuple(row), -1) for row in asked.tolist()]
    assert index.key_ids(asked).tolist() == want
    offsets, tokens, _ = index.children(index.advance(index.root, np.arange(3000)))
    np.testing.assert_array_equal(np.diff(offsets), widths)
    np.testing.assert_array_equal(tokens, second)
    mask = index.allowed_mask(index.advance(index.root, [3, 499])).view(np.uint32)
    bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little")
    assert [np.flatnonzero(row).tolist() for row in bits] == [
        second[first == 3].tolist(),
        second[first == 499].tolist(),
    ]
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
