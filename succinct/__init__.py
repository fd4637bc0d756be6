"""Succinct indexes over token sequences, and beam search constrained by them."""

from succinct.bits import BitVector, EliasFano, PackedArray
from succinct.decode import BeamResult, QueryResult, beam_search
from succinct.errors import FormatError
from succinct.index import DEAD, load, verify
from succinct.keys import ItemMap, KeyTable
from succinct.maps import CsrMap, StepMap
from succinct.trie import LoudsTrie

__all__ = [
    "DEAD",
    "BeamResult",
    "BitVector",
    "CsrMap",
    "EliasFano",
    "FormatError",
    "ItemMap",
    "KeyTable",
    "LoudsTrie",
    "PackedArray",
    "QueryResult",
    "StepMap",
    "beam_search",
    "load",
    "verify",
]
