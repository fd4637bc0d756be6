import numpy as np
import numpy.typing as npt

from succinct.keys import KeyTable
from succinct.keys.sequences import Tokens

class Keys:
    def __init__(self, table: KeyTable | Heads) -> None: ...

class Heads:
    keys: KeyTable
    tokens: Tokens
    n_keys: int
    fixed_length: int | None
    max_length: int
    vocab_size: int
    @property
    def offsets(self) -> npt.NDArray[np.int64]: ...
    def __init__(self, keys: KeyTable, max_length: int) -> None: ...
