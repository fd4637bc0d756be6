"""Parts of compiled functions: numba functions that only other compiled functions call.

numba makes a library of every function: it optimizes it together with all that it calls, then
generates machine code and a wrapper for Python. For a part this is work for nothing, because its
caller repeats the optimization with the part inlined, and in a chain of seven calls the last one
is optimized seven times. A `_PartLibrary` therefore keeps what numba generated as it is, and the
function at the top is optimized once, with everything in it. First searches compile three to four
times faster so, and run as fast. Since this goes past numba's public interface, it is done for the
versions that it was tried with.
"""

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_TRIED = (0, 63) <= numba.version_info.short <= (0, 68)


class _NoEnvironment:
    """Takes what only the functions that Python calls need, and forgets it."""

    def set_env(self, name: str, environment: Any) -> None:
        pass


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is neither optimized nor made into machine code before a caller links it."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # as where the library has no such function: Python cannot call a part

    @property
    def codegen(self) -> Any:
        return _NoEnvironment()


class _PartCompiler(Compiler):  # type: ignore[misc]
    def __init__(self, typing_context: Any, target_context: Any, _: Any, *rest: Any) -> None:
        library = _PartLibrary(target_context.codegen(), "part")
        library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *rest)


def jit_part(function: Any, inline: bool) -> Any:
    """Compile `function` for callers that are compiled, and inline it into them or leave the
    choice to the compiler. It must not allocate: what does not does without reference counts,
    which would be atomic operations on counters that all threads share.
    """
    options: dict[str, Any] = {"pipeline_class": _PartCompiler} if _TRIED else {}
    return numba.njit(
        nogil=True,
        forceinline=inline,
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        **options,
    )(function)
