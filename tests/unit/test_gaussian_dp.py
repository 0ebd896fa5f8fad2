"""mu, epsilon and delta: conversions, dominating pairs and sums, against other computations of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import erf

from quietmean.privacy import Adversary, GridLossConversion, LocalNoiseLossConversion, mu_of_budget
from quietmean.privacy.composition import classical_mu
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.privacy.loss import SMOOTHING, discrete_charge, discrete_delta, dominating_mu, model_factor, smoothing
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION as LAYERED_TOTAL_VARIATION
from support.effort import examples
from support.refusals import refused

# -- mu, epsilon and delta: against dp-accounting, numerical integration, and at the extremes.
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
        refused("Choose 0 < delta < 1", refusing, 1.0, delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_impossible_epsilon_is_refused(epsilon: float) -> None:
    for refusing in (mu_of_budget, classical_mu):
        refused("Choose a finite number >= 0", refusing, epsilon, 0.1)
    refused("Choose a finite number >= 0", delta_of_mu, 1.0, epsilon)


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


# -- The Gaussian that dominates a sum with discrete noise, against the exact divergence of small sums.
Array = NDArray[np.float64]
EPSILONS = (0.0, 0.25, 1.0, 2.0, 4.0, 6.0)
# Tables are cut where probabilities are so small.
NOTHING = 1e-80


def noise(scale: float, parties: int) -> Array:
    """Probabilities of the sum of ``parties`` independent N_Z(0, scale^2), around 0."""
    reach = math.ceil(20 * scale) + 10
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2))
    total = np.array([1.0])
    for _ in range(parties):
        total = np.convolve(total, one / one.sum())
    return total


def shifted(table: Array, change: int) -> tuple[Array, Array]:
    """The noise alone, and moved by ``change``."""
    room = np.zeros(change)
    return np.concatenate([table, room]), np.concatenate([room, table])


def exact_delta(first: Array, second: Array, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("parties", [1, 2, 3, 8])
def test_never_below_the_exact_divergence(scale: float, parties: int) -> None:
    """And with the noise of parties that is known besides; by the columns of the charge as well as by the factors."""
    table = noise(scale, parties)
    for change in (1, 2, 3, 7):
        mu, eta = dominating_mu(scale**2, change, parties), model_factor(scale**2, 1, parties)
        charge = discrete_charge(scale**2, change, 1, unknown=parties, drawn=parties + 1)
        for epsilon in EPSILONS:
            truth = exact_delta(*shifted(table, change), epsilon)
            assert truth <= discrete_delta(mu, eta, epsilon) * (1 + 1e-12) + NOTHING
            assert truth <= charge.delta(epsilon) * (1 + 1e-12)


@pytest.mark.parametrize("parties", [1, 3])
def test_two_coordinates(parties: int) -> None:
    table = noise(1.3, parties)
    for one, other in [(1, 1), (2, 1), (3, 2)]:
        (first, there), (second, here) = shifted(table, one), shifted(table, other)
        bound = discrete_charge(1.3**2, math.hypot(one, other), 2, unknown=parties, drawn=parties)
        for epsilon in EPSILONS:
            assert exact_delta(np.outer(first, second), np.outer(there, here), epsilon) <= bound.delta(epsilon) * (1 + 1e-12)


@pytest.mark.parametrize(("scale", "parties"), [(1.0, 1), (2.0, 1), (4.0, 1), (2.0, 2)])
def test_without_the_correction_it_would_be_below(scale: float, parties: int) -> None:
    """The check rejects mu = D / s: at one step delta is up to 1.19 times what it says."""
    table = noise(scale, parties)
    ratios = [
        exact_delta(*shifted(table, change), epsilon) / delta_of_mu(change / (scale * math.sqrt(parties)), epsilon)
        for change, epsilon in itertools.product((1, 2, 3, 7), EPSILONS)
    ]
    assert max(ratios) > 1.001


def bare_delta(variance: float, change: int, parties: int, epsilon: float) -> float:
    """The mutant: mu = D / s."""
    return delta_of_mu(change / math.sqrt(parties * variance), epsilon)


def proven_delta(variance: float, change: int, parties: int, epsilon: float) -> float:
    return discrete_charge(variance, change, 1, unknown=parties, drawn=parties).delta(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "change", "parties"), [(2.0, 1e-3, 2, 1), (2.0, 1e-3, 4, 3), (3.0, 1e-3, 2, 2), (1.0, 1e-5, 3, 2)]
)
def test_the_least_noise_keeps_exactly_the_target(epsilon: float, delta: float, change: int, parties: int) -> None:
    """By an independent convolution: what is designed is within the budget; the mutant's design is not, for these numbers."""

    def designed(spent: Callable[[float, int, int, float], float]) -> float:
        def excess(log_variance: float) -> float:
            return math.log(spent(math.exp(log_variance), change, parties, epsilon) / delta)

        return math.exp(brentq(excess, math.log(0.3), math.log(200.0), xtol=1e-13))

    truth = {
        spent: exact_delta(*shifted(noise(math.sqrt(designed(spent)), parties), change), epsilon) / delta
        for spent in (proven_delta, bare_delta)
    }
    assert truth[proven_delta] <= 1 + 1e-9
    assert truth[bare_delta] > 1


def test_how_close_it_is() -> None:
    """Wide noise costs nothing, coarse noise what page and docstring say: v / (v - 2)."""
    assert dominating_mu(2.0**24, 100.0, 4) == pytest.approx(100 / 2.0**13, rel=1e-7)
    assert dominating_mu(16.0, 1.0, 1) == pytest.approx(1 / math.sqrt(14), rel=1e-11)
    assert dominating_mu(16.0, 1.0, 1) > 1 / math.sqrt(14)


def test_factors() -> None:
    # Two steps for each of many parties: 3e-17 a coordinate; 12 steps and r^2 = 2: the same; 3000 steps and r^2 = 8: none.
    assert 2.8e-17 < model_factor(4.0, 1, 100) < 6e-17
    assert model_factor(144.0, 10, 100) == pytest.approx(10 * 4 * math.exp(-4 * math.pi**2), rel=1e-6)
    assert 0 < model_factor(9e6, 10**9, 10**4) < 1e-50
    assert model_factor(0.01, 1, 1) == math.inf
    assert model_factor(0.01, 1, 5) == math.inf
    assert model_factor(4.0, 0, 3) == model_factor(4.0, 3, 0) == 0.0


def test_the_columns_of_a_charge() -> None:
    charge = discrete_charge(9e6, 5.0, 128, unknown=40, drawn=50, beta=1e-11)
    assert charge.beta == 1e-11
    assert charge.tv == pytest.approx(50 * 128 * TOTAL_VARIATION, rel=1e-9)
    assert charge.mu == pytest.approx(5 / math.sqrt(40 * 9e6), rel=1e-6)
    assert discrete_charge(9e6, 5.0, 128, unknown=0, drawn=50).mu == math.inf
    assert discrete_charge(0.0, 5.0, 128, unknown=3, drawn=3).mu == math.inf
    assert discrete_delta(math.inf, 0.0, 1.0) == discrete_delta(0.1, math.inf, 1.0) == 1.0
    # By the factors it is never more than by the columns.
    for variance in (1.0, 1.5, 4.0):
        coarse = discrete_charge(variance, 1.0, 3, unknown=4, drawn=4, sampler=0.0)
        assert discrete_delta(coarse.mu, model_factor(variance, 3, 4), 1.0) <= coarse.delta(1.0)


@given(variance=st.floats(1e-3, 1e12), more=st.floats(1e-6, 10.0))
def test_more_noise_never_costs_more(variance: float, more: float) -> None:
    larger = variance * (1 + more)
    assert 0 < smoothing(variance) <= min(SMOOTHING, variance / 2)
    assert smoothing(variance) <= smoothing(larger)
    assert dominating_mu(larger, 1.0, 1) < dominating_mu(variance, 1.0, 1)
    assert model_factor(larger, 3, 5) <= model_factor(variance, 3, 5)


# -- Conversions for whole numbers against 60-digit arithmetic, down to delta = 1e-12: never below the truth, and close to it.
DIGITS = 100
NOBODY = Adversary.collusion(())
POWER = st.floats(-12.0, -2.0)
DELTA = POWER.map(lambda power: 10.0**power)
# Of noise, in squared steps.
VARIANCE = st.floats(0.0, 40.0).map(lambda power: 2.0**power)
CLOSE = mpmath.mpf("1e-9")


def normal(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def true_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    return normal(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * normal(-epsilon / mu - mu / 2)


def excess(variance: mpmath.mpf) -> mpmath.mpf:
    """x(u), with all terms that matter in 60 digits."""
    return 2 * mpmath.nsum(lambda i: mpmath.exp(-2 * mpmath.pi**2 * variance * i**2), [1, 40])


def true_factor(variance: float, coordinates: int, drawn: int) -> mpmath.mpf:
    v = mpmath.mpf(variance)
    merging = mpmath.fsum(2 * mpmath.atanh(excess(v * k / (k + 1))) for k in range(1, drawn))
    return coordinates * (merging - 2 * mpmath.log1p(-excess(mpmath.mpf(smoothing(variance)))))


@given(VARIANCE, st.floats(0.1, 1e6), st.integers(1, 200))
def test_mu_of_a_sum(variance: float, change: float, unknown: int) -> None:
    with mpmath.workdps(DIGITS):
        total = unknown * mpmath.mpf(variance)
        truth = mpmath.mpf(change) / mpmath.sqrt(total - mpmath.mpf(smoothing(unknown * variance)))
        shown = dominating_mu(variance, change, unknown)
        assert truth <= shown <= truth * (1 + CLOSE)


@given(st.floats(1.0, 200.0), st.integers(1, 1000), st.integers(1, 12))
def test_the_factor_of_a_model(variance: float, coordinates: int, drawn: int) -> None:
    with mpmath.workdps(DIGITS):
        truth, shown = true_factor(variance, coordinates, drawn), model_factor(variance, coordinates, drawn)
        assert truth <= shown <= truth * (1 + CLOSE)


@given(VARIANCE, st.floats(0.1, 4.0), DELTA, st.integers(1, 6), DELTA, st.sampled_from([0.0, 2.0**-70]))
def test_delta_of_a_sum(variance: float, steps: float, delta: float, drawn: int, beta: float, sampler: float) -> None:
    """By factors and by columns, at the epsilon where the Gaussian part is about ``delta``."""
    with mpmath.workdps(DIGITS):
        mu = mpmath.mpf(steps) / mpmath.sqrt(drawn * mpmath.mpf(variance) - mpmath.mpf(smoothing(drawn * variance)))
        epsilon = float(mpmath.re(mu * mu / 2 + mu * mpmath.sqrt(-2 * mpmath.log(delta))))
        eta, e = true_factor(variance, 2, drawn), mpmath.mpf(epsilon)
        sampled = mpmath.mpf(sampler) * 2 * drawn
        rest = mpmath.mpf(beta) + sampled * (1 + mpmath.exp(e))
        truth = mpmath.exp(eta) * true_delta(mu, max(e - 2 * eta, mpmath.mpf(0))) + rest
        shown_mu, shown_eta = dominating_mu(variance, steps, drawn), model_factor(variance, 2, drawn)
        shown = discrete_delta(shown_mu, shown_eta, epsilon, beta=beta, sampled=float(sampled))
        assert min(truth, 1) <= mpmath.mpf(shown) * (1 + mpmath.mpf("1e-15"))
        assert shown <= truth * (1 + CLOSE)
        charge = discrete_charge(variance, steps, 2, unknown=drawn, drawn=drawn, beta=beta, sampler=sampler)
        columns = true_delta(mu, e) + mpmath.mpf(beta) + (1 + mpmath.exp(e)) * (mpmath.tanh(eta / 2) + sampled)
        assert min(columns, 1) <= charge.delta(epsilon)
        assert charge.delta(epsilon) <= columns * (1 + CLOSE)


@given(st.floats(0.01, 3.0), DELTA, st.floats(10.0, 40.0), st.integers(1, 1000), st.floats(0.0, 1e-6))
def test_epsilon_on_a_grid(view: float, delta: float, power: float, dimension: int, rounding: float) -> None:
    """From the real shift to the epsilon that is shown: mu^2 = (view^2 + d b^2) v / (v - 8), and the sampler's distance."""
    step, deviation = 2.0**-power, 1.0
    conversion = GridLossConversion(
        step=step, dimension=dimension, deviations=[deviation], draws=20, rounding=lambda _, honest: rounding
    )
    mu = float(conversion.mu(NOBODY, [0], np.array([view]), 1.0)[0])
    epsilon = conversion.epsilon(mu, delta)
    with mpmath.workdps(DIGITS):
        v = (mpmath.mpf(deviation) / mpmath.mpf(step)) ** 2
        true_mu = mpmath.sqrt((mpmath.mpf(view) ** 2 + dimension * mpmath.mpf(rounding)) * v / (v - mpmath.mpf(SMOOTHING)))
        sampled = mpmath.mpf(LAYERED_TOTAL_VARIATION) * 20 * dimension
        spent = true_delta(true_mu, mpmath.mpf(epsilon)) + (1 + mpmath.exp(epsilon)) * sampled
        assert spent <= mpmath.mpf(delta)
        if epsilon > 0:
            assert spent >= delta * (1 - mpmath.mpf("1e-6"))


@given(st.floats(0.1, 10.0), DELTA, st.floats(4.0, 30.0))
def test_local_noise_on_a_grid(epsilon: float, delta: float, power: float) -> None:
    """sigma of a budget, then the epsilon that a certificate shows: the budget at least, by what the grid costs."""
    sigma = 1.0 / mu_of_budget(epsilon, delta)
    conversion = LocalNoiseLossConversion(sigma, step=sigma * 2.0**-power, dimension=1, draws=1)
    mu = float(conversion.mu(NOBODY, [0], np.array([0.0]), 1.0)[0])
    shown = conversion.epsilon(mu, delta)
    with mpmath.workdps(DIGITS):
        true_mu = 1 / mpmath.mpf(sigma) / mpmath.sqrt(1 - 8 * mpmath.mpf(2) ** (-2 * mpmath.mpf(power)))
        sampled = mpmath.mpf(LAYERED_TOTAL_VARIATION)
        assert true_delta(true_mu, mpmath.mpf(shown)) + (1 + mpmath.exp(shown)) * sampled <= mpmath.mpf(delta)
    assert shown >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("delta", [1e-6, 1e-12])
def test_an_optimistic_conversion_would_be_found(delta: float) -> None:
    """mu = D / s, without the correction: at 16 steps of noise the epsilon that it shows costs more than delta."""
    mu = 1.0 / 16.0
    with mpmath.workdps(DIGITS):
        true_mu = mpmath.mpf(1) / mpmath.sqrt(256 - mpmath.mpf(SMOOTHING))
        conversion = GridLossConversion(step=1.0, dimension=1, deviations=[], draws=0)
        assert true_delta(true_mu, mpmath.mpf(conversion.epsilon(mu, delta))) > mpmath.mpf(delta)
