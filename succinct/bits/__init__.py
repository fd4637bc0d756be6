"""Bit-vectors with rank and select, packed integers, Elias–Fano sequences."""

from succinct.bits.bitvector import BitVector
from succinct.bits.elias_fano import EliasFano
from succinct.bits.packed import PackedArray

__all__ = ["BitVector", "EliasFano", "PackedArray"]
