"""C baselines, compiled for the processor at hand when they are first asked for."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread")


@cache
def library(name: str) -> ctypes.CDLL:
    """Compile ``name``.c, which lies beside this file, and load it.

    Raises
    ------
    RuntimeError
        If there is no C compiler, or it fails.
    """
    source = Path(__file__).with_name(f"{name}.c")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"{name}.so"
        command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, str(source), "-o", str(target)]
        try:
            subprocess.run([*command, "-lm"], check=True, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"no C compiler: {error}") from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{source.name} does not compile: {error.stderr}") from error
        return ctypes.CDLL(str(target))


def pointer(array: npt.NDArray[Any], dtype: Any) -> ctypes.c_void_p:
    """Address of an array, which must have this type and be contiguous."""
    if array.dtype != np.dtype(dtype) or not array.flags.c_contiguous:
        raise TypeError(f"expected a contiguous array of {np.dtype(dtype)}, got {array.dtype}")
    return ctypes.c_void_p(array.ctypes.data)
