"""Stepwise decoding: the same as searching proposals, row by row as the reference, resumable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from succinct import reference
from tests.contract.test_eligibility import bits_of, eligible_searches
from tests.implementations import build_steps, each_decoder, each_library_index
from tests.strategies import narrow_catalogs

INF = float("inf")


def results_of(found):
    return [
        [
            reference.Result(*entry)
            for entry in zip(
                query.scores.tolist(), query.sequences, query.logprobs.tolist(), strict=True
            )
        ]
        for query in found
    ]


def padded(token_ids, logprobs):
    n = max((len(step) for query in token_ids for step in query), default=1)
    tokens = np.zeros((len(token_ids), len(token_ids[0]), n), np.int64)
    values = np.full(tokens.shape, -np.inf, np.float32)
    for q, query in enumerate(token_ids):
        for t, step in enumerate(query):
            tokens[q, t, : len(step)] = step
            values[q, t, : len(step)] = logprobs[q][t]
    return tokens, values


@each_decoder
@given(case=eligible_searches(), saved=st.integers(0, 6))
def test_steps_equal_a_search(build, case, saved):
    """Bit for bit; and from a state saved anywhere on the way."""
    from succinct import beam_search

    catalog, token_ids, logprobs, options, eligible = case
    index = build(catalog)
    many = not isinstance(eligible, set)
    allowed = (
        [None if keys is None else bits_of(index, keys) for keys in eligible] if many else None
    )
    allowed = allowed if many else bits_of(index, eligible)
    tokens, values = padded(token_ids, logprobs)
    expected = beam_search(index.raw, tokens, values, allowed=allowed, **options)
    decoder = index.decoder(len(tokens), allowed=allowed, **options)
    for step in range(tokens.shape[1]):
        if step == saved:
            state = decoder.state_dict()
            decoder = index.decoder(len(tokens), allowed=allowed, **options)
            decoder.load_state_dict(state)
        of = np.repeat(np.arange(len(tokens)), np.diff(decoder.offsets))
        before = decoder.states
        parents, taken = decoder.step(values[of, step], token_ids=tokens[of, step])
        assert (index.raw.advance(before[parents], taken) == decoder.states).all()
        assert len(parents) == decoder.offsets[-1]
    found = decoder.finish()
    assert found.to_bytes() == expected.to_bytes()
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.key_ids.tolist() == theirs.key_ids.tolist()
        assert ours.states.tolist() == theirs.states.tolist()


@st.composite
def walks(draw):
    catalog = draw(narrow_catalogs)
    seed = draw(st.integers(0, 2**32))
    return catalog, seed, draw(st.integers(1, 5)), draw(st.integers(1, 3))


@each_decoder
@settings(max_examples=10)
@given(case=walks())
def test_full_logprobs_equal_the_reference(build, case):
    """Different ones for every row, with NaN, -inf, +inf and ties; float16 and wider too."""
    catalog, seed, width, batch = case
    catalog = [tuple(min(token, 300) for token in key) for key in catalog]
    index, random = build(catalog), np.random.default_rng(seed)
    options = {"beam_width": width, "min_logprob": -9.5, "min_token_logprob": -4.0}
    decoder = index.decoder(batch, **options)
    trie = reference.Trie(catalog)
    twin = reference.BeamDecoder(trie, batch, **options)
    for _ in range(trie.max_length + 1):
        shape = len(decoder.states), index.raw.vocab_size + int(random.integers(0, 3))
        values = random.choice([-0.5, -1.25, -2.0, -5.0, np.nan, -INF, INF, 0.0, -0.0], shape)
        values = values.astype(random.choice([np.float16, np.float32, np.float64]))
        parents, tokens = decoder.step(values)
        assert (parents.tolist(), tokens.tolist()) == twin.step(values.tolist())
        assert decoder.offsets.tolist() == twin.offsets
    assert len(decoder.states) == 0
    assert results_of(decoder.finish()) == twin.finish()


def small(build=build_steps):
    return build([(1, 2), (1, 3), (2,), (1,)]).raw


def test_finished_requests_have_no_rows():
    from succinct import BeamDecoder

    index = small()
    decoder = BeamDecoder(index, batch=2, beam_width=4, allowed=[None, [False] * 4])
    assert decoder.offsets.tolist() == [0, 1, 1]
    parents, tokens = decoder.step(np.zeros((1, 4), np.float32))
    # (1,) is a key and is continued; (2,) ends.
    assert (parents.tolist(), tokens.tolist()) == ([0], [1])
    assert (parents.dtype, tokens.dtype) == (np.int64, np.uint32)
    decoder.step(np.zeros((1, 4)))
    parents, tokens = decoder.step(np.zeros((0, 4)))
    assert len(parents) == len(tokens) == len(decoder.states) == 0
    assert [result.sequences for result in decoder.finish()] == [[(1,), (2,), (1, 2), (1, 3)], []]


BAD = [
    (lambda d: d.step(np.zeros((2, 4))), ValueError, r"expected shape \[1, V\].*got \(2, 4\)"),
    (lambda d: d.step(np.zeros((1, 3))), ValueError, "at least 4 columns.*got 3"),
    (lambda d: d.step(np.zeros((1, 4), int)), TypeError, "floating point numbers, got int64"),
    (lambda d: d.step(), TypeError, "needs logprobs"),
    (lambda d: d.step([[0.0]] * 2, token_ids=[[1]] * 2), ValueError, r"shape \[1, K\]"),
    (lambda d: d.step([[0.0, 0.0]], token_ids=[[1, 1]]), ValueError, r"ids\[0\]: token 1 .* 1$"),
    (lambda d: d.step([[np.nan]], token_ids=[[1]]), ValueError, r"logprobs\[0, 0\] is nan"),
    (lambda d: d.load_state_dict([]), TypeError, "expected a mapping"),
    (
        lambda d: d.load_state_dict(type(d)(d._index, 2).state_dict()),
        ValueError,
        "another index, batch",
    ),
    (
        lambda d: d.load_state_dict(d.state_dict() | {"offsets": [0, 9]}),
        ValueError,
        "by no more than the beam width",
    ),
    (
        lambda d: d.load_state_dict(d.state_dict() | {"states": [2**50]}),
        ValueError,
        "no state of this index",
    ),
    (lambda d: d.load_state_dict(d.state_dict() | {"n_found": [-1]}), ValueError, "n_found"),
]


@pytest.mark.parametrize(("act", "error", "message"), BAD)
def test_bad_input_changes_nothing(act, error, message):
    from succinct import BeamDecoder

    decoder = BeamDecoder(small(), beam_width=2)
    before = {name: np.array(value) for name, value in decoder.state_dict().items()}
    with pytest.raises(error, match=message):
        act(decoder)
    after = decoder.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_no_more_steps_than_widths():
    from succinct import BeamDecoder

    decoder = BeamDecoder(small(), beam_width=[2])
    decoder.step(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="given for 1 steps"):
        decoder.step(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="batch: expected at least 1, got 0"):
        BeamDecoder(small(), batch=0)
    with pytest.raises(TypeError, match="expected an index"):
        BeamDecoder({})


@each_library_index
@pytest.mark.parametrize("restricted", [False, True])
def test_hidden_states_are_scored_as_full_logprobs(build, restricted):
    """The same sequences as from a log-softmax over each row's valid tokens worked out here."""
    from succinct import DEAD, BeamDecoder

    rng = np.random.default_rng(7)
    keys = {tuple(rng.integers(0, 9, rng.integers(1, 5)).tolist()) for _ in range(120)}
    index = build(sorted(keys))
    allowed = rng.random(index.raw.n_keys) < 0.4 if restricted else None
    weight = rng.standard_normal((9, 6), np.float32)
    options = {"batch": 3, "beam_width": 4, "allowed": allowed}
    decoder, control = BeamDecoder(index.raw, **options), BeamDecoder(index.raw, **options)
    eligible = [
        key
        for i, key in enumerate(map(index.raw.key, range(index.raw.n_keys)))
        if allowed is None or allowed[i]
    ]
    leads_to = {index.raw.walk(key[:n]) for key in eligible for n in range(1, len(key) + 1)}
    for _ in range(index.raw.max_length):
        rows = len(decoder.states)
        hidden = rng.standard_normal((rows, 6), np.float32)
        full = hidden @ weight.T
        for row, state in enumerate(decoder.states):
            after = index.raw.advance(np.full(9, state), np.arange(9))
            valid = np.array([s != DEAD and s in leads_to for s in after])
            scores = np.where(valid, full[row], -np.inf)
            full[row] = scores - np.log(np.exp(scores).sum())
        found = decoder.step(hidden=hidden, weight=weight)
        expected = control.step(full)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    for ours, theirs in zip(decoder.finish(), control.finish(), strict=True):
        assert ours.sequences == theirs.sequences
        np.testing.assert_allclose(ours.scores, theirs.scores, atol=2e-4)


def test_bad_hidden_states():
    from succinct import BeamDecoder

    index = build_steps([(1, 2), (1, 3), (2,)]).raw
    decoder = BeamDecoder(index, batch=2, beam_width=2)
    hidden, weight = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    with pytest.raises(TypeError, match="hidden with weight"):
        decoder.step(hidden=hidden)
    with pytest.raises(TypeError, match="only with hidden"):
        decoder.step(np.zeros((2, 4), np.float32), projection="full")
    with pytest.raises(TypeError, match="got beam"):
        decoder.step(hidden=hidden, weight=weight, beam=1)
    with pytest.raises(ValueError, match="expected 2 rows"):
        decoder.step(hidden=hidden[:1], weight=weight)
    with pytest.raises(ValueError, match="expected at least 4 rows"):
        decoder.step(hidden=hidden, weight=weight[:2])
    assert decoder.n_steps == 0
