"""Indexes on their way to the device, and what stands in it."""

import time

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct_gpu as sg
from succinct import KeyTable, LoudsTrie
from succinct_gpu import _device
from tests.gpu.runs import each_run, running


@pytest.fixture(scope="module")
def index():
    rows = np.random.default_rng(1).integers(0, 500, (400, 3))
    return LoudsTrie.build(KeyTable.from_rows(rows))


def arrays_of(parts):
    for part in parts:
        if isinstance(part, tuple):
            yield from arrays_of(part)
        elif not isinstance(part, np.generic):
            yield part


@each_run
@pytest.mark.parametrize(
    "how",
    [
        {"transfer": sg.Transfer(buffers=buffers, buffer_bytes=1000, threads=threads)}
        for buffers, threads in ((0, 1), (1, 1), (2, 1), (2, 3))
    ]
    + [{"memory": "managed"}, {"device": 0}],
    ids=str,
)
def test_every_byte_arrives(run, index, how):
    with running(run):
        device = sg.to_device(index, **how)
        pairs = zip(arrays_of(device.arrays), arrays_of(index.lane_arrays()), strict=True)
        for mine, theirs in pairs:
            host = mine.copy_to_host() if hasattr(mine, "copy_to_host") else np.asarray(mine)
            assert host.dtype == theirs.dtype
            assert (host == theirs).all()
        assert sg.to_host(device) is index


def test_buffers_take_turns(index, monkeypatch):
    """One is filled while the other is sent, and none before what is in it has been."""
    seen = []

    class Event:
        def __init__(self):
            self.number = sum(kind == "new" for kind, _ in seen)
            seen.append(("new", self.number))

        def record(self, stream):
            seen.append(("sent", self.number))

        def synchronize(self):
            seen.append(("wait", self.number))

    with running("simt-in-order"):
        monkeypatch.setattr(cuda, "event", Event)
        sg.to_device(index, transfer=sg.Transfer(buffer_bytes=512))
    assert seen[:2] == [("new", 0), ("sent", 0)]
    turns = [number for kind, number in seen if kind == "sent"]
    assert len(turns) > 8
    assert turns == [i % 2 for i in range(len(turns))]
    for i, (kind, number) in enumerate(seen):
        if kind == "sent" and i > 3:
            assert seen[i - 1] == ("wait", number)


def test_the_rate_is_kept(index, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    sent = sum(array.nbytes for array in arrays_of(index.lane_arrays()))
    with running("simt-in-order"):
        from succinct_gpu import _transfer

        monkeypatch.setattr(_transfer.Uploader._wait, "__defaults__", (slept.append,))
        sg.to_device(index, transfer=sg.Transfer(bytes_per_second=1000.0))
    assert slept[-1] == pytest.approx(sent / 1000)
    assert slept == sorted(slept)


def test_bad_arguments(index):
    for options, message in (
        ({"buffers": 3}, "buffers: expected 0, 1 or 2, got 3"),
        ({"buffer_bytes": 0}, "buffer_bytes"),
        ({"threads": 0}, "threads"),
        ({"bytes_per_second": 0}, "bytes_per_second: expected more than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            sg.Transfer(**options)
    with running("simt-in-order"):
        with pytest.raises(ValueError, match='"device" or "managed", got \'host\''):
            sg.to_device(index, memory="host")
        with pytest.raises(ValueError, match="0 to 0, got 1; on the CPU"):
            sg.to_device(index, device=1)
        device = sg.to_device(index)
        device.device = 1
        with pytest.raises(ValueError, match=r"it is on device 1, and device 0 .*gpus\[1\]"):
            device_mask = sg.constrain(np.zeros((1, 500), np.float32), device, [index.root])
            assert device_mask is None


def test_an_array_of_another_device(index, monkeypatch):
    def refuse(x, sync=True):
        raise RuntimeError("invalid context")

    with running("simt-in-order"):
        device, logits = sg.to_device(index), cuda.to_device(np.zeros((1, 500), np.float32))
        monkeypatch.setattr(cuda, "as_cuda_array", refuse)
        with pytest.raises(
            ValueError, match=r"logprobs: expected an array on device 0.*on the CPU"
        ):
            sg.constrain(logits, device, [index.root])


def test_a_driver_that_is_too_old(index, monkeypatch):
    with running("simt-in-order"):
        monkeypatch.setattr(_device, "cuda_versions", lambda: (13, 12))
        with pytest.raises(RuntimeError, match=r"for CUDA 13, .* CUDA 12; pip .*\[cuda12\].* CPU"):
            sg.to_device(index)
        assert not sg.is_available()
