"""The sampler's distribution. Each assertion fails on a correct sampler with probability 1e-6; seeds are fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from quietmean.randomness import BitStream, SecureNoise
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.testing import (
    assert_mean,
    assert_rate,
    assert_standard_normal,
    assert_uncorrelated,
    assert_uniform_counts,
    assert_variance,
)

SIZE = 1_000_000
Samples = NDArray[np.float64]


def sample(number: int, size: int = SIZE) -> Samples:
    return BitStream(insecure_seed(number, "distribution")).standard_normal(size)


def assert_standard_normal_moments(values: Samples) -> None:
    assert_standard_normal(values)
    assert_mean(values, 0.0, 1.0)
    assert_variance(values, 1.0)


def test_values_are_standard_normal() -> None:
    """Kolmogorov-Smirnov, mean and variance, a million values: error rate 3e-6."""
    assert_standard_normal_moments(sample(1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "wrong",
    [lambda z: z * 1.01, lambda z: z + 0.01, lambda z: np.clip(z, -2.5, 2.5), lambda z: np.round(z, 1), np.abs],
    ids=["scaled", "shifted", "clipped", "rounded", "folded"],
)
def test_wrong_samplers_are_rejected(wrong: Callable[[Samples], Samples]) -> None:
    with pytest.raises(AssertionError):
        assert_standard_normal_moments(wrong(sample(1)))


@pytest.mark.parametrize("threshold", [2.0, 3.0, 4.0, 4.5])
def test_tails_have_their_counts(threshold: float) -> None:
    """Exact binomial tests of both tails, four million values: error rate 2e-6."""
    values = sample(2, 4 * SIZE)
    tail = float(ndtr(-threshold))
    for side in (values, -values):
        assert_rate(int((side > threshold).sum()), values.size, tail)
        with pytest.raises(AssertionError):
            assert_rate(int((side * 1.05 > threshold).sum()), values.size, tail)


@pytest.mark.parametrize(
    ("first", "second"),
    [(("star", 0), ("star", 1)), (("star", 0), ("delta", 0)), (("delta", 1), ("delta", 2)), (("a", 11), ("a1", 1))],
)
def test_differently_labelled_streams_are_uncorrelated(first: tuple[str, int], second: tuple[str, int]) -> None:
    """Pearson's test, 100 000 values: error rate 2e-6."""
    noise, other = SecureNoise(insecure_seed(3)), SecureNoise(insecure_seed(4))
    values = noise.normal(*first, 100_000)
    assert_uncorrelated(values, noise.normal(*second, 100_000))
    assert_uncorrelated(values, other.normal(*first, 100_000))
    with pytest.raises(AssertionError):
        assert_uncorrelated(values, noise.normal(*second, 100_000) + 0.03 * values)


def test_parties_of_a_population_are_uncorrelated() -> None:
    """Pearson's test of neighbouring rows: error rate 3e-6."""
    block = InsecurePopulationNoise(6, 4).normal("star", 0, 100_000)
    for row in range(3):
        assert_uncorrelated(block[row], block[row + 1])


def test_integers_are_uniform() -> None:
    """Chi-square over 97 values: error rate 1e-6; leaving one value out is rejected."""
    drawn = BitStream(insecure_seed(5)).integers(97, 100_000)
    assert_uniform_counts(np.bincount(drawn, minlength=97))
    with pytest.raises(AssertionError):
        assert_uniform_counts(np.bincount(drawn[drawn != 13], minlength=97))
    with pytest.raises(AssertionError, match="too few draws"):
        assert_uniform_counts(np.array([1, 2]))


def test_first_and_last_places_of_permutations_are_uniform() -> None:
    """Chi-square over (first, last) pairs of 20 000 permutations of 6: error rate 1e-6."""
    stream = BitStream(insecure_seed(7))
    ends = np.array([(drawn[0], drawn[-1]) for drawn in (stream.permutation(6) for _ in range(20_000))])
    counts = np.bincount(6 * ends[:, 0] + ends[:, 1], minlength=36).reshape(6, 6)
    assert (np.diag(counts) == 0).all()
    assert_uniform_counts(counts[~np.eye(6, dtype=bool)])
