"""Kernels over bit-vectors and packed arrays, and the classes that launch them.

Rank, select and access take one thread a query: a rank reads a block count and up to eight
adjacent words, a select adds a binary search between two samples, so each is a chain of a few
dependent misses. `next_zero` takes one warp a query, which looks at 32 words at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import DTypeLike, NDArray

from succinct import _args
from succinct.bits.lanes import (
    BitLanes,
    EliasFanoLanes,
    PackedLanes,
    elias_fano_get,
    elias_fano_rank,
    get_bit,
    packed_get,
    rank1,
    select0,
    select1,
)
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import as_device_array, is_device_array, upload, upload_tuple
from succinct_gpu._dlpack import taken

_FULL = 0xFFFFFFFF
_BLOCK = 256
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)


def warp_next_zero(bits: BitLanes, i: np.int64, limit: np.int64) -> np.int64:
    """First position of a 0 in [i, limit), or `limit`; 0 <= i and limit <= n.

    All lanes of a warp must call it with the same arguments, and get the same answer: each looks
    at every 32nd word, and a ballot finds the first lane that has a 0.
    """
    lane = np.int64(cuda.laneid)
    j = i >> 6
    last = (limit - 1) >> 6
    while j <= last:
        word = np.uint64(0)
        if j + lane <= last:
            word = bits.words[j + lane] ^ _ALL
            if j + lane == i >> 6:
                word = word & (_ALL << np.uint64(i & 63))
        ballot = cuda.ballot_sync(_FULL, word != np.uint64(0))
        if ballot != 0:
            source = cuda.ffs(ballot) - 1
            found = ((j + lane) << 6) + np.int64(cuda.ffs(word)) - np.int64(1)
            return min(np.int64(cuda.shfl_sync(_FULL, found, source)), limit)
        j += 32
    return limit


# Queries may come from the device, unchecked: each kernel answers none out of range.


def _get_bits(bits: BitLanes, length: np.int64, at: Any, out: Any) -> None:
    """A bit each. Cost: 8 bytes in, 1 out, and one dependent load."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = 0 <= at[q] < length and get_bit(bits, at[q])


def _rank1s(bits: BitLanes, length: np.int64, at: Any, out: Any) -> None:
    """Ones before positions. Cost: 16 bytes and ten loads that depend on the query alone, eight of
    them of one line of 64 bytes: one miss deep."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = rank1(bits, at[q]) if 0 <= at[q] <= length else np.int64(-1)


def _rank0s(bits: BitLanes, length: np.int64, at: Any, out: Any) -> None:
    """Zeros before positions, at the cost of `_rank1s`."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = at[q] - rank1(bits, at[q]) if 0 <= at[q] <= length else np.int64(-1)


def _select1s(bits: BitLanes, ones: np.int64, at: Any, out: Any) -> None:
    """Positions of ones. Cost: 16 bytes; two samples, a search among the blocks between them (one
    or two where ones are spread evenly) and a line of words: three misses deep, or more."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = select1(bits, at[q]) if 0 <= at[q] < ones else np.int64(-1)


def _select0s(bits: BitLanes, zeros: np.int64, at: Any, out: Any) -> None:
    """Positions of zeros, at the cost of `_select1s`."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = select0(bits, at[q]) if 0 <= at[q] < zeros else np.int64(-1)


def _next_zeros(bits: BitLanes, length: np.int64, at: Any, out: Any) -> None:
    """Zeros from positions on, a warp each. Cost: a coalesced load of 256 bytes and a ballot for
    each 2,048 bits looked at, and one shuffle."""
    q = cuda.grid(1) >> 5
    if q < at.size:  # the same for all lanes of a warp
        found = np.int64(-1)
        if 0 <= at[q] <= length:
            found = warp_next_zero(bits, at[q], length)
        if cuda.laneid == 0:
            out[q] = found


def _packed_gets(packed: PackedLanes, length: np.int64, at: Any, out: Any) -> None:
    """Values of an array. Cost: 16 bytes and two adjacent loads: one miss deep."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = packed_get(packed, at[q]) if 0 <= at[q] < length else np.uint64(0)


def _elias_fano_gets(values: EliasFanoLanes, length: np.int64, at: Any, out: Any) -> None:
    """Values. Cost: a select and, beside it, two adjacent loads: three misses deep, or more."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = elias_fano_get(values, at[q]) if 0 <= at[q] < length else np.uint64(0)


def _elias_fano_ranks(values: EliasFanoLanes, length: np.int64, at: Any, out: Any) -> None:
    """Values below. Cost: two selects beside each other, then log2 of the values of a bucket, one
    load after the other."""
    q = cuda.grid(1)
    if q < at.size:
        out[q] = elias_fano_rank(values, at[q])


def _elias_fano_next(values: EliasFanoLanes, length: np.int64, at: Any, out: Any) -> None:
    """The next values. Cost: that of `_elias_fano_ranks`, then of `_elias_fano_gets`."""
    q = cuda.grid(1)
    if q < at.size:
        found = elias_fano_rank(values, at[q])
        out[q] = elias_fano_get(values, found) if found < length else _NOWHERE


class _OnDevice:
    """What the classes below share: a named tuple of device arrays, and batches of queries."""

    def __init__(self, host: Any, arrays: Any, stream: Any) -> None:
        self._host = host
        self.arrays = upload_tuple(arrays, stream)

    def __len__(self) -> int:
        return len(self._host)

    @property
    def nbytes(self) -> int:
        """Bytes of the structure."""
        return int(self._host.nbytes)

    def to_host(self) -> Any:
        """The structure of the host that this one is a copy of."""
        return self._host

    def _answer(
        self,
        kernel: Callable[..., None],
        x: Any,
        check: Callable[[Any], NDArray[Any]],
        limit: int,
        dtype: DTypeLike,
        stream: Any,
        lanes: int = 1,
        query_dtype: DTypeLike = np.int64,
    ) -> Any:
        """Answers of a kernel: on the device for queries there, otherwise on the host."""
        x = taken(x, "queries", stream)
        if is_device_array(x):
            queries = as_device_array(x, "queries", query_dtype, 1)
            out = cuda.device_array(queries.shape, dtype, stream=stream)
            if queries.size:
                self._launch(kernel, queries, limit, out, stream, lanes)
            return out
        checked = check(x)
        answers = np.empty(checked.shape, dtype)
        if checked.size:
            queries = upload(checked.reshape(-1), stream)
            out = cuda.device_array(queries.shape, dtype, stream=stream)
            self._launch(kernel, queries, limit, out, stream, lanes)
            answers = out.copy_to_host(stream=stream).reshape(checked.shape)
            if stream:
                stream.synchronize()
        return answers if checked.ndim else answers[()].item()

    def _launch(
        self, kernel: Any, queries: Any, limit: int, out: Any, stream: Any, lanes: int
    ) -> None:
        grid = -(-queries.size * lanes // _BLOCK)
        kernel_for(kernel)[grid, _BLOCK, stream](self.arrays, np.int64(limit), queries, out)


class DeviceBitVector(_OnDevice):
    """A `succinct.BitVector` on the device; made by `to_device`.

    Methods are those of the class on the CPU. Queries on the host are checked, copied, and
    answered on the host. A contiguous int64 array [n] on the device is taken as it is, on `stream`,
    and answered there; positions out of range give -1 (False from ``[]``).
    """

    def __init__(self, host: Any, stream: Any = 0) -> None:
        super().__init__(host, host.lane_arrays(), stream)

    def count(self) -> int:
        """Number of ones."""
        return int(self._host.count())

    def __getitem__(self, i: Any) -> Any:
        n = len(self)
        return self._answer(_get_bits, i, lambda x: _args.positions(x, n), n, np.bool_, 0)

    def _at(self, kernel: Any, i: Any, limit: int, stream: Any, lanes: int = 1) -> Any:
        return self._answer(
            kernel, i, lambda x: _args.positions(x, limit + 1), limit, np.int64, stream, lanes
        )

    def rank1(self, i: Any, stream: Any = 0) -> Any:
        """Ones before each position."""
        return self._at(_rank1s, i, len(self), stream)

    def rank0(self, i: Any, stream: Any = 0) -> Any:
        """Zeros before each position."""
        return self._at(_rank0s, i, len(self), stream)

    def next_zero(self, i: Any, stream: Any = 0) -> Any:
        """First zero at or behind each position, or the length."""
        return self._at(_next_zeros, i, len(self), stream, lanes=32)

    def _nth(self, kernel: Any, k: Any, limit: int, stream: Any) -> Any:
        return self._answer(kernel, k, lambda x: _args.positions(x, limit), limit, np.int64, stream)

    def select1(self, k: Any, stream: Any = 0) -> Any:
        """Position of each one, numbered from 0."""
        return self._nth(_select1s, k, self.count(), stream)

    def select0(self, k: Any, stream: Any = 0) -> Any:
        """Position of each zero, numbered from 0."""
        return self._nth(_select0s, k, len(self) - self.count(), stream)


class DevicePackedArray(_OnDevice):
    """A `succinct.PackedArray` on the device; made by `to_device`."""

    def __init__(self, host: Any, stream: Any = 0) -> None:
        super().__init__(host, host.lane_arrays(), stream)

    @property
    def width(self) -> int:
        """Bits of a value."""
        return int(self._host.width)

    def __getitem__(self, i: Any) -> Any:
        n = len(self)
        return self._answer(_packed_gets, i, lambda x: _args.positions(x, n), n, np.uint64, 0)


class DeviceEliasFano(_OnDevice):
    """A `succinct.EliasFano` on the device; made by `to_device`."""

    def __init__(self, host: Any, stream: Any = 0) -> None:
        high, low = host.high, host.low
        zeros = np.int64(len(high) - high.count())
        lanes = EliasFanoLanes(high.lane_arrays(), low.lane_arrays(), np.int64(len(host)), zeros)
        super().__init__(host, lanes, stream)

    def access(self, i: Any, stream: Any = 0) -> Any:
        """Values at positions."""
        n = len(self)
        return self._answer(
            _elias_fano_gets, i, lambda x: _args.positions(x, n), n, np.uint64, stream
        )

    def __getitem__(self, i: Any) -> Any:
        return self.access(i)

    def _bounds(self, kernel: Any, x: Any, dtype: DTypeLike, stream: Any) -> Any:
        n = len(self)
        return self._answer(kernel, x, _args.values64, n, dtype, stream, query_dtype=np.uint64)

    def rank(self, x: Any, stream: Any = 0) -> Any:
        """Number of values less than each x."""
        return self._bounds(_elias_fano_ranks, x, np.int64, stream)

    def next_geq(self, x: Any, stream: Any = 0) -> Any:
        """The least value that is at least x, or 2**64 - 1."""
        return self._bounds(_elias_fano_next, x, np.uint64, stream)
