from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

def flatten(
    sequences: list[Any],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]] | None: ...
def has_bool(items: Sequence[Any]) -> bool: ...
