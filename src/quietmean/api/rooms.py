"""The rooms that calls lead to, each imported by the first call that needs it: a name that is only looked at costs little.

Annotations name types by their room, too, as ``rooms.party.Contract``: what checks arguments finds them there.
"""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean import ledger, node, statistics
    from quietmean.api import result
    from quietmean.learning import kept
    from quietmean.node import monitor
    from quietmean.sessions import agreed, files, joined, round_mean
    from quietmean.studies import data, party
    from quietmean.studies.agreement import any_study, distrust, sealed, session_study, session_terms, signed, study, study_file
    from quietmean.studies.data import sources
    from quietmean.studies.outcome import forecast, here, outcome
    from quietmean.studies.party import contributing, dropping, handing_in
else:
    _PLACES = (
        "ledger",
        "node",
        "statistics",
        "api.result",
        "node.monitor",
        "sessions.agreed",
        "sessions.files",
        "sessions.joined",
        "sessions.round_mean",
        "studies.data",
        "studies.party",
        "learning.kept",
        "studies.agreement.any_study",
        "studies.agreement.session_terms",
        "studies.outcome.outcome",
        "studies.agreement.distrust",
        "studies.agreement.sealed",
        "studies.agreement.session_study",
        "studies.agreement.signed",
        "studies.agreement.study",
        "studies.agreement.study_file",
        "studies.data.sources",
        "studies.outcome.forecast",
        "studies.outcome.here",
        "studies.party.contributing",
        "studies.party.dropping",
        "studies.party.handing_in",
    )
    __getattr__ = importer(__name__, {}, {place.rpartition(".")[2]: place for place in _PLACES})

__all__ = [
    "agreed",
    "any_study",
    "contributing",
    "data",
    "distrust",
    "dropping",
    "files",
    "forecast",
    "handing_in",
    "here",
    "joined",
    "kept",
    "ledger",
    "monitor",
    "node",
    "outcome",
    "party",
    "result",
    "round_mean",
    "sealed",
    "session_study",
    "session_terms",
    "signed",
    "sources",
    "statistics",
    "study",
    "study_file",
]
