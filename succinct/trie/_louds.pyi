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
    @property
    def marks_nbytes(self) -> int: ...
