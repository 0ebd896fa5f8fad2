"""32-byte seeds and their labelled derivation."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Seed:
    """32 bytes from which streams are derived. Its repr never shows them."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(self.secret)}")

    @classmethod
    def from_os(cls) -> Seed:
        """Fresh from the operating system's generator."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def public(cls, *labels: str | int | bytes) -> Seed:
        """The seed that anybody derives from public labels: for schedules, never for noise that protects a value."""
        return cls(bytes(SEED_BYTES)).derive("public", *labels)

    def derive(self, *labels: str | int | bytes) -> Seed:
        """HMAC-SHA256 of the length-prefixed labels under this seed: independent for different label tuples."""
        return Seed(hmac.digest(self.secret, _encode_labels(labels), hashlib.sha256))


def _encode_labels(labels: tuple[str | int | bytes, ...]) -> bytes:
    # The type is part of the encoding and every label has its length in front: no two tuples collide.
    parts = []
    for label in labels:
        kind, raw = _encode_label(label)
        parts.append(kind + len(raw).to_bytes(8, "big") + raw)
    return b"".join(parts)


def _encode_label(label: str | int | bytes) -> tuple[bytes, bytes]:
    if isinstance(label, str):
        return b"s", label.encode()
    if isinstance(label, int):
        return b"i", str(label).encode()
    return b"b", label


def fresh_bytes(count: int) -> bytes:
    """From the operating system's generator: nonces and names, which are no seeds."""
    return secrets.token_bytes(count)
