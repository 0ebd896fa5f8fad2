"""Whose inputs count: what a leader proposes, what a member votes for, and what a quorum of votes decides. Pure functions.

One sum: honest voters of two sets are disjoint, at most m - c_m of them, and each lying member counts in both. Two decided sets
would need 2q <= m + c_m, and q > (m + c_m) / 2. Nothing of this rests on leaders, on time-outs, or on the order of ballots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from quietmean.core.party import PartyId

# The largest accepted probability that all leaders have left.
LEADERLESS = 1e-5
LEAST_BALLOTS = 3
# A ballot number takes one byte.
LARGEST_BALLOTS = 255
# A set of parties: bit i means party i.
PartyMask = int


@dataclass(frozen=True, slots=True)
class BallotRules:
    """``parties`` (n) of which all are members; ``colluding`` (c_m) of them lie at most.

    ``secrets`` (l), ``votes_needed`` (q), ``least`` inputs (u_min), ``gone`` (f), ``liars`` to correct (e), ``ballots`` (B).
    """

    parties: int
    colluding: int
    secrets: int
    votes_needed: int
    least: int
    gone: int
    liars: int
    ballots: int

    @property
    def threshold(self) -> int:
        """T, the number of sums that determine the result."""
        return self.colluding + self.secrets

    @property
    def sums_needed(self) -> int:
        """T + 2e, the number of sums that determine the result although e of them are wrong."""
        return self.threshold + 2 * self.liars

    def waits_for_more(self, sums: int, round_: int) -> bool:
        """Whether who has so many sums at the beginning of a round waits for its end: they check nothing, and more may come."""
        return sums == self.threshold < self.parties and round_ <= self.rounds

    @property
    def rounds(self) -> int:
        return 2 * self.ballots + 4

    @property
    def last_voting_round(self) -> int:
        """The last round at whose end a vote is cast: it is sent in the next, what it decides is published in the one after."""
        return self.rounds - 2

    @property
    def set_bytes(self) -> int:
        """Bytes of a set of parties."""
        return -(-self.parties // 8)

    def pack(self, mask: PartyMask) -> bytes:
        """A set as canonical bytes: party i is bit i % 8 of byte i // 8."""
        return mask.to_bytes(self.set_bytes, "little")


@dataclass(frozen=True, slots=True, order=True)
class BallotProposal:
    """``inputs`` (U): the dealers to sum over. ``members`` (M): who holds all their shares. Both as canonical bytes."""

    ballot: int
    inputs: bytes
    members: bytes


# The voters of each proposal; no voter occurs twice.
Votes = Mapping[BallotProposal, PartyMask]


def unpack(packed: bytes) -> PartyMask:
    """The inverse of :meth:`BallotRules.pack`."""
    return int.from_bytes(packed, "little")


def mask_of(parties: Iterable[PartyId]) -> PartyMask:
    """The set of these parties."""
    mask = 0
    for party in parties:
        mask |= 1 << party
    return mask


def members_of(mask: PartyMask) -> tuple[PartyId, ...]:
    """The parties of a set, in rising order."""
    return tuple(party for party in range(mask.bit_length()) if mask >> party & 1)


def ballots_needed(members: int, leaving: int) -> int:
    """B, the least number of ballots, at least 3, whose leaders all leave with probability 1e-5 at most.

    ``leaving`` of ``members`` leave, and leaders are drawn from all. Where :data:`LARGEST_BALLOTS` do not do, one more.
    """
    ballots = LEAST_BALLOTS
    all_leave = math.prod((leaving - leader) / max(members - leader, 1) for leader in range(ballots))
    while ballots <= LARGEST_BALLOTS and all_leave > LEADERLESS:
        all_leave *= (leaving - ballots) / (members - ballots)
        ballots += 1
    return ballots


def is_valid(rules: BallotRules, proposal: BallotProposal) -> bool:
    """Has a proposal enough inputs for privacy, enough members for a result, and a ballot that exists?"""
    enough = unpack(proposal.inputs).bit_count() >= rules.least and unpack(proposal.members).bit_count() >= rules.threshold
    return enough and 1 <= proposal.ballot <= rules.ballots


def choose(rules: BallotRules, holds: Mapping[PartyId, PartyMask]) -> tuple[PartyMask, PartyMask] | None:
    """(U, M) for the statuses ``holds``: the dealers whose shares each member that was heard holds; None if there are too few.

    Members that were not heard count as some of those that may be gone.
    """
    need = max(rules.threshold, rules.sums_needed + rules.gone - (rules.parties - len(holds)))
    if len(holds) < need:
        return None
    dropped, added = _by_dropping_dealers(rules, holds, need), _by_adding_members(rules, holds, need)
    inputs = dropped if dropped.bit_count() >= added.bit_count() else added
    if inputs.bit_count() < rules.least:
        return None
    return inputs, mask_of(member for member, held in holds.items() if held & inputs == inputs)


def _by_dropping_dealers(rules: BallotRules, holds: Mapping[PartyId, PartyMask], need: int) -> PartyMask:
    """Drop the dealer that most members miss until ``need`` members hold all shares of the others."""
    missed = [sum(1 for held in holds.values() if not held >> dealer & 1) for dealer in range(rules.parties)]
    order = sorted(range(rules.parties), key=lambda dealer: (-missed[dealer], dealer))
    inputs = (1 << rules.parties) - 1
    for dealer in order:
        if sum(1 for held in holds.values() if held & inputs == inputs) >= need:
            break
        inputs &= ~(1 << dealer)
    return inputs


def _by_adding_members(rules: BallotRules, holds: Mapping[PartyId, PartyMask], need: int) -> PartyMask:
    """Add ``need`` members one by one, each time the one that leaves most common dealers; ties to the smallest number."""
    common, left = (1 << rules.parties) - 1, dict(sorted(holds.items()))
    for _ in range(need):
        best = max(left, key=lambda member: (common & left[member]).bit_count())
        common &= left.pop(best)
    return common


def preferred(rules: BallotRules, proposals: Iterable[BallotProposal]) -> BallotProposal | None:
    """What a member votes for that has no vote yet: of the valid proposals that it knows, one of the lowest ballot."""
    return min((proposal for proposal in proposals if is_valid(rules, proposal)), default=None)


def with_votes(rules: BallotRules, votes: Votes, heard: Votes) -> dict[BallotProposal, PartyMask]:
    """``votes`` and those ``heard`` since. The first vote of each voter counts; votes for what is not valid are none."""
    merged, voted = dict(votes), 0
    for voters in votes.values():
        voted |= voters
    for proposal, voters in heard.items():
        if voters & ~voted and is_valid(rules, proposal):
            merged[proposal] = merged.get(proposal, 0) | voters & ~voted
            voted |= voters
    return merged


def decided(rules: BallotRules, votes: Votes) -> bytes | None:
    """The set U for which q members voted, in whatever ballots; None if there is none."""
    tally: dict[bytes, int] = {}
    for proposal, voters in votes.items():
        tally[proposal.inputs] = tally.get(proposal.inputs, 0) + voters.bit_count()
    return next((inputs for inputs, count in tally.items() if count >= rules.votes_needed), None)


def proves_unpublished(rules: BallotRules, abstained: PartyMask) -> bool:
    """Whether nobody can have published: more than m - q + c_m members said, after their last vote, that they never voted."""
    return abstained.bit_count() > rules.parties - rules.votes_needed + rules.colluding


DEALING, STATUS, FIRST_PROPOSAL, FIRST_VOTES = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class MemberState:
    """``holds``: the dealers whose shares it holds. ``vote``: its own, which never changes. ``votes``: first votes, its own too.

    ``proposal``: what it proposes in this round, as leader. ``decided``: the set U, empty bytes until it is known.
    ``abstained``: members heard to say that they never voted and will not. Sets are packed, see :class:`BallotRules`.
    """

    round: int
    holds: bytes
    abstained: bytes
    vote: BallotProposal | None = None
    votes: tuple[tuple[BallotProposal, bytes], ...] = ()
    proposal: BallotProposal | None = None
    decided: bytes = b""


@dataclass(frozen=True, slots=True)
class Heard:
    """What arrived in a round: ``holds`` of members that reported it, ``votes`` by proposal, and the leader's ``proposal``.

    ``reached``: whether the own proposal, if there was one, is known to have reached anybody.
    """

    holds: Mapping[PartyId, PartyMask] = field(default_factory=dict)
    votes: Votes = field(default_factory=dict)
    proposal: BallotProposal | None = None
    reached: bool = False


def is_unpublished(rules: BallotRules, state: MemberState) -> bool:
    """Is it certain, after the last round, that nobody published a sum?"""
    return not state.decided and proves_unpublished(rules, unpack(state.abstained))


class CommitteeMember:
    """Member number ``number``; ``leaders``: of ballots 1, 2, ..., over and over."""

    def __init__(self, rules: BallotRules, leaders: tuple[PartyId, ...], number: PartyId) -> None:
        self._rules = rules
        self._leaders = leaders
        self._number = number

    def start(self) -> MemberState:
        """Begin the ballots: a member holds its own share."""
        return MemberState(DEALING, self._rules.pack(1 << self._number), self._rules.pack(0))

    def after_dealing(self, state: MemberState, dealers: PartyMask) -> MemberState:
        """The end of round 1, in which the shares of these dealers arrived."""
        return replace(state, round=STATUS, holds=self._rules.pack(unpack(state.holds) | dealers))

    def end_round(self, state: MemberState, heard: Heard) -> MemberState:
        """The end of a later round: vote, decide, propose."""
        if state.decided:
            return replace(state, round=state.round + 1)
        rules, following = self._rules, state.round + 1
        votes = with_votes(rules, {proposal: unpack(voters) for proposal, voters in state.votes}, heard.votes)
        vote = state.vote
        if vote is None and FIRST_PROPOSAL <= state.round <= rules.last_voting_round:
            vote = self._vote(state, heard, votes)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) | 1 << self._number
        if (inputs := decided(rules, votes)) is not None:
            # Further votes change nothing any more.
            return replace(state, round=following, vote=vote, votes=(), proposal=None, decided=inputs)
        return replace(
            state,
            round=following,
            vote=vote,
            votes=tuple((proposal, rules.pack(voters)) for proposal, voters in votes.items()),
            proposal=None if vote is not None or votes else self._proposal(following, unpack(state.holds), heard),
            abstained=rules.pack(unpack(state.abstained) | self._abstaining(state, vote, heard)),
        )

    def miss_round(self, state: MemberState) -> MemberState:
        """The state after a round that the member missed: it proposes, learns and votes nothing."""
        return replace(state, round=state.round + 1, proposal=None)

    def concluded(self, state: MemberState, inputs: bytes) -> MemberState:
        """The state once the result over ``inputs`` is known: sums of enough members show that the set was decided."""
        return replace(state, decided=inputs, votes=(), proposal=None)

    def leads(self, round_: int) -> int:
        """The ballot that this member leads in a round; 0 if it leads none."""
        ballot = leads(self._rules, round_)
        return ballot if ballot and self._leader(ballot) == self._number else 0

    def leader(self, round_: int) -> PartyId | None:
        """Who proposes in a round, if anybody does."""
        ballot = leads(self._rules, round_)
        return self._leader(ballot) if ballot else None

    def _leader(self, ballot: int) -> PartyId:
        return self._leaders[(ballot - 1) % len(self._leaders)]

    def _vote(self, state: MemberState, heard: Heard, votes: Votes) -> BallotProposal | None:
        """The vote, for one of the proposals known at the end of the round, its own included, which is not a vote before.

        A proposal that reached nobody is none: a leader that is cut off would be left alone with its vote for it.
        """
        own = state.proposal if heard.reached else None
        proposals = [proposal for proposal in (own, heard.proposal) if proposal is not None]
        return preferred(self._rules, [*proposals, *votes])

    def _proposal(self, round_: int, own: PartyMask, heard: Heard) -> BallotProposal | None:
        """What it proposes in the coming round, if it leads a ballot there and heard of enough members what they hold."""
        ballot, holds = self.leads(round_), {**heard.holds, self._number: own}
        if not ballot or len(holds) < self._rules.votes_needed:
            return None
        chosen = choose(self._rules, holds)
        return None if chosen is None else BallotProposal(ballot, *map(self._rules.pack, chosen))

    def _abstaining(self, state: MemberState, vote: BallotProposal | None, heard: Heard) -> PartyMask:
        """Who has no vote, once no vote is cast any more."""
        if state.round <= self._rules.last_voting_round:
            return 0
        voters = 0
        for mask in heard.votes.values():
            voters |= mask
        silent = mask_of(heard.holds) & ~voters
        return silent if vote is not None else silent | 1 << self._number


def leads(rules: BallotRules, round_: int) -> int:
    """The ballot that is proposed in a round: b in round 2b + 1; 0 for all other rounds."""
    ballot = (round_ - 1) // 2
    return ballot if round_ % 2 and 1 <= ballot <= rules.ballots else 0
