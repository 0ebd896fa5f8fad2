"""What is charged once: one execution of a study, with one noise."""

from __future__ import annotations

from pathlib import Path

from quietmean.core.codec import digest
from quietmean.node import NodeSettings
from quietmean.node.storage import Store


def has_begun(store: Path) -> bool:
    """Whether a party has begun with this store."""
    return store.exists() and store.stat().st_size > 0


def begun_execution(settings: NodeSettings) -> str:
    """Return what is charged of a study that has begun in the party's store, whatever its input is; empty where it has not."""
    nonce = Store.nonce_of(settings.store) if has_begun(settings.store) else None
    return "" if nonce is None else execution_of(settings.study, nonce)


def execution_id(settings: NodeSettings) -> str:
    """What is charged once: not the study as agreed but its noise, which lives in the party's store.

    A restart from the same store sends nothing new. From another store the same study draws fresh noise and costs as much again.
    """
    store = settings.open_store()
    try:
        return execution_of(settings.study, store.nonce)
    finally:
        store.close()


def seat_of(agreed: str, public_key: str) -> str:
    """The place of a party in what was agreed on: a second store of its key would have the same."""
    return digest({"format": "quietmean-seat-1", "agreed": agreed, "key": public_key})


def execution_of(study: str, nonce: bytes) -> str:
    """Return what is charged once, by the digest of what was agreed on, and what its noise can be recognised by."""
    return digest({"format": "quietmean-charge-1", "study": study, "nonce": nonce.hex()})
