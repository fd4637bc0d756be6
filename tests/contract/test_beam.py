"""Beam search over proposals: cases worked out by hand, then everything against the reference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from succinct import reference
from tests.implementations import (
    each_index,
    each_index_and_device,
    each_library_index,
    each_library_index_and_device,
)
from tests.strategies import MAX_TOKEN, searches

INF = math.inf
NAN = math.nan


def search(build, catalog, token_ids, logprobs, **options):
    """Search one query; give its results as (sequence, score)."""
    options = {"beam_width": 10, **options}
    (found,) = build(catalog).search([token_ids], [logprobs], **options)
    return [(result.sequence, result.score) for result in found]


def float32(value):
    return float(np.float32(value))


# By hand


@each_index_and_device
def test_sums_along_the_path(build):
    catalog = [(1, 2), (1, 3), (4, 2)]
    found = search(build, catalog, [[1, 4], [2, 3]], [[-1.0, -2.0], [-0.5, -0.25]])
    assert found == [((1, 3), -1.25), ((1, 2), -1.5), ((4, 2), -2.5)]


@each_index_and_device
def test_a_key_that_is_a_prefix_is_found_and_continued(build):
    catalog = [(1,), (1, 2), (1, 2, 3)]
    found = search(build, catalog, [[1], [2], [3]], [[-1.0], [-1.0], [-1.0]])
    assert found == [((1,), -1.0), ((1, 2), -2.0), ((1, 2, 3), -3.0)]


@each_index_and_device
def test_frontier_is_cut_by_raw_sum_and_ties_by_parent_then_token(build):
    catalog = [(a, b, 9) for a in (1, 2) for b in (5, 4)]
    steps = [[2, 1], [4, 5], [9]]
    # All sums are equal: parents rank by token (1 before 2), so (1, 4), (1, 5), (2, 4) ...
    logprobs = [[-1.0, -1.0], [-1.0, -1.0], [0.0]]
    found = search(build, catalog, steps, logprobs, beam_width=3)
    assert found == [((1, 4, 9), -2.0), ((1, 5, 9), -2.0), ((2, 4, 9), -2.0)]
    # The parent's rank counts before the token: 2 is the better parent now, both sums are -3.
    logprobs = [[-1.0, -2.0], [-2.0, -1.0], [0.0]]
    found = search(build, catalog, steps, logprobs, beam_width=3)
    assert found == [((2, 5, 9), -2.0), ((2, 4, 9), -3.0), ((1, 5, 9), -3.0)]


@each_index_and_device
def test_dead_ends_spend_no_beam_but_prefixes_of_unproposed_keys_do(build):
    catalog = [(1,), (2, 7), (3, 8)]
    steps = [[1, 2, 3], [8]]
    logprobs = [[-1.0, -2.0, -3.0], [-1.0]]
    # (1,) ends and leaves the frontier; (2,) goes on, and fills the only beam in vain.
    assert search(build, catalog, steps, logprobs, beam_width=1, max_results=5) == [((1,), -1.0)]
    found = search(build, catalog, steps, logprobs, beam_width=2)
    assert found == [((1,), -1.0), ((3, 8), -4.0)]


@each_index_and_device
def test_results_are_not_cut_by_the_beam_width_within_a_step(build):
    catalog = [(token,) for token in range(8)]
    logprobs = [[-float(token) for token in range(8)]]
    found = search(build, catalog, [list(range(8))], logprobs, beam_width=1, max_results=6)
    assert found == [((token,), -float(token)) for token in range(6)]


@each_index_and_device
def test_beam_width_for_each_step(build):
    catalog = [(a, b) for a in range(3) for b in range(3)]
    steps, logprobs = [[0, 1, 2], [0, 1, 2]], [[-1.0, -2.0, -3.0], [0.0, -0.25, -0.5]]
    found = search(build, catalog, steps, logprobs, beam_width=[2, 1])
    assert found == [((0, 0), -1.0), ((0, 1), -1.25)]  # by default as many as the widest step
    found = search(build, catalog, steps, logprobs, beam_width=[2, 1], max_results=9)
    assert [sequence for sequence, _ in found] == [(a, b) for a in (0, 1) for b in range(3)]
    found = search(build, catalog, steps, logprobs, beam_width=[1, 2], max_results=9)
    assert [sequence for sequence, _ in found] == [(0, b) for b in range(3)]


@each_index_and_device
def test_thresholds_are_strict_and_float32(build):
    catalog = [(1, 2), (1, 3), (3, 2)]
    steps = [[1, 3], [2, 3]]
    logprobs = [[-0.1, -0.3], [-0.5, -0.75]]
    assert search(build, catalog, steps, logprobs, min_token_logprob=-0.1) == []
    # -0.7 is not above itself, although float32(-0.7) > -0.7 in float64.
    assert search(build, [(1,)], [[1]], [[-0.7]], min_token_logprob=-0.7) == []
    assert search(build, [(1,)], [[1]], [[-0.7]], min_logprob=-0.7) == []
    found = search(build, catalog, steps, logprobs, min_token_logprob=-0.75)
    assert [sequence for sequence, _ in found] == [(1, 2), (3, 2)]
    total = float32(float32(-0.1) + float32(-0.5))
    found = search(build, catalog, steps, logprobs, min_logprob=total)
    assert found == []
    below = float(np.nextafter(np.float32(total), np.float32(-INF)))
    found = search(build, catalog, steps, logprobs, min_logprob=below)
    assert found == [((1, 2), total)]


@each_index_and_device
def test_sums_are_rounded_to_float32_at_each_step(build):
    values = [-0.1, -0.2, -0.3, -16777216.0, -1.0]
    key = (1, 2, 3, 4, 5)
    total = np.float32(0)
    for value in values:
        total = np.float32(total + np.float32(value))
    found = search(build, [key], [[token] for token in key], [[value] for value in values])
    assert found == [(key, float(total))]


@each_index_and_device
@pytest.mark.parametrize("penalty", [0.0, 1.0, 0.6, 5.0, -1.0])
def test_length_normalisation_in_float64(build, penalty):
    catalog = [(1,), (1, 2), (1, 2, 3)]
    found = search(
        build, catalog, [[1], [2], [3]], [[-0.1], [-0.1], [-0.1]], length_penalty=penalty
    )
    total, expected = np.float32(0), []
    for key in catalog:
        total = np.float32(total + np.float32(-0.1))
        expected.append((key, float(total) * (6 / (5 + len(key))) ** penalty))
    assert found == sorted(expected, key=lambda result: -result[1])


@each_index_and_device
def test_equal_results_rank_by_step_parent_token(build):
    catalog = [(1, 9), (2, 8), (1, 8), (3,)]
    steps = [[1, 2, 3], [8, 9]]
    found = search(build, catalog, steps, [[-1.0, -1.0, -2.0], [-1.0, -1.0]])
    assert [sequence for sequence, _ in found] == [(3,), (1, 8), (1, 9), (2, 8)]
    assert {score for _, score in found} == {-2.0}
    # The earlier step counts before the better parent.
    steps, logprobs = [[1, 2], [5, 6], [7]], [[-1.0, -2.0], [-1.0, -1.0], [-1.0]]
    found = search(build, [(1, 5, 7), (2, 6)], steps, logprobs)
    assert found == [((2, 6), -3.0), ((1, 5, 7), -3.0)]


@each_index_and_device
def test_minus_zero_counts_as_zero(build):
    catalog = [(1,), (2,), (3,)]
    found = search(build, catalog, [[3, 2, 1]], [[0.0, -0.0, -0.0]], length_penalty=1.0)
    assert [sequence for sequence, _ in found] == [(1,), (2,), (3,)]
    assert [math.copysign(1, score) for _, score in found] == [1.0] * 3
    assert search(build, catalog, [[1]], [[-0.0]], min_token_logprob=0.0) == []
    assert search(build, catalog, [[1]], [[0.0]], min_token_logprob=-0.0) == []
    assert search(build, catalog, [[1]], [[0.0]], min_logprob=-0.0) == []


@each_index_and_device
def test_infinite_sums(build):
    catalog = [(1, 2), (1, 3), (4, 2), (4, 3), (4,)]
    steps, logprobs = [[1, 4], [3, 2]], [[INF, -1.0], [-3e38, INF]]
    found = search(build, catalog, steps, logprobs, length_penalty=1.0)
    least = float32(-1 + float32(-3e38)) * (6 / 7)
    expected = [(1, 2), (1, 3), (4, 2), (4,), (4, 3)]
    assert found == list(zip(expected, [INF, INF, INF, -1.0, least], strict=True))
    # A sum of -inf is above no threshold.
    logprobs = [[INF, -3e38], [-3e38, -1.0]]
    found = search(build, catalog, steps, logprobs)
    assert [sequence for sequence, _ in found] == [(1, 2), (1, 3), (4,), (4, 2)]
    assert search(build, catalog, steps, logprobs, min_logprob=INF) == []


@each_index_and_device
def test_padding_is_exempt_from_every_check(build):
    catalog = [(1, 2)]
    steps = [[1, 1, -1, 2**40], [2, 2, 2, 0]]
    logprobs = [[-1.0, -INF, -INF, -INF], [-INF, -INF, -1.0, -INF]]
    found = search(build, catalog, steps, logprobs)
    assert found == [((1, 2), -2.0)]


@each_index_and_device
def test_first_of_equal_tokens(build):
    catalog = [(1,), (2,)]
    steps, logprobs = [[1, 1, 2, 1]], [[-INF, -2.0, -3.0, -1.0]]
    found = search(build, catalog, steps, logprobs, duplicates="first")
    assert found == [((1,), -2.0), ((2,), -3.0)]
    # The first counts, also if it then fails a threshold.
    found = search(build, catalog, steps, logprobs, duplicates="first", min_logprob=-1.5)
    assert found == []


@each_index_and_device
def test_tokens_that_differ_in_high_bits_only(build):
    tokens = [5 + (i << 20) for i in range(5)]
    catalog = [(token,) for token in tokens[:4]] + [(tokens[1], token) for token in tokens[:4]]
    steps, logprobs = [tokens[1:], [tokens[3], 9]], [[-1.0, -3.0, -2.0, 0.0], [-1.5, 0.0]]
    found = search(build, catalog, steps, logprobs)
    expected = [(tokens[1],), (tokens[3],), (tokens[1], tokens[3]), (tokens[2],)]
    assert found == list(zip(expected, [-1.0, -2.0, -2.5, -3.0], strict=True))


@each_index_and_device
def test_more_steps_than_the_longest_key(build):
    found = search(build, [(1,)], [[1], [1], [1]], [[-1.0]] * 3)
    assert found == [((1,), -1.0)]


@each_index_and_device
def test_nothing_to_find_is_an_empty_result(build):
    catalog = [(1, 2)]
    assert search(build, catalog, [[7], [2]], [[-1.0], [-1.0]]) == []
    assert search(build, catalog, [[1], [7]], [[-1.0], [-1.0]]) == []
    assert search(build, catalog, [[1]], [[-1.0]]) == []
    assert search(build, catalog, [[1], [2]], [[-INF], [-INF]]) == []
    assert search(build, catalog, [], []) == []


@each_index_and_device
def test_long_chain(build):
    key = tuple(i % 7 for i in range(2000))
    found = search(build, [key, (9, 9)], [[token] for token in key], [[-1.0]] * 2000)
    assert found == [(key, -2000.0)]


# Everything


def all_keys_composed(catalog, token_ids, logprobs, options):
    """Without a beam: keys all of whose tokens are proposed and pass, with score and sum."""
    found = []
    token_threshold = np.float32(options["min_token_logprob"])
    threshold = np.float32(options["min_logprob"])
    for key in set(catalog):
        if len(key) > len(token_ids):
            continue
        total, passes = np.float32(0), True
        for token, tokens, values in zip(key, token_ids, logprobs, strict=False):
            offered = [v for t, v in zip(tokens, values, strict=True) if t == token and v > -INF]
            value = np.float32(offered[0] if offered else -INF)
            total = np.float32(total + value)
            passes = passes and bool(offered) and value > token_threshold and total > threshold
        if passes:
            score = float(total) * (6 / (5 + len(key))) ** options["length_penalty"]
            found.append((score, key, float(total)))
    return found


@each_index
@given(case=searches())
def test_a_beam_wide_enough_finds_every_key(build, case):
    catalog, token_ids, logprobs, options = case
    n_keys = len(set(catalog))
    options |= {"beam_width": n_keys, "max_results": n_keys}
    answers = build(catalog).search(token_ids, logprobs, **options)
    assert len(answers) == len(token_ids)
    for found, tokens, values in zip(answers, token_ids, logprobs, strict=True):
        expected = all_keys_composed(catalog, tokens, values, options)
        assert sorted(map(tuple, found)) == sorted(expected)
        assert [result.score for result in found] == sorted(
            (score for score, _, _ in expected), reverse=True
        )


@each_index
@given(case=searches())
def test_what_every_beam_width_keeps(build, case):
    catalog, token_ids, logprobs, options = case
    widths = options["beam_width"]
    at_most = options["max_results"] or (max(widths) if isinstance(widths, list) else widths)
    answers = build(catalog).search(token_ids, logprobs, **options)
    for found, tokens, values in zip(answers, token_ids, logprobs, strict=True):
        assert len(found) <= at_most
        possible = all_keys_composed(catalog, tokens, values, options)
        assert {tuple(result) for result in found} <= set(possible)
        assert len({result.sequence for result in found}) == len(found)
        scores = [result.score for result in found]
        assert scores == sorted(scores, reverse=True)


@each_index
@given(case=searches())
def test_queries_do_not_depend_on_each_other(build, case):
    catalog, token_ids, logprobs, options = case
    index = build(catalog)
    together = index.search(token_ids, logprobs, **options)
    for tokens, values, found in zip(token_ids, logprobs, together, strict=True):
        assert index.search([tokens], [values], **options) == [found]


@each_library_index_and_device
@settings(max_examples=4 * settings.default.max_examples)
@given(case=searches())
def test_equals_the_reference(build, case):
    catalog, token_ids, logprobs, options = case
    expected = reference.beam_search(reference.Trie(catalog), token_ids, logprobs, **options)
    assert build(catalog).search(token_ids, logprobs, **options) == expected


@each_library_index_and_device
@given(case=searches(duplicates=True))
def test_equals_the_reference_on_equal_tokens(build, case):
    catalog, token_ids, logprobs, options = case
    options["duplicates"] = "first"
    expected = reference.beam_search(reference.Trie(catalog), token_ids, logprobs, **options)
    assert build(catalog).search(token_ids, logprobs, **options) == expected


@each_library_index_and_device
@given(case=searches())
def test_results_name_their_keys_and_states(build, case):
    catalog, token_ids, logprobs, options = case
    index = build(catalog)
    results = index.result(token_ids, logprobs, **options)
    assert len(results) == len(token_ids)
    for query in results:
        n = len(query)
        assert len(query.sequences) == n
        for values, dtype in (
            (query.scores, np.float64),
            (query.logprobs, np.float32),
            (query.key_ids, np.int64),
            (query.states, np.uint64),
        ):
            assert (values.dtype, values.shape) == (dtype, (n,))
        assert [index.key(number) for number in query.key_ids.tolist()] == query.sequences
        assert [index.walk(s) for s in query.sequences] == query.states.tolist()
        assert all(type(token) is int for s in query.sequences for token in s)


@each_library_index_and_device
def test_one_query_may_come_without_its_axis(build):
    index = build([(1, 2), (1, 3)])

    def beam_search(*proposals, **options):
        return index.call("beam_search", None, *proposals, **options)

    token_ids = np.array([[1, 4], [3, 2]], dtype=np.uint16)
    logprobs = np.array([[-1.0, -2.0], [-1.0, -0.5]])
    single = beam_search(token_ids, logprobs, beam_width=4)
    batch = beam_search(token_ids[None], logprobs[None], beam_width=4)
    assert len(single) == len(batch) == 1
    assert single[0].sequences == batch[0].sequences == [(1, 2), (1, 3)]
    assert single.to_bytes() == batch.to_bytes()
    none = beam_search(token_ids[None][:0], logprobs[None][:0], beam_width=4)
    assert len(none) == 0


@each_library_index
def test_threads_and_memory_order_change_nothing(build):
    from succinct import beam_search

    generator = np.random.default_rng(5)
    catalog = [tuple(row) for row in generator.integers(0, 12, (800, 4)).tolist()]
    index = build(catalog).raw
    token_ids = np.argsort(generator.random((40, 4, 12)), axis=-1)
    logprobs = np.log(generator.random((40, 4, 12)).astype(np.float32)).round(1)
    expected = beam_search(index, token_ids, logprobs, beam_width=7, num_threads=1).to_bytes()
    strided = np.asfortranarray(token_ids), np.asfortranarray(logprobs)
    for threads in (1, 2):
        found = beam_search(index, *strided, beam_width=7, num_threads=threads)
        assert found.to_bytes() == expected


# What bad input gets


@each_index_and_device
@pytest.mark.parametrize(
    ("options", "tokens", "logprobs"),
    [
        ({}, [[1, 2]], [[-1.0, NAN]]),
        ({}, [[1], [9], [9]], [[-1.0], [-1.0], [NAN]]),
        ({}, [[1, 1]], [[-1.0, -2.0]]),
        ({}, [[1, 2], [5, 5]], [[-1.0, -2.0], [-1.0, -1.0]]),
        ({}, [[-1]], [[-1.0]]),
        ({}, [[MAX_TOKEN + 1]], [[-1.0]]),
        ({"beam_width": 0}, [[1]], [[-1.0]]),
        ({"beam_width": -1}, [[1]], [[-1.0]]),
        ({"beam_width": [1, 0]}, [[1], [2]], [[-1.0], [-1.0]]),
        ({"beam_width": [1]}, [[1], [2]], [[-1.0], [-1.0]]),
        ({"max_results": -1}, [[1]], [[-1.0]]),
        ({"min_logprob": NAN}, [[1]], [[-1.0]]),
        ({"min_token_logprob": NAN}, [[1]], [[-1.0]]),
        ({"length_penalty": NAN}, [[1]], [[-1.0]]),
        # The scores of two tokens would all be 0, and NaN for an infinite sum.
        ({"length_penalty": 1e5}, [[1], [2]], [[-1.0], [-1.0]]),
        ({"duplicates": "last"}, [[1]], [[-1.0]]),
    ],
)
def test_bad_values(build, options, tokens, logprobs):
    with pytest.raises(ValueError):
        search(build, [(1, 2)], tokens, logprobs, **options)


@each_index_and_device
def test_beam_width_must_be_an_integer(build):
    with pytest.raises(TypeError):
        search(build, [(1, 2)], [[1]], [[-1.0]], beam_width=1.5)
    with pytest.raises(TypeError):
        search(build, [(1, 2)], [[1]], [[-1.0]], beam_width=None)


@each_library_index_and_device
def test_bad_shapes_and_types(build):
    index = build([(1, 2)])

    def beam_search(*arguments, **options):
        return index.call("beam_search", *arguments, **options)

    tokens, logprobs = np.ones((1, 2, 1), dtype=np.int64), -np.ones((1, 2, 1))
    for shape in ((2,), (1, 1, 2, 1)):
        with pytest.raises(ValueError):
            beam_search(None, tokens.reshape(shape), logprobs.reshape(shape), beam_width=2)
    with pytest.raises(ValueError):
        beam_search(None, tokens, logprobs[:, :1], beam_width=2)
    with pytest.raises((TypeError, ValueError)):
        beam_search(None, tokens + 0.5, logprobs, beam_width=2)
    with pytest.raises((TypeError, ValueError)):
        beam_search(None, tokens, logprobs.astype("U4"), beam_width=2)
    with pytest.raises((TypeError, ValueError)):
        beam_search(None, [[1, 2], [1]], [[-1.0, -1.0], [-1.0]], beam_width=2)
    with pytest.raises(TypeError):
        beam_search([(1, 2)], tokens, logprobs, beam_width=2)
