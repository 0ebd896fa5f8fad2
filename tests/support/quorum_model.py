"""A model of the attempts to start a study: the real machines of honest parties, liars, and a network that does what it wants.

What was told once can be delivered at any later time, as often as it likes, or never. A machine only counts what it was told, so
that it is enough to deliver all that was told on an attempt up to some stage at once: whatever a party does after fewer messages
or messages in another order, it does in another history of the model, too.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from quietmean.core.errors import PeerError
from quietmean.node.session.settings import Opening, commitment_hash
from quietmean.node.start import Announcement, Attempt, Machine, Proposal, Rules, StartProgress, quorum_study

SESSION = "5" * 64
Place = tuple[int, frozenset[int]]
# How much of an announcement is delivered: that a party is there, its commitment, what it reveals, that it is bound.
STAGES = 4


@dataclass(frozen=True)
class Signer:
    """Signatures that only their party makes."""

    party: int

    def sign(self, content: bytes) -> bytes:
        return hashlib.sha256(b"%d " % self.party + content).digest()

    def verify(self, party: int, content: bytes, signature: bytes) -> bool:
        return Signer(party).sign(content) == signature


def secret(*labels: object) -> Opening:
    """Stands for what a party draws."""
    text = " ".join(map(str, labels)).encode()
    return Opening(hashlib.sha256(text).digest(), 1.0, b"x" * 32)


Make = Callable[[int, Rules, Callable[[], Opening]], Machine]


def honest(party: int, rules: Rules, fresh: Callable[[], Opening]) -> Machine:
    return Machine(party, rules, Signer(party), fresh)


def kept(progress: StartProgress) -> StartProgress:
    """What a party that died still knows: all of it."""
    return progress


def forged(liar: int, rules: Rules, proposal: Proposal, salt: str = "") -> Announcement:
    """All that a liar can say at a proposal. ``salt``: it may say different things to different parties."""
    own = secret("liar", liar, proposal.attempt, proposal.ordered, salt)
    commit = commitment_hash(quorum_study(rules.session, proposal), liar, own)
    return Announcement(proposal, commit, {liar: own}, bound=True)


def cut(announcement: Announcement, stage: int) -> Announcement:
    """What was told up to a stage."""
    return Announcement(
        announcement.proposal,
        announcement.commit if stage > 0 else b"",
        announcement.openings if stage > 1 else {},
        announcement.bound and stage > 2,
    )


@dataclass
class Broken(Exception):
    """A property that does not hold."""

    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True)
class Facts:
    """What one honest party ever did, by (attempt, members)."""

    accepted: frozenset[Place] = frozenset()
    committed: frozenset[Place] = frozenset()
    revealed: frozenset[tuple[bytes, Place]] = frozenset()
    bound: frozenset[Place] = frozenset()

    def after(self, progress: StartProgress, announcement: Announcement, party: int) -> Facts:
        if announcement.proposal is None:
            return self
        place = announcement.proposal.attempt, announcement.proposal.members
        nonce = announcement.openings[party].nonce if party in announcement.openings else None
        return Facts(
            self.accepted | {place},
            self.committed | {place} if announcement.commit else self.committed,
            self.revealed if nonce is None else self.revealed | {(nonce, place)},
            self.bound | {place} if progress.bound else self.bound,
        )


def check(facts: dict[int, Facts], rules: Rules, liars: frozenset[int]) -> None:
    """Raises :class:`Broken` unless all properties hold. ``facts``: of the honest parties."""
    for party, own in facts.items():
        if len(own.bound) > 1:
            raise Broken(f"party {party} is bound twice")
        if len({attempt for attempt, _ in own.accepted}) < len(own.accepted):
            raise Broken(f"party {party} accepted two proposals of one attempt")
        if len({nonce for nonce, _ in own.revealed}) < len(own.revealed):
            raise Broken(f"party {party} revealed one nonce in two attempts")
        _check_others(party, own, facts, rules)
    places = {place for own in facts.values() for place in own.bound}
    results = 0
    for place in places:
        dealers = {party for party, own in facts.items() if place in own.bound} | (liars & place[1])
        results += len(dealers) >= rules.least_result
    if results > 1:
        raise Broken("two results of one session")


def _check_others(party: int, own: Facts, facts: dict[int, Facts], rules: Rules) -> None:
    for place in own.committed:
        # Where a study starts with all or not at all, the set is the only one: nobody needs to hear that the others have it.
        if not rules.for_all and any(place not in facts[other].accepted for other in place[1] & facts.keys()):
            raise Broken(f"party {party} committed before all had accepted")
    for _, place in own.revealed:
        if any(place not in facts[other].committed for other in place[1] & facts.keys()):
            raise Broken(f"party {party} revealed before all had committed")
    for place in own.bound:
        if any(place not in {each for _, each in facts[other].revealed} for other in place[1] & facts.keys()):
            raise Broken(f"party {party} is bound before all had revealed")


# --- all histories ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Local:
    """An honest party: where it is, the fullest that it told in each place, what it did."""

    progress: StartProgress = field(default_factory=StartProgress)
    told: tuple[tuple[Place, Announcement], ...] = ()
    facts: Facts = field(default_factory=Facts)


class Exhaustive:
    """All histories of a few parties with one liar and so many attempts.

    A liar may say everything everywhere, so it is not a part of the state. A party in an attempt gets on only when it was told
    enough by all members; what it does with less is tested on random histories.
    """

    def __init__(
        self,
        rules: Rules,
        liar: int,
        attempts: int,
        make: Make = honest,
        after_crash: Callable[[StartProgress], StartProgress] = kept,
    ) -> None:
        self.rules, self.liar = rules, liar
        self.parties = [party for party in range(rules.parties) if party != liar]
        self._after_crash = after_crash
        self._coming = secret("none")
        self.machines = {party: make(party, rules, lambda: self._coming) for party in self.parties}
        sets = [
            frozenset(chosen)
            for size in range(rules.start_quorum, rules.parties + 1)
            for chosen in itertools.combinations(range(rules.parties), size)
        ]
        self.places: list[Place] = [(attempt, chosen) for attempt in range(1, attempts + 1) for chosen in sets]
        # For each place: the indices of its honest parties, and whether the liar can begin it.
        self._inside = [[index for index, party in enumerate(self.parties) if party in chosen] for _, chosen in self.places]
        self._forgeable = [rules.convener(attempt) == liar and liar in chosen for attempt, chosen in self.places]
        self._conveners = [rules.convener(attempt) for attempt, _ in self.places]
        # For each party and place in which it is: the number of the place, and the indices of the honest others there.
        self._others = [
            [
                (number, [other for other in self._inside[number] if other != index])
                for number, (_, chosen) in enumerate(self.places)
                if party in chosen
            ]
            for index, party in enumerate(self.parties)
        ]
        self._ids: dict[object, int] = {}
        self._locals: list[_Local] = []
        # Of each: how far it told in each place, from 0 (nothing) to 4 (that it is bound).
        self._levels: list[tuple[int, ...]] = []
        # Of each: what it told in each place, as a number.
        self._told: list[tuple[int, ...]] = []
        self._tellings: dict[object, int] = {}
        self._moves: dict[object, int] = {}
        self._checked: set[object] = set()

    def explore(self) -> int:
        """The number of states. Raises :class:`Broken` where a property does not hold."""
        start = tuple(self._intern(party, _Local()) for party in self.parties)
        seen, waiting = {start}, [start]
        while waiting:
            state = waiting.pop()
            for following in self._following(state):
                if following not in seen:
                    seen.add(following)
                    self._check(following)
                    waiting.append(following)
        return len(seen)

    def bindings(self) -> set[Place]:
        """Where anybody was bound in any history."""
        return {place for local in self._locals for place in local.facts.bound}

    def _check(self, state: tuple[int, ...]) -> None:
        facts = tuple(self._locals[one].facts for one in state)
        if facts not in self._checked:
            self._checked.add(facts)
            check(dict(zip(self.parties, facts, strict=True)), self.rules, frozenset({self.liar}))

    def _following(self, state: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        levels = [self._levels[one] for one in state]
        for index, party in enumerate(self.parties):
            local = state[index]
            found = {self._crashed(party, local), self._begun(party, local)}
            for number, others in self._others[index]:
                place = self.places[number]
                if self._conveners[number] == party:
                    found.add(self._proposed(party, local, place))
                reached = [levels[other][number] for other in others]
                if self._forgeable[number] or any(reached):
                    # That somebody is there: the convener itself, if it can be.
                    told = [other for other in others if levels[other][number]]
                    first = [other for other in told if self.parties[other] == self._conveners[number]] or told
                    found.add(self._heard(state, index, number, tuple(first[:1]), 0, self._forgeable[number]))
                for stage in range(min(reached, default=3)):
                    found.add(self._heard(state, index, number, tuple(others), stage, self.liar in place[1]))
                for other in others:
                    if levels[other][number] == STAGES:
                        found.add(self._heard(state, index, number, (other,), 3, False))
            for one in found:
                if one != local:
                    yield (*state[:index], one, *state[index + 1 :])

    def _heard(self, state: tuple[int, ...], index: int, number: int, tellers: tuple[int, ...], stage: int, lies: bool) -> int:
        """A party hears some others and perhaps the liar, which never says that it is bound: that only keeps others waiting."""
        key = (state[index], number, tuple(self._told[state[teller]][number] for teller in tellers), tellers, stage, lies)
        found = self._moves.get(key)
        if found is None:
            party, place = self.parties[index], self.places[number]
            said = [(self.parties[teller], dict(self._locals[state[teller]].told)[place]) for teller in tellers]
            if lies:
                proposal = Proposal.signed(self.rules.session, *place, Signer(self.rules.convener(place[0])))
                said.insert(0, (self.liar, forged(self.liar, self.rules, proposal)))
            progress = self._locals[state[index]].progress
            self._coming = secret(party, *place)
            for sender, announcement in said:
                progress = self.machines[party].receive(progress, sender, cut(announcement, stage))
            # Who has all that was revealed can only stay.
            found = self._moves[key] = self._moved(party, state[index], self.machines[party].bind(progress))
        return found

    def _begun(self, party: int, local: int) -> int:
        """Of a study that waits for all: its process is started."""
        key = ("begin", local)
        if key not in self._moves:
            self._coming = secret(party, *self.places[0])
            self._moves[key] = self._moved(party, local, self.machines[party].begin(self._locals[local].progress))
        return self._moves[key]

    def _proposed(self, party: int, local: int, place: Place) -> int:
        key = ("propose", local, place)
        if key not in self._moves:
            self._coming = secret(party, *place)
            progress = self.machines[party].propose(self._locals[local].progress, *place)
            self._moves[key] = self._moved(party, local, progress)
        return self._moves[key]

    def _crashed(self, party: int, local: int) -> int:
        key = ("crash", local)
        if key not in self._moves:
            self._moves[key] = self._moved(party, local, self._after_crash(self._locals[local].progress))
        return self._moves[key]

    def _moved(self, party: int, local: int, progress: StartProgress) -> int:
        before = self._locals[local]
        announcement = self.machines[party].announce(progress)
        told = dict(before.told)
        if announcement.proposal is not None:
            place = announcement.proposal.attempt, announcement.proposal.members
            told[place] = max(told.get(place, announcement), announcement, key=lambda one: _level(one, party))
        ordered = tuple(sorted(told.items(), key=lambda one: (one[0][0], sorted(one[0][1]))))
        return self._intern(party, _Local(progress, ordered, before.facts.after(progress, announcement, party)))

    def _intern(self, party: int, local: _Local) -> int:
        told = tuple((place, _told_key(one)) for place, one in local.told)
        key = (party, _key(local.progress), told, local.facts)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._locals)
            self._locals.append(local)
            places = dict(local.told)
            numbers = {place: self._tellings.setdefault(one, len(self._tellings)) for place, one in told}
            self._told.append(tuple(numbers.get(place, -1) for place in self.places))
            self._levels.append(tuple(_level(places[place], party) if place in places else 0 for place in self.places))
        return found


def _level(announcement: Announcement, party: int) -> int:
    if announcement.bound:
        return STAGES
    return 3 if party in announcement.openings else 2 if announcement.commit else 1


def _key(progress: StartProgress) -> object:
    attempt = progress.attempt
    inside = None if attempt is None else _attempt_key(attempt)
    return inside, progress.bound, progress.never


def _attempt_key(attempt: Attempt) -> object:
    return (
        attempt.proposal.attempt,
        attempt.members,
        attempt.own.nonce,
        attempt.agreed,
        frozenset(attempt.commits.items()),
        frozenset((party, opening.nonce) for party, opening in attempt.openings.items()),
        attempt.bound_there,
    )


def _told_key(announcement: Announcement) -> object:
    return announcement.commit, frozenset((party, one.nonce) for party, one in announcement.openings.items()), announcement.bound


# --- some histories of many parties ----------------------------------------------------------------------------------


@dataclass
class Random:
    """One random history: equivocating conveners, liars who say everything, losses, doubles, crashes."""

    rules: Rules
    liars: frozenset[int]
    rng: random.Random
    make: Make = honest
    after_crash: Callable[[StartProgress], StartProgress] = kept

    def __post_init__(self) -> None:
        self.draws = itertools.count()
        parties = range(self.rules.parties)
        self.machines = {
            party: self.make(party, self.rules, lambda party=party: secret(party, next(self.draws)))  # type: ignore[misc]
            for party in parties
            if party not in self.liars
        }
        self.standings = dict.fromkeys(self.machines, StartProgress())
        self.facts = dict.fromkeys(self.machines, Facts())
        # All that was told and can be delivered: (sender, receiver, announcement).
        self.air: list[tuple[int, int, Announcement]] = []
        self.known: dict[Place, Proposal] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            check(self.facts, self.rules, self.liars)

    def _step(self) -> None:
        rng, party = self.rng, self.rng.choice(sorted(self.machines))
        what = rng.random()
        if what < 0.01:
            self._propose()
        elif what < 0.03 and self.liars:
            self._lie()
        elif what < 0.05:
            self._set(party, self.after_crash(self.standings[party]))
        elif what < 0.09:
            self._set(party, self.machines[party].bind(self.standings[party]))
        elif what < 0.3:
            # A process that is started begins, where there is one attempt.
            self._set(party, self.machines[party].begin(self.standings[party]))
            self._tell_all(party)
        elif self.air:
            self._deliver()

    def _propose(self) -> None:
        """The convener of the next attempt, or of an earlier one, if it is honest: with itself and random others."""
        attempt = self.rng.randint(1, 1 + max(progress.latest for progress in self.standings.values()) % 10)
        convener = self.rules.convener(attempt)
        if convener in self.machines:
            members = self._members({convener})
            self._set(convener, self.machines[convener].propose(self.standings[convener], attempt, members))
            self._tell_all(convener)

    def _members(self, among: set[int]) -> frozenset[int]:
        others = [party for party in range(self.rules.parties) if party not in among]
        count = self.rng.randint(self.rules.start_quorum, self.rules.parties) - len(among)
        return frozenset(among | set(self.rng.sample(others, max(count, 0))))

    def _lie(self) -> None:
        """A liar signs another set where it is convener, and says everything in every place that it knows of."""
        liar = self.rng.choice(sorted(self.liars))
        attempts = [attempt for attempt in range(1, 11) if self.rules.convener(attempt) in self.liars]
        if attempts and self.rng.random() < 0.7:
            attempt = self.rng.choice(attempts)
            signer = Signer(self.rules.convener(attempt))
            proposal = Proposal.signed(self.rules.session, attempt, self._members({liar}), signer)
            self.known[attempt, proposal.members] = proposal
        for proposal in list(self.known.values())[-6:]:
            for member in proposal.members & self.liars:
                for receiver in proposal.members & self.machines.keys():
                    told = forged(member, self.rules, proposal, self.rng.choice(["", "", "other"]))
                    if self.rng.random() < 0.1:
                        # It reveals something else than it committed to.
                        told = replace(told, openings={member: secret("liar", member, "another")})
                    stage = self.rng.choice([0, 1, 2, 2, 2, 3])
                    self.air.append((member, receiver, cut(told, stage)))

    def _tell_all(self, party: int) -> None:
        announcement = self.machines[party].announce(self.standings[party])
        if announcement.proposal is None:
            return
        self.known[announcement.proposal.attempt, announcement.proposal.members] = announcement.proposal
        self.air += [(party, other, announcement) for other in self.machines if other != party and self.rng.random() < 0.8]

    def _deliver(self) -> None:
        """What was told lately, or anything that was ever told; some of it stays and comes again, some is lost."""
        recent = self.rng.random() < 0.8
        index = self.rng.randrange(max(0, len(self.air) - 30), len(self.air)) if recent else self.rng.randrange(len(self.air))
        sender, receiver, announcement = self.air[index] if self.rng.random() < 0.3 else self.air.pop(index)
        before = self.standings[receiver]
        try:
            self._set(receiver, self.machines[receiver].receive(before, sender, announcement))
        except PeerError:
            if sender not in self.liars:
                raise Broken(f"party {receiver} takes party {sender} for a liar") from None
        if before != self.standings[receiver] and self.rng.random() < 0.5:
            self._tell_all(receiver)

    def _set(self, party: int, progress: StartProgress) -> None:
        self.standings[party] = progress
        self._check_openings(party, progress.attempt)
        self.facts[party] = self.facts[party].after(progress, self.machines[party].announce(progress), party)

    def _check_openings(self, party: int, attempt: Attempt | None) -> None:
        """Whatever a party has for what another one revealed is what that one committed to."""
        if attempt is None:
            return
        study = quorum_study(self.rules.session, attempt.proposal)
        for other, opening in attempt.openings.items():
            if commitment_hash(study, other, opening) != attempt.commits.get(other):
                raise Broken(f"party {party} has something else of party {other} than that committed to")


def forgetting(progress: StartProgress) -> StartProgress:
    """After a crash of a party that keeps nothing but that it was bound."""
    return progress if progress.bound else StartProgress()


def unbound(progress: StartProgress) -> StartProgress:
    """After a crash of a party that forgets that it was bound, and in which attempt."""
    return StartProgress() if progress.bound else replace(progress)
