"""Proposals, echoes, locks and the one vote of a member: pure, on the digests of choices. Signatures are checked before.

A leader proposes a choice in its ballot: the one that was certified in the highest ballot, if it knows any. A choice is certified
in a ballot by q echoes. A member echoes the first valid proposal of a ballot, once, unless it is locked on another choice and the
proposed one was not certified since. It locks on what is certified, in time for the next leader to hear of it, if it has echoed
nothing else in a later ballot. With q locks on a choice in one ballot it votes for it, once in its life.

Let q members lock on A in ballot b. Then no C other than A is ever certified in a later ballot. Of the first such certificate in
time, an honest member locked on A in b and echoed C. If it had echoed before, it could not lock; if it had locked before, it was
locked on A still, and C was certified before, against that this is the first. Two choices certified in one ballot would need more
than c_m members that echo twice. So all honest votes are for one choice, and nobody can split them; besides, 2q > m + c_m and one
vote a life keep a second sum from being opened.

What members send each other from the first proposal on. Received bytes are not trusted: anything but the exact form raises.

Rounds 1 and 2 carry the excerpt of a noise dealing and a list; all later ones a :class:`SignedStatement` in MessagePack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from quietmean.core.codec import StableBytes, decode
from quietmean.protocols.committee.choice import OpeningChoice
from quietmean.protocols.committee.keys import Kind, Signer
from quietmean.protocols.committee.parameters import BALLOT_ROUNDS, CommitteeParameters, rounds_for
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.ballots import PartyMask, members_of
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
    statement = decode(raw, SignedStatement, lambda reason: ContentError("it sent something else than a member's statement"))
    if max(len(statement.proposals), len(statement.echoes), len(statement.wants), len(statement.lists)) > _MOST:
        raise ContentError("it sent a statement longer than a member can have to tell")
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


# Rounds: noise, lists, the first proposal. In a usual run its echoes, locks, votes and sums follow.
NOISE, LISTS, FIRST_PROPOSAL, FIRST_ECHOES = 1, 2, 3, 4
# Echoes of a ballot are made up to so many rounds after its proposal, as lists may have to be fetched; locks one round more.
_ECHOED_WITHIN, _LOCKED_WITHIN = 2, 3

# A ballot and the digest of a choice that is proposed in it.
Proposed = tuple[int, bytes]
# True, False, or None where that is not known yet.
Validity = Callable[[bytes], bool | None]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class VotingRules:
    """``members`` (m) of whom ``colluding`` (c_m) lie at most; ``votes_needed`` (q), ``ballots`` (B), ``leaders`` in order.

    ``ballot_rounds``: so many rounds lie between two proposals.
    """

    members: int
    colluding: int
    votes_needed: int
    ballots: int
    leaders: tuple[int, ...]
    ballot_rounds: int = BALLOT_ROUNDS

    @classmethod
    def of(cls, parameters: CommitteeParameters, leaders: tuple[int, ...]) -> VotingRules:
        """The rules of a committee."""
        return cls(parameters.members, parameters.colluding, parameters.votes_needed, parameters.ballots, leaders)

    @property
    def rounds(self) -> int:
        return rounds_for(self.ballots, self.ballot_rounds)

    @property
    def last_voting_round(self) -> int:
        """The last round at whose end a vote is cast: it is sent in the next, and what it decides is opened in the one after."""
        return self.rounds - 2

    def proposed_in(self, ballot: int) -> int:
        """The round in which a ballot is proposed."""
        return FIRST_PROPOSAL + self.ballot_rounds * (ballot - 1)

    def ballot(self, round_: int) -> int:
        """The ballot that is proposed in a round; 0 if there is none."""
        ballot, rest = divmod(round_ - FIRST_PROPOSAL, self.ballot_rounds)
        return ballot + 1 if not rest and 0 <= ballot < self.ballots else 0

    def leader(self, ballot: int) -> int:
        return self.leaders[(ballot - 1) % len(self.leaders)]

    def leads(self, member: int, round_: int) -> int:
        """The ballot that a member leads in a round; 0 if it leads none."""
        ballot = self.ballot(round_)
        return ballot if ballot and self.leader(ballot) == member else 0


@dataclass(frozen=True, slots=True)
class VotingState:
    """``proposals`` known, in the order in which they came; ``echoed`` and ``locked``: what the member itself signed.

    ``echoes``, ``locks`` and ``votes``: who is known to. ``vote``: the own one, empty until it is cast, which never changes.
    ``proposal``: what it proposes in the round in progress. ``decided``: the choice with q votes, empty until it is known.
    """

    round: int = LISTS
    proposals: tuple[Proposed, ...] = ()
    echoed: tuple[Proposed, ...] = ()
    locked: tuple[Proposed, ...] = ()
    echoes: tuple[tuple[Proposed, bytes], ...] = ()
    locks: tuple[tuple[Proposed, bytes], ...] = ()
    votes: tuple[tuple[bytes, bytes], ...] = ()
    vote: bytes = b""
    proposal: Proposed | None = None
    decided: bytes = b""


@dataclass(frozen=True, slots=True)
class HeardVotes:
    """What arrived in a round, all signed: ``proposals`` of leaders, ``echoes`` and ``locks`` by proposal, ``votes`` by choice.

    A vote only counts together with q locks on its choice, which are of ``locks``.
    """

    proposals: tuple[Proposed, ...] = ()
    echoes: Mapping[Proposed, PartyMask] = field(default_factory=dict)
    locks: Mapping[Proposed, PartyMask] = field(default_factory=dict)
    votes: Mapping[bytes, PartyMask] = field(default_factory=dict)


class Voter:
    """The votes of member number ``member``."""

    def __init__(self, rules: VotingRules, member: int) -> None:
        self._rules = rules
        self._member = member

    def end_round(
        self, state: VotingState, heard: HeardVotes, valid: Validity, propose: Callable[[], bytes | None]
    ) -> VotingState:
        """The end of a round from the lists on. ``propose``: a choice of this member, if it has to lead; None if it has none."""
        following = state.round + 1
        if state.decided:
            return replace(state, round=following, proposal=None)
        own = () if state.proposal is None else (state.proposal,)
        proposals = _with_proposals(state.proposals, [*own, *heard.proposals])
        echoes, locks = _merged(state.echoes, heard.echoes), _merged(state.locks, heard.locks)
        echoed = self._echoed(state, proposals, echoes, valid)
        self._add_own(echoes, echoed)
        locked = self._locked(state, echoed, echoes, valid)
        self._add_own(locks, locked)
        votes = self._with_votes(dict(_unpacked(state.votes)), heard.votes, locks)
        vote = state.vote
        if not vote and state.round <= self._rules.last_voting_round:
            vote = self._vote(locks, valid)
            if vote:
                votes[vote] = votes.get(vote, 0) | 1 << self._member
        decided = next((digest for digest, voters in votes.items() if voters.bit_count() >= self._rules.votes_needed), b"")
        return VotingState(
            round=following,
            proposals=proposals,
            echoed=echoed,
            locked=locked,
            echoes=_packed(echoes),
            locks=_packed(locks),
            votes=_packed(votes),
            vote=vote,
            proposal=None if decided else self._proposal(following, echoes, valid, propose),
            decided=decided,
        )

    def miss_round(self, state: VotingState) -> VotingState:
        """The state after a round that the member missed: it proposes, learns and votes nothing."""
        return replace(state, round=state.round + 1, proposal=None)

    def _add_own(self, masks: dict[Proposed, PartyMask], signed: Iterable[Proposed]) -> None:
        for proposed in signed:
            masks[proposed] = masks.get(proposed, 0) | 1 << self._member

    def _echoed(
        self, state: VotingState, proposals: tuple[Proposed, ...], echoes: Mapping[Proposed, PartyMask], valid: Validity
    ) -> tuple[Proposed, ...]:
        """One a ballot: the first valid proposal that no lock is against. What is not valid yet may be so in a later round."""
        echoed = state.echoed
        for ballot, digest in proposals:
            in_time = state.round <= self._rules.proposed_in(ballot) + _ECHOED_WITHIN
            free = all(ballot != other for other, _ in echoed) and self._may_echo(state, ballot, digest, echoes)
            if in_time and free and valid(digest):
                echoed = (*echoed, (ballot, digest))
        return echoed

    def _may_echo(self, state: VotingState, ballot: int, digest: bytes, echoes: Mapping[Proposed, PartyMask]) -> bool:
        """May it echo a proposal? Not against a lock, unless the choice was certified between that lock's ballot and this one."""
        lock, locked = max(state.locked, default=(0, b""))
        if not lock or locked == digest:
            return True
        return any(lock < other < ballot and certified == digest for other, certified in self._certified(echoes))

    def _locked(
        self, state: VotingState, echoed: tuple[Proposed, ...], echoes: Mapping[Proposed, PartyMask], valid: Validity
    ) -> tuple[Proposed, ...]:
        """On what is certified, as long as the next leader hears of it in time; never below another echo or lock."""
        locked = state.locked
        for ballot, digest in sorted(self._certified(echoes)):
            in_time = state.round <= self._rules.proposed_in(ballot) + _LOCKED_WITHIN
            lower = any(other > ballot and name != digest for other, name in (*echoed, *locked))
            if in_time and not lower and (ballot, digest) not in locked and valid(digest):
                locked = (*locked, (ballot, digest))
        return locked

    def _certified(self, masks: Mapping[Proposed, PartyMask]) -> list[Proposed]:
        return [proposed for proposed, members in masks.items() if members.bit_count() >= self._rules.votes_needed]

    def _with_votes(
        self, votes: dict[bytes, PartyMask], heard: Mapping[bytes, PartyMask], locks: Mapping[Proposed, PartyMask]
    ) -> dict[bytes, PartyMask]:
        """The first vote of each voter counts, and only one for a choice with q locks."""
        voted = 0
        for voters in votes.values():
            voted |= voters
        votable = {digest for _, digest in self._certified(locks)}
        for digest, voters in heard.items():
            if voters & ~voted and digest in votable:
                votes[digest] = votes.get(digest, 0) | voters & ~voted
                voted |= voters
        return votes

    def _vote(self, locks: Mapping[Proposed, PartyMask], valid: Validity) -> bytes:
        """For what q members are locked on in one ballot: never two choices."""
        return next((digest for _, digest in sorted(self._certified(locks), reverse=True) if valid(digest)), b"")

    def _proposal(
        self, round_: int, echoes: Mapping[Proposed, PartyMask], valid: Validity, propose: Callable[[], bytes | None]
    ) -> Proposed | None:
        """What it proposes in the coming round, if it leads a ballot there: what is certified highest, else its own choice."""
        ballot = self._rules.leads(self._member, round_)
        if not ballot:
            return None
        certified = max((proposed for proposed in self._certified(echoes) if valid(proposed[1])), default=None)
        digest = propose() if certified is None else certified[1]
        return None if digest is None else (ballot, digest)


def certificate(rules: VotingRules, votes: Iterable[tuple[Proposed, bytes]], digest: bytes) -> tuple[int, tuple[int, ...]] | None:
    """The highest ballot in which a choice has q echoes, or q locks, that are known, and q of the members whose these are."""
    best = max(
        (
            (ballot, members)
            for (ballot, name), members in _unpacked(votes)
            if name == digest and members.bit_count() >= rules.votes_needed
        ),
        default=None,
    )
    return None if best is None else (best[0], members_of(best[1])[: rules.votes_needed])


def _with_proposals(known: tuple[Proposed, ...], new: Iterable[Proposed]) -> tuple[Proposed, ...]:
    """Return two of each ballot at most: of a leader that lies, more would change nothing."""
    merged = list(known)
    for proposed in new:
        if proposed not in merged and sum(ballot == proposed[0] for ballot, _ in merged) < 2:
            merged.append(proposed)
    return tuple(merged)


def _merged(known: tuple[tuple[Proposed, bytes], ...], new: Mapping[Proposed, PartyMask]) -> dict[Proposed, PartyMask]:
    merged = dict(_unpacked(known))
    for proposed, members in new.items():
        merged[proposed] = merged.get(proposed, 0) | members
    return merged


def _packed(masks: Mapping[Key, PartyMask]) -> tuple[tuple[Key, bytes], ...]:
    return tuple((key, mask.to_bytes(8, "little")) for key, mask in masks.items())


def _unpacked(packed: Iterable[tuple[Key, bytes]]) -> Iterable[tuple[Key, PartyMask]]:
    return ((key, int.from_bytes(mask, "little")) for key, mask in packed)


@dataclass(frozen=True, slots=True)
class CommitteeState:
    """``noise``: of each member, by number, the excerpt of its noise dealing, until the sum is made. ``own_list``: signed, once.

    ``lists``: all that came, by digest; of one member two if it lies. ``voting``: on digests of choices, with the ``choices``
    themselves, and what was signed: ``proposals``, ``echoes`` of others and own ones, ``votes`` by member. ``own_sum``: published
    once. ``sums``: of each member the first that came. ``wanted``: which lists each member lacks. ``undelivered``: whom the own
    sum has not reached. ``result``: the bytes of the result, empty until it is known. ``left_out``: contributors whose
    contributions came and do not count, and why. ``withheld``: its own numbers did not fit. ``remarks``: who lied, in sentences.
    """

    round: int = NOISE
    noise: dict[int, StableBytes] = field(default_factory=dict, repr=False)
    own_list: StableBytes = field(default=StableBytes(b""), repr=False)
    lists: dict[bytes, StableBytes] = field(default_factory=dict, repr=False)
    voting: VotingState = field(default_factory=VotingState)
    choices: dict[bytes, OpeningChoice] = field(default_factory=dict)
    proposals: tuple[ChoiceProposal, ...] = ()
    echoes: tuple[Echo, ...] = ()
    votes: dict[int, ChoiceVote] = field(default_factory=dict)
    wanted: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    own_sum: MemberSum | None = None
    withheld: bool = False
    sums: dict[int, MemberSum] = field(default_factory=dict, repr=False)
    undelivered: tuple[int, ...] = ()
    result: StableBytes = field(default=StableBytes(b""), repr=False)
    left_out: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def has_result(self) -> bool:
        return bool(self.result.content)
