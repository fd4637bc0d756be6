"""Masking on what is no plain array of numpy, in threads, and with what cannot be masked."""

import numpy as np
import pytest

from succinct import (
    DEAD,
    BitVector,
    CsrMap,
    KeyTable,
    LoudsTrie,
    StepMap,
    candidates,
    constrain,
    load,
)
from succinct.decode import masking
from tests.hostile import content, write

INDEX = CsrMap.build(KeyTable.from_sequences([(1, 2), (1, 3), (3, 1, 4), (3, 1)]))
STATES = [INDEX.root, INDEX.walk((1,)), INDEX.walk((3, 1)), DEAD]
VALID = [[1, 3], [2, 3], [4], []]


def logits(dtype=np.float32, rows=4, columns=6):
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype)


def masked(values):
    out = np.full_like(values, -np.inf)
    for row, tokens in enumerate(VALID):
        out[row, tokens] = values[row, tokens]
    return out


# Memory of others


class Exported:
    """What speaks DLPack and nothing else."""

    def __init__(self, array, device=None):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


def test_dlpack_in_place():
    values = logits()
    exported = Exported(values.copy())
    found = candidates(exported, INDEX, Exported(np.array(STATES)))
    assert found.tokens.tolist() == [1, 3, 2, 3, 4]
    assert constrain(exported, INDEX, STATES) is exported
    assert exported.array.tolist() == masked(values).tolist()


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "bfloat16"])
def test_tensors_in_place(name):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(logits()).to(getattr(torch, name))
    as_floats = tensor.to(torch.float32).numpy()
    wide = torch.zeros(4, 9, dtype=tensor.dtype)
    wide[:, 1:7] = tensor
    for given in (tensor, wide[:, 1:7]):
        found = candidates(given, INDEX, torch.tensor([int(s) for s in STATES[:3]] + [0]))
        assert found.tokens.tolist() == [1, 3, 2, 3, 4, 1, 3]
        assert found.scores[:5].tolist() == [as_floats[0, 1], as_floats[0, 3], as_floats[1, 2],
                                             as_floats[1, 3], as_floats[2, 4]]  # fmt: skip
        assert constrain(given, INDEX, STATES) is given
        assert given.to(torch.float32).numpy().tolist() == masked(as_floats).tolist()
    assert wide[:, [0, 7, 8]].eq(0).all()


def test_a_tensor_that_requires_a_gradient():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 6, requires_grad=True)
    with pytest.raises(ValueError, match=r"logprobs: .*detach"):
        constrain(tensor, INDEX, STATES)


def test_bfloat16_of_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = logits(ml_dtypes.bfloat16)
    values[0, 1] = np.nan
    scores = candidates(values, INDEX, STATES).scores
    wanted = masked(values.astype(np.float32))
    assert scores[1:].tolist() == [wanted[0, 3], wanted[1, 2], wanted[1, 3], wanted[2, 4]]
    assert scores[0] == -np.inf
    wanted[0, 1] = -np.inf
    assert constrain(values, INDEX, STATES).astype(np.float32).tolist() == wanted.tolist()


@pytest.mark.parametrize("form", ["F", "rows", "columns", "wide", "backwards"])
def test_arrays_that_are_not_contiguous(form):
    values = logits()
    whole = {
        "F": lambda: np.asfortranarray(values),
        "rows": lambda: np.repeat(values, 2, axis=0)[::2],
        "columns": lambda: np.repeat(values, 3, axis=1)[:, ::3],
        "wide": lambda: np.hstack([values, values])[:, :6],
        "backwards": lambda: values[:, ::-1].copy()[:, ::-1],
    }[form]()
    scores = candidates(whole, INDEX, STATES).scores
    assert scores.tolist() == candidates(values, INDEX, STATES).scores.tolist()
    constrain(whole, INDEX, STATES)
    assert whole.tolist() == masked(values).tolist()


def test_lists_are_read():
    values = logits(np.float64)
    found = candidates(values.tolist(), INDEX, STATES)
    assert found.scores.tolist() == candidates(values, INDEX, STATES).scores.tolist()


# Threads


@pytest.mark.parametrize("kind", [CsrMap, StepMap, LoudsTrie])
def test_threads_do_not_change_results(kind, monkeypatch):
    random = np.random.default_rng(3)
    index = kind.build(KeyTable.from_rows(random.integers(0, 70, (3000, 3))))
    states = index.children(index.children(index.root)[1])[2]
    values = random.normal(size=(len(states), 70)).astype(np.float32)
    allowed = random.random(index.n_keys) < 0.3
    one = candidates(values, index, states, allowed=allowed, num_threads=1)
    masked_by_one = constrain(values.copy(), index, states, allowed=allowed, num_threads=1)
    monkeypatch.setattr(masking, "_CANDIDATES", 1)
    monkeypatch.setattr(masking, "_ELEMENTS", 1)
    for threads in (2, 3, 5000):
        many = candidates(values, index, states, allowed=allowed, num_threads=threads)
        assert [a.tolist() for a in many] == [a.tolist() for a in one]
        found = constrain(values.copy(), index, states, allowed=allowed, num_threads=threads)
        assert found.tobytes() == masked_by_one.tobytes()


# What is refused, before anything is written


@pytest.mark.parametrize("call", [constrain, candidates])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda v, i, s: (v[0], i, s), ValueError, r"logprobs: expected shape \[R, V\]"),
        (lambda v, i, s: (v[:, :4], i, s), ValueError, "at least 5 columns, .*, got 4"),
        (lambda v, i, s: (v[:3], i, s), ValueError, "states: expected 3, one for each row"),
        (lambda v, i, s: (v, i, [s]), ValueError, r"states: expected one dimension, got .*1, 4"),
        (lambda v, i, s: (v, i, 0), ValueError, "states: expected one dimension"),
        (lambda v, i, s: (v, i, [0, 1, 2, 99]), ValueError, r"states\[3\] = 99 is no state of"),
        (lambda v, i, s: (v, i, [0, 1, 2, -1]), ValueError, r"states\[3\] = -1"),
        (lambda v, i, s: (v, i, [0.0] * 4), TypeError, "states must be integers"),
        (lambda v, i, s: (v.astype(int), i, s), TypeError, "float32, .*, got int64"),
        (lambda v, i, s: (v.astype(complex), i, s), TypeError, "float32, .*, got complex128"),
        (lambda v, i, s: (v.astype(">f4"), i, s), TypeError, "float32, .*, got >f4"),
        (lambda v, i, s: (v, "csr", s), TypeError, "index: expected an index .*, got str"),
        (lambda v, i, s: (Exported(v, (2, 0)), i, s), ValueError, "logprobs: .* DLPack device 2"),
        (lambda v, i, s: (v, i, Exported(np.array(s), (2, 0))), ValueError, "states: .* device 2"),
    ],
)  # fmt: skip
def test_bad_input(call, change, error, message):
    values = logits()
    before = values.tobytes()
    with pytest.raises(error, match=message):
        call(*change(values, INDEX, STATES))
    assert values.tobytes() == before


@pytest.mark.parametrize("call", [constrain, candidates])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"allowed": np.ones(3, bool)}, ValueError, "allowed: expected 4 bits"),
        ({"allowed": [None] * 3}, ValueError, "allowed: expected 4 bitmaps, got 3"),
        ({"requests": [0] * 4}, ValueError, "requests: only with one bitmap for each"),
        ({"requests": [0] * 4, "allowed": np.ones(4, bool)}, ValueError, "requests: only with"),
        ({"requests": [0] * 3, "allowed": [None]}, ValueError, "requests: expected 4, .* shape"),
        ({"requests": [0, 0, 1, 0], "allowed": [None]}, IndexError, r"requests\[2\] = 1"),
        ({"requests": [0.5] * 4, "allowed": [None]}, TypeError, "requests must be integers"),
        ({"allowed": BitVector.from_indices([], 5)}, ValueError, "allowed: expected 4 bits"),
    ],
)
def test_bad_options(call, options, error, message):
    values = logits()
    before = values.tobytes()
    with pytest.raises(error, match=message):
        call(values, INDEX, STATES, **options)
    assert values.tobytes() == before


@pytest.mark.parametrize("width", [0, 1, 1.5, "2"])
def test_bad_widths(width):
    with pytest.raises((ValueError, TypeError), match="width"):
        candidates(logits(), INDEX, STATES, width=width)


@pytest.mark.parametrize("normalize", ["all", 1, ["valid"], True])
def test_bad_normalizations(normalize):
    with pytest.raises(ValueError, match='normalize: expected "valid", "vocab" or None'):
        candidates(logits(), INDEX, STATES, normalize=normalize)


def test_what_cannot_be_written():
    values = logits()
    values.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        constrain(values, INDEX, STATES)
    with pytest.raises(TypeError, match=r"in place.*got list"):
        constrain(values.tolist(), INDEX, STATES)
    assert len(candidates(values, INDEX, STATES).scores) == 5


@pytest.mark.parametrize("call", [constrain, candidates])
def test_tokens_of_a_damaged_file_are_not_looked_up(call, tmp_path):
    path = tmp_path / "index.safetensors"
    CsrMap.build(KeyTable.from_rows([[1, 2], [1, 3]]), dense_levels=0).save(path)
    params, arrays, _ = content(path)
    arrays["entries"][2] |= np.uint64(2**31)
    write(path, params, arrays, {"kind": "CsrMap"})
    index = load(path)
    values = np.zeros((2, 4), np.float32)
    found = call(values, index, [0, 1])
    if call is constrain:
        assert np.argwhere(np.isfinite(found)).tolist() == [[0, 1], [1, 2]]
    else:
        assert found.offsets.tolist() == [0, 1, 2]
        assert found.tokens.tolist() == [1, 2]
