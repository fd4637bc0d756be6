"""Filtering first: one step from hidden states to the best valid continuations."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import reference
from tests.implementations import (
    DEAD,
    IndexOnDevice,
    each_index_and_device,
    each_library_index_and_device,
)
from tests.strategies import narrow_catalogs

INF = float("inf")
NAN = float("nan")
TOLERANCE = 2e-4


def states_of(index, prefixes):
    """States of nested lists of prefixes; None is DEAD."""
    return [[DEAD if p is None else index.walk(p) for p in row] for row in prefixes]


def step_of(build, catalog, logits, prefixes=None, scores=None, width=100, **options):
    """A step of one request whose beams all have these logits; (score, parent, token) of each."""
    index = build(catalog)
    prefixes = prefixes or [()]
    scores = [0.0] * len(prefixes) if scores is None else scores
    weight = [[logit] for logit in logits]
    states = states_of(index, [prefixes])
    hidden = [[[1.0]] * len(prefixes)]
    (found,) = index.filter_step(hidden, weight, states, [scores], width, **options)
    for one in found:
        assert one.state == index.advance(states[0][one.parent], one.token)
    return [(pytest.approx(one.score, abs=TOLERANCE), one.parent, one.token) for one in found]


# Scores


@each_index_and_device
def test_probabilities_are_shared_among_valid_tokens(build):
    found = step_of(build, [(0,), (2,)], [log(3), log(4), log(1)])
    assert found == [(log(3 / 4), 0, 0), (log(1 / 4), 0, 2)]


@each_index_and_device
def test_or_among_the_vocabulary(build):
    found = step_of(build, [(0,), (2,)], [log(3), log(4), log(1)], normalize="vocab")
    assert found == [(log(3 / 8), 0, 0), (log(1 / 8), 0, 2)]


@each_index_and_device
def test_rows_beyond_the_vocabulary(build):
    logits = [log(3), log(4), log(1), log(8)]
    assert step_of(build, [(0,), (2,)], logits) == [(log(3 / 4), 0, 0), (log(1 / 4), 0, 2)]
    found = step_of(build, [(0,), (2,)], logits, normalize="vocab")
    assert found == [(log(3 / 16), 0, 0), (log(1 / 16), 0, 2)]


@each_index_and_device
def test_the_score_of_the_beam_is_added(build):
    catalog = [(0, 0), (1, 0), (1, 1)]
    found = step_of(build, catalog, [0.0, 0.0], [(0,), (1,)], [-3.0, -0.5])
    half = log(1 / 2)
    assert found == [(half - 0.5, 1, 0), (half - 0.5, 1, 1), (-3.0, 0, 0)]


@each_index_and_device
def test_a_head_for_the_tokens_of_one_step(build):
    catalog = [(5, 1000), (5, 1002)]
    logits = [log(3), log(4), log(1)]
    expected = [(log(3 / 4), 0, 1000), (log(1 / 4), 0, 1002)]
    assert step_of(build, catalog, logits, [(5,)], token_offset=1000) == expected
    assert step_of(build, catalog, [0.0] * 3 + logits, [(5,)], token_offset=997) == expected
    found = step_of(build, catalog, logits, [(5,)], token_offset=1000, normalize="vocab")
    assert found == [(log(3 / 8), 0, 1000), (log(1 / 8), 0, 1002)]


@each_index_and_device
def test_every_beam_has_its_hidden_state(build):
    index = build([(0, 0), (0, 1), (1, 0), (1, 1)])
    states = states_of(index, [[(0,), (1,)], [(1,), (1,)]])
    hidden = [[[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [-1.0, 0.0]]]
    weight = [[1.0, 0.0], [0.0, 1.0]]
    found = index.filter_step(hidden, weight, states, [[0.0] * 2] * 2, 1)
    assert [(one.parent, one.token) for request in found for one in request] == [(1, 1), (1, 1)]
    low, high = log(1 / (1 + np.exp(-2))), log(1 / (1 + np.exp(-1)))
    assert [request[0].score for request in found] == pytest.approx([low, high], abs=TOLERANCE)


# Order


@each_index_and_device
def test_ties_go_to_the_lower_beam_then_to_the_smaller_token(build):
    catalog = [(beam, token) for beam in range(3) for token in (4, 2, 9)]
    found = step_of(build, catalog, [0.0] * 10, [(2,), (0,), (1,)], width=5)
    third = log(1 / 3)
    assert found == [(third, parent, token) for parent in (0, 1) for token in (2, 4, 9)][:5]


@each_index_and_device
def test_minus_zero_counts_as_zero(build):
    catalog = [(0, 3), (1, 3), (2, 3)]
    found = step_of(build, catalog, [0.0] * 4, [(0,), (1,), (2,)], [-0.0, 0.0, -0.0], width=2)
    assert found == [(0.0, 0, 3), (0.0, 1, 3)]


@each_index_and_device
def test_the_best_at_borders(build):
    for n in (1, 2, 63, 64, 65, 130):
        logits = [float((token * 7919) % 97) / 10 for token in range(n + 3)]
        catalog = [(token,) for token in range(3, n + 3)]
        ranked = sorted(range(3, n + 3), key=lambda token: (-logits[token], token))
        for width in (1, 2, 31, 64, 65, 1000):
            found = step_of(build, catalog, logits, width=width)
            assert [token for _, _, token in found] == ranked[:width]


# Scarcity


@each_index_and_device
def test_dead_beams_and_ended_beams_give_nothing(build):
    catalog = [(0,), (1, 1), (1, 2), (2, 0)]
    prefixes = [None, (0,), (1,), (2,), (1, 2)]
    found = step_of(build, catalog, [0.0] * 3, prefixes, [0.0, 0.0, -1.0, -INF, 0.0])
    assert found == [(log(1 / 2) - 1, 2, 1), (log(1 / 2) - 1, 2, 2)]
    assert step_of(build, catalog, [0.0] * 3, [None], [0.0]) == []
    assert step_of(build, catalog, [0.0] * 3, [()], [-INF]) == []


@each_index_and_device
def test_requests_do_not_share_places(build):
    index = build([(0,), (1,)])
    states = states_of(index, [[()], [None], [()]])
    found = index.filter_step([[[0.0]]] * 3, [[1.0], [1.0]], states, [[0.0]] * 3, 5)
    assert [[one.token for one in request] for request in found] == [[0, 1], [], [0, 1]]


@each_index_and_device
def test_no_requests_and_no_beams(build):
    index = build([(0,), (1,)])
    assert index.filter_step([[], []], [[1.0], [1.0]], [[], []], [[], []], 5) == [[], []]


# Everything


@st.composite
def steps(draw):
    """A catalog, a head for it, and beams: arguments of a step, with many equal scores."""
    catalog = draw(narrow_catalogs)
    tokens = [token for key in catalog for token in key]
    low, high = min(tokens), max(tokens) + 1
    offset = draw(st.sampled_from([None, low, max(0, low - 1)])) if low else None
    n_rows = high - (offset or 0) + draw(st.integers(0, 2))
    n_columns = draw(st.sampled_from([1, 2, 15, 16, 17, 33] if n_rows < 1000 else [1]))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    grid = np.array([-1, -0.5, 0, 0.5, 1])
    weight = random.choice(grid, (n_rows, n_columns))
    prefixes = [(), None, *{key[:n] for key in catalog for n in range(len(key) + 1)}]
    n_requests, n_beams = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    rows = st.lists(st.sampled_from(prefixes), min_size=n_beams, max_size=n_beams)
    beams = draw(st.lists(rows, min_size=n_requests, max_size=n_requests))
    hidden = random.choice(grid, (n_requests, n_beams, n_columns)) / n_columns**0.5
    scores = random.choice([0.0, -0.0, -0.25, -1.0, -INF], (n_requests, n_beams))
    normalize = draw(st.sampled_from(["valid", "vocab"])) if n_rows < 1000 else "valid"
    options = {"normalize": normalize, "token_offset": offset}
    width = draw(st.sampled_from([1, 2, 3, 64, 300]))
    hidden = hidden.astype(np.float32).tolist()
    return catalog, hidden, weight, beams, scores.tolist(), width, options


def check(found, possible, width):
    """`found` are the best `width` of `possible`, up to rounding."""
    assert len(found) == min(width, len(possible))
    scores = {one[1:]: one.score for one in possible}
    kept = {one[1:]: one.score for one in found}
    assert len(kept) == len(found)
    for one, score in kept.items():
        assert score == pytest.approx(scores[one], abs=TOLERANCE)
    assert found == sorted(found, key=lambda one: (-one.score, one.parent, one.token))
    rest = [score for one, score in scores.items() if one not in kept]
    if rest and kept:
        assert max(rest) <= min(kept.values()) + TOLERANCE


@each_index_and_device
@given(case=steps())
def test_what_a_step_keeps(build, case):
    catalog, hidden, weight, beams, scores, width, options = case
    index = build(catalog)
    states = states_of(index, beams)
    possible = []
    for request, row in enumerate(states):
        possible.append([])
        for beam, state in enumerate(row):
            tokens, next_states = index.children(state)
            if not tokens or scores[request][beam] == -INF:
                continue
            low = options["token_offset"] or 0
            logits = weight @ hidden[request][beam]
            valid = logits[np.array(tokens) - low]
            powers = np.exp(logits if options["normalize"] == "vocab" else valid)
            logprobs = scores[request][beam] + valid - np.log(powers.sum())
            columns = zip(logprobs.tolist(), tokens, next_states, strict=True)
            possible[-1] += [reference.Continuation(s, beam, t, n) for s, t, n in columns]
    found = index.filter_step(hidden, weight, states, scores, width, **options)
    assert len(found) == len(possible)
    for kept, all_of_it in zip(found, possible, strict=True):
        check(kept, all_of_it, width)


@each_library_index_and_device
@given(case=steps())
def test_all_ways_agree(build, case):
    from succinct.decode import Choice

    catalog, hidden, weight, beams, scores, width, options = case
    index = build(catalog)
    states = states_of(index, beams)
    everything = index.filter_step(hidden, weight, states, scores, 10**9, **options)
    ways = [{"projection": "full"}]
    ways += [
        {"plan": Choice(mapping, "full", selection)}
        for mapping in ("list", "mask")
        for selection in ("bounded", "radix")
    ]
    if options["normalize"] == "valid":
        ways += [{"projection": "selective"}, {"projection": "band"}]
        ways += [{"plan": Choice("mask", "band")}, {"plan": Choice(selection="radix")}]
    if len(weight) > 1000 and isinstance(index, IndexOnDevice):  # they take too long
        ways = [way for way in ways if "selective" in str(way)]
    for way in ways:
        found = index.filter_step(hidden, weight, states, scores, width, **options, **way)
        for kept, possible in zip(found, everything, strict=True):
            check(kept, possible, width)


# What bad input gets


@each_index_and_device
@pytest.mark.parametrize(
    ("logits", "scores", "width", "options"),
    [
        ([0.0, 0.0], [0.0], 0, {}),
        ([0.0, 0.0], [0.0], -1, {}),
        ([0.0, 0.0], [NAN], 1, {}),
        ([0.0, 0.0], [INF], 1, {}),
        ([0.0, 0.0], [0.0], 1, {"normalize": "all"}),
        ([0.0], [0.0], 1, {}),
        ([0.0], [0.0], 1, {"token_offset": 0}),
        ([0.0], [0.0], 1, {"token_offset": 1}),
        ([0.0, NAN], [0.0], 1, {}),
        ([INF, 0.0], [0.0], 1, {}),
    ],
)
def test_bad_values(build, logits, scores, width, options):
    with pytest.raises(ValueError):
        step_of(build, [(0,), (1,)], logits, scores=scores, width=width, **options)
