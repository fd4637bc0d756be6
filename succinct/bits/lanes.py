"""Arrays behind the bit structures."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class BitLanes(NamedTuple):
    words: npt.NDArray[np.uint64]
    blocks: npt.NDArray[np.uint32]
    supers: npt.NDArray[np.uint64]
    samples1: npt.NDArray[np.uint32]
    samples0: npt.NDArray[np.uint32]
    shift1: np.int64
    shift0: np.int64


class PackedLanes(NamedTuple):
    words: npt.NDArray[np.uint64]
    width: np.int64
