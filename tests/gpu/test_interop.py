"""Arrays of a device that come by ``__cuda_array_interface__`` or by DLPack alone.

What they give is what arrays of the host give, which other tests hold against the reference.
"""

import ctypes
import gc

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct_gpu as sg
from succinct import BitVector, CsrMap, KeyTable
from succinct_gpu import _dlpack, _filter_step, _searcher
from tests.gpu.runs import running

KEYS = KeyTable.from_rows(np.random.default_rng(1).integers(0, 40, (300, 3)))
INDEX = CsrMap.build(KEYS)
STATES = np.array([INDEX.root, INDEX.walk(KEYS.tokens[:1]), INDEX.walk(KEYS.tokens[:2])])
ALLOWED = np.random.default_rng(2).random(KEYS.n_keys) < 0.3
LOGITS = np.random.default_rng(3).normal(size=(3, 41)).astype(np.float32)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class ByInterface:
    """Has the interface of CUDA and nothing else."""

    def __init__(self, array):
        self.array = cuda.to_device(array)

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


class ByDLPack:
    """Has DLPack and nothing else; counts what it lent and what came back."""

    lent = 0

    def __init__(self, array, device=(2, 0), offset=0, code=None, strides=False):
        self.array, self.device, self.streams = cuda.to_device(array), device, []
        dtype = self.array.dtype
        code = {"i": 0, "u": 1, "f": 2, "b": 6}[dtype.kind] if code is None else code
        shape = self.array.shape
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        steps = [step // dtype.itemsize for step in self.array.strides]
        self.strides = (ctypes.c_int64 * len(shape))(*steps) if strides else None
        data = self.array.__cuda_array_interface__["data"][0] - offset
        tensor = _dlpack._Tensor(
            data, *device, len(shape), code, 8 * dtype.itemsize, 1, self.shape, self.strides, offset
        )
        self.deleter = _dlpack._Deleter(self.back)
        self.managed = _dlpack._Managed(tensor, None, self.deleter)

    def back(self, managed):
        type(self).lent -= 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        type(self).lent += 1
        return _new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


there = pytest.mark.parametrize("there", [ByInterface, ByDLPack])


@pytest.fixture(autouse=True)
def everything_comes_back():
    before = ByDLPack.lent
    yield
    if ByDLPack.lent != before:
        gc.collect()  # of what a traceback holds
    assert ByDLPack.lent == before


@there
def test_masking(there):
    with running("simt-in-order"):
        device = sg.to_device(INDEX)
        logits = there(LOGITS)
        assert sg.constrain(logits, device, there(STATES)) is logits
        wanted = sg.constrain(LOGITS.copy(), device, STATES)
        assert np.array_equal(logits.array.copy_to_host(), wanted)
        mask = device.allowed_mask(there(STATES)).copy_to_host()
        assert np.array_equal(mask, INDEX.allowed_mask(STATES).view(np.int32))
        bits = sg.to_device(BitVector.from_bools(ALLOWED))
        ranks = bits.rank1(there(np.arange(20))).copy_to_host()
        assert np.array_equal(ranks, np.cumsum(ALLOWED[:20]) - ALLOWED[:20])


@there
@pytest.mark.parametrize("kind", ["bools", "words", "each", "bits"])
def test_eligible_keys(there, kind):
    each = np.stack([ALLOWED, ~ALLOWED, ALLOWED])
    words = np.full(-(-KEYS.n_keys // 64), 0x123456789ABCDEF1, np.uint64)
    bits = BitVector.from_bools(ALLOWED)
    given = {"bools": ALLOWED, "words": words, "each": each, "bits": bits}[kind]
    with running("simt-in-order"):
        device = sg.to_device(INDEX)
        on_device = sg.to_device(bits) if kind == "bits" else there(given)
        for requests in [None] if kind != "each" else [None, [2, 0, 1]]:
            options = {"width": 40, "requests": requests}
            found = sg.candidates(there(LOGITS), device, STATES, allowed=on_device, **options)
            wanted = sg.candidates(LOGITS, device, STATES, allowed=given, **options)
            for name in ("tokens", "valid"):
                there_too = getattr(found, name).copy_to_host()
                assert np.array_equal(there_too[wanted.valid], getattr(wanted, name)[wanted.valid])
            assert found.valid.copy_to_host().sum() == wanted.valid.sum()


@pytest.mark.parametrize("n_keys", [1, 63, 64, 511, 512, 70_000])
def test_bitmaps_under_rank(n_keys):
    """As those of the host have it."""
    from succinct_gpu import _eligible

    bools = np.random.default_rng(n_keys).random((2, n_keys)) < 0.4
    for given in (bools, bools[0]):
        n_words = -(-n_keys // 64)
        padded = np.zeros((given.size // n_keys, 64 * n_words), bool)
        padded[:, :n_keys] = given
        wanted = BitVector.from_bools(padded.reshape(-1)).lane_arrays()
        words = wanted.words[: len(padded) * n_words].reshape(len(padded), n_words)
        words = words | np.uint64(0)
        if n_keys % 64:
            words[:, -1] |= ~np.uint64(0) << np.uint64(n_keys % 64)  # are not looked at
        with running("simt-random"):
            for array in (given, words if given.ndim == 2 else words[0]):
                lanes, offsets = _eligible.read_there(ByInterface(array), n_keys, 2, 0)
                assert offsets.tolist() == ([0, 64 * n_words] if given.ndim == 2 else [0, 0])
                for name in ("words", "blocks", "supers"):
                    mine = getattr(lanes, name).copy_to_host()
                    assert np.array_equal(mine, getattr(wanted, name)), name


@there
def test_proposals(there):
    """Searches and decoders go on with them as with what `cuda.to_device` made."""
    random = np.random.default_rng(4)
    ids = np.stack([random.permutation(40)[:16] for _ in range(6)]).reshape(2, 3, 16)
    values = random.normal(size=ids.shape).astype(np.float32)
    values[0, 0, 3] = -np.inf
    with running("simt-in-order"):
        read = _searcher._read_proposals(there(ids[0]), there(values[0]), 0)
        assert [array.shape for array in read] == [(1, 3, 16)] * 2
        for mine, theirs in zip(read, (ids, values), strict=True):
            assert np.array_equal(mine.copy_to_host()[0], theirs[0])
        device = sg.to_device(INDEX)
        searcher = sg.Searcher(device, max_beam_width=4, max_proposals=16, max_steps=3, max_batch=2)
        given = np.stack([ALLOWED, ~ALLOWED])
        (mine, at), (theirs, wanted) = (
            searcher._eligible(allowed, 2, 0) for allowed in (there(given), given)
        )
        assert at.tolist() == wanted.tolist()
        assert np.array_equal(mine.blocks.copy_to_host(), theirs.blocks.copy_to_host())
        decoder = sg.BeamDecoder(device, 1, 2)
        given = (_dlpack.taken(there(array[0, :1]), "x", 0) for array in (values, ids))
        dense, mine = decoder._laid_out(*given, 4)
        also_dense, theirs = decoder._laid_out(values[0, :1], ids[0, :1], 4)
        assert (dense, also_dense) == (False, False)
        tokens, sums, counts = (array.copy_to_host() for array in mine)
        assert counts.tolist() == theirs[2].tolist() == [15]
        assert np.array_equal(tokens[0, :15], theirs[0][0, :15])
        assert np.array_equal(sums[0, :15], theirs[1][0, :15])


@there
def test_steps_from_hidden_states(there):
    random = np.random.default_rng(6)
    hidden = random.normal(size=(1, 2, 8)).astype(np.float32)
    weight = random.normal(size=(40, 8)).astype(np.float32)
    states, scores = STATES[None, :2], np.zeros((1, 2), np.float32)
    with running("simt-in-order"):
        prepared = _filter_step.prepare(
            there(hidden), there(weight), sg.to_device(INDEX), there(states), there(scores), 4,
            "selective", "valid", None, there(ALLOWED), None, None, 0, None,
        )  # fmt: skip
        for mine, theirs in (
            (prepared.hidden, hidden[0]),
            (prepared.weight, weight),
            (prepared.states, states[0]),
            (prepared.beam_scores, scores[0]),
        ):
            assert np.array_equal(mine.copy_to_host(), theirs)
        assert prepared.restricted and not prepared.of_host


def test_streams_and_views():
    with running("simt-in-order"):
        given = ByDLPack(np.arange(6, dtype=np.int64).reshape(2, 3), offset=64, strides=True)
        view = _dlpack.taken(given, "x", 0)
        assert np.array_equal(cuda.as_cuda_array(view).copy_to_host(), [[0, 1, 2], [3, 4, 5]])
        stream = cuda.stream()
        stream.handle = ctypes.c_void_p(1234)
        del view
        _dlpack.taken(given, "x", stream)
        assert given.streams == [1, 1234]
        array = np.zeros(3)
        assert _dlpack.taken(array, "x", 0) is array  # of the host


def test_every_refusal_says_what_to_do():
    """The cause, the fix, and what does the same on the CPU."""
    with running("simt-in-order"):
        device = sg.to_device(INDEX)
        wide, gaps = ByInterface(LOGITS.astype(np.float64)), ByInterface(LOGITS)
        gaps.array = gaps.array[:, ::2]
        ids, hidden = ByInterface(np.zeros((1, 1, 3), np.int64)), LOGITS[None]
        values = ByInterface(np.zeros((1, 1, 3)))
        decoder = sg.BeamDecoder(device, 1, 2)
        beams = STATES[None], np.zeros((1, 3), np.float32), 2
        weight = np.zeros((40, 41), np.float32)
        for call in (
            lambda: sg.constrain(wide, device, STATES),
            lambda: sg.constrain(gaps, device, STATES),
            lambda: sg.candidates(wide, device, STATES),
            lambda: sg.candidates(LOGITS, device, ByInterface(STATES.astype(np.int64))),
            lambda: sg.candidates(LOGITS, device, STATES, allowed=ByInterface(LOGITS)),
            lambda: device.allowed_mask(ByInterface(STATES.astype(np.uint32))),
            lambda: sg.beam_search(device, ids, values, beam_width=2),
            lambda: sg.beam_search(device, values, values, beam_width=2),
            lambda: sg.beam_search(device, ids, LOGITS, beam_width=2),
            lambda: sg.filter_step(ByInterface(hidden), weight, device, *beams),
            lambda: sg.filter_step(hidden, ByInterface(weight.astype(int)), device, *beams),
            lambda: decoder.step(ByInterface(np.zeros((1, 40)))),
            lambda: decoder.step(values, token_ids=np.zeros((1, 3), int)),
            lambda: sg.to_device(BitVector.from_bools(ALLOWED)).rank1(ByInterface(LOGITS)),
        ):
            with pytest.raises((TypeError, ValueError)) as error:
                call()
            cause, fix, instead = str(error.value).split("; ")
            assert "expected" in cause
            assert fix.startswith(("convert", "copy"))
            assert instead.startswith("on the CPU")


def test_what_is_refused():
    with running("simt-in-order"):
        device = sg.to_device(INDEX)
        for given, kind, message in (
            (ByDLPack(LOGITS, device=(2, 1)), ValueError, "on device 0.*got one on device 1.*CPU"),
            (ByDLPack(LOGITS, code=4), TypeError, "logprobs: .*DLPack type 4 of 32 bits; convert"),
            (ByDLPack(LOGITS.astype(np.float64)), TypeError, "expected float32 or float16"),
        ):
            with pytest.raises(kind, match=message):
                sg.constrain(given, device, STATES)
        for given, kind, message in (
            (ALLOWED[:-1], ValueError, f"allowed: expected {KEYS.n_keys} bits"),
            (ALLOWED.astype(np.int32), TypeError, "allowed: expected bools or packed uint64"),
            (np.stack([ALLOWED] * 2), ValueError, "allowed: expected 3 bitmaps, got 2"),
            (ALLOWED[:64].astype(np.uint64), ValueError, "allowed: expected 5 words of 64 bits"),
            (ALLOWED.reshape(1, 1, -1), ValueError, "allowed: expected one or two axes"),
        ):
            with pytest.raises(kind, match=message):
                sg.constrain(LOGITS.copy(), device, STATES, allowed=ByInterface(given))
        decoder = sg.BeamDecoder(device, 1, 2)
        ids, values = np.array([[1, 2, 1]]), np.zeros((1, 3), np.float32)
        for options, kind, message in (
            ({"token_ids": ids, "logprobs": ByInterface(values)}, TypeError, "both on the device"),
            (
                {"token_ids": ByInterface(ids), "logprobs": ByInterface(values)},
                ValueError,
                r"token_ids\[0\]: a token appears twice",
            ),
            (
                {"token_ids": ByInterface(ids.T), "logprobs": ByInterface(values.T)},
                ValueError,
                r"expected shape \[1, K\]",
            ),
        ):
            with pytest.raises(kind, match=message):
                decoder.step(**options)
        assert decoder.n_steps == 0
