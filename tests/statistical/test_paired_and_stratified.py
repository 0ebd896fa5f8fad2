"""Paired proportions, agreement, trends and strata: on real data as statsmodels and scikit-learn compute them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.contingency_tables import StratifiedTable, Table, mcnemar
from statsmodels.stats.inter_rater import cohens_kappa

from quietmean.statistics import Column, Columns, Estimates
from support.workloads import exact_of, workload_of

Array = NDArray[np.float64]
DATA = ["fair", "breast cancer", "diabetes"]
COLUMNS = Columns(
    [
        Column(name="row", boolean=True),
        Column(name="column", boolean=True),
        Column(name="first", levels=("a", "b", "c")),
        Column(name="second", levels=("a", "b", "c")),
        Column(name="group", levels=("p", "q", "r", "s")),
    ]
)


@cache
def records(name: str) -> Array:
    """Two truth values, two columns of three levels and one of four, as data say."""
    if name == "fair":
        data = sm.datasets.fair.load_pandas().data
        one, other, group = data["religious"], data["rate_marriage"], np.digitize(data["age"], [25, 30, 35])
    else:
        table = (load_breast_cancer if name == "breast cancer" else load_diabetes)()["data"]
        one, other, third = table[:, 0], table[:, 3 if name == "diabetes" else 1], table[:, 2]
        group = np.digitize(third, np.quantile(third, [0.3, 0.55, 0.8]))
    levels = [np.digitize(values, np.quantile(values, [0.3, 0.7])) for values in (one, other)]
    truths = [values > np.quantile(values, 0.4 + 0.15 * index) for index, values in enumerate((one, other))]
    return np.column_stack([*truths, *levels, group]).astype(np.float64)


def exact(text: str, given: Array) -> Estimates:
    return exact_of(workload_of(COLUMNS, text), given)


def crossed(given: Array, *places: int) -> Array:
    """The counts of some columns against each other."""
    shape = [len(COLUMNS[COLUMNS.names[place]].categories) for place in places]
    counts = np.zeros(shape)
    np.add.at(counts, tuple(given[:, place].astype(int) for place in places), 1)
    return counts


@pytest.mark.parametrize("name", DATA)
def test_paired_proportions_are_mcnemars(name: str) -> None:
    given = records(name)
    found, table = exact("mcnemar(row, column)", given), crossed(given, 0, 1)
    oracle = mcnemar(table, exact=False, correction=False)
    assert found.tests["mcnemar"].statistic == pytest.approx(oracle.statistic, rel=1e-9)
    assert found.tests["mcnemar"].p_value == pytest.approx(oracle.pvalue, rel=1e-6)
    n, b, c = table.sum(), table[0, 1], table[1, 0]
    error = np.sqrt(b + c - (b - c) ** 2 / n) / n
    np.testing.assert_allclose(found.value, [given[:, 1].mean() - given[:, 0].mean(), b / c], rtol=1e-9)
    assert found.population is not None
    np.testing.assert_allclose(found.population, [error, b / c * np.sqrt(1 / b + 1 / c)], rtol=1e-9)


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
@pytest.mark.parametrize("name", DATA)
def test_agreement_is_cohens_kappa(name: str, weights: str) -> None:
    given = records(name)
    found = exact(f"kappa(first, second, weights={weights})", given)
    weighted = None if weights == "none" else weights
    oracle = cohens_kappa(crossed(given, 2, 3), wt=None if weighted is None else "linear" if weights == "linear" else "quadratic")
    assert found.value[0] == pytest.approx(cohen_kappa_score(given[:, 2], given[:, 3], weights=weighted), rel=1e-9)
    assert found.value[1] == pytest.approx((given[:, 2] == given[:, 3]).mean(), rel=1e-9)
    assert found.population is not None
    assert found.population[0] == pytest.approx(oracle.std_kappa, rel=1e-6)
    assert found.tests["kappa"].statistic == pytest.approx(oracle.z_value, rel=1e-6)


@pytest.mark.parametrize("scores", [None, (0.0, 1.0, 5.0, 7.0)])
@pytest.mark.parametrize("name", DATA)
def test_a_trend_is_cochran_and_armitages(name: str, scores: tuple[float, ...] | None) -> None:
    given = records(name)
    found = exact("trend(row, by=group" + (f", scores={' '.join(map(str, scores))})" if scores else ")"), given)
    numbers = np.arange(4.0) if scores is None else np.array(scores)
    table = crossed(given, 4, 0)
    oracle = Table(table, shift_zeros=False).test_ordinal_association(numbers, np.array([0.0, 1.0]))
    # statsmodels divides by n - 1.
    assert found.tests["trend"].statistic == pytest.approx(oracle.zscore * np.sqrt(len(given) / (len(given) - 1)), rel=1e-6)
    design = sm.add_constant(numbers[given[:, 4].astype(int)])
    line = sm.OLS(given[:, 0], design).fit(cov_type="HC0")
    assert found.value[0] == pytest.approx(line.params[1], rel=1e-9)
    assert found.population is not None
    assert found.population[0] == pytest.approx(line.bse[1], rel=1e-6)


@pytest.mark.parametrize("name", DATA)
def test_strata_are_mantel_and_haenszels(name: str) -> None:
    given = records(name)
    found, tables = exact("mantel-haenszel(row, column, by=group)", given), crossed(given, 4, 0, 1)
    oracle = StratifiedTable(list(tables))
    assert found.value[0] == pytest.approx(oracle.oddsratio_pooled, rel=1e-9)
    assert found.population is not None
    assert found.population[0] / found.value[0] == pytest.approx(oracle.logodds_pooled_se, rel=1e-6)
    null = oracle.test_null_odds(correction=False)
    assert found.tests["mantel-haenszel"].statistic == pytest.approx(null.statistic, rel=1e-9)
    # statsmodels' risk is that of the first column, of the first row against the second: all the other way round.
    assert found.value[1] == pytest.approx(StratifiedTable([one[::-1, ::-1] for one in tables]).riskratio_pooled, rel=1e-9)
    tables = tables[(tables.sum(axis=2) > 0).all(axis=1)]
    first, second = tables[:, 0].sum(axis=1), tables[:, 1].sum(axis=1)
    weight = first * second / (first + second)
    risks = tables[:, 1, 1] / second, tables[:, 0, 1] / first
    assert found.value[2] == pytest.approx(weight @ (risks[0] - risks[1]) / weight.sum(), rel=1e-9)


@pytest.mark.slow
def test_errors_of_common_risks_hold() -> None:
    """Ratio and difference of risks over strata of other sizes and risks: the spread of many tables is what is stated."""
    rng, sizes = np.random.default_rng(3), np.array([[300, 90], [60, 200], [150, 150], [80, 40]])
    base = np.array([0.1, 0.2, 0.3, 0.4])
    logs, differences, stated = [], [], []
    for _ in range(600):
        with_it = np.stack([rng.binomial(sizes[:, 0], base), rng.binomial(sizes[:, 1], base * 1.3)], axis=1)
        tables = np.stack([sizes - with_it, with_it], axis=2)
        cells = np.array([(k, i, j) for k in range(4) for i in range(2) for j in range(2)])
        given = np.zeros((sizes.sum(), 5))
        given[:, [4, 0, 1]] = np.repeat(cells, tables.ravel(), axis=0)
        found = exact("mantel-haenszel(row, column, by=group)", given)
        assert found.population is not None
        logs.append(np.log(found.value[1]))
        differences.append(found.value[2])
        stated.append([found.population[1] / found.value[1], found.population[2]])
    errors = np.sqrt(np.square(stated).mean(axis=0))
    assert np.std(logs) == pytest.approx(errors[0], rel=0.1)
    assert np.std(differences) == pytest.approx(errors[1], rel=0.1)
    assert np.mean(logs) == pytest.approx(np.log(1.3), abs=4 * errors[0] / np.sqrt(600))
