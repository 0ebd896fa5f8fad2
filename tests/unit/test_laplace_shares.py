"""Shares of discrete Laplace noise against their definition, and together against the law that they are shares of."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from quietmean.randomness.insecure import insecure_seed
from quietmean.randomness.laplace_shares import (
    LARGEST_SCALE,
    TOTAL_VARIATION,
    LaplaceStream,
    negative_binomial_table,
    variance,
)
from support.refusals import raised

# Every statistical test here rejects a right sampler with this probability; seeds are fixed.
ERROR_RATE = 1e-4
COUNT = 200_000


def chances(scale: float, parties: int) -> list[Decimal]:
    """What the table gives each whole number."""
    table = negative_binomial_table(scale, parties)
    boundaries = [(int(high) << 64) + int(low) for high, low in zip(table.high.tolist(), table.low.tolist(), strict=True)]
    return [
        Decimal(above - below) / 2**128 for below, above in zip([0, *boundaries[:-1]], [*boundaries[:-1], 1 << 128], strict=True)
    ]


@pytest.mark.parametrize("parties", [1, 3, 16])
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.3])
def test_the_table_is_as_near_to_a_compound_poisson_law_as_stated(scale: float, parties: int) -> None:
    """n P(n) = 1/k sum over j of a^j P(n - j): X as a sum of j times Poisson(a^j / (k j)), with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        a, shape = (-1 / Decimal(scale)).exp(), 1 / Decimal(parties)
        exact, powers = [(1 - a) ** shape], [a**j for j in range(1, math.ceil(60 * scale) + 1)]
        for n in range(1, len(powers) + 1):
            exact.append(shape * sum((powers[j] * exact[n - 1 - j] for j in range(n)), Decimal(0)) / n)
        ours = chances(scale, parties)
        ours += [Decimal(0)] * (len(exact) - len(ours))
        # A share is two of these.
        assert sum(abs(one - other) for one, other in zip(ours, exact, strict=True)) / 2 < Decimal(TOTAL_VARIATION) / 2


def of_shares(seed: int, scale: float, parties: int, count: int) -> NDArray[np.int64]:
    return sum(
        (LaplaceStream(insecure_seed(seed, party), scale, parties).next(COUNT) for party in range(count)),
        np.zeros(COUNT, np.int64),
    )


def laplace_p(values: NDArray[np.int64], scale: float) -> float:
    """The p value of the counts against discrete Laplace noise; outcomes expected fewer than 10 times are put together."""
    reach = math.ceil(30 * scale)
    support = np.arange(-reach, reach + 1)
    expected = math.tanh(0.5 / scale) * np.exp(-np.abs(support) / scale) * COUNT
    found = np.bincount(np.clip(values, -reach, reach) + reach, minlength=expected.size)
    common = expected >= 10
    found, expected = (np.append(each[common], each[~common].sum()) for each in (found, expected))
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), found.size - 1))


@pytest.mark.parametrize("scale", [0.6, 4.0, 300.0])
@pytest.mark.parametrize("parties", [1, 3, 16])
def test_as_many_shares_as_said_are_laplace_noise(scale: float, parties: int) -> None:
    assert laplace_p(of_shares(1, scale, parties, parties), scale) > ERROR_RATE


@pytest.mark.parametrize("count", [15, 17])
def test_one_share_fewer_or_more_is_found_out(count: int) -> None:
    assert laplace_p(of_shares(2, 4.0, 16, count), 4.0) < ERROR_RATE


@pytest.mark.parametrize("scale", [0.6, 4.0, LARGEST_SCALE])
def test_the_variance_is_as_stated(scale: float) -> None:
    values = LaplaceStream(insecure_seed(3), scale, 4).next(COUNT)
    # The fourth moment of a share is at most 3 + 6 * 4 times the square of its variance, about.
    assert values.var() == pytest.approx(variance(scale, 4), rel=4 * math.sqrt(40 / COUNT))


def test_values_are_the_same_in_pieces_and_differ_by_seed() -> None:
    stream = LaplaceStream(insecure_seed(5), 9.0, 2)
    pieces, whole = [stream.next(20), stream.next(30)], LaplaceStream(insecure_seed(5), 9.0, 2).next(50)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert (LaplaceStream(insecure_seed(6), 9.0, 2).next(50) != whole).any()


@pytest.mark.parametrize(("scale", "parties"), [(0.0, 1), (float("nan"), 1), (2 * LARGEST_SCALE, 1), (1.0, 0)])
def test_what_is_not_supported(scale: float, parties: int) -> None:
    raised(ValueError, "is supported", negative_binomial_table, scale, parties)
