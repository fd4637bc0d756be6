"""Where the time of a search goes: the engine's parts, each compiled and timed by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np

from succinct.decode import _compile, _engine, _proposals, _search

# What is called for each batch, for each step, and for each query at its end.
_PARTS = {
    "read": "proposals",
    "expand": "expansion",
    "shrink_found": "selection",
    "select": "selection",
    "trace": "results",
}


def engine_phases(index: Any, run: Callable[[], object]) -> dict[str, float]:
    """Seconds that `run`, which searches `index` on one thread, spends in each phase.

    The search itself runs as plain Python meanwhile. "call" is all outside of the engine's parts
    and of that: reading arguments and putting results together.
    """
    taken = dict.fromkeys([*_PARTS.values(), "call", "search"], 0.0)

    functions = {**vars(_proposals), **vars(_engine)}

    def compiled(name: str) -> Any:
        function = _compile.compile_function(functions[name], index.lanes)
        entries: list[Any] = []

        def call(*arguments: Any) -> Any:
            if not entries:
                entries.append(_compile.entry_point(function, arguments))
            return entries[0](*arguments)

        return call

    def timed(function: Any, phase: str) -> Any:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            taken[phase] += time.perf_counter() - start
            return result

        return call

    parts = {name: timed(compiled(name), phase) for name, phase in _PARTS.items()}
    parts |= {name: compiled(name) for name in ("reaches_eligible", "is_hopeless")}
    search = _with_globals(_engine.search, parts)
    engine = _search.Engine(index)
    engine.compiled.update(search=timed(search, "search"), read=parts["read"])
    with mock.patch.object(_search, "engine_of", lambda _: engine):
        run()  # compiles
        taken.update(dict.fromkeys(taken, 0.0))
        start = time.perf_counter()
        run()
        total = time.perf_counter() - start
    taken["call"] = total - taken.pop("search") - taken["proposals"]
    return taken


def ablations(index: Any) -> dict[str, AbstractContextManager[Any]]:
    """Contexts, which may be entered again, in which searches of `index` lack something."""

    def without(owner: str, **replaced: Any) -> Any:
        """The engine with some functions that the function `owner` calls replaced."""
        changed = _with_globals(getattr(_engine, owner), replaced)
        search = changed
        if owner != "search":
            search = _with_globals(_engine.search, {owner: changed})
        engine = _search.Engine(index)
        compiled = _compile.compile_function(search, index.lanes)
        entries: list[Any] = []

        def call(*arguments: Any) -> Any:
            if not entries:
                entries.append(_compile.entry_point(compiled, arguments))
            return entries[0](*arguments)

        engine.compiled["search"] = call
        return engine

    by_types = _search.Engine(index)
    by_types.compiled.update(
        search=_compile.compiled_search(index.lanes), read=_compile.compiled_read()
    )
    engines = {
        "no prefix dropped": without("search", is_hopeless=_none_hopeless),
        "every child looked at": without("expand", bit_length=_many_bits),
        "called by types": by_types,
    }
    return {
        name: mock.patch.object(_search, "engine_of", lambda _, engine=engine: engine)
        for name, engine in engines.items()
    }


def _with_globals(function: Any, replaced: dict[str, Any]) -> FunctionType:
    copy = FunctionType(function.__code__, {**function.__globals__, **replaced}, function.__name__)
    copy.__module__ = function.__module__
    return copy


def _none_hopeless(
    bound: Any, factors: Any, best: Any, line: int, step: int, first: int, end: int
) -> Any:
    return np.float32(np.inf) if first >= end else np.float32(-np.inf)


def _many_bits(n: Any) -> Any:
    return np.int64(1 << 40)
