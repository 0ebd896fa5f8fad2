"""The discrete Gaussian sampler against its exact probabilities and against an independent exact sampler."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, chi2_contingency

from quietmean.randomness import BitStream, Seed
from quietmean.randomness import discrete_gaussian as module
from quietmean.randomness.discrete_gaussian import LARGEST_SCALE, TOTAL_VARIATION, cumulative_table, discrete_gaussian, invert
from quietmean.randomness.insecure import insecure_seed
from support.refusals import raised

# Every statistical test here rejects a right sampler with this probability; seeds are fixed.
ERROR_RATE = 1e-4
COUNT = 200_000


def probabilities(scale: float, reach: int) -> NDArray[np.float64]:
    """P(X = -reach..reach), from the definition."""
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support**2) / (2 * scale**2))
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def chi_square_p(values: NDArray[np.int64], scale: float) -> float:
    """P value of the counts; outcomes expected fewer than 10 times are put together."""
    reach = int(12 * scale) + 3
    expected = probabilities(scale, reach) * values.size
    found = np.bincount(values + reach, minlength=expected.size).astype(np.float64)
    common = expected >= 10
    pairs = [(found[common], expected[common])]
    rest = np.array([found[~common].sum()]), np.array([expected[~common].sum()])
    pairs += [rest] if rest[1][0] > 1 else []
    statistic = sum(float(((f - e) ** 2 / e).sum()) for f, e in pairs)
    return float(chi2.sf(statistic, sum(f.size for f, _ in pairs) - 1))


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.7, 40.0, 700.0])
def test_counts_follow_the_definition(scale: float) -> None:
    assert chi_square_p(discrete_gaussian(insecure_seed(1), scale, COUNT), scale) > ERROR_RATE


def test_the_same_test_rejects_a_rounded_gaussian() -> None:
    rounded = np.rint(0.6 * BitStream(insecure_seed(2)).standard_normal(COUNT)).astype(np.int64)
    assert chi_square_p(rounded, 0.6) < ERROR_RATE
    assert chi_square_p(discrete_gaussian(insecure_seed(2), 0.6, COUNT), 0.6) > ERROR_RATE


class ExactSampler:
    """Canonne, Kamath and Steinke 2020, Algorithms 1 to 3: rejection with rational coins."""

    def __init__(self, seed: Seed) -> None:
        self._words = iter(BitStream(seed).words(2_000_000).tolist())

    def _coin(self, chance: Fraction) -> bool:
        return bool(next(self._words) * chance.denominator < chance.numerator << 64)

    def _exp_coin(self, gamma: Fraction) -> bool:
        while gamma > 1:
            if not self._exp_coin(Fraction(1)):
                return False
            gamma -= 1
        count = 1
        while self._coin(gamma / count):
            count += 1
        return count % 2 == 1

    def _laplace(self, scale: int) -> int:
        while True:
            low = int(next(self._words)) % scale
            if not self._exp_coin(Fraction(low, scale)):
                continue
            high = 0
            while self._exp_coin(Fraction(1)):
                high += 1
            size, negative = low + scale * high, self._coin(Fraction(1, 2))
            if size or not negative:
                return -size if negative else size

    def gaussian(self, square: Fraction) -> int:
        scale = int(float(square) ** 0.5) + 1
        while True:
            drawn = self._laplace(scale)
            if self._exp_coin((abs(drawn) - square / scale) ** 2 / (2 * square)):
                return drawn


@pytest.mark.slow
def test_counts_agree_with_an_independent_exact_sampler() -> None:
    sampler = ExactSampler(insecure_seed(3))
    exact = np.array([sampler.gaussian(Fraction(9, 4)) for _ in range(20_000)])
    ours = discrete_gaussian(insecure_seed(4), 1.5, 20_000)
    edges = np.arange(-4.5, 5.5)
    table = [np.histogram(np.clip(values, -4, 4), edges)[0] for values in (exact, ours)]
    assert chi2_contingency(np.array(table)).pvalue > ERROR_RATE


@pytest.mark.parametrize("scale", [0.2, 2.0, 37.3])
def test_the_table_is_as_near_to_the_definition_as_stated(scale: float) -> None:
    table = module.cumulative_table(scale)
    boundaries = [
        (int(high) << 64) + int(low) for high, low in zip(table.high[:-1].tolist(), table.low[:-1].tolist(), strict=True)
    ]
    steps = np.diff([0, *boundaries, 1 << 128])
    with localcontext() as context:
        context.prec = 60
        reach = 2 * table.reach
        weights = {k: (-(Decimal(k) ** 2) / (2 * Decimal(scale) ** 2)).exp() for k in range(-reach, reach + 1)}
        total = sum(weights.values())
        inside = {k - table.reach: Decimal(int(step)) / 2**128 for k, step in enumerate(steps)}
        distance = sum(abs(inside.get(k, Decimal(0)) - weight / total) for k, weight in weights.items()) / 2
    assert distance < TOTAL_VARIATION


def test_a_word_on_a_boundary_is_decided_by_the_second_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    table = module.cumulative_table(2.0)
    place = table.reach  # the boundary between 0 and 1
    low = int(table.low[place])
    highs = [int(table.high[place]) + step for step in (-1, 0, 0, 1)]
    lows = [2**64 - 1, low - 1, low, 0]

    class Words:
        def __init__(self, seed: Seed) -> None:
            self._words = highs if seed == Seed.public("word").derive("high") else lows

        def words(self, count: int) -> NDArray[Any]:
            return np.array(self._words[:count], dtype=np.uint64)

    monkeypatch.setattr(module, "BitStream", Words)
    assert discrete_gaussian(Seed.public("word"), 2.0, 4).tolist() == [0, 0, 1, 1]
    highs[:], lows[:] = [0, 2**64 - 1, 0, 2**64 - 1], [0, 2**64 - 1, 2**64 - 1, 0]
    ends = discrete_gaussian(Seed.public("word"), 2.0, 4)
    assert ends[0] == -table.reach
    assert ends[1] == table.reach


def test_values_repeat_and_differ_by_seed() -> None:
    one, again, other = (discrete_gaussian(insecure_seed(number), 9.0, 50) for number in (5, 5, 6))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(discrete_gaussian(insecure_seed(5), 9.0, 20), one[:20])
    assert (one != other).any()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), 2 * LARGEST_SCALE])
def test_scales_that_are_not_supported(scale: float) -> None:
    raised(ValueError, "is supported", discrete_gaussian, insecure_seed(1), scale, 1)


@pytest.mark.parametrize(("bits", "width"), [(16, 2), (32, 4)])
def test_full_ring_elements_are_the_stream_itself(bits: int, width: int) -> None:
    elements = BitStream(insecure_seed(7)).ring(bits, 1001)
    assert elements.tobytes() == BitStream(insecure_seed(7)).words(1001).tobytes()[: width * 1001]


@pytest.mark.parametrize("bits", [1, 9, 20, 31])
def test_ring_elements_are_uniform(bits: int) -> None:
    elements = BitStream(insecure_seed(8)).ring(bits, COUNT)
    assert int(elements.max()) < 1 << bits
    top = np.bincount(elements.astype(np.int64) >> max(bits - 4, 0), minlength=1 << min(bits, 4))
    expected = COUNT / top.size
    assert chi2.sf(((top - expected) ** 2 / expected).sum(), top.size - 1) > ERROR_RATE


def test_ring_elements_of_too_many_bits() -> None:
    raised(ValueError, "33 bits", BitStream(insecure_seed(8)).ring, 33, 1)


@pytest.mark.parametrize("scale", [0.3, 50.0, 1500.0])
def test_a_guide_changes_no_value(scale: float) -> None:
    """It says where to begin, with twice as many cells as boundaries; a coarse one gives the same values."""
    table, count = cumulative_table(scale), 20_000
    assert len(table.guide) == 2**table.bits >= 2 * len(table.high)
    coarse_bits = 4
    starts = np.arange(1 << coarse_bits, dtype=np.uint64) << np.uint64(64 - coarse_bits)
    coarse = replace(table, guide=np.searchsorted(table.high, starts, side="left").astype(np.int32), bits=coarse_bits)
    seed = Seed.public("guide")
    words = BitStream(seed.derive("high")).words(count)
    np.testing.assert_array_equal(invert(coarse, words, seed, 0), invert(table, words, seed, 0))
    np.testing.assert_array_equal(invert(table, words, seed, 0), discrete_gaussian(seed, scale, count))
