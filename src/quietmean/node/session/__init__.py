"""The session of one party in one study, independent of the transport: agreement, mixing, dissemination, closing, result."""

from quietmean.node.session.agreement import Commitments
from quietmean.node.session.endurance import CurrentSession, Patience, endure
from quietmean.node.session.finalization import kept_result, refusal
from quietmean.node.session.pairing import Pairing
from quietmean.node.session.quorum import Brought, Quorum
from quietmean.node.session.result import NodeResult
from quietmean.node.session.session import Session, position_of
from quietmean.node.session.settings import NodeSettings, PairKeys

__all__ = [
    "Brought",
    "Commitments",
    "CurrentSession",
    "NodeResult",
    "NodeSettings",
    "PairKeys",
    "Pairing",
    "Patience",
    "Quorum",
    "Session",
    "endure",
    "kept_result",
    "position_of",
    "refusal",
]
