"""Intervals and tests of means count that noise makes the estimated variance uncertain, as few records do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from quietmean.statistics.block_summary import Summary
from quietmean.statistics.intervals import t_quantile

COLUMNS = Columns([Column(name="x", low=-1, high=1), Column(name="group", levels=("a", "b"))])
MEANS = {"mean(x)": "", "group-means(x, by=group)": "b", "table-1(x, by=group)": "b x mean", "site-effects(x, by=group)": "b"}
RECORDS = 1000


def found(text: str, noise: float, deviation: float) -> Estimates:
    """The estimates where noise happens to be 0, but is as large as said."""
    rows = np.column_stack([np.tile([-0.8 - deviation, -0.8 + deviation], RECORDS // 2), np.arange(RECORDS) % 4 >= 2])
    workload = Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    mean = workload.of_records(rows.astype(np.float64)).mean(axis=0)
    return workload.decode(mean, noise * workload.sensitivity, RECORDS)[0].estimates


@pytest.mark.parametrize(("text", "term"), MEANS.items())
def test_reach_of_a_mean(text: str, term: str) -> None:
    """Where noise hides half of the variance, Student's distribution has few degrees; without noise as many as records."""
    reaches = []
    for noise, deviation in ((0.0, 0.05), (1e-3, 0.05)):
        one = found(text, noise, deviation)
        place = one.terms.index(term)
        assert one.of_population is not None
        assert one.population is not None
        low, high = one.of_population[place]
        reaches.append((high - low) / 2 / one.population[place])
    records = RECORDS if term == "" else RECORDS / 2
    assert reaches[0] == pytest.approx(t_quantile(records - 1), rel=1e-3)
    assert reaches[1] > 1.01 * reaches[0]


def test_a_variance_that_noise_cut_to_nothing_is_not_certain() -> None:
    one = Summary(
        present=100, mean=0.0, noise_of_mean=1e-4, variance_estimate=-0.1, variance=0.0, noise_of_variance=0.01, fourth=0.0
    )
    assert one.sampling_of_mean == 0
    assert 1 <= one.degrees < 5


def test_without_noise_degrees_are_those_of_the_records() -> None:
    one = Summary(present=30, mean=0.0, noise_of_mean=0.0, variance_estimate=2.0, variance=2.0, noise_of_variance=0.0, fourth=9.0)
    assert one.degrees == pytest.approx(29)
    constant = Summary(present=30, mean=0.0, noise_of_mean=0.0, variance_estimate=0, variance=0, noise_of_variance=0, fourth=0)
    assert math.isinf(constant.degrees)
