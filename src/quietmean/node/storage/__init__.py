"""The durable state of a party: it is on disk before anything that depends on it is sent."""

from quietmean.node.storage.database import COMMITTED, IN_DOUBT, PENDING, ClosedRound, Outgoing, input_digest
from quietmean.node.storage.housekeeping import (
    LAST,
    ROUND,
    empty,
    find_stores,
    in_use,
    outbox_path,
    remove_store,
    require_store,
    size_of,
)
from quietmean.node.storage.store import Store

__all__ = [
    "COMMITTED",
    "IN_DOUBT",
    "LAST",
    "PENDING",
    "ROUND",
    "ClosedRound",
    "Outgoing",
    "Store",
    "empty",
    "find_stores",
    "in_use",
    "input_digest",
    "outbox_path",
    "remove_store",
    "require_store",
    "size_of",
]
