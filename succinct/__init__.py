"""Succinct indexes over token sequences, and beam search constrained by them."""

from succinct.bits import BitVector, EliasFano, PackedArray
from succinct.decode import BeamResult, QueryResult, beam_search
from succinct.errors import FormatError
from succinct.index import DEAD, load, verify
from succinct.keys import ItemMap, KeyTable
from succinct.trie import LoudsTrie

__all__ = [
    "DEAD",
    "BeamResult",
    "BitVector",
    "EliasFano",
    "FormatError",
    "ItemMap",
    "KeyTable",
    "LoudsTrie",
    "PackedArray",
    "QueryResult",
    "beam_search",
    "load",
    "verify",
]
