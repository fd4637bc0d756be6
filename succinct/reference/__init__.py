"""The contract in pure Python: documentation that runs, and the oracle of the tests.

Nothing here is fast, and nothing imports numpy or another part of the library.
"""

from succinct.reference.beam import Result, beam_search
from succinct.reference.bits import BitVector, EliasFano, PackedArray
from succinct.reference.decoder import BeamDecoder
from succinct.reference.filtering import Continuation, filter_step
from succinct.reference.masking import Candidates, PaddedCandidates, candidates, constrain
from succinct.reference.trie import DEAD, Trie
from succinct.reference.wire import (
    batch_from_bytes,
    batch_to_bytes,
    record_from_bytes,
    record_to_bytes,
)

__all__ = [
    "DEAD",
    "BeamDecoder",
    "BitVector",
    "Candidates",
    "Continuation",
    "EliasFano",
    "PackedArray",
    "PaddedCandidates",
    "Result",
    "Trie",
    "batch_from_bytes",
    "batch_to_bytes",
    "beam_search",
    "candidates",
    "constrain",
    "filter_step",
    "record_from_bytes",
    "record_to_bytes",
]
