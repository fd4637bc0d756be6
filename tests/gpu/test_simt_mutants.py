"""Kernels with one line broken: some schedule with the race check must notice each of them."""

import inspect
import re
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")

from succinct_gpu import simt
from tests.gpu import simt_kernels as kernels

SOURCE = inspect.getsource(kernels)
RUNS = [("in-order", 0), ("reversed", 0), ("random", 1), ("random", 2)]


def run_sorted_matches(module):
    generator = np.random.default_rng(4)
    labels = np.sort(generator.choice(1 << 20, 500, replace=False)).astype(np.int64)
    queries = generator.choice(labels, (2, 90), replace=False)
    queries[:, 70:] += 1 << 21
    positions, counts = np.zeros((2, 80), np.int64), np.zeros(2, np.int64)
    module.sorted_matches[2, 96](labels, queries, positions, counts)
    expected = np.sort(np.searchsorted(labels, queries[:, :70]), axis=1)
    return counts.tolist() == [70, 70] and (positions[:, :70] == expected).all()


def run_warp_ordered(module):
    out = np.zeros(64, np.int32)
    module.warp_ordered[1, 64](out)
    return out.tolist() == list(range(64))


def run_rotate(module):
    a, b = np.arange(240), np.zeros(240, np.int64)
    module.rotate[6, 40](a, b, 5)
    return (b == np.roll(np.arange(240), 5)).all()


def run_two_arrays(module):
    values, out = np.arange(32) + 5, np.zeros(32, np.int64)
    module.two_arrays[1, 32, 0, 128](values, out)
    return (out == (np.arange(32)[::-1] + 5) * 1000).all()


CHECKS = {
    "sorted_matches": run_sorted_matches,
    "warp_ordered": run_warp_ordered,
    "rotate": run_rotate,
    "two_arrays": run_two_arrays,
}
EDITS = [
    (r"cuda\.syncthreads\(\)", "pass"),
    (r"cuda\.syncwarp\(\)", "pass"),
    (r"grid\.sync\(\)", "pass"),
    (r"cuda\.atomic\.add\(n_found, 0, 1\)", "n_found[0]"),
    (r"n_found\[0\] = 0", "pass"),
    (r"middle \+ 1", "middle + 2"),
    (r"other > place", "other > place + 1"),
    (r"range\(i, positions", "range(i + 1, positions"),
    (r"31 - i\]", "32 - i]"),
    (r"\(i \+ 1\)", "(i + 2)"),
    (r"while size <= 256", "while size <= 512"),
]


def mutants():
    for name in CHECKS:
        start = SOURCE.index(f"def {name}(")
        end = SOURCE.find("\n\n\n", start)
        body = SOURCE[start:] if end < 0 else SOURCE[start:end]
        for pattern, replacement in EDITS:
            for found in re.finditer(pattern, body):
                edited = body[: found.start()] + replacement + body[found.end() :]
                line = SOURCE[: start + found.start()].count("\n") + 1
                yield pytest.param(name, edited, id=f"{name}-{line}-{found[0]}")


def notices(name, module):
    for schedule, seed in RUNS:
        try:
            with simt.session(schedule=schedule, seed=seed, race_check=True, timeout=20):
                if not CHECKS[name](module):
                    return True
        except simt.SimtError:
            return True
    return False


@pytest.mark.parametrize("name", CHECKS)
def test_the_right_kernels_pass(name):
    assert not notices(name, kernels)


@pytest.mark.parametrize(("name", "source"), list(mutants()))
def test_mutant_is_noticed(name, source, tmp_path):
    path = tmp_path / "mutant.py"
    head = "import numpy as np\nfrom numba import cuda\n\n@cuda.jit\n"
    path.write_text(head + source + "\n")
    module = ModuleType("mutant")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    assert notices(name, module)
