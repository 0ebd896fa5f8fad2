"""Conversions for whole numbers against 60-digit arithmetic, down to delta = 1e-12: never below the truth, and close to it.

Those of the curve itself and of charges are in ``test_charge.py``.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.privacy import Adversary, GridLossConversion, LocalNoiseLossConversion, mu_of_budget
from quietmean.privacy.dominating import SMOOTHING, discrete_charge, discrete_delta, dominating_mu, model_factor, smoothing
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

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
        sampled = mpmath.mpf(TOTAL_VARIATION) * 20 * dimension
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
        sampled = mpmath.mpf(TOTAL_VARIATION)
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
