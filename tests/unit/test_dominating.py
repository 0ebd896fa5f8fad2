"""The Gaussian that dominates a sum with discrete noise, against the exact divergence of small sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq

from quietmean.privacy.conversion import delta_of_mu
from quietmean.privacy.dominating import (
    SMOOTHING,
    discrete_charge,
    discrete_delta,
    dominating_mu,
    model_factor,
    smoothing,
)
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION

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
