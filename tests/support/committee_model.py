"""A model of the votes of a committee: the real voting code, any messages lost or late, and liars that say anything to anybody.

Signatures are what they stand for: only a member itself says what it echoes and votes. A vote is told with the echoes that its
voter knows of, as a certificate. Honest leaders may each have another choice to propose, and every choice is valid.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quietmean.core.codec import dump_state, load_state
from quietmean.protocols.committee.voting import (
    LISTS,
    HeardVotes,
    Proposed,
    Validity,
    Voter,
    VotingRules,
    VotingState,
    certificate,
)

MakeVoter = Callable[[VotingRules, int], Voter]
Propose = Callable[[], bytes | None]


def rules_of(members: int, colluding: int, ballots: int, leaders: Sequence[int]) -> VotingRules:
    return VotingRules(members, colluding, (members + colluding) // 2 + 1, ballots, tuple(leaders))


def durable(state: VotingState) -> VotingState:
    """What is left after a crash: all of it."""
    return load_state(VotingState, dump_state(state))


@dataclass(frozen=True, order=True)
class Told:
    """What one member tells in a round to one other."""

    proposals: tuple[Proposed, ...] = ()
    echoes: frozenset[tuple[int, Proposed]] = frozenset()
    vote: bytes = b""


def told(rules: VotingRules, member: int, state: VotingState) -> Told:
    """As in the machine: the proposals that it makes and echoes, its echoes, its vote and the echoes that this stands on."""
    proposals = tuple(one for one in (state.proposal, *state.echoed[-1:]) if one is not None)
    echoes = {(member, proposed) for proposed in state.echoed}
    if state.vote and (certified := certificate(rules, state, state.vote)):
        ballot, members = certified
        echoes |= {(other, (ballot, state.vote)) for other in members}
    return Told(proposals, frozenset(echoes), state.vote)


def heard(messages: Mapping[int, Told]) -> HeardVotes:
    """As in the machine."""
    proposals: list[Proposed] = []
    echoes: dict[Proposed, int] = {}
    votes: dict[bytes, int] = {}
    for sender, message in sorted(messages.items()):
        proposals.extend(message.proposals)
        for member, proposed in sorted(message.echoes):
            echoes[proposed] = echoes.get(proposed, 0) | 1 << member
        if message.vote:
            votes[message.vote] = votes.get(message.vote, 0) | 1 << sender
    return HeardVotes(tuple(proposals), echoes, votes)


def valid(digest: bytes) -> bool:
    return True


# --- wrong implementations ----------------------------------------------------------------------------------------------------


class SecondVote(Voter):
    """It votes anew once it knows of another choice with enough echoes."""

    def end_round(self, state: VotingState, heard: HeardVotes, valid: Validity, propose: Propose) -> VotingState:
        following = super().end_round(state, heard, valid, propose)
        echoes = {proposed: int.from_bytes(mask, "little") for proposed, mask in following.echoes}
        others = [
            digest
            for (_, digest), mask in echoes.items()
            if digest != following.vote and mask.bit_count() >= self._rules.votes_needed
        ]
        return replace(following, vote=others[0]) if others and state.vote else following


class SecondEcho(Voter):
    """It echoes all valid proposals of a ballot."""

    def _echoed(self, state: VotingState, proposals: tuple[Proposed, ...], valid: Validity) -> tuple[Proposed, ...]:
        return tuple(dict.fromkeys((*state.echoed, *proposals)))


class WithoutEchoes(Voter):
    """It votes for the first valid proposal that it knows, as if all had echoed it."""

    def _best_ballot(self, digest: bytes, echoes: Mapping[Proposed, int]) -> int:
        return max((ballot for ballot, echoed in echoes if echoed == digest), default=0)


class TalliesByContributions(Voter):
    """It counts votes by the first letter of a choice, which stands for U."""

    def end_round(self, state: VotingState, heard: HeardVotes, valid: Validity, propose: Propose) -> VotingState:
        following = super().end_round(state, heard, valid, propose)
        alike = [
            int.from_bytes(voters, "little").bit_count() for digest, voters in following.votes if digest[:1] == following.vote[:1]
        ]
        return replace(following, decided=following.vote) if sum(alike) >= self._rules.votes_needed else following


class OpensAgain(Voter):
    """It goes on listening after it has decided."""

    def end_round(self, state: VotingState, heard: HeardVotes, valid: Validity, propose: Propose) -> VotingState:
        return super().end_round(replace(state, decided=b""), heard, valid, propose)


def forgets_its_vote(state: VotingState) -> VotingState:
    """A wrong store: the vote is told before it is on disk."""
    if not state.vote or state.decided:
        return state
    return replace(state, vote=b"", votes=())


# --- all of it ----------------------------------------------------------------------------------------------------------------


@dataclass
class Explored:
    """``states``: different joint states. ``split``: two choices may be decided; ``echoed``: two have q echoes in a ballot."""

    states: int = 0
    split: int = 0
    echoed: int = 0
    decisive: int = 0


@dataclass
class Exhaustive:
    """``members`` of which ``liar`` lies; everybody else runs ``make``. Choices: ``names``, of honest leaders by turns.

    Every round any part of what was told arrives at each member. The liar's echoes of everything are known to everybody from the
    start, which is all that it can do with echoes; it proposes what it likes in its ballots, to each member something else, and
    votes for it. Of a member that has voted only that is kept, and what it may still echo, unless ``whole``: what it hears later
    decides for it alone. So a choice counts as decided as soon as so many ever voted for it that somebody may hear of q votes.
    """

    rules: VotingRules
    liar: int
    make: MakeVoter = Voter
    restart: Callable[[VotingState], VotingState] = durable
    names: tuple[bytes, ...] = (b"A1", b"A2")
    rounds: int = 8
    whole: bool = False

    def run(self) -> Explored:
        """All of it, or up to the first round in which anything is wrong."""
        explored = Explored()
        honest = [member for member in range(self.rules.members) if member != self.liar]
        self._voters = {member: self.make(self.rules, member) for member in honest}
        self._known: dict[tuple[object, ...], list[VotingState]] = {}
        frontier = {tuple((VotingState(), frozenset[bytes]()) for _ in honest)}
        for _ in range(LISTS, self.rounds + 1):
            following: set[tuple[tuple[VotingState, frozenset[bytes]], ...]] = set()
            for joint in frontier:
                tellings = {member: told(self.rules, member, state) for member, (state, _) in zip(honest, joint, strict=True)}
                options = []
                for member, (state, ever) in zip(honest, joint, strict=True):
                    reached = self._next(member, state, {other: one for other, one in tellings.items() if other != member})
                    options.append([(after, ever | {after.vote} if after.vote else ever) for after in reached])
                for after_all in itertools.product(*options):
                    if after_all not in following:
                        following.add(after_all)
                        self._check(explored, after_all)
                if explored.split or explored.echoed:
                    return explored
            frontier = following
            explored.states += len(frontier)
        return explored

    def _next(self, member: int, state: VotingState, tellings: Mapping[int, Told]) -> list[VotingState]:
        key = (member, state, tuple(tellings.items()))
        if key not in self._known:
            reached = set()
            name = self.names[member % len(self.names)]
            for count in range(len(tellings) + 1):
                for senders in itertools.combinations(tellings, count):
                    for lie in self._lies(state.round):
                        messages = {sender: tellings[sender] for sender in senders} | {self.liar: lie}
                        after = self._voters[member].end_round(self.restart(state), heard(messages), valid, lambda: name)
                        reached.add(after if self.whole else self._canonical(after))
            self._known[key] = sorted(reached, key=repr)
        return self._known[key]

    def _canonical(self, state: VotingState) -> VotingState:
        echoed = {ballot for ballot, _ in state.echoed}
        open_proposals = tuple(one for one in state.proposals if one[0] not in echoed)
        if not state.vote:
            return replace(state, proposals=open_proposals, echoes=tuple(sorted(state.echoes)))
        certified = tuple(sorted(one for one in state.echoes if one[0][1] == state.vote))
        return replace(state, proposals=open_proposals, echoes=certified, votes=(), decided=b"")

    def _lies(self, round_: int) -> Iterator[Told]:
        ballots = range(1, self.rules.ballots + 1)
        led = [ballot for ballot in ballots if self.rules.leader(ballot) == self.liar and 2 * ballot + 1 == round_]
        echoes = frozenset((self.liar, (ballot, name)) for ballot in ballots for name in self.names)
        for proposed, voted in itertools.product((None, *self.names) if led else (None,), (b"", *self.names)):
            proposals = () if proposed is None else tuple((ballot, proposed) for ballot in led)
            yield Told(proposals, echoes, voted)

    def _check(self, explored: Explored, joint: tuple[tuple[VotingState, frozenset[bytes]], ...]) -> None:
        possible = [name for name in self.names if sum(name in ever for _, ever in joint) + 1 >= self.rules.votes_needed]
        decided = {state.decided for state, _ in joint if state.decided}
        explored.split += len(possible) > 1 or len(decided) > 1
        explored.decisive += bool(possible)
        for ballot in range(1, self.rules.ballots + 1):
            certified = [
                name
                for name in self.names
                if sum((ballot, name) in state.echoed for state, _ in joint) + 1 >= self.rules.votes_needed
            ]
            explored.echoed += len(certified) > 1


# --- at random ----------------------------------------------------------------------------------------------------------------


@dataclass
class RandomRun:
    """One history: liars say random things, honest members leave for good, and messages are lost with chance ``loss``."""

    rules: VotingRules
    liars: frozenset[int]
    leaving: Mapping[int, int]
    loss: float
    random: random.Random
    make: MakeVoter = Voter
    restart: Callable[[VotingState], VotingState] = durable
    names: tuple[bytes, ...] = (b"A1", b"A2", b"B1")
    decisions: set[bytes] = field(default_factory=set)
    states: dict[int, VotingState] = field(default_factory=dict)

    def run(self) -> RandomRun:
        honest = [member for member in range(self.rules.members) if member not in self.liars]
        voters = {member: self.make(self.rules, member) for member in honest}
        self.states = {member: VotingState() for member in honest}
        known: set[tuple[int, Proposed]] = set()
        for round_ in range(LISTS, self.rules.rounds + 1):
            present = [member for member in honest if round_ < self.leaving.get(member, 10**9)]
            tellings = {member: told(self.rules, member, self.states[member]) for member in present}
            known |= {echo for message in tellings.values() for echo in message.echoes}
            for member in present:
                messages = {
                    other: message for other, message in tellings.items() if other != member and self.random.random() >= self.loss
                }
                messages |= {liar: self._lie(liar, round_, known) for liar in self.liars if self.random.random() < 0.8}
                before = self.states[member]
                state = self.restart(before) if self.random.random() < 0.2 else before
                name = self.random.choice(self.names)
                self.states[member] = voters[member].end_round(state, heard(messages), valid, lambda name=name: name)  # type: ignore[misc]
                if self.states[member].decided:
                    self.decisions.add(self.states[member].decided)
        return self

    def _lie(self, liar: int, round_: int, known: set[tuple[int, Proposed]]) -> Told:
        """It can also tell others' echoes, which are signed."""
        name, ballots = self.random.choice(self.names), range(1, self.rules.ballots + 1)
        led = [ballot for ballot in ballots if self.rules.leader(ballot) == liar and 2 * ballot + 1 <= round_]
        own = frozenset((one, (ballot, name)) for one in self.liars for ballot in ballots)
        return Told(tuple((ballot, name) for ballot in led), own | known, name if self.random.random() < 0.5 else b"")
