"""Other orders and ways to continue beams from hidden states, on the same index and BLAS.

Each takes what `succinct.filter_step` takes of one step and gives the continuations that are kept,
as lists of (score, beam, token) for every request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from succinct import DEAD

Floats = npt.NDArray[np.float32]
Kept = list[tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.uint32]]]

# Bytes of a temporary matrix of weights, at most.
_TEMPORARY = 2**28


def best_of(scores: Floats, beams: Any, tokens: Any, beam_width: int) -> Any:
    """The best of one request's candidates; numpy's partition and a sort of what is left."""
    if len(scores) > beam_width:
        chosen = np.argpartition(-scores, beam_width - 1)[:beam_width]
        scores, beams, tokens = scores[chosen], beams[chosen], tokens[chosen]
    order = np.lexsort((tokens, beams, -scores))
    return scores[order], beams[order], tokens[order]


def naive_selective(
    hidden: Floats,
    weight: Floats,
    index: Any,
    states: npt.NDArray[np.uint64],
    beam_scores: Floats,
    beam_width: int,
) -> Kept:
    """A packed list of all valid pairs, and for each a row of weights in a temporary matrix.

    The boundaries of the list are prefix sums; products, powers and selection read the list from
    memory, one after another.
    """
    n_beams = states.shape[1]
    offsets, tokens, _ = index.children(states.reshape(-1))
    vectors = hidden.reshape(-1, hidden.shape[2])
    logits = np.empty(len(tokens), np.float32)
    owners = np.repeat(np.arange(states.size), np.diff(offsets))
    piece = max(1, _TEMPORARY // (8 * vectors.shape[1]))
    for at in range(0, len(tokens), piece):
        part = slice(at, at + piece)
        np.einsum("ij,ij->i", weight[tokens[part]], vectors[owners[part]], out=logits[part])
    some = np.flatnonzero(np.diff(offsets))
    starts = offsets[some]
    largest = np.zeros(states.size, np.float32)
    norms = np.zeros(states.size, np.float32)
    if len(some):
        largest[some] = np.maximum.reduceat(logits, starts)
        powers = np.exp(logits - largest[owners])
        norms[some] = largest[some] + np.log(np.add.reduceat(powers, starts))
    scores = beam_scores.reshape(-1)[owners] + (logits - norms[owners])
    kept = []
    for q in range(len(states)):
        part = slice(offsets[q * n_beams], offsets[(q + 1) * n_beams])
        beams = owners[part] - q * n_beams
        kept.append(best_of(scores[part], beams, tokens[part], beam_width))
    return kept


def scoring_first(
    hidden: Floats,
    weight: Floats,
    index: Any,
    states: npt.NDArray[np.uint64],
    beam_scores: Floats,
    beam_width: int,
) -> Kept:
    """All scores of all beams first; then the trie is asked beam by beam, and what it does not
    allow is left out. The log-softmax runs over what is left."""
    vectors = hidden.reshape(-1, hidden.shape[2])
    logits = vectors @ weight.T
    n_beams = states.shape[1]
    kept = []
    for q, (row, before) in enumerate(zip(states, beam_scores, strict=True)):
        parts = []
        for beam, (state, score) in enumerate(zip(row, before, strict=True)):
            if state == DEAD:
                continue
            tokens, _ = index.children(state)
            valid = logits[q * n_beams + beam, tokens]
            largest = valid.max(initial=-np.inf)
            norm = largest + np.log(np.exp(valid - largest).sum())
            parts.append((score + (valid - norm), np.full(len(tokens), beam), tokens))
        scores, beams, tokens = map(np.concatenate, zip(*parts, strict=True))
        kept.append(best_of(scores, beams, tokens, beam_width))
    return kept


def unconstrained(
    hidden: Floats, weight: Floats, beam_scores: Floats, beam_width: int
) -> list[Any]:
    """All scores of all beams, over the whole vocabulary; no index."""
    n_requests, n_beams, _ = hidden.shape
    logits = hidden.reshape(n_requests * n_beams, -1) @ weight.T
    logits -= logits.max(axis=1, keepdims=True)
    norms = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    logits += beam_scores.reshape(-1, 1) - norms
    scores = logits.reshape(n_requests, -1)
    return [np.argpartition(-row, min(beam_width, len(row)) - 1)[:beam_width] for row in scores]
