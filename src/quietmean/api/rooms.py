"""The rooms that calls lead to, each imported by the first call that needs it: a name that is only looked at costs little.

Annotations name types by their room, too, as ``rooms.party.Contract``: what checks arguments finds them there.
"""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean import ledger as ledger
    from quietmean import node as node
    from quietmean import statistics as statistics
    from quietmean.api import result as result
    from quietmean.learning import sites as sites
    from quietmean.node import monitor as monitor
    from quietmean.sessions import joined as joined
    from quietmean.sessions import round_mean as round_mean
    from quietmean.studies import data as data
    from quietmean.studies import party as party
    from quietmean.studies.agreement import any_study as any_study
    from quietmean.studies.agreement import first_look as first_look
    from quietmean.studies.agreement import sealed as sealed
    from quietmean.studies.agreement import session_study as session_study
    from quietmean.studies.agreement import session_terms as session_terms
    from quietmean.studies.agreement import signed as signed
    from quietmean.studies.agreement import study as study
    from quietmean.studies.agreement import study_keys as study_keys
    from quietmean.studies.data import sources as sources
    from quietmean.studies.outcome import feasible as feasible
    from quietmean.studies.outcome import here as here
    from quietmean.studies.outcome import mock as mock
    from quietmean.studies.outcome import outcome as outcome
    from quietmean.studies.party import handing_in as handing_in
    from quietmean.studies.party import planned as planned
    from quietmean.studies.party import session_contract as session_contract
else:
    _ROOMS = {
        "": "ledger node statistics",
        "api": "result",
        "learning": "sites",
        "node": "monitor",
        "sessions": "joined round_mean",
        "studies": "data party",
        "studies.agreement": "any_study first_look sealed session_study session_terms signed study study_keys",
        "studies.data": "sources",
        "studies.outcome": "feasible here mock outcome",
        "studies.party": "handing_in planned session_contract",
    }
    _PLACES = {name: f"{package}.{name}".strip(".") for package, names in _ROOMS.items() for name in names.split()}
    __getattr__ = importer(__name__, {}, _PLACES)
