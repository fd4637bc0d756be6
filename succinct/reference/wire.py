"""The record that search results travel in, and the batch form of it.

A record is little-endian throughout::

    u64            n, the number of sequences
    f64 [n]        normalised scores, ascending: the best sequence comes last
    u64 [n]        where each sequence ends in `tokens`; the first starts at 0
    u32 [...]      tokens

A batch has a header in front of its records::

    u64            Q, the number of records
    u64 [Q + 1]    where each record starts, in bytes from the end of this header; the last
                   number is where the last record ends
"""

from collections.abc import Sequence
from struct import calcsize, pack, unpack_from
from typing import Any

from succinct.reference.trie import Key

Scored = tuple[float, Key]  # score, sequence


def record_to_bytes(results: Sequence[Scored]) -> bytes:
    """Write the results of one query, given best first.

    >>> record_to_bytes([(-1.0, (7, 8))]).hex(" ", 8)
    '0100000000000000 000000000000f0bf 0200000000000000 0700000008000000'
    """
    ascending = list(reversed(results))
    tokens = [token for _, sequence in ascending for token in sequence]
    ends, end = [], 0
    for _, sequence in ascending:
        end += len(sequence)
        ends.append(end)
    n = len(ascending)
    scores = [score for score, _ in ascending]
    return pack(f"<Q{n}d{n}Q{len(tokens)}I", n, *scores, *ends, *tokens)


def record_from_bytes(data: bytes) -> list[Scored]:
    """Read one record; the results come best first."""
    (n,) = read("Q", data, 0)
    if n > len(data) // 16:
        raise ValueError(f"a record of {len(data)} bytes cannot hold {n} sequences")
    scores = read(f"{n}d", data, 8)
    bounds = (0, *read(f"{n}Q", data, 8 + 8 * n))
    if list(bounds) != sorted(bounds):
        raise ValueError("the ends of the sequences do not ascend")
    if len(data) != 8 + 16 * n + 4 * bounds[-1]:
        raise ValueError(f"{bounds[-1]} tokens expected in a record of {len(data)} bytes")
    tokens = read(f"{bounds[-1]}I", data, 8 + 16 * n)
    results = [(scores[i], tokens[bounds[i] : bounds[i + 1]]) for i in range(n)]
    return results[::-1]


def batch_to_bytes(batch: Sequence[Sequence[Scored]]) -> bytes:
    """Write the results of several queries, each given best first."""
    records = [record_to_bytes(results) for results in batch]
    starts = [sum(map(len, records[:i])) for i in range(len(records) + 1)]
    return pack(f"<Q{len(starts)}Q", len(records), *starts) + b"".join(records)


def batch_from_bytes(data: bytes) -> list[list[Scored]]:
    """Read several records; the results of each query come best first."""
    (n,) = read("Q", data, 0)
    if n > len(data) // 8:
        raise ValueError(f"a batch of {len(data)} bytes cannot hold {n} records")
    starts = read(f"{n + 1}Q", data, 8)
    body = data[8 * (n + 2) :]
    if starts[0] != 0 or list(starts) != sorted(starts) or starts[-1] != len(body):
        raise ValueError(f"the records do not fill the {len(body)} bytes after the header")
    return [record_from_bytes(body[starts[i] : starts[i + 1]]) for i in range(n)]


def read(fields: str, data: bytes, offset: int) -> tuple[Any, ...]:
    """Unpack little-endian fields, or raise ValueError where the bytes end too early."""
    end = offset + calcsize("<" + fields)
    if end > len(data):
        raise ValueError(f"expected at least {end} bytes, got {len(data)}")
    return unpack_from("<" + fields, data, offset)
