"""Step-sliced indexes that are built piece by piece, against those that are built as a whole."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import KeyTable, StepMap
from succinct.maps.layout import NAMES
from succinct.maps.pieces import Pieces
from succinct.maps.plan import Plan
from succinct.maps.stepmap import read_layout
from succinct.trie.passes import Passes


def assembled(pieces):
    """The arrays that the pieces make, sent to where nothing is zero; and how many there were."""
    out = {name: np.full(size, 2**64 - 1, np.uint64) for name, size in pieces.sizes.items()}
    buffer = np.full(pieces.capacity, 2**64 - 1, np.uint64)
    count = 0
    for fill in pieces:
        for run in fill(buffer):
            part = buffer[run.begin : run.end]
            out[run.array][run.to : run.to + len(part)] = part
        count += 1
    return out, count


def check(keys, layout, capacity, threads=1):
    plan = Plan(Passes(keys, threads), read_layout(keys, layout))
    pieces = Pieces(plan, capacity)
    out, count = assembled(pieces)
    whole = StepMap.build(keys, layout, tail=False).lane_arrays()
    assert np.array_equal(out["bits"], whole.bits.words)
    assert np.array_equal(out["values"], whole.values)
    found = pieces.directory()
    for name in ("blocks", "supers", "samples1", "samples0"):
        mine, theirs = getattr(found, name), getattr(whole.bits, name)
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)
    assert found[5:] == whole.bits[5:]
    return count


@pytest.mark.parametrize("layout", ["small", "fast", *NAMES])
@pytest.mark.parametrize("top", [3, 511, 70_000])
def test_large_tables(layout, top):
    if layout == "bitmap" and top > 511:
        top = 513
    if layout == "huffman":
        top = min(top, 2**16)
    rng = np.random.default_rng(top)
    rows = np.minimum(rng.zipf(1.2, (20_000, 9 if top == 3 else 3)), top)
    rows[:10_000, 0] = rng.integers(0, top, 10_000)
    assert check(KeyTable.from_rows(rows), layout, 100, threads=2) > 2


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2, 63, 64, 2**16]), min_size=1, max_size=5)),
    st.sampled_from(["small", *NAMES]),
    st.integers(1, 40),
    st.integers(1, 2),
)
def test_ragged_tables(sequences, layout, capacity, threads):
    """With keys that are prefixes of others, in pieces of a few keys."""
    if layout == "huffman":
        sequences = [[min(token, 2**16 - 1) for token in tokens] for tokens in sequences]
    keys = KeyTable.from_sequences([(1, 2), (1, 2, 2), (2,), *map(tuple, sequences)])
    check(keys, layout, capacity, threads)


def test_memory():
    """No more than the buffer and a share of the index, which is not built anywhere."""
    rows = np.random.default_rng(1).integers(0, 256, (300_000, 4), dtype=np.uint16)
    keys = KeyTable.from_rows(rows)
    tracemalloc.start()
    try:
        pieces = Pieces(Plan(Passes(keys, 1), read_layout(keys, "fast")), 10_000)
        buffer = np.empty(pieces.capacity, np.uint64)
        for fill in pieces:
            fill(buffer)
        pieces.directory()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < pieces.plan.place.nbytes / 2
