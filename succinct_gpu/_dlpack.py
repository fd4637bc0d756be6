"""Arrays of a device that are handed over by DLPack, without any other package."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from succinct_gpu._device import ON_HOST, stream_pointer

# Devices of DLPack whose memory kernels read: CUDA, and CUDA's managed memory.
_CUDA = (2, 13)
# Kinds of numbers, by DLPack's codes.
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_DEFAULT_STREAM = 1


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_USED = ctypes.c_char_p(b"used_dltensor")  # the capsule keeps the pointer


class Borrowed:
    """Memory of another package, given back when nobody refers to it any more."""

    def __init__(self, capsule: Any, name: str) -> None:
        address = _pointer_of(capsule, b"dltensor")
        self._managed = ctypes.cast(address, ctypes.POINTER(_Managed))
        tensor = self._managed.contents.tensor
        _rename(capsule, _USED)  # from here on it is ours to give back
        kind = _KINDS.get(tensor.code)
        if kind is None or tensor.lanes != 1 or tensor.bits % 8:
            raise TypeError(
                f"{name}: expected integers, bools or floats of IEEE 754, got the DLPack type "
                f"{tensor.code} of {tensor.bits} bits; convert it to float32; {ON_HOST}"
            )
        size = tensor.bits // 8
        axes = range(tensor.ndim)
        shape = tuple(tensor.shape[i] for i in axes)
        strides = tuple(size * tensor.strides[i] for i in axes) if tensor.strides else None
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": f"{'<' if size > 1 else '|'}{kind}{size}",
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def taken(x: Any, name: str, stream: Any) -> Any:
    """`x`, or a view with ``__cuda_array_interface__`` of what has only DLPack, on a device.

    Raises
    ------
    TypeError
        If kernels have no such numbers.
    ValueError
        If the memory is that of another device than the current one.
    """
    if hasattr(x, "__cuda_array_interface__") or not hasattr(x, "__dlpack_device__"):
        return x
    kind, number = map(int, x.__dlpack_device__())
    if kind not in _CUDA:
        return x
    from numba import cuda

    current = int(cuda.get_current_device().id)
    if number != current:
        raise ValueError(
            f"{name}: expected an array on device {current}, which is the current one, got one on "
            f"device {number}; copy it there, or make its device the current one; {ON_HOST}"
        )
    return Borrowed(x.__dlpack__(stream=stream_pointer(stream) or _DEFAULT_STREAM), name)
