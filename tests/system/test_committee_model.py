"""One choice, whatever members and the network do: the real voting code, all of it for 4 members and at random for up to 12."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from quietmean.protocols.committee.parameters import ballots_for
from quietmean.protocols.committee.voting import HeardVotes, Voter, VotingRules, VotingState
from quietmean.protocols.committee_size import quorum
from support.committee_model import (
    Exhaustive,
    ForgetsItsLocks,
    LocksBelow,
    MakeVoter,
    OpensAgain,
    RandomRun,
    SecondEcho,
    SecondVote,
    SplittingLeader,
    TalliesByContributions,
    VotesOnEchoes,
    WithoutEchoes,
    durable,
    forgets_its_locks,
    rules_of,
)

# Ballots that overlap more than they do: what is safe with these is safe with the others.
OVERLAPPING = 2


@pytest.mark.parametrize("rounds", [5, pytest.param(6, marks=pytest.mark.slow)], ids=["up to the locks", "up to the votes"])
def test_four_members_one_of_whom_lies_never_open_two_sums(rounds: int) -> None:
    explored = Exhaustive(rules_of(4, 1, 1, (0, 1, 2, 3), OVERLAPPING), liar=0, rounds=rounds).run()
    assert (explored.split, explored.echoed) == (0, 0)
    assert explored.states > 2000
    assert explored.decisive


@pytest.mark.parametrize(("make", "fewer"), [(Voter, 1), (SecondEcho, 0)], ids=["q one less", "second echo"])
def test_wrong_implementations_are_found_by_the_same_search(make: MakeVoter, fewer: int) -> None:
    rules = rules_of(4, 1, 1, (0, 1, 2, 3), OVERLAPPING)
    wrong = replace(rules, votes_needed=rules.votes_needed - fewer)
    explored = Exhaustive(wrong, liar=0, make=make, rounds=5).run()
    assert explored.split + explored.echoed > 0


def histories(make: MakeVoter = Voter) -> list[RandomRun]:
    """With members that are cut off from each other most of the time, or not, and up to a third that lie."""
    runs = []
    for number in range(150):
        drawn = random.Random(number)
        members = drawn.randint(4, 12)
        colluding = drawn.randint(1, max(1, (members - 2) // 3))
        leaders = drawn.sample(range(members), members)
        liars = frozenset(drawn.sample(range(members), colluding))
        rules = rules_of(members, colluding, 3, leaders, OVERLAPPING)
        runs.append(RandomRun(rules, liars, {}, 0.4 * drawn.random(), drawn, make).run())
    return runs


def votes_of(run: RandomRun) -> set[bytes]:
    return {state.vote for state in run.states.values() if state.vote}


def test_all_honest_votes_of_up_to_twelve_members_are_for_one_choice() -> None:
    runs = histories()
    assert all(len(run.decisions) <= 1 and len(votes_of(run)) <= 1 for run in runs)
    assert sum(len(run.decisions) for run in runs) > 100


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "make",
    [SecondVote, ForgetsItsLocks, LocksBelow, SecondEcho, VotesOnEchoes],
    ids=["second vote", "echo against a lock", "lock below an echo", "second echo", "no locks"],
)
def test_votes_of_wrong_implementations_are_split(make: MakeVoter) -> None:
    assert any(len(votes_of(run)) > 1 for run in histories(make))


@pytest.mark.parametrize(("restart", "echoed"), [(durable, 0), (forgets_its_locks, 1)], ids=["durable", "forgotten"])
def test_a_lock_outlives_the_process(restart: Callable[[VotingState], VotingState], echoed: int) -> None:
    voter, proposed = Voter(rules_of(4, 1, 2, (1, 2, 3, 0)), 0), ((2, b"B1"),)
    locked = VotingState(round=8, echoed=((1, b"A1"),), locked=((1, b"A1"),))
    after = voter.end_round(restart(locked), HeardVotes(proposed), lambda digest: True, lambda: None)
    assert len(after.echoed) == 1 + echoed
    # Unless it was certified since, as others would show.
    certified = HeardVotes(proposed, {(2, b"B1"): 0b1110})
    assert len(voter.end_round(locked, certified, lambda digest: True, lambda: None).echoed) == 1


def decided_after(make: MakeVoter, votes: dict[bytes, int], before: VotingState) -> bytes:
    """What member 0 of 4 takes for decided once it hears these votes, for choices that all are locked on in a ballot each."""
    backed = dict.fromkeys(enumerate(votes, 1), 15)
    heard = HeardVotes((), backed, backed, votes)
    return make(rules_of(4, 1, 2, (0, 1, 2, 3)), 0).end_round(before, heard, lambda digest: True, lambda: None).decided


@pytest.mark.parametrize(("make", "decided"), [(Voter, b""), (TalliesByContributions, b"A1")])
def test_votes_are_counted_by_choice_and_not_by_contributions_alone(make: MakeVoter, decided: bytes) -> None:
    voted = VotingState(round=5, vote=b"A1", votes=((b"A1", (0b0001).to_bytes(8, "little")),))
    assert decided_after(make, {b"A1": 0b0010, b"A2": 0b0100}, voted) == decided


@pytest.mark.parametrize(("make", "decided"), [(Voter, b"A1"), (OpensAgain, b"A2")])
def test_a_session_is_opened_once(make: MakeVoter, decided: bytes) -> None:
    assert decided_after(make, {b"A2": 0b1110}, VotingState(round=7, vote=b"A1", decided=b"A1")) == decided


def decided_by_all(make: MakeVoter, number: int, size: tuple[int, int, int], liars: int, kind: type[RandomRun]) -> bool:
    """With f members away or lying, and all other messages there: whether all others decide. Liars lead first."""
    members, colluding, gone = size
    drawn = random.Random(number)
    leaders = drawn.sample(range(members), members)
    leaving = {member: drawn.randint(2, 12) for member in leaders[liars:gone]}
    ballots = ballots_for(members, colluding, gone)
    rules = VotingRules(members, colluding, quorum(members, colluding), ballots, tuple(leaders))
    run = kind(rules, frozenset(leaders[:liars]), leaving, 0.0, drawn, make).run()
    return all(state.decided for member, state in run.states.items() if member not in leaving)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [RandomRun, SplittingLeader])
@pytest.mark.parametrize(("size", "liars"), [((9, 2, 2), 0), ((9, 2, 2), 1), ((9, 2, 2), 2), ((5, 1, 1), 1)])
def test_with_f_members_away_or_lying_there_is_a_decision(size: tuple[int, int, int], liars: int, kind: type[RandomRun]) -> None:
    assert all(decided_by_all(Voter, number, size, liars, kind) for number in range(30))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [WithoutEchoes, VotesOnEchoes], ids=["no echoes", "no locks"])
def test_without_echoes_or_locks_leaders_that_lie_prevent_a_decision(make: MakeVoter) -> None:
    decided = [decided_by_all(make, number, (5, 1, 1), 1, kind) for kind in (RandomRun, SplittingLeader) for number in range(60)]
    assert not all(decided)
