"""Members of packed sharing in a model of all that may happen: two different sets are never decided. Wrong members are found out.

The members are the real ones. Only what arrives, who is away or restarts, and what liars say is chosen, exhaustively for four
members, at random for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from quietmean.protocols.packed_sharing.ballots import BallotRules, CommitteeMember, MemberState, ballots_needed
from support.packed_model import (
    Ended,
    Model,
    RandomRun,
    Restart,
    SecondVote,
    VotesWhenItProposes,
    Weather,
    durable,
    dying_at_random,
    forgets_its_vote,
    rules_of,
)

FULL = 0b1111
# Members 1 and 3 lack the share of dealer 0: whom a leader hears decides whether it proposes all inputs or leaves that one out.
LACKING = (FULL, 0b1110, FULL, 0b1110)
LEADERS = (0, 1, 2, 3)


def four(liar: int | None = None, ballots: int = 3, **more: Any) -> Model:
    """Four members, one of which may lie, one may be gone: q = 3, T = 2."""
    rules = rules_of(4, 1, 1, 2, ballots=ballots)
    return replace(Model(rules, LEADERS, LACKING, liar, (FULL, 0b1110)), **more)


def test_four_members_without_a_liar() -> None:
    found = four().explore()
    print(f"\n{found}")
    assert found.split == 0
    assert found.states > 5000
    assert found.decisive > 1000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("liar", [0, 3])
def test_four_members_one_of_which_lies(liar: int) -> None:
    """The first leader, or one that leads nothing in the two ballots."""
    found = four(liar, ballots=2).explore()
    assert found.split == 0
    assert found.decisive > 100


@pytest.mark.slow
@pytest.mark.parametrize("liar", [0, 1, 2, 3])
def test_four_members_one_of_which_lies_in_three_ballots(liar: int) -> None:
    found = four(liar).explore()
    assert found.split == 0
    print(f"\nliar {liar}: {found}")


def test_one_vote_less_is_found_out() -> None:
    rules = replace(rules_of(4, 1, 1, 2, ballots=2), votes_needed=2)
    assert four(0, ballots=2, rules=rules).explore().split > 0


def test_a_vote_that_is_told_before_it_is_durable_is_found_out() -> None:
    assert four(ballots=2, restart=forgets_its_vote).explore().split > 0


def test_a_second_vote_is_found_out() -> None:
    assert four(ballots=2, kind=SecondVote).explore().split > 0


# --- at random ----------------------------------------------------------------------------------------------------------------


def some_rules(seed: int, largest: int) -> tuple[BallotRules, int]:
    """Of n = 4..largest members, c lie and f may be gone, as q <= n - f and T <= n - f allow; and how many die."""
    parties = 4 + seed % (largest - 3)
    liars = seed // 7 % (parties // 3 + 1)
    most = parties - ((parties + liars) // 2 + 1)
    gone = min(most, seed // 11 % (parties // 3 + 1))
    secrets = 1 + seed // 13 % max(parties - gone - liars, 1)
    return replace(rules_of(parties, liars, gone, liars + 1, secrets), ballots=ballots_needed(parties, gone)), gone


def runs(
    count: int, largest: int, kind: type[CommitteeMember] = CommitteeMember, restart: Restart = durable, weaker: int = 0
) -> Iterator[tuple[int, BallotRules, Ended]]:
    for seed in range(count):
        rules, gone = some_rules(seed, largest)
        weak = replace(rules, votes_needed=rules.votes_needed - weaker)
        weather = Weather(loss=0.1 + 0.05 * (seed % 7), away=0.02 * (seed % 5), restarts=0.1)
        run = RandomRun(weak, seed, rules.colluding, dying_at_random(rules, seed, gone), weather, kind, restart)
        yield seed, rules, run.run()


def check(count: int, largest: int) -> tuple[int, int]:
    """Never two sets, never too few inputs, and never a refund where somebody may have published."""
    decided = refunded = 0
    for seed, rules, ended in runs(count, largest):
        assert len(ended.decided) <= 1, f"seed {seed}: two sets"
        assert not (ended.published and ended.refunded), f"seed {seed}: given back although a sum may have been published"
        assert all(int.from_bytes(one, "little").bit_count() >= rules.least for one in ended.decided), f"seed {seed}"
        decided, refunded = decided + len(ended.decided), refunded + bool(ended.refunded)
    return decided, refunded


def test_random_runs_never_split() -> None:
    decided, refunded = check(300, 12)
    # The runs are neither all alike nor all without an end.
    assert decided > 50
    assert refunded > 0


@pytest.mark.slow
def test_very_many_random_runs_never_split() -> None:
    decided, refunded = check(60_000, 12)
    more, again = check(10_000, 24)
    print(f"\n70000 runs: {decided + more} decided, {refunded + again} with proof that nothing was published")


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["quorum", "vote", "second"])
def test_random_runs_find_wrong_members_out(wrong: str) -> None:
    found = {
        "quorum": lambda: runs(3000, 12, weaker=1),
        "vote": lambda: runs(3000, 12, restart=forgets_its_vote),
        "second": lambda: runs(6000, 12, kind=SecondVote),
    }[wrong]()
    assert any(len(ended.decided) > 1 for _, _, ended in found)


class Away(RandomRun):
    """The first leader is away in the rounds of the first two ballots, and as many as may be gone are gone after its proposal.

    It would leave the second leader's input out, the second leader would not.
    """

    def _dealt(self, party: int) -> MemberState:
        full = (1 << self._rules.parties) - 1
        member, complete = self._members[party], party in self.leaders[1:3]
        return member.after_dealing(member.start(), full if complete else full & ~(1 << self.leaders[1]))

    def _is_away(self, party: int, round_: int) -> bool:
        return (party == self.leaders[0] and 3 <= round_ <= 5) or self._dying.get(party, round_) < round_

    def _arrives(self, sender: int, round_: int) -> bool:
        return True


def undecided(kind: type[CommitteeMember]) -> int:
    """Of 20 such runs of five members, of which one is gone and nobody lies, those in which one that stays has no result."""
    rules = rules_of(5, 0, 2, 1)
    without = 0
    for seed in range(20):
        order = Away(rules, seed, 0, {}, Weather()).leaders
        run = Away(rules, seed, 0, {order[3]: 4, order[4]: 4}, Weather(0.0, 0.0, 0.0), kind)
        without += bool(run.run().undecided)
    return without


def test_a_leader_that_votes_when_it_proposes_is_found_out() -> None:
    """Nobody is split by it; but it is left alone with its vote, and then the others are too few."""
    assert undecided(CommitteeMember) == 0
    assert undecided(VotesWhenItProposes) == 20


def test_if_only_so_many_are_gone_as_planned_all_others_decide() -> None:
    """No lies, no losses, and whoever dies reaches some of the others in its last round: the planned ballots are enough."""
    without = 0
    for seed in range(200):
        rules, gone = some_rules(seed, 12)
        rules = replace(rules, colluding=0, votes_needed=rules.parties // 2 + 1, secrets=1, least=1)
        gone = min(gone, rules.parties - rules.votes_needed)
        run = RandomRun(replace(rules, gone=gone), seed, 0, dying_at_random(rules, seed, gone), Weather(0.0, 0.0, 0.1))
        without += bool(run.run().undecided)
    # All leaders of three ballots or more are gone in one run of 1e5 at most.
    assert without == 0
