"""Contributions to a committee that their contributor's software did not make as it should, by what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np

from quietmean.core.party import Units
from quietmean.node.committee import IdentitySigner, MailboxSealer
from quietmean.node.net import Identity
from quietmean.protocols.committee import contribution
from quietmean.protocols.committee.contribution import make_contribution, read_header
from quietmean.protocols.committee.keys import Kind, Signer
from quietmean.protocols.committee.layout import Layout
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.randomness import Seed


class ChangedShares(MailboxSealer):
    """Gives so many of the members another share than the one that was dealt, a random one.

    All shares with one bit changed may be those of another possible value.
    """

    def __init__(self, members: int) -> None:
        self.left = members

    def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
        if self.left:
            self.left -= 1
            content = Seed.from_os().secret[:3] + b"\0" + content[4:]
        return super().seal(mailbox, info, content)


def with_ciphertexts_of(session: CommitteeSession, theirs: bytes, own: bytes, signer: Signer) -> bytes:
    """The file ``own`` with the ciphertexts of the file ``theirs``, which another contributor sealed, signed by ``signer``."""
    header = read_header(session, theirs)
    body = own[12 : read_header(session, own).size - 64]
    digests = b"".join(header.ciphertexts)
    forged = body[: -len(digests)] + digests
    return own[:12] + forged + signer.sign(Kind.CONTRIBUTION, forged) + theirs[header.size :]


@dataclass(frozen=True)
class Liar:
    """A contributor of this session, admitted, with its key; ``other``: an honest file of another contributor."""

    session: CommitteeSession
    identity: Identity
    other: bytes

    def _made(self, sealer: MailboxSealer | None = None, session: CommitteeSession | None = None, weight: float = 1.0) -> bytes:
        session = session or self.session
        numbers = np.zeros(session.parameters.dimension, dtype=np.int64)
        return make_contribution(
            session, IdentitySigner(self.identity), sealer or MailboxSealer(), numbers, weight, Seed.from_os()
        )

    def garbage(self) -> bytes:
        return Seed.from_os().secret * 40

    def truncated(self) -> bytes:
        return self._made()[:-1]

    def one_share_changed(self) -> bytes:
        return self._made(ChangedShares(1))

    def all_shares_changed(self) -> bytes:
        return self._made(ChangedShares(self.session.parameters.members))

    def another_session(self) -> bytes:
        return self._made(session=replace(self.session, session=bytes(32)))

    def too_heavy(self) -> bytes:
        with mock.patch.object(contribution, "_check_admission"):
            return self._made(weight=2.0 * self.session.parameters.largest_weight)

    def unsigned(self) -> bytes:
        content = self._made()
        size = read_header(self.session, content).size
        return content[: size - 64] + bytes(64) + content[size:]

    def copied_ciphertexts(self) -> bytes:
        return with_ciphertexts_of(self.session, self.other, self._made(), IdentitySigner(self.identity))

    def no_bit(self) -> bytes:
        """Half a bit: the number whose double is 1 modulo p."""
        return self._with_first_bit(lambda layout: (self.session.parameters.prime + 1) // 2)

    def too_large(self) -> bytes:
        """A first number of 1000 times its range."""
        return self._with_first_bit(lambda layout: 1000 * int(layout.spans[0]))

    def _with_first_bit(self, chosen: Callable[[Layout], int]) -> bytes:
        honest = Layout.bits_of

        def bits_of(layout: Layout, numbers: Units) -> Units:
            bits = honest(layout, numbers)
            bits[0] = chosen(layout)
            return bits

        with mock.patch.object(Layout, "bits_of", bits_of):
            return self._made()


# What any committee finds, and what one finds that has contributions verified.
ALWAYS = (
    Liar.garbage,
    Liar.truncated,
    Liar.one_share_changed,
    Liar.all_shares_changed,
    Liar.another_session,
    Liar.too_heavy,
    Liar.unsigned,
    Liar.copied_ciphertexts,
)
VERIFIED = (*ALWAYS, Liar.no_bit, Liar.too_large)
