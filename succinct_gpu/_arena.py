"""Memory that is allocated once: buffers of the host with a mirror on the device."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from succinct_gpu._device import require

# Between the arrays of a buffer, so that an index that is off hits none of the others.
_GRAIN = 256


class Mirror:
    """A pinned buffer of the host and one of the same size on the device.

    Parameters
    ----------
    nbytes : int
    """

    def __init__(self, nbytes: int) -> None:
        cuda = require("Searcher", "succinct.beam_search does the same")
        self.nbytes = max(nbytes, _GRAIN)
        self._host: NDArray[np.uint8] = cuda.pinned_array(self.nbytes, np.uint8)
        self._device = cuda.device_array(self.nbytes, np.uint8)
        self._layouts: dict[Any, tuple[dict[str, Any], dict[str, Any], int]] = {}

    def arrays(
        self, fields: Mapping[str, tuple[tuple[int, ...], DTypeLike]]
    ) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Arrays of given shapes and dtypes, on the host and on the device, and their bytes.

        They lie one after another from the begin of the buffer, and hold what is there.
        """
        key = tuple(fields.items())
        if key not in self._layouts:
            if len(self._layouts) >= 64:
                self._layouts.clear()
            self._layouts[key] = self._laid_out(fields)
        return self._layouts[key]

    def _laid_out(self, fields: Any) -> tuple[dict[str, Any], dict[str, Any], int]:
        host, device, at = {}, {}, 0
        for name, (shape, dtype) in fields.items():
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            place = slice(at, at + size)
            assert place.stop <= self.nbytes
            host[name] = self._host[place].view(dtype).reshape(shape)
            device[name] = self._device[place].view(dtype).reshape(*shape)
            at += bytes_for(size)
        return host, device, min(at, self.nbytes)

    def to_device(self, nbytes: int, stream: Any) -> None:
        """Copy the first bytes of the host's buffer over."""
        self._device[:nbytes].copy_to_device(self._host[:nbytes], stream=stream)

    def to_host(self, nbytes: int, stream: Any) -> None:
        """Copy the first bytes of the device's buffer back."""
        self._device[:nbytes].copy_to_host(self._host[:nbytes], stream=stream)


def bytes_for(nbytes: int) -> int:
    """What an array of `nbytes` takes in a buffer."""
    return -(-nbytes // _GRAIN) * _GRAIN + _GRAIN


def size_of(fields: Mapping[str, tuple[tuple[int, ...], DTypeLike]]) -> int:
    """Bytes of a buffer for arrays of given shapes and dtypes."""
    sizes = (
        int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        for shape, dtype in fields.values()
    )
    return sum(map(bytes_for, sizes))
