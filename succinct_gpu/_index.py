"""Indexes on the device, and the functions of masking over them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct import LoudsTrie, StepMap, _args
from succinct.decode.eligibility import read_allowed
from succinct.decode.masking import (
    Candidates,
    PaddedCandidates,
    check_width,
    read_candidate_options,
    read_requests,
    read_row_allowed,
)
from succinct.index import Index
from succinct.maps.layout import COLUMN
from succinct_gpu import _masking
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import (
    as_device_array,
    is_device_array,
    nbytes_of,
    upload,
    upload_tuple,
    wrong_dtype,
)
from succinct_gpu._dlpack import taken
from succinct_gpu._transfer import Transfer, Uploader

# Bits of -inf, and of all but the sign, for the floats that kernels take.
_FLOATS = {
    np.dtype(np.float32): (np.uint32, np.uint32(0xFF800000), np.uint32(0x7FFFFFFF)),
    np.dtype(np.float16): (np.uint16, np.uint16(0xFC00), np.uint16(0x7FFF)),
}
# What an index on the device answers as that of the host does.
_FACTS = (
    "n_keys", "n_states", "max_length", "vocab_size", "nbytes", "root", "token_range", "density",
)  # fmt: skip
# Tokens, scores, states, and whether there is one.
_PARTS = (np.uint32, np.float32, np.uint64, np.bool_)


class DeviceIndex:
    """An index on the device; made by `to_device`.

    Attributes
    ----------
    arrays : named tuple
        What the functions of `lanes` and `device_functions` take, on the device.
    lanes : module
        Scalar navigation.
    device : int
        Number of the device.
    """

    def __init__(
        self, index: Index, stream: Any, memory: str = "device", transfer: Transfer | None = None
    ) -> None:
        self._host: Index | None = index
        host: Any = index
        arrays = host.lane_arrays()
        check_room(nbytes_of(arrays), memory)
        uploader = Uploader(transfer or Transfer(), memory, stream)
        self._hold(index, host.lanes, arrays, upload_tuple(arrays, stream, uploader))
        uploader.finish()

    def _hold(self, facts: Index, lanes: Any, host_arrays: Any, arrays: Any) -> None:
        """Keep what is known on the host (`facts` is asked for no navigation), and the arrays."""
        from numba import cuda

        self._facts, self._host_arrays = facts, host_arrays
        self.lanes: Any = lanes
        self.arrays = arrays
        self.device = int(cuda.get_current_device().id)
        self._every_key: Any = None
        self._searchers: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name in _FACTS:
            return getattr(self._facts, name)
        raise AttributeError(f"an index on the device has no attribute {name!r}")

    def to_host(self) -> Index:
        """The index of the host that this one is a copy of."""
        assert self._host is not None
        return self._host

    @property
    def _limits(self) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Kernels take states that are neither below the first nor in [second, third) for DEAD."""
        facts = self._facts
        if isinstance(facts, LoudsTrie):  # whose navigation bounds them itself
            limits = 2**64 - 1, 0, 0
        elif isinstance(facts, StepMap) and facts.has_tail:
            table, tails, shift = (
                getattr(self._host_arrays, n) for n in ("table", "tails", "shift")
            )
            heads = table[-1, COLUMN["start"]] + table[-1, COLUMN["entries"]]
            limits = int(heads), 1 << shift, int(tails[0, COLUMN["entries"]]) + 2 << shift
        else:
            limits = int(facts.n_states), 0, 0
        return tuple(map(np.uint64, limits))  # type: ignore[return-value]

    def _known_tokens(self) -> tuple[Any, Any]:
        """Tokens that keys have at each place, ascending, and where those of each place begin."""
        host: Any = self.to_host()
        tokens, starts, states = [], [0], np.array([host.root], np.uint64)
        while states.size:
            _, found, states = host.children(states)
            tokens.append(np.unique(found))
            starts.append(starts[-1] + tokens[-1].size)
        return upload(np.concatenate(tokens)), upload(np.array(starts, np.int64))

    def _states(self, states: Any, stream: Any) -> Any:
        """States on the device; those of the host are checked first."""
        states = taken(states, "states", stream)
        if is_device_array(states):
            return as_device_array(states, "states", np.uint64, 1)
        given = _args.values64(states, "states")
        if given.ndim != 1:
            raise ValueError(f"states: expected one axis, got shape {given.shape}")
        return upload(self._facts._states(given), stream)

    def _eligible(
        self, allowed: Any, requests: Any, n_rows: int, stream: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        """The choice of `is_wanted`, and the bitmaps that it is given."""
        from succinct_gpu import _eligible

        allowed = taken(allowed, "allowed", stream)
        if _eligible.on_device(allowed):
            arrays, offsets = self._eligible_there(allowed, requests, n_rows, stream)
            return (), (arrays, upload(offsets, stream))
        read = read_row_allowed(allowed, requests, self.n_keys, n_rows)
        if read is None or (read[1] < 0).all():
            if self._every_key is None:
                none = read_allowed(None, 0, 1)
                self._every_key = upload_tuple(none[0], stream), upload(none[1], stream)
            return (("is_wanted", _masking.every_key),), self._every_key
        return (), (upload_tuple(read[0], stream), upload(read[1], stream))

    def _eligible_there(
        self, allowed: Any, requests: Any, n_rows: int, stream: Any
    ) -> tuple[Any, NDArray[np.int64]]:
        """Bitmaps of the device, and where those of each row's request begin."""
        from succinct_gpu import _eligible

        if requests is None:
            return _eligible.read_there(allowed, self.n_keys, n_rows, stream)
        many = getattr(allowed, "__cuda_array_interface__", {"shape": ()})["shape"]
        numbers = read_requests(requests, len(many) == 2, many[0] if many else 0, n_rows)
        arrays, offsets = _eligible.read_there(allowed, self.n_keys, many[0], stream)
        return arrays, offsets[numbers]

    def allowed_mask(
        self, states: Any, stream: Any = 0, *, allowed: Any = None, requests: Any = None
    ) -> Any:
        """Bitmask of the tokens that continue each state, as kernels of structured generation
        take it.

        Parameters
        ----------
        states : uint64 array [R]
            On the host or on the device; the answer is where they are.
        stream : stream, optional
        allowed, requests : optional
            As for `succinct.constrain`.

        Returns
        -------
        int32 array [R, ceil(vocab_size / 32)]
            Token t is bit t % 32 of word t // 32.
        """
        from numba import cuda

        states = taken(states, "states", stream)
        on_device = self._states(states, stream)
        rows = len(on_device)
        choices, eligible = self._eligible(allowed, requests, rows, stream)
        shape = (rows, max(1, -(-self.vocab_size // 32)))
        words = cuda.device_array(shape, np.uint32, stream=stream)
        if rows:
            kernel = kernel_for(_masking.mask_rows, self.lanes, choices)
            kernel[rows, _masking.BLOCK, stream](
                self.arrays, self._limits, on_device, *eligible, words
            )
        if is_device_array(states):
            return words.view(np.int32)
        return _down(words, stream).view(np.int32)[:, : -(-self.vocab_size // 32)]


def check_room(nbytes: int, memory: str) -> None:
    """Raise a MemoryError if an index does not fit the device."""
    from numba import cuda

    free = cuda.current_context().get_memory_info()[0]
    if memory == "device" and nbytes > free:
        raise MemoryError(
            f"the index takes {nbytes} bytes and the device has {free} free; give memory back, "
            'take memory="managed", or search on the CPU: succinct.beam_search takes the index '
            "as it is"
        )


def _down(array: Any, stream: Any) -> NDArray[Any]:
    host: NDArray[Any] = array.copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    return host


def _logits(logprobs: Any, index: DeviceIndex, rows: int, stream: Any) -> Any:
    """Logits on the device; whether they are a copy of an array of the host."""
    if is_device_array(logprobs):
        dtype = np.dtype(logprobs.__cuda_array_interface__["typestr"])
        given = as_device_array(logprobs, "logprobs", dtype, 2)
    else:
        given = np.asarray(logprobs)
        dtype = given.dtype
    if dtype not in _FLOATS:
        if is_device_array(logprobs):
            raise wrong_dtype("logprobs", "float32 or float16", dtype)
        raise TypeError(
            f"logprobs: expected float32 or float16, got {dtype}; convert it, or on the CPU the "
            "function of succinct takes float64 as well"
        )
    if given.ndim != 2:
        raise ValueError(f"logprobs: expected [rows, vocabulary], got shape {given.shape}")
    if given.shape[1] < index.vocab_size:
        raise ValueError(
            f"logprobs: expected at least {index.vocab_size} columns, the vocabulary of the index, "
            f"got {given.shape[1]}"
        )
    if rows != given.shape[0]:
        raise ValueError(
            f"states: expected {given.shape[0]}, one for each row of logprobs, got {rows}"
        )
    return given if is_device_array(logprobs) else upload(given, stream)


def constrain(
    logprobs: Any, index: DeviceIndex, states: Any, allowed: Any, requests: Any, stream: Any
) -> Any:
    """See `succinct_gpu.constrain`."""
    caller_s, logprobs = logprobs, taken(logprobs, "logprobs", stream)
    if not is_device_array(logprobs) and not (
        isinstance(logprobs, np.ndarray) and logprobs.flags.writeable
    ):
        raise ValueError(
            "logprobs: expected a writable numpy array or an array on the device; make a "
            "copy, as succinct.constrain asks for too"
        )
    on_device = index._states(states, stream)
    given = _logits(logprobs, index, len(on_device), stream)
    rows = len(on_device)
    choices, eligible = index._eligible(allowed, requests, rows, stream)
    if rows and given.shape[1]:
        unsigned, minus_infinity, absolute = _FLOATS[np.dtype(given.dtype)]
        kernel = kernel_for(_masking.constrain_rows, index.lanes, choices)
        kernel[rows, _masking.BLOCK, stream](
            index.arrays,
            index._limits,
            on_device,
            *eligible,
            np.int64(0),
            given.view(unsigned),
            minus_infinity,
            absolute,
        )
        if not is_device_array(logprobs):
            logprobs[...] = _down(given, stream)
    return caller_s


def candidates(
    logprobs: Any,
    index: DeviceIndex,
    states: Any,
    width: Any,
    normalize: Any,
    allowed: Any,
    requests: Any,
    stream: Any,
) -> Candidates | PaddedCandidates:
    """See `succinct_gpu.candidates`."""
    from numba import cuda

    logprobs = taken(logprobs, "logprobs", stream)
    on_device = index._states(states, stream)
    rows = len(on_device)
    given = _logits(logprobs, index, rows, stream)
    width = read_candidate_options(width, normalize)
    choices, eligible = index._eligible(allowed, requests, rows, stream)

    def new(shape: Any, dtype: Any) -> Any:
        return cuda.device_array(shape, dtype, stream=stream)

    counts = new(rows, np.int64)
    lister = kernel_for(_masking.list_rows, index.lanes, choices)

    def listed(width: int, offsets: Any, parts: Any) -> None:
        if rows:
            lister[rows, _masking.BLOCK, stream](
                index.arrays, index._limits, on_device, *eligible, given, np.int64(width), offsets,
                counts, *parts,
            )  # fmt: skip

    nothing = new(0, np.int64)
    if width is not None:
        offsets, size = nothing, rows * width
    else:
        if rows and choices:
            kernel_for(_masking.count_children, index.lanes)[-(-rows // 128), 128, stream](
                index.arrays, index._limits, on_device, counts
            )
        else:
            listed(0, nothing, (new(0, dtype) for dtype in _PARTS))
        sums = np.zeros(rows + 1, np.int64)
        if rows:
            np.cumsum(_down(counts, stream), out=sums[1:])
        offsets, size = upload(sums, stream), int(sums[-1])
    parts = [new(max(1, size), dtype)[:size] for dtype in _PARTS[:3]]
    parts.append(new(size if width is not None else 0, np.bool_))
    if size:
        listed(width or 0, offsets, parts)
        if normalize is not None:
            kernel_for(_masking.normalise_rows)[rows, _masking.BLOCK, stream](
                given, normalize == "vocab", np.int64(width or 0), offsets, counts, parts[1]
            )
    if width is None:
        found = [offsets, *parts[:3]]
        if is_device_array(logprobs):
            return Candidates(*found)
        return Candidates(sums, *(_down(part, stream)[:size] for part in parts[:3]))
    shaped = [part.reshape(rows, width) for part in parts]
    if is_device_array(logprobs):
        return PaddedCandidates(*shaped)
    if rows:
        check_width(_down(counts, stream), width)
    return PaddedCandidates(*(_down(part, stream) for part in shaped))
