"""The check before a study: whether all parties are reachable, agree on study, plan and roster, and have valid data."""

from quietmean.node.preflight.check import Agreed, CheckSession, PeerReadiness, Reply

__all__ = [
    "Agreed",
    "CheckSession",
    "PeerReadiness",
    "Reply",
]
