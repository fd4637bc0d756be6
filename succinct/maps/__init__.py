"""Indexes of level arrays: sliced by step, and as compressed sparse rows."""

from succinct.maps.csr import CsrMap
from succinct.maps.stepmap import StepMap

__all__ = ["CsrMap", "StepMap"]
