from typing import Any

import numpy as np
import numpy.typing as npt

from succinct.keys import KeyTable

_I64 = npt.NDArray[np.int64]
_U16 = npt.NDArray[np.uint16]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

def chain_ends(table: KeyTable, n_prefixes: int, max_chain: int) -> _U32: ...
def fill_chains(
    table: KeyTable, ends: _U32, topology: _U64, terminal: _U64, origin: _I64, span: _U32
) -> None: ...
def gather_chains(
    table: KeyTable, origin: _I64, span: _U32, backwards: bool
) -> tuple[_U32, _I64]: ...
def merge_suffixes(backwards: _U32, offsets: _I64, order: _I64) -> tuple[_I64, _U32, _I64]: ...
def fill_slots(
    table: KeyTable,
    origin: _I64,
    span: _U32,
    links: _I64,
    label_width: int,
    link_width: int,
    slots: _U16,
    label_high: _U64,
    link_high: _U64,
) -> None: ...
def cut_lengths(table: KeyTable) -> _U32: ...
def sample_rests(table: KeyTable, bits: int, room: int) -> tuple[_I64, _U32, int] | None: ...
def __getattr__(name: str) -> Any: ...
