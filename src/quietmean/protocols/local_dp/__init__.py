"""Local DP: every party publishes its value with noise of its own. No exchange, no trusted party.

Duchi, Jordan and Wainwright 2013.
"""

from quietmean.protocols.local_dp.protocol import LocalDP

__all__ = ["PROTOCOL", "LocalDP"]

PROTOCOL = LocalDP
