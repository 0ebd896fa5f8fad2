"""Central DP: a trusted curator sees every value and publishes the noisy sum. For comparison.

Dwork, McSherry, Nissim and Smith 2006.
"""

from quietmean.protocols.central_dp.protocol import CentralDP

__all__ = ["PROTOCOL", "CentralDP"]

PROTOCOL = CentralDP
