import numpy as np
import numpy.typing as npt

from succinct._walker import Core
from succinct.bits import BitVector

_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

class CsrCore(Core):
    def __init__(
        self,
        masks: _U64,
        firsts: _U32,
        dense: _I64,
        offsets: _U32 | _U64,
        entries: _U64,
        shift: int,
        terminal: BitVector,
        starts: _I64,
        keys_above: int,
    ) -> None: ...
    masks: _U64
    firsts: _U32
    dense: _I64
    offsets: _U32 | _U64
    entries: _U64
    terminal: BitVector
    starts: _I64
    shift: int
    n_states: int
    first_row: int
    first_leaf: int
    keys_above: int
    def advance(self, states: _U64, tokens: _U32, out: _U64) -> None: ...
    def degrees(self, states: _U64, out: _I64) -> None: ...
    def children(self, states: _U64, offsets: _I64, tokens: _U32, children: _U64) -> None: ...
    def expand(self, state: int) -> tuple[bool, list[int], list[int]]: ...
    def lookup(self, tokens: _U32, offsets: _I64, out: _I64) -> None: ...
    def allowed_mask(self, states: _U64, mask: _U32, vocab_size: int) -> None: ...
    def key_lengths(self, numbers: _I64, out: _I64) -> int: ...
    def key_tokens(self, numbers: _I64, ends: _I64, out: _U32) -> None: ...
    def largest_rows(self, out: _I64) -> None: ...
    def fault(self, prefixes: _I64, low: _U32, high: _U32) -> str | None: ...
