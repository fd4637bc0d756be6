"""Plans for `filter_step`: which of its ways is the fastest for each step on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from succinct import _args
from succinct.decode.filtered import MAPPINGS, SELECTIONS, Choice, FilterStep
from succinct.decode.filtering import filter_step
from succinct.errors import FormatError
from succinct.format import StrPath, replacing
from succinct.index import DEAD, Index

_FORMAT = "succinct plan"
_VERSION = 1
# An option that takes more than this many times as long as the fastest is not measured again.
_HOPELESS = 2
# Seconds by which one time alone may be too long.
_HICCUP = 0.1
# Options within this factor of the fastest are measured up to so many times as often, until a
# step has taken so many seconds.
_NEAR, _LONGER, _ENOUGH = 1.15, 4, 3.0


@dataclass(frozen=True)
class PlannedStep:
    """What a plan says of one step at one batch size.

    Attributes
    ----------
    step, batch : int
        Number of tokens taken before, and of requests.
    choice : Choice
    pinned : bool
        Whether it was chosen by hand.
    seconds : dict of str to float
        Time of every option that was measured, by ``mapping/projection/selection``: a quarter of
        its times were not longer.
    """

    step: int
    batch: int
    choice: Choice
    pinned: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The fastest way of every step; what :func:`calibrate` returns and `filter_step` takes.

    A plan does not change. It belongs to one index, output matrix and machine.

    Attributes
    ----------
    index : dict
        Kind and sizes of the index it was made for.
    normalize : str
    steps : tuple of PlannedStep

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap, calibrate
    >>> index = StepMap.build(KeyTable.from_rows([[0, 2], [0, 3], [1, 3]]))
    >>> plan = calibrate(index, np.eye(4, dtype=np.float32), batch_sizes=[1], repeats=1)
    >>> by_hand = plan.pin(0, projection="full")
    >>> by_hand.choice(0, batch=1).projection, [one.pinned for one in by_hand.steps]
    ('full', [True, False])
    """

    index: Mapping[str, Any]
    normalize: str
    steps: tuple[PlannedStep, ...]

    def choice(
        self, step: SupportsIndex, batch: SupportsIndex, index: Index | None = None
    ) -> Choice:
        """What to do in a step; the batch size nearest to `batch` counts, by ratio.

        Raises
        ------
        ValueError
            If the plan has no such step, or was made for another index.
        """
        if index is not None and _described(index) != self.index:
            raise ValueError(f"plan: made for {self.index}, got {_described(index)}")
        wanted = step.__index__()
        found = [one for one in self.steps if one.step == wanted]
        if not found:
            known = sorted({one.step for one in self.steps})
            raise ValueError(f"plan: expected one of the steps {known}, got {wanted}")
        size = max(batch.__index__(), 1)
        return min(found, key=lambda one: (abs(log(one.batch / size)), one.batch)).choice

    def pin(
        self,
        step: SupportsIndex,
        *,
        mapping: str | None = None,
        projection: str | None = None,
        selection: str | None = None,
        batch: SupportsIndex | None = None,
    ) -> Plan:
        """A plan in which one step is done as said here, at one batch size or at all.

        What is not said stays. :func:`calibrate` leaves pinned steps alone.

        Raises
        ------
        ValueError
            If the plan has no such step, or there is no such way.
        """
        wanted, size = step.__index__(), None if batch is None else batch.__index__()
        changes = {"mapping": mapping, "projection": projection, "selection": selection}
        given = {name: value for name, value in changes.items() if value is not None}
        steps = list(self.steps)
        chosen = [
            i for i, one in enumerate(steps) if one.step == wanted and size in (None, one.batch)
        ]
        if not chosen:
            known = [(one.step, one.batch) for one in self.steps]
            raise ValueError(
                f"plan: expected one of the steps and batch sizes {known}, got {(wanted, size)}"
            )
        for i in chosen:
            choice = steps[i].choice._replace(**given)
            choice.check(self.normalize)
            steps[i] = replace(steps[i], choice=choice, pinned=True)
        return replace(self, steps=tuple(steps))

    # ---- files ------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the plan as JSON; a file at `path` is replaced once the new one is complete."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "index": dict(self.index),
            "normalize": self.normalize,
            "steps": [
                {
                    "step": one.step,
                    "batch": one.batch,
                    **one.choice._asdict(),
                    "pinned": one.pinned,
                    "seconds": dict(one.seconds),
                }
                for one in self.steps
            ],
        }
        with replacing(Path(path)) as file:
            file.write(json.dumps(document, indent=2).encode() + b"\n")

    @classmethod
    def load(cls, path: StrPath) -> Plan:
        """Read a plan.

        Raises
        ------
        OSError
            If the file cannot be read.
        FormatError
            If it is no plan.
        """
        try:
            document = json.loads(Path(path).read_bytes())
            if document["format"] != _FORMAT or document["version"] != _VERSION:
                raise ValueError(f"{document['format']!r}, version {document['version']!r}")
            steps = tuple(_planned(one, document["normalize"]) for one in document["steps"])
            return cls(dict(document["index"]), document["normalize"], steps)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(
                f"{path}: expected a plan of version {_VERSION}: {type(error).__name__}, {error}"
            ) from None


def _planned(entry: Mapping[str, Any], normalize: str) -> PlannedStep:
    choice = Choice(entry["mapping"], entry["projection"], entry["selection"])
    choice.check(normalize)
    numbers = entry["step"], entry["batch"]
    if any(type(number) is not int for number in numbers) or numbers[0] < 0 or numbers[1] < 1:
        raise ValueError(f"step and batch {numbers}")
    seconds = {str(name): float(taken) for name, taken in entry["seconds"].items()}
    return PlannedStep(*numbers, choice, bool(entry["pinned"]), seconds)


def _described(index: Index) -> dict[str, Any]:
    return {
        "kind": type(index).__name__,
        "n_keys": index.n_keys,
        "n_states": index.n_states,
        "max_length": index.max_length,
        "vocab_size": index.vocab_size,
    }


# ---- measuring ---------------------------------------------------------------------------------


def calibrate(
    index: Index,
    weight: npt.ArrayLike | Sequence[npt.ArrayLike],
    batch_sizes: Sequence[int] = (1,),
    *,
    beam_width: int = 128,
    normalize: str = "valid",
    token_offset: int | Sequence[int] | None = None,
    plan: Plan | None = None,
    repeats: int = 7,
    seed: int = 0,
    num_threads: int | None = None,
) -> Plan:
    """Measure every way to do every step, and plan to use the fastest.

    Beams are followed from the root with random hidden states, so that the states of a step are
    such as a search meets. There are two to ten ways a step: how the valid tokens are given (as
    lists, or as rows of bits), which products are taken (of the valid tokens, of all, of the
    band between the smallest and the largest), and how the best are selected (holding twice the
    beam width, or all candidates). They differ in time only.

    Parameters
    ----------
    index : LoudsTrie, StepMap or another index
    weight : array [V, H], or one such array for each step
        The output matrix; as in :func:`filter_step`.
    batch_sizes : sequence of int
        Numbers of requests in a batch to plan for.
    beam_width : int
    normalize : {"valid", "vocab"}
    token_offset : int or sequence of int, optional
        The token of the first row of `weight`, or of each step's.
    plan : Plan, optional
        An earlier plan for the same index, of which the pinned steps are kept.
    repeats : int
        Times that an option is measured; hopeless ones are measured once or twice, and those that
        are about as fast as the fastest up to four times as often.
    seed : int
        For the hidden states.
    num_threads : int, optional
        As in :func:`filter_step`; a plan is for as many threads.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError, ValueError
        As :func:`filter_step` does; and if there are not as many matrices as steps, or `plan` is
        for another index.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap, calibrate
    >>> index = StepMap.build(KeyTable.from_sequences([(0, 2), (0, 3), (1, 3)]))
    >>> plan = calibrate(index, np.eye(4, dtype=np.float32), batch_sizes=[1, 4], repeats=1)
    >>> [(one.step, one.batch) for one in plan.steps]
    [(0, 1), (1, 1), (0, 4), (1, 4)]
    >>> plan.pin(1, projection="full").choice(1, batch=8).projection
    'full'
    """

    def prepare(
        hidden: npt.NDArray[np.float32],
        head: npt.NDArray[Any],
        offset: int | None,
        states: npt.NDArray[np.uint64],
        scores: npt.NDArray[np.float32],
        step: int,
    ) -> Callable[..., FilterStep]:
        return partial(
            filter_step,
            hidden,
            head,
            index,
            states,
            scores,
            beam_width,
            normalize=normalize,
            token_offset=offset,
            num_threads=num_threads,
        )

    heads = read_heads(index, weight, token_offset)
    return make_plan(
        index, heads, batch_sizes, beam_width, normalize, plan, repeats, seed, prepare, lambda x: x
    )


def make_plan(
    index: Index,
    heads: Sequence[tuple[Any, int | None]],
    batch_sizes: Sequence[int],
    beam_width: int,
    normalize: str,
    plan: Plan | None,
    repeats: int,
    seed: int,
    prepare: Callable[..., Callable[..., Any]],
    read: Callable[[Any], FilterStep],
) -> Plan:
    """What :func:`calibrate` does, wherever the steps are done.

    ``prepare(hidden, head, offset, states, scores, step)`` gives what is measured: a function that
    does the step as its argument `plan` says, and returns when it is done; `read` makes its answer
    a `FilterStep`.
    """
    sizes = _sizes(batch_sizes)
    repeats = _args.at_least_one("repeats", repeats)
    described = _described(index)
    if plan is not None and not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    if plan is not None and (plan.index != described or plan.normalize != normalize):
        raise ValueError(
            f"plan: expected one for {described} and {normalize!r}, "
            f"got one for {plan.index} and {plan.normalize!r}"
        )
    pinned = {(one.step, one.batch): one for one in plan.steps if one.pinned} if plan else {}
    random = np.random.default_rng(seed)
    steps = []
    for batch in sizes:
        states = np.full((batch, 1), index.root)
        scores = np.zeros((batch, 1), np.float32)
        for step, (head, offset) in enumerate(heads):
            hidden = random.standard_normal((*states.shape, head.shape[1]), np.float32)
            call = prepare(hidden, head, offset, states, scores, step)
            options = _options(index, head, normalize, states, beam_width)
            found = read(call(plan=options[0]))
            entry = pinned.get((step, batch))
            if entry is None:
                seconds = _measure(call, options, repeats)
                best = min(seconds, key=lambda option: seconds[option])
                named = {"/".join(option): taken for option, taken in seconds.items()}
                entry = PlannedStep(step, batch, best, seconds=named)
            steps.append(entry)
            states, scores, _, _ = found.padded(max(int(np.diff(found.offsets).max()), 1))
            if (states == DEAD).all():
                break
    return Plan(described, normalize, tuple(steps))


def _sizes(batch_sizes: Sequence[int]) -> list[int]:
    if not isinstance(batch_sizes, (Sequence, np.ndarray)) or isinstance(batch_sizes, (str, bytes)):
        raise TypeError(f"batch_sizes: expected ints, got {type(batch_sizes).__name__}")
    sizes = [_args.at_least_one("batch_sizes", size) for size in batch_sizes]
    if not sizes:
        raise ValueError("batch_sizes: expected at least one")
    return sizes


def read_heads(
    index: Index,
    weight: npt.ArrayLike | Sequence[npt.ArrayLike],
    token_offset: int | Sequence[int] | None,
) -> list[tuple[npt.NDArray[Any], int | None]]:
    """Matrix and token offset of every step."""
    if not isinstance(index, Index):
        raise TypeError(f"index: expected an index such as StepMap, got {type(index).__name__}")
    n = index.max_length
    many = isinstance(weight, (list, tuple)) and _n_axes(weight[0]) == 2
    given_heads: Any = weight if many else [weight]
    heads = [
        one if hasattr(one, "__cuda_array_interface__") else np.asarray(one) for one in given_heads
    ]
    offsets: list[int | None] = [None]
    if isinstance(token_offset, Sequence):
        offsets = list(token_offset)
    elif token_offset is not None:
        offsets = [token_offset]
    heads = heads if many else heads * n
    offsets = offsets if len(offsets) > 1 else offsets * n
    for name, given in (("weight", heads), ("token_offset", offsets)):
        if len(given) != n:
            raise ValueError(f"{name}: expected one for each of {n} steps, got {len(given)}")
    for step, head in enumerate(heads):
        if head.ndim != 2:
            raise ValueError(f"weight: expected shape [V, H] in step {step}, got {head.shape}")
    return list(zip(heads, offsets, strict=True))


def _n_axes(array: Any) -> int:
    return len(array.shape) if hasattr(array, "shape") else np.ndim(array)


def _options(
    index: Index,
    head: npt.NDArray[Any],
    normalize: str,
    states: npt.NDArray[np.uint64],
    beam_width: int,
) -> list[Choice]:
    """The ways that differ in this step."""
    offsets, tokens, _ = index.children(states)
    band = int(tokens.max()) - int(tokens.min()) + 1 if len(tokens) else 0
    projections = ["full"]
    if normalize == "valid":
        projections = ["selective", "full", "band"]
        if band == len(head):
            projections.remove("band")
    most = int(np.diff(offsets).reshape(len(states), -1).sum(axis=1).max(initial=0))
    selections = SELECTIONS if most > 2 * beam_width else SELECTIONS[:1]
    options = []
    for mapping in MAPPINGS:
        # With bits every token takes part in the selection.
        ways = SELECTIONS if mapping == "mask" else selections
        for projection in projections:
            if mapping == "list" or projection != "selective":
                options += [Choice(mapping, projection, selection) for selection in ways]
    return options


def _measure(
    call: Callable[..., object], options: Sequence[Choice], repeats: int
) -> dict[Choice, float]:
    """Seconds of every option; the options take turns, so that all meet the same load.

    Whatever else runs on the machine only adds to a time, so that the low ones are nearest to
    that of the option itself; the least alone may be luck. Those that are about as fast as the
    fastest are measured longer.
    """
    taken: dict[Choice, list[float]] = {option: [] for option in options}
    running = list(options)
    begin = time.perf_counter()
    for turn in range(_LONGER * repeats):
        for option in running:
            # What ran before has left other things in the caches, and threads of the matrix
            # products spinning: neither is to count, nor is compilation.
            call(plan=option)
            start = time.perf_counter()
            call(plan=option)
            taken[option].append(time.perf_counter() - start)
        if turn + 1 < repeats:
            bound = _HOPELESS * min(map(min, taken.values())) + (_HICCUP if turn == 0 else 0)
            running = [option for option in running if min(taken[option]) <= bound]
            continue
        bound = _NEAR * min(map(low_quartile, taken.values()))
        running = [option for option in running if low_quartile(taken[option]) <= bound]
        if len(running) == 1 or time.perf_counter() - begin > _ENOUGH:
            break
    return {option: low_quartile(times) for option, times in taken.items()}


def low_quartile(times: Sequence[float]) -> float:
    """The time that a quarter of the times does not exceed; the least of up to three."""
    return sorted(times)[len(times) // 4]
