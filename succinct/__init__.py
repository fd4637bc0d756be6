"""Succinct indexes over token sequences, and beam search constrained by them."""

from succinct.bits import BitVector, EliasFano, PackedArray

__all__ = ["BitVector", "EliasFano", "PackedArray"]
