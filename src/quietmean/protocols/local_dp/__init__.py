"""Local DP: every party publishes its value with noise of its own. No exchange, no trusted party."""

from quietmean.protocols.local_dp.protocol import LocalDP

__all__ = ["PROTOCOL", "LocalDP"]

PROTOCOL = LocalDP
