"""GOPA: values are published under noise that pairs share and that cancels in the sum (Sabater, Bellet and Ramon 2022)."""

from quietmean.protocols.gopa.party import GopaParameters
from quietmean.protocols.gopa.protocol import GOPA

__all__ = ["GOPA", "PROTOCOL", "GopaParameters"]

PROTOCOL = GOPA
