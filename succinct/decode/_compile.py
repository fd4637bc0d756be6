"""Compilation of the plain functions in `lanes` and engine modules by numba, for the CPU."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof, types
from numba.extending import intrinsic

from succinct.bits import lanes as bit_lanes
from succinct.decode import _engine, _proposals, _team, eligibility
from succinct.decode._parts import jit_part
from succinct.trie import lanes as trie_lanes


@intrinsic  # type: ignore[untyped-decorator]
def _count_ones(typing_context: Any, word: Any) -> Any:
    """The population count instruction of the processor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _popcount(word: np.uint64) -> np.int64:
    return _count_ones(word)  # type: ignore[no-any-return]


def _atomic(generate_on: Callable[..., Any]) -> Any:
    """An operation on one word of an int64 array that threads see as a whole, and in one order."""

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(typing_context: Any, words: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            words, at, value = arguments
            data = context.make_array(signature.args[0])(context, builder, words).data
            return generate_on(builder, builder.gep(data, [at]), value)

        return types.int64(words, types.int64, types.int64), generate

    return operation


def _stored(builder: Any, place: Any, value: Any) -> Any:
    builder.store_atomic(value, place, "seq_cst", 8)
    return value


_load_word = _atomic(lambda builder, place, _: builder.load_atomic(place, "seq_cst", 8))
_store_word = _atomic(_stored)
_add_to_word = _atomic(lambda builder, *pair: builder.atomic_rmw("add", *pair, "seq_cst"))
_raise_word = _atomic(lambda builder, *pair: builder.atomic_rmw("max", *pair, "seq_cst"))
_yield_processor = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)


def _load(words: Any, at: int) -> Any:
    return _load_word(words, at, 0)


def _store(words: Any, at: int, value: Any) -> None:
    _store_word(words, at, value)


def _add(words: Any, at: int, value: Any) -> Any:
    return _add_to_word(words, at, value)


def _raise_to(words: Any, at: int, value: Any) -> None:
    _raise_word(words, at, value)


def _rest() -> None:
    _yield_processor()


class _Part(NamedTuple):
    """A compiled function, and the digest of all code that went into it."""

    compiled: Any
    digest: str


# What plain Python can only stand in for.
_MACHINE = {
    plain: _Part(jit_part(machine, inline=True), machine.__name__)
    for plain, machine in (
        (bit_lanes.popcount, _popcount),
        (_team.load, _load),
        (_team.store, _store),
        (_team.add, _add),
        (_team.raise_to, _raise_to),
        (_team.rest, _rest),
    )
}
_parts: dict[tuple[Any, ModuleType], _Part] = {}


@cache
def compiled_read() -> Any:
    """`_proposals.read`, for all indexes."""
    return compile_function(_proposals.read, bit_lanes)


@cache
def compiled_search(lanes: ModuleType) -> Any:
    """`_engine.search` for the indexes whose navigation is `lanes`."""
    return compile_function(_engine.search, lanes)


@cache
def compiled_steps(lanes: ModuleType) -> tuple[Any, Any]:
    """`_engine.advance` and `_engine.report` for the indexes whose navigation is `lanes`."""
    return compile_function(_engine.advance, lanes), compile_function(_engine.report, lanes)


def entry_point(function: Any, arguments: Sequence[Any]) -> Callable[..., Any]:
    """Code of a compiled function for arguments of the types of these.

    A call of it looks at no types, which takes numba longer than many a search, and is right only
    for arguments of the same types.
    """
    entry: Callable[..., Any] = function.compile(tuple(map(typeof, arguments)))
    return entry


@cache
def compiled_find_eligible(lanes: ModuleType) -> Any:
    """`eligibility.find_eligible` for the indexes whose navigation is `lanes`."""
    return compile_function(eligibility.find_eligible, lanes)


def compile_function(function: Callable[..., Any], lanes: ModuleType) -> Any:
    """Compile `function` for the indexes whose navigation is `lanes`.

    Parameters
    ----------
    function : callable
        A plain Python function. The plain functions that it calls by a global name are compiled
        with it, and theirs; those of `succinct.trie.lanes` are replaced by their namesakes in
        `lanes`. They must not allocate. Those of a `lanes` module are inlined, and those that
        their module names in `INLINED`.
    lanes : module
        Navigation of one kind of index.

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
    top, digest = _specialise(function, lanes)
    top.__qualname__ = f"{top.__name__}_{digest[:16]}"
    try:
        return njit(nogil=True, cache=True)(top)
    except RuntimeError:
        # numba found no directory to keep compiled code in.
        return njit(nogil=True)(top)


def _part(function: FunctionType, lanes: ModuleType) -> _Part:
    if function in _MACHINE:
        return _MACHINE[function]
    key = function, lanes
    if key not in _parts:
        copy, digest = _specialise(function, lanes)
        _parts[key] = _Part(jit_part(copy, _is_inlined(function)), digest)
    return _parts[key]


def _is_inlined(function: FunctionType) -> bool:
    name, module = function.__name__, function.__module__
    if module.endswith(".lanes"):
        # The others would only make compilation slow.
        return name not in eligibility.RARE
    return name in getattr(sys.modules[module], "INLINED", ())


def _specialise(function: Any, lanes: ModuleType) -> tuple[FunctionType, str]:
    """Copy of `function` whose globals refer to compiled functions, and its digest."""
    code = function.__code__
    source = hashlib.sha256(code.co_code)
    source.update(repr((code.co_consts, code.co_names, code.co_varnames)).encode())
    namespace = dict(function.__globals__)
    for name in code.co_names:
        value = namespace.get(name)
        if isinstance(value, FunctionType):
            if value.__module__ == trie_lanes.__name__:
                value = getattr(lanes, name)
            part = _part(value, lanes)
            namespace[name] = part.compiled
            source.update(f"{name} {_is_inlined(value)} {part.digest}".encode())
        elif isinstance(value, (int, float)) or hasattr(value, "dtype"):
            source.update(f"{name}={value!r}".encode())
    copy = FunctionType(code, namespace, function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    return copy, source.hexdigest()
