"""Intervals hold where the noise hides how clusters differ, without being much wider than those that know it.

Sums over m clusters vary by V / m each, normal or skewed; their squares are known with noise of B in all, and the total has a
noise of A of its own. Shares of the budget are those of a statistic with clusters: B = m A x 0.4 / 0.6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from quietmean.statistics.estimate import satterthwaite
from quietmean.statistics.intervals import degrees_of_both

Array = NDArray[np.float64]

SEED, DRAWN, NOISE = 20_614, 20_000, 1.0


def held(clusters: int, variance: float, *, skewed: bool = False) -> tuple[float, float]:
    """In which part of the studies the interval holds, and how wide it is on average beside one that knows the variance."""
    rng, added, degrees = np.random.default_rng((SEED, clusters)), clusters * 0.4 / 0.6, clusters - 1
    sums = rng.exponential(1, (DRAWN, clusters)) - 1 if skewed else rng.normal(0, 1, (DRAWN, clusters))
    sums *= math.sqrt(variance / clusters)
    total = sums.sum(axis=1) + math.sqrt(NOISE) * rng.normal(0, 1, DRAWN)
    noisy = sums + math.sqrt(added / clusters) * rng.normal(0, 1, sums.shape)
    estimated = clusters * noisy.var(axis=1, ddof=1) - added
    # The reach is a smooth function of what is estimated.
    places = np.unique(np.concatenate([[estimated.min(), 0.0], np.quantile(estimated, np.linspace(0, 1, 80))]))
    reaches = [
        float(stats.t.ppf(0.975, degrees_of_both(NOISE, place, degrees, added))) * math.sqrt(NOISE + max(place, 0.0))
        for place in places.tolist()
    ]
    reach = np.interp(estimated, places, reaches)
    inside = float((np.abs(total) <= reach).mean())
    wide = float(reach.mean()) / (1.96 * math.sqrt(NOISE + variance))
    print(f"seed {SEED}, {clusters} clusters, variance {variance:g}, skewed {skewed}: {inside:.3f}, {wide:.2f} as wide")
    return inside, wide


@pytest.mark.parametrize("clusters", [6, 20, 50])
def test_intervals_hold_whether_clusters_differ_or_not(clusters: int) -> None:
    """Of 20,000 studies a part that is 0.935 is below 0.93 once in 300."""
    found = {variance: held(clusters, variance) for variance in (0.0, 1.0, 4.0, 10.0, 40.0, 400.0)}
    assert min(inside for inside, _ in found.values()) >= 0.93
    # Beside one that knows the variance, as where they hardly differ: by degrees of freedom of 1 it was 6.5 times.
    assert found[0.0][1] <= 2.9
    # Where they differ much, Student's t with a degree of freedom for each cluster but one, a few percent wider at most.
    assert found[400.0][1] <= 1.03 * float(stats.t.ppf(0.975, clusters - 1)) / 1.96


def test_few_far_clusters_are_as_seldom_outside_as_without_noise() -> None:
    """Sums of one exponential variable each: 20 of them hold in 92 % without noise, too."""
    assert min(held(20, variance, skewed=True)[0] for variance in (0.0, 4.0, 40.0, 400.0)) >= 0.915


def test_without_noise_it_is_students() -> None:
    for degrees in (1, 3, 19, 5000):
        assert degrees_of_both(0.0, 3.0, degrees, 0.0) == pytest.approx(degrees)
        # As for very little noise.
        assert degrees_of_both(1e-6, 3.0, degrees, 1e-5) == pytest.approx(degrees, rel=0.05)
    assert math.isinf(degrees_of_both(1.0, 0.0, 5, 0.0))


def test_whoever_forgets_what_the_noise_hides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "degrees_of_both", lambda noise, estimated, degrees, added: degrees)
    assert held(20, 10.0)[0] < 0.93
    monkeypatch.setitem(
        globals(),
        "degrees_of_both",
        lambda noise, estimated, degrees, added: satterthwaite(noise + max(estimated, 0.0), added**2 / degrees),
    )
    assert held(20, 0.0)[1] > 2.9


def test_the_quantile_is_that_of_the_mixture() -> None:
    """By integration on a grid of variances: what is possible, by the density of what was seen."""
    noise, degrees, added = 1.0, 19, 20 / 1.5
    grid = np.geomspace(1e-6, 1e5, 400_000)
    for estimated in (-8.0, 0.0, 5.0, 60.0):
        weights = np.gradient(grid) / np.sqrt((grid + noise) * (grid + added))
        weights *= stats.gamma.pdf(estimated + added, degrees / 2, scale=2 * (grid + added) / degrees)
        freedom = degrees_of_both(noise, estimated, degrees, added)
        reach = float(stats.t.ppf(0.975, freedom)) * math.sqrt(noise + max(estimated, 0.0))
        outside = float((2 * special.ndtr(-reach / np.sqrt(noise + grid)) * weights).sum() / weights.sum())
        assert outside == pytest.approx(0.05, abs=0.002)
