"""Building an index where it is to be: on the device, with no copy of it on the host."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from succinct import BitVector, KeyTable, StepMap
from succinct._walker import Core
from succinct.index import DEAD, Index
from succinct.maps import lanes
from succinct.maps.pieces import Pieces
from succinct.maps.plan import Plan
from succinct.maps.stepmap import lanes_of, read_layout
from succinct.trie.passes import Passes
from succinct_gpu._device import nbytes_of
from succinct_gpu._index import DeviceIndex, check_room
from succinct_gpu._transfer import Transfer, Uploader


class _Away(Core):
    """Stands for navigation on the host; knows states, but nothing of what lies behind them."""

    def __init__(self, n_states: int) -> None:
        self.n_states = n_states

    def bad_state(self, states: NDArray[np.uint64]) -> int:
        """The place of the first number that is no state and not DEAD, or -1."""
        bad = np.flatnonzero((states >= self.n_states) & (states != DEAD))
        return int(bad[0]) if bad.size else -1

    def degrees(self, states: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
        """Of no states only."""
        if states.size:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Say what to do."""
        raise RuntimeError("the index is on the device only; succinct_gpu.to_host brings it here")


class _Facts(Index):
    """What is known on the host of an index that is on the device."""

    def __init__(self, passes: Passes, nbytes: int) -> None:
        levels = passes.prefixes, passes.low, passes.high
        super().__init__(_Away(int(passes.prefixes.sum())), *levels, {})
        self._n_keys, self._nbytes = passes.keys.n_keys, nbytes

    @property
    def n_keys(self) -> int:
        return self._n_keys

    @property
    def nbytes(self) -> int:
        return self._nbytes


class BuiltIndex(DeviceIndex):
    """A `StepMap` that was built on the device; see `succinct_gpu.build_on_device`."""

    def __init__(
        self, keys: KeyTable, names: list[str], stream: Any, memory: str, transfer: Transfer
    ) -> None:
        self._host: Index | None = None
        plan = Plan(Passes(keys, transfer.threads), names)
        self._steps, self._place = plan.steps, plan.place
        check_room(plan.place.nbytes, memory)
        pieces = Pieces(plan, transfer.buffer_bytes // 8)
        uploader = Uploader(transfer, memory, stream, 8 * pieces.capacity)
        arrays = {name: uploader.new(size, np.uint64) for name, size in pieces.sizes.items()}
        _send(pieces, arrays, uploader)
        bits = pieces.directory()
        parts = {name: uploader(part) for name, part in bits._asdict().items() if np.ndim(part)}
        bits = bits._replace(**{**parts, "words": arrays["bits"]})
        n_states = int(plan.passes.prefixes.sum())
        known = lanes_of(plan.place, bits, arrays["values"], n_states, 63)
        there = known._replace(table=uploader(known.table), tails=uploader(known.tails))
        self._levels = plan.passes.prefixes, plan.passes.low, plan.passes.high
        self._hold(_Facts(plan.passes, nbytes_of(there)), lanes, known, there)
        uploader.finish()

    def to_host(self) -> Index:
        """A copy of the index on the host, made when it is first asked for and kept."""
        if self._host is None:
            words = np.asarray(_host_copy(self.arrays.bits.words))
            bits = BitVector.from_storage(words, self._place.n_bits)
            values = np.asarray(_host_copy(self.arrays.values))
            self._host = StepMap._of(self._steps, (), self._place, bits, values, self._levels, None)
        return self._host


def _send(pieces: Pieces, arrays: dict[str, Any], uploader: Uploader) -> None:
    """Fill one piece after another, and send it while the next one is filled."""
    for fill in pieces:
        words = uploader.take().view(np.uint64)
        runs = fill(words)
        for run in runs:
            target = arrays[run.array][run.to : run.to + run.end - run.begin]
            uploader.put(words[run.begin : run.end], target)
        uploader.give(8 * sum(run.end - run.begin for run in runs))


def _host_copy(array: Any) -> NDArray[Any]:
    return array.copy_to_host() if hasattr(array, "copy_to_host") else np.array(array)


def build(
    keys: Any, layout: Any, stream: Any, memory: str, transfer: Transfer | None
) -> DeviceIndex:
    """See `succinct_gpu.build_on_device`."""
    names = read_layout(keys, layout)
    how = transfer or Transfer()
    if how.buffers == 0:
        index = StepMap.build(keys, layout, False, num_threads=how.threads)
        return DeviceIndex(index, stream, memory, how)
    return BuiltIndex(keys, names, stream, memory, how)
