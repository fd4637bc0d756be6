"""Masking of full log-probabilities, as the contract reads.

A language model gives a log-probability for each token of its vocabulary; the index says which
of them continue a prefix. Rows are lists with one float per token.
"""

from collections.abc import Iterator, Sequence
from math import exp, inf, isnan, log
from typing import NamedTuple

from succinct.reference.beam import float32
from succinct.reference.eligibility import Bits, for_each_request
from succinct.reference.trie import DEAD, Trie


class Candidates(NamedTuple):
    """Those of row i are at ``offsets[i]:offsets[i + 1]``."""

    offsets: list[int]
    tokens: list[int]
    scores: list[float]
    next_states: list[int]


class PaddedCandidates(NamedTuple):
    """A list of the same length for each row; what is not valid is padding."""

    tokens: list[list[int]]
    scores: list[list[float]]
    next_states: list[list[int]]
    valid: list[list[bool]]


def constrain(
    logprobs: list[list[float]],
    index: Trie,
    states: Sequence[int],
    *,
    allowed: Bits | Sequence[Bits | None] | None = None,
    requests: Sequence[int] | None = None,
) -> list[list[float]]:
    """Set what does not continue the state of its row to -inf, in place; NaN too.

    Examples
    --------
    >>> trie = Trie([(1,), (1, 2), (3, 2)])
    >>> constrain([[-1.0] * 4, [-2.0] * 4], trie, [0, 1])
    [[-inf, -1.0, -inf, -1.0], [-inf, -inf, -2.0, -inf]]
    """
    for row, valid in zip(
        logprobs, continuations(index, logprobs, states, allowed, requests), strict=True
    ):
        for token, value in enumerate(row):
            if token not in valid or isnan(value):
                row[token] = -inf
    return logprobs


def candidates(
    logprobs: Sequence[Sequence[float]],
    index: Trie,
    states: Sequence[int],
    *,
    width: int | None = None,
    normalize: str | None = None,
    allowed: Bits | Sequence[Bits | None] | None = None,
    requests: Sequence[int] | None = None,
) -> Candidates | PaddedCandidates:
    """List what continues the state of each row, tokens ascending, with its float32 score.

    Parameters
    ----------
    width
        Pad each row to this many.
    normalize
        "valid" or "vocab": turn logits into log-probabilities, over the valid tokens or the row.
    allowed, requests
        Which keys are eligible, for all rows or in a list for each request, and the request that
        each row belongs to; by default each to its own.

    Examples
    --------
    >>> trie = Trie([(1,), (1, 2), (3, 2)])
    >>> tuple(candidates([[-1.0, -2.0, -3.0, -4.0]], trie, [0]))
    ([0, 2], [1, 3], [-2.0, -4.0], [1, 2])
    """
    if normalize not in (None, "valid", "vocab"):
        raise ValueError(f'normalize: expected "valid", "vocab" or None, got {normalize!r}')
    found = Candidates([0], [], [], [])
    for row, valid in zip(
        logprobs, continuations(index, logprobs, states, allowed, requests), strict=True
    ):
        values = [-inf if isnan(value) else float32(value) for value in row]
        scores = [values[token] for token in valid]
        if normalize is not None:
            scores = log_softmax(scores, scores if normalize == "valid" else values)
        found.tokens.extend(valid)
        found.scores.extend(scores)
        found.next_states.extend(valid.values())
        found.offsets.append(len(found.tokens))
    return found if width is None else padded(found, width)


def continuations(
    index: Trie,
    logprobs: Sequence[Sequence[float]],
    states: Sequence[int],
    allowed: Bits | Sequence[Bits | None] | None,
    requests: Sequence[int] | None,
) -> Iterator[dict[int, int]]:
    """For each row its valid tokens and the states behind them."""
    if len(logprobs) != len(states):
        raise ValueError(f"{len(logprobs)} rows of log-probabilities, {len(states)} states")
    if any(len(row) < index.vocab_size for row in logprobs):
        raise ValueError(f"expected at least {index.vocab_size} log-probabilities a row")
    n_requests = len(states)
    if requests is None:
        requests = range(n_requests)
    elif allowed is None or len(requests) != n_requests:
        raise ValueError("requests: expected one for each row, and bitmaps to choose from")
    else:
        n_requests = len(allowed)
    eligible = for_each_request(index, allowed, n_requests)
    for state, request in zip(states, requests, strict=True):
        tokens, children = index.children(state)
        mine = eligible[request]
        yield {
            token: child
            for token, child in zip(tokens, children, strict=True)
            if index.prefix[child] in mine.prefixes or index.prefix[child] in mine.keys
        }


def log_softmax(scores: Sequence[float], over: Sequence[float]) -> list[float]:
    """The logarithms of softmax, in which +inf takes everything and -inf nothing."""
    most = max(over, default=-inf)
    if most == -inf:
        return list(scores)
    total = log(sum(1.0 if value == most else exp(value - most) for value in over))
    return [float32((0.0 if value == most else value - most) - total) for value in scores]


def padded(found: Candidates, width: int) -> PaddedCandidates:
    """The same in rows of one length: token 0, score -inf and DEAD behind the last of each."""
    out = PaddedCandidates([], [], [], [])
    for row, (begin, end) in enumerate(zip(found.offsets, found.offsets[1:], strict=False)):
        spare = width - (end - begin)
        if spare < 0:
            raise ValueError(f"row {row} has {end - begin} candidates, more than {width}")
        out.tokens.append(found.tokens[begin:end] + [0] * spare)
        out.scores.append(found.scores[begin:end] + [-inf] * spare)
        out.next_states.append(found.next_states[begin:end] + [DEAD] * spare)
        out.valid.append([True] * (end - begin) + [False] * spare)
    return out
