"""Beam search over proposals on the CPU, against the reference; its argument checks."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import BeamDecoder, KeyTable, LoudsTrie, reference
from succinct.decode import (
    _engine,
    _expand,
    _proposals,
    _search,
    _select,
    _team,
    beam,
    beam_search,
)
from tests import strategies
from tests.lanes_encoder import EncodedTrie

INF = float("inf")


def arrays(token_ids, logprobs):
    shape = len(token_ids), len(token_ids[0]), len(token_ids[0][0]) if token_ids[0] else 1
    return (
        np.array(token_ids, np.int64).reshape(shape),
        np.array(logprobs, np.float32).reshape(shape),
    )


def check_against_reference(catalog, tails, token_ids, logprobs, **options):
    trie = EncodedTrie(catalog, tails)
    expected = reference.beam_search(reference.Trie(catalog), token_ids, logprobs, **options)
    results = beam_search(trie, *arrays(token_ids, logprobs), **options)
    assert len(results) == len(expected)
    for result, found in zip(results, expected, strict=True):
        assert result.sequences == [entry.sequence for entry in found]
        assert result.scores.tolist() == [entry.score for entry in found]
        assert result.logprobs.tolist() == [entry.logprob for entry in found]
        assert result.key_ids.tolist() == trie.key_ids(result.sequences)
        assert result.states.tolist() == [int(trie.walk(key)) for key in result.sequences]
        assert len(set(result.sequences)) == len(result)
    return results


@given(strategies.searches(), st.booleans())
def test_equals_reference(search, tails):
    catalog, token_ids, logprobs, options = search
    check_against_reference(catalog, tails, token_ids, logprobs, **options)


@given(strategies.searches(duplicates=True), st.booleans())
def test_first_of_duplicates(search, tails):
    catalog, token_ids, logprobs, options = search
    options["duplicates"] = "first"
    check_against_reference(catalog, tails, token_ids, logprobs, **options)


@given(strategies.long_chains(), st.booleans(), st.data())
def test_long_chains(catalog, tails, data):
    token_ids, logprobs = [], []
    longest = max(catalog, key=len)
    alphabet = sorted({token for key in catalog for token in key})
    for token in longest:
        others = [other for other in alphabet if other != token]
        token_ids.append([token, *others])
        logprobs.append([-0.125, *[-1.0] * len(others)])
    check_against_reference(
        catalog, tails, [token_ids], [logprobs], beam_width=data.draw(st.integers(1, 3))
    )


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("n_values", [2, 1000])
@pytest.mark.parametrize("width", [1, 7, 40, [300, 20, 3, 50]])
def test_random_catalog(tails, n_values, width):
    """Frontiers and results overflow their buffers, with many ties and with few."""
    random = np.random.default_rng(5)
    catalog = [tuple(key) for key in random.integers(0, 12, (4000, 4)).tolist()]
    catalog += [key[:length] for key in catalog[:600] for length in (2, 3)]
    catalog += [(*key, 70000, 5) for key in catalog[:100]]
    token_ids = np.stack([random.permutation(12) for _ in range(3 * 4)]).reshape(3, 4, 12)
    logprobs = -random.integers(0, n_values, (3, 4, 12)) / np.float32(128)
    for max_results in (None, 1, 100, 10**6):
        check_against_reference(
            catalog,
            tails,
            token_ids.tolist(),
            logprobs.tolist(),
            beam_width=width,
            max_results=max_results,
            length_penalty=0.7,
            min_logprob=-n_values / 64,
        )


def test_results_do_not_depend_on_threads():
    random = np.random.default_rng(1)
    trie = EncodedTrie([tuple(key) for key in random.integers(0, 9, (500, 3)).tolist()])
    token_ids = np.broadcast_to(np.arange(9), (37, 3, 9))
    logprobs = -random.integers(0, 5, (37, 3, 9)).astype(np.float16)
    encoded = [
        beam_search(trie, token_ids, logprobs, beam_width=8, num_threads=n).to_bytes()
        for n in (None, 1, 2, 5)
    ]
    assert len(set(encoded)) == 1


@pytest.fixture
def slow_turns(monkeypatch):
    """Plain Python instead of compiled code, in which threads take one row at a time, in turns."""
    lock = threading.Lock()
    add = _team.add

    def add_slowly(words, at, value):
        time.sleep(1e-4 if at == _team.NEXT else 0)
        with lock:
            return add(words, at, value)

    for module in (_expand, _team):
        monkeypatch.setattr(module, "add", add_slowly)
    monkeypatch.setattr(_expand, "TURN", 1)
    plain = {"search": _engine.search, "read": _proposals.read}
    monkeypatch.setattr(_search.Engine, "call", lambda _, name, *given: plain[name](*given))


def test_threads_that_share_the_beams_of_a_query_change_nothing(monkeypatch, request):
    random = np.random.default_rng(6)
    catalog = random.integers(0, 8, (3000, 4))
    index = LoudsTrie.build(KeyTable.from_sequences([*catalog, *catalog[:100, :3]]))
    token_ids = np.argsort(random.random((4, 4, 8)), axis=-1)
    # Few distinct values, so that many sums are equal.
    logprobs = -random.integers(1, 3, (4, 4, 8)).astype(np.float32)
    options = {"beam_width": [8, 20, 20, 20], "max_results": 40}
    expected = beam_search(index, token_ids, logprobs, **options, num_threads=1)

    def check(repeats):
        for threads in (2, 3) * repeats:
            for query, wanted in enumerate(expected):
                one = token_ids[query], logprobs[query]
                found = beam_search(index, *one, **options, num_threads=threads)[0]
                assert found.to_bytes() == wanted.to_bytes()
                assert found.states.tolist() == wanted.states.tolist()

    monkeypatch.setattr(beam, "WORTH_HELP", 0)
    check(20)
    request.getfixturevalue("slow_turns")
    check(1)


class OnDevice:
    def __dlpack_device__(self):
        return 2, 0


def test_proposals_on_a_device():
    index = LoudsTrie.build(KeyTable.from_sequences([(1, 2)]))
    given = {"token_ids": np.ones((1, 1), int), "logprobs": np.zeros((1, 1))}
    for name in given:
        with pytest.raises(ValueError, match=f"{name}: .* DLPack device 2"):
            beam_search(index, **(given | {name: OnDevice()}), beam_width=1)
        with pytest.raises(ValueError, match=f"{name}: .* DLPack device 2"):
            BeamDecoder(index).step(**(given | {name: OnDevice()}))
    with pytest.raises(ValueError, match=r"logprobs: .* DLPack device 2"):
        BeamDecoder(index).step(OnDevice())


CATALOG = [(1, 2, 3), (1, 2, 4), (1,), (70000, 5)]
TOKENS = [[1, 70000], [2, 5], [3, 4]]
LOGPROBS = [[-1.0, -2.0], [-0.5, -0.25], [-0.125, -0.125]]


@pytest.fixture(scope="module")
def trie():
    return EncodedTrie(CATALOG)


def test_more_beams_than_keys(trie):
    result = beam_search(trie, TOKENS, LOGPROBS, beam_width=10**9)[0]
    assert result.sequences == [(1,), (1, 2, 3), (1, 2, 4), (70000, 5)]
    assert result.logprobs.tolist() == [-1, -1.625, -1.625, -2.25]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, ">i8"])
@pytest.mark.parametrize("float_dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_dtypes(trie, dtype, float_dtype):
    expected = beam_search(trie, TOKENS, LOGPROBS, beam_width=3)
    tokens, logprobs = np.array(TOKENS, dtype), np.array(LOGPROBS, float_dtype)
    assert beam_search(trie, tokens, logprobs, beam_width=3).to_bytes() == expected.to_bytes()
    strided = np.repeat(tokens, 2, axis=1)[:, ::2], np.repeat(logprobs, 2, axis=0)[::2]
    assert beam_search(trie, *strided, beam_width=3).to_bytes() == expected.to_bytes()


def test_uint8_tokens():
    trie = EncodedTrie([(1, 255), (0,)])
    tokens = np.array([[1, 0], [255, 1]], np.uint8)
    assert len(beam_search(trie, tokens, np.zeros((2, 2)), beam_width=3)[0]) == 2


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0), (0, 2), (2, 0)])
def test_nothing_proposed(trie, shape):
    results = beam_search(trie, np.zeros(shape, np.int64), np.zeros(shape), beam_width=2)
    assert len(results) == (shape[0] if len(shape) == 3 else 1)
    assert all(len(result) == 0 for result in results)


def test_padding_is_exempt_from_checks(trie):
    tokens = [[1, -5, 1, 2**40], [2, 2, -1, 2], [3, 3, 3, 3]]
    logprobs = [[-1, -INF, -INF, -INF], [-1, -INF, -INF, -INF], [-INF, -1, -INF, -INF]]
    result = beam_search(trie, tokens, logprobs, beam_width=2)[0]
    assert result.sequences == [(1,), (1, 2, 3)]


def test_thresholds_are_float32_and_strict(trie):
    value = float(np.float32(0.1))
    tokens, logprobs = [[1]], [[value]]
    for name in ("min_token_logprob", "min_logprob"):
        # 0.1 is below its float32, which is what counts.
        assert len(beam_search(trie, tokens, logprobs, beam_width=1, **{name: 0.1})[0]) == 0
        assert len(beam_search(trie, tokens, logprobs, beam_width=1, **{name: 0.0999})[0]) == 1


def test_first_duplicate_counts_even_if_rejected(trie):
    options = {"beam_width": 1, "duplicates": "first", "min_token_logprob": -1.5}
    assert len(beam_search(trie, [[1, 1]], [[-2, -1]], **options)[0]) == 0
    assert len(beam_search(trie, [[1, 1]], [[-INF, -1]], **options)[0]) == 1


WRONG_VALUES = [
    ({"beam_width": 0}, "beam_width: expected at least 1, got 0"),
    ({"beam_width": [1, 0, 2]}, r"beam_width\[1\]: expected at least 1, got 0"),
    ({"beam_width": [1, 2]}, "expected one int, or 3 for 3 steps, got 2"),
    ({"max_results": 0}, "max_results: expected at least 1, got 0"),
    ({"num_threads": 0}, "num_threads: expected at least 1, got 0"),
    ({"length_penalty": float("nan")}, "length_penalty: expected a finite number, got nan"),
    ({"length_penalty": -1e9}, "length_penalty: .* too small"),
    ({"length_penalty": 1e9}, "length_penalty: .* too large for sequences of 2 tokens"),
    ({"min_logprob": float("nan")}, "min_logprob is nan"),
    ({"min_token_logprob": float("nan")}, "min_token_logprob is nan"),
    ({"duplicates": "last"}, 'expected "error" or "first", got \'last\''),
    ({"logprobs": LOGPROBS[:2]}, r"the shape of token_ids, \(3, 2\), got \(2, 2\)"),
    ({"token_ids": [1, 2], "logprobs": [1, 2]}, r"expected shape .* got \(2,\)"),
    ({"token_ids": [[1, 2], [3]]}, "token_ids: expected an array, got rows of different"),
    ({"logprobs": [[0, 0], [0, np.nan], [0, 0]]}, r"logprobs\[0, 1, 1\] is nan"),
    ({"token_ids": [[1, 2], [3, 4], [-7, 4]]}, r"token_ids\[0, 2, 0\]: .* got -7"),
    ({"token_ids": [[1, 2], [3, 2**32 - 1], [3, 4]]}, r"token_ids\[0, 1, 1\]: expected 0 to"),
    (
        {"token_ids": np.array([[1, 2], [3, 2**32 - 1], [3, 4]], np.uint32)},
        r"token_ids\[0, 1, 1\]: expected 0 to 4294967294, got 4294967295",
    ),
    (
        {"token_ids": [[1, 2], [17, 17], [3, 4]]},
        r'token_ids\[0, 1\]: token 17 appears at 0 and 1; pass duplicates="first"',
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG_VALUES)
def test_wrong_values(trie, options, message):
    options = {"token_ids": TOKENS, "logprobs": LOGPROBS, "beam_width": 2} | options
    with pytest.raises(ValueError, match=message):
        beam_search(trie, **options)


WRONG_TYPES = [
    ({"index": {(1, 2): 0}}, "index: expected an index such as LoudsTrie, got dict"),
    ({"token_ids": np.zeros((3, 2))}, "token_ids: expected integers, got float64"),
    ({"logprobs": [["a", "b"]] * 3}, "logprobs: expected floating point numbers, got <U1"),
    ({"beam_width": 2.5}, "beam_width: expected an int, got float"),
    ({"beam_width": "22"}, "beam_width: expected an int, got str"),
    ({"beam_width": [1, 2.0, 3]}, r"beam_width\[1\]: expected an int, got float"),
    ({"max_results": "3"}, "max_results: expected an int, got str"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_TYPES)
def test_wrong_types(trie, options, message):
    arguments = {"index": trie, "token_ids": TOKENS, "logprobs": LOGPROBS, "beam_width": 2}
    with pytest.raises(TypeError, match=message):
        beam_search(**arguments | options)


def test_too_many_candidates(trie):
    trie = EncodedTrie(CATALOG)
    trie.n_states = 2**40
    tokens = np.zeros((4, 1500), np.int64)
    with pytest.raises(
        ValueError, match="step 2: expected at most 2147483647 beams, got 3375000000"
    ):
        beam_search(trie, tokens, np.full(tokens.shape, -INF), beam_width=2**40)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), min_size=1, max_size=80), st.data())
def test_selection_and_sort(values, data):
    """Uncompiled, so that the arithmetic is checked for overflow."""
    keys = np.array(values, np.uint64)
    keep = data.draw(st.integers(1, len(values)))
    scratch = _select.new_scratch(len(values))
    least = _select.keep_best(keys, 0, len(values), keep, scratch)
    best = sorted(range(len(values)), key=lambda i: (-values[i], i))[:keep]
    assert scratch.chosen[:keep].tolist() == sorted(best)
    assert least == min(values[i] for i in best)
    _select.sort_descending(keys, keep, scratch)
    assert scratch.chosen[:keep].tolist() == best


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2))
def test_order_of_scores(pair):
    for order, dtype in ((_select.order32, np.float32), (_select.order64, np.float64)):
        a, b = (int(order(dtype(value))) for value in pair)
        assert (a < b, a == b) == (pair[0] < pair[1], pair[0] == pair[1])
    assert _select.unorder32(np.uint64(_select.order32(np.float32(pair[0])))) == pair[0]


SEARCH = """
import warnings
warnings.simplefilter("error")
import sys
import succinct.decode
assert "numba" not in sys.modules
from succinct.decode import beam_search
from succinct.decode._compile import compiled_search
from tests.lanes_encoder import EncodedTrie
trie = EncodedTrie([(1, 2), (3,)])
results = beam_search(trie, [[1, 3], [2, 4]], [[-1.0, -2.0], [-1.0, -2.0]], beam_width=2)
assert results[0].sequences == [(3,), (1, 2)], results[0]
stats = compiled_search(trie.lanes).stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


# As where neither the package's folder nor the user's can be written to.
NO_FOLDER = """
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
"""


def run_search(cache_folder, script=SEARCH):
    """Cache hits and misses of a search in a new process."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache_folder), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return tuple(map(int, done.stdout.split()))


@pytest.mark.slow
def test_compiled_code_is_kept(tmp_path):
    assert run_search(tmp_path) == (0, 1)
    assert run_search(tmp_path) == (1, 0)


@pytest.mark.slow
def test_works_without_a_cache_folder(tmp_path):
    script = SEARCH.replace("trie = ", NO_FOLDER + "trie = ", 1)
    assert run_search(tmp_path, script) == (0, 1)
    assert not list(tmp_path.iterdir())
