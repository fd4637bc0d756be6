"""Filtering first: score only what the index allows, normalise, keep the best."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import numpy.typing as npt

from succinct import _args
from succinct._threads import read_threads
from succinct.bits.lanes import BitLanes
from succinct.decode._filter_job import Job, read_matrix
from succinct.decode.eligibility import Allowed, read_allowed
from succinct.decode.filtered import PROJECTIONS, Choice, FilterStep, Floats, Integers
from succinct.index import Index

if TYPE_CHECKING:
    from succinct.decode.plan import Plan

_NORMALIZE = ("valid", "vocab")
# Multiplications that are worth a thread's start.
_WORTH_THREADS = 1 << 22


def filter_step(
    hidden: npt.ArrayLike,
    weight: npt.ArrayLike,
    index: Index,
    states: npt.ArrayLike,
    beam_scores: npt.ArrayLike,
    beam_width: SupportsIndex,
    projection: str = "auto",
    normalize: str = "valid",
    *,
    token_offset: SupportsIndex | None = None,
    allowed: Allowed | None = None,
    plan: Plan | Choice | None = None,
    step: SupportsIndex | None = None,
    num_threads: int | None = None,
) -> FilterStep:
    """Continue beams by their best valid tokens, scoring no other ones where that is cheaper.

    The index says which tokens continue a beam towards a key. Their scores are products of the
    beam's hidden state and of rows of the output matrix; a log-softmax makes them
    log-probabilities, which are added to the score of the beam. The best of each request stay:
    of equal scores the one with the lower beam number, then the one with the smaller token.

    Parameters
    ----------
    hidden : array_like of float32 or float16, shape [Q, B, H]
        The hidden state of every beam of every request. This and the other arrays may be tensors
        of torch and the like (DLPack) in memory of the processor.
    weight : array_like of float32 or float16, shape [V, H]
        The output matrix; row t is for token t, or for token ``token_offset + t``. Rows beyond
        the vocabulary of the index are allowed.
    index : LoudsTrie, StepMap or another index
    states : array_like of int, shape [Q, B]
        The beams' states. Beams that are DEAD or that no token continues give nothing.
    beam_scores : array_like of float, shape [Q, B]
        Their scores so far, taken as float32. Beams of -inf give nothing.
    beam_width : int
        How many continuations of a request are kept at most.
    projection : {"auto", "selective", "full", "band"}
        "selective" multiplies for the valid tokens only, "full" for all rows of `weight`, "band"
        for the range from the smallest to the largest valid token. "auto" is "selective" where
        the beams have, on average, up to about a twelfth of the band's tokens, and else "band": a
        rule of thumb, for which a `plan` stands in times of the machine itself. Scores agree
        within 2e-4.
    normalize : {"valid", "vocab"}
        Whether the log-softmax runs over the valid tokens of a beam, or over all rows of
        `weight`, as if what is invalid were left out after scoring; that needs them all, so
        `projection` is then "full" or "auto".
    token_offset : int, optional
        `weight` is the head of one step for the tokens from `token_offset` on. By default it is
        for all tokens of the index.
    allowed : BitVector or array, or one for each request, optional
        Eligible keys, as in :func:`beam_search`: a token is valid only if it completes one or
        leads to one. Valid tokens then come as lists, whatever `plan` says.
    plan : Plan or Choice, optional
        What :func:`calibrate` found to be fastest, instead of an estimate.
    step : int, optional
        Number of tokens taken so far, to look it up in `plan`; by default it is found out from
        the states.
    num_threads : int, optional
        Threads to spread beams over; by default as many as the process may use processors.
        Matrix products of "full" and "band" run in numpy, which has threads of its own. Results
        do not depend on it.

    Returns
    -------
    FilterStep
        For each request, best first, ``scores[q]``, ``tokens[q]``, ``parents[q]`` (beam numbers
        within the request) and ``states[q]``. There are fewer than `beam_width` if there are no
        more; none is repeated.

    Raises
    ------
    TypeError
        If `index` is not an index, or an array has the wrong type.
    ValueError
        If shapes disagree, a valid token has no row in `weight`, a state is none of `index`, a
        beam's score is NaN or inf, a score that is looked at comes out NaN or inf, or an array lies
        on another device.

    Notes
    -----
    With n valid tokens of all beams together, "selective" costs O(n H), the others O(Q B V H) in
    a matrix product, with V the width of the band; selection costs O(n) for any beam width. At
    most some million scores are held at a time.

    The order of the work is that of ZeroGR (arXiv:2607.07723).

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import KeyTable, StepMap, filter_step
    >>> index = StepMap.build(KeyTable.from_sequences([(0, 2), (0, 3), (1, 3)]))
    >>> weight = np.array([[0, 0], [1, 0], [0, 2], [0, 1]], np.float32)
    >>> hidden = np.ones((1, 1, 2), np.float32)
    >>> step = filter_step(hidden, weight, index, [[index.root]], [[0.0]], beam_width=2)
    >>> step.tokens[0], step.scores[0].round(2)
    (array([1, 0], dtype=uint32), array([-0.31, -1.31], dtype=float32))
    >>> states, scores, _, _ = step.padded(2)
    >>> step = filter_step(hidden.repeat(2, 1), weight, index, states, scores, beam_width=2)
    >>> step.parents[0], step.tokens[0]
    (array([0, 1]), array([3, 2], dtype=uint32))
    """
    job = Job(hidden, weight, index, states, beam_scores, token_offset)
    job.allowed, job.allowed_at = read_allowed(allowed, index.n_keys, job.n_requests)
    job.width = _args.at_least_one("beam_width", beam_width)
    return _filtered(job, projection, normalize, plan, step, num_threads)


def row_logprobs(
    hidden: npt.ArrayLike,
    weight: npt.ArrayLike,
    index: Index,
    states: npt.NDArray[np.uint64],
    allowed: tuple[BitLanes, Integers],
    *,
    projection: str = "auto",
    normalize: str = "valid",
    token_offset: SupportsIndex | None = None,
    plan: Plan | Choice | None = None,
    step: SupportsIndex | None = None,
    num_threads: int | None = None,
) -> tuple[npt.NDArray[np.uint32], Floats]:
    """The valid tokens of every row, ascending, and their log-probabilities; padded with -inf.

    `hidden` has shape [rows, H]; `allowed` are bitmaps and the offset of each row in them.
    """
    vectors = read_matrix("hidden", hidden, 2, "[rows, H]")
    if len(vectors) != len(states):
        raise ValueError(
            f"hidden: expected {len(states)} rows, one for each live row, got {len(vectors)}"
        )
    none = np.zeros((len(states), 1), np.float32)
    job = Job(vectors[:, None], weight, index, states[:, None], none, token_offset)
    job.allowed, job.allowed_at = allowed
    job.width, job.everything = 1, True
    found = _filtered(job, projection, normalize, plan, step, num_threads)
    counts = np.diff(found.offsets)
    present = np.arange(max(1, counts.max(initial=0))) < counts[:, None]
    tokens = np.zeros(present.shape, np.uint32)
    logprobs = np.full(present.shape, -np.inf, np.float32)
    if len(states):
        tokens[present] = np.concatenate(found.tokens)
        logprobs[present] = np.concatenate(found.scores)
    return tokens, logprobs


def _filtered(
    job: Job,
    projection: str,
    normalize: str,
    plan: Plan | Choice | None,
    step: SupportsIndex | None,
    num_threads: int | None,
) -> FilterStep:
    threads = read_threads(num_threads)
    check_options(projection, normalize)
    job.normalize = normalize
    choice = read_choice(plan, step, job, projection)
    threads = min(threads, max(1, job.work // _WORTH_THREADS))
    if threads == 1:
        return job.run(choice, map, 1)
    with ThreadPoolExecutor(threads) as pool:
        return job.run(choice, pool.map, threads)


def check_options(projection: str, normalize: str) -> None:
    """Raise ValueError if there is no such way to do a step."""
    for name, value, known in (
        ("projection", projection, ("auto", *PROJECTIONS)),
        ("normalize", normalize, _NORMALIZE),
    ):
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    if normalize == "vocab" and projection not in ("auto", "full"):
        raise ValueError(
            'normalize: "vocab" needs the scores of all tokens, expected projection="full" or '
            f'"auto", got {projection!r}'
        )


def read_choice(
    plan: Plan | Choice | None, step: SupportsIndex | None, job: Job, projection: str
) -> Choice | None:
    """What was chosen beforehand; None leaves it to an estimate."""
    if plan is None:
        if projection != "auto":
            return Choice(projection=projection)
        return Choice(projection="full") if job.normalize == "vocab" else None
    if projection != "auto":
        raise ValueError(f'plan: expected projection="auto" beside a plan, got {projection!r}')
    if not isinstance(plan, Choice):
        from succinct.decode.plan import Plan

        if not isinstance(plan, Plan):
            raise TypeError(f"plan: expected a Plan or a Choice, got {type(plan).__name__}")
        depth = _depth(job.index, job.first_state) if step is None else step
        plan = plan.choice(depth, job.n_requests, index=job.index)
    plan.check(job.normalize)
    return plan


def _depth(index: Index, state: np.uint64 | None) -> int:
    """How many tokens lead to a state: a key below it has a known length."""
    if state is None:
        return 0
    taken = 0
    while not index.is_terminal(state):
        state = index.children(state)[1][0]
        taken += 1
    return len(index.key(index.state_key_ids(state))) - taken
