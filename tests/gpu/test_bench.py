"""The benchmark of the device runs from begin to end, in the executor."""

import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")

import succinct_gpu as sg
from bench import gpu
from succinct_gpu import simt


def test_what_is_counted(capsys):
    assert gpu.main(["--executor"]) == 0
    text = capsys.readouterr().out
    for title in (
        "Latencies",
        "Searches over",
        "Phases of a search",
        "A step of masking",
        "Steps from hidden states",
    ):
        assert f"## {title}" in text
    rows = [line for line in text.splitlines() if line.startswith("| 1 | StepMap | selective | ")]
    assert len(rows) == 5
    assert all(int(row.split("|")[5]) == 6 for row in rows)  # launches
    assert "| grid sync | 4 | 1 |" in text
    phases = [line.split("|") for line in text.splitlines() if line.startswith("| 1000 | ")]
    phases = [cells for cells in phases if cells[2].strip() in ("expand", "select", "trace back")]
    assert len(phases) == 17
    assert abs(sum(float(cells[5]) for cells in phases) - 1) < 0.01
    # Nothing is measured where there is no device.
    assert " us |" not in text


def test_builds():
    with simt.session():
        found = gpu.builds(gpu.Bench(executor=True))
    assert [row["buffers"] for row in found.rows][:: len(found.rows) // 3] == [2, 1, 0]


def test_no_device(capsys):
    if sg.is_available():
        pytest.skip("there is a device")
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "--executor" in capsys.readouterr().err


def test_limits_and_sums():
    rows = [
        {"batch": 32, "structure": "StepMap", "way": "band", "step": step, "median_us": 85.0,
         "least_us": 80.0}
        for step in (1, 2)
    ]  # fmt: skip
    steps = gpu.Table("filtering", "", {}, rows)
    [row] = gpu.sums(steps).rows
    assert (row["median_us"], row["least_us"], row["ratio"]) == (170.0, 160.0, 1.0)
    assert "| 32 | StepMap | band | 170.0 | 160.0 | 170.0 | 1.0 |" in gpu.markdown(gpu.sums(steps))
