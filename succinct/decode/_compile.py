"""Compilation of the plain functions in `lanes` and `_engine` modules by numba, for the CPU."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from numba import njit, types
from numba.extending import intrinsic

from succinct.bits import lanes as bit_lanes
from succinct.decode import _engine, eligibility


@intrinsic  # type: ignore[untyped-decorator]
def _count_ones(typing_context: Any, word: Any) -> Any:
    """The population count instruction of the processor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@njit(forceinline=True, _nrt=False)  # type: ignore[untyped-decorator]
def _popcount(word: Any) -> Any:
    return _count_ones(word)


def _jit(function: FunctionType, inline: bool, bare: bool, cache: bool) -> Any:
    # Functions that allocate nothing do without reference counts: these would be atomic
    # operations on counters that all threads share, one for every array that is looked at.
    options: dict[str, Any] = {"nogil": True, "forceinline": inline}
    if bare:
        options["_nrt"] = False
    if cache:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            # numba found no directory to keep compiled code in.
            pass
    return njit(**options)(function)


@cache
def compiled_search(lanes: ModuleType) -> Any:
    """`_engine.search` for the indexes whose navigation is `lanes`."""
    return compile_function(_engine.search, lanes, _engine.PROTOCOL, _engine.INLINED, bare=True)


@cache
def compiled_steps(lanes: ModuleType) -> tuple[Any, Any]:
    """`_engine.advance` and `_engine.report` for the indexes whose navigation is `lanes`."""
    return (
        compile_function(_engine.advance, lanes, _engine.PROTOCOL, _engine.INLINED, bare=True),
        compile_function(_engine.report, lanes, _engine.PROTOCOL, _engine.INLINED, bare=True),
    )


@cache
def compiled_find_eligible(lanes: ModuleType) -> Any:
    """`eligibility.find_eligible` for the indexes whose navigation is `lanes`."""
    protocol = ("is_terminal", *eligibility.PROTOCOL)
    return compile_function(eligibility.find_eligible, lanes, protocol, eligibility.INLINED)


def compile_function(
    function: Callable[..., Any],
    lanes: ModuleType,
    protocol: tuple[str, ...],
    inlined: tuple[str, ...],
    bare: bool = False,
) -> Any:
    """Compile `function` for the indexes whose navigation is `lanes`.

    Parameters
    ----------
    function : callable
        A plain Python function. The plain functions that it calls by a global name are compiled
        with it, and theirs; those of a `lanes` module are inlined.
    lanes : module
        Navigation of one kind of index.
    protocol : tuple of str
        Global names of `function` and its callees to be taken from `lanes`.
    inlined : tuple of str
        Further callees to inline; they must not allocate.
    bare : bool
        Whether no callee allocates.

    Returns
    -------
    callable
        Compiled, without the interpreter lock, and kept in numba's cache on disk where there is
        a directory for it.

    Notes
    -----
    numba's cache looks at the source file of the cached function alone. Its name is therefore
    made from the code of all functions that went into it, so that an edit of any of them is
    noticed.
    """
    bound = {name: getattr(lanes, name) for name in protocol}
    sources = hashlib.sha256()
    done: dict[Callable[..., Any], Any] = {bit_lanes.popcount: _popcount}
    top = _specialise(function, bound, inlined, bare, done, sources)
    top.__qualname__ = f"{top.__name__}_{sources.hexdigest()[:16]}"
    return _jit(top, inline=False, bare=False, cache=True)


def _specialise(
    function: Any,
    bound: Mapping[str, Any],
    inlined: tuple[str, ...],
    bare: bool,
    done: dict[Any, Any],
    sources: Any,
) -> FunctionType:
    """Copy of `function` whose globals refer to compiled functions."""
    code = function.__code__
    sources.update(code.co_code + repr((code.co_consts, code.co_names, code.co_varnames)).encode())
    namespace = dict(function.__globals__)
    for name in code.co_names:
        callee = bound.get(name, namespace.get(name))
        if not isinstance(callee, FunctionType):
            if isinstance(callee, (int, float)) or hasattr(callee, "dtype"):
                sources.update(f"{name}={callee!r}".encode())
            continue
        if callee not in done:
            light = callee.__module__.endswith(".lanes") or name in inlined
            # Long ones that are called rarely would only make compilation slow.
            inline = light and name not in eligibility.PROTOCOL
            compiled = _specialise(callee, bound, inlined, bare, done, sources)
            sources.update(f"{name} {inline} {light or bare}".encode())
            done[callee] = _jit(compiled, inline, light or bare, cache=False)
        namespace[name] = done[callee]
    copy = FunctionType(code, namespace, function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    return copy
