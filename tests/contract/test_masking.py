"""Masking full log-probabilities: what is valid, and nothing else; held against sets of tuples."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.contract.test_eligibility import bits_of
from tests.contract.test_index import continuations_of, prefixes_of
from tests.implementations import DEAD, each_index_and_device, each_library_index_and_device
from tests.strategies import SMALL, catalogs_over, fans, repeated

INF = math.inf
catalogs = repeated(
    st.one_of(catalogs_over(SMALL), catalogs_over([0, 63, 64, 65, 127, 128]), fans(100), fans(32))
)
SPECIAL = [0.0, -0.0, -1.5, -INF, INF, math.nan, -60000.0]


@st.composite
def questions(draw):
    """A catalog, prefixes of it (None for DEAD), and logits of a type for each row."""
    catalog = draw(catalogs)
    known = st.sampled_from(prefixes_of(catalog))
    rows = draw(st.lists(st.one_of(known, known, known, st.none()), max_size=6))
    n_columns = 1 + max(map(max, catalog)) + draw(st.sampled_from([0, 0, 1, 40]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    logits = random.normal(-3, 2, (len(rows), n_columns))
    if draw(st.booleans()):
        odd = random.random(logits.shape) < 0.3
        logits[odd] = random.choice(SPECIAL, int(odd.sum()))
    dtype = draw(st.sampled_from([np.float32, np.float32, np.float16, np.float64]))
    return catalog, rows, logits.astype(dtype)


def expected(catalog, rows, eligible=None):
    """The tokens that may follow each row's prefix, if `eligible` keys are to be reached."""
    following = continuations_of(catalog)
    out = []
    for i, prefix in enumerate(rows):
        valid = following.get(prefix, [])
        keys = None if eligible is None else eligible[i]
        if keys is not None:
            good = {key[:n] for key in keys for n in range(len(key) + 1)}
            valid = [token for token in valid if (*prefix, token) in good]
        out.append(valid)
    return out


def scores_of(logits, valid):
    """float32 scores of the valid tokens of each row."""
    with np.errstate(over="ignore"):
        values = logits.astype(np.float32)
    values[np.isnan(values)] = -INF
    return [values[row, tokens] for row, tokens in enumerate(valid)]


def states_of(index, rows):
    return [DEAD if prefix is None else int(index.walk(prefix)) for prefix in rows]


def check(index, rows, logits, valid, **options):
    """Both functions, bit for bit."""
    states = states_of(index, rows)
    offsets, tokens, scores, next_states = index.candidates(logits, states, **options)
    assert offsets == np.cumsum([0, *map(len, valid)]).tolist()
    assert tokens == [token for row in valid for token in row]
    wanted = scores_of(logits, valid)
    assert np.array(scores, np.float32).tobytes() == b"".join(row.tobytes() for row in wanted)
    assert next_states == [
        index.walk((*prefix, token))
        for prefix, row in zip(rows, valid, strict=True)
        for token in row
    ]
    masked = np.full_like(logits, -INF)
    for row, row_tokens in enumerate(valid):
        masked[row, row_tokens] = logits[row, row_tokens]
    masked[np.isnan(masked)] = -INF
    assert index.constrain(logits, states, **options).tobytes() == masked.tobytes()


@each_index_and_device
@settings(max_examples=30)
@given(question=questions())
def test_what_continues_the_states_and_nothing_else(build, question):
    catalog, rows, logits = question
    index = build(catalog)
    assume(logits.dtype in index.floats)
    check(index, rows, logits, expected(catalog, rows))


@each_index_and_device
@settings(max_examples=15)
@given(question=questions(), data=st.data())
def test_eligible_keys(build, question, data):
    catalog, rows, logits = question
    index = build(catalog)
    assume(logits.dtype in index.floats)
    keys = st.sets(st.sampled_from(sorted(set(catalog))))
    one = data.draw(keys)
    check(index, rows, logits, expected(catalog, rows, [one] * len(rows)),
          allowed=bits_of(index, one))  # fmt: skip
    requests = data.draw(st.lists(st.one_of(st.none(), keys), min_size=1, max_size=3))
    mine = [data.draw(st.integers(0, len(requests) - 1)) for _ in rows]
    bitmaps = [None if some is None else bits_of(index, some) for some in requests]
    valid = expected(catalog, rows, [requests[request] for request in mine])
    check(index, rows, logits, valid, allowed=bitmaps, requests=mine)
    if rows:
        each = [bitmaps[request] for request in mine]
        check(index, rows, logits, valid, allowed=each)


@each_index_and_device
@settings(max_examples=15)
@given(question=questions(), spare=st.integers(0, 3))
def test_padding(build, question, spare):
    catalog, rows, logits = question
    index = build(catalog)
    assume(logits.dtype in index.floats)
    valid = expected(catalog, rows)
    states = states_of(index, rows)
    width = max([1, *map(len, valid)]) + spare
    tokens, scores, next_states, mask = index.candidates(logits, states, width=width)
    _, flat_tokens, flat_scores, flat_states = index.candidates(logits, states)
    assert mask == [[i < len(row) for i in range(width)] for row in valid]
    for padded, flat, filler in (
        (tokens, flat_tokens, 0),
        (scores, flat_scores, -INF),
        (next_states, flat_states, DEAD),
    ):
        assert [len(row) for row in padded] == [width] * len(rows)
        pairs = [(v, m) for row, flags in zip(padded, mask, strict=True)
                 for v, m in zip(row, flags, strict=True)]  # fmt: skip
        assert [v for v, m in pairs if m] == flat
        assert all(v == filler for v, m in pairs if not m)
    longest = max(map(len, valid), default=0)
    if longest > 1:
        row = [len(row) for row in valid].index(longest)
        with pytest.raises(
            ValueError, match=rf"row \d+ has \d+ candidates, more than {longest - 1}"
        ):
            index.candidates(logits[row:], states[row:], width=longest - 1)


@each_index_and_device
@settings(max_examples=20)
@given(question=questions(), normalize=st.sampled_from(["valid", "vocab"]))
def test_log_softmax(build, question, normalize):
    catalog, rows, logits = question
    index = build(catalog)
    assume(logits.dtype in index.floats)
    valid = expected(catalog, rows)
    _, _, scores, _ = index.candidates(logits, states_of(index, rows), normalize=normalize)
    everything = scores_of(logits, [range(logits.shape[1])] * len(rows))
    wanted = []
    for mine, whole in zip(scores_of(logits, valid), everything, strict=True):
        over = (mine if normalize == "valid" else whole).astype(np.float64)
        most = over.max(initial=-INF)
        if most == INF:
            wanted += np.where(mine == INF, -np.log((over == INF).sum()), -INF).tolist()
        elif most == -INF:
            wanted += mine.tolist()
        else:
            total = most + np.log(np.exp(over - most).sum())
            wanted += (mine.astype(np.float64) - total).tolist()
    assert not any(map(math.isnan, scores))
    np.testing.assert_allclose(scores, wanted, rtol=1e-6, atol=1e-6)


@each_index_and_device
def test_one_row_of_each_kind(build):
    """A terminal prefix that goes on, one that does not, the root, and DEAD."""
    catalog = [(1,), (1, 2), (3, 2, 0)]
    index = build(catalog)
    rows = [(1,), (1, 2), (), None, (3, 2), (3,)]
    logits = np.arange(24, dtype=np.float32).reshape(6, 4)
    check(index, rows, logits, [[2], [], [1, 3], [], [0], [2]])


@each_index_and_device
@pytest.mark.parametrize("fan", [63, 64, 65, 511, 512, 513, 5000])
def test_many_continuations(build, fan):
    catalog = [(5, token) for token in range(fan)] + [(7, 2 * token, 1) for token in range(9)]
    rows = [(5,), (), (7,), (7, 4), (5,)]
    logits = np.random.default_rng(fan).normal(size=(5, fan + 20)).astype(np.float32)
    check(build(catalog), rows, logits, expected(catalog, rows))


@each_library_index_and_device
def test_labels_beyond_16_bits(build):
    catalog = [(1, token) for token in (0, 65535, 65536, 65537, 70_000)] + [(65536, 3)]
    rows = [(), (1,), (65536,), None]
    index = build(catalog)
    logits = np.random.default_rng(0).normal(size=(4, 70_001)).astype(index.floats[0])
    check(index, rows, logits, expected(catalog, rows))


@each_index_and_device
def test_no_rows(build):
    index = build([(1, 2)])
    empty = np.empty((0, 3), np.float32)
    assert index.candidates(empty, []) == ([0], [], [], [])
    assert index.candidates(empty, [], width=2) == ([], [], [], [])
    assert index.constrain(empty, []).shape == (0, 3)


@each_index_and_device
def test_what_both_refuse(build):
    index = build([(1, 2), (3, 1)])
    logits = np.zeros((2, 4), np.float32)
    for call in (index.candidates, index.constrain):
        for values, states, options in (
            (logits, [0], {}),
            (logits, [0, 0, 0], {}),
            (logits[:, :3], [0, 0], {}),
            (logits, [0, 999], {}),
            (logits, [0, 0], {"allowed": [True]}),
            (logits, [0, 0], {"allowed": [[True, True]]}),
        ):
            with pytest.raises(ValueError):
                call(values, states, **options)
    with pytest.raises(ValueError, match="normalize"):
        index.candidates(logits, [0, 0], normalize="all")
