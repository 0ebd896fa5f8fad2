"""The state machine of one party: it deals, and as a member it reports, votes, adds up, publishes and concludes.

Round 1 deals, round 2 reports who holds what, ballot b proposes in round 2b + 1. Rounds are communication-closed. All that must
not be forgotten is in the state, which is durable before anything that follows from it is sent: all dealt messages before the
first of them, and the vote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.codec import StableBytes
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
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
    is_unpublished,
    mask_of,
    members_of,
    unpack,
)
from quietmean.protocols.packed_sharing.correction import conclude
from quietmean.protocols.packed_sharing.encoding import decode_sum, encode, leaders_of
from quietmean.protocols.packed_sharing.messages import Codec, MemberStatement
from quietmean.protocols.packed_sharing.packing import Elements, Packing, add, deal_residues, padded
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import Seed

_NOTHING = np.empty(0)
_UNCHECKED = (
    "unchecked: only as many members' sums came in time as determine the result, so that a wrong one among them would not be "
    "noticed"
)


@dataclass(frozen=True, slots=True)
class Published:
    """A member's sum over the set ``inputs``, and the weight of those in it."""

    inputs: bytes
    weight: float
    share: StableBytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PackedSharingState:
    """The state of a party of packed sharing.

    ``shares`` and ``weights`` of each dealer, until a set is decided; then ``own``, the sum, if no share of it is missing.

    ``sums``: what members published. ``undelivered``: whom the own sum, or that there is none, has not reached. ``result`` is
    the total (d,) as float64 bytes, empty until it is known, ``inputs`` and ``weight`` are those of the result, which is from as
    many sums as ``counted``. ``remarks``: for the party's user.
    """

    member: MemberState
    shares: dict[PartyId, StableBytes] = field(default_factory=dict, repr=False)
    weights: dict[PartyId, float] = field(default_factory=dict)
    own: Published | None = None
    sums: dict[PartyId, Published] = field(default_factory=dict)
    undelivered: tuple[PartyId, ...] = ()
    result: StableBytes = field(default=StableBytes(b""), repr=False)
    inputs: bytes = b""
    weight: float = 0.0
    remarks: tuple[str, ...] = ()
    counted: int = 0

    @property
    def round(self) -> int:
        """The round in progress."""
        return self.member.round

    @property
    def has_result(self) -> bool:
        return bool(self.result.content)


class PackedSharingParty:
    """A party of packed secret sharing for a value (d,)."""

    state_type = PackedSharingState

    def __init__(
        self,
        parameters: PackedSharingParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._parameters = parameters
        self._rules = parameters.rules(schedule.parties)
        self._codec = Codec.of(parameters, self._rules)
        self._packing = Packing.of(parameters)
        self._member = CommitteeMember(self._rules, leaders_of(schedule), party)
        self._party = party
        self._others = tuple(other for other in range(schedule.parties) if other != party)
        self._value = value
        self._weight = weight
        self._noise = noise

    @property
    def rounds(self) -> int:
        return self._rules.rounds

    def start(self) -> Step[PackedSharingState]:
        """Deal. This is done once: a party that is started again sends what its store has."""
        numbers = encode(self._parameters, self._value, self._weight, self._noise)
        residues = padded(self._packing, self._parameters.dimension, numbers)
        dealt = deal_residues(self._packing, residues, self._party, Seed(self._noise.secret("shares", 0)))
        contents, shares = dict(dealt.seeds), dict(dealt.shares)
        # All of these are as large as the value, or nearly.
        del residues, dealt
        contents |= {member: self._codec.write_share(shares.pop(member)) for member in list(shares)}
        state = PackedSharingState(
            self._member.start(), {self._party: StableBytes(contents[self._party])}, {self._party: self._weight}
        )
        return Step(state, tuple(self._message((other,), DEALING, contents[other], self._weight) for other in self._others))

    def forget_value(self) -> None:
        """Forget the value once what it dealt is durable: a machine that goes on from a state needs none."""
        self._value = _NOTHING

    def end_round(
        self, state: PackedSharingState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[PackedSharingState]:
        senders = Counter(message.sender for message in received)
        # Of a sender with two messages in one round, which may contradict each other, neither counts.
        arrived = [message for message in received if message.round == state.round and senders[message.sender] == 1]
        if state.round == DEALING:
            return self._proceed(self._with_shares(state, arrived))
        state = replace(state, undelivered=tuple(other for other in state.undelivered if other not in delivered))
        waited = self._has_enough(state) is not None
        statements = self._read(state.round, arrived)
        member = self._member.end_round(state.member, self._heard(state.round, statements, reached=bool(delivered)))
        state = replace(state, member=member)
        if not state.has_result:
            state = self._with_sums(state, statements, {message.sender: message.weight for message in arrived})
        if member.decided and not state.inputs:
            state = self._add_up(state)
        return self._proceed(self._concluded(state, waited=waited))

    def miss_round(self, state: PackedSharingState) -> Step[PackedSharingState]:
        return self._proceed(replace(state, member=self._member.miss_round(state.member)))

    def expects(self, state: PackedSharingState) -> frozenset[PartyId]:
        if state.round == FIRST_PROPOSAL:
            return frozenset(other for other in self._others if other == self._member.leader(state.round))
        done = state.has_result or state.round > self.rounds
        return frozenset() if done else frozenset(self._others)

    # --- what arrives ---

    def _with_shares(self, state: PackedSharingState, arrived: Sequence[Message]) -> PackedSharingState:
        shares, weights = dict(state.shares), dict(state.weights)
        for message in sorted(arrived, key=lambda message: message.sender):
            try:
                content = self._codec.check_dealt(message.content, self._packing.is_seeded(message.sender, self._party))
            except ContentError:
                continue
            if math.isfinite(message.weight) and 0 <= message.weight <= self._parameters.largest_weight:
                shares[message.sender], weights[message.sender] = StableBytes(content), message.weight
        member = self._member.after_dealing(state.member, mask_of(shares))
        return replace(state, member=member, shares=shares, weights=weights)

    def _read(self, round_: int, arrived: Sequence[Message]) -> dict[PartyId, MemberStatement]:
        """The contents by sender; a message that cannot be read counts as not arrived."""
        statements = {}
        for message in sorted(arrived, key=lambda message: message.sender):
            try:
                statements[message.sender] = self._codec.read(round_, message.content)
            except ContentError:
                continue
        return statements

    def _heard(self, round_: int, statements: Mapping[PartyId, MemberStatement], *, reached: bool) -> Heard:
        holds = {sender: statement.holds for sender, statement in statements.items() if statement.holds is not None}
        votes: dict[BallotProposal, PartyMask] = {}
        for sender, statement in statements.items():
            if statement.vote is not None:
                votes[statement.vote] = votes.get(statement.vote, 0) | 1 << sender
        leader = self._member.leader(round_)
        proposal = statements[leader].proposal if leader is not None and leader in statements else None
        # Only the ballot of this round is its leader's to propose.
        own = proposal is not None and 2 * proposal.ballot + 1 == round_
        return Heard(holds, votes, proposal if own else None, reached)

    def _with_sums(
        self, state: PackedSharingState, statements: Mapping[PartyId, MemberStatement], weights: Mapping[PartyId, float]
    ) -> PackedSharingState:
        """The first sum of each member counts."""
        new = {
            sender: Published(statement.decided, weights[sender], StableBytes(statement.share))
            for sender, statement in statements.items()
            if statement.share is not None and sender not in state.sums
        }
        return replace(state, sums=dict(sorted((state.sums | new).items()))) if new else state

    # --- the sum ---

    def _add_up(self, state: PackedSharingState) -> PackedSharingState:
        """The set is known: the own sum over it, and from now on everybody has to hear of it."""
        inputs = state.member.decided
        dealers = members_of(unpack(inputs))
        state = replace(state, inputs=inputs, undelivered=self._others)
        if not all(dealer in state.shares for dealer in dealers):
            return replace(state, shares={}, weights={})
        dealt = [self._share(dealer, state.shares[dealer].content) for dealer in dealers]
        total = add(self._packing, dealt, self._codec.blocks)
        weight = math.fsum(state.weights[dealer] for dealer in dealers)
        own = Published(inputs, weight, StableBytes(self._codec.write_share(total)))
        return replace(state, own=own, sums=state.sums | {self._party: own}, shares={}, weights={})

    def _share(self, dealer: PartyId, content: bytes) -> Elements | bytes:
        """The numbers of a share, or the seed of them."""
        return content if self._packing.is_seeded(dealer, self._party) else self._codec.read_share(content)

    def _has_enough(self, state: PackedSharingState) -> bytes | None:
        """Over which set there are enough sums; None if there is none."""
        counts = Counter(sent.inputs for sent in state.sums.values())
        return next((inputs for inputs, count in counts.items() if count >= self._rules.sums_needed), None)

    def _concluded(self, state: PackedSharingState, *, waited: bool) -> PackedSharingState:
        """The state with the result, once there are enough sums over one set: T of them are more than liars can make.

        T of them determine it and check nothing: unless this party has ``waited``, it does so one round for more.
        """
        inputs = self._has_enough(state)
        if state.has_result or inputs is None:
            return state
        if not waited and self._rules.waits_for_more(sum(sent.inputs == inputs for sent in state.sums.values()), state.round):
            return state
        sums = {sender: sent for sender, sent in state.sums.items() if sent.inputs == inputs}
        weight, alike = Counter(sent.weight for sent in sums.values()).most_common(1)[0]
        if alike <= self._rules.colluding:
            return replace(state, remarks=("the members do not agree on the weight of those whose inputs count",))
        secret = Seed(self._noise.secret("combinations of sums", state.round))
        shares = {sender: self._codec.read_share(sent.share.content) for sender, sent in sums.items()}
        conclusion = conclude(self._packing, shares, self._rules.liars, self._parameters.dimension, secret)
        unchecked = len(shares) == self._rules.threshold < self._rules.parties
        problems = (conclusion.problem, _UNCHECKED if unchecked and conclusion.total is not None else "")
        remarks = (*conclusion.messages(), *filter(None, problems))
        if conclusion.total is None:
            return replace(state, remarks=remarks)
        counted, total = len(shares), decode_sum(self._parameters, conclusion.total, weight)
        # All of the size of a vector, and not needed any more.
        del conclusion, shares
        result = StableBytes.of_array(total.astype("<f8", copy=False))
        state = replace(state, result=result, weight=weight, sums={}, remarks=remarks, counted=counted)
        if state.inputs:
            return state
        # This party has not seen the votes: that many sums over one set show that it was decided.
        return self._add_up(replace(state, member=self._member.concluded(state.member, inputs)))

    # --- what is sent ---

    def _proceed(self, state: PackedSharingState) -> Step[PackedSharingState]:
        if state.round > self.rounds:
            return self._end(state)
        if state.round == STATUS:
            return Step(state, self._tell(state, self._others, MemberStatement(unpack(state.member.holds))))
        if state.round == FIRST_PROPOSAL:
            proposal = state.member.proposal
            return Step(state, () if proposal is None else self._tell(state, self._others, MemberStatement(proposal=proposal)))
        return self._later(state)

    def _later(self, state: PackedSharingState) -> Step[PackedSharingState]:
        member = state.member
        usual = MemberStatement(unpack(member.holds), member.vote, member.proposal)
        if not state.inputs or state.round <= FIRST_VOTES:
            return Step(state, self._tell(state, self._others, usual))
        share = None if state.own is None else state.own.share.content
        weight = 0.0 if state.own is None else state.own.weight
        published = self._tell(
            state, state.undelivered, MemberStatement(vote=member.vote, decided=state.inputs, share=share), weight
        )
        if published and state.own is not None:
            state = self._held_in(state, published[0].content)
        if state.has_result:
            return Step(state, published)
        # Members that have this party's sum already still get a message, so that they do not take it for lost.
        reached = tuple(other for other in self._others if other not in state.undelivered)
        return Step(state, (*published, *self._tell(state, reached, usual)))

    def _held_in(self, state: PackedSharingState, content: bytes) -> PackedSharingState:
        """The state whose own sum is where it stands in the content that is sent: a long one is not kept twice."""
        if state.own is None:
            return state
        own = replace(state.own, share=state.own.share.found_in(content))
        return replace(state, own=own, sums=state.sums | {self._party: own} if self._party in state.sums else state.sums)

    def _end(self, state: PackedSharingState) -> Step[PackedSharingState]:
        if not state.has_result:
            return Step(state)
        vector = np.frombuffer(state.result.content, dtype="<f8").astype(np.float64, copy=False)
        return Step(state, release=Release(vector, state.weight))

    def _tell(
        self, state: PackedSharingState, recipients: tuple[PartyId, ...], statement: MemberStatement, weight: float = 0.0
    ) -> tuple[Message, ...]:
        if not recipients:
            return ()
        return (self._message(recipients, state.round, self._codec.write(state.round, statement), weight),)

    def _message(self, recipients: tuple[PartyId, ...], round_: int, content: bytes, weight: float) -> Message:
        return Message(self._party, recipients, round_, _NOTHING, weight, content)


def warnings(rules: BallotRules, state: PackedSharingState) -> tuple[str, ...]:
    """The warnings for a party's user, from its last state: whose sums disagree, and why nobody has a result, if so."""
    if state.has_result:
        return state.remarks
    if not state.inputs:
        reason = f"this party heard in time of fewer than {rules.votes_needed} parties that agree on whose inputs count"
    else:
        sums = sum(sent.inputs == state.inputs for sent in state.sums.values())
        reason = f"{sums} of the {rules.sums_needed} sums that a result needs arrived"
    if nothing_published(rules, state):
        after = "nobody has published anything: what was charged is given back; a second run is a new study"
    else:
        after = (
            "others may have the result, so that what was charged stays charged; a second run is a new study with its own charge"
        )
    return (*state.remarks, reason, after)


def nothing_published(rules: BallotRules, state: PackedSharingState) -> bool:
    """Whether more members than can lie or be wrong said, after their last vote, that they never voted."""
    return not state.has_result and is_unpublished(rules, state.member)
