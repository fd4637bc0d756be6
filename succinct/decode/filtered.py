"""What filtering chooses between, and what comes out of a step."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from succinct.index import DEAD

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

MAPPINGS = ("list", "mask")
PROJECTIONS = ("selective", "full", "band")
SELECTIONS = ("bounded", "radix")


class Choice(NamedTuple):
    """How one step is done; see :func:`succinct.calibrate`. Results do not depend on it."""

    mapping: str = "list"
    projection: str = "selective"
    selection: str = "bounded"

    def check(self, normalize: str) -> None:
        """Raise ValueError if there is no such way."""
        for value, known in zip(self, (MAPPINGS, PROJECTIONS, SELECTIONS), strict=True):
            if value not in known:
                raise ValueError(f"plan: expected one of {', '.join(known)}, got {value!r}")
        if self.mapping == "mask" and self.projection == "selective":
            raise ValueError('plan: mapping "mask" needs projection "full" or "band"')
        if normalize == "vocab" and self.projection != "full":
            raise ValueError('plan: expected projection "full" for normalize="vocab"')


class FilterStep:
    """The best continuations of every request; what :func:`filter_step` returns.

    Attributes
    ----------
    scores : list of float32 arrays
        Of every request, best first: the score of the beam with the log-probability of the token.
    tokens : list of uint32 arrays
    parents : list of int64 arrays
        Numbers of the beams within the request that were continued.
    states : list of uint64 arrays
        The states behind the tokens.
    offsets : int64 array [Q + 1]
        Continuations of the requests before each one: their sizes, summed up.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap, filter_step
    >>> index = StepMap.build(KeyTable.from_rows([[0, 2], [0, 3], [1, 3]]))
    >>> hidden = np.ones((2, 1, 4), np.float32)
    >>> roots, scores = np.full((2, 1), index.root), np.zeros((2, 1))
    >>> step = filter_step(hidden, np.eye(4, dtype=np.float32), index, roots, scores, beam_width=3)
    >>> len(step), step.offsets.tolist(), step.tokens[1].tolist()
    (2, [0, 2, 4], [0, 1])
    """

    def __init__(
        self,
        offsets: Integers,
        scores: Floats,
        tokens: npt.NDArray[np.uint32],
        parents: Integers,
        states: npt.NDArray[np.uint64],
    ) -> None:
        self.offsets = offsets
        parts = [slice(*pair) for pair in itertools.pairwise(offsets.tolist())]
        self.scores = [scores[part] for part in parts]
        self.tokens = [tokens[part] for part in parts]
        self.parents = [parents[part] for part in parts]
        self.states = [states[part] for part in parts]

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return f"FilterStep({len(self)} requests, {self.offsets[-1]} continuations)"

    def padded(
        self, beam_width: int
    ) -> tuple[npt.NDArray[np.uint64], Floats, npt.NDArray[np.uint32], Integers]:
        """States, scores, tokens and parents as arrays [Q, beam_width], for the next step.

        The places of missing beams hold DEAD, -inf, 0 and 0; the next step leaves them out.

        Raises
        ------
        ValueError
            If a request has more than `beam_width` continuations.
        """
        sizes = np.diff(self.offsets)
        if sizes.max(initial=0) > beam_width:
            raise ValueError(
                f"beam_width: expected at least {sizes.max()}, as many as a request has, "
                f"got {beam_width}"
            )
        present = np.arange(beam_width) < sizes[:, None]
        filled = []
        for parts, missing in (
            (self.states, DEAD),
            (self.scores, np.float32(-np.inf)),
            (self.tokens, np.uint32(0)),
            (self.parents, np.int64(0)),
        ):
            array = np.full(present.shape, missing)
            array[present] = np.concatenate(parts) if parts else []
            filled.append(array)
        return tuple(filled)  # type: ignore[return-value]
