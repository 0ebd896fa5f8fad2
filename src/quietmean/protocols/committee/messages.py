"""What members send each other from the first proposal on. Received bytes are not trusted: anything but the exact form raises.

Rounds 1 and 2 carry the excerpt of a noise dealing and a list; all later ones a :class:`SignedStatement` in MessagePack.
"""

from __future__ import annotations

import hashlib

import msgspec

from quietmean.core.codec import decode
from quietmean.protocols.committee.choice import OpeningChoice
from quietmean.protocols.committee.keys import Kind, Signer
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.publishing import ContentError

# More of anything in one message is not an honest member's.
_MOST = 256


class ChoiceProposal(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A choice in a ballot, signed by its leader."""

    ballot: int
    choice: OpeningChoice
    signature: bytes


class Echo(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """That ``member`` has the choice with this ``digest`` from the ballot's leader, and finds it valid.

    With ``lock``: that it knows of q such echoes, and goes back to no other choice.
    """

    member: int
    ballot: int
    digest: bytes
    lock: bool
    signature: bytes


class ChoiceVote(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The vote of ``member`` for a choice, with q locks on it in one ballot."""

    member: int
    choice: OpeningChoice
    signature: bytes
    locks: tuple[Echo, ...]


class MemberSum(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The sum of ``member`` over a choice with q votes, as bytes: 4 for each number, little-endian."""

    member: int
    digest: bytes
    share: bytes
    signature: bytes


class SignedStatement(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """All that a member has to send in one round: what it proposes and what it echoes; its echoes and locks; its vote.

    Among ``echoes`` are those of others that its last lock, or its proposal, stands on.

    ``wants``: digests of lists that it lacks; ``lists``: those that the receiver lacks. ``sum``: its own. ``result``: the result,
    of a member that has it.
    """

    proposals: tuple[ChoiceProposal, ...] = ()
    echoes: tuple[Echo, ...] = ()
    vote: ChoiceVote | None = None
    wants: tuple[bytes, ...] = ()
    lists: tuple[bytes, ...] = ()
    sum: MemberSum | None = None
    result: bytes = b""


def write_statement(statement: SignedStatement) -> bytes:
    """The bytes of a statement."""
    return msgspec.msgpack.encode(statement)


def read_statement(raw: bytes) -> SignedStatement:
    """The inverse of :func:`write_statement`. Nothing signed is checked yet. Raises :class:`ContentError`."""
    statement = decode(raw, SignedStatement, lambda reason: ContentError("no statement of a member"))
    if max(len(statement.proposals), len(statement.echoes), len(statement.wants), len(statement.lists)) > _MOST:
        raise ContentError("a statement with more than a member can have to tell")
    return statement


# --- signatures -----------------------------------------------------------------------------------------------------------------


def propose(session: CommitteeSession, signer: Signer, ballot: int, choice: OpeningChoice) -> ChoiceProposal:
    """Sign a leader's proposal."""
    return ChoiceProposal(ballot, choice, signer.sign(Kind.PROPOSAL, _signed(session, ballot, choice.digest(session.session))))


def is_proposed(session: CommitteeSession, proposal: ChoiceProposal) -> bool:
    """Whether the leader of its ballot signed it."""
    if not 1 <= proposal.ballot <= session.parameters.ballots:
        return False
    content = _signed(session, proposal.ballot, proposal.choice.digest(session.session))
    leader = session.members[session.leader(proposal.ballot)]
    return session.keys.is_signed(leader, Kind.PROPOSAL, content, proposal.signature)


def echo(session: CommitteeSession, signer: Signer, member: int, proposed: tuple[int, bytes], *, lock: bool = False) -> Echo:
    """A member's echo, or lock, of the choice with a digest in a ballot."""
    ballot, digest = proposed
    kind = Kind.LOCK if lock else Kind.ECHO
    return Echo(member, ballot, digest, lock, signer.sign(kind, _signed(session, ballot, digest)))


def is_echoed(session: CommitteeSession, echo: Echo) -> bool:
    """Whether its member signed it."""
    if not (1 <= echo.ballot <= session.parameters.ballots and 0 <= echo.member < len(session.members)):
        return False
    kind = Kind.LOCK if echo.lock else Kind.ECHO
    return session.keys.is_signed(session.members[echo.member], kind, _signed(session, echo.ballot, echo.digest), echo.signature)


def vote(session: CommitteeSession, signer: Signer, member: int, choice: OpeningChoice, locks: tuple[Echo, ...]) -> ChoiceVote:
    """Sign a member's vote."""
    return ChoiceVote(member, choice, signer.sign(Kind.VOTE, _signed(session, choice.digest(session.session))), locks)


def is_voted(session: CommitteeSession, vote: ChoiceVote) -> bool:
    """Whether its member signed it. Its locks are checked as all others are."""
    if not 0 <= vote.member < len(session.members):
        return False
    content = _signed(session, vote.choice.digest(session.session))
    return session.keys.is_signed(session.members[vote.member], Kind.VOTE, content, vote.signature)


def sign_sum(session: CommitteeSession, signer: Signer, member: int, digest: bytes, share: bytes) -> MemberSum:
    """Sign a member's sum."""
    return MemberSum(member, digest, share, signer.sign(Kind.SUM, _signed(session, digest, hashlib.sha256(share).digest())))


def is_summed(session: CommitteeSession, sent: MemberSum) -> bool:
    """Whether its member signed it, and it has the right size."""
    if not 0 <= sent.member < len(session.members) or len(sent.share) != 4 * session.parameters.blocks:
        return False
    content = _signed(session, sent.digest, hashlib.sha256(sent.share).digest())
    return session.keys.is_signed(session.members[sent.member], Kind.SUM, content, sent.signature)


def _signed(session: CommitteeSession, *fields: int | bytes) -> bytes:
    """What is signed is bound to the session; the kind of signature says what it is."""
    return msgspec.msgpack.encode([session.session, *fields])
