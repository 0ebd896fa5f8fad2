"""A committee and its contributors with real keys, in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from quietmean.core.statement import StatedValue
from quietmean.node.committee import IdentitySigner, MailboxOpener, MailboxSealer, PublicKeys
from quietmean.node.mailbox import Mailbox, mailbox_bytes
from quietmean.node.net import Identity
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import make_contribution
from quietmean.protocols.committee.design import design, encode
from quietmean.protocols.committee.keys import AdmissionByVoucher, Kind, Vouching, voucher_content
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.randomness import Seed
from quietmean.randomness.layered_gaussian import layered_gaussian

SEALER = MailboxSealer()


@lru_cache(256)
def identity(name: str) -> Identity:
    """The same for the same name in one process."""
    return Identity.generate()


@lru_cache(64)
def mailbox(member: int) -> Mailbox:
    return MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()


@dataclass(eq=False)
class CommitteeWorld:
    """``contributors`` with values of ``dimension`` coordinates in [0, 1] and weight 1; behind them those with ``vouchers``."""

    committee: Committee
    contributors: int = 3
    dimension: int = 4
    session_digest: bytes = b"s" * 32
    changes: dict[str, Any] = field(default_factory=dict)
    statement: StatedValue | None = None
    vouchers: int = 0

    def __post_init__(self) -> None:
        target = Target(self.contributors + self.vouchers, 1.0, 1e-6, self.dimension, float(np.sqrt(self.dimension)))
        designed = design(target, self.committee).to_json() | self.changes
        self.parameters = CommitteeParameters.from_json(designed)
        members = range(self.committee.members)
        weight = self.parameters.largest_weight
        self.session = CommitteeSession(
            self.session_digest,
            self.parameters,
            tuple(identity(f"member {member}").public_key for member in members),
            tuple(mailbox_bytes(mailbox(member)) for member in members),
            {identity(f"contributor {number}").public_key: weight for number in range(self.contributors)},
            PublicKeys(),
            self.statement,
            Vouching(identity("registrar").public_key, "ab" * 32, self.vouchers) if self.vouchers else None,
        )

    def signer(self, member: int) -> IdentitySigner:
        return IdentitySigner(identity(f"member {member}"))

    def opener(self, member: int) -> MailboxOpener:
        return MailboxOpener(mailbox(member))

    def contributor(self, number: int) -> IdentitySigner:
        return IdentitySigner(identity(f"contributor {number}"))

    def value(self, number: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.linspace(0.0, 1.0, self.dimension) * (1 + number % 3) / 3

    def contribution(self, number: int, weight: float = 1.0) -> bytes:
        """The file of a contributor."""
        seed = Seed.public("contribution", number)
        numbers = encode(self.parameters, weight * self.value(number), weight, seed)
        admission = self.admission(number) if number >= self.contributors else None
        return make_contribution(self.session, self.contributor(number), SEALER, numbers, weight, seed, admission)

    def admission(self, number: int, weight: float | None = None) -> AdmissionByVoucher:
        """Of a voucher for a contributor, as the registrar certifies it, of whatever number there are."""
        content = voucher_content("ab" * 32, self.contributor(number).public_key, weight)
        return AdmissionByVoucher(weight, IdentitySigner(identity("registrar")).sign(Kind.VOUCHER, content))


class OwnNoise:
    """The noise of one member, of a store that is new."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> NDArray[np.int64]:
        return layered_gaussian(self._seed.derive(purpose, index), scale, dimension)

    def secret(self, purpose: str, index: int) -> bytes:
        return self._seed.derive("secret", purpose, index).secret

    def normal(self, purpose: str, index: int, dimension: int) -> NDArray[np.float64]:
        raise NotImplementedError

    def shared_normal(self, other: int, purpose: str, index: int, dimension: int) -> NDArray[np.float64]:
        raise NotImplementedError

    def shared_discrete(self, other: int, purpose: str, index: int, scale: float, dimension: int) -> NDArray[np.int64]:
        raise NotImplementedError
