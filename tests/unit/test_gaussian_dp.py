"""mu, epsilon and delta: against dp-accounting, numerical integration, and at the extremes."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erf

from quietmean.core.errors import InputError
from quietmean.privacy import mu_of_budget
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.privacy.gaussian import classical_mu
from support.effort import examples

GRID = [(mu, epsilon) for mu in (0.05, 0.3, 1.0, 3.0, 8.0) for epsilon in (0.0, 0.1, 1.0, 4.0) if epsilon / mu - mu / 2 < 12]
BUDGETS = [(epsilon, delta) for epsilon in (0.05, 0.2, 1.0, 3.0, 10.0) for delta in (1e-3, 1e-5, 1e-9, 1e-12)]


def integrated_delta(mu: float, epsilon: float) -> float:
    """The integral over all views of what the shifted density has above e^epsilon times the other; relative error 1e-11."""
    start = epsilon / mu + mu / 2

    def excess(beyond: float) -> float:
        # The point is start + beyond, where the log of the density ratio is epsilon + mu * beyond.
        density = math.exp(-((start + beyond - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        return -density * math.expm1(-mu * beyond)

    middle = max(mu - start, 0.0) + 1.0
    return sum(
        float(quad(excess, a, b, epsabs=0.0, epsrel=1e-12, limit=200)[0]) for a, b in ((0.0, middle), (middle, middle + 40))
    )


@pytest.mark.parametrize(("mu", "epsilon"), GRID)
def test_delta_is_the_integral(mu: float, epsilon: float) -> None:
    assert delta_of_mu(mu, epsilon) == pytest.approx(integrated_delta(mu, epsilon), rel=1e-10)


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 1e-4, 1e-2, 1.0])
def test_delta_at_epsilon_zero_is_the_total_variation_rounded_up(mu: float) -> None:
    exact = float(erf(mu / math.sqrt(8)))
    assert exact <= delta_of_mu(mu, 0.0) <= exact * (1 + 1e-11)


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_delta_of_small_mu_is_accurate(mu: float, ratio: float) -> None:
    assert delta_of_mu(mu, ratio * mu) == pytest.approx(integrated_delta(mu, ratio * mu), rel=1e-10)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_budgets_agree_with_dp_accounting(epsilon: float, delta: float) -> None:
    assert 1 / mu_of_budget(epsilon, delta) == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-8)
    assert epsilon_of_mu(1 / 3, delta) == pytest.approx(dp_accounting.get_epsilon_gaussian(3.0, delta), rel=1e-8)


@settings(max_examples=examples(200))
@given(st.floats(-4, 1.5).map(lambda power: 10.0**power), st.floats(-12, -0.5).map(lambda power: 10.0**power))
def test_round_trips_and_their_direction(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu, delta)
    assert delta_of_mu(mu, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert delta_of_mu(mu, epsilon) == pytest.approx(delta, rel=1e-7)
        assert mu_of_budget(epsilon, delta) == pytest.approx(mu, rel=1e-9)
        # Rounded down and back up, a budget is never exceeded.
        assert mu_of_budget(epsilon, delta) <= mu * (1 + 1e-9)


@given(st.floats(0.01, 20), st.floats(0.01, 20), st.floats(0, 10), st.floats(1e-12, 0.5))
def test_more_mu_means_less_privacy(one: float, other: float, epsilon: float, delta: float) -> None:
    low, high = sorted((one, other))
    assert delta_of_mu(low, epsilon) <= delta_of_mu(high, epsilon)
    assert epsilon_of_mu(low, delta) <= epsilon_of_mu(high, delta)
    assert 0.0 <= delta_of_mu(low, epsilon) <= 1.0


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-16, 0.5, 0.999999])
@pytest.mark.parametrize("mu", [1e-8, 1e-3, 1.0, 50.0])
def test_epsilon_at_extremes(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu, delta)
    assert math.isfinite(epsilon)
    assert epsilon >= 0
    # The first term of delta bounds it, and epsilon 0 is right exactly where total variation is at most delta.
    assert epsilon <= mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-8
    assert (epsilon == 0.0) == (float(erf(mu / math.sqrt(8))) <= delta)


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-16, 0.5, 0.999999])
@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1.0, 1000.0])
def test_mu_at_extremes(epsilon: float, delta: float) -> None:
    mu = mu_of_budget(epsilon, delta)
    assert 0 < mu < math.inf
    assert delta_of_mu(mu, epsilon) <= delta * (1 + 1e-8)
    assert delta_of_mu(mu * 1.001, epsilon) > delta


def test_no_and_total_loss() -> None:
    assert delta_of_mu(0.0, 1.0) == 0.0
    assert delta_of_mu(math.inf, 1.0) == 1.0
    assert epsilon_of_mu(0.0, 1e-5) == 0.0
    assert epsilon_of_mu(math.inf, 1e-5) == math.inf
    assert delta_of_mu(50.0, 10.0) == 1.0


def test_the_classical_constant() -> None:
    assert classical_mu(0.2, 1e-5) == pytest.approx(0.2 / math.sqrt(2 * math.log(125_000)), rel=1e-15)
    # It wastes a factor of 1.5 to 2.5 in variance where it is valid, and is invalid for large epsilon.
    waste = [(mu_of_budget(epsilon, 1e-5) / classical_mu(epsilon, 1e-5)) ** 2 for epsilon in (0.1, 0.2, 0.5, 0.9)]
    assert all(1.3 < factor < 3.0 for factor in waste)
    assert mu_of_budget(50.0, 1e-5) < classical_mu(50.0, 1e-5)


def test_composition_adds_squares() -> None:
    """Two Gaussian mechanisms of mu 0.6 and 0.8 are one of mu 1, by dp-accounting's privacy loss distributions."""
    parts = dp_accounting.pld.privacy_loss_distribution
    both = parts.from_gaussian_mechanism(1 / 0.6, value_discretization_interval=1e-4).compose(
        parts.from_gaussian_mechanism(1 / 0.8, value_discretization_interval=1e-4)
    )
    assert both.get_delta_for_epsilon(1.0) == pytest.approx(delta_of_mu(1.0, 1.0), rel=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_impossible_delta_is_refused(delta: float) -> None:
    for refusing in (epsilon_of_mu, mu_of_budget, classical_mu):
        with pytest.raises(InputError, match="choose 0 < delta < 1"):
            refusing(1.0, delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_impossible_epsilon_is_refused(epsilon: float) -> None:
    for refusing in (mu_of_budget, classical_mu):
        with pytest.raises(InputError, match="choose a finite number >= 0"):
            refusing(epsilon, 0.1)
    with pytest.raises(InputError, match="choose a finite number >= 0"):
        delta_of_mu(1.0, epsilon)


def test_grid_is_not_trivial() -> None:
    assert len(GRID) >= 15
    assert np.ptp([integrated_delta(*point) for point in GRID]) > 0.9


@pytest.mark.parametrize("mu", [9e7, 1.1e8, 1e9, 1e30, 1e150, 1e154, 1e300])
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-300])
def test_epsilon_of_a_mu_that_protects_nothing(mu: float, delta: float) -> None:
    """mu^2 / 2 to within 50 / mu, from above; infinite where that is no number any more."""
    epsilon = epsilon_of_mu(mu, delta)
    assert epsilon >= mu * mu / 2
    assert epsilon == math.inf or epsilon <= mu * mu / 2 * (1 + 100 / mu + 1e-9)
