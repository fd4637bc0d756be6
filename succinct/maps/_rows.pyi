from typing import Any

import numpy as np
import numpy.typing as npt

from succinct.keys import KeyTable

_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]

def measure(
    table: KeyTable,
    start: int,
    stop: int,
    step: int,
    low: int,
    span: int,
    lengths: _I64,
    counts: _I64,
    sizes: _I64,
) -> None: ...
def measure_code(
    table: KeyTable,
    start: int,
    stop: int,
    step: int,
    low: int,
    code: _U32,
    count: int,
    words: _U32,
    size: _I64,
) -> None: ...
def fill(
    table: KeyTable,
    start: int,
    stop: int,
    step: int,
    place: _I64,
    bits: npt.NDArray[np.uint64],
    values: npt.NDArray[np.uint64],
    code: _U32,
    words: _U32,
    first_entry: int,
    first_row: int,
    at: int,
) -> None: ...
def __getattr__(name: str) -> Any: ...
