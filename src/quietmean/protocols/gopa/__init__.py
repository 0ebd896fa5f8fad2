"""GOPA: every value is published under noise that pairs of parties share and that cancels in the sum (Sabater et al. 2022)."""

from quietmean.protocols.gopa.protocol import GOPA
from quietmean.protocols.gopa.spec import GopaParameters

__all__ = ["GOPA", "PROTOCOL", "GopaParameters"]

PROTOCOL = GOPA
