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
    FIRST_PROPOSAL,
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


def rules_of(members: int, colluding: int, ballots: int, leaders: Sequence[int], each: int = 5) -> VotingRules:
    return VotingRules(members, colluding, (members + colluding) // 2 + 1, ballots, tuple(leaders), each)


def durable(state: VotingState) -> VotingState:
    """What is left after a crash: all of it."""
    return load_state(VotingState, dump_state(state))


@dataclass(frozen=True, order=True)
class Told:
    """What one member tells in a round to one other; echoes and locks with whose they are."""

    proposals: tuple[Proposed, ...] = ()
    echoes: frozenset[tuple[int, Proposed]] = frozenset()
    locks: frozenset[tuple[int, Proposed]] = frozenset()
    vote: bytes = b""


def told(rules: VotingRules, member: int, state: VotingState) -> Told:
    """As in the machine: what it proposes and echoes, and what its last lock, its proposal and its vote stand on."""
    proposals = tuple(one for one in (state.proposal, max(state.echoed, default=None)) if one is not None)
    echoes = {(member, proposed) for proposed in state.echoed}
    locks = {(member, proposed) for proposed in state.locked}
    backed = state.proposal or max(state.locked, default=None)
    if backed and (certified := certificate(rules, state.echoes, backed[1])):
        echoes |= {(other, (certified[0], backed[1])) for other in certified[1]}
    if state.vote and (certified := certificate(rules, state.locks, state.vote)):
        locks |= {(other, (certified[0], state.vote)) for other in certified[1]}
    return Told(proposals, frozenset(echoes), frozenset(locks), state.vote)


def heard(messages: Mapping[int, Told]) -> HeardVotes:
    """As in the machine."""
    proposals: list[Proposed] = []
    echoes: dict[Proposed, int] = {}
    locks: dict[Proposed, int] = {}
    votes: dict[bytes, int] = {}
    for sender, message in sorted(messages.items()):
        proposals.extend(message.proposals)
        for masks, signed in ((echoes, message.echoes), (locks, message.locks)):
            for member, proposed in sorted(signed):
                masks[proposed] = masks.get(proposed, 0) | 1 << member
        if message.vote:
            votes[message.vote] = votes.get(message.vote, 0) | 1 << sender
    return HeardVotes(tuple(proposals), echoes, locks, votes)


def valid(digest: bytes) -> bool:
    return True


# --- wrong implementations ----------------------------------------------------------------------------------------------------


class SecondVote(Voter):
    """It votes anew once it knows of another choice with enough echoes, whatever it has signed before."""

    def end_round(self, state: VotingState, heard: HeardVotes, valid: Validity, propose: Propose) -> VotingState:
        following = super().end_round(state, heard, valid, propose)
        others = [
            digest
            for (_, digest), mask in following.echoes
            if digest != following.vote and int.from_bytes(mask, "little").bit_count() >= self._rules.votes_needed
        ]
        return replace(following, vote=others[0]) if others else following


class ForgetsItsLocks(Voter):
    """It echoes whatever is proposed, locked or not."""

    def _may_echo(self, state: VotingState, ballot: int, digest: bytes, echoes: Mapping[Proposed, int]) -> bool:
        return True


class LocksBelow(Voter):
    """It locks on what is certified although it has echoed something else in a later ballot."""

    def _locked(
        self, state: VotingState, echoed: tuple[Proposed, ...], echoes: Mapping[Proposed, int], valid: Validity
    ) -> tuple[Proposed, ...]:
        return tuple(dict.fromkeys((*state.locked, *sorted(self._certified(echoes)))))


class SecondEcho(Voter):
    """It echoes all valid proposals of a ballot."""

    def _echoed(
        self, state: VotingState, proposals: tuple[Proposed, ...], echoes: Mapping[Proposed, int], valid: Validity
    ) -> tuple[Proposed, ...]:
        return tuple(dict.fromkeys((*state.echoed, *proposals)))


class WithoutEchoes(Voter):
    """It votes for the first valid proposal that it knows, as if all had echoed it and were locked on it."""

    def _certified(self, told: Mapping[Proposed, int]) -> list[Proposed]:
        return sorted(told, reverse=True)


class VotesOnEchoes(Voter):
    """It votes for what has q echoes at once, as if an echo were a lock."""

    def _locked(
        self, state: VotingState, echoed: tuple[Proposed, ...], echoes: Mapping[Proposed, int], valid: Validity
    ) -> tuple[Proposed, ...]:
        return echoed

    def _may_echo(self, state: VotingState, ballot: int, digest: bytes, echoes: Mapping[Proposed, int]) -> bool:
        return True


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


def forgets_its_locks(state: VotingState) -> VotingState:
    """A wrong store: locks are told before they are on disk."""
    return replace(state, locked=())


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
        plain = replace(state, proposals=open_proposals, echoes=tuple(sorted(state.echoes)), locks=tuple(sorted(state.locks)))
        if not state.vote:
            return plain
        certified = tuple(one for one in plain.locks if one[0][1] == state.vote)
        return replace(plain, locks=certified, votes=(), decided=b"")

    def _lies(self, round_: int) -> Iterator[Told]:
        ballots = range(1, self.rules.ballots + 1)
        led = [
            ballot for ballot in ballots if self.rules.leader(ballot) == self.liar and self.rules.proposed_in(ballot) == round_
        ]
        echoes = frozenset((self.liar, (ballot, name)) for ballot in ballots for name in self.names)
        for proposed, voted in itertools.product((None, *self.names) if led else (None,), (b"", *self.names)):
            proposals = () if proposed is None else tuple((ballot, proposed) for ballot in led)
            yield Told(proposals, echoes, echoes, voted)

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
        # What q members may be locked on, the liar among them, can be voted for.
        votable = {
            name
            for name in self.names
            for ballot in range(1, self.rules.ballots + 1)
            if sum((ballot, name) in state.locked for state, _ in joint) + 1 >= self.rules.votes_needed
        }
        explored.split += len(votable) > 1


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
    tellings: dict[tuple[int, int], int] = field(default_factory=dict)
    talks: float = 0.8
    states: dict[int, VotingState] = field(default_factory=dict)

    def run(self) -> RandomRun:
        honest = [member for member in range(self.rules.members) if member not in self.liars]
        voters = {member: self.make(self.rules, member) for member in honest}
        self.states = {member: VotingState() for member in honest}
        known: set[tuple[int, Proposed]] = set()
        known_locks: set[tuple[int, Proposed]] = set()
        for round_ in range(LISTS, self.rules.rounds + 1):
            present = [member for member in honest if round_ < self.leaving.get(member, 10**9)]
            tellings = {member: told(self.rules, member, self.states[member]) for member in present}
            known |= {one for message in tellings.values() for one in message.echoes}
            known_locks |= {one for message in tellings.values() for one in message.locks}
            for member in present:
                messages = {
                    other: message for other, message in tellings.items() if other != member and self.random.random() >= self.loss
                }
                messages |= {
                    liar: self._lie(liar, round_, known, known_locks) for liar in self.liars if self.random.random() < 0.8
                }
                before = self.states[member]
                state = self.restart(before) if self.random.random() < 0.2 else before
                name = self.random.choice(self.names)
                self.states[member] = voters[member].end_round(state, heard(messages), valid, lambda name=name: name)  # type: ignore[misc]
                if self.states[member].decided:
                    self.decisions.add(self.states[member].decided)
        return self

    def _lie(self, liar: int, round_: int, known: set[tuple[int, Proposed]], locks: set[tuple[int, Proposed]]) -> Told:
        """It can also tell others' echoes and locks, which are signed."""
        name, ballots = self.random.choice(self.names), range(1, self.rules.ballots + 1)
        led = [ballot for ballot in ballots if self.rules.leader(ballot) == liar and self.rules.proposed_in(ballot) <= round_]
        own = frozenset((one, (ballot, name)) for one in self.liars for ballot in ballots)
        vote = name if self.random.random() < 0.5 else b""
        return Told(tuple((ballot, name) for ballot in led), own | known, own | locks, vote)


@dataclass
class SplittingLeader(RandomRun):
    """The first leader lies as well as it can: nearly q others echo one choice, the rest another, and no echo of a liar is told.

    When the second leader has proposed, half of the others are told the liars' echoes of the first choice: for them it is
    certified, and if they voted for it now, everybody else would vote for the second one.
    """

    talks: float = 1.0

    def _lie(self, liar: int, round_: int, known: set[tuple[int, Proposed]], locks: set[tuple[int, Proposed]]) -> Told:
        told_before = self.tellings.get((liar, round_), 0)
        self.tellings[liar, round_] = told_before + 1
        if round_ == FIRST_PROPOSAL and self.rules.leader(1) == liar:
            return Told(((1, b"B1" if told_before < len(self.liars) else b"A1"),))
        own = frozenset((one, (1, b"A1")) for one in self.liars)
        if round_ == self.rules.proposed_in(2) and told_before % 2:
            return Told((), own | known, own | locks, b"A1")
        return Told()
