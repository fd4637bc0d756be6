"""How much two ways to search agree, and how much of what is wanted they find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from succinct import _args
from succinct.decode.result import BeamResult

Lists = BeamResult | Sequence[Iterable[Any]]


def overlap(first: Lists, second: Lists, k: SupportsIndex | None = None) -> npt.NDArray[np.float64]:
    """What share of the items of two searches they have in common, for each query.

    Between searches that filter first and such that score first it says how little the order
    matters (ZeroGR, arXiv:2607.07723).

    Parameters
    ----------
    first, second : BeamResult, or for each query items that can be hashed, best first
        As key numbers; those of a `BeamResult` are its ``key_ids``.
    k : int, optional
        Only the best k items of each count.

    Returns
    -------
    float64 array [Q]
        Common items by items of the larger of the two sets; 1 if both are empty.

    Raises
    ------
    ValueError
        If the numbers of queries differ or `k` is below 1.

    Examples
    --------
    >>> from succinct import overlap
    >>> overlap([[4, 2, 9], [1]], [[2, 4, 5], [1]], k=2)
    array([1., 1.])
    >>> overlap([[4, 2, 9], [1]], [[2, 4, 5, 7], []])
    array([0.5, 0. ])
    """
    pairs = _sets(("first", first, k), ("second", second, k))
    shares = [len(a & b) / max(len(a), len(b)) if a or b else 1.0 for a, b in pairs]
    return np.array(shares, np.float64)


def recall(
    found: Lists, relevant: Sequence[Iterable[Any]], k: SupportsIndex | None = None
) -> npt.NDArray[np.float64]:
    """What share of the relevant items a search found, for each query.

    Parameters
    ----------
    found : BeamResult, or for each query items that can be hashed, best first
    relevant : for each query its relevant items
    k : int, optional
        Only the best k that were found count.

    Returns
    -------
    float64 array [Q]
        NaN where nothing is relevant.

    Raises
    ------
    ValueError
        If the numbers of queries differ or `k` is below 1.

    Examples
    --------
    >>> from succinct import recall
    >>> recall([[4, 2, 9], [1]], [[9, 7], [1]])
    array([0.5, 1. ])
    >>> recall([[4, 2, 9], [1]], [[9, 7], [1]], k=2)
    array([0., 1.])
    """
    pairs = _sets(("found", found, k), ("relevant", relevant, None))
    shares = [len(a & b) / len(b) if b else np.nan for a, b in pairs]
    return np.array(shares, np.float64)


def _sets(*sides: tuple[str, Lists, SupportsIndex | None]) -> list[tuple[set[Any], set[Any]]]:
    """The best k items of every query on both sides."""
    columns = []
    for _, lists, k in sides:
        if isinstance(lists, BeamResult):
            lists = [query.key_ids for query in lists]
        limit = None if k is None else _args.at_least_one("k", k)
        rows = [row.tolist() if isinstance(row, np.ndarray) else list(row) for row in lists]
        columns.append([set(row[:limit]) for row in rows])
    (name, *_), (other, *_) = sides
    if len(columns[0]) != len(columns[1]):
        raise ValueError(
            f"{other}: expected {len(columns[0])} queries, as many as {name} has, "
            f"got {len(columns[1])}"
        )
    return list(zip(*columns, strict=True))
