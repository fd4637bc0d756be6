"""Kernels of the beam search with one line broken: each must be noticed."""

import inspect
import re
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")

import succinct_gpu as sg
from succinct import CsrMap, KeyTable
from succinct_gpu import _expand, _topk, simt
from tests.gpu import beam_kernels

CASES = [
    ("few", _topk.CAPACITY + 1500, 65),
    ("differ", 2 * _topk.CAPACITY + 1500, _topk.CAPACITY),
    ("same", 300, 40),
]
RUNS = [("reversed", 0), ("random", 1)]
TOPK = [
    (
        "radix",
        r"if n <= CAPACITY:\n        return True\n    i = ",
        "if n < 0:\n        return True\n    i = ",
    ),
    ("radix", r"left > CAPACITY", "left > 2 * CAPACITY"),
    ("radix", r"cuda\.atomic\.add\(counts, (.*?), np\.int32\(1\)\)", r"counts[\1] += np.int32(1)"),
    ("radix", r"above < wanted <= ", "above <= wanted <= "),
    ("radix", r"key & mask >= prefix", "key & mask > prefix"),
    ("radix", r"keep - wanted \+ above \+ here", "keep"),
    ("radix", r"lists\.n_winners\[number\] = np\.int32\(0\)", "pass"),
    (
        "merge",
        r"source\[number, other \* CAPACITY \+ middle\] > key",
        "source[number, other * CAPACITY + middle] < key",
    ),
    ("merge", r"if place \+ low < keep", "if place + low <= keep"),
    ("merge", r"plan\[row, 0\]\) & 1 == 0", "plan[row, 0]) & 1 != 0"),
    (
        "merge",
        r"            cuda\.syncthreads\(\)\n            stride >>= 1",
        "            stride >>= 1",
    ),
]
EXPAND = [
    ("binary", r"trial \+= parts \* width", "trial += width"),
    ("binary", r"if task == row \* parts:", "if True:"),
    (
        "binary",
        r"            if trial >= trials:\n                cuda\.syncthreads\(\)",
        "            if trial >= trials:",
    ),
]


def mutated(module, pattern, replacement):
    source = inspect.getsource(module)
    edited, n = re.subn(pattern, replacement, source, count=1)
    assert n == 1, pattern
    mutant = ModuleType("mutant")
    exec(compile(edited, "mutant.py", "exec"), vars(mutant))
    return mutant


def notices(check):
    for schedule, seed in RUNS:
        try:
            with simt.session(schedule=schedule, seed=seed, race_check=True, timeout=20):
                if not check():
                    return True
        except simt.SimtError:
            return True
    return False


@pytest.mark.parametrize(("selection", "pattern", "replacement"), TOPK)
def test_selection(selection, pattern, replacement):
    mutant = mutated(_topk, pattern, replacement)
    assert notices(lambda: beam_kernels.check_choice(selection, CASES, topk=mutant))


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "pattern", "replacement"), EXPAND)
def test_expansion(variant, pattern, replacement):
    generator = np.random.default_rng(2)
    seconds = [generator.choice(400, n, replace=False).tolist() for n in (1, 40, 130)]
    keys = [(i, token) for i, row in enumerate(seconds) for token in row]
    index = CsrMap.build(KeyTable.from_sequences(keys))
    tokens = np.sort(generator.choice(400, 150, replace=False))
    tokens[0] = seconds[0][0]
    tokens = np.unique(tokens)
    states = [index.walk((i,)) for i in range(3)]
    mutant = mutated(_expand, pattern, replacement)

    def check():
        return all(
            beam_kernels.check_expansion(
                sg.to_device(index), index, states[:n], tokens, variant, 8, expansion=mutant
            )
            for n in (3, 1, 2)
        )

    assert notices(check)
