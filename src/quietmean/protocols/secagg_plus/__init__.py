"""SecAgg+: secure aggregation along a random graph with few neighbours each (Bell et al. 2020)."""

from quietmean.protocols.secagg_plus.protocol import SecAggPlus

__all__ = ["PROTOCOL", "SecAggPlus"]

# The machines are SecAgg's (ClientParty, AggregatorParty); who shares with whom is all that differs.
PROTOCOL = SecAggPlus
