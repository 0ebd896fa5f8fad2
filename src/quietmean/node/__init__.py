"""A node: one party of a study over the network, with sockets, a clock, a durable store and a log."""

from quietmean.node.driver import run_party
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.series import RoundEnd, Series, SeriesOver, SeriesProgress
from quietmean.node.session import NodeResult, NodeSettings, PairKeys, PlannedValue, StartTerms
from quietmean.node.start import Started

__all__ = [
    "Identity",
    "NodeResult",
    "NodeSettings",
    "PairKeys",
    "PlannedValue",
    "Roster",
    "RosterEntry",
    "RoundEnd",
    "Series",
    "SeriesOver",
    "SeriesProgress",
    "StartTerms",
    "Started",
    "run_party",
]
