"""Decoding constrained by an index."""

from succinct.decode.beam import beam_search
from succinct.decode.result import BeamResult, QueryResult

__all__ = ["BeamResult", "QueryResult", "beam_search"]
