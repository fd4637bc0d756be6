"""What `succinct_gpu.filter_step` does on the host: checks, buffers, launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from succinct import _args
from succinct.decode._filter_job import Job
from succinct.decode.eligibility import read_allowed
from succinct.decode.filtered import Choice, FilterStep
from succinct.decode.filtering import check_options, read_choice
from succinct.decode.plan import make_plan, read_heads
from succinct.index import DEAD
from succinct_gpu import _filtering, _masking, _products, _selecting
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import (
    ON_HOST,
    as_device_array,
    is_device_array,
    upload,
    upload_tuple,
    wrong_dtype,
)
from succinct_gpu._dlpack import taken
from succinct_gpu._workspace import Workspace

if TYPE_CHECKING:
    from succinct.decode.eligibility import Allowed
    from succinct.decode.plan import Plan
    from succinct_gpu._index import DeviceIndex

# Candidates of a request that one block selects from faster than several launches do.
_FEW = 1 << 14
# Share of valid tokens from which the product for a whole band is taken; a guess, for `calibrate`
# to better.
_DENSE = 1 / 8
# Bytes of shared memory that every device lends a block.
_SHARED = 48 << 10
_FLOATS = (np.float32, np.float16)
_PROBLEMS = {
    _filtering.NOT_FINITE: "expected finite scores of tokens, got nan or inf; look for it in "
    "hidden and weight",
    _filtering.NO_ROOM: "more valid tokens than max_slots of the workspace has room for",
    _filtering.NO_ROW: "a valid token has no row in weight; expected rows for every token of the "
    "step",
}


class DeviceStep(NamedTuple):
    """The best continuations of every request, on the device; the places of missing ones are
    filled.

    Attributes
    ----------
    states : uint64 array [Q, beam_width]
        The states behind the tokens, best first; DEAD where there is none.
    scores : float32 array [Q, beam_width]
        -inf where there is none.
    tokens : uint32 array [Q, beam_width]
    parents : int64 array [Q, beam_width]
        Numbers of the beams within the request that were continued.
    counts : int32 array [Q]
        How many continuations each request has.
    status : int32 array [Q]
        0; or 1 if a score came out NaN or inf, 2 if the workspace had too few slots, 3 if a valid
        token has no row in `weight`. The request then has no continuations.
    """

    states: Any
    scores: Any
    tokens: Any
    parents: Any
    counts: Any
    status: Any


def filter_step(
    hidden: Any,
    weight: Any,
    index: DeviceIndex,
    states: Any,
    beam_scores: Any,
    beam_width: SupportsIndex,
    projection: str,
    normalize: str,
    token_offset: SupportsIndex | None,
    allowed: Allowed | None,
    plan: Plan | Choice | None,
    step: SupportsIndex | None,
    stream: Any,
    workspace: Workspace | None,
) -> FilterStep | DeviceStep:
    """See `succinct_gpu.filter_step`."""
    prepared = prepare(
        hidden, weight, index, states, beam_scores, beam_width, projection, normalize,
        token_offset, allowed, plan, step, stream, workspace,
    )  # fmt: skip
    prepared.launch()
    return prepared.on_host() if prepared.of_host else prepared.step


def prepare(
    hidden: Any,
    weight: Any,
    index: DeviceIndex,
    states: Any,
    beam_scores: Any,
    beam_width: SupportsIndex,
    projection: str,
    normalize: str,
    token_offset: SupportsIndex | None,
    allowed: Allowed | None,
    plan: Plan | Choice | None,
    step: SupportsIndex | None,
    stream: Any,
    workspace: Workspace | None,
) -> Prepared:
    """Check everything and put it on the device; nothing has been started."""
    check_options(projection, normalize)
    hidden, weight, states, beam_scores, allowed = (
        taken(array, name, stream)
        for name, array in (
            ("hidden", hidden), ("weight", weight), ("states", states),
            ("beam_scores", beam_scores), ("allowed", allowed),
        )
    )  # fmt: skip
    there = [is_device_array(array) for array in (hidden, states, beam_scores)]
    if any(there) and not all(there):
        raise ValueError(
            "hidden, states, beam_scores: expected all of them on the host or all on the device, "
            f"got {', '.join('device' if one else 'host' for one in there)}; copy them to one; "
            f"{ON_HOST}"
        )
    width = _args.at_least_one("beam_width", beam_width)
    matrix: Any = weight
    stand_in: Any = weight
    if is_device_array(weight):
        matrix = _floats(weight, "weight", 2)
        # The checks of the CPU look at the shape only.
        stand_in = np.broadcast_to(np.zeros(1, matrix.dtype), matrix.shape)
    if all(there):
        vectors = _floats(hidden, "hidden", 3)
        places = [
            as_device_array(states, "states", np.uint64, 2),
            as_device_array(beam_scores, "beam_scores", np.float32, 2),
        ]
        # All other checks, on a batch without beams.
        none = np.empty((0, *vectors.shape[1:]), vectors.dtype)
        job = Job(none, stand_in, index._facts, np.empty(none.shape[:2], np.uint64),
                  np.empty(none.shape[:2], np.float32), token_offset)  # fmt: skip
        for name, array in zip(("states", "beam_scores"), places, strict=True):
            if array.shape != vectors.shape[:2]:
                raise ValueError(
                    f"{name}: expected the shape of hidden without its last axis, "
                    f"{tuple(vectors.shape[:2])}, got {tuple(array.shape)}"
                )
        if plan is not None and not isinstance(plan, Choice) and step is None:
            raise ValueError(
                "step: expected the number of tokens taken so far beside a plan: what states on "
                "the device are is not looked at"
            )
        degrees = None
    else:
        job = Job(hidden, stand_in, index.to_host(), states, beam_scores, token_offset)
        vectors = upload(job.hidden.reshape(*job.shape, job.hidden.shape[1]), stream)
        given = np.full(job.shape, DEAD).reshape(-1)
        given[job.live] = job.states
        scores = np.full(given.shape, -np.inf, np.float32)
        scores[job.live] = job.scores
        places = [upload(array.reshape(job.shape), stream) for array in (given, scores)]
        degrees = np.zeros(given.shape, np.int64)
        degrees[job.live] = job.degrees
    if not is_device_array(weight):
        matrix = upload(job.weight, stream)
    n_requests, _, length = vectors.shape
    if 4 * length > _SHARED:
        raise ValueError(
            f"hidden: expected at most {_SHARED // 4} dimensions on the device, got {length}; "
            "succinct.filter_step takes any"
        )
    job.normalize, job.n_requests = normalize, n_requests
    return Prepared(
        index, job, vectors, matrix, places[0], places[1], degrees, width,
        read_choice(plan, step, job, projection),
        _read_allowed(allowed, index.n_keys, n_requests, stream), step, stream,
        workspace or Workspace(),
    )  # fmt: skip


def _read_allowed(allowed: Any, n_keys: int, n_requests: int, stream: Any) -> Any:
    from succinct_gpu import _eligible

    if _eligible.on_device(allowed):
        return _eligible.read_there(allowed, n_keys, n_requests, stream)
    lanes, offsets = read_allowed(allowed, n_keys, n_requests)
    return (upload_tuple(lanes, stream) if (offsets >= 0).any() else lanes), offsets


def _floats(array: Any, name: str, ndim: int) -> Any:
    dtype = np.dtype(array.__cuda_array_interface__["typestr"])
    if dtype not in _FLOATS:
        raise wrong_dtype(name, "float32 or float16", dtype)
    return as_device_array(array, name, dtype, ndim)


class Prepared:
    """One step with all its buffers: `launch` starts its kernels, and neither allocates nor
    waits."""

    def __init__(
        self,
        index: DeviceIndex,
        job: Any,
        hidden: Any,
        weight: Any,
        states: Any,
        beam_scores: Any,
        degrees: Any,
        width: int,
        choice: Choice | None,
        allowed: Any,
        step: SupportsIndex | None,
        stream: Any,
        workspace: Workspace,
    ) -> None:
        self.index, self.stream, self.normalize = index, stream, job.normalize
        self.of_host = degrees is not None
        self.products = _products.library(workspace.products)
        self.shape = n_requests, n_beams = hidden.shape[:2]
        n_rows = n_requests * n_beams
        self.n_rows = n_rows
        self.hidden = hidden.reshape(n_rows, hidden.shape[2])
        self.weight = weight
        self.states, self.beam_scores = states.reshape(n_rows), beam_scores.reshape(n_rows)
        self.low, self.n_columns = job.offset, int(weight.shape[0])
        band = self._band(step)
        everywhere = _columns(_range(index, None), self.low, self.n_columns)
        self.restricted = bool((allowed[1] >= 0).any())
        self.choice = self._decide(choice, step, everywhere)
        mask = self.choice.mapping == "mask"

        def room(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            return workspace.room(name, shape, dtype, stream)

        self.dense_low, self.dense_width = self.low, self.n_columns
        if self.choice.projection == "band":
            self.dense_low, self.dense_width = band
        if self.choice.projection == "selective":
            self.dense = room("no scores", (0, 0), np.float32)
        else:
            self.dense = room("dense", (n_rows, self.dense_width), np.float32)
        # How many candidates there can be, in slots of chunks and of a request.
        if mask:
            chunks, most = 0, n_beams * self.dense_width
        elif degrees is not None:
            chunks = int((-(-degrees // _filtering.CHUNK)).sum())
            most = int(degrees.reshape(self.shape).sum(axis=1).max(initial=0))
        else:
            fan_out = band[1] if step is not None else _span(_range(index, None))
            chunks, most = n_rows * -(-fan_out // _filtering.CHUNK), n_beams * fan_out
        if workspace.max_slots is not None:
            chunks = min(chunks, workspace.max_slots // _filtering.CHUNK)
        if most >= 2**32:
            raise ValueError(
                f"hidden: expected less than 2**32 candidates for a request, got up to {most}"
            )
        self.width = max(1, min(width, most))
        if self.width > _selecting.MOST:
            raise ValueError(
                f"beam_width: expected at most {_selecting.MOST} on the device, got {width}; "
                "succinct.filter_step takes any"
            )
        if choice is None and most > _FEW:
            self.choice = self.choice._replace(selection="radix")
        self.room = np.int64(min(_selecting.MOST, max(256, 2 * self.width)))
        n_digits = 0
        if self.choice.selection == "radix":
            n_digits = _selecting.PASSES * n_requests * _selecting.DIGITS
            self.kept = room("kept", (n_requests, _selecting.MOST), np.uint64)
        # What is cleared at the begin of each step lies together.
        self.words = room("words", (2 * n_requests + 1 + n_digits,), np.int32)
        self.n_kept = self.words[n_requests + 1 : 2 * n_requests + 1]
        self.digits = self.words[2 * n_requests + 1 :].reshape(
            _selecting.PASSES if n_digits else 0, n_requests, _selecting.DIGITS
        )
        slots = 0 if mask else chunks * _filtering.CHUNK
        self.n_chunks = chunks
        values = self.dense.reshape(n_rows * self.dense_width) if mask else None
        self.slots = _filtering.Slots(
            origins=room("origins", (n_rows,), np.int64),
            starts=room("starts", (n_rows,), np.int64),
            counts=room("counts", (n_rows,), np.int64),
            firsts=room("firsts", (n_requests, n_beams + 1), np.int64),
            owners=room("owners", (chunks,), np.int32),
            n_chunks=self.words[n_requests : n_requests + 1],
            tokens=room("tokens", (slots,), np.uint32),
            states=room("states", (slots,), np.uint64),
            values=room("values", (slots,), np.float32) if values is None else values,
            norms=room("norms", (n_rows,), np.float32),
            status=self.words[:n_requests],
        )
        shape = n_requests, self.width
        self.winners = _selecting.Winners(
            states=room("out states", shape, np.uint64),
            scores=room("out scores", shape, np.float32),
            tokens=room("out tokens", shape, np.uint32),
            parents=room("out parents", shape, np.int64),
            counts=room("out counts", (n_requests,), np.int32),
        )
        self.every_key = index._eligible(None, None, n_rows, stream)
        if self.restricted:
            self.allowed = allowed[0]
            self.allowed_at = upload(allowed[1], stream)

    @property
    def step(self) -> DeviceStep:
        """The arrays that the answer is written to."""
        return DeviceStep(*self.winners, self.slots.status)

    def _band(self, step: SupportsIndex | None) -> tuple[int, int]:
        """First token and number of columns of the product for a step's tokens."""
        return _columns(_range(self.index, step), self.low, self.n_columns)

    def _decide(self, choice: Choice | None, step: Any, everywhere: tuple[int, int]) -> Choice:
        if choice is None:
            dense = step is not None and self.index.density(step) >= _DENSE
            return Choice(projection="band" if dense else "selective")
        if choice.mapping == "mask":
            # Bits say nothing of keys that are not eligible, or of tokens outside of the head.
            whole = everywhere[1] == _span(_range(self.index, None))
            if self.restricted or not whole:
                return choice._replace(mapping="list")
        return choice

    def launch(self) -> None:
        """Start the kernels of the step."""
        n_requests, n_beams = self.shape
        if n_requests == 0:
            return
        block = _masking.BLOCK
        kernel_for(_filtering.clear)[_blocks(self.words.size, block), block, self.stream](
            self.words
        )
        navigating = self.index.arrays, self.index._limits, self.states
        mask = self.choice.mapping == "mask"
        kernel_for(_filtering.open_rows, self.index.lanes)[n_requests, block, self.stream](
            *navigating, self.beam_scores, np.int64(self.dense_width if mask else 0), self.slots
        )
        if self.n_rows:
            if self.choice.projection != "selective" and self.dense.size:
                first = self.dense_low - self.low
                _products.product(
                    self.products, self.hidden, self.weight, first, self.dense, self.stream
                )
            if mask:
                self._mask(navigating)
            else:
                self._fill(navigating)
        self._select()
        if mask and self.n_rows:
            kernel_for(_filtering.advance, self.index.lanes)[
                _blocks(n_requests * self.width, block), block, self.stream
            ](
                *navigating, np.int64(n_beams), self.winners.parents, self.winners.tokens,
                self.winners.states,
            )  # fmt: skip

    def _normalise(self, values: Any, width: int) -> None:
        kernel = kernel_for(_filtering.normalise)
        kernel[self.n_rows, _masking.BLOCK, self.stream](values, np.int64(width), self.slots)

    def _mask(self, navigating: tuple[Any, ...]) -> None:
        if self.normalize == "vocab":
            self._normalise(self.slots.values, 0)
        # All bits are left out of the comparison that finds NaN: it is for `normalise` to find.
        infinity, none = np.uint32(0xFF800000), np.uint32(0)
        kernel_for(_masking.constrain_rows, self.index.lanes, self.every_key[0])[
            self.n_rows, _masking.BLOCK, self.stream
        ](
            *navigating, *self.every_key[1], np.int64(self.dense_low),
            self.dense.view(np.uint32), infinity, none,
        )  # fmt: skip
        if self.normalize == "valid":
            self._normalise(self.slots.values, 0)

    def _fill(self, navigating: tuple[Any, ...]) -> None:
        if self.n_chunks == 0:
            return
        workers = min(self.n_chunks, _workers())
        selective = self.choice.projection == "selective"
        kernel_for(_filtering.fill_slots, self.index.lanes)[
            min(self.n_chunks, 4 * workers), _filtering.CHUNK, self.stream
        ](
            *navigating,
            np.int64(self.low if selective else self.dense_low),
            np.int64(self.n_columns if selective else self.dense_width),
            self.dense,
            self.slots,
        )
        if self.restricted:
            kernel_for(_filtering.drop_ineligible, self.index.lanes)[
                min(self.n_chunks, 4 * workers), _filtering.CHUNK, self.stream
            ](self.index.arrays, self.allowed, self.allowed_at, self.slots)
        if selective:
            shared = 4 * self.hidden.shape[1]
            kernel_for(_filtering.project)[workers, _masking.BLOCK, self.stream, shared](
                self.hidden, self.weight, np.int64(self.low), self.slots
            )
        if self.normalize == "vocab":
            self._normalise(self.dense.reshape(self.dense.size), self.dense_width)
        else:
            self._normalise(self.slots.values, 0)

    def _select(self) -> None:
        n_requests, block = self.shape[0], _masking.BLOCK
        low, need = np.int64(self.dense_low), np.int64(self.width)
        if self.choice.selection != "radix":
            kernel_for(_selecting.select_in_block)[n_requests, block, self.stream](
                self.beam_scores, self.room, low, self.slots, self.winners
            )
            return
        each = max(1, min(_workers() // n_requests, 64))
        for turn in range(_selecting.PASSES):
            kernel_for(_selecting.count_digits)[(n_requests, each), block, self.stream](
                self.beam_scores, self.room, np.int64(turn), need, self.slots, self.digits
            )
        kernel_for(_selecting.collect)[(n_requests, each), block, self.stream](
            self.beam_scores, self.room, need, self.slots, self.digits, self.n_kept, self.kept
        )
        kernel_for(_selecting.finish)[n_requests, block, self.stream](
            self.n_kept, self.kept, low, self.slots, self.winners
        )

    def on_host(self) -> FilterStep:
        """Wait for the answer, and copy it to the host; see `as_on_host`."""
        return as_on_host(self.step, self.shape[0], self.stream)


def as_on_host(step: DeviceStep, n_requests: int, stream: Any) -> FilterStep:
    """Wait for an answer, and copy it to the host.

    Raises
    ------
    ValueError
        If something was wrong with a request.
    """
    found = [part.copy_to_host(stream=stream) for part in step]
    if stream:
        stream.synchronize()
    states, scores, tokens, parents, counts, status = found
    if n_requests == 0:
        counts = status = np.empty(0, np.int64)
    if status.any():
        request = int(status.argmax())
        raise ValueError(f"hidden[{request}]: {_PROBLEMS[int(status[request])]}")
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    valid = np.arange(scores.shape[1]) < counts[:, None]
    parts = (array[valid] for array in (scores, tokens, parents, states))
    return FilterStep(offsets, *parts)


def _blocks(n: int, block: int) -> int:
    return max(1, min(-(-n // block), 4096))


def _workers() -> int:
    """Blocks that a device holds at a time, about."""
    from numba import cuda

    return 8 * int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def _range(index: DeviceIndex, step: SupportsIndex | None) -> tuple[int, int]:
    """The tokens [low, high) of a step, or of all."""
    if index.max_length == 0:
        return 0, 0
    if step is not None:
        low, high = index.token_range(step.__index__())
        return low, high
    ranges = [index.token_range(one) for one in range(index.max_length)]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _span(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def _columns(bounds: tuple[int, int], low: int, n_columns: int) -> tuple[int, int]:
    """First token and number of tokens of a range that a head of `n_columns` from `low` has."""
    first, end = max(bounds[0], low), min(bounds[1], low + n_columns)
    return (first, end - first) if end > first else (low, 0)


def calibrate(
    index: DeviceIndex,
    weight: Any,
    batch_sizes: Any,
    beam_width: int,
    normalize: str,
    token_offset: Any,
    plan: Plan | None,
    repeats: int,
    seed: int,
    stream: Any,
    workspace: Workspace | None,
) -> Plan:
    """See `succinct_gpu.calibrate`."""
    from numba import cuda

    host = index.to_host()
    room = workspace or Workspace()
    copies: dict[int, Any] = {}

    def there(head: Any) -> Any:
        if is_device_array(head):
            return head
        return copies.setdefault(id(head), upload(head, stream))

    def prepare_step(
        hidden: Any, head: Any, offset: Any, states: Any, scores: Any, step: int
    ) -> Any:
        head = there(head)
        vectors, places, values = (
            upload(array, stream) for array in (hidden.astype(head.dtype), states, scores)
        )
        known: dict[Choice, Prepared] = {}

        def call(plan: Choice) -> Prepared:
            if plan not in known:
                known[plan] = prepare(
                    vectors, head, index, places, values, beam_width, "auto", normalize, offset,
                    None, plan, step, stream, room,
                )  # fmt: skip
            known[plan].launch()
            if stream:
                stream.synchronize()
            else:
                cuda.synchronize()
            return known[plan]

        return call

    heads = read_heads(host, weight, token_offset)
    return make_plan(
        host, heads, batch_sizes, beam_width, normalize, plan, repeats, seed, prepare_step,
        lambda prepared: prepared.on_host(),
    )  # fmt: skip
