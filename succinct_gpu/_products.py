"""Matrix products on the device: by the cuBLAS that CuPy or torch bring, or by a kernel.

Products of float16 matrices are kept as float32: rounded to float16 they would differ from those
of "selective" by more than projections may.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from succinct_gpu import simt
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import stream_pointer
from succinct_gpu._filtering import multiply

LIBRARIES = ("cupy", "torch", "kernel")
_TILE = 16
# Of cuBLAS and of CUDA.
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1
_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 2}
_COMPUTE_FLOAT32 = 68
_ANY_ALGORITHM = -1


@cache
def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def library(wanted: str | None) -> str:
    """Whose products to take: what the caller wants, or else CuPy's or torch's if installed.

    Raises
    ------
    ValueError
        If there is no such library, or it is not installed.
    """
    if wanted is None:
        found = [name for name in LIBRARIES[:2] if _installed(name)]
        return found[0] if found and not simt.enabled() else "kernel"
    if wanted not in LIBRARIES:
        raise ValueError(f"products: expected one of {', '.join(LIBRARIES)}, got {wanted!r}")
    if wanted != "kernel" and not _installed(wanted):
        raise ValueError(
            f'products: {wanted} is not installed; pip install {wanted}, or take "kernel"'
        )
    return wanted


def product(name: str, hidden: Any, weight: Any, first: int, out: Any, stream: Any) -> None:
    """``out = hidden @ weight[first : first + width].T``; arrays of the device, `out` float32."""
    multiplier = _MULTIPLIERS[name if hidden.dtype == weight.dtype else "kernel"]
    multiplier(hidden, weight, first, out, stream)


def _by_kernel(hidden: Any, weight: Any, first: int, out: Any, stream: Any) -> None:
    rows, width = out.shape
    grid = -(-width // _TILE), -(-rows // _TILE)
    kernel_for(multiply)[grid, (_TILE, _TILE), stream](hidden, weight, np.int64(first), out)


def _pointer(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


# Read by cuBLAS on the host, at the call.
_ONE, _ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)


def _by_cupy(hidden: Any, weight: Any, first: int, out: Any, stream: Any) -> None:
    from cupy.cuda import cublas, device

    rows, width = out.shape
    length = hidden.shape[1]
    kind = _TYPES[np.dtype(hidden.dtype)]
    handle = device.get_cublas_handle()
    cublas.setStream(handle, stream_pointer(stream))
    # cuBLAS has columns where we have rows: it multiplies for the transpose of `out`.
    cublas.gemmEx(
        handle,
        _TRANSPOSED,
        _NOT_TRANSPOSED,
        width,
        rows,
        length,
        _ONE.ctypes.data,
        _pointer(weight) + first * length * weight.dtype.itemsize,
        kind,
        length,
        _pointer(hidden),
        kind,
        length,
        _ZERO.ctypes.data,
        _pointer(out),
        _TYPES[np.dtype(np.float32)],
        width,
        _COMPUTE_FLOAT32,
        _ANY_ALGORITHM,
    )


def _by_torch(hidden: Any, weight: Any, first: int, out: Any, stream: Any) -> None:
    import torch

    device = torch.device("cuda", torch.cuda.current_device())
    left, right, result = (torch.as_tensor(a, device=device) for a in (hidden, weight, out))
    with torch.cuda.stream(torch.cuda.ExternalStream(stream_pointer(stream), device)):
        columns = right[first : first + out.shape[1]].T
        if left.dtype == torch.float32:
            torch.mm(left, columns, out=result)
        else:
            torch.mm(left, columns, torch.float32, out=result)


_MULTIPLIERS: dict[str, Callable[..., None]] = {
    "kernel": _by_kernel,
    "cupy": _by_cupy,
    "torch": _by_torch,
}
