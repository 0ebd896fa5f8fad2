"""The baselines' errors by simulation. Error rates are stated; seeds are fixed; a wrong implementation must be rejected."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from quietmean.graphs import churn
from quietmean.planning import Plan, Target
from quietmean.planning.accuracy import noise_variance
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import mu_of_budget
from quietmean.protocols import get_protocol
from quietmean.protocols.gopa import GOPA
from quietmean.protocols.priv_unit import PrivUnitG, best_probability, report
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import simulate
from quietmean.testing import assert_mean, assert_rate, assert_standard_normal

ERROR_RATE = 1e-6
SEED = 20_261_122


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.749566), (1.0, 3.730632), (2.0, 1.993812), (8.0, 0.600229)])
def test_gaussian_calibration_and_the_two_simple_baselines(epsilon: float, sigma: float) -> None:
    """sigma at delta = 1e-5 and sensitivity 1; local DP has its square over n, central DP over n^2: exact, rounded up."""
    assert 1 / mu_of_budget(epsilon, 1e-5) == pytest.approx(sigma, rel=1e-6)
    target = Target(parties=20, epsilon=epsilon, delta=1e-5, colluding=2)
    local, central = (calibrate(target, get_protocol(name)()).prediction["mse_noise"] for name in ("local-dp", "central-dp"))
    assert local == pytest.approx(sigma**2 / 20, rel=1e-5)
    assert central == pytest.approx(sigma**2 / 20**2, rel=1e-5)


@pytest.mark.slow
def test_gopa_errors_have_exactly_the_variance_of_their_executions() -> None:
    """400 executions with dropouts in all rounds: errors over their own standard deviations are N(0, 1), error rate 1e-6.

    A pair noise 15 % off, or a rollback that is forgotten, is rejected.
    """
    target = Target(parties=20, epsilon=1.0, delta=1e-6, colluding=1, dropouts=0.3, dimension=5)
    # Few partners, and few executions to be safe in: then there is much noise of pairs, and what dropouts leave behind matters.
    plan = calibrate(target, GOPA(partners=8, aggregator=0), executions=16)
    protocol = plan.protocol
    assert isinstance(protocol, GOPA)
    values = np.zeros((20, 5))
    scaled, wrong, forgotten = [], [], []
    for number in range(400):
        seed = Seed.public("gopa errors", number)
        trace = churn(seed, 3, 20, permanent=0.3)
        trace.online[:, 0] = True
        execution = plan.execution(seed, trace)
        noise = InsecurePopulationNoise(number, 20)
        spread = math.sqrt(noise_variance(execution.transcript(), execution.weights))
        scaled.append(execution.run_batch(values, noise).estimate() / spread)
        louder = replace(execution, protocol=replace(protocol, sigma_delta=1.15 * protocol.sigma_delta))
        wrong.append(louder.run_batch(values, noise).estimate() / spread)
        mute = trace.online.copy()
        mute[2:, 1:] = False
        forgotten.append(execution.with_trace(replace(trace, online=mute)).run_batch(values, noise).estimate() / spread)
    assert_standard_normal(np.ravel(scaled), ERROR_RATE)
    for other in (wrong, forgotten):
        assert stats.chi2.sf(float(np.square(other).sum()), 2000) < ERROR_RATE


@pytest.mark.parametrize("name", [pytest.param("gopa", marks=pytest.mark.slow), "muffliato"])
def test_plans_predict_what_simulation_finds(name: str) -> None:
    """1500 runs each. GOPA: the prediction averages 40 executions, so 10 % are allowed beside 5 standard errors."""
    target = Target(parties=24, epsilon=1.0, delta=1e-6, colluding=2, dropouts=0.15, dimension=4)
    plan = calibrate(target, get_protocol(name)(), executions=40 if name == "gopa" else None)
    result = simulate(plan, runs=1500, seed=SEED)
    print(name, result.mse, result.mse_standard_error, result.prediction, result.failed)
    assert result.failed == 0
    assert abs(result.mse - result.prediction) < 5 * result.mse_standard_error + 0.1 * result.prediction
    assert (np.abs(result.bias) < 5 * result.errors.std(axis=0) / math.sqrt(1500)).all()


@pytest.mark.slow
def test_one_partys_estimate_in_muffliato_carries_its_gossip_error() -> None:
    """One round on a ring: an estimate is the mean of three noisy values, not of all. 4000 runs, z-test on the squares."""
    plan = Plan(
        Target(parties=9, epsilon=1.0, delta=1e-6),
        get_protocol("muffliato").read({"sigma": 2.0, "rounds": 1, "schedule": "ring"}).resolved(9),
    )
    squares = simulate(plan, np.zeros((9, 1)), runs=4000, seed=SEED).errors[:, 0] ** 2
    assert_mean(squares, 4.0 / 3, math.sqrt(2) * 4.0 / 3, ERROR_RATE)
    with pytest.raises(AssertionError):
        assert_mean(squares, 4.0 / 9, math.sqrt(2) * 4.0 / 9, ERROR_RATE)


def best(epsilon: float, dimension: int) -> PrivUnitG:
    return PrivUnitG(epsilon=epsilon, probability=best_probability(epsilon, dimension))


def draw_reports(protocol: PrivUnitG, count: int, dimension: int) -> np.ndarray:
    direction = np.full(dimension, 1 / math.sqrt(dimension))
    stream = BitStream(Seed.public("reports", SEED))
    return np.array([report(protocol, direction, stream) for _ in range(count)])


@pytest.mark.slow
def test_priv_unit_reports_are_unbiased_with_the_stated_error() -> None:
    """40 000 reports: cap rate (binomial), mean along the vector and squared error (z-tests), each at error rate 1e-6.

    Rejected: the scale of another probability, here 5 % off in the constant m.
    """
    dimension, count = 20, 40_000
    protocol = best(2.0, dimension)
    reports = draw_reports(protocol, count, dimension)
    direction = np.full(dimension, 1 / math.sqrt(dimension))
    along = reports @ direction
    inside = int((along * protocol.mean_along >= protocol.gamma).sum())
    assert_rate(inside, count, protocol.probability, ERROR_RATE)
    spread = math.sqrt(protocol.square_along / protocol.mean_along**2 - 1)
    assert_mean(along, 1.0, spread, ERROR_RATE)
    across = (reports - along[:, None] * direction) @ np.linalg.qr(np.column_stack([direction, np.eye(dimension)[:, 1:]]))[0][
        :, 1
    ]
    assert_mean(across, 0.0, 1 / protocol.mean_along, ERROR_RATE)
    errors = ((reports - direction) ** 2).sum(axis=1)
    assert_mean(errors, protocol.error(dimension), float(errors.std()), ERROR_RATE)
    with pytest.raises(AssertionError):
        assert_mean(along / 1.05, 1.0, spread, ERROR_RATE)
    with pytest.raises(AssertionError):
        assert_rate(inside, count, protocol.probability + 0.02, ERROR_RATE)


def test_priv_unit_across_the_vector_is_gaussian() -> None:
    """20 000 reports in two dimensions: the part across is N(0, 1/m^2), Kolmogorov-Smirnov at error rate 1e-6."""
    protocol = best(1.0, 2)
    reports = draw_reports(protocol, 20_000, 2)
    assert_standard_normal((reports @ np.array([1.0, -1.0])) / math.sqrt(2) * protocol.mean_along, ERROR_RATE)


@pytest.mark.slow
def test_priv_unit_plan_has_the_papers_error() -> None:
    """n = 100, d = 20, epsilon = 2: total MSE 0.3232; 300 runs, within 5 standard errors (wrongly rejected with 6e-7)."""
    target = Target(parties=100, epsilon=2.0, delta=1e-5, dimension=20, sensitivity=2.0, colluding=10)
    result = simulate(calibrate(target, PrivUnitG()), runs=300, seed=SEED)
    print("total MSE", result.mse * 20, "+-", result.mse_standard_error * 20)
    assert abs(result.mse * 20 - 0.3232) < 5 * result.mse_standard_error * 20
    assert abs(result.mse * 20 - 1.15 * 0.3232) > 5 * result.mse_standard_error * 20
