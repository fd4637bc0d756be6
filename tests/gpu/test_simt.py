"""The executor: kernels compute what a device would, and every planted fault is found."""

import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

from succinct_gpu import simt
from tests.gpu import simt_kernels as kernels

SCHEDULES = [("in-order", 0), ("reversed", 0), ("random", 1), ("random", 2)]


@pytest.fixture(params=SCHEDULES, ids=lambda schedule: f"{schedule[0]}-{schedule[1]}")
def scheduled(request):
    schedule, seed = request.param
    with simt.session(schedule=schedule, seed=seed, race_check=True):
        yield


@pytest.fixture
def executor():
    with simt.session(race_check=True):
        yield


# What kernels compute


def lanes_of(values):
    """Rows of 32."""
    return values.reshape(-1, 32)


def test_dimensions(scheduled):
    out = np.zeros(12 * 66, np.int64)
    kernels.where[(2, 3, 2), (11, 3, 2)](out)
    thread = np.arange(66)
    expected = np.arange(12)[:, None] * 10000 + thread % 32 * 100 + 32
    assert (out.reshape(12, 66) == expected).all()


def test_votes(scheduled):
    values = np.zeros(128, np.int32)
    values[5] = values[31] = 1
    values[64:96] = 3
    values[97] = 1
    results = [np.zeros(128, np.int64) for _ in range(4)]
    kernels.votes[2, 64](values, *results)
    bits = lanes_of(values != 0)
    ballots = (bits << np.arange(32)).sum(axis=1)
    ballots = ballots.astype(np.uint32).astype(np.int32)
    some, every = bits.any(axis=1), bits.all(axis=1)
    for found, expected in zip(results, (ballots, some, every, every | ~some), strict=True):
        assert (lanes_of(found) == expected[:, None]).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_shuffles(executor, dtype):
    values = np.random.default_rng(1).integers(-(2**20), 2**20, 64).astype(dtype)
    values[7] = np.array(-1 if np.dtype(dtype).kind == "i" else -0.0, dtype)
    results = [np.zeros(64, dtype) for _ in range(4)]
    kernels.shuffles[1, 64](values, *results)
    lane = np.arange(32)
    sources = (
        np.full(32, 5),
        np.where(lane >= 3, lane - 3, lane),
        np.where(lane < 29, lane + 3, lane),
        lane ^ 6,
    )
    for found, source in zip(results, sources, strict=True):
        assert found.tobytes() == lanes_of(values)[:, source].tobytes()


def test_matches(scheduled):
    values = np.random.default_rng(2).integers(0, 4, 64)
    values[32:] += 1 << 62
    like, mask, alike = (np.zeros(64, np.uint32), np.zeros(64, np.int64), np.zeros(64, np.int8))
    values[40] = 0
    kernels.matches[1, 64](values, like.view(np.int32), mask, alike)
    same = lanes_of(values)[:, :, None] == lanes_of(values)[:, None, :]
    assert (lanes_of(like) == (same << np.arange(32)).sum(axis=2)).all()
    assert alike.tolist() == [1] * 32 + [0] * 32
    assert (mask.astype(np.uint32) == np.repeat([2**32 - 1, 0], 32)).all()


def test_operations_of_parts_of_a_warp(scheduled):
    out = np.zeros(32, np.int64)
    kernels.half_warps[1, 32](out)
    assert set(out[:16]) == {0xAAAA}
    assert {int(word) & 0xFFFFFFFF for word in out[16:]} == {0xCCCC0000}


def test_counting_barriers(scheduled):
    for positive, expected in ((70, 7011), (3, 301), (0, 0)):
        values, out = np.zeros(70, np.int64), np.zeros(70, np.int64)
        values[:positive] = 1
        kernels.counted[1, 70](values, out)
        assert set(out) == {expected}


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_words(executor, dtype):
    bits = np.dtype(dtype).itemsize * 8
    values = np.array([1, 2, 3, 1 << (bits - 1), 0x80F0, 0, 2**bits - 1, 6 << 20], dtype)
    counts, firsts, leading = (np.zeros(8, np.int64) for _ in range(3))
    reversed_ = np.zeros(8, dtype)
    kernels.words[1, 8](values, counts, firsts, leading, reversed_)
    texts = [f"{int(value):0{bits}b}" for value in values]
    assert counts.tolist() == [text.count("1") for text in texts]
    assert firsts.tolist() == [bits - text.rindex("1") if "1" in text else 0 for text in texts]
    assert leading.tolist() == [(text + "1").index("1") for text in texts]
    assert reversed_.tolist() == [int(text[::-1], 2) for text in texts]


def test_atomics(scheduled):
    totals, floats, doubles = np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1)
    least, most = np.zeros(1, np.int64), np.zeros(1, np.float32)
    wrapped, first = np.zeros(1, np.uint32), np.array([-1, 0])
    kernels.atomics[5, 70](totals, floats, doubles, least, most, wrapped, first)
    assert (totals[0], floats[0], doubles[0], least[0], most[0]) == (350, 350, 175, -7, 349)
    assert wrapped[0] == 350 % 10
    assert 0 <= first[0] < 350
    assert first[1] == 1


def test_float16(executor):
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    out = np.zeros_like(values)
    kernels.halves[256, 256](values, out)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (values.astype(np.float32) * 2).astype(np.float16)
    assert np.array_equal(out, expected, equal_nan=True)
    doubles = np.zeros(values.size, np.float64)
    kernels.to_double[256, 256](values, doubles)
    assert np.array_equal(doubles, values.astype(np.float64), equal_nan=True)
    generator = np.random.default_rng(3)
    singles = generator.integers(0, 2**32, 20000, np.uint32).view(np.float32)
    near = values.astype(np.float32)
    with np.errstate(all="ignore"):
        middle = (near[:-1] + near[1:]) / np.float32(2)
        beside = [np.nextafter(x, np.float32(0)) for x in (near, middle)]
    singles = np.concatenate([singles, near, middle, *beside])
    out = np.zeros(singles.size, np.float16)
    kernels.to_half[-(-singles.size // 256), 256](singles, out)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = singles.astype(np.float16)
    assert np.array_equal(out, expected, equal_nan=True)
    assert (np.signbit(out) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mathematics(executor, dtype):
    values = np.array([0.5, 1.0, 2.5, 7.75], dtype)
    out = np.zeros((4, 6), dtype)
    kernels.mathematics[1, 4](values, out)
    x = values
    expected = np.stack([np.exp(x), np.log(x), np.sqrt(x), x**1.5, np.floor(x), 0 * x], axis=1)
    np.testing.assert_allclose(out, expected, rtol=2e-7 if dtype == np.float32 else 1e-15)


def test_shared_arrays(scheduled):
    values, out = np.arange(32) + 5, np.zeros(32, np.int64)
    kernels.two_arrays[1, 32, 0, 128](values, out)
    i = np.arange(32)[::-1]
    assert (out == (i + 5) * 1000 + i - i).all()
    with pytest.raises(simt.SimtError, match=r"outside shared memory"):
        kernels.two_arrays[1, 32, 0, 64](values, out)


def test_grid_sync(scheduled):
    a, b = np.arange(6 * 40), np.zeros(6 * 40, np.int64)
    with simt.record() as seen:
        kernels.rotate[6, 40](a, b, 5)
    assert (b == np.roll(np.arange(240), 5)).all()
    assert seen.launches[0][0] == "rotate"
    assert seen.counters.grid_syncs == 5
    assert seen.counters.global_stores == 5 * 240
    assert seen.counters.global_loads == 5 * 240  # parameters are no memory of the device


def test_order_inside_a_warp(scheduled):
    out = np.zeros(64, np.int32)
    kernels.warp_ordered[1, 64](out)
    assert out.tolist() == list(range(64))


def test_named_tuples(scheduled):
    class Inner(NamedTuple):
        words: np.ndarray

    class Outer(NamedTuple):
        words: np.ndarray
        more: Inner
        shift: np.int64

    parts = Outer(np.arange(40, dtype=np.uint64), Inner(np.full(1, 1000, np.uint64)), np.int64(7))
    out = np.zeros(40, np.int64)
    kernels.tuple_of[1, 40](parts, out)
    assert (out == np.arange(40) + 1007).all()


def test_declared_signature(executor):
    declared = cuda.jit("void(int64[:], int64)")(kernels.to_be_declared)
    out = np.zeros(10, np.int64)
    declared[1, 10](out, np.int32(3))
    assert out.tolist() == [6 * i for i in range(10)]
    with pytest.raises(TypeError, match=r"No matching definition"):
        declared[1, 10](np.zeros(10), 3)


def test_device_arrays(executor):
    host = np.arange(64)
    array = cuda.to_device(host)
    kernels.count_up.forall(32)(array[32:])
    host[:] = 0
    assert array.copy_to_host(host)[33] == 1
    assert host[:32].tolist() == list(range(32))
    again = cuda.device_array_like(host)
    again.copy_to_device(array)
    assert (np.asarray(again) == host).all()
    assert again[5] == 5
    assert cuda.as_cuda_array(again) is again
    assert again.reshape(8, 8).T.shape == (8, 8)
    with pytest.raises(ValueError, match="expected an array of int64"):
        again.copy_to_device(host[:3])


def test_host_arrays_are_copied(executor):
    """Writes show when the launch is over, unless a hint says otherwise."""
    for hint, expected in ((cuda.In, 9), (cuda.Out, 3), (cuda.InOut, 3)):
        host = np.full(4, 9)
        kernels.count_up[1, 4](hint(host))
        assert host[3] == expected


def test_launch_configuration(executor):
    a = np.zeros(4)
    for grid, block in ((0, 1), (1, 0), (1, 1025), (1, (32, 33)), ((1, 1, 1, 1), 1)):
        with pytest.raises(ValueError, match="expected"):
            kernels.count_up[grid, block](a)
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        kernels.count_up[1, 1](a, a)


def test_options():
    with pytest.raises(ValueError, match="schedule: expected one of in-order"):
        simt.Options(schedule="sideways")
    with pytest.raises(ValueError, match="seed"):
        simt.Options(seed=-1)
    assert not simt.enabled()
    before = cuda.is_available
    with simt.session():
        assert simt.enabled()
        assert cuda.is_available()
        assert cuda.current_context().get_memory_info().free > 0
    assert cuda.is_available is before


# Faults

FAULTS = {
    "behind_the_end": (2, 40, r"write of 8 bytes outside .* at byte \d+ of a, which has 512"),
    "before_the_begin": (1, 64, r"read of 8 bytes outside .* of a, .* in before_the_begin"),
    "shared_race": (1, 64, r"data race on shared memory|nothing wrote"),
    "lane_race": (1, 32, r"data race on shared memory|nothing wrote"),
    "overwritten_too_soon": (1, 64, r"data race on shared memory"),
    "block_race": (2, 32, r"data race on a at byte 0"),
    "mixed_race": (1, 40, r"data race on a at byte 0"),
    "nothing_wrote": (1, 64, r"read of 8 bytes of shared memory that nothing wrote"),
    "half_a_block_at_a_barrier": (1, 64, r"while others wait at syncthreads|after a thread"),
    "early_return": (1, 64, r"while others wait at syncthreads|after a thread"),
    "different_barriers": (1, 64, r"different syncthreads"),
    "different_operations": (1, 64, r"different warp operations"),
    "returned_lanes": (1, 32, r"names a lane that has returned"),
    "not_in_mask": (1, 32, r"leaves out the caller"),
    "barrier_against_grid": (1, 64, r"deadlock: .*32 at syncthreads and 32 at a grid sync"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(scheduled, name):
    grid, block, message = FAULTS[name]
    with pytest.raises(simt.SimtError, match=message) as error:
        getattr(kernels, name)[grid, block](np.zeros(64, np.int64))
    assert "simt_kernels.py:" in str(error.value)
    assert f" in {name}" in str(error.value)


def test_outside_shared_memory(scheduled):
    a = np.zeros(32, np.int64)
    kernels.outside_shared[1, 32](a)
    a[0] = 1
    with pytest.raises(simt.SimtError, match="outside shared memory"):
        kernels.outside_shared[1, 32](a)


def test_missing_grid_sync(scheduled):
    a, b = np.arange(96), np.zeros(96, np.int64)
    with pytest.raises(simt.SimtError, match=r"data race on [ab] at byte"):
        kernels.two_steps_without_sync[3, 32](a, b)


def test_time_limit():
    with simt.session(timeout=0.05), pytest.raises(simt.SimtError, match="not ended within"):
        kernels.spins[1, 1](np.zeros(1, np.int64))


def test_checks_can_be_left_out():
    with simt.session(race_check=False):
        kernels.shared_race[1, 64](np.zeros(64, np.int64))
    with simt.session(memory_check=False), simt.record() as seen:
        kernels.behind_the_end[1, 8](np.zeros(8, np.int64))
    assert seen.counters.global_stores == 0


def test_nothing_is_left_behind_by_a_fault(executor):
    """The next launch runs as if nothing had been."""
    for _ in range(20):
        with pytest.raises(simt.SimtError):
            kernels.shared_race[1, 64](np.zeros(64, np.int64))
    out = np.zeros(64, np.int32)
    kernels.warp_ordered[1, 64](out)
    assert out.tolist() == list(range(64))


# From the command line

SCRIPT = """
import sys
import numpy as np
from numba import cuda
import succinct_gpu
@cuda.jit
def race(a):
    i = cuda.grid(1)
    a[0] = i
print(sys.argv[1:], succinct_gpu.is_available(), cuda.is_available(), __name__)
race[1, int(sys.argv[1])](np.zeros(1, np.int64))
"""


def run_script(tmp_path, *arguments):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "succinct_gpu.simt", *arguments]
    command[command.index("SCRIPT")] = str(script)
    return subprocess.run(command, capture_output=True, text=True)


def test_command_line(tmp_path):
    done = run_script(tmp_path, "--schedule", "random", "--seed", "3", "SCRIPT", "64", "--x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['64', '--x'] True True __main__\n"
    done = run_script(tmp_path, "--race-check", "--counters", "SCRIPT", "1")
    assert done.returncode == 0, done.stderr
    assert "global_stores=1" in done.stderr
    done = run_script(tmp_path, "--race-check", "SCRIPT", "64")
    assert done.returncode == 1
    assert "data race on a at byte 0" in done.stderr
    done = run_script(tmp_path, "--schedule", "sideways", "SCRIPT", "1")
    assert done.returncode == 2
