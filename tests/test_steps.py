"""StepMap: which representations are chosen, how large they come out, what damaged files get."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from succinct import FormatError, KeyTable, StepMap, load, verify
from succinct.bits import lanes as bit_lanes
from succinct.bits.bitvector import isa, use_isa
from succinct.maps import lanes
from tests.implementations import build_steps
from tests.strategies import catalogs

NAMES = ("bitmap", "joint", "packed", "sparse", "dac", "rice", "huffman")


def rows_of(sequences):
    return KeyTable.from_sequences(sequences)


def semantic_ids(n, length=5, codes=256, seed=1):
    """Sorted distinct rows, the codes of step l in [codes * l, codes * (l + 1)), skewed given the
    prefix."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, codes + 1) ** 0.9
    place = np.zeros(2 * n, np.uint64)
    columns = []
    for step in range(length):
        rank = random.choice(codes, 2 * n, p=weights / weights.sum()).astype(np.uint64)
        code = (rank * (2 * place + 1) + place) % codes
        place = (place * 31 + code * 977 + 7) % 65521
        columns.append(code.astype(np.int64) + codes * step)
    rows = np.unique(np.stack(columns, 1), axis=0)
    assert len(rows) >= n
    return rows[np.sort(random.permutation(len(rows))[:n])]


def log2_binomial(n, k):
    return (
        np.log2(np.arange(n - k + 1, n + 1, dtype=np.float64)).sum()
        - np.log2(np.arange(1, k + 1, dtype=np.float64)).sum()
    )


def bound(rows):
    """Bits a key of the trie of rows: the entropy of the degrees of every level, and of which
    tokens the children of a prefix have among those of the level."""
    bits = 0.0
    parents = np.zeros(len(rows), np.int64)
    for step in range(rows.shape[1]):
        new = np.ones(len(rows), bool)
        new[1:] = (rows[1:, : step + 1] != rows[:-1, : step + 1]).any(1)
        degrees = np.bincount(parents[new])
        tokens = len(np.unique(rows[:, step]))
        share = np.bincount(degrees)[1:]
        share = share[share > 0] / len(degrees)
        bits -= len(degrees) * (share * np.log2(share)).sum()
        for degree, count in zip(*np.unique(degrees, return_counts=True), strict=True):
            bits += count * log2_binomial(tokens, int(degree))
        parents = np.cumsum(new) - 1
    return bits / len(rows)


# What is chosen


def layouts(index):
    return [step["layout"].split(",")[0] for step in index.info()["steps"]]


def test_every_level_that_is_full_is_a_bitmap():
    rows = list(itertools.product(range(8), range(8), range(8)))
    index = StepMap.build(rows_of(rows))
    assert layouts(index) == ["bitmap"] * 3
    assert [step["nbytes"] for step in index.info()["steps"]] == [1, 8, 64]


def test_rows_of_one_entry_have_no_boundaries():
    rows = [(i, 7 * i % 1000, 5) for i in range(1000)]
    index = StepMap.build(rows_of(rows))
    assert index.info()["steps"][1]["layout"] == "packed, 10 bits, one entry a row"
    assert index.info()["steps"][2]["bits_per_key"] == 0  # a single token needs no bits


def test_wide_rows_are_joint_codes():
    random = np.random.default_rng(0)
    rows = [(i, int(t)) for i in range(64) for t in random.choice(2048, 100, replace=False)]
    index = StepMap.build(rows_of(rows))
    assert layouts(index)[1] == "joint"


def test_skewed_tokens_are_direct_access_codes():
    random = np.random.default_rng(0)
    tokens = np.minimum(random.zipf(1.6, (20000, 3)), 2**16) * 2311 % 65537
    rows = np.unique(np.hstack([np.arange(20000)[:, None] * 3, tokens]), axis=0)
    index = StepMap.build(KeyTable.from_rows(rows), tail=False)
    assert layouts(index)[1:] == ["dac"] * 3
    packed = StepMap.build(KeyTable.from_rows(rows), "packed")
    assert index.nbytes < 0.75 * packed.nbytes
    assert index.key_ids(rows).tolist() == list(range(len(rows)))


def test_fast_takes_bitmaps_and_plain_arrays():
    keys = KeyTable.from_rows(semantic_ids(20_000, codes=2048))
    index = StepMap.build(keys, "fast")
    assert layouts(index) == ["bitmap"] + ["packed"] * 4
    assert [step.width for step in index._steps] == [0, 16, 16, 16, 16]
    assert index.nbytes < 0.5 * StepMap.build(keys, "sparse").nbytes


def test_a_name_for_each_step():
    rows = semantic_ids(2000, length=7)
    index = StepMap.build(KeyTable.from_rows(rows), NAMES)
    assert layouts(index) == list(NAMES)
    assert index.key_ids(rows).tolist() == list(range(2000))
    assert index.key([0, 1999]) == [tuple(rows[0].tolist()), tuple(rows[-1].tolist())]
    for step in index.info()["steps"]:
        assert step["share"] >= 0
        assert 0 < step["density"] <= 1


def test_only_levels_that_mix_have_flags():
    fixed = StepMap.build(rows_of([(1, 2), (1, 3), (2, 2)]), "packed")
    mixed = StepMap.build(rows_of([(1, 2), (1, 3), (2,)]), "packed")
    also = StepMap.build(rows_of([(1, 2), (1, 3), (1,), (2,), (3, 1)]), "packed")
    bits = [[step["nbytes"] for step in index.info()["steps"]] for index in (fixed, mixed, also)]
    flags = [index._place.table[0, lanes._INNER_ROWS] for index in (fixed, mixed, also)]
    assert flags == [2, 1, 2]
    assert [len(index._place.parts) for index in (fixed, mixed, also)] == [2, 3, 4]
    assert all(bits)


@pytest.mark.parametrize("wrong", ["dense", ["packed"], ["packed", "x"], ["packed"] * 3, [1, 2]])
def test_unknown_layouts(wrong):
    with pytest.raises(ValueError, match="layout"):
        StepMap.build(rows_of([(1, 2)]), wrong)


def test_layouts_that_cannot_be():
    keys = rows_of([(i, 2**32 - 2 - i) for i in range(1000)] + [(0, 0)])
    with pytest.raises(ValueError, match="bits"):
        StepMap.build(keys, "bitmap")
    with pytest.raises(ValueError, match="tokens below"):
        StepMap.build(keys, "dac")
    with pytest.raises(ValueError, match="range of 65536, those of step 1"):
        StepMap.build(keys, "huffman")
    with pytest.raises(TypeError, match="KeyTable"):
        StepMap.build([(1, 2)])


# Sizes


def test_sizes_of_semantic_ids(tmp_path):
    rows = semantic_ids(200_000, length=4, codes=1024)
    index = StepMap.build(KeyTable.from_rows(rows))
    index.save(tmp_path / "index")
    bits = 8 * (tmp_path / "index").stat().st_size / len(rows)
    assert bits <= 1.12 * bound(rows)
    assert index.bits_per_key <= 1.16 * bound(rows)  # in memory: directory and marks too
    assert sum(step["nbytes"] for step in index.info()["steps"]) <= bits * len(rows) / 8


@pytest.mark.parametrize("name", NAMES[1:3])
def test_the_choice_is_the_smallest(name):
    keys = KeyTable.from_rows(semantic_ids(20_000))
    assert StepMap.build(keys).nbytes <= StepMap.build(keys, name).nbytes


@given(catalog=catalogs)
def test_no_step_is_smaller_forced(catalog):
    keys = rows_of(catalog)
    small = StepMap.build(keys, tail=False)
    for name in ("joint", "packed", "sparse"):
        forced = StepMap.build(keys, name)
        assert small._place.n_bits + 64 * small._place.n_words <= 1.1 * (
            forced._place.n_bits + 64 * forced._place.n_words + 64 * small.max_length + 512
        )


# Boundaries


def grouped(degrees, tokens=1000):
    """Rows (i, token) of which the prefixes i have the given numbers of continuations."""
    random = np.random.default_rng(len(degrees))
    return np.array(
        [
            (i, token)
            for i, degree in enumerate(degrees)
            for token in np.sort(random.choice(tokens, degree, replace=False)).tolist()
        ]
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "degrees",
    [
        [1] * 3000,
        ([1] * 40 + [2]) * 70,
        ([1] * 40 + [2] * 30) * 20,
        [1] * 1500 + [900] + [1] * 1500 + [3],
        [300, 1, 2, 700] * 8,
        [64] * 63 + [1000],
        [5] * 1000,
    ],
)
def test_rows_of_all_shapes(name, degrees):
    rows = grouped(degrees)
    index = StepMap.build(KeyTable.from_rows(rows), ["bitmap", name])
    assert index.key_ids(rows).tolist() == list(range(len(rows)))
    offsets, tokens, states = index.children(np.arange(1, len(degrees) + 1))
    assert np.diff(offsets).tolist() == degrees
    assert tokens.tolist() == rows[:, 1].tolist()
    assert states.tolist() == list(range(len(degrees) + 1, len(degrees) + len(rows) + 1))
    numbers = np.random.default_rng(0).permutation(len(rows))[:3000]
    assert index.key(numbers) == [tuple(row) for row in rows[numbers].tolist()]
    assert index._fault() is None


@pytest.mark.parametrize("name", ["portable", "x86-64-v3", "avx512"])
def test_instruction_sets(name):
    before = isa()
    try:
        use_isa(name)
    except ValueError:
        pytest.skip(f"this processor does not run {name}")
    try:
        rows = semantic_ids(3000, length=7)
        for layout in (NAMES, NAMES[::-1]):
            index = StepMap.build(KeyTable.from_rows(rows), layout)
            assert index.key_ids(rows).tolist() == list(range(3000))
            assert index.key(np.arange(3000)) == [tuple(row) for row in rows.tolist()]
            assert [index.key_id(tuple(row)) for row in rows[:99].tolist()] == list(range(99))
            assert (index.key_ids(rows[:, ::-1]) == -1).all()
            states = np.zeros(3000, np.uint64)
            for column in rows.T:
                states = index.advance(states, column)
            assert index.state_key_ids(states).tolist() == list(range(3000))
    finally:
        use_isa(before)


# Lanes, uncompiled


def check_lanes(index, states):
    """The lanes say what the index says of these states."""
    arrays = index.lane_arrays()
    with np.errstate(over="ignore"):
        for state in states:
            tokens, children = index.children(state)
            first, count = lanes.child_range(arrays, state)
            assert count == len(tokens)
            assert lanes.has_children(arrays, state) == (count > 0)
            assert lanes.is_terminal(arrays, state) == index.is_terminal(state)
            assert lanes.key_number(arrays, state) == index.state_key_ids(state)
            for k, (token, child) in enumerate(zip(tokens.tolist(), children, strict=True)):
                found = lanes.nth_child(arrays, state, first, np.int64(k))
                assert found == (token, child)
                asked = np.int64(token)
                assert lanes.find_child(arrays, state, first, count, asked) == child
                if token + 1 not in tokens:
                    asked = np.int64(token + 1)
                    assert lanes.find_child(arrays, state, first, count, asked) == lanes._DEAD


def first_states(index, n):
    """The first states from above, level by level, and DEAD."""
    states = [index.root]
    for state in states:
        states += index.children(state)[1][: n - len(states)].tolist()
    return [*map(np.uint64, states), lanes._DEAD]


@settings(max_examples=20)
@given(
    catalog=catalogs,
    name=st.sampled_from(["small", "joint", "packed", "sparse", "rice", "huffman"]),
    tail=st.booleans(),
)
def test_lanes_agree_with_the_index(catalog, name, tail):
    index = build_steps(catalog, name, tail).raw
    check_lanes(index, first_states(index, 60))


def test_integers_of_any_place_and_width():
    words = np.random.default_rng(0).integers(0, 2**64, 4, dtype=np.uint64)
    number = sum(int(word) << 64 * i for i, word in enumerate(words))
    for start, width in [(0, 64), (1, 63), (60, 10), (63, 64), (100, 0), (127, 1)]:
        got = bit_lanes.get_bits(words, np.int64(start), np.int64(width))
        assert got == number >> start & (1 << width) - 1


# Files


@pytest.fixture
def saved(tmp_path):
    rows = [*semantic_ids(500).tolist(), [1], [1, 300], [2, 3, 4], [9, 9, 9, 9, 9, 9]]
    index = StepMap.build(
        rows_of(map(tuple, rows)), ["small", "joint", "packed", "rice", "huffman", "small"]
    )
    path = tmp_path / "index.safetensors"
    index.save(path)
    return path


def rewrite(path, change):
    """Change the arrays (by name) and params of a file, checksums left wrong."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    arrays = {
        name: np.frombuffer(data, {"U64": "<u8", "I64": "<i8", "U32": "<u4"}[entry["dtype"]],
                            offset=8 + size + entry["data_offsets"][0],
                            count=entry["shape"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    }  # fmt: skip
    change(arrays)
    path.write_bytes(data)


def test_a_saved_index_verifies(saved):
    index = verify(saved)
    assert isinstance(index, StepMap)
    assert index.info()["kind"] == "StepMap"


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("field", range(10))
@pytest.mark.parametrize("value", [-1, 0, 1, 2, 33, 2**40, 2**63 - 1])
def test_wrong_numbers_are_refused_or_harmless(saved, step, field, value):
    def change(arrays):
        arrays["steps"][10 * step + field] = value

    rewrite(saved, change)
    try:
        index = load(saved)
    except FormatError:
        return
    poke(index)


def poke(index):
    """Ask everything of an index that may hold anything; it must answer or raise FormatError."""
    states = np.arange(min(index.n_states, 3000), dtype=np.uint64)
    index.children(states)
    index.allowed_mask(states[:50])
    index.is_terminal(states)
    index.state_key_ids(states)
    rows = semantic_ids(500)
    index.key_ids(rows)
    numbers = np.arange(index.n_keys)
    index.key(numbers)
    list(itertools.islice(index.completions(()), 2000))
    index._fault()
    arrays = index.lane_arrays()
    with np.errstate(over="ignore"):
        for state in states[:: len(states) // 40 + 1]:
            first, count = lanes.child_range(arrays, state)
            for k in range(min(count, 4)):
                token, _ = lanes.nth_child(arrays, state, first, np.int64(k))
                lanes.find_child(arrays, state, first, count, np.int64(token))
            lanes.key_number(arrays, state)


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_contents_stay_inside_the_arrays(data, tmp_path_factory):
    rows = [tuple(row) for row in semantic_ids(300).tolist()] + [(1,), (1, 300), (2, 3, 4)]
    name = data.draw(st.sampled_from(["small", *NAMES[1:]]))
    index = StepMap.build(rows_of(rows), name)
    path = tmp_path_factory.mktemp("damaged") / "index"
    index.save(path)

    def change(arrays):
        for name in ("bits", "values"):
            array = arrays[name]
            for _ in range(data.draw(st.integers(0, 3))):
                place = data.draw(st.integers(0, len(array) - 1))
                other = data.draw(st.integers(0, len(array) - 1))
                array[[place, other]] = array[[other, place]]  # the same ones in other places
            if name == "values":
                array[data.draw(st.integers(0, len(array) - 1))] = data.draw(
                    st.integers(0, 2**64 - 1)
                )

    rewrite(path, change)
    try:
        damaged = load(path)
    except FormatError:
        return
    poke(damaged)
