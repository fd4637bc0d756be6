"""Results of a beam search, and their wire format."""

import itertools
from collections.abc import Iterator
from functools import cached_property
from operator import index as as_int
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from succinct._args import MAX_TOKEN
from succinct.errors import FormatError


class QueryResult:
    """The keys found for one query, best first.

    Made by `beam_search` and `from_bytes`; len() is the number of keys.

    Attributes
    ----------
    scores : float64 array [n]
        Normalised scores, descending.

    Examples
    --------
    >>> from succinct import KeyTable, LoudsTrie, QueryResult, beam_search
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1, 2), (3, 4)]))
    >>> result = beam_search(trie, [[1, 3], [2, 4]], [[-1, -2], [-1, 0]], beam_width=2)[0]
    >>> result.sequences, result.scores.tolist(), result.key_ids.tolist()
    ([(1, 2), (3, 4)], [-2.0, -2.0], [0, 1])
    >>> QueryResult.from_bytes(result.to_bytes()).sequences
    [(1, 2), (3, 4)]
    """

    def __init__(
        self,
        scores: NDArray[np.float64],
        token_offsets: NDArray[np.int64],
        tokens: NDArray[np.uint32],
        logprobs: NDArray[np.float32] | None = None,
        key_ids: NDArray[np.int64] | None = None,
        states: NDArray[np.uint64] | None = None,
    ) -> None:
        self.scores = scores
        # Offsets into `tokens`, which may be those of a whole batch.
        self._offsets = token_offsets
        self._tokens = tokens
        self._logprobs = logprobs
        self._key_ids = key_ids
        self._states = states

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        if not len(self):
            return "<QueryResult: no keys>"
        noun = "key" if len(self) == 1 else "keys"
        best = tuple(self._tokens[self._offsets[0] : self._offsets[1]].tolist())
        return f"<QueryResult: {len(self)} {noun}, best {best} with score {self.scores[0]:.6g}>"

    @cached_property
    def sequences(self) -> list[tuple[int, ...]]:
        """Tokens of each key."""
        ends = self._offsets.tolist()
        tokens = self._tokens[ends[0] : ends[-1]].tolist()
        first = ends[0]
        return [
            tuple(tokens[start - first : end - first]) for start, end in itertools.pairwise(ends)
        ]

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """float32 array [n]: sums of log-probabilities, before length normalisation.

        Raises ValueError after `from_bytes`: the wire format does not carry them.
        """
        if self._logprobs is None:
            raise ValueError("results read from bytes have no logprobs: the format lacks them")
        return self._logprobs

    @property
    def key_ids(self) -> NDArray[np.int64]:
        """int64 array [n]: key numbers of the index that was searched.

        Raises ValueError after `from_bytes` without an index.
        """
        if self._key_ids is None:
            raise ValueError("results read from bytes have key_ids only with from_bytes(index=...)")
        return self._key_ids

    @property
    def states(self) -> NDArray[np.uint64]:
        """uint64 array [n]: states of the index that was searched.

        Raises ValueError after `from_bytes` without an index.
        """
        if self._states is None:
            raise ValueError("results read from bytes have states only with from_bytes(index=...)")
        return self._states

    def to_bytes(self) -> bytes:
        """Encode sequences and scores as one record of the wire format.

        Returns
        -------
        bytes
            Little-endian: u64 n; n f64 scores, ascending (so the best comes last); n u64 running
            ends of the sequences, counted in tokens; u32 tokens.
        """
        lengths = np.diff(self._offsets)[::-1]
        tokens = [np.asarray(sequence, "<u4").tobytes() for sequence in self.sequences[::-1]]
        return b"".join(
            (
                len(self).to_bytes(8, "little"),
                self.scores[::-1].astype("<f8").tobytes(),
                np.cumsum(lengths).astype("<u8").tobytes(),
                *tokens,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, index: Any = None) -> "QueryResult":
        """Decode one record.

        Parameters
        ----------
        data : bytes-like
            What `to_bytes` returned, whole.
        index : optional
            The index that was searched: fills in `key_ids` and `states`.

        Raises
        ------
        FormatError
            If `data` is not one record, or holds a sequence that is no key of `index`.
        """
        result = _read_record(_view(data), "record")
        if index is not None:
            result._key_ids, result._states = _look_up(index, result.sequences, "record")
        return result


class BeamResult:
    """Results of a batch of queries: ``results[q]`` is the `QueryResult` of query q.

    Attributes
    ----------
    offsets : int64 array [Q + 1]
        The keys found for query q are numbers ``offsets[q]`` to ``offsets[q + 1] - 1`` of:
    scores : float64 array [N]
    token_offsets : int64 array [N + 1]
        Sequence i is ``tokens[token_offsets[i]:token_offsets[i + 1]]``.
    tokens : uint32 array

    Examples
    --------
    >>> from succinct import BeamResult, KeyTable, LoudsTrie, beam_search
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1, 2), (3, 4)]))
    >>> token_ids = [[[1, 3], [2, 4]], [[3, 9], [2, 4]]]  # two queries of two steps
    >>> results = beam_search(trie, token_ids, [[[-1, -2], [-1, -1]]] * 2, beam_width=1)
    >>> [result.sequences for result in results]
    [[(1, 2)], [(3, 4)]]
    >>> len(BeamResult.from_bytes(results.to_bytes(), index=trie)[1])
    1
    """

    def __init__(
        self,
        offsets: NDArray[np.int64],
        scores: NDArray[np.float64],
        token_offsets: NDArray[np.int64],
        tokens: NDArray[np.uint32],
        logprobs: NDArray[np.float32] | None = None,
        key_ids: NDArray[np.int64] | None = None,
        states: NDArray[np.uint64] | None = None,
    ) -> None:
        self.offsets = offsets
        self.scores = scores
        self.token_offsets = token_offsets
        self.tokens = tokens
        self._logprobs = logprobs
        self._key_ids = key_ids
        self._states = states

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        noun = "query" if len(self) == 1 else "queries"
        return f"<BeamResult: {len(self)} {noun}, {len(self.scores)} keys>"

    @overload
    def __getitem__(self, query: slice) -> list[QueryResult]: ...
    @overload
    def __getitem__(self, query: int) -> QueryResult: ...
    def __getitem__(self, query: int | slice) -> QueryResult | list[QueryResult]:
        """Results of one query, or a list of them; negative numbers count from the end."""
        if isinstance(query, slice):
            return [self[q] for q in range(*query.indices(len(self)))]
        try:
            q = as_int(query)
        except TypeError:
            raise TypeError(f"query: expected an int, got {type(query).__name__}") from None
        if not -len(self) <= q < len(self):
            raise IndexError(f"query {q} of a result of {len(self)} queries")
        q %= len(self)
        part = slice(int(self.offsets[q]), int(self.offsets[q + 1]))
        return QueryResult(
            self.scores[part],
            self.token_offsets[part.start : part.stop + 1],
            self.tokens,
            None if self._logprobs is None else self._logprobs[part],
            None if self._key_ids is None else self._key_ids[part],
            None if self._states is None else self._states[part],
        )

    def __iter__(self) -> Iterator[QueryResult]:
        return (self[q] for q in range(len(self)))

    def to_bytes(self) -> bytes:
        """Encode sequences and scores.

        Returns
        -------
        bytes
            Little-endian: u64 Q; Q + 1 u64 byte offsets of the records, counted from the end of
            these offsets, the last being the total; then for each query a record as of
            `QueryResult.to_bytes`.
        """
        records = [result.to_bytes() for result in self]
        offsets = np.zeros(len(records) + 1, "<u8")
        offsets[1:] = np.cumsum([len(record) for record in records], dtype=np.uint64)
        return b"".join((len(records).to_bytes(8, "little"), offsets.tobytes(), *records))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, index: Any = None) -> "BeamResult":
        """Decode a batch.

        Parameters
        ----------
        data : bytes-like
            What `to_bytes` returned, whole.
        index : optional
            The index that was searched: fills in `key_ids` and `states` of the results.

        Raises
        ------
        FormatError
            If `data` is not a batch, or holds a sequence that is no key of `index`.
        """
        view = _view(data)
        n = _read_count(view, "batch")
        body = 8 * (n + 2)
        if body > len(view):
            raise FormatError(
                f"batch: {n} queries need a header of {body} bytes, got {len(view)} bytes in all"
            )
        bounds = np.frombuffer(view[8:body], "<u8").tolist()
        if bounds[0] != 0:
            raise FormatError(f"batch: expected byte offset 0 to be 0, got {bounds[0]}")
        if bounds[-1] != len(view) - body:
            raise FormatError(
                f"batch: expected {bounds[-1]} bytes after the header, got {len(view) - body}"
            )
        records = []
        for q, (start, end) in enumerate(itertools.pairwise(bounds)):
            if not start <= end <= bounds[-1]:
                raise FormatError(f"batch: byte offset {q + 1} is out of order: {end}")
            records.append(_read_record(view[body + start : body + end], f"query {q}"))
        result = cls(
            _running([len(record) for record in records]),
            _joined([record.scores for record in records], np.float64),
            _running(_joined([np.diff(record._offsets) for record in records], np.int64).tolist()),
            _joined([record._tokens for record in records], np.uint32),
        )
        if index is not None:
            pairs = [
                _look_up(index, record.sequences, f"query {q}") for q, record in enumerate(records)
            ]
            result._key_ids = _joined([key_ids for key_ids, _ in pairs], np.int64)
            result._states = _joined([states for _, states in pairs], np.uint64)
        return result


def _running(counts: list[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


def _view(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        view = memoryview(data)
        # An array of anything else (of Python objects, say) is no record, whatever it holds.
        if view.format in ("B", "b", "c"):
            return view.cast("B")
    except TypeError:
        pass
    raise TypeError(f"expected contiguous bytes, got {type(data).__name__}")


def _read_count(view: memoryview, where: str) -> int:
    if len(view) < 8:
        raise FormatError(f"{where}: expected a count of 8 bytes, got {len(view)} bytes")
    return int.from_bytes(view[:8], "little")


def _read_record(view: memoryview, where: str) -> QueryResult:
    n = _read_count(view, where)
    body = 8 + 16 * n
    if body > len(view):
        raise FormatError(f"{where}: {n} results need at least {body} bytes, got {len(view)} bytes")
    scores = np.frombuffer(view[8 : 8 + 8 * n], "<f8")
    if np.isnan(scores).any():
        raise FormatError(f"{where}: score {int(np.isnan(scores).argmax())} is NaN")
    if (scores[1:] < scores[:-1]).any():
        raise FormatError(f"{where}: the scores do not ascend")
    ends = [0, *np.frombuffer(view[8 + 8 * n : body], "<u8").tolist()]
    if 4 * ends[-1] != len(view) - body:
        raise FormatError(
            f"{where}: expected {ends[-1]} tokens of 4 bytes, got {len(view) - body} bytes"
        )
    # Sequences are not empty; as the last end is in range, so are all then.
    if any(end <= start for start, end in itertools.pairwise(ends)):
        raise FormatError(f"{where}: the ends of the sequences do not ascend")
    tokens = np.frombuffer(view[body:], "<u4")
    if tokens.size and int(tokens.max()) > MAX_TOKEN:
        raise FormatError(
            f"{where}: expected tokens up to {MAX_TOKEN}, got {int(tokens.max())} "
            f"at {int(tokens.argmax())}"
        )
    best_first = [tokens[ends[i] : ends[i + 1]] for i in reversed(range(n))]
    return QueryResult(
        scores[::-1].astype(np.float64),
        _running([len(sequence) for sequence in best_first]),
        _joined(best_first, np.uint32),
    )


def _look_up(
    index: Any, sequences: list[tuple[int, ...]], where: str
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if not (hasattr(index, "key_ids") and hasattr(index, "walk")):
        raise TypeError(f"index: expected an index such as LoudsTrie, got {type(index).__name__}")
    if not sequences:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    key_ids = np.asarray(index.key_ids(sequences), np.int64)
    if (key_ids < 0).any():
        absent = sequences[int((key_ids < 0).argmax())]
        raise FormatError(f"{where}: {absent} is not a key of the index")
    return key_ids, np.array([index.walk(sequence) for sequence in sequences], np.uint64)
