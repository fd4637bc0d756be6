"""What importing costs, what the GPU package says, and what a public name comes with."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import succinct
import succinct_gpu

ROOT = Path(succinct.__file__).parent
HEAVY = ("numba", "llvmlite", "cupy", "numba_cuda", "torch", "pyarrow", "tokenizers", "tiktoken")


@pytest.mark.parametrize("module", ["succinct", "succinct.cli", "succinct_gpu"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(n for n in {HEAVY} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_reference_imports_nothing_that_it_checks() -> None:
    for path in (ROOT / "reference").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] != "numpy", path
                assert not name.startswith("succinct") or name.startswith("succinct.reference")


@pytest.mark.skipif(succinct_gpu.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("hidden", [(), ("numba.cuda.core",)])
def test_gpu_package_explains_itself(
    hidden: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    assert succinct_gpu.is_available() is False
    logits = np.zeros((1, 4), np.float32)
    step = (logits[None, :, :2], np.zeros((4, 2), np.float32), None, [[0]], [[0.0]], 1)
    room = {"max_batch": 1, "max_beam_width": 1, "max_proposals": 1, "max_steps": 1}
    calls = {
        "to_device": lambda: succinct_gpu.to_device(None),
        "build_on_device": lambda: succinct_gpu.build_on_device(None),
        "to_host": lambda: succinct_gpu.to_host(None),
        "constrain": lambda: succinct_gpu.constrain(logits, None, [0]),
        "candidates": lambda: succinct_gpu.candidates(logits, None, [0]),
        "device_functions": lambda: succinct_gpu.device_functions(None),
        "beam_search": lambda: succinct_gpu.beam_search(None, [[1]], [[0.0]], beam_width=1),
        "Searcher": lambda: succinct_gpu.Searcher(None, **room),
        "BeamDecoder": lambda: succinct_gpu.BeamDecoder(None, batch=1, beam_width=1),
        "filter_step": lambda: succinct_gpu.filter_step(*step),
        "capture_step": lambda: succinct_gpu.capture_step(*step),
        "calibrate": lambda: succinct_gpu.calibrate(None, step[1]),
    }
    need_none = {"is_available", "Phases", "Transfer", "Workspace"}
    assert {*calls, *need_none} == set(succinct_gpu.__all__)
    for name, call in calls.items():
        with pytest.raises(RuntimeError, match=rf"succinct_gpu\.{name} needs .*on the CPU"):
            call()
    if hidden:
        with pytest.raises(RuntimeError, match=r"pip install .*cuda12.* or .*cuda13"):
            succinct_gpu.to_device(None)


@pytest.mark.parametrize("name", sorted(succinct.__all__))
def test_public_names_have_examples(name: str) -> None:
    value = getattr(succinct, name)
    if isinstance(value, np.generic) or (inspect.isclass(value) and issubclass(value, Exception)):
        return
    assert inspect.getdoc(value), name
    assert ">>>" in inspect.getdoc(value), name


def test_compiled_modules_have_stubs() -> None:
    for path in ROOT.rglob("*.pyx"):
        assert path.with_suffix(".pyi").exists(), f"{path} has no .pyi beside it"
    assert (ROOT / "py.typed").exists()
