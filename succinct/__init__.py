"""Succinct indexes over token sequences, and beam search constrained by them."""

from succinct.bits import BitVector, EliasFano, PackedArray
from succinct.decode import (
    BeamDecoder,
    BeamResult,
    Candidates,
    FilterStep,
    PaddedCandidates,
    Plan,
    QueryResult,
    beam_search,
    calibrate,
    candidates,
    constrain,
    filter_step,
    overlap,
    recall,
)
from succinct.errors import FormatError
from succinct.index import DEAD, load, verify
from succinct.keys import ItemMap, KeyTable
from succinct.maps import CsrMap, StepMap
from succinct.trie import LoudsTrie

__all__ = [
    "DEAD",
    "BeamDecoder",
    "BeamResult",
    "BitVector",
    "Candidates",
    "CsrMap",
    "EliasFano",
    "FilterStep",
    "FormatError",
    "ItemMap",
    "KeyTable",
    "LoudsTrie",
    "PackedArray",
    "PaddedCandidates",
    "Plan",
    "QueryResult",
    "StepMap",
    "beam_search",
    "calibrate",
    "candidates",
    "constrain",
    "filter_step",
    "load",
    "overlap",
    "recall",
    "verify",
]

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # takes longer than the rest; few ask

    return version("succinct-tries")
