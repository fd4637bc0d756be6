from typing import Any

import numpy as np
import numpy.typing as npt

_Bits = npt.NDArray[Any]
_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_F32 = npt.NDArray[np.float32]

def gather(
    logits: _Bits,
    magnitude: int,
    infinity: int,
    lowest: int,
    offsets: _I64,
    tokens: _U32,
    out: _Bits,
) -> None: ...
def fill_gaps(
    logits: _Bits,
    magnitude: int,
    infinity: int,
    lowest: int,
    offsets: _I64,
    tokens: _U32,
) -> None: ...
def normalise(scores: _F32, offsets: _I64) -> None: ...
def normalise_rows(scores: _F32, offsets: _I64, logits: _F32) -> None: ...
