"""Gossip averaging (push-sum): no noise, no privacy; for comparison and for spreading what is public already."""

from quietmean.protocols.gossip.protocol import Gossip, GossipParameters

__all__ = ["PROTOCOL", "GossipParameters"]

PROTOCOL = Gossip()
