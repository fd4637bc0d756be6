"""Compiles kernels to linked cubins for devices that are not here, and reads what they use.

Needs NVIDIA's compiler as Python packages: ``nvidia-nvvm``, ``nvidia-nvjitlink`` and
``nvidia-cuda-runtime``.
"""

import contextlib
import ctypes
import importlib.util
import json
import re
import struct
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda
from numba.cuda.cudadrv import nvvm

from succinct_gpu import simt
from succinct_gpu.simt import _compiler, _devices, _dropin, _machine

# The architectures, each with the one whose PTX it takes: libnvvm writes the same for these, but
# for the name of the target (`test_shared_ptx`).
ARCHITECTURES = {75: 75, 80: 75, 89: 75, 90: 75, 100: 100}


class Usage(NamedTuple):
    """What a thread or a block of a kernel takes."""

    registers: int
    spilled: int
    shared: int


def toolkit():
    """Folder of NVIDIA's packages; skips the test where one is missing."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations if spec else ():
        for folder in sorted(Path(place).glob("cu1*")):
            needed = ("nvvm/libdevice/libdevice.10.bc", "lib/libcudadevrt.a")
            libraries = sorted(folder.glob("lib/libnv[vJ]*.so*"))
            if libraries and all((folder / name).exists() for name in needed):
                for library in libraries:  # before cuda.bindings looks elsewhere
                    ctypes.CDLL(str(library))
                return folder
    pytest.skip("nvidia-nvvm, nvidia-nvjitlink or nvidia-cuda-runtime is not installed")


def front_end(kernel, argument_types):
    """LLVM IR of a kernel."""
    fastmath = bool(kernel.targetoptions.get("fastmath"))
    with simt.session():
        return _compiler.front_end(
            kernel.py_func, argument_types, fastmath=fastmath, lineinfo=False
        )


def usages(kernel, argument_types):
    """What a kernel takes on each architecture."""
    folder, library = toolkit(), front_end(kernel, argument_types)
    written = {other: ptx(library, other, folder) for other in set(ARCHITECTURES.values())}
    return {
        architecture: usage(written[other], architecture, library.use_cooperative, folder)
        for architecture, other in ARCHITECTURES.items()
    }


def ptx(library, architecture, folder):
    """PTX of a kernel."""
    unit = nvvm.CompilationUnit({"arch": f"compute_{architecture}", "opt": 3})
    for text in dict.fromkeys(str(module) for module in library.modules):
        unit.add_module(nvvm.llvm_replace(text).encode())
    unit.lazy_add_module((folder / "nvvm/libdevice/libdevice.10.bc").read_bytes())
    return unit.compile()


def usage(code, architecture, cooperative, folder):
    """Link PTX to a cubin, and read what that says of itself."""
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{architecture}", "-Xptxas=-v"]
    linker = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, code, len(code), "kernel")
        if cooperative:
            runtime = str(folder / "lib/libcudadevrt.a")
            nvjitlink.add_file(linker, nvjitlink.InputType.LIBRARY, runtime)
        nvjitlink.complete(linker)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
        log = bytearray(nvjitlink.get_info_log_size(linker))
        nvjitlink.get_info_log(linker, log)
    finally:
        nvjitlink.destroy(linker)
    return Usage(*read_registers(log.decode()), shared_size(bytes(cubin)))


def read_registers(log):
    """Registers of a thread and bytes that it spills, from the linker's report."""

    def largest(pattern):
        return max(map(int, re.findall(pattern, log)), default=0)

    registers = largest(r"Used (\d+) registers")
    assert registers, log
    return registers, largest(r"(\d+) bytes spill stores") + largest(r"(\d+) bytes spill loads")


def shared_size(cubin):
    """Sizes of the sections of static shared memory of an ELF file."""
    table, size, count, names_at = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<II8x8xQQ", cubin, table + i * size) for i in range(count)]
    names = sections[names_at][2]
    total = 0
    for name, _, _, length in sections:
        text = cubin[names + name : cubin.index(0, names + name)].decode()
        # The runtime's own, beside the kernel, are linked in with cooperative kernels.
        if re.match(r"\.nv\.shared\.(?!reserved|__nv_static)", text):
            total += length
    return total


def launch_steps(sg, index):
    """All kernels of filtering first."""
    import numpy as np

    from succinct.decode import Choice

    weight = np.zeros((70001, 1), np.float32)
    beams = np.zeros((1, 1, 1), np.float32), weight, index, [[0]], [[0.0]], 1
    for plan in (Choice(), Choice("list", "full", "radix"), Choice("mask", "full")):
        sg.filter_step(*beams, plan=plan)
    sg.filter_step(*beams, allowed=np.ones(3, bool))
    half = [cuda.to_device(array.astype(np.float16)) for array in (beams[0], weight)]
    there = (cuda.to_device(np.zeros((1, 1), dtype)) for dtype in (np.uint64, np.float32))
    half += [index, *there, 1]
    for projection in ("selective", "full"):
        sg.filter_step(*half, projection=projection)


def launch_decoder(sg, index):
    """A step of a decoder from all logits, and one from proposals."""
    import numpy as np

    decoder = sg.BeamDecoder(index, batch=1, beam_width=1)
    decoder.step(np.zeros((1, 70001), np.float32))
    decoder = sg.BeamDecoder(index, batch=1, beam_width=1)
    decoder.step(token_ids=[[1]], logprobs=[[0.0]])


@contextlib.contextmanager
def recording():
    """Note launches, which leave memory at zero: only the types of arguments are wanted."""
    nothing = simt.Counters(*[0] * len(simt.Counters._fields))
    with (
        mock.patch.object(_dropin, "_code"),
        mock.patch.object(_machine, "run", return_value=nothing),
        mock.patch.object(_devices, "_POISON", 0),
        simt.record() as seen,
    ):
        yield seen


def launched():
    """Every kernel that the public functions launch, with argument types, by name and index."""
    import numpy as np

    import succinct_gpu as sg
    from succinct import BitVector, CsrMap, EliasFano, KeyTable, LoudsTrie, PackedArray, StepMap

    keys = KeyTable.from_sequences([(1, 2, 3), (1, 2, 4), (70000,)])
    with simt.session(), recording() as seen:
        bits = sg.to_device(BitVector.from_bools([True, False]))
        for method in (bits.rank1, bits.rank0, bits.select1, bits.select0, bits.next_zero):
            method([0])
        bits[[0]]
        sg.to_device(PackedArray([1]))[[0]]
        values = sg.to_device(EliasFano([1, 5]))
        for method in (values.access, values.rank, values.next_geq):
            method([0])
        for kind in (CsrMap, LoudsTrie, StepMap):
            index = sg.to_device(kind.build(keys))
            index.allowed_mask([0])
            for dtype in (np.float32, np.float16):
                logits = np.zeros((1, 70001), dtype)
                sg.constrain(logits, index, [0])
                sg.candidates(logits, index, [0])
                sg.candidates(logits, index, [0], width=1, normalize="valid")
            launch_steps(sg, index)
            sg.beam_search(index, [[1], [2]], [[0.0], [0.0]], beam_width=1)
        for allowed in (np.ones(3, bool), np.full(1, 7, np.uint64)):
            sg.constrain(logits, index, [0], allowed=cuda.to_device(allowed))
        given = [cuda.to_device(np.zeros((2, 1), dtype)) for dtype in (np.int64, np.float32)]
        csr = sg.to_device(CsrMap.build(keys))
        sg.beam_search(csr, *given, beam_width=1)
        with simt.record() as timed:
            sg.Searcher(csr, max_beam_width=1, max_proposals=1, max_steps=2, timed=True).search(
                [[1], [2]], [[0.0], [0.0]], beam_width=1
            )
        with simt.record() as decoding:
            launch_decoder(sg, csr)
        with simt.record() as restricted:
            for kind in (CsrMap, LoudsTrie, StepMap):
                index, allowed = sg.to_device(kind.build(keys)), np.ones(3, bool)
                index.allowed_mask([0], allowed=allowed)
                sg.constrain(np.zeros((1, 70001), np.float32), index, [0], allowed=allowed)
                sg.candidates(
                    np.zeros((1, 70001), np.float32), index, [0], width=1, allowed=allowed
                )
    found = {}
    for launch in seen.launches:
        dtypes = {str(t.dtype) for t in launch.argument_types if getattr(t, "ndim", 0) == 2}
        kinds = (getattr(t, "instance_class", None) for t in launch.argument_types[:2])
        kind = next(filter(None, kinds), None)
        parts = [launch.name, *([kind.__name__] if kind else ()), *sorted(dtypes)]
        if launch in restricted.launches:
            parts.append("of eligible keys")
        if launch in timed.launches:
            parts.append("timed")
        if launch.name == "search" and launch in decoding.launches:
            whole = launch == decoding.launches[0]
            parts.append("of a decoder's " + ("logits" if whole else "proposals"))
        name = " ".join(parts)
        found[name] = launch.kernel, launch.argument_types
    return found


def main():
    """Write budgets.json: what each kernel takes now, with some registers to spare.

    With arguments only for kernels that have one of them in their names, and for new ones.
    """
    path = Path(__file__).parent / "budgets.json"
    before, budgets = json.loads(path.read_text()), {}
    for name, (kernel, argument_types) in sorted(launched().items()):
        wanted = not sys.argv[1:] or any(part in name for part in sys.argv[1:])
        if name in before and not wanted:
            budgets[name] = before[name]
            continue
        taken = usages(kernel, argument_types)
        print(name, taken)
        registers = max(usage.registers for usage in taken.values())
        budgets[name] = {
            # No thread has more than 255; what would need more spills.
            "registers": min(255, -(-registers // 8) * 8 + 8),
            "shared": taken[75].shared,
        }
    path.write_text(json.dumps(budgets, indent=1) + "\n")


if __name__ == "__main__":
    main()
