"""How often intervals of the population hold its value, at epsilon 1, and how often they would without the noise in them.

Records are drawn anew for each seed, and noise with 1.2 times the variance of one trusted curator's. With 500 seeds a true
coverage of 95 % is inside 91.6 to 98.4 % but for a chance of 1 in 1500; with 2000 inside 93 to 97 % but for 1 in 20 000. What
ignores the noise must be outside: the same test with a standard error that is too small fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.statistics import Column, Columns, Estimates
from support.coverage import Coverage, released, workload_of

Array = NDArray[np.float64]

# Gaussian mu of epsilon 1 at delta 1e-6.
MU = 0.2367
SEED = 20_26
COLUMNS = Columns(
    [
        Column(name="x", low=-3, high=3),
        Column(name="holes", low=-3, high=3, missing="indicator"),
        Column(name="y", low=-6, high=6),
        Column(name="group", levels=("a", "b")),
        Column(name="yes", boolean=True),
        Column(name="time", low=0, high=10),
    ]
)


def draw(rng: np.random.Generator, count: int) -> Array:
    """Records of a known population."""
    x = np.clip(rng.beta(2, 2, count) * 6 - 3, -3, 3)
    holes = np.where(rng.random(count) < 0.15, np.nan, x)
    y = np.clip(0.8 * x + rng.normal(0, 1, count), -6, 6)
    group = (rng.random(count) < 0.3).astype(float)
    yes = (rng.random(count) < np.where(group > 0, 0.5, 0.3)).astype(float)
    time = np.minimum(rng.exponential(6, count), 9.99)
    return np.column_stack([x, holes, y + 0.5 * group, group, yes, time])


@dataclass(frozen=True)
class Case:
    """A statistic, the place of its term, and the population's value."""

    text: str
    term: int
    truth: float
    count: int


# x is beta(2, 2) on [-3, 3]: variance 36/20. y has a slope of 0.8, and 0.5 more in group b.
CORRELATION = 0.8 * math.sqrt(1.8) / math.sqrt(0.64 * 1.8 + 1 + 0.25 * 0.21)
CASES = {
    "mean": Case("mean(x)", 0, 0.0, 500),
    "mean of present": Case("mean(holes)", 0, 0.0, 500),
    "variance": Case("variance(x)", 0, 1.8, 2000),
    "proportion": Case("proportion(yes)", 0, 0.36, 150),
    "difference": Case("group-means(y, by=group)", 2, 0.5, 2000),
    "slope": Case("linear-regression(y ~ x)", 1, 0.8, 5000),
    "correlation": Case("correlation(x, y)", 0, CORRELATION, 5000),
    "median": Case("quantiles(x, 0.5, bins=32)", 0, 0.0, 2000),
    "odds ratio": Case("crosstab(group, yes)", 9, (0.5 / 0.5) / (0.3 / 0.7), 2000),
    "cell": Case("histogram(x, edges=-3 -1 1 3)", 2, 0.0, 2000),
}


def coverage(case: Case, seeds: int) -> Coverage:
    workload = workload_of(COLUMNS, case.text)
    truth = _cell(case) if case.text.startswith("histogram") else case.truth

    def studies() -> Iterator[Estimates]:
        for seed in range(seeds):
            rng = np.random.default_rng((SEED, seed))
            yield released(workload, draw(rng, case.count), MU, rng)

    return Coverage.of(studies(), case.term, truth)


def _cell(case: Case) -> float:
    """The expected count of -1 <= x < 1, a beta(2, 2) between 1/3 and 2/3."""
    part: Callable[[float], float] = lambda u: 3 * u**2 - 2 * u**3  # noqa: E731
    return case.count * (part(2 / 3) - part(1 / 3))


QUICK = ("mean", "proportion", "difference")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", QUICK)
def test_intervals_hold_the_population(name: str) -> None:
    coverage(CASES[name], 500).require_of_500()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_the_population_often_tried(name: str) -> None:
    found = coverage(CASES[name], 2000)
    assert found.known >= 1900
    assert 0.93 <= found.held <= 0.97
    assert found.ignoring < found.held


@pytest.mark.slow
def test_errors_of_the_noise_are_as_large_as_stated() -> None:
    """One sample, noise drawn 2000 times: z-scores have mean 0 and a standard deviation of 1, +-0.07 (4.4 deviations of 2000)."""
    records = draw(np.random.default_rng(SEED), 5000)
    for name, case in CASES.items():
        workload = workload_of(COLUMNS, case.text)
        encoded = workload.encode(records)
        exact = workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].estimates.value[case.term]
        scores = []
        for seed in range(2000):
            found = released(workload, records, MU, np.random.default_rng((SEED, 1, seed)))
            scores.append((found.value[case.term] - exact) / found.standard_error[case.term])
        assert abs(float(np.mean(scores))) < 0.1, name
        assert abs(float(np.std(scores)) - 1) < 0.1, name


@pytest.mark.slow
def test_tests_of_nothing_reject_as_often_as_they_say() -> None:
    """Chi-squared and log-rank where nothing is there, 2000 seeds: 2.5 to 7 % at 5 %."""
    columns = Columns(
        [Column(name="a", boolean=True), Column(name="b", levels=("u", "v", "w")), Column(name="t", low=0, high=10)]
    )
    for text, test in (("crosstab(a, b)", "chi-squared"), ("survival(t, a, by=b, bins=16)", "log-rank")):
        workload = workload_of(columns, text)
        rejected = 0
        for seed in range(2000):
            rng = np.random.default_rng((SEED, 2, seed))
            a, b = (rng.random(2000) < 0.7).astype(float), rng.integers(0, 3, 2000).astype(float)
            records = np.column_stack([a, b, np.minimum(rng.exponential(5, 2000), 9.99)])
            rejected += released(workload, records, MU, rng).tests[test].p_value < 0.05
        assert 0.025 <= rejected / 2000 <= 0.07, f"{text}: {rejected / 2000}"
