"""Kernels from Python to code of the host, by way of numba-cuda's front end."""

import ctypes
import ctypes.util
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.cuda import compiler, types
from numba.cuda.core.errors import NumbaDebugInfoWarning
from numba.cuda.cudadrv import nvvm

from succinct_gpu.simt import _translate
from succinct_gpu.simt._machine import LIBRARY, Kernel
from succinct_gpu.simt._options import SimtError

# What kernels are compiled for; the oldest that current toolkits know.
COMPUTE_CAPABILITY = (7, 5)
# Functions of the C library whose namesakes on a GPU are something else.
_FOREIGN = {"vprintf": "print in a kernel", "malloc": "allocation in a kernel"}


class _FrontEndOnly:
    """Stands for libnvvm where there is none: only to be asked for names of versions."""

    data_layout = nvvm._datalayout

    def get_ir_version(self) -> tuple[int, int, int, int]:
        return 2, 0, 3, 2


@cache
def _prepare() -> Any:
    """Load the runtime and set up LLVM for the host; gives the target machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(LIBRARY)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(opt=2, jit=True)


@cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


@cache
def _size_of(type_name: str) -> int:
    module = llvm.parse_assembly(f"@value = external global {type_name}")
    value = module.get_global_variable("value")
    return int(_prepare().target_data.get_abi_size(value.global_value_type))


def front_end(
    function: Callable[..., Any],
    argument_types: Sequence[Any],
    *,
    fastmath: bool,
    lineinfo: bool = True,
) -> Any:
    """numba-cuda's code library for a kernel: LLVM IR, not compiled further."""
    try:
        nvvm.NVVM()
    except Exception:
        nvvm.NVVM = _FrontEndOnly
    with warnings.catch_warnings():
        # Functions that were typed in have no file to name the lines of.
        warnings.simplefilter("ignore", NumbaDebugInfoWarning)
        library, _ = compiler._compile_pyfunc_with_fixup(
            function,
            types.void(*argument_types),
            device=False,
            abi="numba",
            cc=COMPUTE_CAPABILITY,
            lineinfo=lineinfo,
            fastmath=fastmath,
        )
    return library


def compile_kernel(
    function: Callable[..., Any], argument_types: Sequence[Any], fastmath: bool, checked: bool
) -> Kernel:
    """Compile a kernel for the host.

    Parameters
    ----------
    function : callable
        Python source of the kernel.
    argument_types : sequence of numba types
    fastmath : bool
    checked : bool
        Whether accesses to memory call the runtime.
    """
    machine = _prepare()
    library = front_end(function, argument_types, fastmath=fastmath)
    module = _linked(library)
    shared, sites = _translate.SharedMemory(), _translate.Sites()
    for variable in module.global_variables:
        # The address space is in the type of the pointer, the variable itself.
        if "addrspace(3)" in str(variable.type):
            element = variable.global_value_type
            size = int(machine.target_data.get_abi_size(element))
            grain = int(machine.target_data.get_abi_alignment(element))
            shared.add(variable.name, size, grain)
    text = _translate.to_host(str(module), shared, sites)
    parameters = [str(p.type) for p in module.get_function(library._entry_name).arguments]
    name = library._entry_name
    optimised = _optimised(text + _entry(name, parameters), machine)
    if checked:
        checked_text = _translate.with_checks(str(optimised), _size_of, sites)
        optimised = llvm.parse_assembly(checked_text)
        optimised.verify()
    _resolve(optimised)
    engine = llvm.create_mcjit_compiler(optimised, machine)
    engine.finalize_object()
    return Kernel(
        address=engine.get_function_address("simt_entry"),
        shared=shared.size,
        grain=shared.grain,
        cooperative=library.use_cooperative,
        checked=checked,
        sites=sites.texts,
        keep=engine,
    )


def _linked(library: Any) -> Any:
    """All modules of a kernel as one."""
    linked = None
    for text in dict.fromkeys(str(module) for module in library.modules):
        # numba-cuda itself writes some atomic operations out when it prints for libnvvm.
        renamed = _translate.rename_intrinsics(nvvm.llvm_replace(text))
        module = llvm.parse_assembly(renamed)
        if linked is None:
            linked = module
        else:
            linked.link_in(module)
    return linked


def _entry(name: str, parameters: Sequence[str]) -> str:
    """A function that takes its parameters from 8-byte slots and calls the kernel."""
    lines = ["define void @simt_entry(ptr %slots) {"]
    for i, kind in enumerate(parameters):
        lines.append(f"  %p{i} = getelementptr i64, ptr %slots, i64 {i}")
        lines.append(f"  %v{i} = load {kind}, ptr %p{i}")
    arguments = ", ".join(f"{kind} %v{i}" for i, kind in enumerate(parameters))
    # Inlined here, where there is no debug information, the kernel would lose its own.
    lines += [f'  call void @"{name}"({arguments}) noinline', "  ret void", "}", ""]
    return "\n".join(lines)


def _optimised(text: str, machine: Any) -> Any:
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    for function in module.functions:
        if not function.is_declaration and function.name != "simt_entry":
            function.linkage = "internal"
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module


def _resolve(module: Any) -> None:
    """Find the host's functions for what the kernel calls."""
    missing = []
    for function in module.functions:
        name = function.name
        if not function.is_declaration or name.startswith("llvm."):
            continue
        if name in _FOREIGN:
            raise SimtError(f"{_FOREIGN[name]} is not supported")
        symbol = _translate.libdevice_symbol(name)
        if symbol is not None:
            address = llvm.address_of_symbol(symbol)
            if not address and hasattr(_libm(), symbol):
                address = ctypes.cast(getattr(_libm(), symbol), ctypes.c_void_p).value
            if address:
                llvm.add_symbol(name, address)
                continue
        if not llvm.address_of_symbol(name):
            missing.append(name)
    if missing:
        raise SimtError(f"the host has no function for {', '.join(sorted(missing))}")
