"""Beam search over proposals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from math import inf, isfinite, isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct import _args
from succinct._args import at_least_one
from succinct._threads import in_threads, parts_of, read_threads
from succinct.decode import _arrays, _search
from succinct.decode.eligibility import Allowed, read_allowed
from succinct.decode.result import BeamResult
from succinct.index import Index

_NONE = np.float32(-inf)
# Ranks of beams are kept in 32 bits.
_MAX_WIDTH = 2**31 - 1
# Beams times proposals that are worth threads of their own.
WORTH_HELP = 2**20
# Room for the results of the queries that are searched in one go.
_RESULT_PLACES = 2**24


def beam_search(
    index: Index,
    token_ids: ArrayLike,
    logprobs: ArrayLike,
    *,
    beam_width: int | Sequence[int],
    max_results: int | None = None,
    length_penalty: float = 0.0,
    min_token_logprob: float = -inf,
    min_logprob: float = -inf,
    duplicates: str = "error",
    allowed: Allowed | None = None,
    num_threads: int | None = None,
) -> BeamResult:
    """Find the best keys of an index that can be composed of proposed tokens.

    At each step a model proposes K tokens with their log-probabilities, the same for every beam.
    A proposal is taken if it exceeds `min_token_logprob`, the sum with it exceeds `min_logprob`,
    and the index has a key that goes on so. A key that is complete is a result; a prefix that
    can be continued is kept for the next step if its sum is among the `beam_width` best. Of equal
    sums the one with the better parent is better, then the one with the smaller token.

    Parameters
    ----------
    index : LoudsTrie
        Or any index that offers navigation to decoding engines.
    token_ids : array_like of int, shape [Q, T, K] or [T, K]
        Proposals of every query and step, any integer dtype, 0 to 2**32 - 2, in any order.
        Tokens that the index does not know are allowed. [T, K] is one query.
    logprobs : array_like of float, same shape
        Their log-probabilities; computed with in float32. -inf marks padding: the token beside
        it is not looked at.
    beam_width : int or sequence of T ints
        How many prefixes are kept after a step; one number, or one for each step.
    max_results : int, optional
        How many results a query has at most. By default the beam width, the widest if there
        are several.
    length_penalty : float
        A result of n tokens is scored by its sum * (6 / (5 + n)) ** length_penalty, in float64.
    min_token_logprob, min_logprob : float
        Lower limits, rounded to float32, of what is taken; strict.
    duplicates : {"error", "first"}
        Whether a token that is proposed twice in one step is an error, or only its first
        proposal counts.
    allowed : BitVector or array, or one for each query, optional
        Eligible keys, as bits over the key numbers of `index`: a `BitVector`, bools [n_keys], or
        packed uint64 words [ceil(n_keys / 64)], bit i % 64 of word i // 64 for key i. One for
        all queries, or an array [Q, ...] or a sequence of Q of them, in which None stands for
        every key. Only eligible keys are results, and a prefix is kept only if an eligible key
        properly extends it. By default every key is eligible.
    num_threads : int, optional
        Threads to spread the queries of a batch over, and the beams of wide queries where there
        are fewer of these; by default as many as the process may use processors. Results do not
        depend on it.

    Returns
    -------
    BeamResult
        For each query, best first, `sequences`, `scores`, `logprobs`, `key_ids` and `states`.
        There are fewer than `max_results` if no more keys were found; none is repeated.

    Raises
    ------
    TypeError
        If `index` is not an index, or an argument has the wrong type.
    ValueError
        If shapes disagree, a log-probability is NaN, a token is out of range or repeated,
        `beam_width`, `max_results`, `num_threads` is below 1, or `length_penalty` makes a factor
        0 or infinite.

    Notes
    -----
    A step costs O(K), and for each beam the lesser of its number of children and K binary searches
    among them; memory is O(T beam_width + max_results), and is kept for the next call. Once
    `max_results` keys are found, beams that cannot lead to a better one are dropped. `allowed`
    adds O(n_keys / 64) for each bitmap to put it under rank (a `BitVector` for all queries is
    already), and for each child that would be kept a few ranks for each level below it. The first
    call of a process loads or compiles the engine.

    The search is that of FlashTrie (arXiv:2607.10044).

    Examples
    --------
    >>> from succinct import KeyTable, LoudsTrie, beam_search
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> results = beam_search(trie, [[1, 3], [2, 9]], [[-1.0, -2.0], [-0.5, 0.0]], beam_width=2)
    >>> results[0].sequences
    [(1,), (1, 2)]
    >>> results[0].scores
    array([-1. , -1.5])
    """
    if not (hasattr(index, "lanes") and hasattr(index, "lane_arrays")):
        raise TypeError(f"index: expected an index such as LoudsTrie, got {type(index).__name__}")
    ids, values = _read_arrays(token_ids, logprobs)
    _, n_steps, n_proposals = ids.shape
    threads = read_threads(num_threads)
    asked = read_options(
        index,
        ids.shape,
        beam_width=beam_width,
        max_results=max_results,
        length_penalty=length_penalty,
        min_token_logprob=min_token_logprob,
        min_logprob=min_logprob,
        duplicates=duplicates,
    )
    widths, candidates = asked.widths, asked.candidates
    engine = _search.engine_of(index)
    bits, offsets = read_allowed(allowed, engine.n_keys, len(ids))
    # There are no more in any index that is whole; in a broken one tokens may repeat.
    kept = max(1, min(asked.max_results, candidates))
    widths_of_steps = np.array(widths, np.int64)
    starts = np.array([0, *itertools.accumulate(widths)], np.int64)
    # Threads that no query of its own is left for help with the beams of the others.
    members = max(1, threads // max(1, len(ids)))
    if max(widths, default=0) * n_proposals < WORTH_HELP:
        members = 1
    advice = '; pass duplicates="first" to use the first only'

    def search_part(part: slice) -> tuple[NDArray[Any], ...]:
        n_queries = part.stop - part.start
        # With twice the places needed, selecting costs O(1) for each candidate.
        sizes = _search.Sizes(
            n_queries * n_steps,
            n_proposals,
            max(widths, default=1),
            2 * kept,
            int(starts[-1]),
            members if members > 1 else 0,
        )
        out = _arrays.new_output(n_queries, kept, n_steps)
        options = widths_of_steps, asked.min_sum, asked.factors, kept, bits, offsets[part]
        with engine.space(sizes) as space:
            proposals = engine.read(
                space, ids[part], values[part], asked.min_token, duplicates, (part.start, 0), advice
            )
            found = engine.search(members, space, proposals, options, starts, out)
        return _arrays.written(out, *found)

    parts = _small_parts(len(ids), threads, kept * (n_steps + 8))
    return joined(in_threads(search_part, parts, threads))


class Asked(NamedTuple):
    """Options of a search, checked.

    Attributes
    ----------
    min_token, min_sum : float32
    widths : list of int
        Most rows after each step, no more than there can be.
    max_results : int
        No more than there are keys.
    factors : float64 array [T + 1]
        What to multiply sums by, for every length.
    candidates : int
        Most continuations that all steps together can find.
    """

    min_token: np.float32
    min_sum: np.float32
    widths: list[int]
    max_results: int
    factors: NDArray[np.float64]
    candidates: int


def read_options(
    index: Any,
    shape: tuple[int, ...],
    *,
    beam_width: int | Sequence[int],
    max_results: int | None,
    length_penalty: float,
    min_token_logprob: float,
    min_logprob: float,
    duplicates: str,
) -> Asked:
    """Check the options of a search for proposals of `shape` [Q, T, K]; see `beam_search`."""
    if not isinstance(duplicates, str) or duplicates not in ("error", "first"):
        raise ValueError(f'duplicates: expected "error" or "first", got {duplicates!r}')
    min_token = _threshold("min_token_logprob", min_token_logprob)
    min_sum = _threshold("min_logprob", min_logprob)
    _, n_steps, n_proposals = shape
    widths = _read_widths(beam_width, n_steps)
    if max_results is None:
        max_results = max(widths, default=1)
    max_results = at_least_one("max_results", max_results)
    factors = _length_factors(length_penalty, n_steps)
    # Width beyond what can be filled costs no memory.
    possible, candidates, n_states = 1, 0, int(index.n_states)
    for step, width in enumerate(widths):
        candidates += possible * n_proposals
        possible = widths[step] = min(width, max(possible * n_proposals, 1), n_states)
        if possible > _MAX_WIDTH:
            raise ValueError(f"step {step}: expected at most {_MAX_WIDTH} beams, got {possible}")
    max_results = min(max_results, int(index.n_keys))
    return Asked(min_token, min_sum, widths, max_results, factors, candidates)


def _small_parts(n_queries: int, threads: int, places: int) -> list[slice]:
    """Parts of the queries that need little room for results, of which each takes `places`."""
    most = max(1, _RESULT_PLACES // max(1, places))
    return [
        slice(start, min(start + most, part.stop))
        for part in parts_of(n_queries, threads)
        for start in range(part.start, max(part.stop, part.start + 1), most)
    ]


def _number(name: str, value: float) -> float:
    try:
        if isinstance(value, (str, bytes)):  # float() would read it
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}") from None
    except OverflowError:
        raise ValueError(f"{name}: expected a number that fits a float") from None


def _threshold(name: str, value: float) -> np.float32:
    number = _number(name, value)
    if number == -inf:
        return _NONE
    if isnan(number):
        raise ValueError(f"{name} is nan")
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(number)


def _read_widths(beam_width: int | Sequence[int], n_steps: int) -> list[int]:
    is_one = isinstance(beam_width, (str, bytes)) or getattr(beam_width, "ndim", 1) == 0
    if is_one or not isinstance(beam_width, (Sequence, np.ndarray)):
        return [at_least_one("beam_width", beam_width)] * n_steps  # type: ignore[arg-type]
    widths = list(beam_width)
    if len(widths) != n_steps:
        raise ValueError(
            f"beam_width: expected one int, or {n_steps} for {n_steps} steps, got {len(widths)}"
        )
    return [at_least_one(f"beam_width[{step}]", width) for step, width in enumerate(widths)]


def _length_factors(length_penalty: float, n_steps: int) -> NDArray[np.float64]:
    """What to multiply the sum of a key of each length by; entry 0 is not used."""
    penalty = _number("length_penalty", length_penalty)
    if not isfinite(penalty):
        raise ValueError(f"length_penalty: expected a finite number, got {penalty}")
    return _factors_of(penalty, n_steps)


@lru_cache(16)
def _factors_of(penalty: float, n_steps: int) -> NDArray[np.float64]:
    factors = np.ones(n_steps + 1)
    for length in range(1, n_steps + 1):
        # Python's power, as every back end gets its factors from here.
        try:
            factors[length] = (6.0 / (5.0 + length)) ** penalty
        except OverflowError:
            raise ValueError(
                f"length_penalty: {penalty} is too small for sequences of {length} tokens"
            ) from None
        if not factors[length]:
            raise ValueError(
                f"length_penalty: {penalty} is too large for sequences of {length} tokens, "
                "whose scores would all be 0"
            )
    return factors


def _as_array(name: str, values: ArrayLike, kinds: str, what: str) -> NDArray[Any]:
    values = _args.on_host(name, values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: expected an array, got rows of different lengths") from None
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if kinds == "iu" and array.dtype.kind in "fO" and not isinstance(values, np.ndarray):
        # A list of small and of large integers, which numpy makes floats or objects.
        array = _args.integers(values, name)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name}: expected {what}, got {array.dtype}")
    return array


def _read_arrays(
    token_ids: ArrayLike, logprobs: ArrayLike
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Both as arrays [Q, T, K], checked for type and shape."""
    ids = _as_array("token_ids", token_ids, "iu", "integers")
    values = _as_array("logprobs", logprobs, "fiu", "floating point numbers")
    if ids.ndim not in (2, 3):
        raise ValueError(f"token_ids: expected shape [T, K] or [Q, T, K], got {ids.shape}")
    if ids.shape != values.shape:
        raise ValueError(
            f"logprobs: expected the shape of token_ids, {ids.shape}, got {values.shape}"
        )
    if values.dtype != np.float32:
        with np.errstate(over="ignore", under="ignore"):
            values = values.astype(np.float32)
    if ids.ndim == 2:
        ids, values = ids[None], values[None]
    return ids, values


def joined(parts: Sequence[tuple[NDArray[Any], ...]]) -> BeamResult:
    """The results of consecutive requests, each part as from `_arrays.written`."""
    counts, scores, sums, numbers, states, lengths, tokens = (
        np.concatenate(columns) if len(columns) > 1 else columns[0]
        for columns in zip(*parts, strict=True)
    )
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    token_offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=token_offsets[1:])
    return BeamResult(offsets, scores, token_offsets, tokens, sums, numbers, states)
