"""Arrays on the device, and errors that say what to do when there is none."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ON_HOST = "on the CPU the function of succinct takes a copy on the host"


def require(name: str, instead: str) -> Any:
    """`numba.cuda`, if kernels can run.

    Parameters
    ----------
    name, instead : str
        What was called, and what does the same on the CPU.

    Raises
    ------
    RuntimeError
        If numba-cuda or a device is missing; it says how to get it.
    """
    call = f"succinct_gpu.{name}"
    try:
        importlib.import_module("numba.cuda.core")  # numba's own, older copy has none
        from numba import cuda
    except ImportError as error:
        raise RuntimeError(
            f'{call} needs numba-cuda ({error}): pip install "succinct-tries[cuda12]" or '
            f'"succinct-tries[cuda13]" for the CUDA version of the driver; on the CPU {instead}'
        ) from error
    if not cuda.is_available():
        reason = str(cuda.cuda_error() or "no usable driver and compiler").strip()
        raise RuntimeError(
            f"{call} needs a CUDA device, and numba-cuda finds none ({reason.splitlines()[0]}); "
            "to try it without one, run the script by python -m succinct_gpu.simt; on the CPU "
            f"{instead}"
        )
    installed, driver = cuda_versions()
    if installed > driver:
        raise RuntimeError(
            f"{call}: numba-cuda is installed for CUDA {installed}, and the driver is one for CUDA "
            f'{driver}; pip install "succinct-tries[cuda{driver}]", or update the driver; on the '
            f"CPU {instead}"
        )
    return cuda


def cuda_versions() -> tuple[int, int]:
    """The major version of CUDA that is installed for numba-cuda, and the driver's newest."""
    from succinct_gpu import simt

    if simt.enabled():
        return 0, 0
    try:
        installed = importlib.import_module("cuda.bindings").__version__
        driver = importlib.import_module("numba.cuda.cudadrv.driver").driver.get_version()
    except (ImportError, AttributeError):  # of versions that say so elsewhere
        return 0, 0
    return int(str(installed).split(".")[0]), int(driver[0])


def is_device_array(x: Any) -> bool:
    """Whether `x` says that its memory is on a device."""
    return hasattr(x, "__cuda_array_interface__")


def described(x: Any, name: str) -> Any:
    """The array that an object on the device describes, without a copy.

    Raises
    ------
    ValueError
        If the memory is another device's.
    """
    from numba import cuda

    try:
        array = cuda.as_cuda_array(x)
    except Exception as error:
        raise ValueError(
            f"{name}: expected an array on device {cuda.get_current_device().id}, which is the "
            f"current one ({error}); copy it there, or make its device the current one; {ON_HOST}"
        ) from error
    return array


def as_device_array(x: Any, name: str, dtype: DTypeLike, ndim: int) -> Any:
    """The array that an object on the device describes, checked, without a copy.

    Raises
    ------
    TypeError
        If the dtype is another.
    ValueError
        If the number of axes is another, rows have gaps, or the memory is another device's.
    """
    array = described(x, name)
    if array.dtype != np.dtype(dtype):
        raise wrong_dtype(name, str(np.dtype(dtype)), array.dtype)
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} axes, got shape {tuple(array.shape)}")
    check_contiguous(array, name)
    return array


def wrong_dtype(name: str, expected: str, got: Any) -> TypeError:
    """An error for an array on the device."""
    return TypeError(
        f"{name}: expected {expected} on the device, got {got}; convert it there; {ON_HOST}"
    )


def check_contiguous(array: Any, name: str) -> None:
    """Raise a ValueError for an array on the device whose rows have gaps."""
    if not array.is_c_contiguous():
        raise ValueError(
            f"{name}: expected a C-contiguous array, got strides {tuple(array.strides)}; copy it "
            f"to one without gaps; {ON_HOST}"
        )


def stream_pointer(stream: Any) -> int:
    """The stream as CUDA knows it; 0 is the default one."""
    handle = getattr(stream, "handle", 0)
    return int(getattr(handle, "value", handle) or 0)


def upload(array: NDArray[Any], stream: Any = 0) -> Any:
    """A copy on the device."""
    from numba import cuda

    return cuda.to_device(np.ascontiguousarray(array), stream=stream)


def upload_tuple(arrays: Any, stream: Any = 0, copy: Callable[[Any], Any] | None = None) -> Any:
    """A named tuple of arrays, numbers and named tuples, with all arrays on the device; `copy`
    puts them there if it is given."""
    if isinstance(arrays, np.ndarray):
        return upload(arrays, stream) if copy is None else copy(arrays)
    if isinstance(arrays, tuple):
        parts = [upload_tuple(part, stream, copy) for part in arrays]
        return type(arrays)(*parts)
    return arrays


def nbytes_of(arrays: Any) -> int:
    """Bytes of all arrays in a named tuple."""
    if isinstance(arrays, tuple):
        return sum(map(nbytes_of, arrays))
    return int(getattr(arrays, "nbytes", 0))
