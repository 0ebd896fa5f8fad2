"""Central DP: one trusted curator sees every value and publishes the noisy sum. For comparison."""

from quietmean.protocols.central_dp.protocol import CentralDp, CentralDpParameters

__all__ = ["PROTOCOL", "CentralDpParameters"]

PROTOCOL = CentralDp()
