"""Masking of full log-probabilities by the continuations of states."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from succinct import _args
from succinct._threads import in_threads, parts_of, read_threads
from succinct.bits.lanes import BitLanes
from succinct.decode import _logits
from succinct.decode.eligibility import Allowed, mark_eligible, read_allowed
from succinct.index import DEAD, Index

Logits = TypeVar("Logits")
T = TypeVar("T")

# Elements to write and continuations to list that are worth a thread of their own.
_ELEMENTS = 2**20
_CANDIDATES = 2**17
# Bits of each type: all but the sign, infinity, negative infinity.
_BITS = {
    "float16": (np.uint16, (0x7FFF, 0x7C00, 0xFC00)),
    "bfloat16": (np.uint16, (0x7FFF, 0x7F80, 0xFF80)),
    "float32": (np.uint32, (0x7FFFFFFF, 0x7F800000, 0xFF800000)),
    "float64": (np.uint64, (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000)),
}
_NAMES = {np.dtype(name): name for name in ("float16", "float32", "float64")}


class Candidates(NamedTuple):
    """The valid continuations of rows of logits; those of row i lie at
    ``offsets[i]:offsets[i + 1]``, tokens ascending.

    Attributes
    ----------
    offsets : int64 array [R + 1]
    tokens : uint32 array [N]
    scores : float32 array [N]
    next_states : uint64 array [N]

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable, candidates
    >>> index = CsrMap.build(KeyTable.from_rows([[1, 2], [1, 3]]))
    >>> found = candidates(np.zeros((2, 4), np.float32), index, [index.root, index.walk((1,))])
    >>> found.tokens[found.offsets[1] : found.offsets[2]].tolist()
    [2, 3]
    """

    offsets: NDArray[np.int64]
    tokens: NDArray[np.uint32]
    scores: NDArray[np.float32]
    next_states: NDArray[np.uint64]


class PaddedCandidates(NamedTuple):
    """The valid continuations of rows of logits, each row padded to one width.

    Attributes
    ----------
    tokens : uint32 array [R, width]
        Ascending; 0 where there is none.
    scores : float32 array [R, width]
        -inf where there is none.
    next_states : uint64 array [R, width]
        ``DEAD`` where there is none.
    valid : bool array [R, width]
        Where there is one: the first of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable, candidates
    >>> index = CsrMap.build(KeyTable.from_rows([[1, 2], [1, 3]]))
    >>> states = [index.root, index.walk((1,))]
    >>> found = candidates(np.zeros((2, 4), np.float32), index, states, width=2)
    >>> found.tokens.tolist(), found.valid.tolist()
    ([[1, 0], [2, 3]], [[True, False], [True, True]])
    """

    tokens: NDArray[np.uint32]
    scores: NDArray[np.float32]
    next_states: NDArray[np.uint64]
    valid: NDArray[np.bool_]


def constrain(
    logprobs: Logits,
    index: Index,
    states: ArrayLike,
    *,
    allowed: Allowed | None = None,
    requests: ArrayLike | None = None,
    num_threads: int | None = None,
) -> Logits:
    """Set the logits of all tokens that do not continue a row's state to -inf, in place.

    Parameters
    ----------
    logprobs : array [R, V] of float32, float16, bfloat16 or float64
        Logits or log-probabilities, a row for each state: a writable numpy array, or whatever
        exports writable memory of the CPU by DLPack, as a torch tensor does; nothing is copied.
        V may be larger than the vocabulary of the index. NaN where a token is valid becomes -inf.
    index : LoudsTrie, StepMap, CsrMap
    states : integers [R]
        What each row continues; after ``DEAD`` nothing is valid.
    allowed : BitVector or array, or one for each request, optional
        Eligible keys, as for :func:`succinct.beam_search`: a token is valid only if it makes an
        eligible key or can lead to one.
    requests : integers [R], optional
        With one bitmap for each request in `allowed`: the request that each row belongs to. By
        default each row is a request of its own.
    num_threads : int, optional
        At most so many threads share large work; by default as many as the process may use
        processors.

    Returns
    -------
    array
        `logprobs` itself.

    Raises
    ------
    TypeError
        If something has the wrong type or dtype.
    ValueError
        If shapes disagree, V is less than the vocabulary of the index, a number is no state of the
        index, or `logprobs` is read-only or on another device. Nothing has been written then.

    Notes
    -----
    O(V + continuations) for each row. The masking of STATIC (arXiv:2602.22647), except that the
    work follows the continuations of each state and not the most that any has at its level. The
    first call of a process loads or compiles the engine.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable, constrain
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> constrain(np.full((2, 4), -1.5, np.float32), index, [index.root, index.walk((1,))])
    array([[-inf, -1.5, -inf, -1.5],
           [-inf, -inf, -1.5, -inf]], dtype=float32)
    """
    values, kind = _read_logits(logprobs, writable=True)
    rows = _Rows(values, kind, index, states, allowed, requests, num_threads)
    offsets, tokens, _, found = rows.listed()
    bits, lowest = rows.bits, rows.constants[-1]
    rows.in_parts(
        lambda part, bounds: _logits.keep_only(bits[part], lowest, offsets[bounds], tokens, found),
        bits.size // _ELEMENTS,
    )
    return logprobs


@overload
def candidates(
    logprobs: Any,
    index: Index,
    states: ArrayLike,
    *,
    width: None = None,
    normalize: Literal["valid", "vocab"] | None = None,
    allowed: Allowed | None = None,
    requests: ArrayLike | None = None,
    num_threads: int | None = None,
) -> Candidates: ...
@overload
def candidates(
    logprobs: Any,
    index: Index,
    states: ArrayLike,
    *,
    width: int,
    normalize: Literal["valid", "vocab"] | None = None,
    allowed: Allowed | None = None,
    requests: ArrayLike | None = None,
    num_threads: int | None = None,
) -> PaddedCandidates: ...
def candidates(
    logprobs: Any,
    index: Index,
    states: ArrayLike,
    *,
    width: int | None = None,
    normalize: Literal["valid", "vocab"] | None = None,
    allowed: Allowed | None = None,
    requests: ArrayLike | None = None,
    num_threads: int | None = None,
) -> Candidates | PaddedCandidates:
    """List the tokens that continue each row's state, with their logits and the states behind.

    Parameters
    ----------
    logprobs : array_like [R, V] of float32, float16, bfloat16 or float64
        Logits or log-probabilities, a row for each state: numpy, or whatever exports memory of the
        CPU by DLPack. V may be larger than the vocabulary of the index. Only valid positions are
        read; NaN there is -inf.
    index : LoudsTrie, StepMap, CsrMap
    states : integers [R]
        What each row continues; after ``DEAD`` nothing is valid.
    width : int, optional
        Pad every row to this number of candidates, so that shapes are the same at every call.
        :meth:`succinct.CsrMap.max_fan_out` knows what a step needs.
    normalize : {"valid", "vocab"}, optional
        Take `logprobs` for logits and give log-probabilities: the log-softmax over the valid
        tokens of each row, or over all its V columns. By default the scores are those given.
    allowed, requests, num_threads
        As for :func:`constrain`.

    Returns
    -------
    Candidates
        ``offsets, tokens, scores, next_states``: those of row i lie at
        ``offsets[i]:offsets[i + 1]``, tokens ascending. Scores are float32.
    PaddedCandidates
        If `width` is given: ``tokens, scores, next_states, valid`` [R, width].

    Raises
    ------
    TypeError
        If something has the wrong type or dtype.
    ValueError
        If shapes disagree, V is less than the vocabulary of the index, a number is no state of the
        index, `logprobs` is on another device, or a row has more than `width` candidates.

    Notes
    -----
    O(continuations) for each row, in time and memory, whatever V is; "vocab" reads all V columns.
    The first call of a process loads or compiles the engine.

    Examples
    --------
    >>> import numpy as np
    >>> from succinct import CsrMap, KeyTable, candidates
    >>> index = CsrMap.build(KeyTable.from_sequences([(1,), (1, 2), (3, 2)]))
    >>> logprobs = np.log(np.array([[0.1, 0.2, 0.3, 0.4]] * 2, np.float32))
    >>> found = candidates(logprobs, index, [index.root, index.walk((1,))])
    >>> found.offsets.tolist(), found.tokens.tolist(), found.next_states.tolist()
    ([0, 2, 3], [1, 3, 2], [1, 2, 3])
    >>> np.exp(candidates(logprobs, index, [index.root], normalize="valid").scores).round(2)
    Traceback (most recent call last):
    ...
    ValueError: states: expected 2, one for each row of logprobs, got 1
    >>> np.exp(candidates(logprobs[:1], index, [index.root], normalize="valid").scores).round(2)
    array([0.33, 0.67], dtype=float32)
    """
    values, kind = _read_logits(logprobs, writable=False)
    rows = _Rows(values, kind, index, states, allowed, requests, num_threads)
    width = read_candidate_options(width, normalize)
    offsets, tokens, next_states, found = rows.listed()
    scores = _as_float32(found, kind)
    if normalize == "valid":
        _logits.normalise(scores, offsets)
    elif normalize == "vocab":
        _logits.normalise_rows(scores, offsets, _as_float32(rows.bits, kind))
    if width is None:
        return Candidates(offsets, tokens, scores, next_states)
    return _padded(offsets, tokens, scores, next_states, width)


def _padded(
    offsets: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    scores: NDArray[np.float32],
    next_states: NDArray[np.uint64],
    width: int,
) -> PaddedCandidates:
    counts = np.diff(offsets)
    check_width(counts, width)
    valid = np.arange(width) < counts[:, None]
    out = PaddedCandidates(
        np.zeros(valid.shape, np.uint32),
        np.full(valid.shape, -np.inf, np.float32),
        np.full(valid.shape, DEAD),
        valid,
    )
    out.tokens[valid], out.scores[valid], out.next_states[valid] = tokens, scores, next_states
    return out


def read_row_allowed(
    allowed: Allowed | None, requests: ArrayLike | None, n_keys: int, n_rows: int
) -> tuple[BitLanes, NDArray[np.int64]] | None:
    """Bitmaps, and where the bits of each row's request begin in them; None if there are none."""
    if requests is None:
        return None if allowed is None else read_allowed(allowed, n_keys, n_rows)
    many = isinstance(allowed, np.ndarray) and allowed.ndim == 2
    many = many or isinstance(allowed, (list, tuple))
    n_requests = len(allowed) if isinstance(allowed, (Sequence, np.ndarray)) else 0
    numbers = read_requests(requests, many, n_requests, n_rows)
    eligible, offsets = read_allowed(allowed, n_keys, n_requests)
    return eligible, offsets[numbers]


def read_requests(
    requests: ArrayLike, many: bool, n_requests: int, n_rows: int
) -> NDArray[np.int64]:
    """The request of each row, checked; `many` says whether there is a bitmap for each."""
    if not many:
        raise ValueError("requests: only with one bitmap for each request in allowed")
    numbers = _args.positions(_args.on_host("requests", requests), n_requests, "requests")
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"requests: expected {n_rows}, one for each row of logprobs, got shape {numbers.shape}"
        )
    return numbers


def read_candidate_options(width: Any, normalize: Any) -> int | None:
    """The width, checked, and raise ValueError if there is no such normalisation."""
    if width is not None:
        width = _args.at_least_one("width", width)
    if not (normalize is None or (isinstance(normalize, str) and normalize in ("valid", "vocab"))):
        raise ValueError(f'normalize: expected "valid", "vocab" or None, got {normalize!r}')
    return None if width is None else int(width)


def check_width(counts: NDArray[Any], width: int) -> None:
    """Raise ValueError if a row has more candidates than there is room for."""
    if counts.size and counts.max() > width:
        row = int(np.argmax(counts > width))
        raise ValueError(f"width: row {row} has {counts[row]} candidates, more than {width}")


class _Rows:
    """The state of each row of logits and the eligible keys of its request, checked."""

    def __init__(
        self,
        values: NDArray[Any],
        kind: str,
        index: Index,
        states: ArrayLike,
        allowed: Allowed | None,
        requests: ArrayLike | None,
        num_threads: int | None,
    ) -> None:
        if num_threads is not None:
            read_threads(num_threads)
        self.num_threads = num_threads
        if not isinstance(index, Index):
            raise TypeError(
                f"index: expected an index such as LoudsTrie, got {type(index).__name__}"
            )
        if values.ndim != 2:
            raise ValueError(f"logprobs: expected shape [R, V], got {values.shape}")
        if values.shape[1] < index.vocab_size:
            raise ValueError(
                f"logprobs: expected at least {index.vocab_size} columns, one for each token up "
                f"to the largest of the index, got {values.shape[1]}"
            )
        n_rows = len(values)
        array = _args.values64(_args.on_host("states", states), "states")
        if array.ndim != 1:
            raise ValueError(f"states: expected one dimension, got shape {array.shape}")
        if len(array) != n_rows:
            raise ValueError(
                f"states: expected {n_rows}, one for each row of logprobs, got {len(array)}"
            )
        self.index, self.states = index, array
        offsets = _logits.spans(index._core, array)
        if offsets is None:
            index._states(array)  # says which
        assert offsets is not None
        self.offsets = offsets
        unsigned, self.constants = _BITS[kind]
        self.bits = values.view(unsigned)
        self.allowed = read_row_allowed(allowed, requests, index.n_keys, n_rows)

    def in_parts(self, work: Callable[[slice, slice], T], worth: int) -> list[T]:
        """Call `work` with the rows of each part and their offsets, in up to `worth` threads."""
        n = len(self.states)
        threads = min(read_threads(self.num_threads), worth) if worth > 1 else 1
        if threads <= 1:
            return [work(slice(n), slice(n + 1))]
        return in_threads(
            lambda part: work(part, slice(part.start, part.stop + 1)), parts_of(n, threads), threads
        )

    def listed(self) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint64], Any]:
        """The continuations of all rows that are columns of the logits and may lead to eligible
        keys: offsets, tokens, states, and the bits of their logits."""
        core, states, bits = self.index._core, self.states, self.bits
        offsets = self.offsets
        size = int(offsets[-1])
        tokens, children = np.empty(size, np.uint32), np.empty(size, np.uint64)
        found = np.empty(size, bits.dtype)
        worth = size // _CANDIDATES
        inside = self.in_parts(
            lambda part, bounds: _logits.list_tokens(
                core,
                states[part],
                offsets[bounds],
                tokens,
                children,
                bits[part],
                *self.constants,
                found,
            ),
            worth,
        )
        keep: NDArray[np.bool_] | None = None
        if self.allowed is not None:
            eligible, places = self.allowed
            marks = keep = np.empty(size, np.bool_)
            self.in_parts(
                lambda part, bounds: mark_eligible(
                    self.index, eligible, places[part], offsets[bounds], children, marks
                ),
                worth,
            )
        if not all(inside):
            keep = (tokens < bits.shape[1]) & (True if keep is None else keep)
        if keep is not None:
            before = np.zeros(size + 1, np.int64)
            np.cumsum(keep, out=before[1:])
            offsets = before[offsets]
            tokens, children, found = tokens[keep], children[keep], found[keep]
        return offsets, tokens, children, found


def _read_logits(logprobs: Any, writable: bool) -> tuple[NDArray[Any], str]:
    """Logits as an array, of integers if they are bfloat16; and the name of their type."""
    array = logprobs
    kind = _NAMES.get(array.dtype, "") if type(array) is np.ndarray else ""
    if not kind:
        array, kind = _read_others(logprobs, writable)
    if writable and not array.flags.writeable:
        raise ValueError("logprobs: it is read-only, and to be constrained in place")
    return array, kind


def _read_others(logprobs: Any, writable: bool) -> tuple[NDArray[Any], str]:
    kind = ""
    if type(logprobs).__module__ == "torch" and str(logprobs.dtype) == "torch.bfloat16":
        # numpy does not have the type, so not even DLPack carries it over.
        kind = "bfloat16"
        logprobs = logprobs.detach() if not writable else logprobs
        logprobs = logprobs.view(sys.modules["torch"].int16)
    if writable and not hasattr(logprobs, "__dlpack__"):
        raise TypeError(
            "logprobs: expected an array that can be written in place, of numpy or with DLPack, "
            f"got {type(logprobs).__name__}"
        )
    logprobs = _args.on_host("logprobs", logprobs)
    try:
        array = np.asarray(logprobs)
    except ValueError:
        raise ValueError("logprobs: expected an array, got rows of different lengths") from None
    if array.size == 0 and not isinstance(logprobs, np.ndarray):
        array = array.astype(np.float32)
    kind = kind or array.dtype.name
    if kind not in _BITS or not array.dtype.isnative:
        raise TypeError(
            f"logprobs: expected float32, float16, bfloat16 or float64, got {array.dtype}"
        )
    return array, kind


def _as_float32(bits: NDArray[Any], kind: str) -> NDArray[np.float32]:
    """Logits from their bits."""
    if kind == "float32":
        return bits.view(np.float32)
    if kind == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return bits.view(kind).astype(np.float32, copy=False)
