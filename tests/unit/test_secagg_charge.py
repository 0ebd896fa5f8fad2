"""What secure aggregation is charged: never below the truth, also for several studies, and never above what was reserved."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Charge, compose, mu_of_budget
from quietmean.privacy.loss import model_factor
from quietmean.protocols import configure, get_protocol
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg.design import hidden_by
from quietmean.randomness import Seed
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION

Array = NDArray[np.float64]
DELTA = 1e-5
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)


def noise(scale: float, parties: int) -> Array:
    """Probabilities of the sum of independent discrete Gaussians, around 0."""
    reach = math.ceil(20 * scale) + 10
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2))
    total = np.array([1.0])
    for _ in range(parties):
        total = np.convolve(total, one / one.sum())
    return total


def view(point: float, scale: float, parties: int) -> Array:
    low = math.floor(point)
    table = np.zeros(10)
    table[low], table[low + 1] = 1 - (point - low), point - low
    return np.convolve(noise(scale, parties), table)


def exact_delta(first: Array, second: Array, epsilon: float) -> float:
    factor = math.exp(epsilon)
    return float(max(np.maximum(first - factor * second, 0).sum(), np.maximum(second - factor * first, 0).sum()))


def charged(scale: float, change: float, parties: int, rounding: str = "independent") -> Charge:
    raw = {"threshold": 2, "minimum": 2, "granularity": 1.0, "sigma": scale, "clip": change / 2, "rounding": rounding}
    parameters = SecAgg.read({**raw, "dimension": 1}).resolved(2)
    return hidden_by(parameters, change, unknown=parties, drawn=parties, dimension=1, delta=DELTA)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("parties", [1, 2, 3])
def test_a_study_is_never_charged_less_than_the_exact_divergence(scale: float, parties: int) -> None:
    for change, place in itertools.product((1.0, 2.5, 6.0), (0.0, 0.25, 0.5)):
        views = [view(point, scale, parties) for point in (place, place + change)]
        charge = charged(scale, change, parties)
        for epsilon in EPSILONS:
            assert exact_delta(views[0], views[1], epsilon) <= charge.delta(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize(("scale", "parties", "change"), [(2.0, 1, 1.0), (2.0, 3, 2.5), (4.0, 2, 2.5)])
def test_two_studies_together_neither(scale: float, parties: int, change: float) -> None:
    first, second = (view(point, scale, parties) for point in (0.25, 0.25 + change))
    charge = charged(scale, change, parties)
    twice = compose([charge, charge])
    for epsilon in EPSILONS:
        assert exact_delta(np.outer(first, first), np.outer(second, second), epsilon) <= twice.delta(epsilon) * (1 + 1e-9)


def test_a_charge_without_its_model_error_is_found_out() -> None:
    """The checks above can fail: at half a step of noise the Gaussian part alone is below the truth."""
    charge = charged(0.5, 1.0, 2)
    bare = Charge(1.0 / (0.5 * math.sqrt(2)))
    views = [view(point, 0.5, 2) for point in (0.0, 1.0)]
    assert any(exact_delta(views[0], views[1], epsilon) > bare.delta(epsilon) for epsilon in EPSILONS)
    assert all(exact_delta(views[0], views[1], epsilon) <= charge.delta(epsilon) for epsilon in EPSILONS)


def test_the_additive_columns() -> None:
    raw = {"threshold": 2, "minimum": 2, "granularity": 1.0, "sigma": 64.0, "clip": 1.0, "dimension": 100}

    def columns(graph: float, **more: object) -> Charge:
        return hidden_by(
            SecAgg.read({**raw, **more}).resolved(2), 1.0, unknown=40, drawn=50, dimension=100, delta=DELTA, graph=graph
        )

    independent = columns(2.0**-40, rounding="independent")
    assert independent.beta == 1e-5 * DELTA + 2.0**-40
    assert independent.tv == pytest.approx(50 * 128 * TOTAL_VARIATION + model_factor(64.0**2, 128, 50) / 2, rel=1e-6)
    # Beside a delta of 1e-9 and epsilon 1, for a ledger of a hundred such studies: still nothing.
    assert 100 * (1 + math.e) * independent.tv < 0.01 * 1e-9
    assert columns(0.0, rounding="conditional").beta == 0.0
    # From some 3000 steps of one party on, nothing but the sampler is left.
    assert columns(0.0, sigma=1024.0).tv == pytest.approx(50 * 128 * TOTAL_VARIATION + model_factor(2.0**20, 128, 50) / 2)
    assert columns(0.0, sigma=4096.0).tv == pytest.approx(50 * 128 * TOTAL_VARIATION, rel=1e-9)
    assert columns(0.0, noise="none", sigma=0.0) == Charge(math.inf)


@pytest.mark.parametrize("eta", [1e-12, 0.01, 0.5, 3.0])
def test_factors_of_probabilities_as_a_distance(eta: float) -> None:
    """No two distributions whose probabilities differ by factors up to e^eta are farther apart than tanh(eta / 2)."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        weights = rng.dirichlet(np.ones(6))
        ratios = np.exp(rng.uniform(-eta, eta, 6) / 2)
        other = weights * ratios / (weights * ratios).sum()
        assert np.abs(np.log(other / weights)).max() <= eta * (1 + 1e-9) + 1e-15
        assert np.abs(other - weights).sum() / 2 <= math.tanh(eta / 2) * (1 + 1e-9) + 1e-15
    # It is attained.
    most = np.array([1.0, math.exp(eta)]) / (1 + math.exp(eta))
    assert (most[1] - most[::-1][1]) == pytest.approx(math.tanh(eta / 2), rel=1e-3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["secagg", "secagg-plus"])
@pytest.mark.parametrize("unit", list(PrivacyUnit))
def test_executions_cost_at_most_what_was_reserved_in_every_column(name: str, unit: PrivacyUnit) -> None:
    target = Target(20, 1.0, DELTA, dimension=6, sensitivity=1.0, colluding=2, dropouts=0.1, unit=unit)
    plan = calibrate(target, configure(name))
    reserved = plan.charge
    assert reserved.bounded
    for seed, left in enumerate((0, 1, 2)):
        trace = ExecutionTrace.everyone(7, 20)
        trace.online[3:, 20 - left :] = False
        certificate = plan.execution(Seed.public(f"charge {seed}"), trace).privacy(DELTA).coalitions(2, limit=60)
        for party in range(20):
            charge = certificate.charge(party)
            assert not charge.exceeds(reserved), (charge, reserved)
            # What adds up is what is shown.
            assert charge.mu == certificate.mu[party]
        assert certificate.charge(1).mu == pytest.approx(mu_of_budget(certificate.max_epsilon, DELTA), rel=1e-4)


def test_what_other_protocols_reserve() -> None:
    target = Target(10, 1.0, 1e-6, sensitivity=2.0)
    for name in ("local-dp", "central-dp", "muffliato", "cordp-dme"):
        reserved = calibrate(target, configure(name)).charge
        assert 0.99 * mu_of_budget(1.0, 1e-6) < reserved.mu <= mu_of_budget(1.0, 1e-6) * (1 + 1e-9)
        assert (reserved.beta, reserved.tv > 0) == (0.0, True)
    for name in ("gossip", "secret-sharing"):
        assert not Charge.promised(configure(name).a_priori(10, 1, 2.0, 1e-6)).bounded
    unit = calibrate(target, configure("priv-unit-g"))
    assert unit.charge == Charge.of_mechanism(1.0)


def test_rounding_of_shares_gives_no_refund() -> None:
    raw = {"rounds": 2, "sigma_star": 1.0, "sigma_delta": 1.0, "injection": "incremental"}
    grid = {"value_bits": 32, "grid": 2.0**-20, "largest_value": 1.0, "dimension": 1}
    kind = get_protocol("inca")
    assert [kind.read(each).resolved(8).traits.refunds for each in (raw, raw | grid)] == [True, False]
