"""Records of a store: outgoing messages, the end of a round, and the states of a transfer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from quietmean.core.party import PartyId, Vector
from quietmean.node.net import Payload, encode_vector
from quietmean.randomness import Seed

PENDING: Final = "pending"
# The sender cancelled the transfer and kept its share; whether the receiver had used it is not known yet. The words in the file
# are part of its format.
IN_DOUBT: Final = "reclaimed"
# The receiver had used it. The sender compensates: it takes the share out at the end of a later round, the column ``settled``.
COMMITTED: Final = "used"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it goes over the wire: ``dimension`` values of ``width`` bytes each, then the protocol's own content."""

    payload: Payload
    dimension: int
    weight: float
    width: int = 8


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """How a round ended: for each receiver, accepted, refused or in doubt; which earlier (round, receiver) were settled."""

    round: int
    statuses: Mapping[PartyId, str]
    settled: Sequence[tuple[int, PartyId]] = ()


def input_digest(key: Seed, nonce: bytes, value: Vector, weight: float) -> bytes:
    """Keyed, so that it reveals nothing about the value, even to a reader who tries all values."""
    # The value is read in place, so that no copy of it remains in memory.
    shape = ",".join(str(size) for size in np.shape(value))
    return key.derive("input", nonce, shape, hashlib.sha256(encode_vector(value)).digest(), weight.hex()).secret
