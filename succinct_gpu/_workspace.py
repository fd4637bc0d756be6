"""Memory of the device that steps use again and again."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from succinct import _args


class Workspace:
    """Memory for `filter_step`, to be given to every step of a decoder.

    A buffer is allocated when a step first needs it, or needs a larger one; a step like one before
    allocates nothing. Steps that share a workspace must run one after another on one stream, and
    each overwrites the answer of the one before it.

    Parameters
    ----------
    max_slots : int, optional
        Valid tokens of all beams of a step together, each beam's rounded up to a multiple of 64. A
        slot takes 16 bytes. By default there is room for the widest range of tokens that a step of
        the index has, for every beam. Requests that find no room get an error of their own:
        `DeviceStep.status` is 2.
    products : {"cupy", "torch", "kernel"}, optional
        Whose matrix products "full" and "band" take. By default CuPy's if it is installed, or
        torch's, or a kernel of ours.

    Examples
    --------
    >>> from succinct_gpu import Workspace
    >>> Workspace(max_slots=1 << 20).nbytes
    0
    """

    def __init__(self, max_slots: int | None = None, products: str | None = None) -> None:
        self.max_slots = None if max_slots is None else _args.at_least_one("max_slots", max_slots)
        self.products = products
        self._buffers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Workspace({self.nbytes} bytes)"

    @property
    def nbytes(self) -> int:
        """Bytes allocated so far."""
        return sum(int(buffer.nbytes) for buffer in self._buffers.values())

    def room(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, stream: Any) -> Any:
        """An array of the device, a part of the buffer of that name."""
        from numba import cuda

        size = int(np.prod(shape, dtype=np.int64))
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = cuda.device_array(max(size, 1), dtype, stream=stream)
            self._buffers[name] = buffer
        return buffer[:size].reshape(*shape)
