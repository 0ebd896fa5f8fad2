"""GOPA between real processes, with and without a collector: some are killed before or after they share noise, or come back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Vector
from quietmean.node.local import Kill, LocalOutcome
from quietmean.planning import Plan, Target
from quietmean.planning.accuracy import noise_variance
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa import GOPA
from quietmean.protocols.gopa.party import PeerOutcome
from quietmean.randomness.insecure import InsecureSilentPopulation
from support.processes import require_agreement, run_processes

PUBLISH, ROLL_BACK = 1, 3
EXCHANGE, RELEASE = 1, 2


def make_plan(parties: int, dimension: int, protocol: GOPA) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension)
    return Plan(target, protocol)


def check(outcome: LocalOutcome, survivors: Iterable[int], values: Vector) -> None:
    """All survivors agree; the weight is that of the logged execution, the error within what its transcript predicts."""
    first = require_agreement(outcome, survivors)
    lockstep = first.execution.run(values, InsecureSilentPopulation(len(values))).releases[0]
    deviation = np.sqrt(noise_variance(first.execution.transcript(), first.execution.weights))
    for result in outcome.results.values():
        assert result.total_weight == lockstep.weight == first.execution.contributors().sum()
    error = (first.total_vector - lockstep.vector) / first.total_weight
    print(f"predicted deviation {deviation:.4g}, root mean square error {np.sqrt((error**2).mean()):.4g}")
    # Independent coordinates: six standard deviations each.
    assert np.abs(error).max() < 6 * deviation
    if error.size >= 1000:
        assert np.sqrt((error**2).mean()) == pytest.approx(deviation, rel=0.15)


@pytest.mark.slow
def test_eight_processes_of_which_two_die(tmp_path: Path) -> None:
    """One dies before it published: its noise is taken out, to the last bit. One dies later: its value and noise stay."""
    values = (1 + np.sin(np.arange(24.0)).reshape(8, 3)) / 4
    plan = make_plan(8, 3, GOPA(sigma_star=0.01, sigma_delta=5.0, partners=7, aggregator=0))
    outcome = run_processes(plan, values, tmp_path, [Kill(3, PUBLISH), Kill(5, ROLL_BACK)])
    assert sorted(outcome.killed) == [3, 5]
    check(outcome, [0, 1, 2, 4, 6, 7], values)
    execution = outcome.results[0].execution
    arrived = execution.contributors()
    print("online:", execution.trace.online.astype(int).tolist(), "arrived:", arrived.astype(int).tolist())
    assert arrived[[0, 1, 2, 4, 5, 6, 7]].all()


@pytest.mark.slow
def test_absent_noise_is_rolled_back_between_processes(tmp_path: Path) -> None:
    """With own noise off and pair noise large, only a complete rollback leaves the plain sum of who published."""
    values = (1 + np.cos(np.arange(12.0)).reshape(6, 2)) / 4
    plan = make_plan(6, 2, GOPA(sigma_star=0.0, sigma_delta=50.0, partners=5, aggregator=0))
    outcome = run_processes(plan, values, tmp_path, [Kill(4, PUBLISH)])
    result = outcome.results[0]
    counted = result.execution.contributors()
    assert counted[[0, 1, 2, 3, 5]].all()
    np.testing.assert_allclose(result.total_vector, values[counted].sum(axis=0), atol=1e-11)


@pytest.mark.slow
def test_fifty_processes_with_long_vectors(tmp_path: Path) -> None:
    """d = 10 000; five die midway: two before they publish, one before and two in the rollback round."""
    parties, dimension = 50, 10_000
    values = np.sin(np.arange(parties * dimension, dtype=np.float64)).reshape(parties, dimension)
    plan = make_plan(parties, dimension, GOPA(sigma_star=0.5, sigma_delta=3.0, partners=9, aggregator=0))
    kills = [Kill(7, PUBLISH), Kill(19, PUBLISH), Kill(23, 2), Kill(31, ROLL_BACK), Kill(44, ROLL_BACK)]
    outcome = run_processes(plan, values, tmp_path, kills, round_timeout=60.0)
    sent = outcome.bytes_sent / len(outcome.results)
    print(f"{outcome.seconds:.1f} s, {outcome.messages} messages, {sent / 1e6:.2f} MB sent per party", sorted(outcome.killed))
    assert len(outcome.killed) == 5
    check(outcome, set(range(parties)) - {7, 19, 23, 31, 44}, values)


def check_published(outcome: LocalOutcome, survivors: Iterable[int], values: Vector, least: int) -> Execution:
    """All survivors agree; what is left over in the total is what the record says, of pair noise of deviation 50."""
    first, pair = require_agreement(outcome, survivors), 50.0
    execution = first.execution
    counted = execution.contributors()
    print("online:", execution.trace.online.astype(int).tolist(), "published:", counted.astype(int).tolist())
    assert {result.total_weight for result in outcome.results.values()} == {counted.sum()}
    error = first.total_vector - values[counted].sum(axis=0)
    left_over = PeerOutcome.of(least, execution.schedule, execution.trace).left_over
    # One in 1e8 coordinates is so far off.
    assert np.abs(error).max() <= 6 * pair * np.sqrt(left_over) + 1e-9
    assert (np.abs(error).max() > 1e-6 * pair) == (left_over > 0)
    return execution


@pytest.mark.slow
def test_without_a_collector_one_dies_before_the_exchange_and_one_after_it(tmp_path: Path) -> None:
    """With own noise off: what is shared with the first is nowhere in the result, what is shared with the second is."""
    values = (1 + np.sin(np.arange(24.0)).reshape(8, 3)) / 4
    plan = make_plan(8, 3, GOPA(sigma_star=0.0, sigma_delta=50.0, partners=7, least_partners=4))
    outcome = run_processes(plan, values, tmp_path, [Kill(3, EXCHANGE), Kill(5, RELEASE)])
    assert sorted(outcome.killed) == [3, 5]
    execution = check_published(outcome, [0, 1, 2, 4, 6, 7], values, 4)
    assert execution.contributors()[[0, 1, 2, 4, 6, 7]].all()


def test_without_a_collector_a_party_that_comes_back_publishes_the_same(tmp_path: Path) -> None:
    """Killed as it is to publish, and started again: everybody is counted, and all pair noise cancels."""
    values = (1 + np.cos(np.arange(10.0)).reshape(5, 2)) / 4
    plan = make_plan(5, 2, GOPA(sigma_star=0.0, sigma_delta=50.0, partners=4, least_partners=3))
    outcome = run_processes(plan, values, tmp_path, [Kill(2, RELEASE, restart_after=0.3)], round_timeout=20.0)
    assert check_published(outcome, range(5), values, 3).contributors().all()


@pytest.mark.slow
def test_without_a_collector_too_few_partners_publish_nothing(tmp_path: Path) -> None:
    """Everybody is needed, one dies before the exchange: no party says anything of its value, and each says why."""
    plan = make_plan(4, 1, GOPA(sigma_star=0.5, sigma_delta=5.0, partners=3, least_partners=3))
    with pytest.raises(ProtocolFailure, match=r"party-0, party-1, party-2: no other [^:]*: only 2 partners were there"):
        run_processes(plan, np.full((4, 1), 0.25), tmp_path, [Kill(3, EXCHANGE)])
