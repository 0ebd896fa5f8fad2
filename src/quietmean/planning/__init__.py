"""From a target (accuracy, privacy, colluders, dropouts) to a calibrated, serialisable plan."""

from quietmean.planning.plan import Plan
from quietmean.protocols.target import Target

__all__ = ["Plan", "Target"]
