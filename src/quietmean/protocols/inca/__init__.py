"""IncA: incremental averaging with correlated noise that each party cancels itself (Sabater, Ben Mokhtar and Ramon 2026)."""

from quietmean.protocols.inca.protocol import IncA
from quietmean.protocols.inca.spec import IncaParameters, Injection

__all__ = ["PROTOCOL", "IncA", "IncaParameters", "Injection"]

PROTOCOL = IncA
