"""StepMap with tails: when they are taken, what they save, the states inside them."""

import contextlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from succinct import DEAD, FormatError, KeyTable, LoudsTrie, StepMap, load, verify
from succinct.bits.bitvector import isa, use_isa
from succinct.keys import sorting
from succinct.maps import suffixes
from succinct.trie import passes
from tests.hostile import content, write
from tests.strategies import MAX_TOKEN, catalogs, long_chains
from tests.test_steps import check_lanes, first_states, semantic_ids

KEYS = [(1, 2), (1, 2, 3, 4, 5), (1, 2, 4, 4, 5), (2,), (3, 9, 4, 5), (4, 5), (5, 7), (6, 8, 8)]


def titles(n, seed=0):
    """Made-up titles: rare words before a few endings."""
    random = np.random.default_rng(seed)
    endings = [tuple(random.integers(0, 500, length)) for length in (1, 1, 2, 3, 4, 6)]
    catalog = set()
    while len(catalog) < n:
        head = random.integers(500, 3000, random.integers(1, 4))
        catalog.add((*head.tolist(), *map(int, endings[random.integers(len(endings))])))
    return sorted(catalog)


@pytest.fixture
def index():
    return StepMap.build(KeyTable.from_sequences(KEYS), tail=True)


# When they are taken, and what they save


def test_titles_get_tails():
    keys = KeyTable.from_sequences(titles(20_000))
    index, plain = StepMap.build(keys), StepMap.build(keys, tail=False)
    facts = index.info()["tails"]
    assert facts["folded"]
    assert index.nbytes == facts["nbytes_folded"] < 0.85 * plain.nbytes
    assert plain.nbytes == facts["nbytes_plain"]
    assert facts["n_nodes"] < facts["n_tails"] / 2
    assert 0 < facts["share"] < 1
    assert facts["share"] + sum(step["share"] for step in index.info()["steps"]) == pytest.approx(1)
    assert json.loads(json.dumps(index.info())) == index.info()
    assert not plain.has_tail
    assert plain.info()["tails"] == {"folded": False}


def test_semantic_ids_get_none():
    keys = KeyTable.from_rows(semantic_ids(20_000, length=4, codes=1024))
    index = StepMap.build(keys)
    assert not index.has_tail
    facts = index.info()["tails"]
    assert facts["nbytes_plain"] == index.nbytes < facts["nbytes_folded"]


def test_large_tables_are_judged_by_a_sample(monkeypatch):
    ids = KeyTable.from_rows(semantic_ids(60_000, length=4, codes=1024))
    names = KeyTable.from_sequences(titles(60_000))

    def split(passes):
        tried.append(passes.keys)
        return

    tried = []
    monkeypatch.setattr(suffixes, "split", split)
    for keys in (ids, names):
        StepMap.build(keys)
    assert tried == [names]
    StepMap.build(ids, tail=True)
    assert tried == [names, ids]
    monkeypatch.setattr(passes, "_SAMPLE", 2**17)  # both are small then
    for keys in (ids, names):
        StepMap.build(keys)
    assert tried == [names, ids, ids, names]


@given(catalog=catalogs | st.just(titles(500)), parted=st.sampled_from([StepMap, LoudsTrie]))
def test_sorting_in_parts_changes_nothing(catalog, parted):
    keys = KeyTable.from_sequences(catalog)
    whole = parted.build(keys, tail=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "AT_ONCE", 0)
        index = parted.build(keys, tail=True)
    for name, array in whole._arrays().items():
        assert array.tobytes() == index._arrays()[name].tobytes()


@given(catalog=catalogs)
def test_auto_takes_the_smaller(catalog):
    keys = KeyTable.from_sequences(catalog)
    sizes = [StepMap.build(keys, tail=tail).nbytes for tail in (False, True)]
    assert StepMap.build(keys).nbytes == min(sizes)


def test_only_small_decides_by_itself():
    keys = KeyTable.from_sequences(titles(3000))
    assert StepMap.build(keys).has_tail
    for layout in ("fast", "packed", ["small"] * (keys.max_length - 1) + ["packed"]):
        assert not StepMap.build(keys, layout).has_tail
        assert StepMap.build(keys, layout, tail=True).has_tail


def test_no_tails_where_nothing_is_left():
    index = StepMap.build(KeyTable.from_sequences([(1,), (2,), (2, 3)]), tail=True)
    assert not index.has_tail
    assert list(index.completions()) == [(1,), (2,), (2, 3)]


@pytest.mark.parametrize("wrong", ["yes", 1, None, np.True_])
def test_unknown_values(wrong):
    with pytest.raises(ValueError, match="tail must be True, False or 'auto'"):
        StepMap.build(KeyTable.from_sequences(KEYS), tail=wrong)


def test_flags_only_where_some_keys_have_none():
    every = StepMap.build(KeyTable.from_sequences([(1, 2), (2, 3), (3, 2)]), tail=True)
    some = StepMap.build(KeyTable.from_sequences([(1, 2), (2, 3), (3,)]), tail=True)
    assert every._place.n_bits + 3 == some._place.n_bits
    for index in (every, some):
        assert index._fault() is None
        assert [index.key_id(key) for key in map(index.key, range(3))] == [0, 1, 2]


# Numbers and states


def test_numbers_are_those_of_the_heads(index):
    assert index.key([0, 1, 2, 3, 4]) == [(2,), (3, 9, 4, 5), (4, 5), (5, 7), (6, 8, 8)]
    assert sorted(index.key(range(8))) == KEYS


@given(catalog=catalogs)
def test_numbers_from_those_of_the_table(catalog):
    keys = KeyTable.from_sequences(catalog)
    index = StepMap.build(keys, tail=True)
    numbers = index.from_table_ids(np.arange(keys.n_keys))
    assert index.key(numbers) == list(keys)


@given(catalog=catalogs)
def test_a_state_for_every_prefix(catalog):
    index = StepMap.build(KeyTable.from_sequences(catalog), tail=True)
    prefixes = {key[:n] for key in catalog for n in range(len(key) + 1)}
    states = {prefix: index.walk(prefix) for prefix in prefixes}
    assert len(set(states.values())) == len(prefixes) == index.n_states
    array = np.array(list(states.values()), np.uint64)
    assert index.is_terminal(array).tolist() == [p in set(catalog) for p in states]
    assert index._fault() is None


def test_numbers_that_are_no_states(index):
    known = {int(index.walk(key[:n])) for key in KEYS for n in range(len(key) + 1)}
    bits = index._core.shift
    tried = range((index._core.tails[0, 0].item() + 4) << bits)
    accepted = set()
    for state in tried:
        try:
            index.is_terminal(state)
        except ValueError:
            continue
        accepted.add(state)
    assert accepted == known
    with pytest.raises(ValueError, match=r"states\[1\]"):
        index.advance([0, 2**63], 5)
    assert index.advance(DEAD, 5) == DEAD


@settings(max_examples=20)
@given(catalog=long_chains())
def test_lanes_in_long_tails(catalog):
    index = StepMap.build(KeyTable.from_sequences(catalog), tail=True)
    chain = catalog[0]
    states = [index.walk(chain[:n]) for n in (0, 1, 2, len(chain) - 1, len(chain))]
    check_lanes(index, [*states, *first_states(index, 20)])


def test_a_tail_of_thousands_of_the_largest_tokens():
    chain = (*range(5000), *[MAX_TOKEN] * 3000)
    catalog = [chain, (7, *chain[4000:]), (8,), (8, 8, MAX_TOKEN)]
    index = StepMap.build(KeyTable.from_sequences(catalog), tail=True)
    assert index.info()["tails"]["n_nodes"] < 8000  # the second one shares its nodes
    assert [key in index for key in catalog] == [True] * 4
    assert chain[:-1] not in index
    assert (*chain, 1) not in index
    assert sorted(index.completions()) == sorted(catalog)
    assert sorted(index.key(range(4))) == sorted(catalog)
    assert index.key_ids([*catalog, chain[:-1]])[4] == -1
    assert list(index.prefixes((*chain, 5))) == [chain]
    assert index._fault() is None


@pytest.mark.parametrize("name", ["portable", "x86-64-v3", "avx512"])
def test_instruction_sets(name):
    before = isa()
    try:
        use_isa(name)
    except ValueError:
        pytest.skip(f"this processor does not run {name}")
    try:
        catalog = titles(3000)
        keys = KeyTable.from_sequences(catalog)
        index = StepMap.build(keys, tail=True)
        numbers = index.key_ids(catalog)
        assert sorted(numbers.tolist()) == list(range(3000))
        assert [index.key_id(key) for key in catalog[:99]] == numbers[:99].tolist()
        assert index.key(numbers) == catalog
        wrong = [(*key[:-1], key[-1] + 1) for key in catalog]
        wrong += [key[:-1] for key in catalog if len(key) > 1] + [(*key, 5) for key in catalog]
        found = set(catalog)
        assert [n >= 0 for n in index.key_ids(wrong)] == [key in found for key in wrong]
        states = [index.walk(key) for key in catalog]
        assert index.state_key_ids(states).tolist() == numbers.tolist()
    finally:
        use_isa(before)


# Files


@pytest.fixture
def path(index, tmp_path):
    path = tmp_path / "index.safetensors"
    index.save(path)
    return path


def test_saved_again_it_is_the_same_file(path, tmp_path):
    index = load(path)
    index.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert index.info() == StepMap.build(KeyTable.from_sequences(KEYS), tail=True).info()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n_nodes", 0, "n_nodes must be an integer in 1"),
        ("n_nodes", 10**9, "bits"),
        ("n_links", 9, "n_links must be an integer in 1..8"),
        ("n_links", 4, "ones"),
        ("tails", [1], "tails must be null or an object"),
    ],
)
def test_wrong_params(path, name, value, words):
    params, arrays, metadata = content(path)
    write(path, params | {name: value}, arrays, metadata)
    with pytest.raises(FormatError, match=words):
        load(path)


@pytest.mark.parametrize(
    ("array", "place", "value", "words"),
    [
        ("step_prefixes", 0, 2, "make no sense"),
        ("step_prefixes", 2, 0, "make no sense"),
        ("step_prefixes", 1, 9, "more entries than"),
        ("step_low", 0, 99, "ranges of tokens of the steps"),
        ("tails", 0, 0, "labels of the tails: unknown representation"),
        ("tails", 1, 33, "labels of the tails: tokens of 33"),
        ("tails", 2, 1, "labels of the tails: unknown representation"),
        ("tails", 4, 99, "labels of the tails: numbers"),
        ("tails", 10, 1, "links of the tails: unknown representation"),
        ("tails", 11, 0, "links of the tails: tokens of 0 bits"),
        ("tails", 15, 1, "links of the tails: numbers"),
    ],
)
def test_wrong_arrays(path, array, place, value, words):
    params, arrays, metadata = content(path)
    arrays[array][place] = value
    write(path, params, arrays, metadata)
    with pytest.raises(FormatError, match=words):
        load(path)


def damage(path, change):
    """Change the values in a file; what they are in is walked through."""
    params, arrays, metadata = content(path)
    change(arrays["values"])
    write(path, params, arrays, metadata)
    index = load(path)  # it is harmless
    with np.errstate(over="ignore"):
        check_lanes(index, first_states(index, 50))
    with contextlib.suppress(FormatError):  # a key may have become longer than any
        index.key(range(8))


def test_verify_finds_a_link_that_leads_nowhere(path, index):
    at = index._core.tails[1, 8].item() // 64

    def change(values):
        values[at] = 2**64 - 1

    damage(path, change)
    with pytest.raises(FormatError, match="begins at a node that does not exist"):
        verify(path)


def test_verify_finds_other_tokens(path, index):
    at = index._core.tails[0, 8].item() // 64

    def change(values):
        values[at] = 0

    damage(path, change)
    with pytest.raises(FormatError, match="do not span"):
        verify(path)


def test_verify_finds_counts_of_prefixes_that_are_not_those_of_the_tails(path):
    params, arrays, metadata = content(path)
    arrays["level_prefixes"][-1] += 1
    write(path, params, arrays, metadata)
    with pytest.raises(FormatError, match="counts of prefixes"):
        verify(path)


def test_every_order_of_few_ones_is_harmless(path):
    """A node may come before its parent then, or a key be longer than any."""
    params, arrays, metadata = content(path)
    bits = np.unpackbits(arrays["bits"].view(np.uint8), bitorder="little")
    used = [place for index in [load(path)] for place in index._place.parts]
    at, length, ones = next(p for p in used if p[:2] == (used[-2][0], used[-2][1]))
    faults = set()
    for places in itertools.combinations(range(length), ones):
        bits[at : at + length] = 0
        bits[np.array(places) + at] = 1
        arrays["bits"] = np.packbits(bits, bitorder="little").view(np.uint64)
        write(path, params, arrays, metadata)
        index = load(path)
        check_lanes(index, first_states(index, 12))
        list(itertools.islice(index.completions(), 100))
        faults.add(str(index._fault()).split(" ")[0])
    assert len(faults) > 1
