"""Step-sliced indexes: one map per step, each in the representation that suits its data."""

from succinct.maps.stepmap import StepMap

__all__ = ["StepMap"]
