"""Who is in: all histories of a few parties and random ones of more, with the wrong machines that they find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from quietmean.core.errors import InputError, PeerError
from quietmean.core.growing import GrowingMap
from quietmean.core.limits import least_minimum
from quietmean.node.session.settings import Opening
from quietmean.node.start import (
    Announcement,
    Attempt,
    Machine,
    Proposal,
    Rules,
    StartProgress,
)
from support.quorum_model import (
    SESSION,
    Broken,
    Exhaustive,
    Make,
    Random,
    Signer,
    cut,
    forged,
    forgetting,
    honest,
    kept,
    secret,
    unbound,
)

FOUR = Rules(SESSION, (0, 1, 2, 3), colluding=1, start_quorum=3, least_result=3)
# A study that waits for all: by the same machine.
ALL = Rules(SESSION, (0, 1, 2, 3), colluding=1, start_quorum=4, least_result=3)


class NewestWins(Machine):
    """Takes every proposal that comes, the last one wins."""

    def _may_move(self, progress: StartProgress, proposal: Proposal) -> bool:
        return progress.free


class AsOftenAsAsked(Machine):
    """Takes several proposals of one attempt."""

    def _may_move(self, progress: StartProgress, proposal: Proposal) -> bool:
        return progress.free and proposal.attempt >= progress.latest


class ThroughTheConvener(Machine):
    """Believes the attempt's convener that all have accepted."""

    def _agreed(self, attempt: Attempt, sender: int) -> frozenset[int]:
        convener = self.rules.convener(attempt.proposal.attempt)
        return attempt.members if sender == convener else super()._agreed(attempt, sender)


class NonceKept(Machine):
    """Has one nonce for all attempts."""

    def _own(self, progress: StartProgress) -> Opening:
        return super()._own(progress) if progress.attempt is None else progress.attempt.own


class MovesAfterBound(Machine):
    """Goes on to a later attempt though it is bound."""

    def _may_move(self, progress: StartProgress, proposal: Proposal) -> bool:
        return super()._may_move(replace(progress, bound=False, attempt=_open(progress)), proposal)


class BoundByAccepting(Machine):
    """A proposal that is checked is enough."""

    def bind(self, progress: StartProgress) -> StartProgress:
        return progress if progress.attempt is None else replace(progress, bound=True)


class RevealsAtOnce(Machine):
    """Reveals as soon as it has committed."""

    def announce(self, progress: StartProgress) -> Announcement:
        announcement, attempt = super().announce(progress), progress.attempt
        if attempt is None or not announcement.commit or announcement.openings:
            return announcement
        return replace(announcement, openings={self.party: attempt.own})


class BelievesEveryOpening(Machine):
    """Takes what is revealed for what was committed to."""

    def _noted(self, attempt: Attempt, sender: int, announcement: Announcement) -> Attempt:
        found = super()._noted(attempt, sender, replace(announcement, openings={}))
        openings = GrowingMap({**announcement.openings, **found.openings}) if found.all_committed else found.openings
        return replace(found, openings=openings)


def _open(progress: StartProgress) -> Attempt | None:
    return None if progress.attempt is None else replace(progress.attempt, openings=GrowingMap(), bound_there=frozenset())


@dataclass(frozen=True)
class UnsafeRules(Rules):
    """Lets two sets be large enough though only colluders may be in both."""

    @property
    def least(self) -> int:
        return (self.parties + self.colluding) // 2


def made(kind: type[Machine]) -> Make:
    def make(party: int, rules: Rules, fresh: Callable[[], Opening]) -> Machine:
        return kind(party, rules, Signer(party), fresh)

    return make


TOO_FEW = UnsafeRules(SESSION, (0, 1, 2, 3), colluding=1, start_quorum=2, least_result=2)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "newest proposal wins": ({"make": made(NewestWins)}, "two proposals of one attempt|bound twice"),
    "two proposals an attempt": ({"make": made(AsOftenAsAsked)}, "two proposals of one attempt"),
    "echo through the convener": ({"make": made(ThroughTheConvener)}, "before all had accepted"),
    "nonce kept": ({"make": made(NonceKept)}, "one nonce in two attempts"),
    "move after bound": ({"make": made(MovesAfterBound)}, "bound twice"),
    "reveals at once": ({"make": made(RevealsAtOnce)}, "revealed before all had committed"),
    "accepted is bound": ({"make": made(BoundByAccepting)}, "bound before|before all had"),
    "acceptance forgotten in a crash": ({"after_crash": forgetting}, "two proposals of one attempt|one nonce|before all"),
    "bound forgotten in a crash": ({"after_crash": unbound}, "bound twice|two proposals of one attempt"),
    "minimum of (n + c) / 2": ({"rules": TOO_FEW}, "two results"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("liar", [0, 1, 2])
def test_no_history_of_four_parties_and_two_attempts_is_unsafe(liar: int) -> None:
    model = Exhaustive(FOUR, liar, attempts=2)
    assert model.explore() > 5000
    # The histories do come to an end, in both attempts and in every set in which the liar may sit or not.
    assert {attempt for attempt, _ in model.bindings()} == {1, 2}
    assert {liar in members for _, members in model.bindings()} == {True, False}


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_no_history_of_a_study_that_waits_for_all_is_unsafe(parties: int) -> None:
    rules = Rules(SESSION, tuple(range(parties)), 0 if parties < 3 else 1, parties, least_minimum(parties, parties > 2))
    for liar in range(parties):
        model = Exhaustive(rules, liar, attempts=1)
        # At the least: all wait, each has heard that all committed, and each is bound.
        assert model.explore() >= 3 ** (parties - 1)
        assert model.bindings() == {(1, frozenset(range(parties)))}


# What can go wrong where there is one attempt.
WRONG_FOR_ALL = {
    "reveals at once": ({"make": made(RevealsAtOnce)}, "revealed before all had committed"),
    "accepted is bound": ({"make": made(BoundByAccepting)}, "bound before"),
}


def test_openings_that_are_believed_are_found() -> None:
    with pytest.raises(Broken, match="than that committed to"):
        histories(range(300), 600, made(BelievesEveryOpening))


@pytest.mark.parametrize("wrong", WRONG_FOR_ALL)
def test_wrong_machines_of_a_study_that_waits_for_all_are_found(wrong: str) -> None:
    changed, found = WRONG_FOR_ALL[wrong]
    with pytest.raises((Broken, PeerError), match=found):
        explore_all(ALL, **changed)


def explore_all(rules: Rules = FOUR, **changed: Any) -> None:
    for liar in (0, 1, 2):
        Exhaustive(rules, liar, min(2, rules.attempts), **changed).explore()


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_machines_are_found_by_all_histories(wrong: str) -> None:
    changed, found = WRONG[wrong]
    with pytest.raises(Broken, match=found):
        explore_all(**changed)


def drawn(seed: int) -> tuple[Rules, frozenset[int], random.Random]:
    """Up to twelve parties; as many liars as may collude, sometimes fewer."""
    rng = random.Random(seed)
    parties = rng.randint(4, 12)
    colluding = rng.randint(0, (parties - 1) // 3)
    least = least_minimum(parties, colluding)
    order = rng.sample(range(parties), parties)
    minimum = rng.choice([least, rng.randint(least, parties)])
    rules = Rules(SESSION, tuple(order), colluding, minimum, rng.choice([least, minimum]))
    # Liars that may convene early do the most harm.
    among = order[: max(colluding, 3)] if rng.random() < 0.7 else order
    return rules, frozenset(rng.sample(among, colluding if rng.random() < 0.8 else 0)), rng


def histories(seeds: range, steps: int, make: Make = honest, after_crash: Callable[[StartProgress], StartProgress] = kept) -> int:
    """In how many of them somebody was bound."""
    bound = 0
    for seed in seeds:
        rules, liars, rng = drawn(seed)
        history = Random(rules, liars, rng, make, after_crash)
        history.run(steps)
        bound += any(facts.bound for facts in history.facts.values())
    return bound


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "steps", "least"), [(range(25), 1200, 10), (range(10_000, 11_500), 1500, 501)])
def test_random_histories_are_safe_and_start(seeds: range, steps: int, least: int) -> None:
    assert histories(seeds, steps) >= least


@pytest.mark.parametrize("wrong", [name for name, (changed, _) in WRONG.items() if "rules" not in changed])
def test_wrong_machines_are_found_by_random_histories(wrong: str) -> None:
    changed, _ = WRONG[wrong]
    with pytest.raises(Broken):
        histories(range(300), 600, **changed)


# --- single rules ----------------------------------------------------------------------------------------------------


def machine(party: int, rules: Rules = FOUR) -> Machine:
    draws = iter(range(100))
    return Machine(party, rules, Signer(party), lambda: secret(party, next(draws)))


def started(members: frozenset[int] = frozenset({0, 1, 2})) -> dict[int, StartProgress]:
    """All tell each other all until nothing changes; nobody is bound yet."""
    machines = {party: machine(party) for party in members}
    standings = dict.fromkeys(members, StartProgress())
    standings[0] = machines[0].propose(standings[0], 1, members)
    for _ in range(6):
        for sender in members:
            for receiver in members - {sender}:
                announcement = machines[sender].announce(standings[sender])
                standings[receiver] = machines[receiver].receive(standings[receiver], sender, announcement)
    return standings


def test_who_tell_each_other_all_are_bound() -> None:
    for party, progress in started().items():
        bound = machine(party).bind(progress)
        assert bound.bound
        assert machine(party).give_up(bound) == bound


def test_all_know_the_same_openings() -> None:
    openings = [progress.attempt.openings for progress in started().values() if progress.attempt is not None]
    assert openings[0] == openings[1] == openings[2]
    assert len(openings[0]) == 3


def test_where_one_is_bound_all_can_be() -> None:
    """What a party revealed before it died is passed on by whoever is bound, and comes too late to leave."""
    standings = started()
    bound = machine(1).bind(standings[1])
    attempt = standings[2].attempt
    assert attempt is not None
    without = replace(standings[2], attempt=replace(attempt, openings=GrowingMap({2: attempt.own})))
    assert not machine(2).bind(without).bound
    helped = machine(2).receive(without, 1, machine(1).announce(bound))
    assert machine(2).bind(helped).bound


def test_nobody_leaves_where_a_member_says_that_it_is_bound() -> None:
    members = frozenset({0, 1, 2})
    proposal = Proposal.signed(SESSION, 1, members, Signer(0))
    later = Proposal.signed(SESSION, 2, frozenset({1, 2, 3}), Signer(1))
    there = machine(2).receive(StartProgress(), 0, Announcement(proposal))
    assert machine(2).receive(there, 1, Announcement(later)).latest == 2
    told = machine(2).receive(there, 1, Announcement(proposal, bound=True))
    assert machine(2).receive(told, 1, Announcement(later)) == told


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        (Proposal.signed(SESSION, 1, {0, 1, 2}, Signer(3)), "did not sign"),
        (Proposal.signed("6" * 64, 1, {0, 1, 2}, Signer(0)), "did not sign"),
        (Proposal.signed(SESSION, 1, {0, 1}, Signer(0)), "does not allow"),
        (Proposal.signed(SESSION, 1, {0, 1, 7}, Signer(0)), "does not allow"),
        (Proposal.signed(SESSION, 1, {1, 2, 3}, Signer(0)), "does not allow"),
        (Proposal.signed(SESSION, 11, {0, 1, 2}, Signer(2)), "attempt 11 of 10"),
        (Proposal.signed(SESSION, 0, {0, 1, 2}, Signer(3)), "attempt 0 of 10"),
    ],
)
def test_what_a_correct_party_never_tells_is_refused(proposal: Proposal, reason: str) -> None:
    with pytest.raises(PeerError, match=reason):
        machine(2).receive(StartProgress(), 0, Announcement(proposal))


def test_a_second_commitment_is_refused() -> None:
    proposal = Proposal.signed(SESSION, 1, frozenset({0, 1, 2}), Signer(0))
    there = machine(2).receive(StartProgress(), 0, cut(forged(0, FOUR, proposal), 1))
    with pytest.raises(PeerError, match="committed to something else"):
        machine(2).receive(there, 0, cut(forged(0, FOUR, proposal, "other"), 1))


def test_another_opening_than_was_committed_to_is_refused() -> None:
    proposal = Proposal.signed(SESSION, 1, frozenset({0, 1, 2}), Signer(0))
    told = replace(forged(0, FOUR, proposal), openings={0: secret("another")})
    with pytest.raises(PeerError, match="showed other numbers than those it had fixed"):
        machine(2).receive(StartProgress(), 0, told)


def test_who_gave_up_takes_no_part() -> None:
    over = machine(2).give_up(StartProgress())
    proposal = Proposal.signed(SESSION, 1, frozenset({0, 1, 2}), Signer(0))
    assert machine(2).receive(over, 0, Announcement(proposal)) == over
    assert machine(2).bind(over) == over
    assert machine(2).announce(over) == Announcement()


def test_only_the_convener_of_an_attempt_proposes() -> None:
    assert machine(1).propose(StartProgress(), 1, frozenset({0, 1, 2})).attempt is None
    assert machine(1).propose(StartProgress(), 2, frozenset({0, 1, 2})).attempt is not None
    # Four parties take turns.
    assert machine(1).propose(StartProgress(), 6, frozenset({0, 1, 2})).attempt is not None


@pytest.mark.parametrize(
    ("colluding", "minimum", "least"), [(1, 2, 3), (1, 3, 2), (1, 5, 3), (0, 2, 3), (2, 3, 4), (-1, 3, 3), (4, 4, 4)]
)
def test_numbers_with_which_two_results_could_be_made_are_refused(colluding: int, minimum: int, least: int) -> None:
    with pytest.raises(InputError):
        Rules(SESSION, (0, 1, 2, 3), colluding, minimum, least)


@pytest.mark.parametrize("parties", range(2, 30))
def test_two_sets_of_the_least_size_share_an_honest_party(parties: int) -> None:
    for colluding in range(parties):
        least = least_minimum(parties, colluding)
        assert 2 * least - parties > colluding
        assert 2 * (least - 1) - parties <= colluding
