"""How to constrain your own decoder: a beam search of forty lines that asks an index.

The loop below is an ordinary batched beam search. The index comes into it in three places, and
they are all that a decoder of your own needs:

1. every hypothesis carries a *state*, beside its hidden state; the empty one has ``trie.root``;
2. ``trie.children(states)`` lists the tokens that may follow each hypothesis, with the states that
   they lead to. Nothing else is scored, so no beam is spent on a sequence outside the catalog;
3. ``trie.is_terminal(states)`` says which hypotheses are complete keys, so may end here.

Scores are sums of the model's log-probabilities over its whole vocabulary. A hypothesis ends when
the model emits ``</s>``, and ``</s>`` is scored like any other token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from succinct.demo.model import END, START, PhonemeDecoder
from succinct.trie import LoudsTrie

Hypothesis = tuple[float, tuple[int, ...]]


def decode(
    model: PhonemeDecoder,
    words: Sequence[str],
    beam_width: int,
    trie: LoudsTrie | None = None,
    max_length: int = 32,
) -> list[list[Hypothesis]]:
    """Return the best phoneme sequences of each word, best first.

    Parameters
    ----------
    model
        The decoder that proposes phonemes.
    words
        The words to pronounce, all decoded in one batch.
    beam_width
        Hypotheses kept for each word, and results returned for it at most.
    trie
        The catalog; None decodes freely.
    max_length
        Phonemes in a result at most.

    Returns
    -------
    list of list
        For each word up to `beam_width` pairs (score, phoneme tokens).
    """
    results: list[list[Hypothesis]] = [[] for _ in words]

    # One row for each live hypothesis, the rows of a word together.
    word_of = np.arange(len(words))
    hidden = model.encode(words)
    last = np.full(len(words), START)
    scores = np.zeros(len(words))
    paths: list[tuple[int, ...]] = [()] * len(words)
    if trie is not None:
        states = np.full(len(words), trie.root)

    for length in range(max_length + 1):
        logprobs, hidden = model.step(hidden, last)

        # Which hypotheses may end here? Free: all. Constrained: the keys of the catalog.
        may_end = np.ones(len(paths), dtype=bool) if trie is None else trie.is_terminal(states)
        for row in np.flatnonzero(may_end):
            ended = float(scores[row] + logprobs[row, END])
            _keep_best(results[word_of[row]], (ended, paths[row]), beam_width)
        if length == max_length:
            break

        # Which tokens may follow? Free: all but the end. Constrained: the children in the trie.
        if trie is None:
            free = np.ones(logprobs.shape, dtype=bool)
            free[:, END] = False
            parents, tokens = np.nonzero(free)
        else:
            offsets, children, states = trie.children(states)
            tokens = children.astype(np.int64)
            parents = np.repeat(np.arange(len(paths)), np.diff(offsets))

        extended = scores[parents] + logprobs[parents, tokens]
        # Scores only fall, so what is not above the last of a full list of results never gets in.
        floor = np.array([r[-1][0] if len(r) == beam_width else -np.inf for r in results])
        kept = best_of_groups(word_of[parents], extended, beam_width)
        kept = kept[extended[kept] > floor[word_of[parents[kept]]]]
        if len(kept) == 0:
            break

        parents, last, scores = parents[kept], tokens[kept], extended[kept]
        word_of, hidden = word_of[parents], hidden[parents]
        paths = [(*paths[row], token) for row, token in zip(parents, last.tolist(), strict=True)]
        if trie is not None:
            states = states[kept]
    return results


def best_of_groups(
    groups: npt.NDArray[np.integer], scores: npt.NDArray[np.floating], count: int
) -> npt.NDArray[np.int64]:
    """Positions of the `count` largest scores of each group; ties go to the earlier position.

    Parameters
    ----------
    groups
        Group of each entry, ascending, integers ``[n]``.
    scores
        Floats ``[n]``.
    count
        Entries wanted from each group at most.

    Returns
    -------
    numpy.ndarray
        int64, group after group, best first.

    Examples
    --------
    >>> best_of_groups(np.array([0, 0, 0, 1]), np.array([1.0, 3.0, 2.0, 0.5]), 2).tolist()
    [1, 2, 3]
    """
    order = np.lexsort((-scores, groups))
    sizes = np.bincount(groups)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[rank < count]


def _keep_best(results: list[Hypothesis], new: Hypothesis, count: int) -> None:
    # The sort is stable, so that of equal scores the earlier comes first.
    results.append(new)
    results.sort(key=lambda hypothesis: -hypothesis[0])
    del results[count:]
