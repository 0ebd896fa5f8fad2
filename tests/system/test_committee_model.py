"""One choice, whatever members and the network do: the real voting code, all of it for 4 members and at random for up to 12."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from quietmean.protocols.committee.parameters import ballots_for
from quietmean.protocols.committee.voting import HeardVotes, Voter, VotingRules, VotingState
from support.committee_model import (
    Exhaustive,
    MakeVoter,
    OpensAgain,
    RandomRun,
    SecondEcho,
    SecondVote,
    TalliesByContributions,
    WithoutEchoes,
    durable,
    forgets_its_vote,
    rules_of,
)


@pytest.mark.parametrize(
    ("leaders", "ballots", "rounds"),
    [((0, 1, 2, 3), 1, 6), ((1, 0, 2, 3), 2, 5), pytest.param((1, 0, 2, 3), 2, 6, marks=pytest.mark.slow)],
    ids=["a liar leads first", "an honest member leads first", "one round more"],
)
def test_four_members_one_of_whom_lies_never_open_two_sums(leaders: tuple[int, ...], ballots: int, rounds: int) -> None:
    explored = Exhaustive(rules_of(4, 1, ballots, leaders), liar=0, rounds=rounds).run()
    assert (explored.split, explored.echoed) == (0, 0)
    assert explored.states > 2000
    assert explored.decisive


@pytest.mark.parametrize(
    ("make", "restart", "fewer"),
    [(SecondVote, durable, 0), (Voter, forgets_its_vote, 0), (Voter, durable, 1), (SecondEcho, durable, 0)],
    ids=["second vote", "vote not durable", "q one less", "second echo"],
)
def test_wrong_implementations_are_found_by_the_same_search(
    make: MakeVoter, restart: Callable[[VotingState], VotingState], fewer: int
) -> None:
    rules = rules_of(4, 1, 2, (0, 1, 2, 3))
    wrong = replace(rules, votes_needed=rules.votes_needed - fewer)
    explored = Exhaustive(wrong, liar=0, make=make, restart=restart, rounds=6).run()
    assert explored.split + explored.echoed > 0


def histories(
    count: int, make: MakeVoter = Voter, *, restart: Callable[[VotingState], VotingState] = durable, loss: float = 0.4
) -> list[RandomRun]:
    runs = []
    for number in range(count):
        drawn = random.Random(number)
        members = drawn.randint(4, 12)
        colluding = drawn.randint(1, max(1, (members - 2) // 3))
        leaders = drawn.sample(range(members), members)
        liars = frozenset(drawn.sample(range(members), colluding))
        rules = rules_of(members, colluding, 3, leaders)
        runs.append(RandomRun(rules, liars, {}, loss * drawn.random(), drawn, make, restart).run())
    return runs


def test_up_to_twelve_members_never_open_two_sums() -> None:
    runs = histories(150)
    assert all(len(run.decisions) <= 1 for run in runs)
    assert sum(len(run.decisions) for run in runs) > 40


def decided_after(make: MakeVoter, votes: dict[bytes, int], state: VotingState | None = None) -> bytes:
    """What member 0 of 4 takes for decided once it hears these votes, for choices that all have echoed in a ballot each."""
    echoes = dict.fromkeys(enumerate(votes, 1), 15)
    heard = HeardVotes((), echoes, votes)
    before = VotingState(round=5) if state is None else state
    return make(rules_of(4, 1, 2, (0, 1, 2, 3)), 0).end_round(before, heard, lambda digest: True, lambda: None).decided


@pytest.mark.parametrize(("make", "decided"), [(Voter, b""), (TalliesByContributions, b"A1")])
def test_votes_are_counted_by_choice_and_not_by_contributions_alone(make: MakeVoter, decided: bytes) -> None:
    assert (
        decided_after(
            make, {b"A1": 0b0010, b"A2": 0b0100}, VotingState(round=5, vote=b"A1", votes=((b"A1", bytes([1] + 7 * [0])),))
        )
        == decided
    )


@pytest.mark.parametrize(("make", "decided"), [(Voter, b"A1"), (OpensAgain, b"A2")])
def test_a_session_is_opened_once(make: MakeVoter, decided: bytes) -> None:
    assert decided_after(make, {b"A2": 0b1110}, VotingState(round=7, vote=b"A1", decided=b"A1")) == decided


def decided_by_all(make: MakeVoter, number: int, liars: int) -> bool:
    """(9, 2, 2) with 2 members away or lying, all other messages arrive: whether all others decide."""
    drawn = random.Random(number)
    leaders = drawn.sample(range(9), 9)
    # Liars lead first: the worst order.
    lying = frozenset(leaders[:liars])
    leaving = {member: drawn.randint(2, 9) for member in leaders[liars:2]}
    rules = VotingRules(9, 2, 6, ballots_for(9, 2, 2), tuple(leaders))
    run = RandomRun(rules, lying, leaving, 0.0, drawn, make).run()
    return all(state.decided for member, state in run.states.items() if member not in leaving)


@pytest.mark.parametrize("liars", [0, 1, 2])
def test_with_f_members_away_or_lying_there_is_a_decision(liars: int) -> None:
    assert all(decided_by_all(Voter, number, liars) for number in range(40))


def test_without_echoes_leaders_that_lie_prevent_a_decision() -> None:
    assert sum(decided_by_all(WithoutEchoes, number, 2) for number in range(40)) < 32
