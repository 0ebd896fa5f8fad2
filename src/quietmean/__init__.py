"""Statistics of private records, with nobody in the middle to trust.

import quietmean as qm
target = qm.Target(parties=200, epsilon=1.0, delta=1e-6, colluding=20, dropouts=0.05)
plan = qm.IncA(rounds=20).calibrate(target)
result = plan.simulate(values, runs=100)
study = qm.Study({"age": (0, 110)}, ["mean(age)"], epsilon=1.0, delta=1e-6)
result = study.run(frame, parties=20)
result = qm.join("study.sealed", key="north.key", data=frame, account="wards", accept=digest)
with qm.session("session.toml", "roster.toml", "north.key", account="wards") as rounds: ...
certificate = qm.Execution.load("receipt.json").privacy(1e-6).against({0, 4})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quietmean.core import lazy
from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean import learning as learning
    from quietmean import statistics as statistics
    from quietmean.api.functions import Node as Node
    from quietmean.api.functions import certify as certify
    from quietmean.api.functions import plan as plan
    from quietmean.api.functions import simulate as simulate
    from quietmean.api.joining import ajoin as ajoin
    from quietmean.api.joining import contract as contract
    from quietmean.api.joining import contribute as contribute
    from quietmean.api.joining import join as join
    from quietmean.api.sessions import joined as joined
    from quietmean.api.sessions import session as session
    from quietmean.api.sites import Site as Site
    from quietmean.api.study import Study as Study
    from quietmean.core.errors import InputError as InputError
    from quietmean.core.errors import QuietmeanError as QuietmeanError
    from quietmean.core.input_domain import InputDomain as InputDomain
    from quietmean.planning import Plan as Plan
    from quietmean.planning.automatic import propose as propose
    from quietmean.planning.candidates import Ranking as Ranking
    from quietmean.planning.candidates import rank as rank
    from quietmean.protocols import Target as Target
    from quietmean.protocols.central_dp import CentralDP as CentralDP
    from quietmean.protocols.committee import Committee as Committee
    from quietmean.protocols.consensus import Consensus as Consensus
    from quietmean.protocols.cordp_dme import CorDPDME as CorDPDME
    from quietmean.protocols.execution import Execution as Execution
    from quietmean.protocols.gopa import GOPA as GOPA
    from quietmean.protocols.gossip import Gossip as Gossip
    from quietmean.protocols.inca import IncA as IncA
    from quietmean.protocols.local_dp import LocalDP as LocalDP
    from quietmean.protocols.muffliato import Muffliato as Muffliato
    from quietmean.protocols.packed_sharing import PackedSharing as PackedSharing
    from quietmean.protocols.priv_unit import PrivUnitG as PrivUnitG
    from quietmean.protocols.secagg import SecAgg as SecAgg
    from quietmean.protocols.secagg_plus import SecAggPlus as SecAggPlus
    from quietmean.protocols.secret_sharing import SecretSharing as SecretSharing
    from quietmean.sessions import Session as Session
    from quietmean.studies.data.isolated import GroupedFrame as GroupedFrame
    from quietmean.studies.data.location import FrameOfPersons as FrameOfPersons

    __version__: str

# Where each name is; imported when it is asked for, so that a node or a command starts without what it does not use.
_PLACES = {
    "GOPA": "protocols.gopa",
    "CentralDP": "protocols.central_dp",
    "Committee": "protocols.committee",
    "Consensus": "protocols.consensus",
    "CorDPDME": "protocols.cordp_dme",
    "Execution": "protocols.execution",
    "FrameOfPersons": "studies.data.location",
    "GroupedFrame": "studies.data.isolated",
    "Gossip": "protocols.gossip",
    "IncA": "protocols.inca",
    "InputDomain": "core.input_domain",
    "InputError": "core.errors",
    "LocalDP": "protocols.local_dp",
    "Muffliato": "protocols.muffliato",
    "Node": "api.functions",
    "PackedSharing": "protocols.packed_sharing",
    "Plan": "planning",
    "PrivUnitG": "protocols.priv_unit",
    "QuietmeanError": "core.errors",
    "Ranking": "planning.candidates",
    "SecAgg": "protocols.secagg",
    "SecAggPlus": "protocols.secagg_plus",
    "SecretSharing": "protocols.secret_sharing",
    "Session": "sessions",
    "Site": "api.sites",
    "Study": "api.study",
    "Target": "protocols",
    "ajoin": "api.joining",
    "certify": "api.functions",
    "contract": "api.joining",
    "contribute": "api.joining",
    "join": "api.joining",
    "joined": "api.sessions",
    "plan": "api.functions",
    "propose": "planning.automatic",
    "rank": "planning.candidates",
    "session": "api.sessions",
    "simulate": "api.functions",
}

__all__ = list(_PLACES)
# Parts of the interface that are modules.
_MODULES = ("learning", "statistics")
_imported = importer(__name__, _PLACES, dict(zip(_MODULES, _MODULES, strict=True)))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("quietmean")
    if name[:1].isupper() and name not in _PLACES:
        # A protocol in a folder of its own, or of another distribution.
        from quietmean.protocols import registry

        for kind in registry().values():
            if kind.__name__ == name:
                return kind
    return _imported(name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", *_MODULES])


# Methods of values in layers below.
lazy.calibrate.provide("planning.calibrate", "calibrate")
lazy.simulate.provide("simulation", "simulate")
lazy.fitted_instead.provide("learning.models.drawn", "fitted_instead")
lazy.fitted_studies.provide("learning.models.drawn", "fitted_studies")
lazy.model_parameters.provide("learning.models.glm", "model_parameters")
