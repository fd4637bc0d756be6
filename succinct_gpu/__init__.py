"""The decoding engines of ``succinct`` on a GPU.

This version holds no device code yet. The package imports everywhere, says so when it is used,
and names the call of ``succinct`` that does the same on the CPU. Nothing falls back silently:
the caller chooses where the work is done.

Examples
--------
>>> import succinct_gpu
>>> succinct_gpu.is_available()
False
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["beam_search", "is_available", "to_device", "to_host"]


def is_available() -> bool:
    """Whether kernels can run here: numba-cuda is installed, and there is a device.

    Under `succinct_gpu.simt` it is true.

    Returns
    -------
    bool

    Examples
    --------
    >>> from succinct_gpu import simt
    >>> with simt.session():
    ...     is_available()
    True
    """
    try:
        import numba.cuda
        import numba.cuda.core  # numba's own, older copy has none
    except ImportError:
        return False
    return bool(numba.cuda.is_available())


def to_device(index: Any, **options: Any) -> NoReturn:
    """Copy an index to the device; not in this version.

    Raises
    ------
    RuntimeError
        Always; the message names what is missing and what to call instead.

    Examples
    --------
    >>> to_device(None)
    Traceback (most recent call last):
    RuntimeError: succinct_gpu.to_device needs device code, which this version of succinct-tries \
does not hold; on the CPU an index needs no copy: give it to succinct.beam_search as it is
    """
    _explain("to_device", "an index needs no copy: give it to succinct.beam_search as it is")


def to_host(index: Any, **options: Any) -> NoReturn:
    """Copy an index back from the device; not in this version.

    Raises
    ------
    RuntimeError
        Always; the message names what is missing and what to call instead.

    Examples
    --------
    >>> to_host(None)
    Traceback (most recent call last):
    RuntimeError: succinct_gpu.to_host needs device code, which this version of succinct-tries \
does not hold; on the CPU an index needs no copy: use succinct.load to open an index file
    """
    _explain("to_host", "an index needs no copy: use succinct.load to open an index file")


def beam_search(index: Any, token_ids: Any, logprobs: Any, **options: Any) -> NoReturn:
    """Search on the device, as `succinct.beam_search` does on the CPU; not in this version.

    Raises
    ------
    RuntimeError
        Always; the message names what is missing and what to call instead.

    Examples
    --------
    >>> beam_search(None, [[1]], [[-0.5]], beam_width=1)
    Traceback (most recent call last):
    RuntimeError: succinct_gpu.beam_search needs device code, which this version of \
succinct-tries does not hold; on the CPU succinct.beam_search does the same
    """
    _explain("beam_search", "succinct.beam_search does the same")


def _explain(name: str, instead: str) -> NoReturn:
    raise RuntimeError(
        f"succinct_gpu.{name} needs device code, which this version of succinct-tries does not "
        f"hold; on the CPU {instead}"
    )
