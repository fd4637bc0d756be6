from typing import Any

import numpy as np
import numpy.typing as npt

from succinct.keys import KeyTable
from succinct.trie._keys import Heads

_I64 = npt.NDArray[np.int64]
_U16 = npt.NDArray[np.uint16]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

def count(
    table: KeyTable | Heads,
    start: int,
    stop: int,
    entries: _I64,
    rows: _I64,
    keys: _I64,
    inner: _I64,
    low: _U32,
    high: _U32,
) -> None: ...
def count_rows(
    table: KeyTable, start: int, stop: int, entries: _I64, low: _U32, high: _U32
) -> None: ...
def count_tokens(table: KeyTable | Heads, start: int, stop: int, counts: _I64) -> None: ...
def pack_counts(counts: _U64, width: int) -> None: ...
def unpack_tokens(words: _U64, width: int, tokens: _U32, ranks: _U32) -> None: ...
def count_code_lengths(
    table: KeyTable | Heads, start: int, stop: int, codes: _U32, lengths: _I64
) -> None: ...
def last_tokens(table: KeyTable, start: int, stop: int, last: _I64) -> None: ...
def fill_steps(
    table: KeyTable | Heads,
    start: int,
    stop: int,
    steps: _I64,
    bits: _U64,
    values: _U64,
    codes: _U32,
    entries: _I64,
    rows: _I64,
    chunks: _U64,
) -> None: ...
def put_steps(
    table: KeyTable | Heads, steps: _I64, bits: _U64, values: _U64, codes: _U32
) -> None: ...
def end_steps(table: _I64, bits: _U64, values: _U64) -> None: ...
def fill_rows(
    table: KeyTable,
    prefixes: _I64,
    dense: _I64,
    shift: int,
    masks: _U64,
    offsets: _U32 | _U64,
    entries: _U64,
    terminal: _U64,
) -> None: ...
def fill_prefixes(
    table: KeyTable,
    start: int,
    stop: int,
    high_width: int,
    topology: _U64,
    terminal: _U64,
    slots: _U16,
    label_high: _U64,
    nodes: _I64,
    ends: _U32 | None = None,
) -> None: ...
def put_prefixes(
    table: KeyTable,
    nodes: _I64,
    high_width: int,
    topology: _U64,
    terminal: _U64,
    slots: _U16,
    label_high: _U64,
) -> None: ...
def __getattr__(name: str) -> Any: ...
