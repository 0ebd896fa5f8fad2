"""A sum of records' vectors is what adding them up one by one gives: of every kind, inside a condition, and with weights."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Workload, parse_statistic, read_text
from quietmean.statistics.registry import registry
from quietmean.statistics.statistic import Statistic
from support.every_kind import COLUMNS, random_rows, statistics_of

STEP, SEED = 2.0**-15, 20281130


def sums_of(*statistics: Statistic, step: float) -> None:
    workload = Workload(COLUMNS, statistics, PrivacyUnit.RECORD)
    rows = random_rows(np.random.default_rng(SEED), 60, 0.2)
    vectors = workload.of_records(rows, step=step)
    counts = np.vstack([np.ones(len(rows)), np.arange(60.0), np.zeros(len(rows))])
    np.testing.assert_allclose(workload.sums(rows, counts, step=step), counts @ vectors, rtol=0, atol=0 if step else 1e-9)
    np.testing.assert_array_equal(workload.sums(rows[:0], np.zeros(0), step=step), np.zeros(workload.dimension))


@pytest.mark.parametrize("kind", registry())
def test_of_every_kind(kind: str) -> None:
    """To the last bit on a plan's grid, where sums are exact."""
    for statistic in statistics_of(registry()[kind]):
        for step in (0.0, STEP):
            sums_of(statistic, step=step)


@pytest.mark.parametrize(
    "text", ["proportion(sex, where=age > 50)", "crosstab(sex, ended, where=smoker)", "cdf(age, bins=4, where=smoker)"]
)
def test_inside_a_condition(text: str) -> None:
    for step in (0.0, STEP):
        sums_of(parse_statistic(read_text(text)), step=step)
