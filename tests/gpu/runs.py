"""Where tests of kernels run: on the executor in three schedules, and on a device if there is one.

``pytest -m gpu`` runs them on the device alone.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

SCHEDULES: dict[str, dict[str, Any]] = {
    "simt-in-order": {"schedule": "in-order"},
    "simt-reversed": {"schedule": "reversed"},
    "simt-random": {"schedule": "random", "seed": 1},
}
RUNS = [*SCHEDULES, "gpu"]


def has_numba_cuda() -> bool:
    try:
        return importlib.util.find_spec("numba.cuda.core") is not None
    except ImportError:
        return False


def run_of(row: str) -> str | None:
    """The run that a row is for: its own name, or what it begins with."""
    return next((run for run in RUNS if row == run or row.startswith(f"{run} ")), None)


def parameters(rows: dict[str, Any]) -> list[Any]:
    """Parameters of a test, one for each run that `rows` names."""
    missing = pytest.mark.skipif(not has_numba_cuda(), reason="numba-cuda is not installed")
    found = []
    for name, row in rows.items():
        run = run_of(name)
        marks = [missing] if run else []
        if run == "gpu":
            marks.append(pytest.mark.gpu)
        found.append(pytest.param(row, id=name, marks=marks))
    return found


@contextlib.contextmanager
def running(name: str) -> Iterator[None]:
    """Run kernels where `name` says."""
    import succinct_gpu
    from succinct_gpu import simt

    if name == "gpu":
        if not succinct_gpu.is_available():
            pytest.skip("no CUDA device")
        yield
    else:
        with simt.session(race_check=True, **SCHEDULES[name]):
            yield


each_run = pytest.mark.parametrize("run", parameters({name: name for name in RUNS}))
