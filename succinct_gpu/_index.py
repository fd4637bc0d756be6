"""Indexes on the device, and the functions of masking over them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct import LoudsTrie, StepMap, _args
from succinct.index import Index
from succinct.maps.layout import COLUMN
from succinct_gpu import _masking
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import as_device_array, is_device_array, nbytes_of, upload, upload_tuple

# Bits of -inf, and of all but the sign, for the floats that kernels take.
_FLOATS = {
    np.dtype(np.float32): (np.uint32, np.uint32(0xFF800000), np.uint32(0x7FFFFFFF)),
    np.dtype(np.float16): (np.uint16, np.uint16(0xFC00), np.uint16(0x7FFF)),
}


class DeviceIndex:
    """An index on the device; made by `to_device`.

    Attributes
    ----------
    arrays : named tuple
        What the functions of `lanes` and `device_functions` take, on the device.
    lanes : module
        Scalar navigation.
    """

    def __init__(self, index: Index, stream: Any) -> None:
        from numba import cuda

        self._host = index
        host: Any = index
        self.lanes: Any = host.lanes
        arrays = host.lane_arrays()
        needed, free = nbytes_of(arrays), cuda.current_context().get_memory_info()[0]
        if needed > free:
            raise MemoryError(
                f"the index takes {needed} bytes and the device has {free} free; give memory back, "
                "or search on the CPU: succinct.beam_search takes the index as it is"
            )
        self._host_arrays = arrays
        self.arrays = upload_tuple(arrays, stream)

    def __getattr__(self, name: str) -> Any:
        if name in ("n_keys", "n_states", "max_length", "vocab_size", "nbytes", "root"):
            return getattr(self._host, name)
        raise AttributeError(f"an index on the device has no attribute {name!r}")

    def to_host(self) -> Index:
        """The index of the host that this one is a copy of."""
        return self._host

    @property
    def _limits(self) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Kernels take states that are neither below the first nor in [second, third) for DEAD."""
        if isinstance(self._host, LoudsTrie):  # whose navigation bounds them itself
            limits = 2**64 - 1, 0, 0
        elif isinstance(self._host, StepMap) and self._host.has_tail:
            table, tails, shift = (
                getattr(self._host_arrays, n) for n in ("table", "tails", "shift")
            )
            heads = table[-1, COLUMN["start"]] + table[-1, COLUMN["entries"]]
            limits = int(heads), 1 << shift, int(tails[0, COLUMN["entries"]]) + 2 << shift
        else:
            limits = int(self._host.n_states), 0, 0
        return tuple(map(np.uint64, limits))  # type: ignore[return-value]

    def _states(self, states: Any, stream: Any) -> Any:
        """States on the device; those of the host are checked first."""
        if is_device_array(states):
            return as_device_array(states, "states", np.uint64, 1)
        given = _args.values64(states, "states")
        if given.ndim != 1:
            raise ValueError(f"states: expected one axis, got shape {given.shape}")
        self._host.is_terminal(given)  # raises for what is no state
        return upload(given, stream)

    def allowed_mask(self, states: Any, stream: Any = 0) -> Any:
        """Bitmask of the tokens that continue each state.

        Parameters
        ----------
        states : uint64 array [R]
            On the host or on the device; the answer is where they are.
        stream : stream, optional

        Returns
        -------
        int32 array [R, ceil(vocab_size / 32)]
            Token t is bit t % 32 of word t // 32.
        """
        from numba import cuda

        on_device = self._states(states, stream)
        rows = len(states)
        shape = (rows, max(1, -(-self.vocab_size // 32)))
        words = cuda.device_array(shape, np.uint32, stream=stream)
        if rows:
            kernel = kernel_for(_masking.mask_rows, self.lanes)
            kernel[rows, _masking.BLOCK, stream](self.arrays, self._limits, on_device, words)
        if is_device_array(states):
            return words.view(np.int32)
        return _down(words, stream).view(np.int32)[:, : -(-self.vocab_size // 32)]


def _down(array: Any, stream: Any) -> NDArray[Any]:
    host: NDArray[Any] = array.copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    return host


def _logits(logprobs: Any, index: DeviceIndex, states: Any, stream: Any) -> Any:
    """Logits on the device; whether they are a copy of an array of the host."""
    if is_device_array(logprobs):
        dtype = np.dtype(logprobs.__cuda_array_interface__["typestr"])
        given = as_device_array(logprobs, "logprobs", dtype, 2)
    else:
        given = np.asarray(logprobs)
        dtype = given.dtype
    if dtype not in _FLOATS:
        raise TypeError(f"logprobs: expected float32 or float16, got {dtype}")
    if given.ndim != 2:
        raise ValueError(f"logprobs: expected [rows, vocabulary], got shape {given.shape}")
    if given.shape[1] < index.vocab_size:
        raise ValueError(
            f"logprobs: expected at least {index.vocab_size} columns, the vocabulary of the index, "
            f"got {given.shape[1]}"
        )
    if len(states) != given.shape[0]:
        raise ValueError(
            f"states: expected {given.shape[0]}, one for each row of logprobs, got {len(states)}"
        )
    return given if is_device_array(logprobs) else upload(given, stream)


def constrain(logprobs: Any, index: DeviceIndex, states: Any, stream: Any) -> Any:
    """See `succinct_gpu.constrain`."""
    if not is_device_array(logprobs) and not (
        isinstance(logprobs, np.ndarray) and logprobs.flags.writeable
    ):
        raise ValueError("logprobs: expected a writable numpy array or an array on the device")
    given = _logits(logprobs, index, states, stream)
    on_device = index._states(states, stream)
    rows = logprobs.shape[0]
    if rows and logprobs.shape[1]:
        unsigned, minus_infinity, absolute = _FLOATS[np.dtype(given.dtype)]
        kernel_for(_masking.constrain_rows, index.lanes)[rows, _masking.BLOCK, stream](
            index.arrays,
            index._limits,
            on_device,
            np.int64(0),
            given.view(unsigned),
            minus_infinity,
            absolute,
        )
        if not is_device_array(logprobs):
            logprobs[...] = _down(given, stream)
    return logprobs


class Candidates(NamedTuple):
    """Valid continuations of every row, one row after another; tokens ascending."""

    offsets: Any
    tokens: Any
    scores: Any
    next_states: Any


def candidates(logprobs: Any, index: DeviceIndex, states: Any, stream: Any) -> Candidates:
    """See `succinct_gpu.candidates`."""
    from numba import cuda

    given = _logits(logprobs, index, states, stream)
    on_device = index._states(states, stream)
    rows = len(states)
    offsets = np.zeros(rows + 1, np.int64)
    if rows:
        counts = cuda.device_array(rows, np.int64, stream=stream)
        kernel_for(_masking.count_children, index.lanes)[-(-rows // 128), 128, stream](
            index.arrays, index._limits, on_device, counts
        )
        np.cumsum(_down(counts, stream), out=offsets[1:])
    total = int(offsets[-1])
    device_offsets = upload(offsets, stream)
    room = max(1, total)
    tokens = cuda.device_array(room, np.uint32, stream=stream)
    scores = cuda.device_array(room, np.float32, stream=stream)
    next_states = cuda.device_array(room, np.uint64, stream=stream)
    if total:
        kernel_for(_masking.list_candidates, index.lanes)[rows, 128, stream](
            index.arrays,
            index._limits,
            on_device,
            given,
            device_offsets,
            tokens,
            scores,
            next_states,
        )
    parts = (device_offsets, tokens[:total], scores[:total], next_states[:total])
    if is_device_array(logprobs):
        return Candidates(*parts)
    if total == 0:
        empty = (np.empty(0, dtype) for dtype in (np.uint32, np.float32, np.uint64))
        return Candidates(offsets, *empty)
    return Candidates(offsets, *(_down(part, stream) for part in parts[1:]))
