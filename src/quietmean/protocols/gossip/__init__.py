"""Gossip averaging (push-sum): no noise, no privacy; for comparison and for spreading what is public already.

Boyd, Ghosh, Prabhakar and Shah 2006.
"""

from quietmean.protocols.gossip.protocol import Gossip

__all__ = ["PROTOCOL", "Gossip"]

PROTOCOL = Gossip
