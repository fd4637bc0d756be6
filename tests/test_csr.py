"""CsrMap: dense levels, sizes, the lanes, and files that nobody should load."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from succinct import CsrMap, FormatError, KeyTable, load, verify
from succinct.maps.csr import csrmap, lanes
from tests.hostile import ODD_VALUES, content, write
from tests.strategies import SMALL, catalogs, catalogs_over, rows

DEAD = lanes._DEAD


def build(catalog, dense="auto"):
    return CsrMap.build(KeyTable.from_sequences(catalog), dense_levels=dense)


def semantic_ids(n, length=4, codes=300, seed=1):
    return np.unique(np.random.default_rng(seed).integers(0, codes, (n, length)), axis=0)


# Layout


def layouts(index):
    return [step["layout"] for step in index.info()["steps"]]


@pytest.mark.parametrize("dense", [0, 1, 2, 4, 5, 2**70, np.int64(2), np.uint8(3)])
def test_as_many_dense_levels_as_asked_for(dense):
    rows = semantic_ids(3000)
    index = CsrMap.build(KeyTable.from_rows(rows), dense_levels=dense)
    n = min(int(dense), 4)
    assert index.dense_levels == n
    assert layouts(index) == ["dense"] * n + ["csr"] * (4 - n)
    assert index.key_ids(rows).tolist() == list(range(len(rows)))
    assert index.key([0, len(rows) - 1]) == [tuple(rows[0].tolist()), tuple(rows[-1].tolist())]


def test_auto_takes_the_smallest():
    keys = KeyTable.from_rows(semantic_ids(20_000, codes=100))
    sizes = [CsrMap.build(keys, dense_levels=n).nbytes for n in range(5)]
    index = CsrMap.build(keys)
    assert index.nbytes == min(sizes)
    assert 0 < index.dense_levels < 4
    assert CsrMap.build(KeyTable.from_rows([[0, 2**32 - 2], [2**31, 5]])).dense_levels == 0


@pytest.mark.parametrize(
    ("dense", "error", "words"),
    [
        (-1, ValueError, "dense_levels: expected 0 or more, got -1"),
        (1.0, TypeError, "dense_levels: expected an integer"),
        (True, TypeError, "dense_levels: expected an integer"),
        (None, TypeError, "dense_levels: expected an integer"),
        ("all", TypeError, "dense_levels: expected an integer"),
        (2, ValueError, "dense_levels: 2 levels would take .* too large"),
    ],
)
def test_wrong_dense_levels(dense, error, words):
    n = 2000
    keys = KeyTable.from_rows([(i, 2**32 - 2 - i) for i in range(n)] + [(n, 0)])
    with pytest.raises(error, match=words):
        if dense == 2:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(csrmap, "MAX_MASK_WORDS", 2**20)
                CsrMap.build(keys, dense_levels=dense)
        CsrMap.build(keys, dense_levels=dense)


def test_more_states_and_tokens_than_64_bits_hold():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csrmap, "WIDE", 0)
        wide = build([(1, 5), (2, 2**31)])
        assert wide._core.shift == 32
        assert wide._core.offsets.dtype == np.uint64
        assert build([(1, 5), (2, 9)])._core.shift == 4
    assert build([(1, 5), (2, 9)])._core.shift == 32


def test_no_index_of_what_is_no_table():
    with pytest.raises(TypeError, match="KeyTable"):
        CsrMap.build([(1, 2)])


@given(catalog=catalogs_over([0, 1, 2, 63, 64, 127, 128]), dense=st.integers(0, 7))
def test_largest_fan_outs(catalog, dense):
    index = build(catalog, dense)
    prefixes = {key[:n] for key in catalog for n in range(len(key) + 1)}
    for step in range(index.max_length):
        counts = [
            sum(len(p) == step + 1 and p[:-1] == q for p in prefixes)
            for q in prefixes
            if len(q) == step
        ]
        assert index.max_fan_out(step) == max(counts)
        assert index.info()["steps"][step]["max_fan_out"] == max(counts)
    with pytest.raises(IndexError):
        index.max_fan_out(index.max_length)


# Sizes


def formula(index):
    """STATIC's bytes: states of four bytes and masks for the dense levels, and behind them
    twelve bytes for each key and level."""
    d = index.dense_levels
    return (4 + 1 / 8) * index.vocab_size**d + 12 * index.n_keys * (index.max_length - d)


def counted(index):
    """Bytes of masks, states, boundaries and pairs."""
    parts = dict(index._parts())
    return sum(parts[name] for name in ("masks", "states", "offsets", "entries"))


@settings(max_examples=100)
@given(catalog=rows(st.integers(0, 4)), dense=st.integers(0, 3))
def test_never_more_bytes_than_the_formula(catalog, dense):
    catalog = [*catalog, (4,) * len(catalog[0])]
    index = build(catalog, dense)
    assert counted(index) <= formula(index)
    assert index.nbytes - counted(index) <= 36 * (1 + index.max_length) + 100


@settings(max_examples=100)
@given(catalog=catalogs_over([*SMALL, 4]), dense=st.sampled_from(["auto", 0, 1, 2, 3]))
def test_keys_of_several_lengths_add_a_bit_a_prefix(catalog, dense):
    index = build([*catalog, (4,)], dense)
    assert counted(index) <= formula(index)
    bits = 1.1 * index.n_states
    assert index.nbytes - counted(index) <= bits / 8 + 40 * (1 + index.max_length) + 200


@pytest.mark.parametrize("dense", ["auto", 0, 1, 2, 3])
@pytest.mark.parametrize("codes", [5, 63, 64, 65, 300])
def test_sensible_sizes_stay_below_the_formula(codes, dense):
    index = CsrMap.build(KeyTable.from_rows(semantic_ids(30_000, 5, codes)), dense_levels=dense)
    assert index.nbytes <= formula(index)
    assert sum(step["nbytes"] for step in index.info()["steps"]) <= index.nbytes


# Lanes, uncompiled


@settings(max_examples=20)
@given(catalog=catalogs, wide=st.booleans())
def test_lanes_agree_with_the_index(catalog, wide):
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            patch.setattr(csrmap, "WIDE", 0)
        index = build(catalog)
    with np.errstate(over="ignore"):
        for number in [*range(min(index.n_states, 60)), index.n_states - 1]:
            compare(index, index.lane_arrays(), np.uint64(number))
    arrays = index.lane_arrays()
    assert lanes.child_range(arrays, DEAD) == (0, 0)
    assert not lanes.has_children(arrays, DEAD)
    assert not lanes.is_terminal(arrays, DEAD)
    assert lanes.key_number(arrays, DEAD) == -1


def compare(index, arrays, state):
    tokens, states = index.children(state)
    first, count = lanes.child_range(arrays, state)
    assert count == len(tokens)
    assert lanes.has_children(arrays, state) == (count > 0)
    assert lanes.is_terminal(arrays, state) == index.is_terminal(state)
    assert lanes.key_number(arrays, state) == index.state_key_ids(state)
    listed = np.zeros(count + 2, np.uint32), np.zeros(count + 2, np.uint64)
    lanes.list_children(arrays, state, first, count, *listed, np.int64(1))
    assert [array[1:-1].tolist() for array in listed] == [tokens.tolist(), states.tolist()]
    assert [array[[0, -1]].tolist() for array in listed] == [[0, 0], [0, 0]]
    numbers = []
    first_state, end = lanes.extensions(arrays, state)
    assert [*range(first_state, end)] == states.tolist()
    while first_state < end:
        numbers += range(*lanes.key_range(arrays, first_state, end))
        first_state, end = lanes.descend(arrays, first_state, end)
    assert numbers == numbers_below(index, states)
    for k, (token, child) in enumerate(zip(tokens.tolist(), states, strict=True)):
        assert lanes.nth_child(arrays, state, first, np.int64(k)) == (token, child)
        for asked in (token - 1, token, token + 1, token + 64, 2**32 - 2):
            found = lanes.find_child(arrays, state, first, count, np.int64(asked))
            assert found == (states[tokens == asked] if asked in tokens else DEAD)


def numbers_below(index, states):
    """The numbers of the keys that some states and their continuations are."""
    numbers = []
    while len(states):
        numbers += [n for n in index.state_key_ids(states).tolist() if n >= 0]
        states = index.children(states)[2]
    return numbers


# Files

KEYS = [(1, 2), (1, 3), (7, 6, 5), (7, 6), (70, 6, 5)]


@pytest.fixture(params=[0, 1, 2])
def path(tmp_path, request):
    path = tmp_path / "index.safetensors"
    build(KEYS, request.param).save(path)
    return path


def test_a_saved_index_verifies(path):
    index = verify(path)
    assert isinstance(index, CsrMap)
    assert index.max_fan_out(1) == 2
    assert list(index.completions()) == sorted(KEYS)


@pytest.mark.parametrize("name", ["n_keys", "dense_levels", "token_bits", "offset_bits"])
def test_every_param_is_checked(path, name):
    params, arrays, _ = content(path)
    right = params.pop(name)
    write(path, params, arrays, {"kind": "CsrMap"})
    with pytest.raises(FormatError, match=name):
        load(path)
    for value in [*ODD_VALUES, right - 1, right + 1, 64]:
        if type(value) is int and value == right:
            continue
        write(path, {**params, name: value}, arrays, {"kind": "CsrMap"})
        try:
            load(path)
        except FormatError as error:
            assert len(str(error)) < 400 + len(str(path))
            continue
        # Another width fits the sizes as long as it holds the largest token.
        assert name == "token_bits", value
        if right != 32 or len(arrays["entries"]):
            with pytest.raises(FormatError):
                verify(path)


ARRAYS = ("masks", "offsets", "entries", "terminal", "level_fan_outs")


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: None,
        lambda a: np.concatenate([a, a, np.ones(9, a.dtype)]),
        lambda a: a.reshape(1, -1),
        lambda a: a.astype(np.float64),
        lambda a: a.astype(np.uint8),
    ],
)
def test_every_array_is_checked(path, name, change):
    params, arrays, _ = content(path)
    arrays[name] = change(arrays[name])
    if arrays[name] is None:
        del arrays[name]
    write(path, params, arrays, {"kind": "CsrMap"})
    with pytest.raises(FormatError, match=name):
        load(path)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("masks", [2**1], "2 ones at step 0, expected 3"),
        ("terminal", [2**4], "1 prefixes above the last level are keys, expected 3"),
        ("level_fan_outs", [3, 2, 5], "fan-outs make no sense"),
        ("level_fan_outs", [3, 0, 1], "fan-outs make no sense"),
        ("level_prefixes", [1, 3, 4, 3], "entries"),
        ("level_prefixes", [1, 2**40, 2**40, 2], "offsets"),
        ("level_high", [71, 2**32 - 1, 6], "span"),
    ],
)
def test_what_load_refuses(tmp_path, name, values, words):
    path = tmp_path / "index.safetensors"
    build(KEYS, 1).save(path)
    params, arrays, _ = content(path)
    array = arrays[name]
    array[: len(values)] = np.array(values, array.dtype)
    write(path, params, arrays, {"kind": "CsrMap"})
    with pytest.raises(FormatError, match=words):
        verify(path) if name == "level_high" else load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a["entries"].__setitem__(0, 3 | 4 << 32), "do not ascend"),
        (lambda a: a["entries"].__setitem__(0, 2 | 5 << 32), "leads astray"),
        (lambda a: a["entries"].__setitem__(0, 2 | 500 << 32), "leads astray"),
        (lambda a: a["offsets"].__setitem__(0, 1), "last end"),
        (lambda a: a["offsets"].__setitem__(0, 9), "is no key and has no"),
        (lambda a: a["terminal"].__setitem__(0, 2**1 | 2**5 | 2**6), "is no key and has no"),
        (lambda a: a["level_fan_outs"].__setitem__(1, 1), "largest fan-outs"),
        (lambda a: a["masks"].__setitem__(1, 2**7), "do not span 1..70"),
        (lambda a: a["level_low"].__setitem__(1, 1), "do not span"),
    ],
)
def test_what_verify_finds(tmp_path, change, words):
    path = tmp_path / "index.safetensors"
    build(KEYS, 1).save(path)
    params, arrays, _ = content(path)
    change(arrays)
    write(path, params, arrays, {"kind": "CsrMap"})
    poke(load(path))
    with pytest.raises(FormatError, match=words):
        verify(path)


class Bounded:
    """An array that is read one element at a time, at positions that it has."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        first = i[0] if isinstance(i, tuple) else i
        assert 0 <= first < len(self.array), f"read at {i} of an array of {len(self.array)}"
        return self.array[i]


def poke(index):
    """Ask everything of an index that may hold anything; it must answer or raise FormatError."""
    states = np.arange(min(index.n_states, 2000), dtype=np.uint64)
    offsets, _, children = index.children(states)
    assert ((children < index.n_states) | (children == DEAD)).all()
    assert len(offsets) == len(states) + 1
    index.allowed_mask(states[:50])
    index.is_terminal(states)
    index.state_key_ids(states)
    index.key_ids(semantic_ids(300))
    index.advance(states[:, None], np.array([0, 1, 2, 3, 6, 2**32 - 2]))
    index.key(np.arange(index.n_keys))
    list(itertools.islice(index.completions(()), 2000))
    index._fault()
    json.dumps(index.info(), allow_nan=False)
    arrays = SimpleNamespace(
        **{
            name: Bounded(value) if isinstance(value, np.ndarray) else value
            for name, value in index.lane_arrays()._asdict().items()
        }
    )
    with np.errstate(over="ignore"):
        for state in (*states[:: len(states) // 40 + 1], DEAD):
            mine, found = index.children(state)
            first, count = lanes.child_range(arrays, state)
            assert count == len(mine)
            for k in range(min(count, 4)):
                assert lanes.nth_child(arrays, state, first, np.int64(k)) == (mine[k], found[k])
                lanes.find_child(arrays, state, first, count, np.int64(mine[k]))
            lanes.list_children(
                arrays, state, first, count, np.empty(count, np.uint32), found.copy(), 0
            )
            lanes.key_number(arrays, state)
            first, end = lanes.extensions(arrays, state)
            for _ in range(index.max_length):
                if first < end:
                    lanes.key_range(arrays, first, end)
                first, end = lanes.descend(arrays, first, end)
            assert first >= end


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_contents_stay_inside_the_arrays(data, tmp_path_factory):
    rows = [tuple(row) for row in semantic_ids(200).tolist()] + [(1,), (1, 299), (2, 3, 4)]
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(csrmap, "WIDE", 0)
        index = build(rows, data.draw(st.integers(0, 4)))
    path = tmp_path_factory.mktemp("damaged") / "index"
    index.save(path)
    params, arrays, _ = content(path)
    for name in data.draw(st.sets(st.sampled_from(ARRAYS), min_size=1)):
        array = arrays[name]
        places = st.integers(0, len(array) - 1)
        for _ in range(data.draw(st.integers(1, 4)) if len(array) else 0):
            one, other = data.draw(places), data.draw(places)
            array[[one, other]] = array[[other, one]]  # the same ones in other places
        if name in ("offsets", "entries") and len(array):
            limit = 2 ** (8 * array.itemsize) - 1
            array[data.draw(places)] = data.draw(st.integers(0, limit))
    write(path, params, arrays, {"kind": "CsrMap"})
    try:
        damaged = load(path, mmap=data.draw(st.booleans()))
    except FormatError:
        return
    poke(damaged)
