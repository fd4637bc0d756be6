"""Beam search on the device: what a search needs there, allocated once, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct._args import at_least_one
from succinct.decode.beam import Asked, _read_arrays, joined, read_options
from succinct.decode.eligibility import Allowed, read_allowed
from succinct.decode.result import BeamResult
from succinct_gpu._arena import Mirror, size_of
from succinct_gpu._device import (
    ON_HOST,
    check_contiguous,
    described,
    is_device_array,
    require,
    wrong_dtype,
)
from succinct_gpu._dlpack import taken
from succinct_gpu._proposals import new_output, packed, sort_proposals
from succinct_gpu._slot import allocate, start

VARIANTS = ("binary", "probe", "linear", "two_pointer", "per_child", "ppt")
SELECTIONS = ("radix", "merge")
_ON_HOST = "succinct.beam_search does the same"
# Bytes for bitmaps of eligible keys, until there are larger ones.
_SMALL_BITMAPS = 1 << 14
# Numbers of candidates are kept in 32 bits.
_MOST_NUMBERS = 2**32
# Between these, scores of one step differ wherever their sums do.
_FACTORS = 2.0**-870, 2.0**890


class Pending(NamedTuple):
    """A search that was launched: what its results are read with."""

    queries: int
    steps: int
    places: int
    factors: NDArray[np.float64]
    stream: Any
    refuse_repeats: bool


class Phases(NamedTuple):
    """How long a search was in its phases, by the clock of the multiprocessor that has the first
    block of each query; waiting for the others belongs to a phase. In the executor it counts what
    all threads access of memory, so that phases can be compared there as well.

    Attributes
    ----------
    expand : int64 array [queries, steps]
        Cycles from the begin of each step to where all candidates are listed; 0 for steps that had
        no rows.
    select : int64 array [queries, steps]
        From there to where the next rows are.
    trace : int64 array [queries]
        To follow the paths back and write the results.
    """

    expand: NDArray[np.int64]
    select: NDArray[np.int64]
    trace: NDArray[np.int64]


class Searcher:
    """Room for searches over one index on the device, and their launch.

    All memory is allocated when the searcher is made, and used again by every search: the input,
    in pinned memory with a mirror on the device, rows, candidates, paths, and results. A searcher
    runs one search at a time; several searchers of one index run side by side on streams of their
    own.

    Parameters
    ----------
    index : index on the device
    max_batch, max_beam_width, max_proposals, max_steps : int
        The largest searches to make room for. Widths go up to 4,096.
    max_results : int, optional
        By default the beam width; up to 4,096.
    variant : {"binary", "probe", "linear", "two_pointer", "per_child", "ppt"}
        How proposals are looked up among the children of a row. The first two are to be used;
        the others are for comparison. Results do not depend on it.
    selection : {"radix", "merge"}
        How the best candidates are chosen. Results do not depend on it.
    timed : bool
        Read the clock between the phases of every search, in a kernel of its own.

    Attributes
    ----------
    phases : Phases or None
        How long the phases of the last search took, if `timed`.

    Raises
    ------
    RuntimeError
        If there is no device.
    TypeError, ValueError
        If an argument is wrong.
    MemoryError
        If the device has too little memory left.

    Notes
    -----
    Memory is dominated by 16 bytes for each candidate that a step can have, which are the beam
    width times the proposals, or the states of the index if these are fewer; "merge" adds 8.

    Examples
    --------
    >>> from succinct import CsrMap, KeyTable
    >>> from succinct_gpu import Searcher, simt, to_device
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> with simt.session():  # leave this out where there is a device
    ...     searcher = Searcher(
    ...         to_device(index), max_batch=1, max_beam_width=2, max_proposals=2, max_steps=2
    ...     )
    ...     found = searcher.search([[1, 3], [2, 9]], [[-1.0, -2.0], [-0.5, 0.0]], beam_width=2)
    >>> found[0].sequences
    [(1,), (1, 2)]
    """

    def __init__(
        self,
        index: Any,
        *,
        max_batch: int = 1,
        max_beam_width: int,
        max_proposals: int,
        max_steps: int,
        max_results: int | None = None,
        variant: str = "binary",
        selection: str = "radix",
        timed: bool = False,
    ) -> None:
        require("Searcher", _ON_HOST)
        from succinct_gpu import _beam, _expand, _topk
        from succinct_gpu._index import DeviceIndex

        if not isinstance(index, DeviceIndex):
            raise TypeError(
                f"index: expected one that succinct_gpu.to_device gave, got {type(index).__name__}"
            )
        one_of("variant", variant, VARIANTS)
        one_of("selection", selection, SELECTIONS)
        self._index = index
        self.variant, self.selection, self.timed = variant, selection, timed
        self.phases: Phases | None = None
        self.max_batch = at_least_one("max_batch", max_batch)
        self.max_proposals = at_least_one("max_proposals", max_proposals)
        self.max_steps = at_least_one("max_steps", max_steps)
        self.max_beam_width = _at_most_capacity("max_beam_width", max_beam_width)
        most = self.max_beam_width if max_results is None else max_results
        self.max_results = _at_most_capacity("max_results", most)
        self._beam = _beam
        width = min(self.max_beam_width, int(index.n_states))
        if width * self.max_proposals >= _MOST_NUMBERS:
            raise ValueError(
                f"max_beam_width * max_proposals: expected less than {_MOST_NUMBERS}, "
                f"got {width} * {self.max_proposals}"
            )
        self._places = min(width * self.max_proposals, max(1, int(index.n_states)))
        self._results = min(self.max_results, int(index.n_keys))
        sizes = (
            size_of(self._input_fields(self.max_batch, self.max_steps, self.max_proposals)),
            size_of(self._output_fields(self.max_batch, self._results, self.max_steps)),
            _SMALL_BITMAPS,
        )
        self._arrays = allocate(
            self.max_batch,
            self.max_steps,
            width,
            self._results,
            self._places,
            selection == "merge",
            sum(sizes),
        )
        self._input, self._output, self._allowed = map(Mirror, sizes)
        parts = _expand.VARIANTS[variant]
        self._choices = (
            *zip(("prepare", "stage", "attempt"), parts, strict=True),
            ("find_place", _expand.find_place),
            ("token_at", _expand.token_at),
            ("choose_round", getattr(_topk, f"{selection}_round")),
            ("take", getattr(_topk, f"take_{selection}")),
            ("read_clock", _beam.note_clock if timed else _beam.no_clock),
        )
        self._known = index._known_tokens() if variant == "ppt" else _no_known_tokens()
        self._blocks: dict[Any, int] = {}
        self._pending: Pending | None = None

    def __repr__(self) -> str:
        return (
            f"<Searcher: {self.max_batch} queries of {self.max_steps} steps and "
            f"{self.max_proposals} proposals, {self.max_beam_width} beams, "
            f"{self.variant} and {self.selection}, {self.nbytes / 2**20:.1f} MiB on the device>"
        )

    @property
    def nbytes(self) -> int:
        """Bytes on the device, those of the index not among them."""
        mirrors = self._input, self._output, self._allowed
        parts = (array for arrays in self._arrays for array in arrays)
        return sum(m.nbytes for m in mirrors) + sum(int(array.nbytes) for array in parts)

    # ---- memory -----------------------------------------------------------------------------

    def _input_fields(self, queries: int, steps: int, proposals: int) -> Any:
        lines = queries * steps
        return {
            "tokens": ((lines, proposals), np.uint32),
            "logprobs": ((lines, proposals), np.float32),
            "counts": ((lines,), np.int64),
            "widths": ((steps,), np.int64),
            "factors": ((steps + 1,), np.float64),
            "offsets": ((queries,), np.int64),
            "origins": ((queries,), np.int64),
        }

    def _output_fields(self, queries: int, places: int, steps: int) -> Any:
        shape = queries, places
        return {
            "counts": ((queries,), np.int64),
            "sums": (shape, np.float32),
            "numbers": (shape, np.int64),
            "states": (shape, np.uint64),
            "lengths": (shape, np.int64),
            "tokens": ((*shape, steps), np.uint32),
            "first_repeat": ((1,), np.int64),
            "clocks": ((queries, 2 * steps + 2) if self.timed else (1, 1), np.int64),
        }

    # ---- searching --------------------------------------------------------------------------

    def search(
        self,
        token_ids: ArrayLike,
        logprobs: ArrayLike,
        *,
        beam_width: int | Sequence[int],
        max_results: int | None = None,
        length_penalty: float = 0.0,
        min_token_logprob: float = -inf,
        min_logprob: float = -inf,
        duplicates: str = "error",
        allowed: Allowed | Any | None = None,
        stream: Any = None,
    ) -> BeamResult:
        """Search, and wait for the results; the arguments are those of `beam_search`."""
        self.launch(
            token_ids,
            logprobs,
            beam_width=beam_width,
            max_results=max_results,
            length_penalty=length_penalty,
            min_token_logprob=min_token_logprob,
            min_logprob=min_logprob,
            duplicates=duplicates,
            allowed=allowed,
            stream=stream,
        )
        return self.result()

    def launch(
        self,
        token_ids: ArrayLike,
        logprobs: ArrayLike,
        *,
        beam_width: int | Sequence[int],
        max_results: int | None = None,
        length_penalty: float = 0.0,
        min_token_logprob: float = -inf,
        min_logprob: float = -inf,
        duplicates: str = "error",
        allowed: Allowed | Any | None = None,
        stream: Any = None,
    ) -> None:
        """Put a search on the stream and return; `result` waits for it.

        Nothing is allocated or waited for, unless bitmaps are larger than those before, or arrays
        of the device, which are put under rank.

        Raises
        ------
        TypeError, ValueError
            As `succinct.beam_search`, and for more than the searcher has room for.
        RuntimeError
            If the result of the search before was not taken.
        """
        if self._pending is not None:
            raise RuntimeError("a search is under way: take its result() first")
        used = stream if stream is not None else 0
        ids, values = _read_proposals(token_ids, logprobs, used)
        on_device = is_device_array(ids)
        queries, steps, proposals = map(int, ids.shape)
        for name, given, room in (
            ("batch", queries, self.max_batch),
            ("steps", steps, self.max_steps),
            ("proposals", proposals, self.max_proposals),
        ):
            if given > room:
                raise ValueError(f"token_ids: expected at most {room} {name}, got {given}")
        asked = read_options(
            self._index,
            (queries, steps, proposals),
            beam_width=beam_width,
            max_results=max_results,
            length_penalty=length_penalty,
            min_token_logprob=min_token_logprob,
            min_logprob=min_logprob,
            duplicates=duplicates,
        )
        self._check_room(asked)
        places = max(1, min(asked.max_results, asked.candidates))
        lanes, offsets = self._eligible(allowed, queries, used)
        host, device, nbytes = self._input.arrays(self._input_fields(queries, steps, proposals))
        out_host, out, _ = self._output.arrays(self._output_fields(queries, places, steps))
        if not on_device:
            tokens, sums, counts = sort_proposals(ids, values, asked.min_token, duplicates)
            host["tokens"][...] = tokens.reshape(host["tokens"].shape)
            host["logprobs"][...] = sums.reshape(host["logprobs"].shape)
            host["counts"][...] = counts.reshape(-1)
        if queries * steps * proposals == 0:
            self._pending = Pending(queries, 0, 0, asked.factors, used, False)
            return
        host["widths"][:], host["factors"][:] = asked.widths, asked.factors
        host["offsets"][:], host["origins"][:] = offsets, np.arange(queries) * steps
        self._input.to_device(nbytes, used)
        if on_device:
            out_host["first_repeat"][0] = queries * steps
            out["first_repeat"].copy_to_device(out_host["first_repeat"], stream=used)
            self._sort(ids, values, asked.min_token, device, out["first_repeat"], used)
        self._launch(asked, places, lanes, device, out, used)
        refuse = on_device and duplicates == "error"
        self._pending = Pending(queries, steps, places, asked.factors, used, refuse)

    def result(self) -> BeamResult:
        """Wait for the search that was launched, and give its results.

        Raises
        ------
        RuntimeError
            If none was.
        ValueError
            If arrays of the device proposed a token twice in one step, and were not to.
        """
        if self._pending is None:
            raise RuntimeError("no search is under way")
        found, self._pending = self._pending, None
        if found.places == 0:
            return joined([packed(new_output(found.queries, 1, 1), found.factors)])
        fields = self._output_fields(found.queries, found.places, found.steps)
        host, _, nbytes = self._output.arrays(fields)
        self._output.to_host(nbytes, found.stream)
        if found.stream:
            found.stream.synchronize()
        first_repeat = int(host["first_repeat"][0])
        if found.refuse_repeats and first_repeat < found.queries * found.steps:
            raise ValueError(
                f"token_ids[{first_repeat // found.steps}, {first_repeat % found.steps}]: a token "
                'appears twice; pass duplicates="first" to use the first only'
            )
        if self.timed:
            self.phases = _phases(host["clocks"])
        output = self._beam.Output(*(host[name].copy() for name in self._beam.Output._fields))
        return joined([packed(output, found.factors)])

    def _check_room(self, asked: Asked) -> None:
        widest = max(asked.widths, default=1)
        if widest > self.max_beam_width:
            raise ValueError(f"beam_width: expected at most {self.max_beam_width}, got {widest}")
        if asked.max_results > self._results:
            raise ValueError(
                f"max_results: expected at most {self.max_results}, got {asked.max_results}"
            )
        used = asked.factors[1:]
        if used.size and not (used.min() > _FACTORS[0] and used.max() < _FACTORS[1]):
            raise ValueError(
                "length_penalty: its factors leave the range in which float64 tells scores apart; "
                f"on the CPU {_ON_HOST}"
            )

    def _eligible(self, allowed: Any, queries: int, stream: Any) -> tuple[Any, NDArray[np.int64]]:
        """Bitmaps of eligible keys on the device, and where each query's begin."""
        from succinct_gpu import _eligible

        allowed = taken(allowed, "allowed", stream)
        if _eligible.on_device(allowed):
            return _eligible.read_there(allowed, int(self._index.n_keys), queries, stream)
        lanes, offsets = read_allowed(allowed, int(self._index.n_keys), queries)
        fields = {
            name: (part.shape, part.dtype)
            for name, part in zip(lanes._fields, lanes, strict=True)
            if isinstance(part, np.ndarray)
        }
        if size_of(fields) > self._allowed.nbytes:
            self._allowed = Mirror(size_of(fields))
        host, device, nbytes = self._allowed.arrays(fields)
        for name in fields:
            host[name][...] = getattr(lanes, name)
        self._allowed.to_device(nbytes, stream)
        return lanes._replace(**device), offsets

    def _sort(
        self, ids: Any, values: Any, min_token: Any, device: Any, first_repeat: Any, stream: Any
    ) -> None:
        from succinct_gpu import _prepare
        from succinct_gpu._compile import kernel_for

        queries, steps, proposals = ids.shape
        if proposals > _prepare.MOST:
            raise ValueError(
                f"token_ids: expected at most {_prepare.MOST} proposals a step in arrays of the "
                f"device, got {proposals}"
            )
        lines = queries * steps
        kernel_for(_prepare.sort_proposals)[lines, _prepare.BLOCK, stream](
            ids.reshape(lines, proposals),
            values.reshape(lines, proposals),
            min_token,
            device["tokens"],
            device["logprobs"],
            device["counts"],
            first_repeat,
        )

    def _launch(
        self, asked: Asked, places: int, lanes: Any, device: Any, out: Any, stream: Any
    ) -> None:
        from succinct_gpu._compile import kernel_for
        from succinct_gpu._expand import Proposals

        kernel = kernel_for(self._beam.search, self._index.lanes, self._choices)
        proposals = Proposals(device["tokens"], device["logprobs"], device["counts"], *self._known)
        rows, lists, notes, found, (flags,) = self._arrays
        queries, n = len(device["offsets"]), device["tokens"].shape[1]
        output = self._beam.Output(*(out[name] for name in self._beam.Output._fields))
        work = max([n, *(width * n for width in asked.widths[:-1])])
        arguments: list[Any] = [
            self._index.arrays,
            np.uint64(self._index.root),
            proposals,
            device["origins"],
            np.int64(0),
            device["widths"],
            np.float32(-inf),
            asked.min_sum,
            device["factors"],
            np.int64(places),
            lanes,
            device["offsets"],
            rows,
            lists,
            notes,
            found,
            flags,
            out["clocks"],
            output,
        ]
        start(kernel, arguments, queries, work, self._blocks, stream)


def beam_search(
    index: Any,
    token_ids: ArrayLike,
    logprobs: ArrayLike,
    *,
    variant: str,
    selection: str,
    allowed: Any,
    stream: Any,
    **options: Any,
) -> BeamResult:
    """See `succinct_gpu.beam_search`."""
    one_of("variant", variant, VARIANTS)
    one_of("selection", selection, SELECTIONS)
    ids, values = _read_proposals(token_ids, logprobs, stream if stream is not None else 0)
    shape = tuple(map(int, ids.shape))
    asked = read_options(index, shape, **options)
    sizes: dict[str, Any] = {
        "max_batch": max(1, shape[0]),
        "max_steps": max(1, shape[1]),
        "max_proposals": max(1, shape[2]),
        "max_beam_width": _at_most_capacity("beam_width", max(asked.widths, default=1)),
        "max_results": _at_most_capacity("max_results", asked.max_results),
    }
    kept = index._searchers.get((variant, selection))
    if kept is None or any(getattr(kept, name) < size for name, size in sizes.items()):
        index._searchers.pop((variant, selection), None)
        kept = Searcher(index, variant=variant, selection=selection, **sizes)
        index._searchers[variant, selection] = kept
    found: BeamResult = kept.search(ids, values, allowed=allowed, stream=stream, **options)
    return found


def _phases(clocks: NDArray[np.int64]) -> Phases:
    """What was noted, as spans."""
    steps = clocks.shape[1] // 2 - 1
    # Steps that were not taken end when the one before did.
    ends = clocks.copy()
    for k in range(1, ends.shape[1]):
        ends[:, k] = np.where(ends[:, k] == 0, ends[:, k - 1], ends[:, k])
    spans = np.diff(ends, axis=1)
    return Phases(spans[:, 0 : 2 * steps : 2], spans[:, 1 : 2 * steps : 2], spans[:, 2 * steps])


def one_of(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise a ValueError unless `value` is one of some names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def _at_most_capacity(name: str, value: Any) -> int:
    from succinct_gpu._topk import CAPACITY

    number = at_least_one(name, value)
    if number > CAPACITY:
        raise ValueError(
            f"{name}: expected at most {CAPACITY} on the device, got {number}; "
            "succinct.beam_search takes more"
        )
    return number


def _no_known_tokens() -> tuple[Any, Any]:
    from numba import cuda

    return cuda.to_device(np.zeros(1, np.uint32)), cuda.to_device(np.zeros(1, np.int64))


def _read_proposals(token_ids: Any, logprobs: Any, stream: Any) -> tuple[Any, Any]:
    """Both as arrays [Q, T, K], where they are, checked for type and shape."""
    token_ids, logprobs = taken(token_ids, "token_ids", stream), taken(logprobs, "logprobs", stream)
    if not (is_device_array(token_ids) or is_device_array(logprobs)):
        return _read_arrays(token_ids, logprobs)
    for name, given in (("token_ids", token_ids), ("logprobs", logprobs)):
        if not is_device_array(given):
            raise TypeError(
                f"{name}: expected an array of the device, as the other one is; copy one of them; "
                f"{ON_HOST}"
            )
    ids, values = described(token_ids, "token_ids"), described(logprobs, "logprobs")
    if np.dtype(ids.dtype).kind not in "iu":
        raise wrong_dtype("token_ids", "integers", ids.dtype)
    if np.dtype(values.dtype) not in (np.float32, np.float16):
        raise wrong_dtype("logprobs", "float32 or float16", values.dtype)
    if ids.ndim not in (2, 3):
        raise ValueError(f"token_ids: expected shape [T, K] or [Q, T, K], got {tuple(ids.shape)}")
    if tuple(ids.shape) != tuple(values.shape):
        raise ValueError(
            f"logprobs: expected the shape of token_ids, {tuple(ids.shape)}, "
            f"got {tuple(values.shape)}"
        )
    for name, array in (("token_ids", ids), ("logprobs", values)):
        check_contiguous(array, name)
    if ids.ndim == 2:
        ids, values = ids.reshape(1, *ids.shape), values.reshape(1, *values.shape)
    return ids, values
