"""The session of one party in one study, independent of the transport: agreement, mixing, dissemination, closing, result."""

from quietmean.node.session.finalization import kept_result, refusal
from quietmean.node.session.result import NodeResult
from quietmean.node.session.session import Session
from quietmean.node.session.settings import NodeSettings

__all__ = [
    "NodeResult",
    "NodeSettings",
    "Session",
    "kept_result",
    "refusal",
]
