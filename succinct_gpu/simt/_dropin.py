"""Puts the executor in the place of a device: patches of numba.cuda, and launches."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda import api, args, dispatcher, types
from numba.cuda.core import sigutils
from numba.cuda.np.numpy_support import as_dtype
from numba.cuda.typing.typeof import Purpose, typeof
from numpy.typing import NDArray

from succinct_gpu.simt import _compiler, _devices, _machine
from succinct_gpu.simt._options import Counters, Options, SimtError

MAX_THREADS = 1024
# Blocks of a cooperative grid that a device of the size of `_devices.Device` holds.
COOPERATIVE_BLOCKS = 8

_DEVICE_NAMES = (
    "as_cuda_array",
    "current_context",
    "device_array",
    "device_array_like",
    "get_current_device",
    "is_available",
    "is_cuda_array",
    "list_devices",
    "managed_array",
    "pinned",
    "pinned_array",
    "pinned_array_like",
    "select_device",
    "stream",
    "synchronize",
    "to_device",
)

_options = Options()
_recorders: list["Recorder"] = []
_originals: list[tuple[Any, str, Any]] = []
_compiled: dict[Any, _machine.Kernel] = {}


class Launched(NamedTuple):
    """A launch seen by `record`: the kernel, its name, the types of its arguments, its counters."""

    name: str
    counters: Counters
    kernel: Any
    argument_types: tuple[Any, ...]


class Recorder:
    """Launches seen by `record`, in order."""

    def __init__(self) -> None:
        self.launches: list[Launched] = []

    @property
    def counters(self) -> Counters:
        """Sums over all launches."""
        columns = zip(*(launch.counters for launch in self.launches), strict=True)
        return Counters(*(sum(column) for column in columns))


class Overload:
    """A kernel for given types of arguments, as far as host code asks for it."""

    objectmode = False

    def __init__(self, argument_types: Sequence[Any]) -> None:
        self.argument_types = tuple(argument_types)
        self.signature = types.void(*argument_types)

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """Blocks that a cooperative launch may have."""
        return COOPERATIVE_BLOCKS


class Launcher:
    """A kernel with its launch configuration: call it with the kernel's arguments."""

    def __init__(self, kernel: Any, grid: Any, block: Any, shared: int) -> None:
        self._kernel = kernel
        self._grid = _dimensions("griddim", grid)
        self._block = _dimensions("blockdim", block)
        self._shared = int(shared)
        threads = int(np.prod(self._block))
        if threads > MAX_THREADS:
            raise ValueError(f"blockdim: expected at most {MAX_THREADS} threads, got {threads}")

    def __call__(self, *arguments: Any) -> None:
        _launch(self._kernel, arguments, self._grid, self._block, self._shared)


def _dimensions(name: str, given: Any) -> tuple[int, int, int]:
    sizes = [int(n) for n in (given if isinstance(given, (tuple, list)) else [given])]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{name}: expected one to three positive integers, got {given!r}")
    return tuple(sizes + [1] * (3 - len(sizes)))  # type: ignore[return-value]


def _configure(
    self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
) -> Launcher:
    return Launcher(self, griddim, blockdim, sharedmem)


def _forall(
    self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0
) -> Callable[..., None]:
    if ntasks == 0:
        return lambda *arguments: None
    block = tpb or 128
    return Launcher(self, -(-ntasks // block), block, sharedmem)


def _compile(self: Any, signature: Any) -> Any:
    argument_types, return_type = sigutils.normalize_signature(signature)
    if self.targetoptions.get("device"):
        return self.compile_device(argument_types, return_type)
    return _overload(self, argument_types)


def _overload(kernel: Any, argument_types: Sequence[Any]) -> Any:
    key = tuple(argument_types)
    return kernel.overloads.setdefault(key, Overload(key))


def _specialize(self: Any, *arguments: Any) -> Any:
    return self


def enable(options: Options) -> None:
    """Patch numba.cuda, once, and set how launches run."""
    global _options
    _options = options
    if _originals:
        return
    patches: list[tuple[Any, str, Any]] = [
        (module, name, getattr(_devices, name))
        for name in _DEVICE_NAMES
        for module in (cuda, api)
        if hasattr(module, name)
    ]
    patches += [
        (cuda, "event", _devices.Event),
        (cuda, "default_stream", _devices.stream),
        (dispatcher, "get_current_device", _devices.get_current_device),
        (dispatcher.CUDADispatcher, "configure", _configure),
        (dispatcher.CUDADispatcher, "forall", _forall),
        (dispatcher.CUDADispatcher, "compile", _compile),
        (dispatcher.CUDADispatcher, "specialize", _specialize),
    ]
    for owner, name, new in patches:
        _originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)


def disable() -> None:
    """Take all patches back."""
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def enabled() -> bool:
    """Whether launches run here."""
    return bool(_originals)


@contextlib.contextmanager
def changed(**changes: Any) -> Iterator[Options]:
    """Run launches with other options for a while."""
    global _options
    before = _options
    _options = replace(before, **changes)
    try:
        yield _options
    finally:
        _options = before


@contextlib.contextmanager
def record() -> Iterator[Recorder]:
    """Note all launches for a while."""
    recorder = Recorder()
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


def _launch(
    kernel: Any,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
) -> None:
    names = kernel.py_func.__code__.co_varnames
    if len(arguments) != kernel.py_func.__code__.co_argcount:
        raise TypeError(
            f"{kernel.py_func.__name__}: expected {kernel.py_func.__code__.co_argcount} "
            f"arguments, got {len(arguments)}"
        )
    argument_types = _types(kernel, arguments)
    options = _options
    code = _code(kernel, argument_types, checked=options.check > 0)
    packer = _Packer()
    for name, value, kind in zip(names, arguments, argument_types, strict=False):
        packer.add(name, value, kind)
    slots = np.array([slot & (2**64 - 1) for slot in packer.slots], np.uint64)
    memories = [*packer.memories]
    if slots.size:
        low = slots.ctypes.data
        memories.append(_machine.Memory(low, low + slots.nbytes, 8, "the arguments"))
    counters = _machine.run(code, grid, block, shared, slots, memories, options)
    for recorder in _recorders:
        name = kernel.py_func.__name__
        recorder.launches.append(Launched(name, counters, kernel, argument_types))
    for host, device in packer.copy_back:
        host[...] = device


def _types(kernel: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Types of the arguments, or the signature that the kernel was declared with."""
    found = tuple(typeof(value, Purpose.argument) for value in arguments)
    if found in kernel.overloads or kernel._can_compile:
        return found
    for declared in kernel.overloads:
        if len(declared) == len(found) and all(map(_accepts, declared, found)):
            return tuple(declared)
    raise TypeError(f"No matching definition for argument type(s) {', '.join(map(str, found))}")


def _accepts(declared: Any, given: Any) -> bool:
    if isinstance(declared, types.Array) and isinstance(given, types.Array):
        same = (declared.dtype, declared.ndim) == (given.dtype, given.ndim)
        return same and declared.layout in ("A", given.layout)
    if isinstance(declared, types.Number) and isinstance(given, types.Number | types.Boolean):
        return isinstance(declared, types.Float) or not isinstance(given, types.Float)
    return bool(declared == given)


def _code(kernel: Any, argument_types: Sequence[Any], checked: bool) -> _machine.Kernel:
    _overload(kernel, argument_types)
    key = (kernel, tuple(argument_types), checked)
    if key not in _compiled:
        fastmath = bool(kernel.targetoptions.get("fastmath"))
        _compiled[key] = _compiler.compile_kernel(kernel.py_func, argument_types, fastmath, checked)
    return _compiled[key]


class _Packer:
    """Arguments as 8-byte slots, in the order in which numba-cuda lays them out."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.memories: list[_machine.Memory] = []
        self.copy_back: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._keep: list[Any] = []

    def add(self, name: str, value: Any, kind: Any) -> None:
        if isinstance(kind, types.Array):
            self._add_array(name, self._on_device(value))
        elif isinstance(kind, types.BaseTuple):
            fields = getattr(value, "_fields", range(len(value)))
            for field, item, item_kind in zip(fields, value, kind, strict=True):
                self.add(f"{name}.{field}", item, item_kind)
        elif isinstance(kind, types.Boolean):
            self.slots.append(int(bool(value)))
        elif isinstance(kind, types.EnumMember):
            self.add(name, value.value, kind.dtype)
        elif isinstance(kind, types.Integer):
            self.slots.append(int(value))
        elif isinstance(kind, types.Float):
            raw = as_dtype(kind).type(value).tobytes()
            self.slots.append(int.from_bytes(raw, "little"))
        elif isinstance(kind, types.Complex):
            part = types.float32 if kind.bitwidth == 64 else types.float64
            self.add(name, complex(value).real, part)
            self.add(name, complex(value).imag, part)
        else:
            raise SimtError(f"argument {name}: arguments of type {kind} are not supported")

    def _on_device(self, value: Any) -> NDArray[Any]:
        """The array itself, or its copy on the device; how host arrays go is said by hints."""
        hint: Any = args.InOut
        if isinstance(value, args.ArgHint):
            hint, value = type(value), value.value
        if not isinstance(value, np.ndarray):
            view = _devices.as_cuda_array(value)
            self._keep.append(view)
            return view._array
        copy = _devices.empty(value.shape, value.dtype, "A" if value.ndim else "C")
        if hint is not args.Out:
            copy[...] = value
        if hint is not args.In and value.flags.writeable:
            self.copy_back.append((value, copy))
        return copy

    def _add_array(self, name: str, array: NDArray[Any]) -> None:
        self._keep.append(array)
        low = array.ctypes.data
        self.slots += [0, 0, array.size, array.itemsize, low, *array.shape, *array.strides]
        if array.size:
            spans = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
            high = low + sum(max(0, span) for span in spans) + array.itemsize
            low += sum(min(0, span) for span in spans)
            grain = array.itemsize & -array.itemsize
            self.memories.append(_machine.Memory(low, high, min(grain, 16), name))
