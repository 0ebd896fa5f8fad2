"""A node: one party of a study over the network, with sockets, a clock, a durable store and a log."""

from quietmean.node.driver import run_party
from quietmean.node.net import Identity, Roster, RosterEntry
from quietmean.node.series import RoundEnd, Series, SeriesOver, SeriesProgress
from quietmean.node.session import (
    LinkKeys,
    NodeResult,
    NodeSettings,
    Observers,
    PairKeys,
    PlannedMachine,
    PlannedValue,
    SiteHooks,
    StartTerms,
    Waits,
)
from quietmean.node.start import Started

__all__ = [
    "Identity",
    "LinkKeys",
    "NodeResult",
    "NodeSettings",
    "Observers",
    "PairKeys",
    "PlannedMachine",
    "PlannedValue",
    "Roster",
    "RosterEntry",
    "RoundEnd",
    "Series",
    "SeriesOver",
    "SeriesProgress",
    "SiteHooks",
    "StartTerms",
    "Started",
    "Waits",
    "run_party",
]
