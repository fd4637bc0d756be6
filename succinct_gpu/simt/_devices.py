"""Stand-ins for what numba-cuda has of a device: arrays, streams, events, the device itself."""

import contextlib
import ctypes
import mmap
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numpy.typing import DTypeLike, NDArray

from succinct_gpu.simt._compiler import COMPUTE_CAPABILITY

# Around every allocation, so that an index that is off by less hits no other array.
_GAP = 1 << 20
# Fresh memory holds this in every byte, for nobody to count on zeros.
_POISON = 0xA5


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """Memory of the device: bytes far away from all others, of no particular contents."""
    area = mmap.mmap(-1, nbytes + 2 * _GAP)
    memory = np.frombuffer(area, np.uint8, nbytes, _GAP)
    memory[:] = _POISON
    return memory


def empty(shape: Any, dtype: DTypeLike, order: Any = "C") -> NDArray[Any]:
    """As `numpy.empty`, in memory of the device."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    return np.ndarray(shape, kind, allocate(size * kind.itemsize), order=order)


class DeviceArray:
    """An array in memory of the device, as `numba.cuda.device_array` gives it.

    Host code reads and writes it through `copy_to_host`, `copy_to_device` and indexing, as it
    would on a device; nothing here lets it forget a copy.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {self.shape}>"

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "strides", "dtype", "size", "ndim", "nbytes", "itemsize"):
            return getattr(self._array, name)
        raise AttributeError(f"a device array has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self._array)

    @property
    def alloc_size(self) -> int:
        """Bytes."""
        return self._array.nbytes

    @property
    def T(self) -> "DeviceArray":
        """Transposed view."""
        return DeviceArray(self._array.T)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self._array
        return {
            "shape": array.shape,
            "strides": None if array.flags.c_contiguous else array.strides,
            "data": (array.ctypes.data, False),
            "typestr": array.dtype.str,
            "stream": None,
            "version": 3,
        }

    @property
    def _numba_type_(self) -> Any:
        flags = self._array.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return types.Array(from_dtype(self.dtype), self.ndim, layout)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self._array.astype(dtype or self._array.dtype)

    def __getitem__(self, key: Any) -> Any:
        part = self._array[key]
        return DeviceArray(part) if isinstance(part, np.ndarray) else part

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[key] = host_view(value)

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """Copy to `ary`, or to a new array, which is returned."""
        if ary is None:
            return self._array.copy()
        _same_shape(ary, self)
        ary[...] = self._array
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Overwrite with `ary`, of the host or of the device."""
        source = host_view(ary)
        _same_shape(source, self)
        self._array[...] = source

    def reshape(self, *shape: Any, order: Any = "C") -> "DeviceArray":
        """View of another shape."""
        return DeviceArray(self._array.reshape(*shape, order=order, copy=False))

    def ravel(self, order: Any = "C", stream: Any = 0) -> "DeviceArray":
        """View of one axis."""
        return DeviceArray(self._array.reshape(-1, order=order, copy=False))

    def view(self, dtype: DTypeLike) -> "DeviceArray":
        """View of another dtype."""
        return DeviceArray(self._array.view(dtype))

    def is_c_contiguous(self) -> bool:
        """Whether the last axis varies fastest, without gaps."""
        return bool(self._array.flags.c_contiguous)


def _same_shape(host: Any, device: DeviceArray) -> None:
    if host.shape != device.shape or host.dtype != device.dtype:
        raise ValueError(
            f"expected an array of {device.dtype} {device.shape}, got {host.dtype} {host.shape}"
        )


def host_view(value: Any) -> Any:
    """The numpy array behind a device array; anything else stays."""
    return value._array if isinstance(value, DeviceArray) else value


def is_cuda_array(obj: Any) -> bool:
    """Whether `obj` says that it is an array on a device."""
    return hasattr(obj, "__cuda_array_interface__")


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceArray:
    """The array that `obj` describes by ``__cuda_array_interface__``, without a copy."""
    if isinstance(obj, DeviceArray):
        return obj
    if not is_cuda_array(obj):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    what = obj.__cuda_array_interface__
    dtype = np.dtype(what["typestr"])
    shape, strides = what["shape"], what.get("strides")
    spans = [
        (n - 1) * step
        for n, step in zip(shape, strides or np.empty(shape, dtype).strides, strict=True)
    ]
    size = 0 if 0 in shape else sum(spans) + dtype.itemsize
    buffer: Any = (ctypes.c_char * size).from_address(what["data"][0] if size else id(obj))
    buffer.owner = obj  # which all views of it keep
    return DeviceArray(np.ndarray(shape, dtype, buffer, strides=strides))


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> DeviceArray:
    """Copy an array of the host to the device."""
    source = np.asarray(host_view(obj))
    if to is None:
        order = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
        to = DeviceArray(empty(source.shape, source.dtype, order))
    if copy:
        to.copy_to_device(source)
    return to  # type: ignore[no-any-return]


def device_array(
    shape: Any,
    dtype: DTypeLike = np.float64,
    strides: Any = None,
    order: Any = "C",
    stream: Any = 0,
) -> DeviceArray:
    """A new array of no particular contents."""
    if strides is not None:
        raise NotImplementedError("device_array with strides")
    return DeviceArray(empty(shape, dtype, order))


def device_array_like(ary: Any, stream: Any = 0) -> DeviceArray:
    """A new array with the shape and dtype of another."""
    return device_array(ary.shape, ary.dtype)


def managed_array(
    shape: Any, dtype: DTypeLike = np.float64, strides: Any = None, order: Any = "C"
) -> DeviceArray:
    """As `device_array`: host and device have one memory here."""
    return device_array(shape, dtype, strides, order)


def pinned_array(
    shape: Any, dtype: DTypeLike = np.float64, strides: Any = None, order: Any = "C"
) -> NDArray[Any]:
    """An array of the host."""
    return np.empty(shape, dtype, order)


def pinned_array_like(ary: Any) -> NDArray[Any]:
    """An array of the host with the shape and dtype of another."""
    return np.empty(ary.shape, ary.dtype)


@contextlib.contextmanager
def pinned(*arrays: Any) -> Iterator[None]:
    """Does nothing: all memory is the host's."""
    yield


class Stream:
    """Order of work; every launch ends before the call that started it does."""

    handle = 0

    def synchronize(self) -> None:
        """Return at once."""

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator["Stream"]:
        """As on a device."""
        yield self


class Event:
    """Time of the host at which it was recorded."""

    def __init__(self, timing: bool = True) -> None:
        self._at = 0.0

    def record(self, stream: Any = 0) -> None:
        """Note the time."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once."""

    def wait(self, stream: Any = 0) -> None:
        """Return at once."""

    def query(self) -> bool:
        """Whether all before it is done."""
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this event to `end`: of the host, and no measure of a device."""
        return 1000.0 * (end._at - self._at)


def stream() -> Stream:
    """A new stream."""
    return Stream()


def synchronize() -> None:
    """Return at once."""


class MemoryInfo(NamedTuple):
    """Bytes of memory."""

    free: int
    total: int


class Device:
    """A small device."""

    id = 0
    name = b"succinct_gpu.simt"
    compute_capability = COMPUTE_CAPABILITY
    MULTIPROCESSOR_COUNT = 4
    MAX_THREADS_PER_BLOCK = 1024
    MAX_SHARED_MEMORY_PER_BLOCK = 48 << 10
    WARP_SIZE = 32
    COOPERATIVE_LAUNCH = 1


class Context:
    """The context of that device."""

    device = Device()

    def get_memory_info(self) -> MemoryInfo:
        """A fixed amount."""
        return MemoryInfo(4 << 30, 4 << 30)

    def synchronize(self) -> None:
        """Return at once."""

    def reset(self) -> None:
        """Nothing to do."""


CONTEXT = Context()


def current_context(devnum: int | None = None) -> Context:
    """The only context."""
    return CONTEXT


def get_current_device() -> Device:
    """The only device."""
    return CONTEXT.device


def list_devices() -> Sequence[Device]:
    """The only device."""
    return [CONTEXT.device]


def select_device(device_id: int) -> Context:
    """The only device is number 0."""
    if device_id != 0:
        raise ValueError(f"expected device 0, got {device_id}")
    return CONTEXT


def is_available() -> bool:
    """Whether kernels can be launched: here they can."""
    return True
