"""Under noise, intervals of paired, stratified and combined statistics hold, and true hypotheses are seldom rejected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns
from support.workloads import released, workload_of

Array = NDArray[np.float64]
SITES = tuple("ABCDEF")
STUDIES = 150
# Of so many studies 95 % hold in at least, and 5 % reject in at most, but for one time in a thousand.
LEAST, MOST = 0.89, 0.12
COLUMNS = Columns(
    [
        Column(name="before", boolean=True),
        Column(name="after", boolean=True),
        Column(name="group", levels=SITES),
        Column(name="value", low=-4, high=6, missing="indicator"),
        Column(name="later", low=-4, high=6, missing="indicator"),
    ]
)


def drawn(rng: np.random.Generator, count: int) -> Array:
    """Skewed values and truth values that go with the group, and with nothing else."""
    group = rng.integers(0, len(SITES), count)
    risk = 0.3 + 0.05 * group
    common = rng.exponential(1.0, count)
    value, later = (np.clip(common + rng.standard_normal(count), -4, 6) for _ in range(2))
    return np.column_stack([rng.random(count) < risk, rng.random(count) < risk, group, value, later]).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize(
    ("text", "term", "truth", "test"),
    [
        ("mcnemar(before, after)", "difference", 0.0, "mcnemar"),
        ("mantel-haenszel(before, after, by=group)", "odds-ratio", 1.0, "mantel-haenszel"),
        ("kruskal-wallis(value, by=group)", "A", 0.5, "kruskal-wallis"),
        ("paired-difference(value, later)", "difference", 0.0, "paired-t"),
        ("meta-analysis(mean(value), by=group)", "random", None, "Q"),
        ("trend(after, by=group)", "slope", 0.05, ""),
    ],
)
def test_what_is_stated_holds(text: str, term: str, truth: float | None, test: str, epsilon: float) -> None:
    size, rng = 2000, np.random.default_rng([int(epsilon), len(text)])
    workload = workload_of(COLUMNS, text)
    known = drawn(np.random.default_rng(1), 1_000_000)[:, 3].mean() if truth is None else truth
    held, rejected = [], []
    for _ in range(STUDIES):
        found = released(workload, drawn(rng, size), mu_of_budget(epsilon, 1e-6), rng)
        place = found.terms.index(term)
        if math.isfinite(found.value[place]) and found.of_population is not None:
            held.append(found.of_population[place, 0] <= known <= found.of_population[place, 1])
        if test:
            rejected.append(found.tests[test].p_value < 0.05)
    assert len(held) > STUDIES / 2
    assert np.mean(held) >= LEAST
    assert not test or np.mean(rejected) <= MOST
