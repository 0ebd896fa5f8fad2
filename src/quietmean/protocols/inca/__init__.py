"""IncA: incremental averaging with correlated noise that each party cancels itself (Sabater, Ben Mokhtar and Ramon 2026)."""

from quietmean.protocols.inca.protocol import IncA
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters

__all__ = ["PROTOCOL", "IncA", "Injection", "PushSumParameters"]

PROTOCOL = IncA
