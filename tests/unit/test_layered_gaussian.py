"""The sampler in layers: its variance and its distance to the discrete Gaussian, exactly at small sizes, and what it draws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from quietmean.randomness import SecureNoise, Seed
from quietmean.randomness import layered_gaussian as module
from quietmean.randomness.discrete_gaussian import discrete_gaussian
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureStackedNoise, insecure_seed
from quietmean.randomness.layered_gaussian import LARGEST_SCALE, layered_gaussian, variance

# Every statistical test here rejects a right sampler with this probability; seeds are fixed.
ERROR_RATE = 1e-4
COUNT = 400_000
Array = NDArray[np.float64]


def pmf(scale: float, reach: int) -> Array:
    """N_Z(0, scale^2) on -reach..reach, from the definition."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * scale**2))
    normalised: Array = weights / weights.sum()
    return normalised


def two_layers(low: float, high: float, factor: int) -> tuple[Array, float]:
    """The distribution of K_0 + factor K', by enumeration, and its scale."""
    reach = math.ceil(14 * high)
    upper = np.zeros(2 * reach * factor + 1)
    upper[::factor] = pmf(high, reach)
    return np.convolve(upper, pmf(low, math.ceil(14 * low))), math.hypot(low, factor * high)


def distance(low: float, high: float, factor: int) -> float:
    """Total variation of two layers to one discrete Gaussian of the same variance."""
    found, scale = two_layers(low, high, factor)
    return float(np.abs(found - pmf(scale, found.size // 2)).sum()) / 2


def stated(low: float, high: float, factor: int) -> float:
    """4 exp(-2 pi^2 u), the bound of the module."""
    u = 1.0 / (1.0 / high**2 + (factor / low) ** 2)
    return 4.0 * math.exp(-2.0 * math.pi**2 * u)


@pytest.mark.parametrize(("low", "high", "factor"), [(4.0, 1.5, 4), (8.0, 1.2, 8), (10.0, 2.0, 16), (3.0, 3.0, 4), (2.0, 5.0, 4)])
def test_two_layers_are_as_near_to_one_gaussian_as_proven(low: float, high: float, factor: int) -> None:
    assert 1e-14 < distance(low, high, factor) <= stated(low, high, factor)


def test_the_layers_in_use_are_exact_in_float64() -> None:
    """With the ratio 2.25 of the module, at its smallest upper scale; the bound is beyond what float64 shows."""
    assert distance(9.0, 7.6, 4) < 1e-14
    assert stated(288.0, 7.6, 128) < 2.0**-128


def test_the_scales_of_all_layers_are_those_of_the_proof() -> None:
    rng = np.random.default_rng(0)
    for scale in [1.0, 1024.0, math.nextafter(1024.0, 2000.0), 131072.0, LARGEST_SCALE, *2.0 ** rng.uniform(0, 36, 300)]:
        *low, top = module._layers(float(scale))
        assert len(low) <= 4
        assert all(one == 288.0 for one in low)
        assert top <= 1024.0
        if low:
            assert top >= 7.6


def test_the_variance_is_at_least_that_asked_for_and_hardly_more() -> None:
    rng = np.random.default_rng(1)
    for scale in [0.7, 1.5, 1000.0, 1025.0, 2.0**20, LARGEST_SCALE, *2.0 ** rng.uniform(-1, 36, 300)]:
        excess = variance(float(scale)) / Fraction(float(scale)) ** 2 - 1
        assert 0 <= excess < Fraction(1, 2**45)


def p_value(values: NDArray[np.int64], scale: float) -> float:
    """Chi-square test of two sets of counts: 64 bins of equal probability, and the lowest six bits."""
    bins = np.searchsorted(norm.ppf(np.arange(1, 64) / 64) * scale, values - 0.5)
    counts = np.concatenate([np.bincount(bins, minlength=64), np.bincount(values & 63, minlength=64)])
    each = [(one - values.size / 64) ** 2 / (values.size / 64) for one in counts.reshape(2, 64)]
    # Twice the smaller one: either test alone rejects at half the rate.
    return float(min(1.0, 2 * min(chi2.sf(one.sum(), 63) for one in each)))


@pytest.mark.parametrize("scale", [3000.0, 2.0**15, 1.3 * 2.0**20, 2.0**27])
def test_what_is_drawn_has_the_right_shape_and_even_low_bits(scale: float) -> None:
    values = layered_gaussian(insecure_seed(1), scale, COUNT)
    assert p_value(values, scale) > ERROR_RATE
    # The variance: 4.5 standard deviations of its estimate happen once in 150 000.
    assert abs(float((values.astype(float) ** 2).mean()) / scale**2 - 1) < 4.5 * math.sqrt(2 / COUNT)


def test_the_same_test_rejects_wrong_samplers() -> None:
    """A layer left out, a layer too narrow for its lattice, and a deviation 2 % too small."""
    scale = 2.0**20
    right = layered_gaussian(insecure_seed(2), scale, COUNT)
    upper = discrete_gaussian(insecure_seed(3), scale / 128, COUNT) * 128
    narrow = upper + discrete_gaussian(insecure_seed(4), 16.0, COUNT)
    assert p_value(right, scale) > ERROR_RATE
    for wrong in (upper, narrow, np.rint(0.98 * right).astype(np.int64)):
        assert p_value(wrong, scale) < ERROR_RATE


@pytest.mark.parametrize("scale", [0.8, 1.5, 40.0])
def test_small_scales_follow_the_definition(scale: float) -> None:
    values = layered_gaussian(insecure_seed(5), scale, COUNT)
    reach = math.ceil(6 * scale)
    found = np.bincount(np.clip(values, -reach, reach) + reach, minlength=2 * reach + 1)
    expected = pmf(scale, math.ceil(14 * scale))
    margin = expected.size // 2 - reach
    expected[margin] += expected[:margin].sum()
    expected[-margin - 1] += expected[-margin:].sum()
    expected = expected[margin:-margin] * COUNT
    common = expected >= 10
    statistic = ((found - expected) ** 2 / expected)[common].sum()
    assert chi2.sf(statistic, int(common.sum()) - 1) > ERROR_RATE


def test_fewer_values_are_the_first_of_more() -> None:
    many = layered_gaussian(insecure_seed(6), 2.0**21, 20_000)
    np.testing.assert_array_equal(layered_gaussian(insecure_seed(6), 2.0**21, 100), many[:100])
    assert (layered_gaussian(insecure_seed(7), 2.0**21, 100) != many[:100]).any()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 2 * LARGEST_SCALE])
def test_scales_that_are_not_supported(scale: float) -> None:
    with pytest.raises(ValueError, match="is supported"):
        layered_gaussian(insecure_seed(1), scale, 1)


def test_the_addresses_of_discrete_noise() -> None:
    """As they are derived: nodes of two versions must draw the same."""
    seed, other = Seed(bytes(range(32))), Seed(bytes(range(32, 64)))
    own, shared = SecureNoise(seed), SecureNoise(seed, other.derive)
    expected = layered_gaussian(seed.derive("discrete noise", "star", 3), 2.0**20, 5)
    np.testing.assert_array_equal(own.discrete("star", 3, 2.0**20, 5), expected)
    expected = layered_gaussian(other.derive(6).derive("shared discrete noise", "delta", 1), 2.0**20, 5)
    np.testing.assert_array_equal(shared.shared_discrete(6, "delta", 1, 2.0**20, 5), expected)
    golden = [1479505, 155171, -575844]
    assert own.discrete("star", 0, 2.0**20, 3).tolist() == golden


@pytest.mark.parametrize("kind", [InsecurePopulationNoise, InsecureStackedNoise])
@pytest.mark.parametrize("scale", [1.5, 300.0, 2.0**20])
def test_the_noise_of_a_population_is_that_of_its_parties(kind: type[InsecurePopulationNoise], scale: float) -> None:
    noise, pairs = kind(3, 4), np.array([[0, 1], [0, 3], [2, 3]])
    block = noise.discrete("star", 1, scale, 5)
    shared = noise.shared_discrete(pairs, "delta", 2, scale, 5)
    assert block.shape == (4, 5)
    for party in range(4):
        np.testing.assert_array_equal(noise.party(party).discrete("star", 1, scale, 5), block[party])
    for row, (one, other) in enumerate(pairs.tolist()):
        np.testing.assert_array_equal(noise.party(one).shared_discrete(other, "delta", 2, scale, 5), shared[row])
        np.testing.assert_array_equal(noise.party(other).shared_discrete(one, "delta", 2, scale, 5), shared[row])
