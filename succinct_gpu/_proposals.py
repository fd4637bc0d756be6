"""Proposals and results on the host, laid out as the kernels of the beam search take and give
them."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct import _args

# Sorts behind every proposal.
_ABSENT = np.uint64(2**64 - 1)


class Output(NamedTuple):
    """Results of requests, each's best first.

    Attributes
    ----------
    counts : int64 array [requests]
        How many there are; the rest of a request's places is not written to.
    sums : float32, numbers : int64, states : uint64, lengths : int64 arrays [requests, places]
    tokens : uint32 array [requests, places, steps]
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.float32]
    numbers: NDArray[np.int64]
    states: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    tokens: NDArray[np.uint32]


def new_output(requests: int, places: int, steps: int) -> Output:
    """Room for results."""
    shape = requests, places
    return Output(
        np.zeros(requests, np.int64),
        np.empty(shape, np.float32),
        np.empty(shape, np.int64),
        np.empty(shape, np.uint64),
        np.empty(shape, np.int64),
        np.empty((*shape, steps), np.uint32),
    )


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))


def sort_proposals(
    ids: NDArray[Any], values: NDArray[np.float32], min_token: np.float32, duplicates: str
) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]:
    """Check the proposals; give each step's usable ones first, tokens ascending, and their number.

    Padding, repeated tokens and what `min_token` rejects are left out.
    """
    if ids.size == 0:
        return ids.astype(np.uint32), values, np.zeros(ids.shape[:2], np.int64)
    wrong = np.isnan(values)
    if wrong.any():
        raise ValueError(f"logprobs[{_place(*_first(wrong))}] is nan")
    padding = values == -inf
    if ids.dtype.itemsize == 8 or ids.dtype.kind == "i":
        # Comparisons with plain ints are exact for every dtype.
        outside = ~padding & ((ids < 0) | (ids > _args.MAX_TOKEN))
        if outside.any():
            at = _first(outside)
            raise ValueError(
                f"token_ids[{_place(*at)}]: expected 0 to {_args.MAX_TOKEN}, got {ids[at]}"
            )
    elif ids.dtype.itemsize == 4 and (~padding & (ids > _args.MAX_TOKEN)).any():
        at = _first(~padding & (ids > _args.MAX_TOKEN))
        raise ValueError(
            f"token_ids[{_place(*at)}]: expected 0 to {_args.MAX_TOKEN}, got {ids[at]}"
        )

    # Token above, position below: one sort orders the tokens and keeps repeated ones in order.
    keys = ids.astype(np.uint64) << np.uint64(32)
    keys |= np.arange(ids.shape[2], dtype=np.uint64)
    keys[padding] = _ABSENT
    keys.sort(axis=-1)
    present = keys != _ABSENT
    tokens = keys >> np.uint64(32)
    repeated = np.zeros(keys.shape, np.bool_)
    np.logical_and(tokens[..., 1:] == tokens[..., :-1], present[..., 1:], out=repeated[..., 1:])
    if duplicates == "error" and repeated.any():
        query, step, place = _first(repeated)
        pair = keys[query, step, place - 1 : place + 1]
        earlier, later = (int(key) & 0xFFFFFFFF for key in pair)
        raise ValueError(
            f"token_ids[{query}, {step}]: token {int(tokens[query, step, place])} appears at "
            f'{earlier} and {later}; pass duplicates="first" to use the first only'
        )
    sums = _gather(values, keys, present)
    unused = present & (repeated | ~(sums > min_token))
    if unused.any():
        keys[unused] = _ABSENT
        keys.sort(axis=-1)
        present = keys != _ABSENT
        sums = _gather(values, keys, present)
    counts = np.count_nonzero(present, axis=-1).astype(np.int64)
    return (keys >> np.uint64(32)).astype(np.uint32), sums, counts


def _place(query: int, step: int, proposal: int) -> str:
    return f"{query}, {step}, {proposal}"


def _gather(
    values: NDArray[np.float32], keys: NDArray[np.uint64], present: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Values at the positions in the lower halves of `keys`; anything where not `present`."""
    positions = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    positions[~present] = 0
    return np.take_along_axis(values, positions, axis=-1)


def packed(out: Any, factors: NDArray[np.float64]) -> tuple[NDArray[Any], ...]:
    """The results of an engine without the places that it did not need.

    Results of each request; then score, sum, key number, state and length of all of them, and
    their tokens.
    """
    if len(out.counts) == 1:
        kept: Any = (0, slice(int(out.counts[0])))
    else:
        kept = np.arange(out.sums.shape[1]) < out.counts[:, None]
    sums, lengths, tokens = out.sums[kept], out.lengths[kept], out.tokens[kept]
    scores = sums.astype(np.float64) * factors[lengths] + 0.0
    used = np.arange(tokens.shape[1]) < lengths[:, None]
    return out.counts, scores, sums, out.numbers[kept], out.states[kept], lengths, tokens[used]
