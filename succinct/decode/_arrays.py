"""The arrays that a beam search over proposals works on.

Named tuples for `_proposals`, `_expand` and `_engine`, and the functions that make them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.decode._select import (
    Scratch,
    new_scratch,
)

NONE = np.float32(-np.inf)
_MOST_PLACES = 1 << 20


class Proposals(NamedTuple):
    """Log-probabilities of one step in each line.

    Attributes
    ----------
    tokens : uint32 array [lines, K]
        Distinct within a line; not looked at if every token has its log-probability.
    logprobs : float32 array [lines, K]
    counts : int64 array [lines]
        How many of each line count.
    best : float32 array [lines]
        The largest log-probability of each line.
    """

    tokens: NDArray[np.uint32]
    logprobs: NDArray[np.float32]
    counts: NDArray[np.int64]
    best: NDArray[np.float32]


def new_proposals(lines: int, n: int) -> Proposals:
    """Room for `n` proposals in each line."""
    return Proposals(
        np.empty((lines, n), np.uint32),
        np.empty((lines, n), np.float32),
        np.empty(lines, np.int64),
        np.empty(lines, np.float32),
    )


class Candidates(NamedTuple):
    """Candidates for the next rows.

    Attributes
    ----------
    keys : uint64 array
        `order32` of their sums; below it, in a team, how many rows come after their parent.
    states : uint64 array
    parents : int32 array
        Rank of the row that they continue, within the request.
    tokens : uint32 array
    """

    keys: NDArray[np.uint64]
    states: NDArray[np.uint64]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


def new_candidates(size: int) -> Candidates:
    """Room for `size` of them."""
    return Candidates(
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
    )


class Found(NamedTuple):
    """Keys that were found.

    Attributes
    ----------
    keys : uint64 array
        `order64` of their scores.
    states : uint64 array
    sums : float32 array
    steps, parents : int32 arrays
        Step in which it was found, and rank of the row that it continued then.
    tokens : uint32 array
        The last of each.
    """

    keys: NDArray[np.uint64]
    states: NDArray[np.uint64]
    sums: NDArray[np.float32]
    steps: NDArray[np.int32]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


def new_found(size: int) -> Found:
    """Room for `size` of them."""
    return Found(
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.float32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
    )


class Room(NamedTuple):
    """Room to work in.

    Attributes
    ----------
    table : float32 array [1, places]
        Log-probability of the proposals whose token ends in the bits of a place; -inf for none,
        which all places hold before and after. `places` is a power of two.
    owners : uint32 array [places]
        The token of each proposal in the table, or `_proposals._SEVERAL`; not looked at if there
        is a place for every token of the index.
    tokens : uint32, children : uint64 arrays
        Children of a row; for as many as a state can have, and as many as there are proposals.
    hits : int64, totals : float32 arrays
        The places of those that are looked at again, and their sums.
    order : int64 array [K]
        Proposals of a line, tokens ascending.
    token_keys : uint64 array [K]
    candidates : Candidates
        For ``2 * width``, and as many again for each member of a team.
    scratch : Scratch
        For as many as there are candidates, results or proposals.
    """

    table: NDArray[np.float32]
    owners: NDArray[np.uint32]
    tokens: NDArray[np.uint32]
    children: NDArray[np.uint64]
    hits: NDArray[np.int64]
    totals: NDArray[np.float32]
    order: NDArray[np.int64]
    token_keys: NDArray[np.uint64]
    candidates: Candidates
    scratch: Scratch


def new_room(
    n_tokens: int, n_children: int, n_proposals: int, width: int, results: int, lists: int = 1
) -> Room:
    """Room for a vocabulary, fan-out, proposals, beam width, results, and lists of candidates."""
    places = min(_MOST_PLACES, 1 << int(n_tokens).bit_length())
    listed = max(n_children, n_proposals)
    return Room(
        np.full((1, places), NONE),
        np.empty(places, np.uint32),
        np.empty(listed, np.uint32),
        np.empty(listed, np.uint64),
        np.empty(listed, np.int64),
        np.empty(listed, np.float32),
        np.empty(n_proposals, np.int64),
        np.empty(n_proposals, np.uint64),
        new_candidates(2 * width * lists),
        new_scratch(max(2 * width, results, n_proposals)),
    )


class Notes(NamedTuple):
    """The paths to all rows of one request.

    Attributes
    ----------
    starts : int64 array [steps + 1]
        The rows that were made in step s are noted from ``starts[s]`` on.
    parents : int32 array
        Rank of the row before.
    tokens : uint32 array
    """

    starts: NDArray[np.int64]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


class Output(NamedTuple):
    """Results of requests one after another, each's best first.

    Attributes
    ----------
    counts : int64 array [requests]
    scores : float64, sums : float32, numbers : int64, states : uint64, lengths : int64 arrays
    tokens : uint32 array
        Of all results, one after another.
    """

    counts: NDArray[np.int64]
    scores: NDArray[np.float64]
    sums: NDArray[np.float32]
    numbers: NDArray[np.int64]
    states: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    tokens: NDArray[np.uint32]


def new_output(requests: int, places: int, steps: int) -> Output:
    """Room for `places` results of each request."""
    size = requests * places
    return Output(
        np.empty(requests, np.int64),
        np.empty(size, np.float64),
        np.empty(size, np.float32),
        np.empty(size, np.int64),
        np.empty(size, np.uint64),
        np.empty(size, np.int64),
        np.empty(size * steps, np.uint32),
    )


def written(out: Output, n: int, n_tokens: int) -> tuple[NDArray[Any], ...]:
    """The first `n` results, which have `n_tokens` in all."""
    columns = (out.scores, out.sums, out.numbers, out.states, out.lengths)
    return out.counts, *(column[:n] for column in columns), out.tokens[:n_tokens]
