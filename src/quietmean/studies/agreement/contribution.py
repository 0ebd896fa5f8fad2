"""A contribution: the one message of a party to a study by file, signed. What is in it is public, and hidden by its noise."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

import msgspec

from quietmean.core.codec import convert
from quietmean.core.errors import InputError, PeerError
from quietmean.core.party import PartyId, Release
from quietmean.node.committee import PublicKeys
from quietmean.node.net import Identity, Purpose, VectorCodec, show_hidden
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.keys import DIGEST_BYTES
from quietmean.protocols.committee.lists import DropChain
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.deadlines import in_words
from quietmean.studies.agreement.program import program_digest, require_program
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, read_signed, signed_in
from quietmean.studies.agreement.voucher import vouching_of

# How the page of a result ends, and the folder in that of a drop from which it hands out what members published.
RESULT_PAGE, PUBLISHED = ".page.html", "published"
# Of a contribution's file, besides its vector.
_MOST_BESIDES = 4096


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signed content of a contribution.

    ``session``: digest of the sealed study; ``plan``: of the plan; ``vector``: its bytes in base64.
    """

    identity: str
    party: str
    plan: str
    session: str
    vector: str
    weight: float


class AnotherStudyError(InputError):
    """A contribution to another session or plan: the one who gives it does not know what is added up."""


@dataclass(frozen=True)
class Contribution:
    """A signed contribution that was verified: what ``party`` (its place in the sealed study) releases."""

    signed: Signed
    party: PartyId
    release: Release

    @property
    def digest(self) -> str:
        """SHA-256, hexadecimal: what a result lists."""
        return self.signed.digest

    @classmethod
    def sign(cls, sealed: Sealed, plan: Plan, identity: Identity, release: Release) -> Signed:
        """The document with a party's release."""
        name = next(entry.name for entry in sealed.entries if entry.identity == identity.public_key)
        vector = VectorCodec(plan.target.dimension, plan.grid).encode(release.vector)
        body = _Body(
            identity.public_key, name, plan.digest, sealed.digest, base64.b64encode(vector).decode(), float(release.weight)
        )
        return Signed.sign(Purpose.CONTRIBUTION, msgspec.to_builtins(body), identity)

    @classmethod
    def load(cls, path: Path, sealed: Sealed, plan: Plan) -> Contribution:
        """Read a contribution from a file.

        Raises :class:`InputError` as :meth:`verified` does, and for a file that is none or not whole.
        """
        # As large as float64 in base64, twice over for the escapes of JSON.
        return cls.verified(read_signed(Purpose.CONTRIBUTION, path, _MOST_BESIDES + 24 * plan.target.dimension), sealed, plan)

    @classmethod
    def verified(cls, signed: Signed, sealed: Sealed, plan: Plan) -> Contribution:
        """Verify a contribution. Raises :class:`AnotherStudyError` for one that its party signed for another session or plan.

        Raises :class:`InputError` for one that is not as its party signed it, not by a party, or impossible in this study.
        """
        body = signed.decode(_Body)
        name = show_hidden(body.party)
        if not signed.is_by(body.identity):
            raise InputError(f"it does not match the signature of {name}: it was changed on the way. Ask for it again.")
        if body.session != sealed.digest:
            raise AnotherStudyError(
                f"it is by {name} for the study sealed as {show_hidden(body.session[:32])}, this one is {sealed.digest[:32]}"
            )
        places = {(entry.identity, entry.name): index for index, entry in enumerate(sealed.entries)}
        party = places.get((body.identity, body.party))
        if party is None:
            raise InputError(f"{name} with the key {body.identity} is not a party of this study. Leave it out.")
        if body.plan != plan.digest:
            raise AnotherStudyError(
                f"{name} made it for the plan {show_hidden(body.plan[:32])}, here it is {plan.digest[:32]}. Use the same version "
                "of quietmean."
            )
        return cls(signed, party, _release(body, plan, name))


def _release(body: _Body, plan: Plan, name: str) -> Release:
    dimension = plan.target.dimension
    try:
        raw = base64.b64decode(body.vector, validate=True)
        vector = VectorCodec(dimension, plan.grid).decode(raw)
    except (binascii.Error, ValueError, PeerError):
        vector = None
    if vector is None or vector.shape != (dimension,):
        raise InputError(f"the vector of {name} is not of this study. Ask for it again.")
    if not (math.isfinite(body.weight) and body.weight >= 0):
        raise InputError(f"the weight of {name} is {body.weight:g}, a weight is a number of at least 0. Ask for it again.")
    return Release(vector, body.weight)


_Time = Annotated[datetime, msgspec.Meta(tz=True)]


_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class DropPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a drop has a contribution: its header digest, its ``position`` from 1, and the ``head`` of the chain up to it.

    Both digests are hexadecimal; see :class:`~quietmean.protocols.committee.lists.DropChain`.
    """

    digest: _Digest
    position: Annotated[int, msgspec.Meta(ge=1)]
    head: _Digest


class _ReceiptBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    contributor: str
    drop: str
    place: DropPlace
    session: str
    time: str


@dataclass(frozen=True)
class DropReceipt:
    """The signed receipt of a server that took a contribution.

    ``contributor`` and ``drop``: identity keys; ``place``: of the contribution; ``session``: of the sealed study, hexadecimal.
    ``time``: when the first contribution of this contributor came, by the drop's clock."""

    signed: Signed
    contributor: str
    drop: str
    place: DropPlace
    session: str
    time: datetime

    @property
    def digest(self) -> str:
        """The digest of the contribution's header, hexadecimal."""
        return self.place.digest

    @classmethod
    def sign(cls, drop: Identity, session: str, contributor: str, place: DropPlace, time: float) -> Self:
        """Sign a receipt, the same for the same contribution and time, in seconds since 1970."""
        body = _ReceiptBody(contributor, drop.public_key, place, session, datetime.fromtimestamp(time, UTC).isoformat())
        return cls.verified(Signed.sign(Purpose.COMMITTEE_RECEIPT, msgspec.to_builtins(body), drop))

    @classmethod
    def of_file(cls, content: bytes) -> Self:
        """From what a file or an answer holds. Raises :class:`InputError`."""
        return cls.verified(signed_in(Purpose.COMMITTEE_RECEIPT, content))

    @classmethod
    def verified(cls, signed: Signed) -> Self:
        """Verify the receipt. Raises :class:`InputError` unless the drop that it names signed it."""
        body = signed.decode(_ReceiptBody)
        if not signed.is_by(body.drop):
            raise InputError(
                f"the receipt does not match the signature of the drop {body.drop}, so it was changed on the way. Ask "
                "for it again."
            )
        wrong = InputError("the receipt has no time with its offset from UTC, so it was changed on the way. Ask for it again.")
        time = convert(body.time, _Time, lambda reason: wrong)
        try:
            in_words(time)
        except OverflowError:
            raise wrong from None
        return cls(signed, body.contributor, body.drop, body.place, body.session, time)

    @property
    def came(self) -> str:
        """When the contribution came, in words."""
        return in_words(self.time)


class _LogBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digests: bytes
    head: str
    left_out: tuple[tuple[str, str], ...]
    member: str
    page: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
    session: str


@dataclass(frozen=True)
class DropLog:
    """What a ``member`` read of a drop, signed: header digests in the drop's order, and the head of their chain.

    ``chains``: of the first contribution, of two, and so on. ``left_out``: why each contributor's does not count, by its key.
    ``page``: SHA-256 of the page with the result that this member opened, hexadecimal; "" where it shows none.
    """

    signed: Signed
    member: str
    digests: tuple[str, ...]
    chains: tuple[DropChain, ...]
    left_out: Mapping[str, str]
    page: str

    @classmethod
    def sign(
        cls, member: Identity, session: CommitteeSession, digests: bytes, left_out: Mapping[str, str], page: bytes = b""
    ) -> Signed:
        """Sign what was read: header ``digests`` one behind the other; and the ``page`` of the result, if there is one."""
        head, of_page = DropChain.of(session, _split(digests)).head.hex(), hashlib.sha256(page).hexdigest() if page else ""
        body = _LogBody(digests, head, tuple(sorted(left_out.items())), member.public_key, of_page, session.session.hex())
        return Signed.sign(Purpose.COMMITTEE_LOG, msgspec.to_builtins(body), member)

    @classmethod
    def verified(cls, signed: Signed, session: CommitteeSession) -> Self:
        """Verify the log. Raises :class:`InputError` unless a member of the study signed it, for this study."""
        body = signed.decode(_LogBody)
        if body.session != session.session.hex() or body.member not in session.members or not signed.is_by(body.member):
            raise InputError("no member of this study signed it for this study. Ask the member for it again.")
        chains, chain, digests = [], DropChain.of(session), _split(body.digests)
        for digest in digests:
            chain = chain.after(digest)
            chains.append(chain)
        if len(body.digests) % DIGEST_BYTES or chain.head.hex() != body.head:
            raise InputError("its digests do not give its head. Ask the member for it again.")
        return cls(signed, body.member, tuple(digest.hex() for digest in digests), tuple(chains), dict(body.left_out), body.page)

    def agrees_with(self, other: DropLog) -> bool:
        """Whether one of two logs goes on where the other one ends."""
        both = min(len(self.chains), len(other.chains))
        return both == 0 or self.chains[both - 1] == other.chains[both - 1]

    def has(self, place: DropPlace) -> bool:
        """Whether the log has a contribution where a receipt says that it is."""
        if place.position > len(self.chains):
            return False
        chain = self.chains[place.position - 1]
        return (self.digests[place.position - 1], chain.head.hex()) == (place.digest, place.head)


def _split(digests: bytes) -> list[bytes]:
    return [digests[begin : begin + DIGEST_BYTES] for begin in range(0, len(digests), DIGEST_BYTES)]


def sharing_of(plan: Plan) -> CommitteeSharing:
    """What the plan of a study with a committee has. Raises :class:`InputError` for another one."""
    if not isinstance(plan.protocol, CommitteeSharing):
        raise InputError(
            f"the plan is for {plan.protocol.name}, but the study has a committee. Make one with quietmean plan --study."
        )
    return plan.protocol


def with_own_program(sealed: Sealed, plan: Plan, convener: Identity) -> Sealed:
    """Return the seal with the encoding program of its plan, as the convener signs it; as it is where it has none."""
    program = program_digest(sealed.study.workload, plan) if has_committee(sealed.terms) else ""
    return sealed.with_program(program, convener) if program else sealed


def session_of(sealed: Sealed, plan: Plan) -> CommitteeSession:
    """All that is public about the session of a sealed study, by the plan for all who may contribute.

    Raises :class:`InputError` where the study states another encoding program than its plan has.
    """
    sharing = sharing_of(plan)
    require_program(sealed.program, program_digest(sealed.study.workload, plan))
    return CommitteeSession(
        bytes.fromhex(sealed.digest),
        sharing.parameters(plan.target.parties),
        tuple(entry.identity for entry in sealed.computing),
        tuple(base64.b64decode(entry.mailbox) for entry in sealed.computing),
        {entry.identity: sharing.largest_weight for entry in sealed.entries},
        PublicKeys(),
        plan.input_domain.statement if sharing.verified else None,
        vouching_of(sealed.invitation),
    )
