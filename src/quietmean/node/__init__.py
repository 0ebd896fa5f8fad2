"""A node: one party of a study over the network, with sockets, a clock, a durable store and a log."""

from quietmean.node.gathering import Started, run_quorum
from quietmean.node.monitor import Late
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.peer import run_party
from quietmean.node.series import RoundEnd, Series, SeriesOver, Standing
from quietmean.node.session import Brought, NodeResult, NodeSettings, PairKeys, Quorum

__all__ = [
    "Brought",
    "Identity",
    "Late",
    "NodeResult",
    "NodeSettings",
    "PairKeys",
    "Quorum",
    "Roster",
    "RosterEntry",
    "RoundEnd",
    "Series",
    "SeriesOver",
    "Standing",
    "Started",
    "run_party",
    "run_quorum",
]
