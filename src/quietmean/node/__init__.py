"""A node: one party of a study over the network, with sockets, a clock, a durable store and a log."""

from quietmean.node.monitor import Late
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.peer import run_party
from quietmean.node.session import NodeResult, NodeSettings

__all__ = ["Identity", "Late", "NodeResult", "NodeSettings", "Roster", "RosterEntry", "run_party"]
