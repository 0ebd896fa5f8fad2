"""What a party commits to before the public seed is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from quietmean.core.party import PartyId


@dataclass(frozen=True, slots=True)
class Opening:
    """What a party commits to: 32 random bytes, its public weight, its X25519 public key for this study."""

    nonce: bytes
    weight: float
    exchange: bytes


def commitment_hash(study: str, party: PartyId, opening: Opening) -> bytes:
    # It names the party: nobody can present another's commitment as its own.
    text = f"quietmean commit\n{study}\n{party}\n{opening.weight!r}\n".encode()
    return hashlib.sha256(text + opening.nonce + opening.exchange).digest()
