"""The start of a study with those who are there: over the network, with a clock and a durable record."""

from quietmean.node.gathering.run import Started, run_quorum

__all__ = ["Started", "run_quorum"]
