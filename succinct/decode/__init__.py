"""Decoding constrained by an index."""

from succinct.decode.beam import beam_search
from succinct.decode.decoder import BeamDecoder
from succinct.decode.filtered import Choice, FilterStep
from succinct.decode.filtering import filter_step
from succinct.decode.masking import Candidates, PaddedCandidates, candidates, constrain
from succinct.decode.metrics import overlap, recall
from succinct.decode.plan import Plan, calibrate
from succinct.decode.result import BeamResult, QueryResult

__all__ = [
    "BeamDecoder",
    "BeamResult",
    "Candidates",
    "Choice",
    "FilterStep",
    "PaddedCandidates",
    "Plan",
    "QueryResult",
    "beam_search",
    "calibrate",
    "candidates",
    "constrain",
    "filter_step",
    "overlap",
    "recall",
]
