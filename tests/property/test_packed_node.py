"""Packed sharing between real sessions with real stores under seeded faults, in virtual time.

Whatever happens: never two different results, never fewer inputs than planned. If no more are gone for good than planned, all
others have the result in nearly every run.
"""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.errors import NothingPublished
from quietmean.core.party import Vector
from quietmean.node.session import NodeResult
from quietmean.planning import Plan, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import leaders_of
from support.faults import Crash, FaultOutcome, FaultPlan, check_run, run_with_faults
from support.network import NetworkConditions, Partition

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
PARTIES, GONE, LEAST = 7, 2, 3
# Own writes, from 0: a commitment and its opening for each party, then the shares to send; what comes in; the end of the round.
BEGUN = 2 * PARTIES + 1
DEALT = BEGUN + PARTIES - 1
# Round 2 the same way; in round 3 the leader's proposal; round 4.
VOTED = DEALT + PARTIES + 2 + PARTIES


def packed(secrets: int = 3) -> Plan:
    """Seven parties of which one may lie: q = 5, T = 1 + ``secrets``."""
    target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=5)
    protocol = PackedSharing.read(
        {
            "members": PARTIES,
            "colluding": 1,
            "colluding_members": 1,
            "secrets": secrets,
            "minimum": LEAST,
            "gone": GONE,
            "ballots": 3,
            "step": 2.0**-10,
            "sigma": 2.0**-8,
            "clip": 0.5,
            "dimension": 5,
        }
    ).resolved(PARTIES)
    return Plan(target, protocol)


def values() -> Vector:
    found: Vector = (1 + np.sin(np.arange(5.0 * PARTIES))).reshape(PARTIES, 5) / (2 * np.sqrt(5))
    return found


def faults_of(seed: int) -> FaultPlan:
    """At most f parties are killed for good, at any write of a run; others are killed, perhaps twice, and come back; partitions.

    Nobody is away or cut off for longer than half a round's time-out, and nobody is gone for good before all others have begun:
    they send their shares once the agreement is over for them. An agreement without everybody is no study.
    """
    chance = random.Random(seed)
    parties = chance.sample(range(PARTIES), PARTIES)
    crashes = {}
    for party in parties[: chance.randint(0, GONE)]:
        write = DEALT - 1 + chance.randrange(34)
        crashes[party] = [Crash(write, chance.random() < 0.5, away=None)]
    for party in parties[GONE : GONE + chance.randint(0, 3)]:
        lives = [Crash(BEGUN + chance.randrange(40), chance.random() < 0.5, away=chance.uniform(0.1, 2.0))]
        crashes[party] = lives + [Crash(chance.randrange(20), away=1.0)] * chance.randint(0, 1)
    partitions = []
    if chance.random() < 0.3:
        begin = chance.uniform(0.5, 6.0)
        partitions.append(Partition(frozenset(chance.sample(range(PARTIES), 2)), begin, begin + chance.uniform(0.2, 2.0)))
    conditions = NetworkConditions(
        seed, chance.uniform(0.005, 0.3), chance.choice([0.0, 0.1]), chance.choice([0.0, 0.1]), 0.1, tuple(partitions)
    )
    return FaultPlan(conditions, crashes)


def tell(plan: Plan, faults: FaultPlan) -> FaultOutcome:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_with_faults(plan, values(), faults, Path(directory))


def inputs_of(result: NodeResult) -> tuple[int, ...]:
    protocol = result.execution.protocol
    assert isinstance(protocol, PackedSharing)
    assert protocol.inputs is not None
    return protocol.inputs


def check(plan: Plan, outcome: FaultOutcome) -> None:
    """All results are the same sum over the same inputs, and what receipts say of it is true."""
    check_run(plan, values(), outcome)
    for result in outcome.results.values():
        first = next(iter(outcome.results.values()))
        inputs = inputs_of(result)
        assert inputs == inputs_of(first)
        assert result.total_vector.tobytes() == first.total_vector.tobytes()
        assert len(inputs) >= LEAST
        assert result.total_weight == len(inputs)
        # Ten standard deviations of the noise, and half a step of rounding for each.
        off = np.abs(result.total_vector - values()[list(inputs)].sum(axis=0)).max()
        assert off <= len(inputs) * 2.0**-10 + 10 * np.sqrt(len(inputs)) * 2.0**-8
        read = Execution.from_json(result.execution.to_json())
        assert np.nonzero(read.contributors())[0].tolist() == list(inputs)
    if any(isinstance(failure, NothingPublished) for failure in outcome.failures.values()):
        assert not outcome.results


def complete(outcome: FaultOutcome) -> bool:
    """Do all that stay have the result?"""
    return not outcome.failures and len(outcome.results) + len(outcome.gone) == PARTIES


def stories(seeds: range) -> None:
    plan, without = packed(), []
    for seed in seeds:
        outcome = tell(plan, faults_of(seed))
        check(plan, outcome)
        if not complete(outcome):
            without.append((seed, sorted(outcome.failures)))
    print(f"\n{len(seeds)} stories, without a result for all that stay: {without}")
    assert len(without) <= len(seeds) // 100


def test_without_faults_everybody_has_the_sum_of_all() -> None:
    plan = packed()
    outcome = tell(plan, FaultPlan())
    check(plan, outcome)
    assert complete(outcome)
    for result in outcome.results.values():
        assert inputs_of(result) == tuple(range(PARTIES))
    # Shares, what is held, votes, sums, and one proposal: each to all others, once.
    others = PARTIES - 1
    assert sum(result.transfers for result in outcome.results.values()) == (4 * PARTIES + 1) * others


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_few_stories(seed: int) -> None:
    stories(range(seed, seed + 1))


@pytest.mark.slow
def test_a_hundred_stories() -> None:
    stories(range(100))


@cache
def leaders() -> tuple[int, ...]:
    """In a study of the network's first seed."""
    return leaders_of(tell(packed(), FaultPlan()).results[0].execution.schedule)


def not_leading(count: int) -> list[int]:
    """Parties that do not lead the first ballot."""
    return [party for party in range(PARTIES) if party != leaders()[0]][:count]


@pytest.mark.slow
@pytest.mark.parametrize("dying", [1, 2])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("write", range(DEALT - 1, VOTED + PARTIES + 2))
def test_leaders_that_die_at_any_write_cost_nobody_the_result(write: int, committed: bool, dying: int) -> None:
    """The leader of the first ballot, or those of the first two, in every phase from dealing to publication."""
    plan = packed()
    outcome = tell(plan, FaultPlan(crashes={party: [Crash(write, committed, away=None)] for party in leaders()[:dying]}))
    check(plan, outcome)
    assert complete(outcome)


def test_what_was_charged_is_given_back_if_nobody_can_have_voted() -> None:
    """Three of seven die when they have dealt: nobody hears of five members what they hold, and nobody votes."""
    plan = packed()
    outcome = tell(plan, FaultPlan(crashes={party: [Crash(DEALT, away=None)] for party in (0, 1, 2)}))
    assert outcome.results == {}
    assert sorted(outcome.failures) == [3, 4, 5, 6]
    for failure in outcome.failures.values():
        assert isinstance(failure, NothingPublished)
        assert "what was charged is given back" in str(failure)


def test_what_was_charged_stays_charged_if_others_may_have_the_sum() -> None:
    """Three of seven die when all have voted: the four others publish their sums, and a result needs five."""
    plan = packed(secrets=4)
    outcome = tell(plan, FaultPlan(crashes={party: [Crash(VOTED, away=None)] for party in not_leading(3)}))
    assert outcome.results == {}
    assert len(outcome.failures) == 4
    for failure in outcome.failures.values():
        assert not isinstance(failure, NothingPublished)
        assert failure.exit_code == 3
        assert "4 of the 5 sums that a result needs arrived" in str(failure)
        assert "stays charged" in str(failure)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("write", [BEGUN - 1, BEGUN, DEALT, DEALT + 1 + PARTIES, VOTED - PARTIES])
def test_a_store_that_was_restored_takes_no_part(write: int) -> None:
    """It is as it was before the agreement ended, after dealing, before the vote; the others go on without it."""
    plan = packed()
    outcome = tell(plan, FaultPlan(NetworkConditions(seed=1), {2: [Crash(VOTED + 1, away=0.5, restored_to=write)]}))
    check(plan, outcome)
    assert sorted(outcome.results) == [0, 1, 3, 4, 5, 6]
    assert "restored or copied" in str(outcome.failures[2])


# --- long absences ------------------------------------------------------------------------------------------------------------


def without(outcome: FaultOutcome) -> set[int]:
    return set(range(PARTIES)) - outcome.results.keys()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("away", [1.0, 5.0, 20.0, 500.0])
@pytest.mark.parametrize("write", [BEGUN, DEALT, DEALT + 1 + PARTIES, VOTED])
def test_who_is_away_for_long_holds_nobody_up_and_has_the_same_result_or_none(away: float, write: int) -> None:
    """Party 2 is away from dealing, from status, from the first proposal or from the first votes on; a time-out is 4 seconds.

    Rounds after the fifth are only for who has no result: the others send to it until the last.
    """
    plan = packed()
    outcome = tell(plan, FaultPlan(crashes={2: [Crash(write, away=away)]}))
    check(plan, outcome)
    assert without(outcome) <= {2}
    if away < 4.0:
        assert without(outcome) == set()
    if 2 in outcome.failures:
        assert outcome.failures[2].exit_code == 3
        assert not isinstance(outcome.failures[2], NothingPublished), "others have the result"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
def test_two_that_return_late_while_two_are_gone(seed: int) -> None:
    """Two are gone for good, two more away for up to ten time-outs, when three are too few for votes: never two results."""
    chance = random.Random(f"late {seed}")
    parties = chance.sample(range(PARTIES), 4)
    crashes = {party: [Crash(DEALT + chance.randrange(20), away=None)] for party in parties[:2]}
    crashes |= {party: [Crash(BEGUN + chance.randrange(30), away=chance.uniform(4.0, 40.0))] for party in parties[2:]}
    plan = packed()
    outcome = tell(plan, FaultPlan(crashes=crashes))
    check(plan, outcome)
    refunds = [isinstance(failure, NothingPublished) for failure in outcome.failures.values()]
    assert not (outcome.results and any(refunds))
    print(f"\nseed {seed}: {len(outcome.results)} results, {sum(refunds)} refunds, {len(outcome.gone)} gone")


def test_with_all_ballots_exhausted_the_charge_is_kept_if_some_have_voted() -> None:
    """Three die when they have told what they hold: a set is proposed, and four of the five votes that it needs are cast."""
    plan = packed()
    dying = {party: [Crash(DEALT + PARTIES + 1, committed=False, away=None)] for party in not_leading(3)}
    outcome = tell(plan, FaultPlan(crashes=dying))
    assert outcome.results == {}
    assert len(outcome.failures) == 4
    for failure in outcome.failures.values():
        assert not isinstance(failure, NothingPublished)
        assert failure.exit_code == 3
        assert "heard in time of fewer than 5 parties that agree" in str(failure)
        assert "stays charged" in str(failure)
