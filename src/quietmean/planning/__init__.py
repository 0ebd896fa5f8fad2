"""From a target (accuracy, privacy, colluders, dropouts) to a calibrated, serialisable plan."""

from quietmean.planning.plan import Admitted, Plan
from quietmean.protocols.target import Target

# What calibrates and ranks needs matrices: a running party, which has its plan already, starts without them.
__all__ = ["Admitted", "Plan", "Target"]
