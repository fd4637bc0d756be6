"""Beam search on the device equals the one on the CPU, over borders of warps, blocks and grids."""

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct_gpu as sg
from succinct import BitVector, CsrMap, KeyTable, LoudsTrie, StepMap, beam_search
from succinct_gpu import _topk, simt
from tests.gpu import beam_kernels
from tests.gpu.runs import each_run, running

CAPACITY = _topk.CAPACITY
KINDS = {
    "louds": lambda keys: LoudsTrie.build(keys, tail=True),
    "csr": lambda keys: CsrMap.build(keys, dense_levels=1),
    "steps": lambda keys: StepMap.build(keys, "small", tail=True),
}


# The parts


@each_run
@pytest.mark.parametrize("selection", ["radix", "merge"])
def test_the_best_of_many(run, selection):
    borders = [
        ("differ", 0, 1),
        ("differ", 1, 1),
        ("same", 64, 63),
        ("few", 65, 64),
        ("few", CAPACITY, 100),
        ("differ", CAPACITY + 1, CAPACITY),
        ("same", CAPACITY + 1, 1),
    ]
    beyond = [
        ("differ", 3 * CAPACITY + 5, 33),
        ("few", 2 * CAPACITY, CAPACITY - 1),
        ("same", 2 * CAPACITY + 1, 1000),
        ("largest", 2 * CAPACITY + 1, 2),
    ]
    with running(run):
        assert beam_kernels.check_choice(selection, borders, share=1)
        assert beam_kernels.check_choice(selection, beyond, share=2, threads=128)


def wide_catalog():
    """Rows of 1, 2, 31, 32, 33, 64 and 5,000 continuations; keys that are prefixes of keys."""
    generator = np.random.default_rng(3)
    keys = []
    for first, count in enumerate((1, 2, 31, 32, 33, 64, CAPACITY + 900)):
        seconds = generator.choice(6000, count, replace=False).tolist()
        keys += [(first, second) for second in seconds[::2]]
        keys += [(first, second, 1) for second in seconds[::3]]
        keys += [(first, second, 2, 3) for second in seconds[1::2]]
    return keys


@pytest.fixture(scope="module")
def wide():
    return CsrMap.build(KeyTable.from_sequences(wide_catalog()))


@each_run
@pytest.mark.parametrize("variant", beam_kernels.VARIANTS)
def test_every_variant_finds_the_same(run, wide, variant):
    generator = np.random.default_rng(4)
    states = [wide.walk((first,)) for first in (0, 6, 1, 2, 3, 4, 5)]
    states += [wide.walk(key[:2]) for key in wide_catalog()[:70]]
    slow = variant in ("per_child", "linear")
    with running(run):
        device = sg.to_device(wide)
        for rows, n in ((states, 33), (states[1:2], 300), (states[:2], 1), (states[1:2], 2600)):
            if slow and n > 300:
                continue
            tokens = np.sort(generator.choice(6000, n, replace=False))
            assert beam_kernels.check_expansion(device, wide, rows, tokens, variant)


# The whole


def catalog():
    """Keys of one to six tokens; chains, branches behind chains, and a root of 70 children."""
    generator = np.random.default_rng(6)
    keys = [tuple(key) for key in generator.integers(0, 70, (4000, 3)).tolist()]
    keys += [(*key, 5, 6, 7) for key in keys[::9]] + [key[:2] for key in keys[::31]]
    return [*keys, *((*key[:2], 66, 65, 64, token) for key in keys[::40] for token in (1, 2))]


@pytest.fixture(scope="module", params=KINDS)
def index(request):
    return KINDS[request.param](KeyTable.from_sequences(catalog()))


def proposals(queries, steps, n, seed=7, decimals=1):
    generator = np.random.default_rng(seed)
    tokens = np.argsort(generator.random((queries, steps, 70)), axis=-1)[..., :n]
    logprobs = np.log(generator.random((queries, steps, n), np.float32)).round(decimals)
    return tokens, logprobs.astype(np.float32)


def same(found, expected):
    return found.to_bytes() == expected.to_bytes() and all(
        np.array_equal(getattr(found, name), getattr(expected, name))
        for name in ("_key_ids", "_states", "_logprobs")
    )


@each_run
def test_search(run, index):
    allowed = np.random.default_rng(8).random((9, index.n_keys)) < 0.2
    cases = [
        (1, 6, 64, {"beam_width": 65}),
        (2, 4, 31, {"beam_width": [64, 31, 33, 1], "max_results": 257, "length_penalty": 1.0}),
        (9, 3, 33, {"beam_width": 7, "allowed": allowed}),
        (1, 6, 70, {"beam_width": 40, "min_logprob": -4.0, "min_token_logprob": -1.5}),
    ]
    with running(run):
        device = sg.to_device(index)
        for queries, steps, n, options in cases:
            tokens, logprobs = proposals(queries, steps, n)
            expected = beam_search(index, tokens, logprobs, **options)
            assert same(sg.beam_search(device, tokens, logprobs, **options), expected)
            assert len(expected.scores) > 10


MERGING = {"variant": "probe", "selection": "merge", "timed": True}


@pytest.mark.parametrize("index", ["csr"], indirect=True)
@pytest.mark.parametrize(("run", "how"), [("simt-random", {}), ("simt-reversed", MERGING)])
def test_more_candidates_than_a_block_sorts(run, index, how):
    options = {"beam_width": 600, "max_results": 500}
    with running(run):
        sizes = {"max_beam_width": 600, "max_proposals": 70, "max_steps": 4}
        searcher = sg.Searcher(sg.to_device(index), **sizes, **how)
    for decimals in (7, 0):
        tokens, logprobs = proposals(1, 4, 70, decimals=decimals)
        expected = beam_search(index, tokens, logprobs, **options)
        with running(run):
            assert same(searcher.search(tokens, logprobs, **options), expected)


@pytest.mark.parametrize("how", [{}, MERGING], ids=["radix", "merge"])
def test_a_million_candidates(how):
    """With many equal scores among them."""
    every = np.arange(1000, dtype=np.uint32)
    rows = np.stack(np.meshgrid(every, every, indexing="ij"), -1).reshape(-1, 2)
    index = CsrMap.build(KeyTable.from_rows(rows))
    random = np.random.default_rng(1)
    tokens = np.stack([random.permutation(1000) for _ in range(2)])
    logprobs = np.log(random.random((2, 1000))).round(2).astype(np.float32)
    expected = beam_search(index, tokens, logprobs, beam_width=1000)
    # The race check takes its time where all is merged.
    with simt.session(race_check=not how):
        sizes = {"max_beam_width": 1000, "max_proposals": 1000, "max_steps": 2}
        searcher = sg.Searcher(sg.to_device(index), **sizes, **how)
        assert same(searcher.search(tokens, logprobs, beam_width=1000), expected)


@pytest.mark.parametrize("index", ["csr"], indirect=True)
def test_phases(index):
    """In the executor all accesses to memory are in one of them."""
    tokens, logprobs = proposals(2, 7, 20)
    with running("simt-random"):
        device, sizes = sg.to_device(index), {"max_beam_width": 9, "max_proposals": 20}
        searcher = sg.Searcher(device, max_batch=2, max_steps=7, **MERGING, **sizes)
        for queries, steps in ((2, 7), (1, 7), (1, 3)):  # the first notes more
            given = tokens[:queries, :steps], logprobs[:queries, :steps]
            with simt.record() as seen:
                searcher.search(*given, beam_width=9)
            phases = searcher.phases
            assert phases.expand.shape == phases.select.shape == (queries, steps)
            for part in (phases.expand[:, :3], phases.select[:, :3], phases.trace):
                assert (part > 0).all()
            assert (phases.expand[:, 6:] == 0).all()  # no key has so many tokens
            total = phases.trace + phases.expand.sum(axis=1) + phases.select.sum(axis=1)
            counted = sum(seen.counters[:6])
            assert total.max() <= counted
            if queries == 1:
                before = 2 * _topk.PASSES * _topk.BINS  # histograms are cleared
                assert total[0] > 0.9 * (counted - before)
        plain = sg.Searcher(device, max_steps=1, **sizes)
        assert plain.phases is None


@each_run
@pytest.mark.parametrize("index", ["csr"], indirect=True)
def test_arrays_of_the_device(run, index):
    tokens, logprobs = proposals(3, 4, 40)
    tokens[0, 1, 3] = tokens[0, 1, 4]
    logprobs[0, :, 5:7] = -np.inf
    options = {"beam_width": 33, "min_token_logprob": -2.0, "duplicates": "first"}
    expected = beam_search(index, tokens, logprobs, **options)
    wild, values = tokens.astype(np.int64), logprobs.copy()
    values[0, :, 5] = np.nan  # as if it were -inf
    values[0, 1, 6] = -1.0
    wild[0, 1, 6] = 2**32 - 1  # no token
    wild[0, 2, 5] = -5
    with running(run):
        device = sg.to_device(index)
        given = cuda.to_device(wild), cuda.to_device(values)
        assert same(sg.beam_search(device, *given, **options), expected)
        with pytest.raises(ValueError, match=r"token_ids\[0, 1\]: a token appears twice"):
            sg.beam_search(device, *given, beam_width=33)
        half = cuda.to_device(tokens.astype(np.uint16)), cuda.to_device(logprobs)
        assert same(sg.beam_search(device, *half, **options), expected)


@pytest.mark.parametrize("index", ["csr"], indirect=True)
def test_searchers_side_by_side(index):
    some = proposals(2, 4, 40, seed=1), proposals(1, 3, 12, seed=2)
    bits = BitVector.from_bools(np.random.default_rng(1).random(index.n_keys) < 0.5)
    with running("simt-in-order"):
        device = sg.to_device(index)
        sizes = {"max_beam_width": 30, "max_proposals": 40, "max_steps": 4}
        searchers = [sg.Searcher(device, max_batch=2, **sizes) for _ in range(2)]
        before = [searcher.nbytes for searcher in searchers]
        for searcher, (tokens, logprobs) in zip(searchers, some, strict=True):
            searcher.launch(tokens, logprobs, beam_width=30, stream=cuda.stream())
        with pytest.raises(RuntimeError, match=r"take its result\(\) first"):
            searchers[0].launch(*some[0], beam_width=30)
        for searcher, given in zip(searchers, some, strict=True):
            assert same(searcher.result(), beam_search(index, *given, beam_width=30))
        on_device = sg.to_device(bits)
        found = searchers[1].search(*some[0], beam_width=9, allowed=on_device)
        assert same(found, beam_search(index, *some[0], beam_width=9, allowed=bits))
        assert [searcher.nbytes for searcher in searchers] == before
        assert f"{before[0] / 2**20:.1f} MiB on the device" in repr(searchers[0])
        with pytest.raises(RuntimeError, match="no search is under way"):
            searchers[0].result()
        for given, options, message in (
            (proposals(3, 4, 40), {"beam_width": 1}, "at most 2 batch, got 3"),
            (proposals(1, 5, 40), {"beam_width": 1}, "at most 4 steps, got 5"),
            (proposals(1, 4, 41), {"beam_width": 1}, "at most 40 proposals, got 41"),
            (some[0], {"beam_width": 31}, "beam_width: expected at most 30, got 31"),
            (some[0], {"beam_width": 5, "max_results": 31}, "max_results: expected at most 30"),
            (some[0], {"beam_width": 5, "length_penalty": 1500}, "length_penalty: its factors"),
        ):
            with pytest.raises(ValueError, match=message):
                searchers[0].search(*given, **options)


@pytest.mark.parametrize("index", ["csr"], indirect=True)
def test_bad_arguments(index):
    tokens, logprobs = proposals(1, 2, 5)
    with running("simt-in-order"):
        device = sg.to_device(index)
        with pytest.raises(TypeError, match="to_device gave, got CsrMap"):
            sg.beam_search(index, tokens, logprobs, beam_width=2)
        with pytest.raises(ValueError, match="expected one of binary, probe"):
            sg.beam_search(device, tokens, logprobs, beam_width=2, variant="best")
        with pytest.raises(ValueError, match="selection: expected one of radix, merge, got 3"):
            sg.Searcher(device, max_beam_width=1, max_proposals=1, max_steps=1, selection=3)
        with pytest.raises(TypeError, match="logprobs: expected an array of the device"):
            sg.beam_search(device, cuda.to_device(tokens), logprobs, beam_width=2)
        there = cuda.to_device(tokens), cuda.to_device(logprobs)
        with pytest.raises(TypeError, match="expected integers on the device, got float32"):
            sg.beam_search(device, there[1], there[1], beam_width=2)
        with pytest.raises(TypeError, match="got int64"):
            sg.beam_search(device, there[0], there[0], beam_width=2)
        with pytest.raises(ValueError, match="the shape of token_ids"):
            sg.beam_search(device, there[0], there[1][:, :1], beam_width=2)
        with pytest.raises(ValueError, match="expected at most 4096 on the device, got 5000"):
            sg.Searcher(device, max_beam_width=5000, max_proposals=1, max_steps=1)
        with pytest.raises(MemoryError, match="make room for fewer queries"):
            sg.Searcher(
                device, max_batch=10**6, max_beam_width=4096, max_proposals=10**5, max_steps=64
            )
