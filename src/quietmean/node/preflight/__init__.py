"""The check before a study: whether all parties are reachable, agree on study, plan and roster, and have valid data."""

from quietmean.node.preflight.check import CheckSession
from quietmean.node.preflight.readiness import Agreed, PeerReadiness, Reply

__all__ = [
    "Agreed",
    "CheckSession",
    "PeerReadiness",
    "Reply",
]
