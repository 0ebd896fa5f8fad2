"""Proposals, echoes and the one vote of a member: pure, on the digests of choices. Signatures are checked elsewhere.

A leader proposes a choice in its ballot. A member echoes, once a ballot, the first valid one that it knows of the ballot's
leader, and votes, once in its life, only for one with q echoes in one ballot. Two choices with q echoes in one ballot would need
more than c_m members that echo twice; so a leader that lies cannot have votes split. Two choices with q votes in all would need
more than c_m members that vote twice: 2q > m + c_m, whatever leaders do, and however late anything comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.ballots import Mask, members_of

# Rounds: noise, lists, the first proposal, its echoes, votes, sums. Ballot b is proposed in round 2b + 1.
NOISE, LISTS, FIRST_PROPOSAL, FIRST_ECHOES = 1, 2, 3, 4

# A ballot and the digest of a choice that is proposed in it.
Proposed = tuple[int, bytes]
# True, False, or None where that cannot be told yet.
Validity = Callable[[bytes], bool | None]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class VotingRules:
    """``members`` (m) of whom ``colluding`` (c_m) lie at most; ``votes_needed`` (q), ``ballots`` (B), ``leaders`` in order."""

    members: int
    colluding: int
    votes_needed: int
    ballots: int
    leaders: tuple[int, ...]

    @classmethod
    def of(cls, parameters: CommitteeParameters, leaders: tuple[int, ...]) -> VotingRules:
        """Those of a committee."""
        return cls(parameters.members, parameters.colluding, parameters.votes_needed, parameters.ballots, leaders)

    @property
    def rounds(self) -> int:
        return 2 * self.ballots + 5

    @property
    def last_voting_round(self) -> int:
        """The last round at whose end a vote is cast: it is sent in the next, and what it decides is opened in the one after."""
        return self.rounds - 2

    def ballot(self, round_: int) -> int:
        """The ballot that is proposed in a round; 0 if there is none."""
        ballot = (round_ - 1) // 2
        return ballot if round_ % 2 and 1 <= ballot <= self.ballots else 0

    def leader(self, ballot: int) -> int:
        return self.leaders[(ballot - 1) % len(self.leaders)]

    def leads(self, member: int, round_: int) -> int:
        """The ballot that a member leads in a round; 0 if it leads none."""
        ballot = self.ballot(round_)
        return ballot if ballot and self.leader(ballot) == member else 0


@dataclass(frozen=True, slots=True)
class VotingState:
    """``proposals`` known, in the order in which they came; ``echoed``: own echoes. ``echoes`` and ``votes``: who is known to.

    ``vote``: the own one, empty until it is cast, which never changes. ``proposal``: what it proposes in the round in progress.
    ``decided``: the choice with q votes, empty until it is known.
    """

    round: int = LISTS
    proposals: tuple[Proposed, ...] = ()
    echoed: tuple[Proposed, ...] = ()
    echoes: tuple[tuple[Proposed, bytes], ...] = ()
    votes: tuple[tuple[bytes, bytes], ...] = ()
    vote: bytes = b""
    proposal: Proposed | None = None
    decided: bytes = b""


@dataclass(frozen=True, slots=True)
class HeardVotes:
    """What arrived in a round, all of it signed: ``proposals`` of leaders, ``echoes`` by proposal, ``votes`` by choice.

    A vote only counts together with q echoes of its choice, which are among ``echoes``.
    """

    proposals: tuple[Proposed, ...] = ()
    echoes: Mapping[Proposed, Mask] = field(default_factory=dict)
    votes: Mapping[bytes, Mask] = field(default_factory=dict)


class Voter:
    """Member number ``member``."""

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
        echoes = _merged(state.echoes, heard.echoes)
        echoed = self._echoed(state, proposals, valid)
        for proposed in echoed:
            echoes[proposed] = echoes.get(proposed, 0) | 1 << self._member
        votes = self._with_votes(dict(_unpacked(state.votes)), heard.votes, echoes)
        vote = state.vote
        if not vote and state.round <= self._rules.last_voting_round:
            vote = self._vote(votes, echoes, valid)
            if vote:
                votes[vote] = votes.get(vote, 0) | 1 << self._member
        decided = next((digest for digest, voters in votes.items() if voters.bit_count() >= self._rules.votes_needed), b"")
        return VotingState(
            round=following,
            proposals=proposals,
            echoed=echoed,
            echoes=_packed(echoes),
            votes=_packed(votes),
            vote=vote,
            proposal=None if decided else self._proposal(following, votes, propose),
            decided=decided,
        )

    def miss_round(self, state: VotingState) -> VotingState:
        """The state after a round that the member missed: it proposes, learns and votes nothing."""
        return replace(state, round=state.round + 1, proposal=None)

    def _echoed(self, state: VotingState, proposals: tuple[Proposed, ...], valid: Validity) -> tuple[Proposed, ...]:
        """One a ballot: the first valid proposal. What is not valid yet may be later."""
        echoed = state.echoed
        for ballot, digest in proposals:
            if all(ballot != other for other, _ in echoed) and valid(digest):
                echoed = (*echoed, (ballot, digest))
        return echoed

    def _with_votes(
        self, votes: dict[bytes, Mask], heard: Mapping[bytes, Mask], echoes: Mapping[Proposed, Mask]
    ) -> dict[bytes, Mask]:
        """The first vote of each voter counts, and only one for a choice with q echoes."""
        voted = 0
        for voters in votes.values():
            voted |= voters
        for digest, voters in heard.items():
            if voters & ~voted and self._best_ballot(digest, echoes):
                votes[digest] = votes.get(digest, 0) | voters & ~voted
                voted |= voters
        return votes

    def _vote(self, votes: Mapping[bytes, Mask], echoes: Mapping[Proposed, Mask], valid: Validity) -> bytes:
        """First for what somebody voted for, else for what has q echoes in the highest ballot."""
        known = sorted(votes, key=lambda digest: (-votes[digest].bit_count(), -self._best_ballot(digest, echoes), digest))
        others = sorted(
            {digest for _, digest in echoes} - set(votes), key=lambda digest: (-self._best_ballot(digest, echoes), digest)
        )
        candidates = (digest for digest in (*known, *others) if self._best_ballot(digest, echoes))
        return next((digest for digest in candidates if valid(digest)), b"")

    def _best_ballot(self, digest: bytes, echoes: Mapping[Proposed, Mask]) -> int:
        """The highest ballot in which a choice has q echoes; 0 if there is none."""
        return max(
            (
                ballot
                for (ballot, echoed), members in echoes.items()
                if echoed == digest and members.bit_count() >= self._rules.votes_needed
            ),
            default=0,
        )

    def _proposal(self, round_: int, votes: Mapping[bytes, Mask], propose: Callable[[], bytes | None]) -> Proposed | None:
        """What it proposes in the coming round, if it leads a ballot there: what somebody voted for, else its own choice."""
        ballot = self._rules.leads(self._member, round_)
        if not ballot:
            return None
        digest = max(votes, key=lambda one: (votes[one].bit_count(), one)) if votes else propose()
        return None if digest is None else (ballot, digest)


def certificate(rules: VotingRules, state: VotingState, digest: bytes) -> tuple[int, tuple[int, ...]] | None:
    """The highest ballot in which a choice has q echoes that are known, and q of the members whose these are."""
    best = max(
        (
            (ballot, echoing)
            for (ballot, echoed), echoing in _unpacked(state.echoes)
            if echoed == digest and echoing.bit_count() >= rules.votes_needed
        ),
        default=None,
    )
    return None if best is None else (best[0], members_of(best[1])[: rules.votes_needed])


def _with_proposals(known: tuple[Proposed, ...], new: Iterable[Proposed]) -> tuple[Proposed, ...]:
    """Of each ballot two at most: of a leader that lies, more would change nothing."""
    merged = list(known)
    for proposed in new:
        if proposed not in merged and sum(ballot == proposed[0] for ballot, _ in merged) < 2:
            merged.append(proposed)
    return tuple(merged)


def _merged(known: tuple[tuple[Proposed, bytes], ...], new: Mapping[Proposed, Mask]) -> dict[Proposed, Mask]:
    merged = dict(_unpacked(known))
    for proposed, members in new.items():
        merged[proposed] = merged.get(proposed, 0) | members
    return merged


def _packed(masks: Mapping[Key, Mask]) -> tuple[tuple[Key, bytes], ...]:
    return tuple((key, mask.to_bytes(8, "little")) for key, mask in masks.items())


def _unpacked(packed: Iterable[tuple[Key, bytes]]) -> Iterable[tuple[Key, Mask]]:
    return ((key, int.from_bytes(mask, "little")) for key, mask in packed)
