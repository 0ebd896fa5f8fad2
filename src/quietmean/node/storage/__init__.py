"""What a party must not forget, on disk before anything that depends on it is sent."""

from quietmean.node.storage.entries import PENDING, RECLAIMED, USED, ClosedRound, Outgoing, Pledge
from quietmean.node.storage.store import Store

__all__ = [
    "PENDING",
    "RECLAIMED",
    "USED",
    "ClosedRound",
    "Outgoing",
    "Pledge",
    "Store",
]
