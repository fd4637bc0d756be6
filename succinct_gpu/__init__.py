"""The structures of ``succinct`` on a GPU, with the same names and answers.

The package imports everywhere. Its functions need numba-cuda and a CUDA device, or
`succinct_gpu.simt`, which runs the same kernels on the CPU for tests; without, they raise a
RuntimeError that says what is missing and which call of ``succinct`` does the same. Nothing falls
back silently: the caller chooses where the work is done.

Arrays of the host are checked, copied to the device, and their answers copied back. Arrays that
are on the device (with ``__cuda_array_interface__``, as those of CuPy, torch and numba have, or
with DLPack alone) are taken as they are, on the caller's stream, and answers stay there; their
contents are not checked, and no kernel reads outside its arrays whatever they hold.

What is here has been run by the executor and compiled for devices, and not been measured on one.

Examples
--------
>>> import numpy as np
>>> import succinct_gpu as sg
>>> from succinct import CsrMap, KeyTable
>>> from succinct_gpu import simt
>>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
>>> with simt.session():  # leave this out where there is a device
...     on_device = sg.to_device(index)
...     logits = np.full((2, 4), -1.5, np.float32)
...     sg.constrain(logits, on_device, [index.root, index.walk((1,))])
array([[-inf, -1.5, -inf, -1.5],
       [-inf, -inf, -1.5, -inf]], dtype=float32)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from math import inf
from typing import Any, SupportsIndex

from succinct import KeyTable
from succinct.decode.result import BeamResult
from succinct.maps.stepmap import Representation
from succinct_gpu._decoder import BeamDecoder
from succinct_gpu._device import require
from succinct_gpu._searcher import Phases, Searcher
from succinct_gpu._transfer import Transfer
from succinct_gpu._workspace import Workspace

__all__ = [
    "BeamDecoder",
    "Phases",
    "Searcher",
    "Transfer",
    "Workspace",
    "beam_search",
    "build_on_device",
    "calibrate",
    "candidates",
    "capture_step",
    "constrain",
    "device_functions",
    "filter_step",
    "is_available",
    "to_device",
    "to_host",
]


def is_available() -> bool:
    """Whether kernels can run here: numba-cuda is installed, and there is a device.

    Under `succinct_gpu.simt` it is true.

    Returns
    -------
    bool

    Examples
    --------
    >>> from succinct_gpu import simt
    >>> with simt.session():
    ...     is_available()
    True
    """
    try:
        require("is_available", "")
    except RuntimeError:
        return False
    return True


def to_device(
    index: Any,
    *,
    device: int | None = None,
    stream: Any = None,
    memory: str = "device",
    transfer: Transfer | None = None,
) -> Any:
    """Copy an index or a bit structure to the device.

    Parameters
    ----------
    index : LoudsTrie, StepMap, CsrMap, BitVector, PackedArray or EliasFano
    device : int, optional
        Number of the device, by default the current one. What the index is used with must be
        there, and it must be the current one then (``with numba.cuda.gpus[device]:``).
    stream : numba.cuda stream, optional
        For the copies.
    memory : {"device", "managed"}
        "managed" memory moves between host and device as it is used, so that an index may be larger
        than what the device has.
    transfer : Transfer, optional
        Buffers, threads and rate of the copies of an index; by default two pinned buffers take
        turns.

    Returns
    -------
    object
        For an index one that `constrain` and `candidates` take, with `allowed_mask`; for a bit
        structure one with the methods of the class on the CPU.

    Raises
    ------
    RuntimeError
        If there is no device.
    MemoryError
        If it has too little memory left.
    TypeError
        If `index` is something else.
    ValueError
        If there is no such device or kind of memory.

    Examples
    --------
    >>> from succinct import BitVector
    >>> from succinct_gpu import simt
    >>> with simt.session():
    ...     bits = to_device(BitVector.from_bools([True, False, True]))
    ...     bits.rank1([0, 1, 3])
    array([0, 1, 2])
    """
    require("to_device", "an index needs no copy: give it to succinct.beam_search as it is")
    from succinct import BitVector, EliasFano, PackedArray
    from succinct.index import Index
    from succinct_gpu import _bits, _index

    _check_memory(memory)
    used = stream if stream is not None else 0
    with _current(device):
        if isinstance(index, BitVector):
            return _bits.DeviceBitVector(index, used)
        if isinstance(index, PackedArray):
            return _bits.DevicePackedArray(index, used)
        if isinstance(index, EliasFano):
            return _bits.DeviceEliasFano(index, used)
        if isinstance(index, Index):
            return _index.DeviceIndex(index, used, memory, transfer)
    raise TypeError(
        f"index: expected an index or a bit structure of succinct, got {type(index).__name__}"
    )


def _check_memory(memory: Any) -> None:
    if memory not in ("device", "managed"):
        raise ValueError(f'memory: expected "device" or "managed", got {memory!r}')


def _current(device: int | None) -> Any:
    """Makes a device the current one while it is entered."""
    from numba import cuda

    if device is None or device == int(cuda.get_current_device().id):
        return contextlib.nullcontext()
    n = len(cuda.list_devices())
    if not 0 <= device < n:
        raise ValueError(
            f"device: expected one of the {n} that there are, 0 to {n - 1}, got {device}; on "
            "the CPU an index needs no copy"
        )
    return cuda.gpus[device]


def build_on_device(
    keys: KeyTable,
    layout: Representation | Sequence[Representation] = "small",
    *,
    device: int | None = None,
    stream: Any = None,
    memory: str = "device",
    transfer: Transfer | None = None,
) -> Any:
    """Build a `StepMap` on the device, without a copy of it on the host.

    The keys are counted, which says where every part of the index lies; then threads fill one
    pinned buffer with what the next keys add to every step while the other one is sent to its
    places (the streaming of ZeroGR, arXiv:2607.07723).

    Parameters
    ----------
    keys : KeyTable
        At least one key.
    layout : str or sequence of str
        As for `succinct.StepMap.build`.
    device, stream, memory
        As for `to_device`.
    transfer : Transfer, optional
        Size of the buffers, threads that fill them, and the rate of the copies, so that what the
        machine serves meanwhile is not disturbed. With one buffer nothing overlaps; with none the
        index is built on the host and copied as a whole, for comparison.

    Returns
    -------
    object
        As of `to_device`, byte for byte that of ``StepMap.build(keys, layout, tail=False)``.

    Raises
    ------
    RuntimeError
        If there is no device.
    MemoryError
        If it has too little memory left.
    TypeError, ValueError
        As `succinct.StepMap.build`, and if there is no such device or kind of memory.

    Notes
    -----
    O(tokens): two passes over the keys to count and one to fill, and two more for each of codes by
    frequency and codes of rows. The host holds the buffers, and the rank and select directory of
    the bit-vectors, which is 8 % of these; a buffer becomes larger only where a single key of every
    so many would not fit it. There are no tails: for these, build on the host and use `to_device`.

    What needs the index on the host brings it there once, as `to_host` does: the "ppt" variant,
    `calibrate`, `filter_step` with beams of the host, and `BeamDecoder`.

    Examples
    --------
    >>> from succinct import KeyTable
    >>> from succinct_gpu import simt
    >>> keys = KeyTable.from_sequences([(1,), (1, 2), (3, 2)])
    >>> with simt.session():  # leave this out where there is a device
    ...     on_device = build_on_device(keys, transfer=Transfer(threads=2))
    ...     copied_back = to_host(on_device)
    >>> on_device.n_keys, copied_back.key(2)
    (3, (3, 2))
    """
    require("build_on_device", "succinct.StepMap.build does the same")
    from succinct_gpu import _build

    _check_memory(memory)
    with _current(device):
        used = stream if stream is not None else 0
        return _build.build(keys, layout, used, memory, transfer)


def to_host(index: Any) -> Any:
    """The structure of the host that one on the device is a copy of; kernels change neither.

    Parameters
    ----------
    index : what `to_device` or `build_on_device` gave
        An index that was built on the device is copied from there; the copy is kept.

    Examples
    --------
    >>> from succinct import PackedArray
    >>> from succinct_gpu import simt
    >>> packed = PackedArray([3, 1])
    >>> with simt.session():
    ...     to_host(to_device(packed)) is packed
    True
    """
    require("to_host", "an index needs no copy: use succinct.load to open an index file")
    if not hasattr(index, "to_host"):
        raise TypeError(
            f"index: expected what succinct_gpu.to_device gave, got {type(index).__name__}"
        )
    return index.to_host()


def constrain(
    logprobs: Any,
    index: Any,
    states: Any,
    *,
    allowed: Any = None,
    requests: Any = None,
    stream: Any = None,
) -> Any:
    """Set the logits of all tokens that do not continue a row's state to -inf, in place.

    Parameters
    ----------
    logprobs : array [R, V] of float32 or float16
        On the device, C-contiguous; or a writable numpy array, which is copied there and back. V
        may be larger than the vocabulary of the index. NaN where a token is valid becomes -inf.
    index : index on the device
    states : uint64 array [R]
        On the device, or integers of the host.
    allowed, requests : optional
        Eligible keys and the request of each row, as for `succinct.constrain`. The keys may be a
        `BitVector` or arrays of bools or packed words on the device; the latter are put under rank
        by four launches and take new memory at every call.
    stream : numba.cuda stream, optional

    Returns
    -------
    array
        `logprobs` itself.

    Raises
    ------
    RuntimeError
        If there is no device.
    TypeError, ValueError
        If dtype, shape or layout are others, or a state of the host is none of the index.

    Notes
    -----
    O(V + continuations) for each row, one launch, and no allocation for arrays on the device
    without `allowed`.
    """
    require("constrain", "succinct.constrain does the same")
    from succinct_gpu import _index

    _on_device(index)
    used = stream if stream is not None else 0
    return _index.constrain(logprobs, index, states, allowed, requests, used)


def candidates(
    logprobs: Any,
    index: Any,
    states: Any,
    *,
    width: SupportsIndex | None = None,
    normalize: str | None = None,
    allowed: Any = None,
    requests: Any = None,
    stream: Any = None,
) -> Any:
    """List the tokens that continue each row's state, with their logits and the states behind.

    Parameters
    ----------
    logprobs : array [R, V] of float32 or float16
    index : index on the device
    states : uint64 array [R]
    width, normalize, allowed, requests : optional
        As for `succinct.candidates`; `allowed` may be on the device as for `constrain`.
    stream : numba.cuda stream, optional

    Returns
    -------
    Candidates or PaddedCandidates
        Named tuples of arrays, where `logprobs` is: ``offsets, tokens, scores, next_states``, with
        those of row i at ``offsets[i]:offsets[i + 1]``; or with `width` ``tokens, scores,
        next_states, valid`` [R, width]. Tokens ascend. Scores are float32; NaN gives -inf.
        On the device a row with more than `width` candidates has no valid ones.

    Raises
    ------
    RuntimeError, TypeError, ValueError
        As for `constrain`.

    Notes
    -----
    O(continuations) for each row, and V more for "vocab". Without `width`, how many there are
    decides the size of the answer, so the call waits for the counts; with it, it waits for nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable
    >>> from succinct_gpu import simt
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> with simt.session():
    ...     found = candidates(np.zeros((1, 4), np.float32), to_device(index), [index.root])
    >>> found.tokens, found.next_states
    (array([1, 3], dtype=uint32), array([1, 2], dtype=uint64))
    """
    require("candidates", "succinct.candidates does the same")
    from succinct_gpu import _index

    _on_device(index)
    used = stream if stream is not None else 0
    return _index.candidates(logprobs, index, states, width, normalize, allowed, requests, used)


def filter_step(
    hidden: Any,
    weight: Any,
    index: Any,
    states: Any,
    beam_scores: Any,
    beam_width: SupportsIndex,
    projection: str = "auto",
    normalize: str = "valid",
    *,
    token_offset: SupportsIndex | None = None,
    allowed: Any = None,
    plan: Any = None,
    step: SupportsIndex | None = None,
    stream: Any = None,
    workspace: Workspace | None = None,
) -> Any:
    """Continue beams by their best valid tokens, scoring no other ones where that is cheaper.

    Parameters
    ----------
    hidden : array of float32 or float16 [Q, B, H]
        H is at most 12288.
    weight : array of float32 or float16 [V, H]
        On the device in a decoder, whatever `hidden` is; from the host it is copied.
    index : index on the device
    states : uint64 array [Q, B]
    beam_scores : float32 array [Q, B]
        These and `hidden` are on the device, C-contiguous, or all on the host. Beams on the device
        that score NaN or inf give nothing.
    beam_width : int
        At most 4096 of the candidates that a request has.
    projection, normalize, token_offset, allowed, plan
        As for `succinct.filter_step`. "band" takes the range of the tokens of `step`, or of all
        steps; "auto" is "band" for a `step` that continues prefixes by more than an eighth of
        its range, and else "selective".
    step : int, optional
        Number of tokens that all beams have taken. Needed beside a plan if they are on the device.
    stream : numba.cuda stream, optional
    workspace : Workspace, optional
        By default each call allocates a new one.

    Returns
    -------
    FilterStep or named tuple
        As from `succinct.filter_step` for beams on the host. For beams on the device a named
        tuple of arrays there, ``states, scores, tokens, parents`` [Q, width] in which the places of
        missing continuations hold DEAD, -inf, 0 and 0, as of `FilterStep.padded`; and ``counts``
        and ``status`` [Q], which is 0 for requests that nothing was wrong with.

    Raises
    ------
    RuntimeError
        If there is no device.
    TypeError, ValueError
        As `succinct.filter_step` does, of arrays on the device for their dtypes and shapes only;
        and if arrays are not where they should be, or more is kept than there is room for.

    Notes
    -----
    Six launches with "selective" and one more for each product, or thirteen where blocks share the
    selection; nothing is waited for with beams on the device, and nothing is allocated once the
    workspace has met a step of that kind; `capture_step` makes one CUDA graph of the launches. With
    n valid tokens, n * H weights are read.

    The order of the work, and slots that all its stages share, are those of ZeroGR
    (arXiv:2607.07723).

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap
    >>> from succinct_gpu import simt
    >>> index = StepMap.build(KeyTable.from_sequences([(0, 2), (0, 3), (1, 3)]))
    >>> weight = np.array([[0, 0], [1, 0], [0, 2], [0, 1]], np.float32)
    >>> hidden = np.ones((1, 1, 2), np.float32)
    >>> with simt.session():
    ...     root = [[index.root]], [[0.0]]
    ...     found = filter_step(hidden, weight, to_device(index), *root, beam_width=2)
    >>> found.tokens[0], found.scores[0].round(2)
    (array([1, 0], dtype=uint32), array([-0.31, -1.31], dtype=float32))
    """
    require("filter_step", "succinct.filter_step does the same")
    from succinct_gpu import _filter_step

    _on_device(index)
    return _filter_step.filter_step(
        hidden, weight, index, states, beam_scores, beam_width, projection, normalize,
        token_offset, allowed, plan, step, stream if stream is not None else 0, workspace,
    )  # fmt: skip


def capture_step(
    hidden: Any,
    weight: Any,
    index: Any,
    states: Any,
    beam_scores: Any,
    beam_width: SupportsIndex,
    projection: str = "auto",
    normalize: str = "valid",
    **options: Any,
) -> Any:
    """Make one CUDA graph of the launches of a step.

    The step is done once, and can then be done again and again with whatever its arguments hold by
    then: ``launch()`` starts it, ``step`` has the answer.

    Parameters
    ----------
    hidden, weight, index, states, beam_scores, beam_width, projection, normalize, **options
        As for `filter_step`; `hidden`, `states` and `beam_scores` on the device.

    Returns
    -------
    object
        With the method ``launch(stream=None)`` and the attribute ``step``.

    Raises
    ------
    RuntimeError, TypeError, ValueError
        As `filter_step` does; if the beams are on the host; or if the driver refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import cuda
    >>> from succinct import KeyTable, StepMap
    >>> from succinct_gpu import simt
    >>> index = StepMap.build(KeyTable.from_rows([[0, 2], [0, 3], [1, 3]]))
    >>> with simt.session():
    ...     hidden, states, scores = map(cuda.to_device, (
    ...         np.zeros((1, 1, 4), np.float32), np.full((1, 1), index.root), np.zeros((1, 1), "f4")
    ...     ))
    ...     captured = capture_step(
    ...         hidden, np.eye(4, dtype=np.float32), to_device(index), states, scores, beam_width=1
    ...     )
    ...     hidden.copy_to_device(np.array([[[0, 1, 0, 0]]], np.float32))
    ...     captured.launch()
    ...     captured.step.tokens.copy_to_host()
    array([[1]], dtype=uint32)
    """
    require("capture_step", "there are no launches to save: use succinct.filter_step")
    from succinct_gpu._device import is_device_array
    from succinct_gpu._dlpack import taken
    from succinct_gpu._filter_step import prepare
    from succinct_gpu._graphs import Captured

    _on_device(index)
    used = options.pop("stream", None)
    used = 0 if used is None else used
    hidden = taken(hidden, "hidden", used)
    if not is_device_array(hidden):
        raise ValueError("hidden: expected an array on the device, to be read again and again")
    given = dict.fromkeys(("token_offset", "allowed", "plan", "step", "workspace"))
    unknown = sorted(set(options) - {*given})
    if unknown:
        raise TypeError(f"capture_step: expected the options of filter_step, got {unknown[0]}")
    return Captured(
        prepare(
            hidden, weight, index, states, beam_scores, beam_width, projection, normalize,
            stream=used, **(given | options),
        )
    )  # fmt: skip


def calibrate(
    index: Any,
    weight: Any,
    batch_sizes: Sequence[int] = (1,),
    *,
    beam_width: int = 128,
    normalize: str = "valid",
    token_offset: int | Sequence[int] | None = None,
    plan: Any = None,
    repeats: int = 7,
    seed: int = 0,
    stream: Any = None,
    workspace: Workspace | None = None,
) -> Any:
    """Measure on the device every way to do every step, and plan to use the fastest.

    Parameters
    ----------
    index : index on the device
    weight : array [V, H], or one such array for each step
        On the device, or on the host and copied.
    batch_sizes, beam_width, normalize, token_offset, plan, repeats, seed
        As for `succinct.calibrate`. Mappings, projections and selections are the same: "mask" gives
        a slot to every column of a product, "bounded" selects in one block for each request,
        "radix" shares the work between blocks.
    stream : numba.cuda stream, optional
    workspace : Workspace, optional

    Returns
    -------
    succinct.Plan
        For `filter_step` on this device, with `step` given. What is measured is all launches of
        a step and the wait for them.

    Raises
    ------
    RuntimeError, TypeError, ValueError
        As `filter_step` and `succinct.calibrate` do.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap
    >>> from succinct_gpu import simt
    >>> index = StepMap.build(KeyTable.from_rows([[0, 2], [0, 3], [1, 3]]))
    >>> with simt.session():  # times of the executor, that say nothing of a device
    ...     plan = calibrate(to_device(index), np.eye(4, dtype=np.float32), repeats=1)
    >>> [(one.step, one.batch) for one in plan.steps]
    [(0, 1), (1, 1)]
    """
    require("calibrate", "succinct.calibrate measures there")
    from succinct_gpu import _filter_step

    _on_device(index)
    return _filter_step.calibrate(
        index, weight, batch_sizes, beam_width, normalize, token_offset, plan, repeats, seed,
        stream if stream is not None else 0, workspace,
    )  # fmt: skip


def device_functions(index: Any) -> Any:
    """Navigation of an index as device functions, for kernels of your own.

    Parameters
    ----------
    index : index on the device
        A kernel is given its `arrays` as an argument.

    Returns
    -------
    named tuple
        ``child_range(arrays, state)`` -> first, count; ``nth_child(arrays, state, first, k)`` ->
        token, state; ``find_child(arrays, state, first, count, token)`` -> state; and
        `has_children`, `is_terminal`, `key_number` (arrays, state).

    Examples
    --------
    >>> import numpy as np
    >>> from numba import cuda
    >>> from succinct import CsrMap, KeyTable
    >>> from succinct_gpu import simt
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> with simt.session():
    ...     on_device = to_device(index)
    ...     child_range = device_functions(on_device).child_range
    ...     @cuda.jit
    ...     def fan_outs(arrays, out):
    ...         i = cuda.grid(1)
    ...         if i < out.size:
    ...             first, count = child_range(arrays, np.uint64(i))
    ...             out[i] = count
    ...     out = np.zeros(5, np.int64)
    ...     fan_outs[1, 32](on_device.arrays, out)
    >>> out
    array([2, 1, 1, 0, 0])
    """
    require("device_functions", "the modules called lanes hold the same functions")
    from succinct_gpu._compile import navigation

    _on_device(index)
    return navigation(index.lanes)


def _on_device(index: Any) -> None:
    from succinct_gpu._index import DeviceIndex

    if not isinstance(index, DeviceIndex):
        raise TypeError(
            f"index: expected one that succinct_gpu.to_device gave, got {type(index).__name__}"
        )
    from numba import cuda

    current = int(cuda.get_current_device().id)
    if index.device != current:
        raise ValueError(
            f"index: it is on device {index.device}, and device {current} is the current one; use "
            f"it inside `with numba.cuda.gpus[{index.device}]:`"
        )


def beam_search(
    index: Any,
    token_ids: Any,
    logprobs: Any,
    *,
    beam_width: int | Sequence[int],
    max_results: int | None = None,
    length_penalty: float = 0.0,
    min_token_logprob: float = -inf,
    min_logprob: float = -inf,
    duplicates: str = "error",
    allowed: Any = None,
    variant: str = "binary",
    selection: str = "radix",
    stream: Any = None,
) -> BeamResult:
    """Find the best keys that can be composed of proposed tokens, by one launch for all steps.

    Does what `succinct.beam_search` does, with the same results bit for bit. The index keeps the
    memory that it takes for the next call; a `Searcher` of one's own has it allocated before.

    Parameters
    ----------
    index : index on the device
    token_ids, logprobs : arrays [Q, T, K] or [T, K]
        Of the host, checked, and copied through pinned memory; or both on the device,
        C-contiguous, logprobs as float32 or float16. What is no token or NaN there is not taken.
    beam_width, max_results, length_penalty, min_token_logprob, min_logprob, duplicates
        As for `succinct.beam_search`; widths and results up to 4,096.
    allowed : BitVector or array, or one for each query, optional
        As for `succinct.beam_search`, or on the device as for `constrain`.
    variant : {"binary", "probe", "linear", "two_pointer", "per_child", "ppt"}
    selection : {"radix", "merge"}
        See `Searcher`; results do not depend on them.
    stream : numba.cuda stream, optional

    Returns
    -------
    BeamResult
        On the host.

    Raises
    ------
    RuntimeError
        If there is no device.
    TypeError, ValueError
        As for `succinct.beam_search`.
    MemoryError
        If the device has too little memory left.

    Examples
    --------
    >>> from succinct import CsrMap, KeyTable
    >>> from succinct_gpu import simt
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> with simt.session():
    ...     on_device = to_device(index)
    ...     found = beam_search(on_device, [[1, 3], [2, 9]], [[-1, -2], [-0.5, 0]], beam_width=2)
    >>> found[0].sequences, found[0].scores
    ([(1,), (1, 2)], array([-1. , -1.5]))
    """
    require("beam_search", "succinct.beam_search does the same")
    from succinct_gpu import _searcher

    _on_device(index)
    return _searcher.beam_search(
        index,
        token_ids,
        logprobs,
        variant=variant,
        selection=selection,
        beam_width=beam_width,
        max_results=max_results,
        length_penalty=length_penalty,
        min_token_logprob=min_token_logprob,
        min_logprob=min_logprob,
        duplicates=duplicates,
        allowed=allowed,
        stream=stream,
    )
