"""GOPA: values are published under noise that pairs share and that cancels in the sum (Sabater, Bellet and Ramon 2022)."""

from quietmean.protocols.gopa.protocol import GOPA
from quietmean.protocols.gopa.spec import GopaParameters

__all__ = ["GOPA", "PROTOCOL", "GopaParameters"]

PROTOCOL = GOPA
