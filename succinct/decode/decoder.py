"""Beam search step by step, for models that decode one token after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct._args import at_least_one, on_host
from succinct._threads import in_threads, parts_of, read_threads
from succinct.decode import _arrays, _expand, _search, _select
from succinct.decode._team import ALONE
from succinct.decode.beam import (
    _length_factors,
    _read_arrays,
    _read_widths,
    _threshold,
    joined,
)
from succinct.decode.eligibility import Allowed, read_allowed
from succinct.decode.result import BeamResult

_FOUND = ("keys", "states", "sums", "steps", "parents", "tokens")


class BeamDecoder:
    """Beam search over an index in steps that the caller drives.

    A request has up to `beam_width` live rows, each a prefix of a key with something to follow.
    All live rows of all requests lie one after another, best first within a request: run the
    model on them, give the log-probabilities to :meth:`step`, reorder caches by the parents that
    it returns, and append the tokens. What is taken, kept and found is as in `beam_search`; the
    same log-probabilities give the same results bit for bit.

    Parameters
    ----------
    index : LoudsTrie, StepMap or CsrMap
    batch : int
        Number of requests.
    beam_width : int or sequence of ints
        How many prefixes of a request are kept after a step; one number, or one for each step,
        of which there are no more then.
    max_results : int, optional
        How many results a request has at most; by default the beam width, the widest if there
        are several.
    length_penalty, min_token_logprob, min_logprob, allowed, num_threads
        As for `beam_search`; `allowed` for all requests or for each.

    Attributes
    ----------
    states : uint64 array [rows]
        States of the live rows. A request that is finished has none: a prefix that nothing
        extends is not kept, and a key that is also a prefix is both a result and kept.
    offsets : int64 array [batch + 1]
        The rows of request q are ``offsets[q]`` to ``offsets[q + 1]``.
    logprobs : float32 array [rows]
        Sums of log-probabilities of the rows.
    n_steps : int
        Steps taken.

    Raises
    ------
    TypeError, ValueError
        As `beam_search`.

    Notes
    -----
    A step costs O(children) of each row, or with K proposals a row O(K) and the lesser of that and
    K binary searches among the children; memory is O(batch * (beam_width + max_results)).

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import BeamDecoder, KeyTable, StepMap
    >>> index = StepMap.build(KeyTable.from_sequences([(1, 2), (1, 3), (2,)]))
    >>> decoder = BeamDecoder(index, batch=1, beam_width=2)
    >>> logprobs = np.log([[0.1, 0.6, 0.2, 0.1]])
    >>> parents, tokens = decoder.step(logprobs)
    >>> parents.tolist(), tokens.tolist()
    ([0], [1])
    >>> parents, tokens = decoder.step(logprobs[parents])
    >>> len(decoder.states)
    0
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
        num_threads: int | None = None,
    ) -> None:
        if not (hasattr(index, "lanes") and hasattr(index, "lane_arrays")):
            raise TypeError(
                f"index: expected an index such as LoudsTrie, got {type(index).__name__}"
            )
        self.batch = at_least_one("batch", batch)
        self._index = index
        length = int(index.max_length)
        if isinstance(beam_width, (Sequence, np.ndarray)) and np.ndim(beam_width) == 1:
            length = len(beam_width)
        self._widths = [min(w, int(index.n_states)) for w in _read_widths(beam_width, length)]
        if max_results is None:
            max_results = max(self._widths, default=1)
        self.max_results = min(at_least_one("max_results", max_results), int(index.n_keys))
        self._factors = _length_factors(length_penalty, max(length, int(index.max_length)))
        self._limits = (
            _threshold("min_token_logprob", min_token_logprob),
            _threshold("min_logprob", min_logprob),
        )
        self._threads = read_threads(num_threads)
        self._allowed, self._eligible = read_allowed(allowed, int(index.n_keys), self.batch)

        self._engine = _search.engine_of(index)
        self.n_steps = 0
        live = [self._reaches(offset) for offset in self._eligible.tolist()]
        self.offsets = np.array([0, *itertools.accumulate(map(int, live))], np.int64)
        self.states = np.full(sum(live), index.root, np.uint64)
        self.logprobs = np.zeros(len(self.states), np.float32)
        self._room = 2 * self.max_results
        self._found = _arrays.new_found(self.batch * self._room)
        self._n_found = np.zeros(self.batch, np.int64)
        self._bounds = np.zeros(self.batch, np.uint64)
        # Of every step: offsets of its rows, their parents' ranks and their tokens.
        self._history: list[tuple[Any, Any, Any]] = []

    def _reaches(self, offset: int) -> bool:
        """Whether a request has an eligible key at all."""
        if offset < 0:
            return True
        n = int(self._index.n_keys)
        words = self._allowed.words[offset // 64 : -(-(offset + n) // 64)]
        return bool(words[:-1].any()) or bool(int(words[-1]) & ((1 << ((n - 1) % 64 + 1)) - 1))

    def __repr__(self) -> str:
        return (
            f"<BeamDecoder: {self.batch} requests, {len(self.states)} live rows "
            f"after {self.n_steps} steps>"
        )

    def step(
        self,
        logprobs: ArrayLike | None = None,
        *,
        token_ids: ArrayLike | None = None,
        hidden: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        **options: Any,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Extend the live rows by one token each.

        Parameters
        ----------
        logprobs : array_like of float, shape [rows, V] or [rows, K]
            Without `token_ids` the log-probabilities of all tokens, V >= ``index.vocab_size``;
            further columns are not looked at, nor are those of tokens that do not continue a
            row. NaN stands for -inf there. Otherwise those of the proposals.
        token_ids : array_like of int, shape [rows, K], optional
            Proposals of every row; a log-probability of -inf marks padding.
        hidden : array_like of float32 or float16, shape [rows, H], optional
            Hidden states of the rows instead of log-probabilities; only valid tokens are scored
            where that is cheaper, as by :func:`succinct.filter_step`.
        weight : array_like of float32 or float16, shape [V, H], optional
            The output matrix, with `hidden`.
        **options
            With `hidden`: `projection`, `normalize`, `token_offset` and `plan` of `filter_step`.

        Returns
        -------
        parents : int64 array [new rows]
            For every row that is live now, the number that its parent had among the rows given
            in; what belongs to rows (caches) is to be gathered by it.
        tokens : uint32 array [new rows]
            The token that each took.

        Raises
        ------
        TypeError, ValueError
            If shapes or types are wrong, a proposal is NaN, out of range or repeated in its row,
            the vocabulary is narrower than that of the index, or `beam_width` has no more steps.
            The decoder is unchanged then.
        """
        if self.n_steps >= len(self._widths) and len(self.states):
            raise ValueError(
                f"beam_width is given for {len(self._widths)} steps, and all have been taken"
            )
        if hidden is not None or weight is not None:
            if hidden is None or weight is None or logprobs is not None or token_ids is not None:
                raise TypeError("step takes hidden with weight, and neither beside logprobs")
            token_ids, logprobs = self._project(hidden, weight, options)
        elif options:
            raise TypeError(f"step takes {', '.join(options)} only with hidden and weight")
        elif logprobs is None:
            raise TypeError("step needs logprobs, or hidden and weight")
        width = self._widths[self.n_steps] if self.n_steps < len(self._widths) else 1
        # No row has more descendants than there are.
        width = max(1, min(width, int(self._index.n_states)))
        counts, states, sums, ranks, tokens = self._extend(logprobs, token_ids, width)
        kept = (np.arange(width) < counts[:, None]).reshape(-1)
        parents = ranks[kept]
        rows_before = np.repeat(self.offsets[:-1], counts)
        offsets = np.zeros(self.batch + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        self._history.append((offsets, parents, tokens[kept]))
        self.offsets, self.states, self.logprobs = offsets, states[kept], sums[kept]
        self.n_steps += 1
        return parents + rows_before, tokens[kept]

    def _extend(
        self, logprobs: ArrayLike, token_ids: ArrayLike | None, width: int
    ) -> tuple[NDArray[Any], ...]:
        """Find what this step finds, and the next rows of every request.

        Their number; then their states, sums, parents' ranks and tokens, those of request q from
        ``q * width`` on.
        """
        places = self.batch * width
        counts = np.zeros(self.batch, np.int64)
        states, sums = np.empty(places, np.uint64), np.empty(places, np.float32)
        ranks, tokens = np.empty(places, np.int32), np.empty(places, np.uint32)

        def advance(mode: int, proposals: Any, sizes: Any, part: slice) -> None:
            with self._engine.space(sizes) as space:
                self._engine.call(
                    "advance",
                    self._engine.arrays,
                    self._engine.n_tokens,
                    self.states,
                    self.logprobs,
                    self.offsets,
                    part.start,
                    part.stop,
                    mode,
                    proposals,
                    *self._limits,
                    self._factors,
                    self.n_steps,
                    width,
                    self.max_results,
                    self._allowed,
                    self._eligible,
                    space.room,
                    self._found,
                    self._room,
                    self._n_found,
                    self._bounds,
                    counts,
                    states,
                    sums,
                    ranks,
                    tokens,
                    ALONE,
                )

        with self._read(logprobs, token_ids, width) as read:
            if len(self.states):
                parts = parts_of(self.batch, self._threads)
                in_threads(partial(advance, *read), parts, self._threads)
        return counts, states, sums, ranks, tokens

    def _project(
        self, hidden: ArrayLike, weight: ArrayLike, options: Mapping[str, Any]
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """The valid tokens of the rows and their log-probabilities, padded with -inf."""
        from succinct.decode.filtering import row_logprobs

        known = ("projection", "normalize", "token_offset", "plan")
        for name in options:
            if name not in known:
                raise TypeError(f"step takes {', '.join(known)} with hidden, got {name}")
        return row_logprobs(
            hidden,
            weight,
            self._index,
            self.states,
            (self._allowed, np.repeat(self._eligible, np.diff(self.offsets))),
            step=self.n_steps,
            num_threads=self._threads,
            **options,
        )

    @contextmanager
    def _read(
        self, logprobs: ArrayLike, token_ids: ArrayLike | None, width: int
    ) -> Iterator[tuple[int, Any, Any]]:
        """How the log-probabilities of the rows are laid out, and these, checked; sizes of rooms.

        They stay as they are only until the caller is done.
        """
        rows = len(self.states)
        if token_ids is None:
            sizes = _search.Sizes(width=width, results=self._room)
            values = np.asarray(on_host("logprobs", logprobs))
            if values.dtype.kind != "f":
                raise TypeError(f"logprobs: expected floating point numbers, got {values.dtype}")
            if values.ndim != 2 or len(values) != rows:
                raise ValueError(
                    f"logprobs: expected shape [{rows}, V], a row for each live row, "
                    f"got {values.shape}"
                )
            n = values.shape[1]
            if n < self._index.vocab_size:
                raise ValueError(
                    f"logprobs: expected at least {self._index.vocab_size} columns, one for each "
                    f"token of the index, got {n}"
                )
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                values = np.ascontiguousarray(values, np.float32)
            none = _arrays.new_proposals(1, 1)
            yield _expand.DENSE, none._replace(logprobs=values), sizes
            return
        ids, values = self._read_own(logprobs, token_ids)
        sizes = _search.Sizes(rows, ids.shape[2], width, self._room)
        with self._engine.space(sizes) as space:
            low = self._limits[0]
            proposals = self._engine.read(space, ids[0], values[0], low, "error", (0,))
            yield _expand.OWN, proposals, sizes._replace(lines=1)

    def _read_own(
        self, logprobs: ArrayLike, token_ids: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Proposals of every row as arrays [1, rows, K]."""
        rows = len(self.states)
        ids, values = _read_arrays(token_ids, logprobs)
        if ids.shape[:2] != (1, rows):
            raise ValueError(
                f"token_ids: expected shape [{rows}, K], a row for each live row, "
                f"got {ids.shape[1:] if len(ids) == 1 else ids.shape}"
            )
        return ids, values

    def finish(self) -> BeamResult:
        """The keys found so far, best first; live rows are not among them.

        Returns
        -------
        BeamResult
            As of `beam_search`. The decoder is unchanged and can go on.
        """
        steps = max(1, self.n_steps)
        starts = np.zeros((self.batch, steps + 1), np.int64)
        base = 0
        for step, (offsets, _, _) in enumerate(self._history):
            starts[:, step] = base + offsets[:-1]
            base += int(offsets[-1])
        parents = [np.empty(0, np.int32), *(ranks for _, ranks, _ in self._history)]
        tokens = [np.empty(0, np.uint32), *(tokens for _, _, tokens in self._history)]
        out = _arrays.new_output(self.batch, self.max_results, steps)
        ends = self._engine.call(
            "report",
            self._engine.arrays,
            self._found,
            self._room,
            self._n_found,
            self.max_results,
            self._factors,
            starts,
            np.concatenate(parents),
            np.concatenate(tokens),
            _select.new_scratch(self._room),
            out,
        )
        return joined([_arrays.written(out, *ends)])

    # ---- saving -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Copy of everything that changes from step to step, as arrays by name."""
        state: dict[str, Any] = {
            "n_steps": self.n_steps,
            "index": self._fingerprint(),
            "offsets": self.offsets.copy(),
            "states": self.states.copy(),
            "logprobs": self.logprobs.copy(),
            "n_found": self._n_found.copy(),
            "bounds": self._bounds.copy(),
            "history_offsets": np.array([o for o, _, _ in self._history], np.int64).reshape(
                self.n_steps, self.batch + 1
            ),
            "history_parents": np.concatenate(
                [np.empty(0, np.int32), *(p for _, p, _ in self._history)]
            ),
            "history_tokens": np.concatenate(
                [np.empty(0, np.uint32), *(t for _, _, t in self._history)]
            ),
        }
        used = np.arange(self._room) < self._n_found[:, None]
        for name in _FOUND:
            state[f"found_{name}"] = getattr(self._found, name).reshape(self.batch, -1)[used]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back (or on) to what `state_dict` gave, of this or an equally made decoder.

        Raises
        ------
        TypeError, KeyError, ValueError
            If `state` is none, lacks something, or belongs to another index, batch or width. The
            decoder is unchanged then.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state: expected a mapping, got {type(state).__name__}")
        if list(state["index"]) != self._fingerprint():
            raise ValueError("state: it belongs to another index, batch, width or max_results")
        steps = at_least_one("state['n_steps'] + 1", int(state["n_steps"]) + 1) - 1

        def read(name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
            array = np.array(state[name], dtype)
            if array.shape != shape:
                raise ValueError(f"state[{name!r}]: expected shape {shape}, got {array.shape}")
            return array

        history_offsets = read("history_offsets", np.int64, (steps, self.batch + 1))
        offsets = read("offsets", np.int64, (self.batch + 1,))
        for row in (*history_offsets, offsets):
            if row[0] != 0 or (np.diff(row) < 0).any() or (np.diff(row) > max(self._widths)).any():
                raise ValueError(
                    "state: offsets must ascend from 0, by no more than the beam width"
                )
        ends = np.cumsum(history_offsets[:, -1])
        noted = int(ends[-1]) if steps else 0
        parents = read("history_parents", np.int32, (noted,))
        tokens = read("history_tokens", np.uint32, (noted,))
        history = []
        before = np.ones(self.batch, np.int64)
        for step in range(steps):
            own = slice(int(ends[step] - history_offsets[step, -1]), int(ends[step]))
            counts = np.diff(history_offsets[step])
            _in_range(parents[own], np.repeat(before, counts))
            history.append((history_offsets[step], parents[own], tokens[own]))
            before = counts
        if steps and not np.array_equal(offsets, history_offsets[-1]):
            raise ValueError("state: offsets are not those of the last step")
        rows = int(offsets[-1])
        states = self._index._states(read("states", np.uint64, (rows,)))
        logprobs = read("logprobs", np.float32, (rows,))
        n_found = read("n_found", np.int64, (self.batch,))
        if ((n_found < 0) | (n_found >= self._room)).any():
            raise ValueError(f"state['n_found']: expected 0 to {self._room - 1}")
        bounds = read("bounds", np.uint64, (self.batch,))
        found = _arrays.new_found(self.batch * self._room)
        used = np.arange(self._room) < n_found[:, None]
        for name in _FOUND:
            target = getattr(found, name).reshape(self.batch, -1)
            target[used] = read(f"found_{name}", target.dtype, (int(n_found.sum()),))
        found_steps = found.steps.reshape(self.batch, -1)[used]
        if ((found_steps < 0) | (found_steps >= steps)).any():
            raise ValueError("state['found_steps']: expected steps that were taken")
        rows_before = np.array([np.ones(self.batch, np.int64), *map(np.diff, history_offsets)])
        requests = np.repeat(np.arange(self.batch), n_found)
        _in_range(found.parents.reshape(self.batch, -1)[used], rows_before[found_steps, requests])
        self._index._states(found.states.reshape(self.batch, -1)[used])
        self.n_steps, self.offsets, self.states, self.logprobs = steps, offsets, states, logprobs
        self._history, self._found, self._n_found, self._bounds = history, found, n_found, bounds

    def _fingerprint(self) -> list[int]:
        index = self._index
        sizes = index.n_keys, index.n_states, index.max_length, index.vocab_size
        return [*map(int, sizes), self.batch, self.max_results, *self._widths]


def _in_range(ranks: Any, limits: Any) -> None:
    if ((ranks < 0) | (ranks >= limits)).any():
        raise ValueError("state: a parent is none of the rows before")
