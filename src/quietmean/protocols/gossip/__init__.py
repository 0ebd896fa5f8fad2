"""Gossip averaging (push-sum): no noise, no privacy; for comparison and for spreading what is public already."""

from quietmean.protocols.gossip.protocol import Gossip

__all__ = ["PROTOCOL", "Gossip"]

PROTOCOL = Gossip
