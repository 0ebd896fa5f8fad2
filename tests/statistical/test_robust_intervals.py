"""Intervals of slopes and correlations hold where the model does not, with default options at epsilon 4.

500 studies of each population, seed 41, are drawn with replacement from a table, whose own answer is the truth. A true coverage
of 93 to 98 % passes but for a chance of 1 in 1000 (the 99.9 % interval of Clopper and Pearson must reach it). The intervals of
the model must fail the same test where the model is wrong: otherwise it could not fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.datasets import engel

from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns
from support.workloads import workload_of

Array = NDArray[np.float64]

STUDIES, SEED, ROWS = 500, 41, 20_000
LEAST, MOST, LEVEL = 0.93, 0.98, 0.999
EPSILON, DELTA = 4.0, 1e-6


@dataclass(frozen=True)
class Population:
    """A table of two columns with the bounds of both."""

    table: Array
    x: tuple[float, float]
    y: tuple[float, float]

    @property
    def columns(self) -> Columns:
        return Columns([Column(name=name, low=low, high=high) for name, (low, high) in (("x", self.x), ("y", self.y))])


def populations() -> Mapping[str, Population]:
    rng = np.random.default_rng(SEED)
    wide = (-6.0, 6.0)
    heavy = rng.normal(0, 1, (ROWS, 2)) / np.sqrt(rng.chisquare(4, (ROWS, 1)) / 4)
    x = rng.normal(0, 1, ROWS)
    bought = engel.load_pandas().data
    return {
        "four degrees of freedom, unrelated": Population(np.clip(heavy, *wide), wide, wide),
        "errors that grow with x": Population(
            np.clip(np.column_stack([x, rng.normal(0, 1, ROWS) * np.abs(x)]), *wide), wide, wide
        ),
        "Engel's households": Population(bought[["income", "foodexp"]].to_numpy(), (0, 5000), (0, 2500)),
        "as the model has it": Population(np.clip(np.column_stack([x, 0.5 * x + rng.normal(0, 1, ROWS)]), *wide), wide, wide),
    }


POPULATIONS = populations()
# Those that take the least time to tell the two apart; the others are tried where tests may take longer.
QUICK = ("four degrees of freedom, unrelated", "Engel's households")


def all_but_quick_are_slow(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


WRONG = [name for name in POPULATIONS if not name.startswith("as")]


def held(population: Population, text: str, size: int) -> tuple[int, int, int]:
    """Of how many studies the intervals of the population hold its truth, those of the noise what their records say; flagged."""
    workload = workload_of(population.columns, text)
    encoded = workload.of_records(population.table)
    noise = math.sqrt(1.2) * workload.sensitivity / mu_of_budget(EPSILON, DELTA) / size
    truth = workload.decode(encoded.mean(axis=0), 0.0, size)[0].estimates.value[-1]
    holds, of_noise, flagged = 0, 0, 0
    for study in range(STUDIES):
        rng = np.random.default_rng((SEED, size, study))
        mean = np.bincount(rng.integers(0, len(encoded), size), minlength=len(encoded)) @ encoded / size
        found = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, size)[0].estimates
        own = workload.decode(mean, 0.0, size)[0].estimates.value[-1]
        assert found.of_population is not None
        holds += bool(found.of_population[-1, 0] <= truth <= found.of_population[-1, 1])
        of_noise += bool(found.of_noise[-1, 0] <= own <= found.of_noise[-1, 1])
        flagged += bool(found.flags)
    return holds, of_noise, flagged


def reaches(count: int) -> bool:
    """Can it be 93 to 98 %?"""
    interval = stats.binomtest(count, STUDIES).proportion_ci(LEVEL, method="exact")
    return bool(interval.high >= LEAST and interval.low <= MOST)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", all_but_quick_are_slow(POPULATIONS))
@pytest.mark.parametrize("size", [pytest.param(2000, marks=pytest.mark.slow), 10_000])
@pytest.mark.parametrize("text", ["linear-regression(y ~ x)", pytest.param("correlation(x, y)", marks=pytest.mark.slow)])
def test_both_intervals_hold(text: str, size: int, name: str) -> None:
    holds, of_noise, flagged = held(POPULATIONS[name], text, size)
    print(f"seed {SEED}: {holds} and {of_noise} of {STUDIES} hold, {flagged} flagged")
    assert reaches(holds)
    assert reaches(of_noise)
    assert flagged < STUDIES / 10


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", all_but_quick_are_slow(WRONG))
@pytest.mark.parametrize("text", ["linear-regression(y ~ x, robust=false)"])
def test_those_of_the_model_do_not(text: str, name: str) -> None:
    assert not reaches(held(POPULATIONS[name], text, 10_000)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "size", "most"),
    [
        ("linear-regression(y ~ x)", 500, 1.25),
        ("linear-regression(y ~ x)", 2000, 1.1),
        ("linear-regression(y ~ x)", 10_000, 1.08),
        # With 500 records all correlations are flagged.
        ("correlation(x, y)", 2000, 1.1),
        ("correlation(x, y)", 10_000, 1.08),
    ],
)
def test_what_robust_intervals_cost_where_the_model_is_right(text: str, size: int, most: float) -> None:
    """Of 100 studies, seed 41, with bounds 6 deviations away, that no flag says anything of: the mean of widths over the model's.

    Measured are 17, 8 and 6 % (docs/reference/statistics.md), and means of 100 vary by 1 to 3 points.
    """
    rng = np.random.default_rng(SEED)
    x = rng.normal(0, 1, ROWS)
    table = np.column_stack([x, 0.5 * x + rng.normal(0, 1, ROWS)])
    bound = 6 * math.sqrt(1.25)
    population = Population(np.clip(table, [-6.0, -bound], [6.0, bound]), (-6.0, 6.0), (-bound, bound))
    widths: list[float] = []
    ways = [workload_of(population.columns, one) for one in (text, text.replace(")", ", robust=false)"))]
    encoded = [one.of_records(population.table) for one in ways]
    for study in range(100):
        chosen = np.random.default_rng((SEED, size, study)).integers(0, ROWS, size)
        found = []
        for way, rows in zip(ways, encoded, strict=True):
            noise = math.sqrt(1.2) * way.sensitivity / mu_of_budget(EPSILON, DELTA) / size
            mean = rows[chosen].mean(axis=0)
            noisy = mean + noise * np.random.default_rng((SEED, size, study, 1)).standard_normal(len(mean))
            found.append(way.decode(noisy, noise, size)[0].estimates)
        if any(one.flags for one in found):
            continue
        robust, model = (float(np.diff(one.of_population[-1])[0]) for one in found if one.of_population is not None)
        widths.append(robust / model)
    print(f"seed {SEED}: {len(widths)} without a flag, on average {np.mean(widths):.3f} times as wide")
    assert len(widths) >= 10
    assert 0.98 < np.mean(widths) < most
