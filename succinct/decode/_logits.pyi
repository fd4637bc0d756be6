from typing import Any

import numpy as np
import numpy.typing as npt

from succinct._walker import Core

_Bits = npt.NDArray[Any]
_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]
_F32 = npt.NDArray[np.float32]

def spans(core: Core, states: _U64) -> _I64 | None: ...
def list_tokens(
    core: Core,
    states: _U64,
    offsets: _I64,
    tokens: _U32,
    children: _U64,
    logits: _Bits,
    magnitude: int,
    infinity: int,
    lowest: int,
    out: _Bits,
) -> bool: ...
def keep_only(logits: _Bits, lowest: int, offsets: _I64, tokens: _U32, values: _Bits) -> None: ...
def normalise(scores: _F32, offsets: _I64) -> None: ...
def normalise_rows(scores: _F32, offsets: _I64, logits: _F32) -> None: ...
