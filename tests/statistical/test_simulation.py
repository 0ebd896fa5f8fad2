"""Batch runs against predictions, event-driven against batch. Error rates are stated; seeds are fixed and printed by pytest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from quietmean.core.errors import ProtocolFailure
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol
from quietmean.protocols.inca import IncA
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import NetworkModel, simulate, simulate_events

RUNS, SEED = 10_000, 20_261_121
ERROR_RATE = 1e-6


def plan_for(dropouts: float, name: str = "inca", dimension: int = 1) -> Plan:
    target = Target(parties=10, epsilon=1.0, delta=1e-6, dimension=dimension, colluding=1, dropouts=dropouts)
    return calibrate(target, get_protocol(name)())


@pytest.mark.slow
def test_without_dropouts_the_error_is_the_star_noise() -> None:
    """10 000 runs. Unbiased (z-test) and MSE = sigma_star^2 / n (chi-square), each wrongly rejected with probability 1e-6;
    a star noise 10 % off in standard deviation is rejected."""
    plan = plan_for(0.0)
    errors = simulate(plan, runs=RUNS, seed=SEED).errors[:, 0]
    assert isinstance(plan.protocol, IncA)
    variance = plan.protocol.sigma_star**2 / 10
    assert abs(errors.mean()) < stats.norm.isf(ERROR_RATE / 2) * np.sqrt(variance / RUNS)

    def accepted(scale: float) -> bool:
        low, high = stats.chi2.interval(1 - ERROR_RATE, RUNS)
        return bool(low < (errors**2).sum() / (variance * scale**2) < high)

    assert accepted(1.0)
    assert not accepted(1.1)
    assert not accepted(0.9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inca", "local-dp", "central-dp"])
def test_predicted_error_with_dropouts(name: str) -> None:
    """10 000 runs on uniform values: the prediction averages few executions, so 10 % are allowed beside 5 standard errors."""
    plan = plan_for(0.2, name)
    result = simulate(plan, runs=RUNS, seed=SEED)
    print(name, result.mse, result.mse_standard_error, result.prediction)
    assert abs(result.mse - result.prediction) < 5 * result.mse_standard_error + 0.1 * result.prediction
    assert (np.abs(result.bias) < 5 * result.errors.std() / np.sqrt(RUNS)).all()


@pytest.mark.slow
def test_seeds_decide_everything() -> None:
    plan = plan_for(0.2)
    first, again, other = (simulate(plan, runs=50, seed=seed).estimates for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.slow
def test_given_values_and_certificate() -> None:
    plan = plan_for(0.0)
    # On the grid of the plan.
    values = np.arange(10.0)[:, None] / 16
    result = simulate(plan, values, runs=20, seed=3)
    np.testing.assert_allclose(result.truth, 4.5 / 16)
    assert result.certificate.exhaustive
    assert result.to_json()["runs"] == 20


@pytest.mark.slow
def test_event_driven_equals_batch_on_what_really_happened() -> None:
    """Real machines over lossy, slow, churning networks: the batch kernel on the recorded history gives the same estimate."""
    plan = plan_for(0.2, dimension=3)
    rounds = plan.protocol.rounds
    lost = 0
    for number in range(40):
        seed = Seed.public("events", number)
        trace = churn(seed, rounds, 10, permanent=0.2, temporary=0.15)
        noise = InsecurePopulationNoise(number, 10)
        values = BitStream(seed.derive("values")).uniform(30).reshape(10, 3)
        network = NetworkModel(latency=0.05, loss=0.6, retry=0.1, timeout=0.6)
        result = simulate_events(plan.execution(seed, trace), values, noise, network, seed=number)
        batch = result.execution.run_batch(values, noise).estimate()
        np.testing.assert_allclose(result.estimate, batch, rtol=1e-11, atol=1e-11)
        present = ExecutionTrace(result.execution.trace.online).delivered(result.execution.schedule)
        lost += int(present.sum() - result.execution.trace.delivered(result.execution.schedule).sum())
        certificate = result.execution.privacy(1e-6).coalitions(1)
        assert np.isfinite(certificate.mu).all()
    assert lost > 100, "the network lost too little to test anything"


def test_event_driven_without_faults_equals_batch_exactly() -> None:
    plan = plan_for(0.0, dimension=2)
    rounds = plan.protocol.rounds
    execution = plan.execution(Seed.public("calm"), ExecutionTrace.everyone(rounds, 10))
    noise = InsecurePopulationNoise(5, 10)
    values = np.ones((10, 2))
    result = simulate_events(execution, values, noise, NetworkModel(latency=0.001))
    np.testing.assert_allclose(result.estimate, execution.run_batch(values, noise).estimate(), rtol=1e-12)
    assert result.execution.trace.delivered(execution.schedule).all()
    assert result.messages == rounds * 10
    assert result.attempts == result.messages


@pytest.mark.slow
def test_mean_squared_error_of_events_and_batch_agree() -> None:
    """The same churn law on both sides, 400 event-driven runs: the ratio of mean squares follows F; error rate 1e-6."""
    plan = plan_for(0.2)
    rounds = plan.protocol.rounds
    values = np.full((10, 1), 0.5)
    errors = []
    for number in range(400):
        seed = Seed.public("law", number)
        execution = plan.execution(seed, churn(seed, rounds, 10, permanent=0.2))
        errors.append(simulate_events(execution, values, InsecurePopulationNoise(number, 10)).estimate[0] - 0.5)
    batch = simulate(plan, values, runs=4000, seed=SEED).errors[:, 0]
    ratio = float(np.mean(np.square(errors)) / np.mean(batch**2))
    # Errors are mixtures of Gaussians over executions: heavier tails than F assumes, so twice its width.
    low, high = stats.f.interval(1 - ERROR_RATE, 400, 4000)
    assert 1 - 2 * (1 - low) < ratio < 1 + 2 * (high - 1)


@pytest.mark.slow
def test_nobody_left_is_a_clear_failure() -> None:
    plan = plan_for(0.0)
    online = np.ones((plan.protocol.rounds + 1, 10), dtype=np.bool_)
    online[-1] = False
    execution = plan.execution(Seed.public("empty"), ExecutionTrace(online))
    with pytest.raises(ProtocolFailure, match="dropped out"):
        simulate_events(execution, np.ones((10, 1)), InsecurePopulationNoise(1, 10))
