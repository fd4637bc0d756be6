"""Every kernel compiles for every architecture, spills nothing, and stays within its budget."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")

from tests.gpu import cubins

BUDGETS = json.loads((Path(__file__).parent / "budgets.json").read_text())


@pytest.mark.slow
def test_budgets():
    cubins.toolkit()
    kernels = cubins.launched()
    assert sorted(kernels) == sorted(BUDGETS), "python -m tests.gpu.cubins writes budgets.json"
    for name, (kernel, argument_types) in kernels.items():
        for architecture, usage in cubins.usages(kernel, argument_types).items():
            at = f"{name} on sm_{architecture}: {usage}"
            assert usage.spilled == 0, at
            assert usage.registers <= BUDGETS[name]["registers"], at
            # From sm_90 on, 1 KiB of a block's shared memory is the system's.
            system = 1024 if architecture >= 90 else 0
            assert usage.shared - system <= BUDGETS[name]["shared"], at


@pytest.mark.parametrize("name", ["select_in_block", "fill_slots LoudsLanes float32"])
def test_shared_ptx(name):
    folder = cubins.toolkit()
    library = cubins.front_end(*cubins.launched()[name])
    for architecture, other in cubins.ARCHITECTURES.items():
        own, shared = (
            re.sub(r"(?m)^\.target.*$", "", bytes(cubins.ptx(library, number, folder)).decode())
            for number in (architecture, other)
        )
        assert own == shared, f"{name} on sm_{architecture}"


def test_spills_are_read():
    log = "Used 40 registers, used 1 barriers\n 8 bytes spill stores, 12 bytes spill loads"
    assert cubins.read_registers(log) == (40, 20)
