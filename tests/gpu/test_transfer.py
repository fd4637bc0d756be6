"""Indexes on their way to the device, and what stands in it."""

import time

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
from numba import cuda

import succinct_gpu as sg
from succinct import KeyTable, LoudsTrie, StepMap
from succinct_gpu import _device, _filter_step
from tests.gpu.runs import each_run, running


@pytest.fixture(scope="module")
def index():
    rows = np.random.default_rng(1).integers(0, 500, (400, 3))
    return LoudsTrie.build(KeyTable.from_rows(rows))


def flat(parts):
    for part in parts:
        if isinstance(part, tuple):
            yield from flat(part)
        else:
            yield part


def arrays_of(parts):
    return (part for part in flat(parts) if not isinstance(part, np.generic))


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


LAYOUTS = ["small", ["bitmap", "dac", "sparse"], ["huffman", "rice", "packed"]]


@each_run
@pytest.mark.parametrize(
    ("how", "layout"),
    [
        ({"transfer": sg.Transfer(buffers, 4000, threads=threads)}, layout)
        for (buffers, threads), layout in zip(((0, 1), (1, 1), (2, 3)), LAYOUTS, strict=True)
    ]
    + [({"memory": "managed", "device": 0, "transfer": sg.Transfer(2, 4000)}, LAYOUTS[1])],
    ids=str,
)
def test_what_is_built_on_the_device(run, how, layout):
    """Is byte for byte what is built on the host."""
    rows = np.random.default_rng(1).integers(0, 99, (5000, 3))
    rows[::7, 2] = 70_000
    keys = KeyTable.from_rows(rows)
    host = StepMap.build(keys, layout, tail=False)
    with running(run):
        device = sg.build_on_device(keys, layout, **how)
        assert type(device.arrays) is type(host.lane_arrays())
        pairs = zip(flat(device.arrays), flat(host.lane_arrays()), strict=True)
        for mine, theirs in pairs:
            there = mine.copy_to_host() if hasattr(mine, "copy_to_host") else np.asarray(mine)
            assert there.dtype == np.asarray(theirs).dtype
            assert np.array_equal(there, theirs)
        for name in ("n_keys", "n_states", "max_length", "vocab_size", "root"):
            assert getattr(device, name) == getattr(host, name)
        back = sg.to_host(device)
        assert back is sg.to_host(device)
        assert back.children(back.root)[0].tolist() == host.children(host.root)[0].tolist()
        assert back.info()["steps"] == host.info()["steps"]


def test_use_of_what_was_built_on_the_device():
    """Nothing asks for a copy on the host but what says so."""
    keys = KeyTable.from_rows(np.random.default_rng(1).integers(0, 40, (300, 3)))
    host = StepMap.build(keys, tail=False)
    states = np.array([host.root, host.walk(keys.tokens[:1])])
    with running("simt-in-order"):
        device = sg.build_on_device(keys)
        assert device._limits == sg.to_device(host)._limits
        with pytest.raises(ValueError, match=r"states\[1\] = 999999 is no state"):
            device.allowed_mask([0, 999999])
        beams = np.ones((1, 2, 3), np.float32), states[None], np.zeros((1, 2), np.float32)
        hidden, places, scores = map(cuda.to_device, beams)
        _filter_step.prepare(
            hidden, np.ones((41, 3), np.float32), device, places, scores, 4, "auto", "valid",
            None, None, None, 0, 0, None,
        )  # fmt: skip
        sg.Searcher(device, max_beam_width=2, max_proposals=2, max_steps=2)
        assert device._host is None
        sg.Searcher(device, max_beam_width=2, max_proposals=2, max_steps=2, variant="ppt")
        assert device._host is not None


def test_what_cannot_be_built():
    keys = KeyTable.from_sequences([(1, 2)])
    with running("simt-in-order"):
        with pytest.raises(TypeError, match="expected a KeyTable, got list"):
            sg.build_on_device([(1, 2)])
        with pytest.raises(ValueError, match="layout: step 0 must be one of"):
            sg.build_on_device(keys, "smallest")
        with pytest.raises(ValueError, match='"device" or "managed"'):
            sg.build_on_device(keys, memory="host")
        with pytest.raises(ValueError, match="0 to 0, got 3"):
            sg.build_on_device(keys, device=3)


@pytest.fixture(scope="module")
def table():
    return KeyTable.from_rows(np.random.default_rng(1).integers(0, 500, (4000, 3)))


@pytest.mark.parametrize("building", [False, True])
def test_buffers_take_turns(index, table, monkeypatch, building):
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
        if building:
            sg.build_on_device(table, transfer=sg.Transfer(buffer_bytes=1000))
        else:
            sg.to_device(index, transfer=sg.Transfer(buffer_bytes=512))
    assert seen[:2] == [("new", 0), ("sent", 0)]
    turns = [number for kind, number in seen if kind == "sent"]
    assert len(turns) > 8
    assert turns == [i % 2 for i in range(len(turns))]
    for i, (kind, number) in enumerate(seen):
        if kind == "sent" and i > 3:
            assert seen[i - 1] == ("wait", number)


@pytest.mark.parametrize("building", [False, True])
def test_the_rate_is_kept(index, table, monkeypatch, building):
    slept = []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    if building:
        index = StepMap.build(table, tail=False)
    sent = sum(array.nbytes for array in arrays_of(index.lane_arrays()))
    with running("simt-in-order"):
        from succinct_gpu import _transfer

        monkeypatch.setattr(_transfer.Uploader._wait, "__defaults__", (slept.append,))
        transfer = sg.Transfer(bytes_per_second=1000.0, buffer_bytes=5000)
        if building:
            sg.build_on_device(table, transfer=transfer)
        else:
            sg.to_device(index, transfer=transfer)
    # Of what is built, a word that two pieces share is sent twice.
    assert slept[-1] == pytest.approx(sent / 1000, rel=0.1 if building else 1e-9)
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
