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
    def largest_rows(self, out: _I64) -> None: ...
