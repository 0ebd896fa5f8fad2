"""One party's part in one study, whatever carries its messages: agreement, mixing, dissemination, closing, result."""

from quietmean.node.session.finalization import kept_result
from quietmean.node.session.result import NodeResult
from quietmean.node.session.session import Session
from quietmean.node.session.settings import NodeSettings

__all__ = [
    "NodeResult",
    "NodeSettings",
    "Session",
    "kept_result",
]
