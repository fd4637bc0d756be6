"""Where the time of a search goes: the engine's parts, each compiled and timed by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

from succinct.decode import _compile, _engine

# What `_engine.search` calls for each step, and for each query at its end.
_PARTS = {"expand": "expansion", "select": "selection", "trace": "results"}


def engine_phases(index: Any, run: Callable[[], object]) -> dict[str, float]:
    """Seconds that `run`, which searches `index` on one thread, spends in each phase.

    The search itself runs as plain Python meanwhile. "proposals" is all outside of the engine's
    parts: checking and sorting proposals, and putting results together.
    """
    taken = dict.fromkeys(_PARTS.values(), 0.0)

    def compiled(name: str) -> Any:
        return _compile.compile_function(getattr(_engine, name), index.lanes)

    def timed(name: str) -> Any:
        part, phase = compiled(name), _PARTS[name]

        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = part(*arguments)
            taken[phase] += time.perf_counter() - start
            return result

        return call

    names = {name: timed(name) for name in _PARTS}
    names["reaches_eligible"] = compiled("reaches_eligible")
    search = FunctionType(_engine.search.__code__, {**_engine.__dict__, **names}, "search")
    original = _compile.compiled_search
    _compile.compiled_search = lambda lanes: search
    try:
        run()  # compiles
        taken.update(dict.fromkeys(taken, 0.0))
        start = time.perf_counter()
        run()
        total = time.perf_counter() - start
    finally:
        _compile.compiled_search = original
    return {"proposals": total - sum(taken.values()), **taken}
