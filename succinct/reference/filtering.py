"""Filtering first, as the contract reads.

The index says which tokens continue each beam; only these are scored, and the best of each
request stay.
"""

from collections.abc import Sequence
from math import exp, fsum, inf, isfinite, log
from typing import Any, NamedTuple, Protocol

from succinct.reference.beam import float32
from succinct.reference.eligibility import Bits, Numbered, for_each_request
from succinct.reference.trie import DEAD, Key


class Navigable(Numbered, Protocol):
    """What filtering asks of an index."""

    prefix: Sequence[Key]  # by state

    @property
    def vocab_size(self) -> int: ...
    def children(self, state: Any, /) -> Any: ...


class Continuation(NamedTuple):
    """A beam continued: its score, the beam's number in the request, the token, the new state."""

    score: float
    parent: int
    token: int
    state: Any


def filter_step(
    hidden: Sequence[Sequence[Sequence[float]]],
    weight: Sequence[Sequence[float]],
    index: Navigable,
    states: Sequence[Sequence[Any]],
    beam_scores: Sequence[Sequence[float]],
    beam_width: int,
    normalize: str = "valid",
    *,
    token_offset: int | None = None,
    allowed: Bits | Sequence[Bits | None] | None = None,
) -> list[list[Continuation]]:
    """Continue the beams of every request by their best valid tokens.

    Parameters
    ----------
    hidden
        Nested lists [request][beam][dimension].
    weight
        Nested lists [token][dimension]; with `token_offset` row t is that of token
        `token_offset` + t.
    states, beam_scores
        Nested lists [request][beam]. A beam that is DEAD or scores -inf is not continued.
    beam_width
        How many continuations of a request are kept.
    normalize
        What the log-softmax runs over: "valid", the tokens that continue the beam, or "vocab",
        all that `weight` has a row for.
    allowed
        Which keys are eligible, by number: for all requests, or a list of one (or None, for all
        keys) for each. A token is valid only if it leads to one, or completes one.

    Returns
    -------
    list of list of Continuation
        Of each request, best first: by score, then the lower beam, then the smaller token.

    Examples
    --------
    >>> from succinct.reference import Trie
    >>> trie = Trie([(0,), (2,)])
    >>> filter_step([[[1.0]]], [[0.0], [9.0], [0.0]], trie, [[trie.root]], [[0.0]], 1)
    [[Continuation(score=-0.6931471824645996, parent=0, token=0, state=1)]]
    """
    if beam_width < 1:
        raise ValueError(f"beam_width: expected at least 1, got {beam_width}")
    if normalize not in ("valid", "vocab"):
        raise ValueError(f'normalize: expected "valid" or "vocab", got {normalize!r}')
    if token_offset is None and len(weight) < index.vocab_size:
        raise ValueError(f"weight: expected {index.vocab_size} rows, got {len(weight)}")
    low = token_offset or 0
    answers = []
    requests = zip(hidden, states, beam_scores, strict=True)
    eligible = for_each_request(index, allowed, len(hidden))
    for request, wanted in zip(requests, eligible, strict=True):
        found = []
        for parent, (vector, state, beam_score) in enumerate(zip(*request, strict=True)):
            score_before = float32(beam_score)
            if not score_before < inf:
                raise ValueError(f"beam {parent}: expected a score, got {beam_score}")
            tokens, next_states = index.children(state)
            valid = [
                pair
                for pair in zip(tokens, next_states, strict=True)
                if index.prefix[pair[1]] in wanted.keys or index.prefix[pair[1]] in wanted.prefixes
            ]
            tokens = [token for token, _ in valid]
            if state == DEAD or score_before == -inf or not tokens:
                continue
            if tokens[0] < low or tokens[-1] >= low + len(weight):
                raise ValueError(f"weight: no row for a token in {tokens[0]}..{tokens[-1]}")
            rows = range(len(weight)) if normalize == "vocab" else [t - low for t in tokens]
            logits = {low + row: dot(vector, weight[row]) for row in rows}
            norm = log_of_powers(list(logits.values()))
            for token, next_state in valid:
                logprob = float32(logits[token] - norm)
                score = float32(score_before + logprob) + 0.0  # + 0.0 turns -0.0 into 0.0
                if score > -inf:
                    found.append(Continuation(score, parent, token, next_state))
        found.sort(key=lambda one: (-one.score, one.parent, one.token))
        answers.append(found[:beam_width])
    return answers


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """Product of two vectors; what is not finite is an error."""
    product = fsum(a * b for a, b in zip(left, right, strict=True))
    if not isfinite(product):
        raise ValueError(f"expected a finite product, got {product}")
    return product


def log_of_powers(values: list[float]) -> float:
    """The logarithm of the sum of exp(value)."""
    largest = max(values)
    return largest + log(fsum(exp(value - largest) for value in values))
