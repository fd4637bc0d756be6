from typing import Any

import numpy as np
import numpy.typing as npt

from succinct.keys import KeyTable
from succinct.trie._keys import Heads

_I64 = npt.NDArray[np.int64]
_Spans = npt.NDArray[np.unsignedinteger[Any]]
_U16 = npt.NDArray[np.uint16]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

def find_chains(
    table: KeyTable, max_chain: int, starts: _U64, spans: _Spans, last: _U64
) -> tuple[int, int, int, int]: ...
def count_nodes(table: KeyTable, starts: _U64, n_nodes: _I64, n_links: _I64) -> None: ...
def fill_chains(
    table: KeyTable,
    starts: _U64,
    next_node: _I64,
    next_link: _I64,
    links: _U64,
    width: int,
    label_width: int,
    link_width: int,
    topology: _U64,
    terminal: _U64,
    link: _U64,
    slots: _U16,
    label_high: _U64,
    link_high: _U64,
) -> None: ...
def gather_chains(
    table: KeyTable, origin: _I64, span: _U32, backwards: bool
) -> tuple[_U32, _I64]: ...
def gather_backwards(
    table: KeyTable, last: _I64, offsets: _I64, ranks: _U32, out: _U32
) -> None: ...
def part_ends(
    table: KeyTable,
    last: _U64,
    spans: _Spans,
    ranks: _U32,
    bits: int,
    count: int,
    splitters: _U64,
    parts: npt.NDArray[np.uint8],
    sizes: _I64,
) -> None: ...
def merge_suffixes(
    backwards: _U32,
    offsets: _I64,
    order: _I64,
    behind: _U32,
    link: int,
    width: int,
    used: int,
    tail: _U64,
    tail_end: _U64,
    places: _I64,
    link_width: int,
    links: _U64,
) -> tuple[int, int]: ...
def count_rests(heads: Heads, n_heads: _I64, n_rests: _I64) -> tuple[int, int]: ...
def list_rests(heads: Heads, spans: _Spans, last: _U64, counts: _I64) -> None: ...
def places_of(array: npt.NDArray[np.uint8], value: int, out: _I64) -> int: ...
def by_number(
    heads: Heads,
    head: _I64,
    rest: _I64,
    links: _U64,
    width: int,
    has: _U64,
    out: _U64,
    out_width: int,
) -> None: ...
def replace_packed(words: _U64, width: int, places: _I64, values: _I64) -> None: ...
def put_packed(words: _U64, width: int, first: int, values: _I64) -> None: ...
def sample_rests(table: KeyTable, bits: int, room: int) -> tuple[_I64, _U32, int] | None: ...
def __getattr__(name: str) -> Any: ...
