"""Bitmaps over key numbers: every result is eligible, and no beam goes where nothing is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import reference
from succinct.decode import Choice
from tests.implementations import (
    ReferenceIndex,
    each_index,
    each_index_and_device,
    each_library_index,
    each_library_index_and_device,
)
from tests.strategies import searches


def bits_of(index, eligible):
    """The bitmap of a set of keys, in the numbers of the index."""
    return [index.key(number) in eligible for number in range(index.n_keys)]


def search(index, eligible, token_ids, logprobs, **options):
    options = {"beam_width": 10, **options}
    allowed = bits_of(index, eligible)
    (found,) = index.search([token_ids], [logprobs], allowed=allowed, **options)
    return [result.sequence for result in found]


@each_index_and_device
def test_every_subset_of_a_small_catalog(build):
    catalog = [(1,), (1, 2, 3), (1, 2, 4), (2, 5), (2, 5, 6, 7)]
    index = build(catalog)
    steps, logprobs = [[1, 2], [2, 5], [3, 4, 6], [7]], [[-1, -2], [-1, -1], [-2, -1, -1], [-1]]
    best_first = [(1,), (2, 5), (1, 2, 4), (1, 2, 3), (2, 5, 6, 7)]
    for n in range(len(catalog) + 1):
        for eligible in itertools.combinations(catalog, n):
            expected = [key for key in best_first if key in eligible]
            assert search(index, eligible, steps, logprobs) == expected


@each_index_and_device
def test_no_beam_is_spent_on_a_prefix_without_an_eligible_completion(build):
    catalog = [(1, 5), (1, 6, 1), (2, 6), (2, 6, 8), (2, 7, 9)]
    steps, logprobs = [[1, 2], [5, 6, 7], [1, 8, 9]], [[-1, -2], [-1, -1, -1], [-1, -1, -1]]
    index = build(catalog)
    one = {"beam_width": 1, "max_results": 5}
    # (1,) is better, but has to leave the only beam to a prefix that leads somewhere.
    assert search(index, catalog, steps, logprobs, **one) == [(1, 5), (1, 6, 1)]
    assert search(index, {(2, 6)}, steps, logprobs, **one) == [(2, 6)]
    assert search(index, {(2, 7, 9)}, steps, logprobs, **one) == [(2, 7, 9)]
    # (2, 6) is eligible but leads to nothing that is; (1, 6) is not and leads there.
    assert search(index, {(2, 6), (1, 6, 1)}, steps, logprobs, beam_width=2) == [(2, 6), (1, 6, 1)]
    assert search(index, (), steps, logprobs) == []


@each_index_and_device
@pytest.mark.parametrize("n_keys", [63, 64, 65, 511, 512, 513, 700])
def test_single_keys_over_borders_of_words_and_blocks(build, n_keys):
    """Ranges of numbers longer and shorter than what is looked through bit by bit."""
    catalog = [(number % 2, number, 3) for number in range(n_keys)]
    index = build(catalog)
    tokens = [[0, 1], list(range(n_keys)), [3]]
    logprobs = [[-1.0, -1.0], [-1.0] * n_keys, [-1.0]]
    for number in {0, 1, 62, 63, 64, n_keys - 2, n_keys - 1}:
        found = search(index, {catalog[number % n_keys]}, tokens, logprobs, beam_width=1)
        assert found == [catalog[number % n_keys]]


@st.composite
def eligible_searches(draw):
    """A search, and for every query the eligible keys (or None, or one set for all)."""
    catalog, token_ids, logprobs, options = draw(searches())
    keys = sorted(set(catalog))
    some = st.sets(st.sampled_from(keys)) | st.just(set(keys)).map(set)
    if draw(st.booleans()):
        return catalog, token_ids, logprobs, options, draw(some)
    n_queries = len(token_ids)
    each = st.lists(st.none() | some, min_size=n_queries, max_size=n_queries)
    return catalog, token_ids, logprobs, options, draw(each)


@each_library_index_and_device
@given(case=eligible_searches())
def test_equals_the_reference(build, case):
    catalog, token_ids, logprobs, options, eligible = case
    index, trie = build(catalog), reference.Trie(catalog)

    def bitmaps(of):
        if isinstance(eligible, set):
            return bits_of(of, eligible)
        return [None if keys is None else bits_of(of, keys) for keys in eligible]

    expected = reference.beam_search(trie, token_ids, logprobs, allowed=bitmaps(trie), **options)
    found = index.search(token_ids, logprobs, allowed=bitmaps(index), **options)
    assert found == expected
    for query, results in enumerate(found):
        keys = eligible if isinstance(eligible, set) else eligible[query]
        assert all(keys is None or result.sequence in keys for result in results)


@each_library_index_and_device
def test_bitmaps_in_every_form(build):
    from succinct import BitVector

    random = np.random.default_rng(2)
    catalog = [tuple(key) for key in random.integers(0, 9, (300, 3)).tolist()]
    catalog += [key[:2] for key in catalog[:40]]
    built = build(catalog)
    index = built.raw
    token_ids = np.broadcast_to(np.arange(9), (4, 3, 9))
    logprobs = np.log(random.random((4, 3, 9)))
    bools = random.random((4, index.n_keys)) < 0.1
    words = np.stack([BitVector.from_bools(row).words for row in bools])
    words = words[:, : -(-index.n_keys // 64)].copy()
    words[:, -1] |= np.uint64(1 << 63)  # behind the last key: of no meaning
    assert index.n_keys % 64

    def found(allowed, n=4):
        part = token_ids[:n], logprobs[:n]
        return built.call("beam_search", None, *part, beam_width=9, allowed=allowed).to_bytes()

    expected = found(bools)
    assert expected != found(None)
    assert found(words) == expected
    assert found(list(bools)) == expected
    mixed = [bools[0], words[1], BitVector.from_bools(bools[2]), bools[3].tolist()]
    assert found(mixed) == expected
    everything = np.ones(index.n_keys, bool)
    assert found([bools[0], None], 2) == found([bools[0], everything], 2)
    assert found([None, None], 2) == found(None, 2)
    one = [found(form) for form in (bools[1], words[1], BitVector.from_bools(bools[1]))]
    assert one == [found(bools[[1, 1, 1, 1]])] * 3
    assert found(bools[1].tolist()) == one[0]


@each_library_index_and_device
@pytest.mark.parametrize(
    ("allowed", "error", "message"),
    [
        (np.ones(4, bool), ValueError, "allowed: expected 3 bits, one for each key, got 4"),
        (np.ones(2, np.uint64), ValueError, "allowed: expected 1 words of 64 bits, got 2"),
        (np.ones(3), TypeError, "expected bools or packed uint64 words, got .* float64"),
        (np.ones(3, np.int64), TypeError, "packed uint64 words, got an array of dtype int64"),
        (np.ones((2, 3), bool), ValueError, "allowed: expected 1 bitmaps, got 2"),
        (np.ones((1, 2), bool), ValueError, r"allowed\[0\]: expected 3 bits"),
        (np.ones((1, 1, 3), bool), ValueError, "allowed: expected one dimension, got shape"),
        ([None, None], ValueError, "allowed: expected 1 bitmaps, got 2"),
        ([[1, 0, 1]], TypeError, r"allowed\[0\]: expected bools or packed uint64 words"),
        (7, ValueError, "allowed: expected one dimension"),
        ("111", ValueError, "allowed: expected one dimension"),
    ],
)
def test_bad_bitmaps(build, allowed, error, message):
    index = build([(1,), (2,), (3, 4)])
    with pytest.raises(error, match=message):
        index.call("beam_search", None, [[1]], [[-1.0]], beam_width=1, allowed=allowed)


# In a step from hidden states


def step_of(index, allowed, prefixes, **options):
    """Beams and tokens that a step keeps, and their probabilities, when all logits are equal."""
    states = [[index.walk(prefix) for prefix in row] for row in prefixes]
    hidden = [[[0.0]] * len(row) for row in prefixes]
    scores = [[0.0] * len(row) for row in prefixes]
    found = index.filter_step(hidden, [[1.0]] * 10, states, scores, 10, allowed=allowed, **options)
    return [[(one.parent, one.token, round(np.exp(one.score), 4)) for one in row] for row in found]


@each_index
def test_a_step_keeps_what_leads_to_eligible_keys(build):
    index = build([(1,), (1, 2, 3), (1, 2, 4), (2, 5), (2, 5, 6, 7), (3,)])
    some = bits_of(index, {(1, 2, 4), (2, 5, 6, 7), (3,)})
    none = bits_of(index, set())
    prefixes = [[()], [()], [()]]
    third = 0.3333
    kept = [(0, 1, third), (0, 2, third), (0, 3, third)]
    assert step_of(index, [some, None, none], prefixes) == [kept, kept, []]
    prefixes = [[(1,), (1, 2), (2, 5), (3,)]]
    assert step_of(index, some, prefixes) == [[(0, 2, 1.0), (1, 4, 1.0), (2, 6, 1.0)]]
    one = bits_of(index, {(1,), (2, 5)})
    assert step_of(index, one, [[(), (1,), (2,), (2, 5)]]) == [
        [(2, 5, 1.0), (0, 1, 0.5), (0, 2, 0.5)]
    ]
    assert step_of(index, none, [[(), (1,)]]) == [[]]


weights = np.random.default_rng(1).integers(-8, 9, (70_001, 1)) / 4
weight_list = weights.tolist()


@each_library_index
@given(case=eligible_searches())
def test_a_step_equals_the_reference(build, case):
    catalog, _, _, _, eligible = case
    if max(token for key in catalog for token in key) >= len(weights):
        return  # no matrix has so many rows
    index, trie = build(catalog), ReferenceIndex(catalog)
    n = 1 if isinstance(eligible, set) else len(eligible)
    beams = [[(), *sorted({key[:1] for key in catalog})[:3]]] * n

    def bitmaps(of):
        if isinstance(eligible, set):
            return bits_of(of, eligible)
        return [None if keys is None else bits_of(of, keys) for keys in eligible]

    def step(of, **options):
        states = [[of.walk(prefix) for prefix in row] for row in beams]
        weight = (weight_list if of is trie else weights)[: of.vocab_size]
        hidden = np.random.default_rng(0).choice([0.5, 1.0], (n, len(beams[0]), 1)).tolist()
        scores = [[0.0] * len(beams[0])] * n
        found = of.filter_step(hidden, weight, states, scores, 50, allowed=bitmaps(of), **options)
        # By score, up to rounding, and whole groups of nearly equal scores.
        return [
            sorted((one.parent, one.token, round(one.score, 3)) for one in row) for row in found
        ]

    expected = step(trie)
    for way in ({}, {"projection": "full"}, {"plan": Choice("mask", "band", "radix")}):
        for found, wanted in zip(step(index, **way), expected, strict=True):
            if len(wanted) < 50:
                assert [one[:2] for one in found] == [one[:2] for one in wanted]
                assert [one[2] for one in found] == pytest.approx(
                    [one[2] for one in wanted], abs=2e-3
                )
