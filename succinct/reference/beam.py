"""Beam search over proposals, as the contract reads.

At each step a language model proposes K tokens with their log-probabilities, the same for
every beam; the index says which of them continue a beam towards a key.
"""

from collections.abc import Sequence
from ctypes import c_float
from math import inf, isnan
from operator import index as as_int
from typing import Any, NamedTuple, Protocol

from succinct.reference.eligibility import Bits, Eligible, Numbered, for_each_request
from succinct.reference.trie import DEAD, MAX_TOKEN, Key


class Searchable(Numbered, Protocol):
    """What the search asks of an index."""

    @property
    def root(self) -> Any: ...
    def advance(self, state: Any, token: Any, /) -> Any: ...
    def is_terminal(self, state: Any, /) -> Any: ...
    def has_children(self, state: Any, /) -> bool: ...


class Result(NamedTuple):
    """A key found: its normalised score, its tokens and the sum of their log-probabilities."""

    score: float
    sequence: Key
    logprob: float


class Beam(NamedTuple):
    logprob: float
    parent: int  # rank of the beam it continues in the frontier before
    sequence: Key
    state: Any


def float32(value: float) -> float:
    """Round to the nearest float32; what is too large becomes infinite."""
    return c_float(value).value


def beam_search(
    index: Searchable,
    token_ids: Sequence[Sequence[Sequence[int]]],
    logprobs: Sequence[Sequence[Sequence[float]]],
    *,
    beam_width: int | Sequence[int],
    max_results: int | None = None,
    length_penalty: float = 0.0,
    min_token_logprob: float = -inf,
    min_logprob: float = -inf,
    duplicates: str = "error",
    allowed: Bits | Sequence[Bits | None] | None = None,
) -> list[list[Result]]:
    """Find the best keys among those that can be composed of proposed tokens.

    Parameters
    ----------
    token_ids, logprobs
        Nested lists [query][step][proposal]. A log-probability of -inf marks padding: its
        token is not looked at. More steps than the longest key has are allowed.
    beam_width
        How many beams are kept after a step: one number, or one for each step.
    max_results
        How many results a query has at most; by default the (largest) beam width.
    length_penalty
        A result of n tokens is ranked by its sum * (6 / (5 + n)) ** length_penalty.
    min_token_logprob, min_logprob
        A proposal is taken only if it exceeds the first, and the sum with it the second; both
        are rounded to float32.
    duplicates
        "error", or "first": of equal tokens in a step only the first that is no padding counts,
        also when a threshold then rejects it.
    allowed
        Which keys are eligible, by number: for all queries, or a list of one (or None, for all
        keys) for each. Only they are results, and a prefix is continued only if one properly
        extends it.

    Returns
    -------
    list of list of Result
        For each query its results, best first; fewer than `max_results` if there are no more.

    Examples
    --------
    >>> from succinct.reference import Trie
    >>> trie = Trie([(1,), (1, 2), (3, 2)])
    >>> queries = beam_search(trie, [[[1, 3], [2, 9]]], [[[-1, -2], [-0.5, 0]]], beam_width=2)
    >>> for found in queries[0]:
    ...     print(found.sequence, found.score)
    (1,) -1.0
    (1, 2) -1.5
    """
    if len(token_ids) != len(logprobs):
        raise ValueError(f"{len(token_ids)} queries of tokens, {len(logprobs)} of logprobs")
    for name, value in (
        ("length_penalty", length_penalty),
        ("min_token_logprob", min_token_logprob),
        ("min_logprob", min_logprob),
    ):
        if isnan(value):
            raise ValueError(f"{name} is NaN")
    if duplicates not in ("error", "first"):
        raise ValueError(f'duplicates: expected "error" or "first", got {duplicates!r}')
    proposals = [
        read_proposals(query, *pair, duplicates)
        for query, pair in enumerate(zip(token_ids, logprobs, strict=True))
    ]
    n_steps = max(map(len, proposals), default=0)
    if isinstance(beam_width, (list, tuple)):
        widths = [as_int(width) for width in beam_width]
        if len(widths) != n_steps:
            raise ValueError(f"beam_width: expected one for each of {n_steps} steps")
    else:
        widths = [as_int(beam_width)] * max(n_steps, 1)  # type: ignore[arg-type]
    if any(width < 1 for width in widths):
        raise ValueError(f"beam_width: expected at least 1, got {min(widths)}")
    for step in range(n_steps):
        length_factor(step + 1, length_penalty)
    if max_results is None:
        max_results = max(widths, default=1)
    if max_results < 1:
        raise ValueError(f"max_results: expected at least 1, got {max_results}")
    thresholds = float32(min_token_logprob), float32(min_logprob)
    eligible = for_each_request(index, allowed, len(proposals))
    return [
        search_one(index, *pair, widths, thresholds, length_penalty)[:max_results]
        for pair in zip(proposals, eligible, strict=True)
    ]


def length_factor(length: int, penalty: float) -> float:
    """What the sum of a key of `length` tokens is multiplied by."""
    factor: float = (6 / (5 + length)) ** penalty
    if factor == 0:
        raise ValueError(f"length_penalty: {penalty} makes the score of {length} tokens 0")
    return factor


def read_proposals(
    query: int,
    token_ids: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    duplicates: str,
) -> list[dict[int, float]]:
    """Check the proposals of a query; give the float32 log-probability of each step's tokens."""
    if len(token_ids) != len(logprobs):
        raise ValueError(f"query {query}: {len(token_ids)} steps, {len(logprobs)} of logprobs")
    steps = []
    for step, (tokens, values) in enumerate(zip(token_ids, logprobs, strict=True)):
        place = f"query {query}, step {step}"
        if len(tokens) != len(values):
            raise ValueError(f"{place}: {len(tokens)} tokens, {len(values)} log-probabilities")
        proposed: dict[int, float] = {}
        for token, value in zip(map(as_int, tokens), map(float32, values), strict=True):
            if isnan(value):
                raise ValueError(f"{place}: the log-probability of token {token} is NaN")
            if value == -inf:
                continue
            if not 0 <= token <= MAX_TOKEN:
                raise ValueError(f"{place}: expected a token in 0..{MAX_TOKEN}, got {token}")
            if token in proposed and duplicates == "error":
                raise ValueError(f"{place}: token {token} is proposed twice")
            proposed.setdefault(token, value)
        steps.append(proposed)
    return steps


def search_one(
    index: Searchable,
    steps: list[dict[int, float]],
    eligible: Eligible,
    widths: list[int],
    thresholds: tuple[float, float],
    length_penalty: float,
) -> list[Result]:
    """All results of one query, best first."""
    min_token_logprob, min_logprob = thresholds
    frontier = [Beam(0.0, 0, (), index.root)] if () in eligible.prefixes else []
    found = []
    for step, proposed in enumerate(steps):
        if not frontier:
            break
        factor = length_factor(step + 1, length_penalty)
        grown = []
        for parent, beam in enumerate(frontier):
            for token, value in proposed.items():
                logprob = float32(beam.logprob + value)
                if not (value > min_token_logprob and logprob > min_logprob):
                    continue
                state = index.advance(beam.state, token)
                if state == DEAD:
                    continue
                child = Beam(logprob, parent, (*beam.sequence, token), state)
                # A key that is also a prefix of keys is a result and is continued.
                if index.is_terminal(state) and child.sequence in eligible.keys:
                    score = logprob * factor + 0.0  # + 0.0 turns -0.0 into 0.0
                    result = Result(score, child.sequence, logprob)
                    found.append((-score, step, parent, token, result))
                if index.has_children(state) and child.sequence in eligible.prefixes:
                    grown.append(child)
        grown.sort(key=lambda beam: (-beam.logprob, beam.parent, beam.sequence[-1]))
        frontier = grown[: widths[step]]
    return [entry[-1] for entry in sorted(found)]
