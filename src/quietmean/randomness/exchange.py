"""Seeds that two parties share: X25519 key agreement, ML-KEM-768 where it is hybrid, and HKDF-SHA256."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quietmean.randomness.seed import SEED_BYTES, Seed


@dataclass(frozen=True, slots=True)
class Encapsulated:
    """What one of two parties encapsulated to the other's ML-KEM-768 key: the secret, which both have, and what was sent."""

    secret: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)


class ExchangeKey:
    """One party's key pair for one study. The private half is derived from a secret seed, so that a restart has it again.

    ``private``: a random private half that is kept as it is, in place of a derived one.
    """

    def __init__(self, seed: Seed | None = None, *, private: X25519PrivateKey | None = None) -> None:
        if (seed is None) == (private is None):
            raise ValueError("give a seed or a private key")
        if seed is not None:
            private = X25519PrivateKey.from_private_bytes(seed.derive("exchange key").secret)
        assert private is not None  # noqa: S101
        self._private = private
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def shared_seed(self, other: bytes, context: str, encapsulated: Encapsulated | None = None) -> Seed:
        """The seed that this party and the owner of the public key ``other`` share, for one ``context``.

        With what one of the two ``encapsulated`` it is secret as long as X25519 or ML-KEM-768 is. Raises ValueError for bytes
        that are no public key, and for a point of small order, with which nothing would be secret.
        """
        agreed = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        # Both keys are part of the derivation, in an order that both ends agree on.
        first, second = sorted((self.public, other))
        if encapsulated is None:
            information, secret = b"quietmean pair\0" + first + second + context.encode(), agreed
        else:
            # All but the context has one length, so no two inputs have one encoding.
            information = b"quietmean hybrid pair\0" + first + second + encapsulated.ciphertext + context.encode()
            secret = agreed + encapsulated.secret
        return Seed(HKDF(SHA256(), SEED_BYTES, salt=None, info=information).derive(secret))
