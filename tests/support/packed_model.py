"""A model of the members of packed sharing: what of the others' messages arrives is chosen, all else is the real code.

Members run as in the machines (``member.py``, ``ballots.py``), their states through the same bytes as in a store. Liars say
anything, to each member something else.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quietmean.core.codec import dump_state, load_state
from quietmean.core.party import PartyId
from quietmean.protocols.packed_sharing.ballots import (
    FIRST_PROPOSAL,
    FIRST_VOTES,
    STATUS,
    BallotProposal,
    BallotRules,
    CommitteeMember,
    Heard,
    MemberState,
    PartyMask,
    decided,
    is_unpublished,
    leads,
    unpack,
)

# A member each, by number.
Joint = tuple[int, ...]
Restart = Callable[[MemberState], MemberState]


def rules_of(parties: int, liars: int, gone: int, least: int, secrets: int = 1, ballots: int = 3) -> BallotRules:
    """Everybody is a member, with the quorum of the protocol."""
    return BallotRules(parties, liars, secrets, (parties + liars) // 2 + 1, least, gone, 0, ballots)


@functools.lru_cache(200_000)
def durable(state: MemberState) -> MemberState:
    """What is left after a crash: all of it."""
    return load_state(MemberState, dump_state(state))


def forgets_its_vote(state: MemberState) -> MemberState:
    """A wrong implementation: the vote is told before it is on disk."""
    if state.vote is None or state.decided:
        return state
    return replace(state, vote=None, votes=())


class SecondVote(CommitteeMember):
    """A wrong implementation: a new leader's proposal gets a new vote."""

    def end_round(self, state: MemberState, heard: Heard) -> MemberState:
        if state.vote is not None and heard.proposal is not None and not state.decided:
            own = 1 << self._number
            left = ((proposal, unpack(voters) & ~own) for proposal, voters in state.votes)
            votes = tuple((proposal, self._rules.pack(voters)) for proposal, voters in left if voters)
            voted = super().end_round(replace(state, vote=None, votes=()), replace(heard, votes={}))
            return super().end_round(replace(state, vote=voted.vote, votes=votes), heard)
        return super().end_round(state, heard)


class VotesWhenItProposes(CommitteeMember):
    """A wrong implementation: the leader's proposal is its vote, whether or not anybody hears of it."""

    def end_round(self, state: MemberState, heard: Heard) -> MemberState:
        following = super().end_round(state, heard)
        if following.proposal is None:
            return following
        own = ((following.proposal, self._rules.pack(1 << self._number)),)
        return replace(following, vote=following.proposal, votes=own)


@dataclass(frozen=True)
class Told:
    """What one member tells in a round, to whoever it reaches."""

    holds: PartyMask | None = None
    vote: BallotProposal | None = None
    proposal: BallotProposal | None = None


def told(state: MemberState, round_: int) -> Told:
    """As in the machine."""
    if round_ == FIRST_PROPOSAL:
        return Told(proposal=state.proposal)
    holds = None if state.decided else unpack(state.holds)
    return Told(holds, state.vote if round_ >= FIRST_VOTES else None, state.proposal)


def heard(messages: Mapping[PartyId, Told], leader: PartyId | None, reached: bool) -> Heard:
    """As in the machine."""
    votes: dict[BallotProposal, PartyMask] = {}
    for sender, message in messages.items():
        if message.vote is not None:
            votes[message.vote] = votes.get(message.vote, 0) | 1 << sender
    holds = {sender: message.holds for sender, message in messages.items() if message.holds is not None}
    proposal = messages[leader].proposal if leader is not None and leader in messages else None
    return Heard(holds, votes, proposal, reached)


# --- all of it ----------------------------------------------------------------------------------------------------------------


@dataclass
class Explored:
    """``states``: different joint states of the honest members. ``split``: how many in which two sets may be decided.

    ``decisive``: how many in which one set may be. ``choices``: what the members could do next, over all states.
    """

    states: int = 0
    split: int = 0
    decisive: int = 0
    choices: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A member in the exhaustive model: its state, and the sets that it has ever told a vote for.

    A member that has voted never votes again, and what it hears decides for it alone: so that is left out of its state. Instead a
    set counts as decided as soon as so many members ever voted for it that somebody may hear of enough votes.
    """

    state: MemberState
    told: frozenset[bytes] = frozenset()


class _Numbers:
    """Members by small numbers, which are compared faster. A liar is None."""

    def __init__(self) -> None:
        self.known: list[Known | None] = []
        self._numbers: dict[Known | None, int] = {}

    def of(self, known: Known | None) -> int:
        if known not in self._numbers:
            self._numbers[known] = len(self.known)
            self.known.append(known)
        return self._numbers[known]


@dataclass(frozen=True)
class Model:
    """``holds``: of each member after dealing. ``liar``: who lies, if anybody. ``candidates``: sets that the liar names."""

    rules: BallotRules
    leaders: tuple[PartyId, ...]
    holds: tuple[PartyMask, ...]
    liar: PartyId | None = None
    candidates: tuple[PartyMask, ...] = ()
    kind: type[CommitteeMember] = CommitteeMember
    restart: Restart = durable

    def explore(self) -> Explored:
        """Every choice of what arrives where, of who misses a round or restarts, and of what the liar says."""
        members = [self.kind(self.rules, self.leaders, party) for party in range(self.rules.parties)]
        found, numbers = Explored(), _Numbers()
        layer = {self._first(members, numbers)}
        for round_ in range(STATUS, self.rules.last_voting_round + 1):
            following: set[Joint] = set()
            memory: dict[Any, list[int]] = {}
            for joint in layer:
                options = self._options(members, [numbers.known[one] for one in joint], round_, memory, numbers)
                found.choices += math.prod(map(len, options))
                following.update(itertools.product(*options))
            layer = following
            for joint in layer:
                self._check([numbers.known[one] for one in joint], found)
        return found

    def _first(self, members: Sequence[CommitteeMember], numbers: _Numbers) -> Joint:
        return tuple(
            numbers.of(None if party == self.liar else Known(member.after_dealing(member.start(), self.holds[party])))
            for party, member in enumerate(members)
        )

    def _options(
        self,
        members: Sequence[CommitteeMember],
        joint: Sequence[Known | None],
        round_: int,
        memory: dict[Any, list[int]],
        numbers: _Numbers,
    ) -> list[list[int]]:
        said = {party: told(known.state, round_) for party, known in enumerate(joint) if known is not None}
        options = []
        for party, known in enumerate(joint):
            key = (party, known, *said.items())
            if key not in memory:
                after = {None} if known is None else self._after(members[party], party, known, said, round_)
                memory[key] = [numbers.of(one) for one in after]
            options.append(memory[key])
        return options

    def _after(
        self, member: CommitteeMember, party: PartyId, known: Known, said: Mapping[PartyId, Told], round_: int
    ) -> set[Known | None]:
        state, before = known.state, known.told
        if round_ >= FIRST_VOTES and state.vote is not None:
            before |= {state.vote.inputs}
        leader = member.leader(round_)
        senders = [other for other in said if other != party and (round_ != FIRST_PROPOSAL or other == leader)]
        after = {self.restart(member.miss_round(state))}
        for chosen in _subsets(senders):
            honest = {other: said[other] for other in chosen}
            for lie in self._lies(said, round_):
                messages = honest if lie is None or self.liar is None else honest | {self.liar: lie}
                # A proposal of its own has reached somebody or nobody.
                for reached in (False, True) if state.proposal is not None else (False,):
                    following = member.end_round(state, heard(messages, leader, reached))
                    after |= {durable(following), self.restart(following)}
        return {Known(self._essence(one), before) for one in after}

    def _essence(self, state: MemberState) -> MemberState:
        assert state.vote is not None or not (state.votes or state.decided), "who knows of a valid vote has voted"
        nothing = self.rules.pack(0)
        if state.vote is None:
            return replace(state, abstained=nothing)
        return replace(state, votes=(), decided=b"", proposal=None, abstained=nothing, holds=nothing)

    def _lies(self, said: Mapping[PartyId, Told], round_: int) -> list[Told | None]:
        """Silence, and the votes and proposals that can matter: for what is known, and for each of the candidates."""
        if self.liar is None:
            return [None]
        everybody = self.rules.pack((1 << self.rules.parties) - 1)
        made = [BallotProposal(1, self.rules.pack(inputs), everybody) for inputs in self.candidates]
        known = {one for message in said.values() for one in (message.vote, message.proposal) if one is not None}
        ballot = leads(self.rules, round_)
        mine = self.leaders[(ballot - 1) % len(self.leaders)] == self.liar if ballot else False
        proposals = [replace(one, ballot=ballot) for one in made] if mine else []
        if round_ == FIRST_PROPOSAL:
            return [None, *(Told(proposal=one) for one in proposals)]
        full = (1 << self.rules.parties) - 1
        if round_ == STATUS:
            return [None, Told(full)]
        votes = [Told(full, vote) for vote in sorted(known | set(made))]
        return [None, Told(full), *votes, *(Told(full, None, one) for one in proposals)]

    def _check(self, joint: Sequence[Known | None], found: Explored) -> None:
        voters: dict[bytes, PartyMask] = {}
        for party, known in enumerate(joint):
            if known is None:
                continue
            vote = known.state.vote
            for inputs in known.told | ({vote.inputs} if vote is not None else set()):
                assert unpack(inputs).bit_count() >= self.rules.least
                voters[inputs] = voters.get(inputs, 0) | 1 << party
        liars = 0 if self.liar is None else 1 << self.liar
        everybody = self.rules.pack((1 << self.rules.parties) - 1)
        sets = [
            inputs for inputs, mask in voters.items() if decided(self.rules, {BallotProposal(1, inputs, everybody): mask | liars})
        ]
        found.states += 1
        found.decisive += bool(sets)
        found.split += len(sets) > 1


def _subsets(parties: Sequence[PartyId]) -> Iterator[tuple[PartyId, ...]]:
    for count in range(len(parties) + 1):
        yield from itertools.combinations(parties, count)


# --- at random ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weather:
    """Chances: that a message is lost, that a member misses a round, and that it restarts in it."""

    loss: float = 0.2
    away: float = 0.1
    restarts: float = 0.1


@dataclass(frozen=True)
class Ended:
    """``decided``: the sets, of honest members. ``undecided``: honest members that stayed and know of none.

    ``published``: whether an honest member that holds all shares decided; ``refunded``: who has proof that nobody did.
    """

    decided: frozenset[bytes]
    undecided: tuple[PartyId, ...]
    published: bool
    refunded: tuple[PartyId, ...]


class RandomRun:
    """One run with ``liars`` that say anything, and ``dying`` members that are gone for good from a round on."""

    def __init__(
        self,
        rules: BallotRules,
        seed: int,
        liars: int,
        dying: Mapping[PartyId, int],
        weather: Weather,
        kind: type[CommitteeMember] = CommitteeMember,
        restart: Restart = durable,
    ) -> None:
        self._rules = rules
        self._chance = random.Random(seed)
        self._weather = weather
        self._restart = restart
        self._dying = dying
        order = list(range(rules.parties))
        self._chance.shuffle(order)
        self.leaders = tuple(order)
        self._liars = frozenset(self._chance.sample(order, liars))
        self._members = [kind(rules, self.leaders, party) for party in range(rules.parties)]
        self._seen: list[BallotProposal] = []

    def run(self) -> Ended:
        states = [self._dealt(party) for party in range(self._rules.parties)]
        for round_ in range(STATUS, self._rules.rounds + 1):
            states = self._round(states, round_)
        honest = [party for party in range(self._rules.parties) if party not in self._liars]
        staying = [party for party in honest if party not in self._dying]
        decided = frozenset(states[party].decided for party in honest if states[party].decided)
        return Ended(
            decided,
            tuple(party for party in staying if not states[party].decided),
            bool(decided),
            tuple(party for party in staying if is_unpublished(self._rules, states[party])),
        )

    def _dealt(self, party: PartyId) -> MemberState:
        arrived = 0
        for dealer in range(self._rules.parties):
            if dealer not in self._dying or self._dying[dealer] > 1 or self._chance.random() < 0.5:
                arrived |= (self._chance.random() >= self._weather.loss / 4) << dealer
        member = self._members[party]
        return member.after_dealing(member.start(), arrived)

    def _round(self, states: Sequence[MemberState], round_: int) -> list[MemberState]:
        said = {party: told(state, round_) for party, state in enumerate(states)}
        self._seen += [one for message in said.values() for one in (message.vote, message.proposal) if one is not None]
        away = {party for party in range(self._rules.parties) if self._is_away(party, round_)}
        inboxes: list[dict[PartyId, Told]] = [{} for _ in states]
        reached = set()
        for sender, receiver in itertools.permutations(range(self._rules.parties), 2):
            if {sender, receiver} & away or not self._arrives(sender, round_):
                continue
            leads_now = self._members[0].leader(round_) == sender
            if round_ != FIRST_PROPOSAL or leads_now:
                lie = sender in self._liars
                inboxes[receiver][sender] = self._lie(round_, leads_now) if lie else said[sender]
                reached.add(sender)
        return [
            self._end(party, state, inboxes[party], party in away, party in reached, round_) for party, state in enumerate(states)
        ]

    def _end(
        self, party: PartyId, state: MemberState, inbox: Mapping[PartyId, Told], away: bool, reached: bool, round_: int
    ) -> MemberState:
        member = self._members[party]
        following = member.miss_round(state) if away else member.end_round(state, heard(inbox, member.leader(round_), reached))
        return self._restart(following) if self._chance.random() < self._weather.restarts else following

    def _is_away(self, party: PartyId, round_: int) -> bool:
        return self._chance.random() < self._weather.away or self._dying.get(party, round_) < round_

    def _arrives(self, sender: PartyId, round_: int) -> bool:
        # In its last round, a dying member reaches some of the others.
        loss = 0.5 if self._dying.get(sender) == round_ else self._weather.loss
        return self._chance.random() >= loss

    def _lie(self, round_: int, leads_now: bool) -> Told:
        chance, rules = self._chance, self._rules
        full = (1 << rules.parties) - 1
        vote = chance.choice(self._seen) if self._seen and chance.random() < 0.7 else None
        if chance.random() < 0.3:
            left_out = 1 << chance.randrange(rules.parties)
            # Also invalid ones: too few inputs, too few members.
            inputs = chance.choice([full & ~left_out, full, left_out])
            members = chance.choice([full, left_out])
            vote = BallotProposal(chance.randint(1, rules.ballots), rules.pack(inputs), rules.pack(members))
        proposal = None
        if leads_now and chance.random() < 0.9:
            inputs = full & ~(1 << chance.randrange(rules.parties))
            proposal = BallotProposal(leads(rules, round_), rules.pack(inputs), rules.pack(full))
        if round_ == FIRST_PROPOSAL:
            return Told(proposal=proposal)
        return Told(full, vote if round_ >= FIRST_VOTES else None, proposal)


def dying_at_random(rules: BallotRules, seed: int, count: int) -> dict[PartyId, int]:
    """Who is gone for good, from which round on."""
    chance = random.Random(seed)
    return {party: chance.randint(1, rules.rounds) for party in chance.sample(range(rules.parties), count)}
