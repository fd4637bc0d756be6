"""Masking on the device agrees with the reference, over borders of warps, blocks and tiles."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct
import succinct_gpu as sg
from succinct import DEAD, CsrMap, KeyTable, LoudsTrie, StepMap, reference
from tests.gpu.runs import each_run, running

KINDS = {
    "louds": lambda keys: LoudsTrie.build(keys, tail=True),
    "csr": lambda keys: CsrMap.build(keys, dense_levels=1),
    "steps": lambda keys: StepMap.build(keys, "small", tail=False),
    "steps-rice": lambda keys: StepMap.build(keys, "rice"),
    "steps-tail": lambda keys: StepMap.build(keys, "small", tail=True),
}
VOCABULARY = 4200  # more than a tile


def catalog():
    """A root with more continuations than a block has threads, and rows of 1, 31, 32, 33, 600."""
    generator = np.random.default_rng(6)
    keys = [(int(t),) for t in generator.choice(VOCABULARY, 300, replace=False)]
    for first, count in ((0, 1), (1, 31), (31, 32), (32, 33), (4095, 600), (4096, 64)):
        for token in generator.choice(VOCABULARY, count, replace=False):
            keys.append((first, int(token), 7))
    keys += [(4199, t) for t in (0, 31, 32, 4095, 4096, VOCABULARY - 1)]
    keys += [(5, 9, 9, 9, t) for t in (1, 4097)]
    return keys


KEYS = catalog()
TRIE = reference.Trie(KEYS)
PREFIXES = [
    (),
    (0,),
    (1,),
    (31,),
    (32,),
    (4095,),
    (4096,),
    (4199,),
    (4199, 31),
    (5, 9),
    (5, 9, 9, 9),
]


@pytest.fixture(scope="module", params=KINDS)
def index(request):
    return KINDS[request.param](KeyTable.from_sequences(KEYS))


def rows_of(index):
    """States, and the tokens that the reference says continue them; the last is dead."""
    states = np.array([*(index.walk(prefix) for prefix in PREFIXES), DEAD], np.uint64)
    tokens = [TRIE.children(TRIE.walk(prefix))[0] for prefix in PREFIXES]
    return states, [*tokens, []]


def logits_for(rows, width, dtype):
    logits = np.random.default_rng(7).normal(size=(rows, width)).astype(dtype)
    logits[0, :9] = np.nan
    logits[0, 9:20] = -np.nan
    logits[3, ::3] = np.inf
    logits[4, ::3] = -np.inf
    return logits


def constrained(logits, tokens):
    expected = np.full_like(logits, -np.inf)
    for row, valid in enumerate(tokens):
        expected[row, valid] = np.nan_to_num(
            logits[row, valid], nan=-np.inf, posinf=np.inf, neginf=-np.inf
        )
    return expected


@each_run
@pytest.mark.parametrize(("dtype", "width"), [(np.float32, VOCABULARY), (np.float16, 8193)])
def test_constrain(run, index, dtype, width):
    states, tokens = rows_of(index)
    logits = logits_for(len(states), width, dtype)
    expected = constrained(logits, tokens)
    with running(run):
        device = sg.to_device(index)
        on_device = cuda.to_device(logits)
        assert sg.constrain(on_device, device, cuda.to_device(states)) is on_device
        assert (on_device.copy_to_host() == expected).all()
        assert sg.constrain(logits, device, states.tolist()) is logits
    assert (logits == expected).all()


@each_run
def test_allowed_mask(run, index):
    states, tokens = rows_of(index)
    expected = np.zeros((len(states), -(-VOCABULARY // 32)), np.uint32)
    for row, valid in enumerate(tokens):
        for token in valid:
            expected[row, token // 32] |= np.uint32(1 << token % 32)
    with running(run):
        device = sg.to_device(index)
        found = device.allowed_mask(states)
        assert found.dtype == np.int32
        assert (found.view(np.uint32) == expected).all()
        found = device.allowed_mask(cuda.to_device(states)).copy_to_host()
        assert (found.view(np.uint32) == expected).all()
        assert device.allowed_mask(states[:0]).shape == (0, expected.shape[1])


@each_run
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_candidates(run, index, dtype):
    states, tokens = rows_of(index)
    logits = logits_for(len(states), VOCABULARY, dtype)
    scores = constrained(logits, tokens).astype(np.float32)
    next_states = [
        index.walk((*prefix, token))
        for prefix, valid in zip(PREFIXES, tokens, strict=False)
        for token in valid
    ]
    with running(run):
        device = sg.to_device(index)
        host = sg.candidates(logits, device, states)
        there = sg.candidates(cuda.to_device(logits), device, cuda.to_device(states))
        for found in (host, [part.copy_to_host() for part in there]):
            offsets, found_tokens, found_scores, found_states = found
            assert np.diff(offsets).tolist() == [len(valid) for valid in tokens]
            assert found_tokens.tolist() == [token for valid in tokens for token in valid]
            for row, valid in enumerate(tokens):
                part = found_scores[offsets[row] : offsets[row + 1]]
                assert part.tolist() == scores[row, valid].tolist()
            assert found_states.tolist() == next_states
        none = sg.candidates(logits[-1:], device, states[-1:])
        assert none.offsets.tolist() == [0, 0]
        assert none.tokens.size == none.scores.size == none.next_states.size == 0


@each_run
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_padded_and_normalised(run, index, dtype):
    """On the device a row with more candidates than the width has none."""
    states, tokens = rows_of(index)
    logits = np.random.default_rng(9).normal(size=(len(states), VOCABULARY)).astype(dtype)
    longest = max(map(len, tokens))
    with running(run):
        device = sg.to_device(index)
        for normalize in ("valid", "vocab"):
            expected = succinct.candidates(
                logits, index, states, width=longest, normalize=normalize
            )
            found = sg.candidates(logits, device, states, width=longest, normalize=normalize)
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)
        width = longest - 1
        with pytest.raises(ValueError, match=f"has {longest} candidates, more than {width}"):
            sg.candidates(logits, device, states, width=width)
        there = sg.candidates(cuda.to_device(logits), device, cuda.to_device(states), width=width)
        valid = there.valid.copy_to_host().sum(axis=1)
        assert valid.tolist() == [len(row) if len(row) <= width else 0 for row in tokens]


@each_run
def test_states_of_the_device_are_not_trusted(run, index):
    """Whatever they are, nothing is read outside the arrays; DEAD and its like have no children."""
    generator = np.random.default_rng(8)
    wild = generator.integers(0, 2**64 - 1, 60, np.uint64, endpoint=True)
    wild[::3] >>= np.uint64(20)
    wild[1::3] >>= np.uint64(50)
    with running(run):
        device = sg.to_device(index)
        logits = cuda.to_device(np.zeros((60, VOCABULARY), np.float32))
        sg.constrain(logits, device, cuda.to_device(wild))
        sg.candidates(logits, device, cuda.to_device(wild))


@cache
def looking(functions):
    """A kernel that someone else might write."""
    child_range, nth_child = functions.child_range, functions.nth_child
    find_child, has_children = functions.find_child, functions.has_children

    @cuda.jit
    def look(arrays, states, sums, lost, inner):
        i = cuda.grid(1)
        if i < states.size:
            first, count = child_range(arrays, states[i])
            total = np.int64(0)
            for k in range(count):
                token, child = nth_child(arrays, states[i], first, k)
                total += token
                lost[i] += find_child(arrays, states[i], first, count, token) != child
            sums[i] = total
            inner[i] = has_children(arrays, states[i])

    return look


@each_run
def test_device_functions_in_a_kernel_of_ones_own(run, index):
    states, tokens = rows_of(index)
    with running(run):
        device = sg.to_device(index)
        sums, lost, inner = (np.zeros(len(states), np.int64) for _ in range(3))
        looking(sg.device_functions(device))[1, 64](device.arrays, states, sums, lost, inner)
    assert sums.tolist() == [sum(valid) for valid in tokens]
    assert not lost.any()
    assert inner.tolist() == [bool(valid) for valid in tokens]


def test_bad_arguments(index):
    states = np.full(2, index.root, np.uint64)
    good = np.zeros((2, VOCABULARY), np.float32)
    with running("simt-in-order"):
        device = sg.to_device(index)
        for call in (sg.constrain, sg.candidates):
            with pytest.raises(TypeError, match="expected float32 or float16, got float64"):
                call(good.astype(np.float64), device, states)
            with pytest.raises(ValueError, match=r"\[rows, vocabulary\], got shape \(4200,\)"):
                call(good[0], device, states)
            with pytest.raises(ValueError, match=r"at least 4200 columns, .* got 4199"):
                call(good[:, :-1].copy(), device, states)
            with pytest.raises(ValueError, match=r"expected 2, one for each row .* got 1"):
                call(good, device, states[:1])
            with pytest.raises(ValueError, match="states"):
                call(good, device, np.array([1, 2**63], np.uint64))
            with pytest.raises(TypeError, match="expected uint64 on the device, got int64"):
                call(good, device, cuda.to_device(states.astype(np.int64)))
            with pytest.raises(ValueError, match="C-contiguous"):
                call(cuda.to_device(good)[:, ::2], device, states)
            with pytest.raises(TypeError, match=r"to_device gave, got \w+"):
                call(good, index, states)
        read_only = good.copy()
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match="writable"):
            sg.constrain(read_only, device, states)
        with pytest.raises(TypeError, match="got list"):
            sg.to_device([1])
        assert sg.to_host(device) is index


def test_too_large_for_the_device(index, monkeypatch):
    with running("simt-in-order"):
        context = cuda.current_context()
        monkeypatch.setattr(type(context), "get_memory_info", lambda self: (100, 100))
        with pytest.raises(MemoryError, match=r"the device has 100 free; .*on the CPU"):
            sg.to_device(index)
