"""The contents of messages as bytes. Received bytes are not trusted: anything but the exact form raises :class:`ContentError`.

====== ================================================================================================================
round  content (S: bytes of a set of parties, one bit each; W: bytes of a share, 2 or 4 for each of its numbers)
====== ================================================================================================================
1      a share, W; or the 32-byte seed of one, to the members that the dealer's number determines
2      holds, S
3      proposal: ballot 1, U, M; 1 + 2 S
4      holds, S; then the vote, if there is one, 1 + 2 S
5 ..   flags 1; undecided: holds, then the vote, then the proposal; decided: the vote, then U if the vote is not for it, then the
       sum unless a share of U is missing
====== ================================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.party import PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.packed_sharing.ballots import (
    DEALING,
    FIRST_PROPOSAL,
    FIRST_VOTES,
    STATUS,
    BallotProposal,
    BallotRules,
    CommitteeMember,
    Heard,
    MemberState,
    PartyMask,
    unpack,
)
from quietmean.protocols.packed_sharing.encoding import leaders_of
from quietmean.protocols.packed_sharing.packing import Elements, Packing, expand, open_sums
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters
from quietmean.protocols.publishing import ContentError
from quietmean.protocols.traits import Sent

SEED_BYTES = 32
_VOTE, _PROPOSAL, _DECIDED, _OTHER, _SUM = 1, 2, 4, 8, 16
# Valid flags: U is the set of the vote or is written out; a proposer has no vote; a sum needs a decision.
_FLAGS = frozenset(
    {0, _VOTE, _PROPOSAL, *(_DECIDED | vote | more for vote in (_VOTE, _VOTE | _OTHER, _OTHER) for more in (0, _SUM))}
)


@dataclass(frozen=True, slots=True)
class MemberStatement:
    """The content of a member's message after the first round. Either ``holds``, or, once it has decided, the set ``decided``.

    ``share``: its sum over that set, as bytes; None if it lacks a share.
    """

    holds: PartyMask | None = None
    vote: BallotProposal | None = None
    proposal: BallotProposal | None = None
    decided: bytes = b""
    share: bytes | None = None


@dataclass(frozen=True, slots=True)
class Codec:
    """Writes and reads the messages of packed sharing.

    ``blocks`` numbers below ``prime`` in a share, of ``word_bytes`` bytes each.
    """

    rules: BallotRules
    blocks: int
    prime: int
    word_bytes: int

    @classmethod
    def of(cls, parameters: PackedSharingParameters, rules: BallotRules) -> Codec:
        """The codec of a protocol."""
        return cls(rules, parameters.blocks, parameters.prime, parameters.word_bytes)

    @property
    def share_bytes(self) -> int:
        return self.blocks * self.word_bytes

    @property
    def limit(self) -> int:
        """The most bytes of any content."""
        return max(SEED_BYTES, 1 + self._proposal_bytes + self.rules.set_bytes + max(self.share_bytes, self._proposal_bytes))

    def write_share(self, share: Elements) -> bytes:
        """The bytes of a share, numbers (blocks,), little-endian."""
        return share.astype(f"<u{self.word_bytes}", copy=False).tobytes()

    def read_share(self, raw: bytes) -> Elements:
        """The inverse of :meth:`write_share`. Raises :class:`ContentError`."""
        if len(raw) != self.share_bytes:
            raise ContentError(f"it sent a share of {len(raw)} bytes instead of {self.share_bytes}")
        # Not copied: the numbers stay where they came.
        share: Elements = np.frombuffer(raw, dtype=f"<u{self.word_bytes}")
        if share.size and int(share.max()) >= self.prime:
            raise ContentError(f"it sent a share with a number that is not below {self.prime}")
        return share

    def check_dealt(self, raw: bytes, seeded: bool) -> bytes:
        """What a dealer sent, once it is certain that it is a share or, if ``seeded``, a seed. Raises :class:`ContentError`."""
        if not seeded:
            self.read_share(raw)
        elif len(raw) != SEED_BYTES:
            raise ContentError(f"it sent a seed of {len(raw)} bytes instead of {SEED_BYTES}")
        return raw

    def write(self, round_: int, statement: MemberStatement) -> bytes:
        """A content of a round from 2 on."""
        if round_ == FIRST_PROPOSAL:
            return self._write_proposal(statement.proposal)
        holds = b"" if statement.holds is None else self.rules.pack(statement.holds)
        vote = self._write_proposal(statement.vote)
        if round_ <= FIRST_VOTES:
            return holds + vote
        flags = (_VOTE if vote else 0) | (_PROPOSAL if statement.proposal is not None else 0)
        if not statement.decided:
            return bytes([flags]) + holds + vote + self._write_proposal(statement.proposal)
        other = b"" if statement.vote is not None and statement.vote.inputs == statement.decided else statement.decided
        flags |= _DECIDED | (_OTHER if other else 0) | (0 if statement.share is None else _SUM)
        return bytes([flags]) + vote + other + (statement.share or b"")

    def read(self, round_: int, raw: bytes) -> MemberStatement:
        """The inverse of :meth:`write`. Raises :class:`ContentError`."""
        reader = _Reader(raw)
        if round_ == STATUS:
            statement = MemberStatement(holds=self._set(reader))
        elif round_ == FIRST_PROPOSAL:
            statement = MemberStatement(proposal=self._proposal(reader))
        elif round_ == FIRST_VOTES:
            statement = MemberStatement(self._set(reader), self._proposal(reader) if reader.left else None)
        else:
            statement = self._read_later(reader)
        if reader.left:
            raise ContentError(f"it sent {reader.left} bytes too many in round {round_}")
        return statement

    def _read_later(self, reader: _Reader) -> MemberStatement:
        flags = reader.take(1)[0]
        if flags not in _FLAGS:
            raise ContentError(f"it sent flags {flags} that do not go together")
        if not flags & _DECIDED:
            holds = self._set(reader)
            vote = self._proposal(reader) if flags & _VOTE else None
            return MemberStatement(holds, vote, self._proposal(reader) if flags & _PROPOSAL else None)
        vote = self._proposal(reader) if flags & _VOTE else None
        decided = b"" if vote is None else vote.inputs
        if flags & _OTHER:
            other = self.rules.pack(self._set(reader))
            if other == decided:
                raise ContentError("it sent a set that the vote has already")
            decided = other
        if not flags & _SUM:
            return MemberStatement(vote=vote, decided=decided)
        share = reader.long(self.share_bytes)
        self.read_share(share)
        return MemberStatement(vote=vote, decided=decided, share=share)

    @property
    def _proposal_bytes(self) -> int:
        return 1 + 2 * self.rules.set_bytes

    def _write_proposal(self, proposal: BallotProposal | None) -> bytes:
        return b"" if proposal is None else bytes([proposal.ballot]) + proposal.inputs + proposal.members

    def _proposal(self, reader: _Reader) -> BallotProposal:
        ballot = reader.take(1)[0]
        if not 1 <= ballot <= self.rules.ballots:
            raise ContentError(f"it sent ballot {ballot}, there are {self.rules.ballots}")
        return BallotProposal(ballot, self.rules.pack(self._set(reader)), self.rules.pack(self._set(reader)))

    def _set(self, reader: _Reader) -> PartyMask:
        mask = unpack(reader.take(self.rules.set_bytes))
        if mask >> self.rules.parties:
            raise ContentError("it sent a set with parties that do not exist")
        return mask


class _Reader:
    """A reader of bytes from the front."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._place

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ContentError(f"it sent {self.left} bytes instead of {count}")
        self._place += count
        return self._raw[self._place - count : self._place]

    def long(self, count: int) -> bytes:
        """Read so many bytes where they are, as a view: a share is long."""
        if count > self.left:
            raise ContentError(f"it sent {self.left} bytes instead of {count}")
        self._place += count
        view = memoryview(self._raw).toreadonly()[self._place - count : self._place]
        # It does all that is asked of a share's bytes.
        return cast(bytes, view)


@dataclass(frozen=True, eq=False)
class FollowedOutcome:
    """The outcome of a history, followed without values.

    ``inputs``, shape (n,): whose values are in the result, nobody's if there is none. ``concluded``, (n,): who has it.
    """

    inputs: Mask
    concluded: Mask


def follow(rules: BallotRules, schedule: Schedule, trace: ExecutionTrace) -> FollowedOutcome:
    """What the machines do under a trace. All results are over one set, so there is one outcome."""
    return _Run(rules, schedule, trace).outcome()


class _Run:
    """``done``: members with the result; ``sums``: for each member, from whom it has a sum."""

    def __init__(self, rules: BallotRules, schedule: Schedule, trace: ExecutionTrace) -> None:
        self._rules = rules
        self._online = trace.online
        self._arrived = _arrivals(schedule, trace)
        leaders = leaders_of(schedule)
        self._members = [CommitteeMember(rules, leaders, party) for party in range(rules.parties)]
        self._states = [member.start() for member in self._members]
        self._done: PartyMask = 0
        self._sums = [0] * rules.parties

    def outcome(self) -> FollowedOutcome:
        everybody = (1 << self._rules.parties) - 1
        for round_ in range(1, self._rules.rounds + 1):
            if self._done == everybody:
                break
            self._round(round_)
        flags = np.zeros((2, self._rules.parties), dtype=np.bool_)
        for party, state in enumerate(self._states):
            if self._done >> party & 1:
                flags[1, party] = True
                flags[0] = [unpack(state.decided) >> dealer & 1 for dealer in range(self._rules.parties)]
        return FollowedOutcome(flags[0], flags[1])

    def _round(self, round_: int) -> None:
        before, done = list(self._states), self._done
        round_contents = _RoundStatements(self._rules, round_, before)
        for party, member in enumerate(self._members):
            state = before[party]
            if self._done >> party & 1:
                continue
            if not self._online[round_, party]:
                self._states[party] = member.miss_round(state)
                continue
            arrived = self._arrived[round_ - 1][party]
            if round_ == DEALING:
                self._states[party] = member.after_dealing(state, arrived)
                continue
            reached = bool(state.proposal) and self._reached(round_, party, done)
            self._states[party] = member.end_round(state, round_contents.to(member, arrived, reached))
            waited = self._has(party, state) >= self._rules.sums_needed
            self._sums[party] |= arrived & round_contents.publishers
            self._conclude(party, round_, waited)

    def _reached(self, round_: int, party: PartyId, done: PartyMask) -> bool:
        """Whether what ``party`` sends in a round arrives anywhere; who is done refuses it."""
        awaiting = (arrived for other, arrived in enumerate(self._arrived[round_ - 1]) if not done >> other & 1)
        return any(arrived >> party & 1 for arrived in awaiting)

    def _has(self, party: PartyId, state: MemberState) -> int:
        """How many sums, with its own."""
        own = 1 << party if state.decided and _holds_all(state, state.decided) else 0
        return (self._sums[party] | own).bit_count()

    def _conclude(self, party: PartyId, round_: int, waited: bool) -> None:
        state = self._states[party]
        sums = self._has(party, state)
        if sums < self._rules.sums_needed or (not waited and self._rules.waits_for_more(sums, round_ + 1)):
            return
        self._done |= 1 << party
        if not state.decided:
            inputs = next(other.decided for other in self._states if other.decided)
            self._states[party] = self._members[party].concluded(state, inputs)


class _RoundStatements:
    """What all members send in a round, by receiver."""

    def __init__(self, rules: BallotRules, round_: int, states: list[MemberState]) -> None:
        self._round = round_
        self._states = states
        self._votes: dict[BallotProposal, PartyMask] = {}
        self._reporting: PartyMask = 0
        self.publishers: PartyMask = 0
        for party, state in enumerate(states):
            if round_ >= FIRST_VOTES and state.vote is not None:
                self._votes[state.vote] = self._votes.get(state.vote, 0) | 1 << party
            if state.decided and round_ > FIRST_VOTES and _holds_all(state, state.decided):
                self.publishers |= 1 << party
            if not state.decided and round_ != FIRST_PROPOSAL:
                self._reporting |= 1 << party

    def to(self, member: CommitteeMember, arrived: PartyMask, reached: bool) -> Heard:
        votes = {proposal: arrived & voters for proposal, voters in self._votes.items() if arrived & voters}
        leader = member.leader(self._round)
        proposal = self._states[leader].proposal if leader is not None and arrived >> leader & 1 else None
        holds: dict[PartyId, PartyMask] = {}
        if member.leads(self._round + 1):
            # Only the next leader uses what the others hold.
            reporting = arrived & self._reporting
            holds = {party: unpack(state.holds) for party, state in enumerate(self._states) if reporting >> party & 1}
        return Heard(holds, votes, proposal, reached)


def _holds_all(state: MemberState, inputs: bytes) -> bool:
    return not unpack(inputs) & ~unpack(state.holds)


def _arrivals(schedule: Schedule, trace: ExecutionTrace) -> list[list[PartyMask]]:
    """For each round and receiver, the senders whose message would arrive."""
    delivered, parties = trace.delivered(schedule), schedule.parties
    arrivals = []
    for round_ in range(schedule.rounds):
        reached = np.zeros((parties, parties), dtype=np.bool_)
        senders, slots = np.nonzero(delivered[round_])
        reached[schedule.neighbours[round_, senders, slots], senders] = True
        packed = np.packbits(reached, axis=1, bitorder="little")
        arrivals.append([int.from_bytes(row.tobytes(), "little") for row in packed])
    return arrivals


_SLACK = 1e-12


def known_share(parameters: PackedSharingParameters, counted: Mask, corrupt: frozenset[PartyId], target: PartyId) -> float:
    """The part of the target's value in the number that the coalition reads: all, or none if it is not in the sum."""
    return 1.0 if counted[target] or len(corrupt) >= parameters.threshold else 0.0


def unknown_noise(parameters: PackedSharingParameters, counted: Mask, corrupt: frozenset[PartyId]) -> float:
    """The standard deviation of the noise in it that the coalition does not know, in the units of the values."""
    if len(corrupt) >= parameters.threshold:
        return parameters.deviation
    return math.sqrt(int(counted.sum()) - int(counted[list(corrupt)].sum())) * parameters.deviation


def reach(parameters: PackedSharingParameters, together: int, weight: float, sensitivity: float) -> float:
    """How far from the centre the target's values are in both worlds: whole steps, so that no random bits round them."""
    half = min(sensitivity / math.sqrt(together) / 2, weight * parameters.clip) / parameters.step
    # A quotient that float64 rounded to just below a whole number counts as that number.
    return parameters.step * math.floor(half * (1 + _SLACK))


@dataclass(frozen=True)
class ShareReader:
    """What ``corrupt`` parties read of ``target``'s value, or of the sum with it."""

    parameters: PackedSharingParameters
    corrupt: frozenset[PartyId]
    target: PartyId

    @property
    def opens_shares(self) -> bool:
        """Are they enough to open every dealer's shares?"""
        return len(self.corrupt) >= self.parameters.threshold

    def read(self, sent: Sequence[Sent], size: int) -> Vector | None:
        """What the coalition reads, in the units of the values, shape (size,), without the centre; None if it cannot."""
        stretched = replace(self.parameters, dimension=size)
        codec = Codec.of(stretched, stretched.rules(stretched.members))
        shares = self._shares(sent, codec) if self.opens_shares else self._sums(sent, codec)
        if len(shares) < stretched.threshold:
            return None
        return np.asarray(open_sums(Packing.of(stretched), shares, size) * stretched.step, dtype=np.float64)

    def _shares(self, sent: Sequence[Sent], codec: Codec) -> dict[PartyId, Elements]:
        """The shares of the target that the coalition reads."""
        packing, shares = Packing.of(self.parameters), {}
        for message, reached in sent:
            if message.round == DEALING and message.sender == self.target:
                for member in reached & self.corrupt:
                    seeded = packing.is_seeded(self.target, member)
                    raw = message.content
                    shares[member] = expand(packing, raw, codec.blocks) if seeded else codec.read_share(raw)
        return shares

    def _sums(self, sent: Sequence[Sent], codec: Codec) -> dict[PartyId, Elements]:
        """The members' sums, those of the coalition included. The result is public: an outsider is taken to see them all."""
        sums = {}
        for message, reached in sent:
            is_read = message.sender in self.corrupt or bool(reached & self.corrupt) or not self.corrupt
            if message.round > FIRST_VOTES and is_read:
                statement = codec.read(message.round, message.content)
                if statement.share is not None:
                    sums[message.sender] = codec.read_share(statement.share)
        return sums
