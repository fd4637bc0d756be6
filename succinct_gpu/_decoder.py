"""Beam search step by step on the device: the decoder of the CPU, with its steps as kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct.decode import decoder as on_host
from succinct.decode._arrays import Found
from succinct.decode.eligibility import Allowed
from succinct_gpu._device import (
    ON_HOST,
    check_contiguous,
    described,
    is_device_array,
    require,
    upload,
    upload_tuple,
    wrong_dtype,
)
from succinct_gpu._dlpack import taken
from succinct_gpu._proposals import sort_proposals
from succinct_gpu._slot import allocate, start

_MOST_NUMBERS = 2**32


class BeamDecoder(on_host.BeamDecoder):
    """Beam search over an index on the device in steps that the caller drives.

    Does what `succinct.BeamDecoder` does, with the same results bit for bit; a state saved by one
    can be loaded by the other. A step is one launch that finds, scores and selects the next rows
    of all requests; the host keeps the paths.

    Parameters
    ----------
    index : index on the device
    batch, beam_width, max_results, length_penalty, min_token_logprob, min_logprob, allowed
        As for `succinct.BeamDecoder`; widths and results up to 4,096.
    stream : numba.cuda stream, optional
        For copies and launches.

    Raises
    ------
    RuntimeError
        If there is no device.
    TypeError, ValueError
        As `succinct.BeamDecoder`.

    Notes
    -----
    Log-probabilities may be on the device: [rows, V] of float32 or float16, C-contiguous, not
    copied; `parents` and `tokens` are on the device then, to gather caches there. Only the rows'
    tokens that the index allows are read: O(children) loads for each row. How many rows live
    decides the shape of the next step's input, so a step waits for its launch. Memory is allocated
    by the first step, and again if a step has more columns than all before.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable
    >>> from succinct_gpu import BeamDecoder, simt, to_device
    >>> index = CsrMap.build(KeyTable.from_sequences([(1, 2), (1, 3), (2,)]))
    >>> logprobs = np.log([[0.1, 0.6, 0.2, 0.1]]).astype(np.float32)
    >>> with simt.session():  # leave this out where there is a device
    ...     decoder = BeamDecoder(to_device(index), batch=1, beam_width=2)
    ...     parents, tokens = decoder.step(logprobs)
    ...     parents, tokens = decoder.step(logprobs[parents])
    >>> decoder.finish()[0].sequences
    [(2,), (1, 2)]
    """

    def __init__(
        self,
        index: Any,
        batch: int = 1,
        beam_width: int | Sequence[int] = 1,
        *,
        max_results: int | None = None,
        length_penalty: float = 0.0,
        min_token_logprob: float = -inf,
        min_logprob: float = -inf,
        allowed: Allowed | None = None,
        stream: Any = None,
    ) -> None:
        require("BeamDecoder", "succinct.BeamDecoder does the same")
        from succinct_gpu._index import DeviceIndex
        from succinct_gpu._searcher import _at_most_capacity

        if not isinstance(index, DeviceIndex):
            raise TypeError(
                f"index: expected one that succinct_gpu.to_device gave, got {type(index).__name__}"
            )
        super().__init__(
            index.to_host(),
            batch,
            beam_width,
            max_results=max_results,
            length_penalty=length_penalty,
            min_token_logprob=min_token_logprob,
            min_logprob=min_logprob,
            allowed=allowed,
        )
        self._width = _at_most_capacity("beam_width", max(self._widths, default=1))
        _at_most_capacity("max_results", self.max_results)
        self._device = index
        self._given_allowed = allowed
        self._stream: Any = stream if stream is not None else 0
        self._bits = upload_tuple(self._allowed, self._stream)
        self._places = 0
        self._slot: Any = None
        self._proposals: Any = None
        self._blocks: dict[tuple[str, Any], dict[int, int]] = {}

    def step(
        self,
        logprobs: Any = None,
        *,
        token_ids: Any = None,
        hidden: Any = None,
        weight: Any = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        """Extend the live rows by one token each; see `succinct.BeamDecoder.step`.

        Parameters
        ----------
        logprobs : array [rows, V] or [rows, K]
        token_ids : array_like of int, shape [rows, K], optional
            On the device both or neither, and up to 4,096 for each row then.
        hidden, weight, **options
            As for `succinct_gpu.filter_step`, which scores the valid tokens of the rows; `hidden`
            [rows, H] and `weight` may be on the device. The scores pass through the host.

        Returns
        -------
        parents : int64 array [new rows]
        tokens : uint32 array [new rows]
            On the device if `logprobs` or `hidden` are.
        """
        logprobs, token_ids, hidden, weight = (
            taken(array, name, self._stream)
            for name, array in (
                ("logprobs", logprobs),
                ("token_ids", token_ids),
                ("hidden", hidden),
                ("weight", weight),
            )
        )
        parents, tokens = super().step(
            logprobs, token_ids=token_ids, hidden=hidden, weight=weight, **options
        )
        if is_device_array(logprobs) or is_device_array(hidden):
            return upload(parents, self._stream), upload(tokens, self._stream)
        return parents, tokens

    def _laid_out(self, logprobs: Any, token_ids: Any, width: int) -> tuple[bool, Any]:
        """Whether rows have a log-probability for every token, and proposals, checked."""
        if token_ids is not None and is_device_array(token_ids) != is_device_array(logprobs):
            raise TypeError(
                "token_ids, logprobs: expected both on the host or both on the device; copy one of "
                f"them; {ON_HOST}"
            )
        if not is_device_array(logprobs):
            if token_ids is None:
                with self._read(logprobs, None, width) as (_, proposals, _):
                    counts = np.full(len(self.states), proposals.logprobs.shape[1])
                    return True, (proposals.tokens[:1], proposals.logprobs, counts)
            ids, values = self._read_own(logprobs, token_ids)
            found = sort_proposals(ids, values, np.float32(-inf), "error")
            return False, tuple(part[0] for part in found)
        if token_ids is not None:
            return False, self._sorted(token_ids, logprobs)
        rows = len(self.states)
        values = described(logprobs, "logprobs")
        if np.dtype(values.dtype) not in (np.float32, np.float16):
            raise wrong_dtype("logprobs", "float32 or float16", values.dtype)
        if values.ndim != 2 or len(values) != rows:
            raise ValueError(
                f"logprobs: expected shape [{rows}, V], a row for each live row, "
                f"got {tuple(values.shape)}"
            )
        n = int(values.shape[1])
        if n < self._index.vocab_size:
            raise ValueError(
                f"logprobs: expected at least {self._index.vocab_size} columns, one for each "
                f"token of the index, got {n}"
            )
        check_contiguous(values, "logprobs")
        return True, (np.zeros((1, 1), np.uint32), values, np.full(rows, n, np.int64))

    def _sorted(self, token_ids: Any, logprobs: Any) -> tuple[Any, Any, Any]:
        """Proposals of the device, sorted and sifted there, and how many each row has."""
        from numba import cuda

        from succinct_gpu import _prepare
        from succinct_gpu._compile import kernel_for
        from succinct_gpu._searcher import _read_proposals

        rows, stream = len(self.states), self._stream
        ids, values = (array[0] for array in _read_proposals(token_ids, logprobs, stream))
        if len(ids) != rows:
            raise ValueError(
                f"token_ids: expected shape [{rows}, K], a row for each live row, "
                f"got {tuple(ids.shape)}"
            )
        n = int(ids.shape[1])
        if n > _prepare.MOST:
            raise ValueError(
                f"token_ids: expected at most {_prepare.MOST} proposals a row in arrays of the "
                f"device, got {n}; succinct.BeamDecoder takes more"
            )
        if self._proposals is None or self._proposals[0].shape[1] != n:
            shape = self.batch * self._width, n
            self._proposals = (
                *(cuda.device_array(shape, dtype) for dtype in (np.uint32, np.float32)),
                cuda.device_array(shape[0], np.int64),
                cuda.device_array(1, np.int64),
            )
        *found, first_repeat = self._proposals
        found = [part[:rows] for part in found]
        first_repeat.copy_to_device(np.array([rows]), stream=stream)
        if rows:
            kernel_for(_prepare.sort_proposals)[rows, _prepare.BLOCK, stream](
                ids, values, np.float32(-inf), *found, first_repeat
            )
        repeated = int(first_repeat.copy_to_host(stream=stream)[0])
        if repeated < rows:
            raise ValueError(f"token_ids[{repeated}]: a token appears twice")
        return found[0], found[1], found[2]

    def _project(
        self, hidden: ArrayLike, weight: ArrayLike, options: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """The valid tokens of the rows and their log-probabilities, padded with -inf."""
        import succinct_gpu
        from succinct_gpu._filter_step import as_on_host

        rows = len(self.states)
        vectors = described(hidden, "hidden") if is_device_array(hidden) else np.asarray(hidden)
        if vectors.ndim != 2 or len(vectors) != rows:
            raise ValueError(
                f"hidden: expected {rows} rows, one for each live row, "
                f"got shape {tuple(vectors.shape)}"
            )
        for name in options:
            if name not in ("projection", "normalize", "token_offset", "plan"):
                raise TypeError(f"step takes no {name} with hidden")
        offsets, _, _ = self._index.children(self.states)
        width = max(1, int(np.diff(offsets).max(initial=1)))
        allowed: Any = self._given_allowed
        if (self._eligible != self._eligible[0]).any() or self._eligible[0] > 0:
            of = np.repeat(np.arange(self.batch), np.diff(self.offsets))
            allowed = [allowed[request] for request in of]
        beams: list[Any] = [self.states[:, None], np.zeros((rows, 1), np.float32)]
        if is_device_array(hidden):
            beams = [upload(array, self._stream) for array in beams]
        found: Any = succinct_gpu.filter_step(
            vectors.reshape(rows, 1, vectors.shape[1]),
            weight,
            self._device,
            beams[0],
            beams[1],
            width,
            allowed=allowed,
            step=self.n_steps,
            stream=self._stream,
            **options,
        )
        if is_device_array(hidden):
            found = as_on_host(found, rows, self._stream)
        _, logprobs, tokens, _ = found.padded(width)
        return tokens, logprobs

    def _extend(self, logprobs: Any, token_ids: Any, width: int) -> tuple[NDArray[Any], ...]:
        dense, proposals = self._laid_out(logprobs, token_ids, width)
        counts = np.zeros(self.batch, np.int64)
        if not len(self.states):
            dtypes = np.uint64, np.float32, np.int32, np.uint32
            return (counts, *(np.empty(self.batch * width, dtype) for dtype in dtypes))
        _, n = proposals[1].shape
        self._make_room(int(n))
        rows, _, notes, found, _ = self._slot
        self._put_rows(rows)
        self._launch(dense, proposals, width, int(n))

        def down(array: Any) -> NDArray[Any]:
            host: NDArray[Any] = array.copy_to_host(stream=self._stream)
            return host

        made = down(rows.counts[1])
        states, sums = down(rows.states[1]), down(rows.sums[1])
        ranks, tokens = down(notes.parents), down(notes.tokens)
        n_found, sides = down(found.counts), down(found.side)
        parts = [down(part) for part in (found.states, found.sums, found.parents, found.tokens)]
        if self._stream:
            self._stream.synchronize()
        for request in range(self.batch):
            side, m = int(sides[request]), int(n_found[request])
            if m:
                self._add_found(request, *(part[side, request, :m] for part in parts))
        out = [
            np.ascontiguousarray(array.reshape(self.batch, -1)[:, :width]).reshape(-1)
            for array in (states, sums, ranks, tokens)
        ]
        return (made, *out)

    def _make_room(self, n: int) -> None:
        places = min(self._width * n, max(1, int(self._index.n_states)))
        if self._width * n >= _MOST_NUMBERS:
            raise ValueError(
                f"logprobs: expected less than {_MOST_NUMBERS // self._width} columns for "
                f"{self._width} beams, got {n}"
            )
        if self._slot is None or places > self._places:
            self._slot = None
            self._slot = allocate(self.batch, 1, self._width, self.max_results, places, False, 0)
            self._places = places

    def _put_rows(self, rows: Any) -> None:
        """Copy the live rows to where the kernel expects them."""
        counts = np.diff(self.offsets)
        live = np.arange(self._width) < counts[:, None]
        states = np.zeros(live.shape, np.uint64)
        sums = np.zeros(live.shape, np.float32)
        states[live], sums[live] = self.states, self.logprobs
        for target, source in ((rows.states, states), (rows.sums, sums), (rows.counts, counts)):
            target[0].copy_to_device(source, stream=self._stream)

    def _launch(self, dense: bool, proposals: Any, width: int, n: int) -> None:
        from numba import cuda

        from succinct_gpu import _beam, _expand, _topk
        from succinct_gpu._compile import kernel_for
        from succinct_gpu._searcher import _no_known_tokens

        parts = (
            (_expand.prepare, _expand.stage_children, _expand.attempt_dense)
            if dense
            else _expand.VARIANTS["binary"]
        )
        choices = (
            *zip(("prepare", "stage", "attempt"), parts, strict=True),
            ("find_place", _expand.find_dense if dense else _expand.find_place),
            ("token_at", _expand.token_dense if dense else _expand.token_at),
            ("choose_round", _topk.radix_round),
            ("take", _topk.take_radix),
            ("read_clock", _beam.no_clock),
            ("trace", _beam.no_trace),
        )
        kernel = kernel_for(_beam.search, self._device.lanes, choices)

        def there(array: Any) -> Any:
            if is_device_array(array):
                return array
            return cuda.to_device(np.ascontiguousarray(array), stream=self._stream)

        tokens, values, counts = map(there, proposals)
        factors = np.array([1.0, self._factors[self.n_steps + 1]])
        rows, lists, notes, found, (flags,) = self._slot
        arguments = [
            self._device.arrays,
            np.uint64(self._device.root),
            _expand.Proposals(tokens, values, counts, *_no_known_tokens()),
            there(self.offsets[:-1]),
            np.int64(1),
            there(np.array([width], np.int64)),
            *self._limits,
            there(factors),
            np.int64(self.max_results),
            self._bits,
            there(self._eligible),
            rows,
            lists,
            notes,
            found,
            flags,
            there(np.zeros((1, 1), np.int64)),
            found,
        ]
        blocks = self._blocks.setdefault(("dense" if dense else "own", values.dtype), {})
        work = min(self._width * n, self._places)
        start(kernel, arguments, self.batch, work, blocks, self._stream)

    def _add_found(self, request: int, states: Any, sums: Any, parents: Any, tokens: Any) -> None:
        """Keep the best of a request's results and of those that this step found."""
        scores = sums.astype(np.float64) * self._factors[self.n_steps + 1] + 0.0
        bits = scores.view(np.uint64)
        negative = (bits >> np.uint64(63)).astype(bool)
        keys = np.where(negative, ~bits, bits | np.uint64(1 << 63))
        begin, n = request * self._room, int(self._n_found[request])
        steps = np.full(len(keys), self.n_steps, np.int32)
        new = Found(keys, states, sums, steps, parents, tokens)
        old = slice(begin, begin + n)
        places: list[Any] = list(self._found)
        joined = [np.concatenate([mine[old], part]) for mine, part in zip(places, new, strict=True)]
        # Of equal scores those found first come first; largest keys first otherwise.
        best = np.argsort(~joined[0], kind="stable")[: self.max_results]
        for mine, part in zip(places, joined, strict=True):
            mine[begin : begin + len(best)] = part[best]
        self._n_found[request] = len(best)
