"""Filtering first on the device, over borders of chunks, warps and blocks, and what it refuses."""

import contextlib
import sys
import types

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct
import succinct_gpu as sg
from succinct import DEAD, KeyTable, StepMap, reference
from succinct.decode import Choice
from succinct_gpu import _products
from tests.contract.test_filtering import check
from tests.gpu.runs import each_run, running

# More continuations than a block has threads, and borders of chunks.
FAN_OUTS = (1, 2, 31, 32, 33, 63, 64, 65, 129, 300)
VOCABULARY = 400


def keys():
    generator = np.random.default_rng(1)
    rows = [
        (first, int(second), int(second) % 7)
        for first, count in enumerate(FAN_OUTS)
        for second in generator.choice(VOCABULARY, count, replace=False)
    ]
    return KeyTable.from_sequences(rows)


@pytest.fixture(scope="module")
def index():
    return StepMap.build(keys(), "small", tail=False)


def beams_of(index, n_requests, n_beams, length, dtype=np.float32):
    """Requests of beams that end anywhere, some of them dead, with many equal scores."""
    generator = np.random.default_rng(n_beams + length)
    states = np.array([index.walk((first,)) for first in range(len(FAN_OUTS))], np.uint64)
    rare = np.full(len(states), 0.01)
    rare[:8] = 0.98 / 8
    beams = generator.choice(states, (n_requests, n_beams), p=rare)
    beams[0, 0], beams[-1, -1] = DEAD, index.walk((9,))
    scores = generator.choice(
        [0.0, -0.0, -0.5, -np.inf], (n_requests, n_beams), p=[0.4, 0.4, 0.1, 0.1]
    )
    hidden = generator.choice([-1, 0, 0.5, 1], (n_requests, n_beams, length)).astype(dtype)
    weight = generator.choice([-0.5, 0, 0.25], (VOCABULARY, length)).astype(dtype)
    return hidden, weight, beams, scores.astype(np.float32)


def continuations(step):
    """The continuations of every request as the reference gives them."""
    return [
        list(map(reference.Continuation, *(part.tolist() for part in parts)))
        for parts in zip(step.scores, step.parents, step.tokens, step.states, strict=True)
    ]


WAYS = {
    "selective": {"projection": "selective"},
    "band": {"projection": "band", "step": 1},
    "radix": {"plan": Choice(selection="radix")},
    "mask": {"plan": Choice("mask", "full", "radix")},
    "vocab": {"normalize": "vocab"},
}


@each_run
@pytest.mark.parametrize("way", WAYS)
def test_equals_the_cpu(run, index, way):
    """With so many beams that the rows of a request take several rounds of a block."""
    shape = (2, 260, 3) if way in ("selective", "radix") else (2, 5, 161)
    hidden, weight, states, scores = beams_of(index, *shape)
    options = WAYS[way]
    width = 1 if way == "band" else 200
    everything = succinct.filter_step(hidden, weight, index, states, scores, 10**6, **options)
    with running(run):
        device = sg.to_device(index)
        found = sg.filter_step(hidden, weight, device, states, scores, width, **options)
    for kept, possible in zip(continuations(found), continuations(everything), strict=True):
        check(kept, possible, width)
        assert {one[1:] for one in kept} <= {one[1:] for one in possible}


@each_run
@pytest.mark.parametrize("selection", ["bounded", "radix"])
def test_equal_scores_take_every_pass(run, index, selection):
    """What all scores leave open is settled by the ranks, beam before token."""
    states = np.full((1, 12), index.walk((9,)))
    hidden, weight = np.zeros((1, 12, 1), np.float32), np.zeros((VOCABULARY, 1), np.float32)
    tokens, _ = index.children(states[0, 0])
    with running(run):
        device = sg.to_device(index)
        plan = Choice(selection=selection)
        found = sg.filter_step(hidden, weight, device, states, np.zeros((1, 12)), 700, plan=plan)
    assert found.parents[0].tolist() == np.repeat([0, 1, 2], 300)[:700].tolist()
    assert found.tokens[0].tolist() == np.tile(tokens, 3)[:700].tolist()


@each_run
def test_float16_on_the_device_step_after_step(run, index):
    """With everything on the device nothing is allocated after the first step of a kind."""
    generator = np.random.default_rng(5)
    weight = generator.standard_normal((VOCABULARY, 40)).astype(np.float16)
    states, scores = np.full((2, 1), index.root), np.zeros((2, 1), np.float32)
    with running(run):
        device, there = sg.to_device(index), cuda.to_device(weight)
        workspace = sg.Workspace()
        places, values = cuda.to_device(states), cuda.to_device(scores)
        for step in range(3):
            hidden = generator.standard_normal((*states.shape, 40)).astype(np.float16)
            options = {"step": step, "projection": ("selective", "band", "full")[step]}
            expected = succinct.filter_step(hidden, weight, index, states, scores, 20, **options)
            vectors = cuda.to_device(hidden)
            for _ in range(2):
                before = workspace.nbytes
                found = sg.filter_step(vectors, there, device, places, values, 20,
                                       workspace=workspace, **options)  # fmt: skip
            assert workspace.nbytes == before
            host = [part.copy_to_host() for part in found]
            assert host[5].tolist() == [0, 0]
            assert host[4].tolist() == np.diff(expected.offsets).tolist()
            wanted = expected.padded(host[0].shape[1])
            np.testing.assert_allclose(host[1], wanted[1], atol=2e-4)
            for mine, theirs in zip(host[:4], wanted, strict=True):
                assert mine.dtype == theirs.dtype
                assert (mine == theirs).mean() > 0.9 or mine.dtype == np.float32
            states, scores, _, _ = wanted
            # As a decoder does; the next step must not write where it reads.
            places, values = cuda.to_device(states), cuda.to_device(scores)


@each_run
def test_states_of_the_device_are_not_trusted(run, index):
    wild = np.random.default_rng(8).integers(0, 2**64 - 1, (3, 20), np.uint64, endpoint=True)
    wild[1] >>= np.uint64(50)
    wild[2] >>= np.uint64(58)
    with running(run):
        device = sg.to_device(index)
        arrays = np.zeros((3, 20, 4), np.float32), np.zeros((3, 20), np.float32)
        hidden, scores = map(cuda.to_device, arrays)
        weight = np.zeros((VOCABULARY, 4), np.float32)
        for plan in (Choice(), Choice("mask", "full")):
            sg.filter_step(hidden, weight, device, cuda.to_device(wild), scores, 9, plan=plan)


def arrays_there(index, n_beams=3):
    hidden, weight, states, scores = beams_of(index, 2, n_beams, 4)
    there = [cuda.to_device(array) for array in (hidden, states, scores)]
    return there[0], weight, there[1], there[2]


def test_captured_steps(index):
    """They read their arguments anew, and are launches of one graph where there are graphs."""
    with running("simt-in-order"):
        device = sg.to_device(index)
        hidden, weight, states, scores = arrays_there(index)
        captured = sg.capture_step(hidden, weight, device, states, scores, 6, step=1)
        hidden.copy_to_device(-hidden.copy_to_host())
        captured.launch()
        expected = sg.filter_step(hidden, weight, device, states, scores, 6, step=1)
        for mine, theirs in zip(captured.step, expected, strict=True):
            assert (mine.copy_to_host() == theirs.copy_to_host()).all()
        with pytest.raises(ValueError, match="expected an array on the device"):
            sg.capture_step(hidden.copy_to_host(), weight, device, states, scores, 6)
        with pytest.raises(TypeError, match="got steps"):
            sg.capture_step(hidden, weight, device, states, scores, 6, steps=1)


@pytest.mark.parametrize("status", [0, 700])
def test_what_the_driver_is_asked_to_capture(index, monkeypatch, status):
    from cuda.bindings import driver

    from succinct_gpu import _graphs

    asked = []

    def call(name, *values):
        def ask(*arguments):
            asked.append(name)
            return (status if name == "cuGraphLaunch" else 0, *values)

        monkeypatch.setattr(driver, name, ask)

    for name, values in {
        "cuStreamBeginCapture": (),
        "cuStreamEndCapture": ("graph",),
        "cuGraphInstantiate": ("executable",),
        "cuGraphDestroy": (),
        "cuGraphLaunch": (),
        "cuGraphExecDestroy": (),
    }.items():
        call(name, *values)
    monkeypatch.setattr(_graphs.simt, "enabled", lambda: False)
    with running("simt-in-order"):
        hidden, weight, states, scores = arrays_there(index)
        workspace = sg.Workspace(products="kernel")
        captured = sg.capture_step(hidden, weight, sg.to_device(index), states, scores, 6,
                                   workspace=workspace)  # fmt: skip
        if status:
            with pytest.raises(RuntimeError, match=r"says 700; .*without a graph"):
                captured.launch()
        else:
            captured.launch()
        del captured
    assert asked == ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate",
                     "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy"]  # fmt: skip


def memory(address, shape, strides, dtype):
    """An array over memory of the executor's device."""
    interface = {"data": (address, False), "shape": shape, "strides": strides, "version": 3,
                 "typestr": np.dtype(dtype).str}  # fmt: skip
    return np.asarray(types.SimpleNamespace(__array_interface__=interface))


class Cublas:
    """As far as CuPy has it, of columns."""

    def setStream(self, handle, stream):
        assert (handle, stream) == (5, 0)

    def gemmEx(self, handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
               c_type, ldc, compute, algorithm):  # fmt: skip
        dtypes = {0: np.float32, 2: np.float16}
        assert (handle, ta, tb, c_type, compute, algorithm) == (5, 1, 0, 0, 68, -1)
        assert memory(alpha, (1,), None, np.float32)[0] == 1
        size = np.dtype(dtypes[a_type]).itemsize
        left = memory(a, (k, m), (size, lda * size), dtypes[a_type])
        right = memory(b, (k, n), (size, ldb * size), dtypes[b_type])
        out = memory(c, (m, n), (4, 4 * ldc), np.float32)
        out[...] = left.T.astype(np.float32) @ right.astype(np.float32)


class Torch:
    """As far as products need it."""

    float32 = np.dtype(np.float32)
    float16 = np.dtype(np.float16)

    class cuda:
        current_device = staticmethod(lambda: 0)
        stream = contextlib.nullcontext
        ExternalStream = staticmethod(lambda pointer, device: None)

    @staticmethod
    def device(kind, number):
        assert (kind, number) == ("cuda", 0)

    @staticmethod
    def as_tensor(array, device):
        what = array.__cuda_array_interface__
        return memory(what["data"][0], what["shape"], what["strides"], what["typestr"])

    @staticmethod
    def mm(left, right, dtype=None, *, out):
        assert (dtype is not None) == (left.dtype == np.float16)
        out[...] = left.astype(np.float32) @ right.astype(np.float32)


@pytest.mark.parametrize("products", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_products_of_libraries(index, products, dtype, monkeypatch):
    """Of stand-ins with their interfaces: a band of a head for few tokens."""
    stand_in = types.SimpleNamespace(
        cublas=Cublas(), device=types.SimpleNamespace(get_cublas_handle=lambda: 5)
    )
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=stand_in))
    monkeypatch.setitem(sys.modules, "cupy.cuda", stand_in)
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr(_products, "_installed", lambda name: True)
    hidden, weight, states, scores = beams_of(index, 2, 3, 20, dtype)
    everything = succinct.filter_step(hidden, weight, index, states, scores, 10**6)
    with running("simt-in-order"):
        device = sg.to_device(index)
        given = map(cuda.to_device, (hidden, weight, states, scores))
        hidden, weight, states, scores = given
        workspace = sg.Workspace(products=products)
        step = sg.filter_step(hidden, weight, device, states, scores, 9, "band",
                              step=1, workspace=workspace)  # fmt: skip
        counts = step.counts.copy_to_host()
        kept = [part.copy_to_host() for part in (step.scores, step.parents, step.tokens,
                                                 step.states)]  # fmt: skip
    for q, possible in enumerate(continuations(everything)):
        parts = (part[q, : counts[q]].tolist() for part in kept)
        check(list(map(reference.Continuation, *parts)), possible, 9)


def test_plans(index):
    """Those of the device are those of the CPU, but for what is fastest."""
    weight = np.random.default_rng(2).standard_normal((VOCABULARY, 4)).astype(np.float32)
    with running("simt-in-order"):
        device = sg.to_device(index)
        plan = sg.calibrate(device, weight, [2], beam_width=9, repeats=1)
        assert [(one.step, one.batch) for one in plan.steps] == [(0, 2), (1, 2), (2, 2)]
        assert len(plan.steps[1].seconds) == 6  # the band is the whole head
        plan = plan.pin(1, mapping="mask", projection="band", selection="radix")
        again = sg.calibrate(device, [cuda.to_device(weight)] * 3, [2], beam_width=9, repeats=1,
                             plan=plan)  # fmt: skip
        assert again.steps[1] == plan.steps[1]
        states = np.full((2, 1), index.root)
        hidden = np.ones((2, 1, 4), np.float32)
        found = sg.filter_step(hidden, weight, device, states, np.zeros((2, 1)), 9, plan=again)
        assert len(found.tokens[1]) == 9
        with pytest.raises(ValueError, match="expected one for each of 3 steps, got 2"):
            sg.calibrate(device, [weight] * 2)
    with pytest.raises(ValueError, match="made for"):
        succinct.filter_step(hidden, weight, StepMap.build(KeyTable.from_rows([[1]])),
                             [[0], [0]], np.zeros((2, 1)), 9, plan=again)  # fmt: skip


def test_what_is_wrong_with_one_request(index):
    """It keeps nothing, and the others are as without it."""
    hidden, weight, states, scores = beams_of(index, 3, 4, 8)
    scores[:] = 0
    states[:] = index.walk((2,))
    states[1, 2] = index.walk((9,))
    with running("simt-in-order"):
        device = sg.to_device(index)

        def status(workspace=None, weight=weight, bad=0.0, **options):
            vectors = hidden.copy()
            vectors[1, 2, 3] = bad
            given = (cuda.to_device(a) for a in (vectors, states, scores))
            vectors, places, values = given
            found = sg.filter_step(vectors, weight, device, places, values, 5,
                                   workspace=workspace, **options)  # fmt: skip
            assert (found.counts.copy_to_host() == 0).tolist() == [
                one != 0 for one in found.status.copy_to_host()
            ]
            return found.status.copy_to_host().tolist()

        assert status() == [0, 0, 0]
        assert status(bad=np.nan) == [0, 1, 0]
        assert status(bad=np.nan, plan=Choice("mask", "full")) == [0, 1, 0]
        assert status(bad=np.inf) == [0, 1, 0]
        assert sum(one == 2 for one in status(sg.Workspace(max_slots=12 * 64))) == 1
        tokens, _ = index.children(states[0, 0])
        low = int(tokens.min())
        assert status(weight=weight[low:], token_offset=low) == [0, 3, 0]
        for plan in (None, Choice("mask", "full")):
            with pytest.raises(ValueError, match=r"hidden\[1\]: a valid token has no row"):
                sg.filter_step(hidden, weight[low:], device, states, scores, 5,
                               token_offset=low, plan=plan)  # fmt: skip


def test_bad_arguments(index):
    hidden, weight, states, scores = beams_of(index, 2, 3, 4)
    with running("simt-in-order"):
        device = sg.to_device(index)
        there = [cuda.to_device(array) for array in (hidden, states, scores)]

        def step(hidden=hidden, weight=weight, index=device, states=states, scores=scores,
                 width=5, **options):  # fmt: skip
            return sg.filter_step(hidden, weight, index, states, scores, width, **options)

        for arguments, error, message in (
            ({"index": index}, TypeError, r"to_device gave, got StepMap"),
            ({"states": there[1]}, ValueError, "all of them on the host or all on the device, got "
             "host, device, host"),
            ({"width": 0}, ValueError, "beam_width"),
            ({"width": 5000}, ValueError, "at most 4096 on the device, got 5000; succinct.filter"),
            ({"projection": "half"}, ValueError, "projection: expected one of"),
            ({"weight": weight[:-1]}, ValueError, "weight: expected at least 400 rows"),
            ({"weight": weight.astype(np.float64)}, TypeError, "weight: expected float32"),
            ({"weight": cuda.to_device(weight[:, :-1].copy())}, ValueError, "expected 4 columns"),
            ({"weight": cuda.to_device(weight)[:, ::2]}, ValueError, "C-contiguous"),
            ({"scores": np.full((2, 3), np.nan)}, ValueError, r"beam_scores\[0, 0\]"),
            ({"hidden": np.zeros((2, 3, 12289), np.float32),
              "weight": np.zeros((400, 12289), np.float32)}, ValueError, "at most 12288 dimen"),
            ({"workspace": sg.Workspace(products="blas")}, ValueError, "products: expected one"),
        ):  # fmt: skip
            if arguments.get("width") == 5000:
                wide = np.full((2, 30), index.walk((9,)))
                arguments |= {"hidden": np.zeros((2, 30, 4), np.float32), "states": wide,
                              "scores": np.zeros((2, 30))}  # fmt: skip
            with pytest.raises(error, match=message):
                step(**arguments)
        on_device = dict(zip(("hidden", "states", "scores"), there, strict=True))
        for arguments, error, message in (
            ({"states": cuda.to_device(states.astype(np.int64))}, TypeError, "expected uint64"),
            ({"scores": cuda.to_device(scores.astype(np.float64))}, TypeError, "expected float32"),
            ({"scores": cuda.to_device(scores[:1])}, ValueError, "beam_scores: expected the shape"),
            ({"hidden": cuda.to_device(hidden.astype(np.float64))}, TypeError, "got float64"),
            ({"plan": succinct.Plan({}, "valid", ())}, ValueError, "step: expected the number"),
        ):
            with pytest.raises(error, match=message):
                step(**(on_device | arguments))
    with pytest.raises(ValueError, match="max_slots"):
        sg.Workspace(max_slots=0)
