"""A member of the committee: what it holds, its one vote, the votes that it knows, and what they decide. No arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quietmean.core.party import PartyId
from quietmean.protocols.packed_sharing.ballots import (
    BallotProposal,
    BallotRules,
    PartyMask,
    Votes,
    choose,
    decided,
    mask_of,
    preferred,
    proves_unpublished,
    unpack,
    with_votes,
)

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
    """After the last round: is it certain that nobody published a sum?"""
    return not state.decided and proves_unpublished(rules, unpack(state.abstained))


class CommitteeMember:
    """Member number ``number``; ``leaders``: of ballots 1, 2, ..., over and over."""

    def __init__(self, rules: BallotRules, leaders: tuple[PartyId, ...], number: PartyId) -> None:
        self._rules = rules
        self._leaders = leaders
        self._number = number

    def start(self) -> MemberState:
        """It holds its own share."""
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
        """Once no vote is cast any more: who has none."""
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
