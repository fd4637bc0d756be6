"""Runs Numba-CUDA kernels on the CPU, thread by thread, and says what is wrong with them.

`enable` puts this executor in the place of a device: kernels made by ``numba.cuda.jit`` are
launched as always, and `numba.cuda.to_device` and its kin work. What runs is the LLVM IR that
numba-cuda itself generates, compiled for the host, with one fiber for each GPU thread. So warp
votes, shuffles and matches, block barriers, atomics, cooperative grids and shared memory do what
they do on a device, and no device, driver or CUDA toolkit is needed.

A launch ends with a `SimtError` that names the line, block and thread when a kernel

- reads or writes outside the arrays that it was given, or outside its shared memory,
- races: two threads touch the same bytes, one of them writes, and no barrier orders them (with
  ``race_check=True``, which also finds reads of shared memory that nothing wrote),
- lets threads of a block reach different barriers, return while others wait, or wait for ever,
- calls a warp operation with a mask that does not name exactly the lanes that reach it,
- synchronises a grid that was not launched as a cooperative one.

What a kernel computes must not depend on the order in which its threads get their turns: run it
under ``schedule="in-order"``, ``"reversed"`` and ``"random"`` with several seeds.

It is a tool for tests, and no model of a device's speed. Limits: `activemask` names all lanes that
have not returned; mathematical functions are those of the host's C library; votes and shuffles
do not order memory, as on a device, and a protocol of fences and flags looks like a race;
float16 is supported as conversions from and to float32; a product and a sum are not contracted.

Needs ``pip install "succinct-tries[simt]"``. ``python -m succinct_gpu.simt script.py`` runs a
whole script so.

Examples
--------
>>> import numpy as np
>>> from numba import cuda
>>> from succinct_gpu import simt
>>> @cuda.jit
... def reverse(values):
...     kept = cuda.shared.array(64, np.int64)
...     i = cuda.threadIdx.x
...     kept[i] = values[i]
...     cuda.syncthreads()
...     values[i] = kept[63 - i]
>>> values = np.arange(64)
>>> with simt.session(schedule="random", race_check=True):
...     reverse[1, 64](values)
>>> values[:3]
array([63, 62, 61])
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from succinct_gpu.simt._options import SCHEDULES, Counters, Options, SimtError

__all__ = [
    "SCHEDULES",
    "Counters",
    "Options",
    "SimtError",
    "changed",
    "disable",
    "enable",
    "enabled",
    "record",
    "session",
]


def _executor() -> Any:
    try:
        from succinct_gpu.simt import _dropin
    except ImportError as error:
        raise ImportError(
            f"succinct_gpu.simt needs numba-cuda ({error}); "
            'pip install "succinct-tries[simt]" installs it'
        ) from error
    return _dropin


def enable(**options: Any) -> None:
    """Launch the kernels of this process on the CPU from now on.

    Parameters
    ----------
    **options
        Those of `Options`: `schedule`, `seed`, `memory_check`, `race_check`, `timeout`, `stack`.

    Raises
    ------
    ImportError
        If numba-cuda is not installed.
    """
    _executor().enable(Options(**options))


def disable() -> None:
    """Give `numba.cuda` back what it had."""
    _executor().disable()


def enabled() -> bool:
    """Whether kernels are launched on the CPU."""
    import sys

    module = sys.modules.get("succinct_gpu.simt._dropin")
    return module is not None and bool(module.enabled())


@contextlib.contextmanager
def session(**options: Any) -> Iterator[None]:
    """`enable` inside a with statement, and `disable` behind it."""
    enable(**options)
    try:
        yield
    finally:
        disable()


def changed(**changes: Any) -> Any:
    """Other options inside a with statement, while the executor is enabled.

    Parameters
    ----------
    **changes
        Options to change; the others stay.
    """
    return _executor().changed(**changes)


def record() -> Any:
    """Note the launches inside a with statement.

    Returns
    -------
    context manager
        Gives an object with `launches`, a list of named tuples (`name`, `counters`, `kernel`,
        `argument_types`), and `counters`, the sum.
    """
    return _executor().record()
