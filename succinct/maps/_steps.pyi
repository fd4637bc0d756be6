import numpy as np
import numpy.typing as npt

from succinct._walker import Core
from succinct.bits import BitVector

_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]

def marks_nbytes(table: _I64) -> int: ...

class StepsCore(Core):
    def __init__(
        self,
        bits: BitVector,
        values: _U64,
        table: _I64,
        tails: _I64,
        vocab_at: int,
        vocab_width: int,
        vocab_size: int,
        max_length: int,
    ) -> None: ...
    bits: BitVector
    values: _U64
    table: _I64
    tails: _I64
    max_length: int
    marks_nbytes: int
    @property
    def shift(self) -> int: ...
