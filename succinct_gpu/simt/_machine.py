"""One launch on the C runtime, and what its faults are in words."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct_gpu.simt import _runtime
from succinct_gpu.simt._options import SCHEDULES, Counters, Options, SimtError

LIBRARY = _runtime.__file__

_COUNTERS = Counters._fields
# The names of the enumerations in _runtime.c, in the same order.
_FAULTS = (
    "none",
    "out of bounds",
    "race",
    "unwritten",
    "barrier after exit",
    "exit at barrier",
    "barriers differ",
    "lane not in mask",
    "mask names exited",
    "warp diverged",
    "grid not cooperative",
    "deadlock",
    "timeout",
    "no memory",
    "trap",
)
_ACCESSES = {0: "read", 1: "write", 2: "atomic operation"}
_WAITING = ("at syncthreads", "at a warp operation", "at a grid sync")


class _Place(ctypes.Structure):
    _fields_ = [
        ("site", ctypes.c_int32),
        ("access", ctypes.c_int32),
        ("block", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
    ]


class _Fault(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("range", ctypes.c_int32),
        ("here", _Place),
        ("other", _Place),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("mask", ctypes.c_uint32),
        ("waiting", ctypes.c_uint32 * 3),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("static_shared", ctypes.c_uint64),
        ("dynamic_shared", ctypes.c_uint64),
        ("shared_grain", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("cooperative", ctypes.c_int32),
        ("schedule", ctypes.c_int32),
        ("check", ctypes.c_int32),
        ("n_ranges", ctypes.c_int32),
        ("timeout", ctypes.c_double),
        ("ranges", ctypes.c_void_p),
        ("counters", ctypes.c_uint64 * len(_COUNTERS)),
        ("fault", _Fault),
    ]


_library = ctypes.CDLL(LIBRARY)
_library.simt_launch.argtypes = [ctypes.POINTER(_Launch), ctypes.c_void_p, ctypes.c_void_p]


class Memory(NamedTuple):
    """Bytes that a kernel may use: an array that it was given.

    Attributes
    ----------
    low, high : int
        First address, and the one behind the last.
    grain : int
        Bytes of an element; a power of two.
    name : str
        What to call it in errors.
    """

    low: int
    high: int
    grain: int
    name: str


class Kernel(NamedTuple):
    """What the compiler made of a kernel.

    Attributes
    ----------
    address : int
        Function that takes the address of 8-byte slots, one a parameter.
    shared, grain : int
        Bytes of static shared memory; the smallest element in it.
    cooperative : bool
        Whether it synchronises the grid.
    checked : bool
        Whether every access calls the runtime.
    sites : sequence of str
        Descriptions of the calls of the runtime, by their numbers.
    keep : object
        Owner of the code.
    """

    address: int
    shared: int
    grain: int
    cooperative: bool
    checked: bool
    sites: Sequence[str]
    keep: Any


def _merged(memories: Sequence[Memory]) -> list[Memory]:
    """The same bytes, ascending and without overlaps."""
    merged: list[Memory] = []
    for memory in sorted(memories):
        if merged and memory.low < merged[-1].high:
            last = merged[-1]
            name = last.name if last.name == memory.name else f"{last.name} or {memory.name}"
            grain = min(last.grain, memory.grain)
            merged[-1] = Memory(last.low, max(last.high, memory.high), grain, name)
        else:
            merged.append(memory)
    return merged


def run(
    kernel: Kernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_shared: int,
    slots: NDArray[np.uint64],
    memories: Sequence[Memory],
    options: Options,
) -> Counters:
    """Run every thread of a launch to its end.

    Raises
    ------
    SimtError
        At the first fault.
    """
    ranges = _merged(memories)
    table = np.array([memory[:3] for memory in ranges], np.uint64).reshape(-1, 3)
    shared = -(-kernel.shared // 16) * 16
    launch = _Launch(
        grid=grid,
        block=block,
        static_shared=shared,
        dynamic_shared=dynamic_shared,
        shared_grain=1 if dynamic_shared else kernel.grain,
        stack=options.stack,
        seed=options.seed + 1,
        cooperative=kernel.cooperative,
        schedule=SCHEDULES.index(options.schedule),
        check=options.check,
        n_ranges=len(ranges),
        timeout=options.timeout,
        ranges=table.ctypes.data,
    )
    launch.fault.other.site = -1
    if _library.simt_launch(ctypes.byref(launch), kernel.address, slots.ctypes.data):
        raise SimtError(_explain(launch, kernel, ranges))
    return Counters(*launch.counters)


def _explain(launch: _Launch, kernel: Kernel, ranges: Sequence[Memory]) -> str:
    fault = launch.fault
    kind = _FAULTS[fault.kind]

    def at(place: _Place) -> str:
        site = f", {kernel.sites[place.site]}" if place.site >= 0 else ""
        return f"block {place.block} thread {place.thread}{site}"

    here, other, mask = at(fault.here), at(fault.other), f"0x{fault.mask:08x}"
    access = f"{_ACCESSES.get(fault.here.access)} of {fault.size} bytes"
    if kind == "out of bounds":
        where = "shared memory" if fault.range == -1 else _nearest(fault.address, ranges)
        return f"{access} outside {where}: {here}"
    if kind == "race":
        name = "shared memory"
        if fault.range >= 0:
            memory = ranges[fault.range]
            name = f"{memory.name} at byte {fault.address - memory.low}"
        before = _ACCESSES.get(fault.other.access)
        return (
            f"data race on {name}: {access} by {here} and {before} by {other} are not ordered "
            "by a barrier"
        )
    if kind == "unwritten":
        return f"read of {fault.size} bytes of shared memory that nothing wrote: {here}"
    if kind == "deadlock":
        counts = [f"{n} {what}" for n, what in zip(fault.waiting, _WAITING, strict=True) if n]
        return f"deadlock: threads wait for ever, {' and '.join(counts)}; among them {here}"
    if kind == "no memory":
        return f"no memory for the stacks of all threads together: {fault.size} bytes"
    return {
        "barrier after exit": f"syncthreads after a thread of the block has returned: {here}",
        "exit at barrier": f"return of a thread while others wait at syncthreads: {here} "
        f"returned, {other} waits",
        "barriers differ": f"threads of one block are at different syncthreads: {here}, and "
        f"others: {other}",
        "lane not in mask": f"warp operation whose mask {mask} leaves out the caller: {here}",
        "mask names exited": f"warp operation whose mask {mask} names a lane that has returned "
        f"or does not exist: {here}" + (f", beside {other}" if fault.other.site >= 0 else ""),
        "warp diverged": f"lanes that name each other are at different warp operations: {here}, "
        f"and {other} with mask {mask}",
        "grid not cooperative": f"grid sync in a launch that is not cooperative: {here}",
        "timeout": f"the kernel has not ended within {launch.timeout:g} s: {here}",
        "trap": f"the kernel trapped: {here}",
    }[kind]


def _nearest(address: int, ranges: Sequence[Memory]) -> str:
    if not ranges:
        return "every array: the kernel was given none"

    def distance(memory: Memory) -> int:
        return max(memory.low - address, address - memory.high + 1)

    memory = min(ranges, key=distance)
    if distance(memory) > 1 << 30:
        return "every array"
    offset = address - memory.low
    return f"every array: at byte {offset} of {memory.name}, which has {memory.high - memory.low}"
