"""What would be simpler and wrong is found out: each of these fails the check that the statistics pass.

Encodings that are wider than they say are in tests/property/test_statistic_sensitivity.py and below; intervals and tests that
ignore the noise are in test_statistic_coverage.py and below. Noise is that of epsilon 1, of 1.2 times the curator's variance.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, ColumnBlock, Columns, Released, Workload, parse_statistic, read_text
from quietmean.statistics.block_summary import summary
from quietmean.statistics.features import Moments
from quietmean.statistics.timed import Timed
from quietmean.testing import check_sensitivity

Array = NDArray[np.float64]

MU, SEED, COUNT = 0.2367, 31, 1000
COLUMNS = Columns(
    [
        Column(name="time", low=0, high=10),
        Column(name="died", boolean=True),
        Column(name="arm", levels=("a", "b", "c")),
        Column(name="other", levels=("u", "v", "w", "x")),
    ]
)


def draw(rng: np.random.Generator, count: int) -> Array:
    """Nothing depends on anything."""
    time = np.minimum(rng.exponential(6, count), 9.99)
    columns = [time, rng.random(count) < 0.7, rng.integers(0, 3, count), rng.integers(0, 4, count)]
    return np.column_stack(columns).astype(np.float64)


@cache
def study(text: str) -> Workload:
    return Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)


def released(text: str, seed: int, count: int = COUNT) -> tuple[Workload, Released, Array]:
    """A study with noise: its workload, what it released, and the records."""
    rng = np.random.default_rng((SEED, seed))
    records = draw(rng, count)
    workload = study(text)
    encoded = workload.encode(records)
    noise = math.sqrt(1.2) * workload.sensitivity / MU / count
    mean = encoded.vector / encoded.weight + noise * rng.standard_normal(workload.dimension)
    return workload, workload.decoder().released(mean, noise, encoded.weight), records


def test_heavier_indicators_of_groups_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """w0^2 = sum w^2 is free beside moments of all records. In groups twice that: sqrt(2 (2.5 + 1.25)) is more than sqrt(5)."""

    def heavier(moments: Moments) -> Array:
        squares = [weight**2 for weight in moments.weights]
        return np.sqrt([2 * sum(squares), *squares, 0.25])

    text = "rates(died, time, by=arm)"
    assert check_sensitivity(released(text, 0)[0]) > 0.99
    monkeypatch.setattr(Moments, "factors", property(heavier))
    wrong = Workload(COLUMNS, study(text).statistics, PrivacyUnit.RECORD)
    with pytest.raises(AssertionError, match="apart, not"):
        check_sensitivity(wrong)


def test_pearsons_sum_over_noisy_counts_rejects_nothing_far_too_often() -> None:
    """200 seeds: what rejects 5 % of the time rejects more than 10 % of them in 1 case of 500."""
    ours, naive = 0, 0
    for seed in range(200):
        workload, found, _ = released("crosstab(arm, other)", seed)
        (statistic,) = workload.statistics
        ours += statistic.decode(found, COLUMNS).tests["chi-squared"].p_value < 0.05
        (feature,) = statistic.features(COLUMNS)
        table = np.maximum(found.mean(feature).reshape(4, 5)[:3, :4] * COUNT, 1e-3)
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        naive += float(((table - expected) ** 2 / expected).sum()) > stats.chi2.ppf(0.95, 6)
    print(f"rejected: {ours / 2} %, by the sum of (O - E)^2 / E of noisy counts {naive / 2} %")
    assert ours <= 20
    assert naive > 30


def test_numbers_at_risk_summed_from_the_right_alone_are_found() -> None:
    """Without the sum of all cells, which is known, the first numbers at risk have the noise of all cells: as z-scores of what is
    stated they have a standard deviation of 1 +- 0.2 (4.4 deviations of 250 draws), and of about 1.5 if it is forgotten.
    """
    scores, forgetful = [], []
    for seed in range(250):
        workload, found, records = released("survival(time, died, bins=10)", seed)
        (statistic,) = workload.statistics
        assert isinstance(statistic, Timed)
        (curve,) = statistic.curves(found, COLUMNS).each
        # Time 0, which nobody has, and the last time, which some may, are bins of their own.
        begins = np.array([0.0, *range(10), 10.0])
        exact = np.array([(records[:, 0] >= edge).sum() for edge in begins], dtype=np.float64)
        lost = np.array([((records[:, 0] >= e) & (records[:, 0] < e + 1) & (records[:, 1] == 0)).sum() for e in range(10)])
        lost = np.array([0, *lost, 0])
        error = np.sqrt(np.einsum("ip,pq,iq->i", curve.risk_slopes, curve.noise, curve.risk_slopes))
        scores.append((curve.at_risk - (exact - lost / 2)) / error)
        # Each cell with its own noise, added up from the right.
        own = np.sqrt(2.0) / MU * math.sqrt(1.2) * np.random.default_rng((SEED, 1, seed)).standard_normal((13, 2)).sum(axis=1)
        forgetful.append(np.cumsum(own[::-1])[::-1][0] / error[0])
    spread = np.std(scores, axis=0)
    assert (np.abs(spread - 1) <= 0.2).all(), spread
    assert np.std(forgetful) > 1.25


def test_a_variance_with_the_noise_in_it_is_found() -> None:
    """E m^2 = m^2 + noise: the square of a noisy mean taken as that of the mean makes the variance too small on average.

    1000 seeds of 40 records: an average within 4 of its standard errors is right but for a chance of 1 in 15 000.
    """
    corrected, forgetful = [], []
    for seed in range(1000):
        workload, found, records = released("variance(time)", seed, 40)
        (feature,) = workload.statistics[0].features(COLUMNS)
        assert isinstance(feature, ColumnBlock)
        known = summary(found, feature)
        assert known is not None
        present, first, second = found.mean(feature)[:3].tolist()
        truth = float(records[:, 0].var(ddof=1))
        corrected.append(known.variance_estimate - truth)
        forgetful.append((second / present - (first / present) ** 2) * 25 * 40 / 39 - truth)
    scores = [float(np.mean(values) / np.std(values)) * math.sqrt(1000) for values in (corrected, forgetful)]
    print(f"bias {scores[0]:.1f} standard errors, with the noise in it {scores[1]:.1f}")
    assert abs(scores[0]) < 4
    assert scores[1] < -4


def test_the_interval_of_a_mean_from_sampling_alone_is_found() -> None:
    """500 seeds, 200 records: coverage of 95 % is inside 91.6 to 98.4 %, what ignores the noise is far below."""
    held, ignoring = 0, 0
    for seed in range(500):
        workload, found, _ = released("mean(time)", seed, 200)
        (statistic,) = workload.statistics
        estimates = statistic.decode(found, COLUMNS)
        interval, population = estimates.of_population, estimates.population
        assert interval is not None
        assert population is not None
        truth = 6 * (1 - math.exp(-9.99 / 6))
        held += bool(interval[0, 0] <= truth <= interval[0, 1])
        sampling = math.sqrt(population[0] ** 2 - estimates.standard_error[0] ** 2)
        ignoring += bool(abs(estimates.value[0] - truth) <= 1.96 * sampling)
    print(f"held {held / 5} %, ignoring the noise {ignoring / 5} %")
    assert 0.916 <= held / 500 <= 0.984
    assert ignoring / 500 < 0.9
