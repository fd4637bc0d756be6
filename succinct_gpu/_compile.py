"""Compilation of the plain functions in `lanes` modules as device functions, and of kernels.

Imports numba-cuda; only modules that are imported at first use may import this one.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from succinct.bits import lanes as bit_lanes
from succinct.trie import lanes as trie_lanes


class Navigation(NamedTuple):
    """Device functions over one kind of index, to be called from kernels.

    They take the named tuple of device arrays that a `DeviceIndex` holds as `arrays`, and a state.

    Attributes
    ----------
    child_range : (arrays, state) -> first, count
    find_child : (arrays, state, first, count, token) -> state
    has_children, is_terminal : (arrays, state) -> bool
    key_number : (arrays, state) -> int64
    nth_child : (arrays, state, first, k) -> token, state
    """

    child_range: Any
    find_child: Any
    has_children: Any
    is_terminal: Any
    key_number: Any
    nth_child: Any


# Functions to call by names that the source leaves open.
Choices = tuple[tuple[str, Callable[..., Any]], ...]


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def _popcount(word: Any) -> Any:
    return np.int64(cuda.popc(word))


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def _lowest_one(word: Any) -> Any:
    return np.int64(cuda.ffs(word)) - np.int64(1)


# The device has instructions for these.
_INSTRUCTIONS = {bit_lanes.popcount: _popcount, bit_lanes.lowest_one: _lowest_one}
_compiled: dict[tuple[Any, ModuleType, Choices], Any] = {}


def device_function(
    function: Callable[..., Any], lanes: ModuleType = trie_lanes, choices: Choices = ()
) -> Any:
    """Compile a plain function, and the plain functions that it calls, for the device.

    Where they navigate, they get the functions of `lanes`; where they call a name of `choices`,
    what stands beside it.
    """
    if function in _INSTRUCTIONS:
        return _INSTRUCTIONS[function]
    key = function, lanes, choices
    if key not in _compiled:
        _compiled[key] = cuda.jit(device=True)(_bound(function, lanes, choices))
    return _compiled[key]


@cache
def navigation(lanes: ModuleType) -> Navigation:
    """The device functions for the indexes whose navigation is `lanes`."""
    names = Navigation._fields
    return Navigation(*(device_function(getattr(lanes, name), lanes) for name in names))


@cache
def kernel_for(
    function: Callable[..., Any], lanes: ModuleType = trie_lanes, choices: Choices = ()
) -> Any:
    """Make a kernel of a plain function; see `device_function`."""
    return cuda.jit(_bound(function, lanes, choices))


def _bound(function: Any, lanes: ModuleType, choices: Choices) -> FunctionType:
    """Copy of `function` whose globals refer to device functions."""
    code = function.__code__
    namespace = dict(function.__globals__) | dict(choices)
    for name in code.co_names:
        callee = namespace.get(name)
        if isinstance(callee, FunctionType):
            navigates = callee.__module__ == trie_lanes.__name__
            if navigates:
                callee = getattr(lanes, name)
            # What navigates is shared by all kernels over an index.
            namespace[name] = device_function(callee, lanes, () if navigates else choices)
    copy = FunctionType(code, namespace, function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    copy.__doc__ = function.__doc__
    return copy
