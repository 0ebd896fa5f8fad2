"""The conversion for whole numbers: what it adds to mu, and the sampler's distance in epsilon and delta."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quietmean.privacy import Adversary, GridLossConversion, LocalNoiseLossConversion, LossConversion
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

NOBODY = Adversary.collusion(())


class Sampled(LossConversion):
    def __init__(self, tv: float) -> None:
        self.tv = tv


@pytest.mark.parametrize("mu", [0.05, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("sampled", [0.0, 1e-30, 1e-12, 1e-8])
def test_epsilon_is_the_least_whose_delta_with_the_sampler_fits(mu: float, sampled: float) -> None:
    conversion, delta = Sampled(sampled), 1e-6
    epsilon = conversion.epsilon(mu, delta)
    if math.isinf(epsilon):
        # Then the sampler alone takes all of delta where mu would leave room.
        assert all(conversion.delta(mu, number) > delta for number in np.linspace(0.0, 60.0, 200))
        return
    assert conversion.delta(mu, epsilon) <= delta
    assert epsilon >= epsilon_of_mu(mu, delta)
    assert epsilon == 0.0 or conversion.delta(mu, epsilon * (1 - 1e-6)) > delta


def test_delta_counts_the_sampler_on_both_sides() -> None:
    assert Sampled(1e-9).delta(0.5, 2.0) == pytest.approx(delta_of_mu(0.5, 2.0) + (1 + math.exp(2.0)) * 1e-9, rel=1e-12)
    assert Sampled(1e-9).delta(0.5, 600.0) == 1.0
    assert math.isinf(Sampled(1e-3).epsilon(0.5, 1e-6))


def test_mu_of_a_grid_is_as_in_the_theorem() -> None:
    conversion = GridLossConversion(step=0.5, dimension=10, deviations=[2.0, 0.0, 8.0], draws=7, rounding=lambda _, honest: 0.01)
    found = conversion.mu(NOBODY, [0, 1], np.array([0.5, 0.0]), 1.0)
    # 2.0 is four steps: v = 16, v / (v - 8) = 2. What is not seen costs nothing.
    np.testing.assert_allclose(found, [math.sqrt((0.25 + 10 * 0.01) * 2), 0.0])
    assert conversion.tv == 70 * TOTAL_VARIATION
    more = conversion.inflation(0.5, 2)
    assert more >= found[0] / 0.5


def test_too_few_steps_are_no_protection() -> None:
    conversion = GridLossConversion(step=1.0, dimension=1, deviations=[2.8], draws=1)
    assert math.isinf(conversion.mu(NOBODY, [0], np.array([0.1]), 1.0)[0])
    assert math.isinf(LocalNoiseLossConversion(0.0, step=1.0, dimension=1, draws=1).mu(NOBODY, [0], np.array([0.1]), 1.0)[0])


def test_local_noise_does_not_depend_on_what_is_seen() -> None:
    conversion = LocalNoiseLossConversion(4.0, step=1.0, dimension=1, draws=1)
    for view in (0.0, 0.1, math.inf):
        np.testing.assert_allclose(conversion.mu(NOBODY, [0], np.array([view]), 3.0), 3.0 / math.sqrt(8.0))
