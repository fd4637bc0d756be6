"""Kernels of filtering first with one line broken: a schedule with the race check must notice."""

import inspect
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")

import succinct
import succinct_gpu as sg
from succinct import CsrMap, KeyTable
from succinct_gpu import _filter_step, _filtering, _selecting, simt

GENERATOR = np.random.default_rng(3)
INDEX = CsrMap.build(KeyTable.from_rows(GENERATOR.integers(0, 140, (500, 2))), dense_levels=0)
_, CHILDREN = INDEX.children(INDEX.root)
STATES = np.array([[INDEX.root, *CHILDREN[:2]], [INDEX.root, INDEX.root, INDEX.root]], np.uint64)
HIDDEN = GENERATOR.standard_normal((2, 3, 40)).astype(np.float32)
HIDDEN[1] = 0  # equal scores, that take every pass
WEIGHT = GENERATOR.standard_normal((140, 40)).astype(np.float32)
GIVEN = (np.zeros((2, 3), np.float32), 152)
EXPECTED = succinct.filter_step(HIDDEN, WEIGHT, INDEX, STATES, *GIVEN)

SYNC = "cuda.syncthreads()"
MUTANTS = [
    # module, function, what is replaced (and which of it), by what
    (_selecting, "_sort_and_gather", SYNC, 0, "pass"),
    (_selecting, "_sort_and_gather", SYNC, 1, "pass"),
    (_selecting, "_sort_and_gather", "a < b", 0, "a > b"),
    (_selecting, "_narrow", SYNC, 1, "pass"),
    (_selecting, "_row_of", "<= rank", 0, "< rank"),
    (_selecting, "select_in_block", "key >= bound", 0, "key > bound"),
    (_filtering, "project", SYNC, 0, "pass"),
    (_filtering, "project", SYNC, 1, "pass"),
    (_filtering, "open_rows", SYNC, 0, "pass"),
    (_filtering, "open_rows", "done += used", 0, "done = used - 1"),
    (_filtering, "normalise", SYNC, 0, "pass"),
]


def mutant_of(module, function, old, number, new):
    source = inspect.getsource(module)
    begin = source.index(f"def {function}(")
    for _ in range(number + 1):
        begin = source.index(old, begin + 1)
    edited = ModuleType(module.__name__)
    code = source[:begin] + new + source[begin + len(old) :]
    exec(compile(code, inspect.getfile(module), "exec"), vars(edited))
    return edited


@pytest.fixture(autouse=True)
def few_workers(monkeypatch):
    """So that each takes several tasks."""
    monkeypatch.setattr(_filter_step, "_workers", lambda: 2)


def is_right():
    found = sg.filter_step(HIDDEN, WEIGHT, sg.to_device(INDEX), STATES, *GIVEN)
    return (
        found.offsets.tolist() == EXPECTED.offsets.tolist()
        and all(map(np.array_equal, found.tokens, EXPECTED.tokens))
        and all(np.allclose(*both, atol=2e-4) for both in zip(found.scores, EXPECTED.scores,
                                                             strict=True))
    )  # fmt: skip


def notices():
    for schedule, seed in (("reversed", 0), ("random", 1)):
        try:
            with simt.session(schedule=schedule, seed=seed, race_check=True, timeout=20):
                if not is_right():
                    return True
        except (simt.SimtError, ValueError, IndexError):
            return True
    return False


def test_the_right_kernels_pass():
    assert not notices()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m[1]}-{m[2]}-{m[3]}")
def test_mutant_is_noticed(mutant, monkeypatch):
    name = mutant[0].__name__.rpartition(".")[2]
    monkeypatch.setattr(_filter_step, name, mutant_of(*mutant))
    assert notices()
