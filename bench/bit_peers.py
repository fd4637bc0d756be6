"""Bit-vectors to be measured: the library's, a C implementation, and what pip can install.

Each has `nbytes`, `batch` (operation to a function of queries and of an array for the answers) and
`call` (operation to a function of one query). What it does not offer is not in there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.baselines.native import library, pointer
from succinct.bits import BitVector, EliasFano

OPERATIONS = ("rank1", "rank0", "select1", "select0")
_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


class Bits:
    """A way to store bits."""

    name = ""
    # Peers convert through arrays of a byte or more a bit; beyond this they are left out.
    largest = 2**26
    # 1 if the bits themselves are part of `nbytes`.
    counts_itself = 1

    def __init__(self) -> None:
        self.nbytes = 0
        self.batch: dict[str, Callable[[_Ints, _Ints], Any]] = {}
        self.call: dict[str, Callable[[int], Any]] = {}


class Ours(Bits):
    """The library's bit-vector."""

    name = "BitVector"
    largest = 2**40

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        self.vector = BitVector.from_words(words, length)
        self.nbytes = self.vector.nbytes
        for operation in OPERATIONS:
            method = getattr(self.vector, operation)
            self.batch[operation] = lambda asked, out, method=method: method(asked, out=out)
            self.call[operation] = method


class InC(Bits):
    """A count for each 512 bits and a sample for each 1024 ones and zeros, in C."""

    name = "C, -march=native"
    largest = 2**32 - 1

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        native = library("rank_select")
        # The library's words serve both: they end in a block that holds the last position.
        self._words = BitVector.from_words(words, length).words
        blocks = len(self._words) // 8
        self._counts = np.empty(blocks + 17, np.uint32)
        samples = [np.empty(length // 1024 + 3, np.uint32) for _ in range(2)]
        native.build.restype = ctypes.c_int64
        count = native.build(
            pointer(self._words, np.uint64),
            ctypes.c_int64(blocks),
            pointer(self._counts, np.uint32),
            *(pointer(array, np.uint32) for array in samples),
        )
        used = 4 * ((count >> 10) + ((length - count) >> 10) + 4)
        self.nbytes = self._words.nbytes + self._counts.nbytes + used
        for operation in OPERATIONS:
            function = getattr(native, operation)
            array = samples[0] if operation == "select1" else samples[1]

            def run(asked: _Ints, out: _Ints, function: Any = function, array: Any = array) -> None:
                function(
                    pointer(self._words, np.uint64),
                    pointer(self._counts, np.uint32),
                    pointer(array, np.uint32),
                    pointer(asked, np.int64),
                    pointer(out, np.int64),
                    ctypes.c_int64(len(asked)),
                )

            self.batch[operation] = run


class Sparse(Bits):
    """The library's Elias-Fano array of the places of the ones."""

    name = "EliasFano"
    counts_itself = 0

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        array = EliasFano(np.flatnonzero(BitVector.from_words(words, length).to_bools()))
        self.nbytes = array.nbytes
        self.call = {"rank1": array.rank, "select1": array.access}
        self.batch = {
            "rank1": lambda asked, out: np.copyto(out, array.rank(asked)),
            "select1": lambda asked, out: array.access(asked, out=out.view(np.uint64)),
        }


class Sbits(Bits):
    """sbits.BitVector."""

    name = "sbits"

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        import sbits

        vector = sbits.BitVector(BitVector.from_words(words, length).to_bools())
        self.nbytes = len(vector.to_bytes())
        methods = (vector.rank, vector.rank0, vector.select, vector.select0)
        self.call = dict(zip(OPERATIONS, methods, strict=True))


class Bitarray(Bits):
    """bitarray counts and searches from the start: it has no directory."""

    name = "bitarray"

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        from bitarray import bitarray
        from bitarray.util import count_n

        bits = bitarray(endian="little")
        bits.frombytes(words.tobytes())
        del bits[length:]
        self.nbytes = bits.nbytes
        self.call = {
            "rank1": lambda i: bits.count(1, 0, i),
            "rank0": lambda i: bits.count(0, 0, i),
            "select1": lambda k: count_n(bits, k + 1, 1) - 1,
            "select0": lambda k: count_n(bits, k + 1, 0) - 1,
        }


class Roaring(Bits):
    """pyroaring.BitMap of the places of the ones; it has no select of zeros."""

    name = "pyroaring"
    counts_itself = 0

    def __init__(self, words: _Words, length: int) -> None:
        super().__init__()
        from pyroaring import BitMap

        places = np.flatnonzero(BitVector.from_words(words, length).to_bools())
        bits = BitMap(places.astype(np.uint32))
        bits.run_optimize()
        self.nbytes = len(bits.serialize())
        # Its rank counts the argument, too.
        self.call = {
            "rank1": lambda i: bits.rank(i - 1) if i else 0,
            "rank0": lambda i: i - bits.rank(i - 1) if i else 0,
            "select1": bits.__getitem__,
        }


BATCH: tuple[type[Bits], ...] = (Ours, InC, Sparse)
CALLS: tuple[type[Bits], ...] = (Ours, Sparse, Sbits, Roaring, Bitarray)


def random_words(length: int, density: float, seed: int = 1) -> _Words:
    """Words of `length` random bits, each of them one with this probability (to 1/4096)."""
    rng = np.random.default_rng(seed)
    words = np.zeros((length + 63) // 64, np.uint64)
    digits = round(density * 4096)
    lowest = (digits & -digits).bit_length() - 1
    for start in range(0, len(words), 2**20):
        part = words[start : start + 2**20]
        # A bit is one with probability 0.b1 b2 b3 ...: the digits are applied last to first.
        for digit in range(lowest, 12):
            drawn = rng.integers(0, 2**64, len(part), np.uint64)
            if digits >> digit & 1:
                part |= drawn
            else:
                part &= drawn
    if length % 64:
        words[-1] &= np.uint64((1 << length % 64) - 1)
    return words


def trace_of(error: BaseException) -> str:
    """What kept a peer from being measured, in a few words."""
    if isinstance(error, ImportError):
        return "not installed"
    return f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else repr(error)
