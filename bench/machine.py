"""What the figures were taken on, without names of hosts or paths."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from succinct.bits.bitvector import isa


def machine() -> dict[str, str]:
    """Processor, caches, memory, compilers and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("succinct-tries", "numpy", "numba", "Cython")
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "caches": _caches(),
        "memory": f"{memory:.0f} GiB",
        "kernels": f"{isa()} (SUCCINCT_ISA sets another)",
        "compiler": compiler_version(),
        "software": ", ".join(
            [f"Python {platform.python_version()}", *(f"{p} {installed(p)}" for p in packages)]
        ),
    }


def installed(package: str) -> str:
    """Version of a package, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def compiler_version() -> str:
    """First line of what the C compiler says of itself."""
    command = [os.environ.get("CC", "cc").split()[0], "--version"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "no C compiler"
    return told.splitlines()[0]


def _processor() -> str:
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine()
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields.get('model', '?')})"
    return name


def _caches() -> str:
    found = []
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (place / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            kibibytes = int(size.removesuffix("K"))
            big = kibibytes >= 4096
            found.append(
                f"L{level} {kibibytes // 1024} MiB" if big else f"L{level} {kibibytes} KiB"
            )
    return ", ".join(found) or "unknown"
