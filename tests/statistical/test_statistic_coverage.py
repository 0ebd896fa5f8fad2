"""How often intervals of the population hold its value, at epsilon 1, and how often tests reject nothing.

Records are drawn anew for each seed, with noise of 1.2 times the variance of one trusted curator's. With 2000 seeds a true
coverage of 95 % is inside 93 to 97 % but for a chance of 1 in 20 000, with 500 inside 91.6 to 98.4 % but for 1 in 1500; a test
that rejects 5 % of the time does so in 2.5 to 7 % of 2000 seeds but for 1 in 20 000. Whoever ignores the noise is outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.statistics import Column, Columns, Estimates
from support.coverage import Coverage
from support.workloads import exact_of, released, workload_of

Array = NDArray[np.float64]

# Gaussian mu at delta 1e-6 of epsilon 1 and of epsilon 5.
MU, MU_5 = 0.2367, 1.01
SEED, PLAIN_SEED = 20_27, 20_26
COLUMNS = Columns(
    [
        Column(name="x", low=-4, high=4),
        Column(name="y", low=-4, high=4, missing="indicator"),
        Column(name="z", low=-4, high=4),
        Column(name="arm", levels=("a", "b")),
        Column(name="three", levels=("u", "v", "w")),
        Column(name="ill", boolean=True),
        Column(name="risk", low=0, high=1),
        Column(name="events", low=0, high=5),
        Column(name="time", low=0, high=10),
        Column(name="died", boolean=True),
        Column(name="cause", levels=("none", "p", "q")),
    ]
)
# Correlation of x with y and z, what arm b adds, and hazards a year.
RHO, SHIFT, HAZARD, RATIO, OTHER = 0.5, 0.4, 0.12, 1.6, 0.06


def draw(rng: np.random.Generator, count: int, shift: float = SHIFT, ratio: float = RATIO) -> Array:
    """Records of COLUMNS of a known population."""
    common = rng.normal(0, 1, count)
    x, y, z = (np.sqrt(RHO) * common + np.sqrt(1 - RHO) * rng.normal(0, 1, count) for _ in range(3))
    arm, three = (rng.random(count) < 0.4).astype(float), rng.integers(0, 3, count).astype(float)
    risk = (rng.integers(0, 8, count) + 0.5) / 8
    ill = (rng.random(count) < risk).astype(float)
    hazard = HAZARD * np.where(arm == 1, ratio, 1.0)
    first, second = rng.exponential(1 / hazard), rng.exponential(1 / OTHER, count)
    end = np.minimum(rng.uniform(0, 25, count), 9.999)
    time = np.minimum(np.minimum(first, second), end)
    cause = np.where(time == first, 1.0, np.where(time == second, 2.0, 0.0))
    # Of the first event alone, the second ends the observation.
    died = (cause == 1).astype(float)
    events = np.minimum(rng.poisson(0.2 * np.where(arm == 1, ratio, 1.0) * time), 5).astype(float)
    y = np.where(rng.random(count) < 0.1, np.nan, y + shift * arm)
    return np.column_stack([x, np.clip(y, -4, 4), z, arm, three, ill, risk, events, time, died, cause])


PLAIN = Columns(
    [
        Column(name="x", low=-3, high=3),
        Column(name="holes", low=-3, high=3, missing="indicator"),
        Column(name="y", low=-6, high=6),
        Column(name="group", levels=("a", "b")),
        Column(name="yes", boolean=True),
        Column(name="time", low=0, high=10),
    ]
)


def draw_plain(rng: np.random.Generator, count: int) -> Array:
    """Records of PLAIN."""
    x = np.clip(rng.beta(2, 2, count) * 6 - 3, -3, 3)
    holes = np.where(rng.random(count) < 0.15, np.nan, x)
    y = np.clip(0.8 * x + rng.normal(0, 1, count), -6, 6)
    group = (rng.random(count) < 0.3).astype(float)
    yes = (rng.random(count) < np.where(group > 0, 0.5, 0.3)).astype(float)
    time = np.minimum(rng.exponential(6, count), 9.99)
    return np.column_stack([x, holes, y + 0.5 * group, group, yes, time])


@dataclass(frozen=True)
class Population:
    """Where records come from; ``margin``: by how much less often intervals hold that ignore the noise."""

    columns: Columns
    draw: Callable[[np.random.Generator, int], Array]
    seed: int
    margin: float


USUAL = Population(COLUMNS, draw, SEED, 0.02)
SIMPLE = Population(PLAIN, draw_plain, PLAIN_SEED, 0.0)


@dataclass(frozen=True)
class Case:
    """A statistic, a term or its place, the population's value, and the number of records."""

    text: str
    term: str | int
    truth: Callable[[], float]
    count: int
    population: Population = USUAL

    def studies(self, seeds: int) -> Iterator[Estimates]:
        workload = workload_of(self.population.columns, self.text)
        for seed in range(seeds):
            rng = np.random.default_rng((self.population.seed, seed))
            yield released(workload, self.population.draw(rng, self.count), MU, rng)


@cache
def _everybody() -> Array:
    """So many records that what they give is the population's."""
    return draw(np.random.default_rng(SEED), 1_000_000)


def of_everybody(text: str, term: str) -> Callable[[], float]:
    """The population's value by the statistic itself, of a million records without noise: for what has no formula."""

    def found() -> float:
        estimates = exact_of(workload_of(COLUMNS, text), _everybody())
        return float(estimates.value[estimates.terms.index(term)])

    return found


def exactly(value: float) -> Callable[[], float]:
    return lambda: value


def area() -> float:
    """Under arm a's survival over nine years."""
    return (1 - math.exp(-9 * HAZARD)) / HAZARD


def incidence() -> float:
    """Of the first event in arm a after five years."""
    both = HAZARD + OTHER
    return HAZARD / both * (1 - math.exp(-5 * both))


def cell(count: int) -> float:
    """The expected count of -1 <= x < 1, a beta(2, 2) between 1/3 and 2/3."""
    low, high = (3 * u**2 - 2 * u**3 for u in (1 / 3, 2 / 3))
    return count * (high - low)


# x of PLAIN is beta(2, 2) on [-3, 3]: variance 36/20. y has a slope of 0.8, and 0.5 more in group b.
CORRELATION = 0.8 * math.sqrt(1.8) / math.sqrt(0.64 * 1.8 + 1 + 0.25 * 0.21)
OF_PLAIN = {
    name: Case(text, place, exactly(truth), count, SIMPLE)
    for name, text, place, truth, count in (
        ("mean", "mean(x)", 0, 0.0, 500),
        ("mean of present", "mean(holes)", 0, 0.0, 500),
        ("variance", "variance(x)", 0, 1.8, 2000),
        ("proportion", "proportion(yes)", 0, 0.36, 150),
        ("difference", "group-means(y, by=group)", 2, 0.5, 2000),
        ("slope", "linear-regression(y ~ x)", 1, 0.8, 5000),
        ("correlation", "correlation(x, y)", 0, CORRELATION, 5000),
        ("median", "quantiles(x, 0.5, bins=32)", 0, 0.0, 2000),
        ("odds ratio", "crosstab(group, yes)", 9, (0.5 / 0.5) / (0.3 / 0.7), 2000),
        ("cell", "histogram(x, edges=-3 -1 1 3)", 2, cell(2000), 2000),
    )
}
TABLE = "table-1(y, ill, three, by=arm)"
SURVIVAL = "time, died, by=arm, horizon=9, bins=18"
CASES = {
    "table 1, mean": Case(TABLE, "a y mean", exactly(0.0), 4000),
    "table 1, sd": Case(TABLE, "b y sd", exactly(1.0), 10000),
    "table 1, proportion": Case(TABLE, "b ill:yes", exactly(0.5), 1500),
    "table 1, missing": Case(TABLE, "a y missing", exactly(0.1), 4000),
    "table 1, smd": Case(TABLE, "smd y", exactly(SHIFT), 10000),
    "rate": Case("rates(events, time, by=arm)", "a", of_everybody("rates(events, time, by=arm)", "a"), 500),
    "rate ratio": Case(
        "rates(events, time, by=arm)", "rate-ratio", of_everybody("rates(events, time, by=arm)", "rate-ratio"), 2000
    ),
    "variance of a component": Case("pca(x, y, z)", "PC1", of_everybody("pca(x, y, z)", "PC1"), 20000),
    "variance of a component, in units": Case("pca(x, z, scale=false)", "PC1", exactly(1 + RHO), 10000),
    "auc": Case("roc(time, died)", "auc", of_everybody("roc(time, died)", "auc"), 1000),
    "brier": Case("calibration(risk, ill, bins=8)", "brier", exactly(sum((k + 0.5) * (7.5 - k) for k in range(8)) / 512), 500),
    "slope of predictions": Case("calibration(risk, ill, bins=8)", "slope", exactly(1.0), 3000),
    "mann-whitney": Case("mann-whitney(z, by=arm)", "probability", exactly(0.5), 1000),
    "hazard ratio": Case(f"hazard-ratio({SURVIVAL})", "b/a", exactly(RATIO), 5000),
    "restricted mean": Case(f"restricted-mean({SURVIVAL})", "a", area, 2500),
    "cumulative incidence": Case("cumulative-incidence(time, cause, by=arm, bins=10)", "a:p 5", incidence, 3000),
    "common mean of sites": Case("site-effects(z, by=three)", "fixed", exactly(0.0), 2000),
}


def coverage(case: Case, seeds: int) -> Coverage:
    place = case.term if isinstance(case.term, int) else next(case.studies(1)).terms.index(case.term)
    return Coverage.of(case.studies(seeds), place, case.truth())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["mean", "proportion", "difference", "rate", "common mean of sites"])
def test_intervals_hold_the_population(name: str) -> None:
    coverage((CASES | OF_PLAIN)[name], 500).require_of_500()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES | OF_PLAIN)
def test_intervals_hold_the_population_often_tried(name: str) -> None:
    case = (CASES | OF_PLAIN)[name]
    found = coverage(case, 2000)
    print(f"{name}: {found}")
    # So many have an unflagged result.
    assert found.known >= 1900
    # An interval holds wherever in their bins the times were. Where that is a tenth of its width or more, it holds too often for
    # this population, of which the estimate is right. What is left without it holds as often as it says, in each case.
    assert found.held >= 0.93
    assert found.held <= 0.97 or found.bins >= 0.1
    assert 0.93 <= found.by_chance <= 0.97
    assert found.ignoring < found.by_chance - case.population.margin


NOTHING = {
    "t-test": ("group-means(z, by=arm)", "t-test", 1000),
    "anova": ("group-means(z, by=three)", "anova", 1000),
    "chi-squared": ("crosstab(arm, three)", "chi-squared", 1000),
    "log-rank": (f"survival({SURVIVAL})", "log-rank", 2000),
    "log-rank of three": ("survival(time, died, by=three, horizon=9, bins=18)", "log-rank", 3000),
    "stratified log-rank": (f"survival({SURVIVAL}, strata=three)", "log-rank", 5000),
    "wald": (f"hazard-ratio({SURVIVAL})", "wald", 2000),
    "mann-whitney": ("mann-whitney(z, by=arm, bins=16)", "mann-whitney", 1000),
    "Q": ("site-effects(z, by=three)", "Q", 1000),
}


def rejected(name: str, seeds: int, ignore: float = 1.0) -> float:
    """How often a test of nothing rejects at 5 %; ``ignore``: by how much the noise that is stated is too small."""
    text, test, count = NOTHING[name]
    workload, found = workload_of(COLUMNS, text), 0
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, 3, seed))
        answer = released(workload, draw(rng, count, shift=0.0, ratio=1.0), MU, rng, ignore)
        found += answer.tests[test].p_value < 0.05
    return found / seeds


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTHING)
def test_tests_of_nothing_reject_as_often_as_they_say(name: str) -> None:
    part = rejected(name, 2000)
    print(f"{name}: {100 * part:.1f} % rejected")
    assert 0.025 <= part <= 0.07, f"{name}: {part}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chi-squared", pytest.param("log-rank", marks=pytest.mark.slow), "t-test"])
def test_tests_that_ignore_the_noise_reject_nothing_far_too_often(name: str) -> None:
    """1000 seeds: at 5 % more than 7.5 % would be rejected in 1 of 5000 cases; the slow test above allows no more than 7 %."""
    part = rejected(name, 1000, ignore=1e-6)
    print(f"{name}, noise ignored: {100 * part:.1f} % rejected")
    assert part > 0.075


@pytest.mark.slow
def test_errors_of_the_noise_are_as_large_as_stated() -> None:
    """One sample, noise drawn 2000 times: z-scores have mean 0 and a standard deviation of 1, +-0.07 (4.4 deviations of 2000)."""
    records = draw_plain(np.random.default_rng(PLAIN_SEED), 5000)
    for name, case in OF_PLAIN.items():
        workload = workload_of(PLAIN, case.text)
        known, scores = exact_of(workload, records), []
        for seed in range(2000):
            found = released(workload, records, MU, np.random.default_rng((PLAIN_SEED, 1, seed)))
            scores.append(((found.value - known.value) / found.standard_error)[int(case.term)])
        assert abs(float(np.mean(scores))) < 0.1, name
        assert abs(float(np.std(scores)) - 1) < 0.1, name


@pytest.mark.slow
def test_the_noise_of_a_risk_score_is_as_large_as_stated() -> None:
    """One sample, noise drawn 500 times at epsilon 5: z-scores have a standard deviation of 1 +- 0.14, 4.4 deviations of 500."""
    workload = workload_of(COLUMNS, "logistic-regression(ill ~ risk + x)")
    records = draw(np.random.default_rng(SEED), 20_000)
    known = exact_of(workload, records)
    scores = []
    for seed in range(500):
        found = released(workload, records, MU_5, np.random.default_rng((SEED, 4, seed)))
        scores.append((found.value - known.value) / found.standard_error)
    spread = np.std(scores, axis=0)
    assert (np.abs(spread - 1) <= 0.14).all(), spread


def test_what_the_population_is() -> None:
    """The formulas above, by a million records."""
    assert of_everybody("roc(risk, ill, bins=8)", "auc")() == pytest.approx(_area_of_uniform_risks(), abs=0.003)
    assert of_everybody("calibration(risk, ill, bins=8)", "slope")() == pytest.approx(1.0, abs=0.02)
    assert of_everybody("pca(x, z, scale=false)", "PC1")() == pytest.approx(1 + RHO, abs=0.01)
    assert of_everybody(f"hazard-ratio({SURVIVAL})", "b/a")() == pytest.approx(RATIO, rel=0.01)


def _area_of_uniform_risks() -> float:
    risk = (np.arange(8) + 0.5) / 8
    yes, no = risk / risk.sum(), (1 - risk) / (1 - risk).sum()
    return float(yes @ (np.cumsum(no) - no / 2))
