"""The peer: sockets, clock, durable store and log. One party of a study, over the network."""

from quietmean.node.identity import Identity
from quietmean.node.peer import NodeSettings, run_party
from quietmean.node.result import Late, NodeResult
from quietmean.node.roster import Roster, RosterEntry

__all__ = ["Identity", "Late", "NodeResult", "NodeSettings", "Roster", "RosterEntry", "run_party"]
