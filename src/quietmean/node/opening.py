"""What a party commits to before the public seed is known, and what follows from all that was revealed.

Each party commits to a nonce, its public weight and its public exchange key, and reveals them once all commitments are in. The
public seed is derived from all of them; one honest nonce makes it unpredictable, so that nobody can choose the schedule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from quietmean.core.party import PartyId
from quietmean.randomness import Seed


@dataclass(frozen=True, slots=True)
class Opening:
    """What a party commits to: 32 random bytes, its public weight, its X25519 public key for this study."""

    nonce: bytes = field(repr=False)
    weight: float
    exchange: bytes


def commitment_hash(study: str, party: PartyId, opening: Opening) -> bytes:
    # It names the party: nobody can present another's commitment as its own.
    text = f"quietmean commit\n{study}\n{party}\n{opening.weight!r}\n".encode()
    return hashlib.sha256(text + opening.nonce + opening.exchange).digest()


def public_seed(study: str, openings: Mapping[PartyId, Opening]) -> Seed:
    """The public seed of a study of these parties."""
    ordered = (openings[party] for party in sorted(openings))
    labels = [label for commitment in ordered for label in (commitment.nonce, f"{commitment.weight!r}", commitment.exchange)]
    return Seed.public("schedule", study, *labels)


def seed_check(seed: Seed) -> bytes:
    """What messages say of the public seed that their sender has, so that who got other nonces notices it."""
    return seed.derive("agreement check").secret[:8]
