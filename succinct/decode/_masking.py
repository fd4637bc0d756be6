"""Masking logits by the continuations of states: the parts that run compiled.

Plain Python functions, compiled by `_compile`: those that navigate for the lanes module of one
kind of index, those that look at logits for every kind at once. The integer rules of
`succinct.bits.lanes` apply. Logits come as the unsigned integers of their bits, so that one rule
serves every floating-point type: what has a magnitude above that of infinity is NaN.
"""

from math import exp, inf, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes
from succinct.decode import eligibility
from succinct.decode.eligibility import is_eligible, reaches_eligible
from succinct.trie.lanes import child_range, has_children, is_terminal, list_children

PROTOCOL = (
    "child_range",
    "has_children",
    "is_terminal",
    "list_children",
    *eligibility.PROTOCOL,
)
INLINED = eligibility.INLINED


def find_spans(
    index: Any, states: NDArray[np.uint64], firsts: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """Where the continuations of each state begin, and how many there are."""
    for row in range(len(states)):
        firsts[row], counts[row] = child_range(index, states[row])


def list_rows(
    index: Any,
    states: NDArray[np.uint64],
    firsts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    children: NDArray[np.uint64],
) -> None:
    """Write the continuations of state i to [offsets[i], offsets[i + 1]); see `find_spans`."""
    for row in range(len(states)):
        begin = offsets[row]
        count = np.int64(offsets[row + 1] - begin)
        list_children(index, states[row], firsts[row], count, tokens, children, begin)


def mark_eligible(
    index: Any,
    allowed: BitLanes,
    bit_offsets: NDArray[np.int64],
    offsets: NDArray[np.int64],
    children: NDArray[np.uint64],
    keep: NDArray[np.bool_],
) -> None:
    """Whether each continuation is an eligible key or leads to one.

    The bits of the request that row i belongs to begin at ``bit_offsets[i]`` of `allowed`; a
    negative place stands for every key.
    """
    for row in range(len(bit_offsets)):
        offset = bit_offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            child = children[i]
            keep[i] = (
                is_terminal(index, child) and is_eligible(index, child, allowed, offset)
            ) or (has_children(index, child) and reaches_eligible(index, child, allowed, offset))


def gather(
    logits: NDArray[Any],
    magnitude: Any,
    infinity: Any,
    lowest: Any,
    offsets: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    out: NDArray[Any],
) -> None:
    """Write the logits of the tokens of row i to [offsets[i], offsets[i + 1]).

    Parameters
    ----------
    logits : array [R, V] of unsigned integers
    magnitude, infinity, lowest : of the same type
        Mask of all bits but the sign, infinity, and negative infinity, which NaN becomes.
    offsets : array [R + 1]
    tokens : array [N]
        All below V.
    out : array [N] of the type of `logits`
    """
    for row in range(len(logits)):
        for i in range(offsets[row], offsets[row + 1]):
            value = logits[row, tokens[i]]
            if value & magnitude > infinity:
                value = lowest
            out[i] = value


def fill_gaps(
    logits: NDArray[Any],
    magnitude: Any,
    infinity: Any,
    lowest: Any,
    offsets: NDArray[np.int64],
    tokens: NDArray[np.uint32],
) -> None:
    """Set the logits of row i to `lowest` but for its tokens, which ascend.

    The parameters are those of `gather`.
    """
    for row in range(len(logits)):
        values = logits[row]
        done = np.int64(0)
        for i in range(offsets[row], offsets[row + 1]):
            token = np.int64(tokens[i])
            for place in range(done, token):
                values[place] = lowest
            if values[token] & magnitude > infinity:
                values[token] = lowest
            done = token + 1
        values[done:] = lowest


def normalise(scores: NDArray[np.float32], offsets: NDArray[np.int64]) -> None:
    """Log-softmax of each row ``scores[offsets[i]:offsets[i + 1]]``, in place."""
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        most, log_sum = total(scores[begin:end])
        shift_row(scores, begin, end, most, log_sum)


def normalise_rows(
    scores: NDArray[np.float32], offsets: NDArray[np.int64], logits: NDArray[np.float32]
) -> None:
    """As `normalise`, but over all logits of a row, whatever is left of them."""
    for row in range(len(offsets) - 1):
        most, log_sum = total(logits[row])
        shift_row(scores, offsets[row], offsets[row + 1], most, log_sum)


def total(values: NDArray[np.float32]) -> tuple[float, float]:
    """The largest value, and the logarithm of the sum of exp(value - largest); NaN counts as
    -inf."""
    most = -inf
    for value in values:
        if value > most:
            most = np.float64(value)
    summed = 0.0
    if most > -inf:
        for value in values:
            if value == most:
                summed += 1.0
            elif value < most:
                summed += exp(np.float64(value) - most)
    return most, log(summed) if summed > 0.0 else 0.0


def shift_row(
    scores: NDArray[np.float32], begin: np.int64, end: np.int64, most: float, log_sum: float
) -> None:
    """Turn scores into log-probabilities, given what `total` says of their distribution."""
    for i in range(begin, end):
        value = np.float64(scores[i])
        if value == most and most > -inf:
            value = 0.0
        elif value > -inf:
            value -= most
        scores[i] = np.float32(value - log_sum)
