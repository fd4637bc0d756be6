from typing import Any

import numpy as np
from numpy.typing import NDArray

_Tokens = NDArray[np.unsignedinteger[Any]]
_Offsets = NDArray[np.int64]
_Words = NDArray[np.uint64]

def scan(
    tokens: _Tokens, offsets: _Offsets, length: int, n_rows: int, limit: int
) -> tuple[int, int, int, int]: ...
def row_lengths(offsets: _Offsets) -> tuple[int, int, int]: ...
def number_rows(
    offsets: _Offsets,
    next: NDArray[np.int64],
    numbers: NDArray[np.int64],
    places: NDArray[np.int64],
) -> None: ...
def differs(tokens: _Tokens, offsets: _Offsets, length: int, out: NDArray[np.uint8]) -> None: ...
def column_ranges(tokens: _Tokens, length: int, low: _Words, high: _Words) -> None: ...
def pack_rows(
    tokens: _Tokens, length: int, low: _Words, shift: NDArray[np.int64], out: _Words
) -> None: ...
def count_heads(
    tokens: _Tokens,
    length: int,
    head: int,
    low: _Words,
    shift: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None: ...
def scatter_rows(
    tokens: _Tokens,
    length: int,
    head: int,
    low: _Words,
    shift: NDArray[np.int64],
    places: NDArray[np.int64],
    out: _Words,
) -> None: ...
def drop_repeats(words: _Words, stops: NDArray[np.int64]) -> int: ...
def unpack_rows(
    memory: NDArray[np.uint8],
    length: int,
    head: int,
    low: _Words,
    shift: NDArray[np.int64],
    mask: _Words,
    stops: NDArray[np.int64],
    out: _Tokens,
) -> None: ...
def pack_next(
    tokens: _Tokens,
    offsets: _Offsets,
    length: int,
    rows: NDArray[np.int64],
    depth: int,
    bits: int,
    count: int,
    out: _Words,
) -> None: ...
def settle(
    tokens: _Tokens,
    offsets: _Offsets,
    length: int,
    depth: int,
    words: _Words,
    by_word: NDArray[np.int64],
    mask: int,
    most: int,
    order: NDArray[np.int64],
    distinct: NDArray[np.uint8],
) -> int: ...
def part_rows(
    tokens: _Tokens,
    offsets: _Offsets,
    length: int,
    bits: int,
    count: int,
    splitters: _Words,
    parts: NDArray[np.uint8],
    n_rows: NDArray[np.int64],
    n_tokens: NDArray[np.int64],
) -> None: ...
def scatter_parts(
    tokens: _Tokens,
    offsets: _Offsets,
    length: int,
    parts: NDArray[np.uint8],
    row: NDArray[np.int64],
    place: NDArray[np.int64],
    out: _Tokens,
    out_offsets: _Offsets,
) -> None: ...
def bounds_of(offsets: _Offsets, order: NDArray[np.int64], out: _Offsets) -> int: ...
def gather(
    tokens: _Tokens, offsets: _Offsets, length: int, order: NDArray[np.int64], out: _Tokens
) -> None: ...
def search_rows(
    tokens: _Tokens,
    offsets: _Offsets,
    length: int,
    n_rows: int,
    queries: NDArray[np.uint32],
    query_offsets: _Offsets,
    exact: bool,
    out: NDArray[np.int64],
) -> None: ...
def parse_lines(
    block: NDArray[np.uint8],
    items: bool,
    limit: int,
    tokens: NDArray[np.uint32],
    ends: NDArray[np.int64],
    names: NDArray[np.int64],
) -> tuple[int, int]: ...
