"""Decoding constrained by an index."""

from succinct.decode.beam import beam_search
from succinct.decode.filtering import Choice, FilterStep, filter_step
from succinct.decode.plan import Plan, calibrate
from succinct.decode.result import BeamResult, QueryResult

__all__ = [
    "BeamResult",
    "Choice",
    "FilterStep",
    "Plan",
    "QueryResult",
    "beam_search",
    "calibrate",
    "filter_step",
]
