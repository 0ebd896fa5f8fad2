"""Paired differences, limits of agreement and intraclass correlations: on real data as scipy and statsmodels compute them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from statsmodels.stats.anova import anova_lm

from quietmean.statistics import Column, Columns, Estimates
from support.workloads import exact_of, workload_of

Array = NDArray[np.float64]
DATA = ["breast cancer", "diabetes", "wine"]
COLUMNS = Columns([Column(name="x", low=-5, high=9), Column(name="y", low=-6, high=12)])


@cache
def pair(name: str) -> Array:
    """Two columns that agree more or less, in units of the first one's deviation, some cells missing."""
    table, one, other = {
        "breast cancer": (load_breast_cancer()["data"], 0, 20),
        "diabetes": (load_diabetes()["data"], 4, 5),
        "wine": (load_wine()["data"], 5, 6),
    }[name]
    x, y = table[:, one], table[:, other]
    given: Array = np.column_stack(
        [(x - x.mean()) / x.std(), (y - x.mean()) / y.std() * 0.9 if name == "wine" else (y - x.mean()) / x.std()]
    )
    inside: Array = np.clip(given, -5, 9)
    inside[::17, 0], inside[::23, 1] = np.nan, np.nan
    return inside


def exact(text: str, given: Array) -> Estimates:
    return exact_of(workload_of(COLUMNS, text), given)


def complete(name: str) -> Array:
    given = pair(name)
    there: Array = given[~np.isnan(given).any(axis=1)]
    return there


@pytest.mark.parametrize("name", DATA)
def test_a_paired_difference_is_the_t_test_of_pairs(name: str) -> None:
    found, (x, y) = exact("paired-difference(x, y)", pair(name)), complete(name).T
    oracle = stats.ttest_rel(y, x)
    interval = oracle.confidence_interval(0.95)
    test = found.tests["paired-t"]
    assert found.value[0] == pytest.approx((y - x).mean(), rel=1e-9)
    assert (test.statistic, test.degrees[0]) == pytest.approx((oracle.statistic, oracle.df), rel=1e-6)
    assert test.p_value == pytest.approx(oracle.pvalue, rel=1e-5, abs=1e-300)
    assert found.of_population is not None
    np.testing.assert_allclose(found.of_population[0], [interval.low, interval.high], rtol=1e-6)


@pytest.mark.parametrize("name", DATA)
def test_limits_of_agreement_are_those_of_the_differences(name: str) -> None:
    found, (x, y) = exact("bland-altman(x, y)", pair(name)), complete(name).T
    d = y - x
    sd, n = d.std(ddof=1), len(d)
    z = stats.norm.ppf(0.975)
    np.testing.assert_allclose(found.value, [d.mean(), sd, d.mean() - z * sd, d.mean() + z * sd], rtol=1e-8)
    # What one record adds to each.
    spread = ((d - d.mean()) ** 2 - d.var()) / (2 * d.std()) * np.sqrt(n / (n - 1))
    influence = [d - d.mean(), spread, d - d.mean() - z * spread, d - d.mean() + z * spread]
    assert found.population is not None
    np.testing.assert_allclose(found.population, [one.std() / np.sqrt(n - 1) for one in influence], rtol=1e-5)


@pytest.mark.parametrize("name", DATA)
def test_intraclass_correlations_are_those_of_the_analysis_of_variance(name: str) -> None:
    found, given = exact("icc(x, y)", pair(name)), complete(name)
    n = len(given)
    long = pd.DataFrame({"value": given.T.ravel(), "rater": np.repeat(["x", "y"], n), "record": np.tile(np.arange(n), 2)})
    if n > 200:
        # The squares of hundreds of factor levels, without a regression on them.
        rows, columns, grand = given.mean(axis=1), given.mean(axis=0), given.mean()
        left = given - rows[:, None] - columns + grand
        squares = 2 * ((rows - grand) ** 2).sum() / (n - 1), n * ((columns - grand) ** 2).sum(), (left**2).sum() / (n - 1)
    else:
        table = anova_lm(smf.ols("value ~ C(record) + C(rater)", long).fit())
        squares = tuple(table["mean_sq"][one] for one in ("C(record)", "C(rater)", "Residual"))
    records, raters, error = squares
    agreement = (records - error) / (records + error + 2 * (raters - error) / n)
    consistency = (records - error) / (records + error)
    x, y = given.T
    concordance = 2 * np.cov(x, y, ddof=0)[0, 1] / (x.var() + y.var() + (x - y).mean() ** 2)
    np.testing.assert_allclose(found.value, [agreement, consistency, concordance], rtol=1e-8)


@pytest.mark.parametrize("name", DATA)
def test_errors_of_intraclass_correlations_are_those_of_the_jackknife(name: str) -> None:
    given = complete(name)
    sums = np.column_stack([given, given**2, given.prod(axis=1)])
    rest = (sums.sum(axis=0) - sums) / (len(given) - 1)
    x, y, xx, yy, xy = rest.T
    total, difference = xx - x**2 + yy - y**2, y - x
    shared = 2 * (xy - x * y)
    alone = np.stack([shared / total, shared / (total + difference**2)], axis=1)
    jackknife = np.sqrt((len(given) - 1) * alone.var(axis=0))
    found = exact("icc(x, y)", given)
    assert found.population is not None
    np.testing.assert_allclose(found.population[1:], jackknife, rtol=0.03)
    # A constant difference lowers agreement, not consistency.
    moved = exact("icc(x, y)", given + np.array([0.0, 1.0]))
    assert moved.value[1] == pytest.approx(found.value[1])
    assert abs(moved.value[0] - found.value[0]) > 0.01
