"""GOPA: every value is published under noise that pairs of parties share and that cancels in the sum (Sabater et al. 2022)."""

from quietmean.protocols.gopa.protocol import Gopa
from quietmean.protocols.gopa.spec import GopaParameters

__all__ = ["PROTOCOL", "GopaParameters"]

PROTOCOL = Gopa()
