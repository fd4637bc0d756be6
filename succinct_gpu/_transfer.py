"""Copies of large arrays to the device that leave it free for what it serves meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct import _args
from succinct._threads import in_threads, parts_of


@dataclass(frozen=True)
class Transfer:
    """How an index gets to the device.

    Threads copy pieces of it, out of a mapped file for one, or build them, in pinned buffers, from
    which the device takes them: with two buffers it takes one while the other is filled (the
    streaming of ZeroGR, arXiv:2607.07723).

    Parameters
    ----------
    buffers : int
        Pinned buffers that take turns; 1 does without the overlap, 0 without buffers: every array
        is copied as a whole, and an index is built on the host before.
    buffer_bytes : int
        Size of each.
    bytes_per_second : float, optional
        At most so much is sent, so that the link stays free for others.
    threads : int
        That fill buffers.

    Examples
    --------
    >>> Transfer(bytes_per_second=2e9).buffers
    2
    """

    buffers: int = 2
    buffer_bytes: int = 32 << 20
    bytes_per_second: float | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.buffers not in (0, 1, 2):
            raise ValueError(f"buffers: expected 0, 1 or 2, got {self.buffers!r}")
        _args.at_least_one("buffer_bytes", self.buffer_bytes)
        _args.at_least_one("threads", self.threads)
        if self.bytes_per_second is not None and not self.bytes_per_second > 0:
            raise ValueError(
                f"bytes_per_second: expected more than 0, got {self.bytes_per_second!r}"
            )


class Uploader:
    """Buffers and the stream of one index on its way.

    Parameters
    ----------
    transfer : Transfer
    memory : {"device", "managed"}
    stream : stream
    buffer_bytes : int, optional
        Of each buffer, instead of those of `transfer`.
    """

    def __init__(
        self, transfer: Transfer, memory: str, stream: Any, buffer_bytes: int | None = None
    ) -> None:
        from numba import cuda

        self._transfer, self._memory = transfer, memory
        self._buffer_bytes = buffer_bytes or transfer.buffer_bytes
        self._stream = stream or cuda.stream()
        self._buffers: list[tuple[NDArray[np.uint8], Any]] = []
        self._turn = 0
        self._sent = 0
        self._began = time.perf_counter()

    def __call__(self, array: NDArray[Any]) -> Any:
        """A copy on the device, complete once `finish` has returned."""
        source = np.ascontiguousarray(array)
        out = self.new(source.shape, source.dtype)
        if self._memory == "managed":
            out[...] = source
        elif self._transfer.buffers == 0 or source.ndim != 1 or not source.size:
            out.copy_to_device(source, stream=self._stream)
            self._wait(source.nbytes)
        else:
            pieces, target = source.view(np.uint8), out.view(np.uint8)
            for begin in range(0, len(pieces), self._buffer_bytes):
                piece = pieces[begin : begin + self._buffer_bytes]
                self._send(piece, target[begin : begin + len(piece)])
        return out

    def new(self, shape: Any, dtype: Any) -> Any:
        """An array on the device."""
        from numba import cuda

        if self._memory == "managed":
            return cuda.managed_array(shape, dtype)
        return cuda.device_array(shape, dtype, stream=self._stream)

    def take(self) -> NDArray[np.uint8]:
        """The next buffer, when the device has what was in it."""
        from numba import cuda

        if len(self._buffers) < self._transfer.buffers:
            self._buffers.append((cuda.pinned_array(self._buffer_bytes, np.uint8), cuda.event()))
            buffer, _ = self._buffers[-1]
        else:
            buffer, event = self._buffers[self._turn % self._transfer.buffers]
            event.synchronize()
        self._turn += 1
        return buffer

    def put(self, piece: NDArray[Any], target: Any) -> None:
        """Send a piece of the buffer that was taken."""
        if self._memory == "managed":
            target[...] = piece
        else:
            target.copy_to_device(piece, stream=self._stream)

    def give(self, nbytes: int) -> None:
        """Leave the buffer that was taken to the device, with so many bytes to send."""
        _, event = self._buffers[(self._turn - 1) % self._transfer.buffers]
        event.record(self._stream)
        self._wait(nbytes)

    def _send(self, piece: NDArray[np.uint8], target: Any) -> None:
        transfer, buffer = self._transfer, self.take()

        def fill(part: slice) -> None:
            buffer[part] = piece[part]

        in_threads(fill, parts_of(len(piece), transfer.threads), transfer.threads)
        self.put(buffer[: len(piece)], target)
        self.give(len(piece))

    def _wait(self, nbytes: int, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sent += nbytes
        if self._transfer.bytes_per_second is not None:
            due = self._began + self._sent / self._transfer.bytes_per_second
            sleep(max(0.0, due - time.perf_counter()))

    def finish(self) -> None:
        """Wait until everything is on the device."""
        self._stream.synchronize()
