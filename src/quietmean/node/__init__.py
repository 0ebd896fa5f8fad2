"""A node: one party of a study over the network, with sockets, a clock, a durable store and a log."""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.node.driver import run_party as run_party
    from quietmean.node.net import Identity as Identity
    from quietmean.node.net import Roster as Roster
    from quietmean.node.net import RosterEntry as RosterEntry
    from quietmean.node.series import RoundEnd as RoundEnd
    from quietmean.node.series import Series as Series
    from quietmean.node.series import SeriesOver as SeriesOver
    from quietmean.node.series import SeriesProgress as SeriesProgress
    from quietmean.node.session import LinkKeys as LinkKeys
    from quietmean.node.session import NodeResult as NodeResult
    from quietmean.node.session import NodeSettings as NodeSettings
    from quietmean.node.session import Observers as Observers
    from quietmean.node.session import PairKeys as PairKeys
    from quietmean.node.session import PlannedMachine as PlannedMachine
    from quietmean.node.session import PlannedValue as PlannedValue
    from quietmean.node.session import SiteHooks as SiteHooks
    from quietmean.node.session import StartTerms as StartTerms
    from quietmean.node.session import Waits as Waits
    from quietmean.node.start import Started as Started
else:
    _NAMES = {
        "driver": "run_party",
        "net": "Identity Roster RosterEntry",
        "series": "RoundEnd Series SeriesOver SeriesProgress",
        "session": "LinkKeys NodeResult NodeSettings Observers PairKeys PlannedMachine PlannedValue SiteHooks StartTerms Waits",
        "start": "Started",
    }
    _PLACES = {name: f"node.{module}" for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __all__ = importer(__name__, _PLACES), list(_PLACES)
