import numpy as np
import numpy.typing as npt

from succinct._walker import Core
from succinct.bits import BitVector, PackedArray

_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

def is_tree(topology: BitVector) -> bool: ...

class LoudsCore(Core):
    def __init__(
        self,
        topology: BitVector,
        terminal: BitVector,
        slots: npt.NDArray[np.uint16],
        label_high: PackedArray,
        link: BitVector,
        link_high: PackedArray,
        tail: PackedArray,
        tail_end: BitVector,
        max_length: int,
    ) -> None: ...
    topology: BitVector
    terminal: BitVector
    slots: npt.NDArray[np.uint16]
    label_high: PackedArray
    link: BitVector
    link_high: PackedArray
    tail: PackedArray
    tail_end: BitVector
    max_length: int
    def advance(self, states: _U64, tokens: _U32, out: _U64) -> None: ...
    def degrees(self, states: _U64, out: _I64) -> None: ...
    def children(self, states: _U64, offsets: _I64, tokens: _U32, children: _U64) -> None: ...
    def expand(self, state: int) -> tuple[bool, list[int], list[int]]: ...
    def lookup(self, tokens: _U32, offsets: _I64, out: _I64) -> None: ...
    def allowed_mask(self, states: _U64, mask: _U32, vocab_size: int) -> None: ...
    def key_lengths(self, numbers: _I64, out: _I64) -> int: ...
    def key_tokens(self, numbers: _I64, ends: _I64, out: _U32) -> None: ...
    def fault(self, prefixes: _I64, low: _U32, high: _U32) -> str | None: ...
