"""Succinct indexes over token sequences, and beam search constrained by them."""

from succinct.bits import BitVector, EliasFano, PackedArray
from succinct.errors import FormatError
from succinct.index import DEAD, load, verify
from succinct.keys import ItemMap, KeyTable
from succinct.trie import LoudsTrie

__all__ = [
    "DEAD",
    "BitVector",
    "EliasFano",
    "FormatError",
    "ItemMap",
    "KeyTable",
    "LoudsTrie",
    "PackedArray",
    "load",
    "verify",
]
