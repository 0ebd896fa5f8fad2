"""Meta-analysis, rank correlation and the test of several groups: on real data as statsmodels and scipy compute them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import optimize, stats
from sklearn.datasets import load_breast_cancer, load_diabetes
from statsmodels.stats.meta_analysis import combine_effects

from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Estimates
from support.workloads import exact_of, workload_of

Array = NDArray[np.float64]
DATA = ["fair", "breast cancer", "diabetes"]
SITES = ("A", "B", "C", "D")
COLUMNS = Columns(
    [
        Column(name="x", low=-4, high=6, missing="indicator"),
        Column(name="y", low=-4, high=6, missing="indicator"),
        Column(name="treated", boolean=True),
        Column(name="ill", boolean=True),
        Column(name="site", levels=SITES),
    ]
)


@cache
def records(name: str) -> Array:
    if name == "fair":
        data = sm.datasets.fair.load_pandas().data
        x, y, group = (np.asarray(data[one], dtype=np.float64) for one in ("age", "religious", "educ"))
    else:
        table = (load_breast_cancer if name == "breast cancer" else load_diabetes)()["data"]
        x, y, group = table[:, 0], table[:, 4], table[:, 6 if name == "diabetes" else 8]
    x, y = ((one - one.mean()) / one.std() for one in (x, y))
    site = np.digitize(group, np.quantile(group, [0.25, 0.5, 0.75]) + 1e-9)
    given: Array = np.column_stack([np.clip(x, -4, 6), np.clip(y, -4, 6), x > 0.2, y > 0.1, site]).astype(np.float64)
    given[::19, 0] = np.nan
    return given


def exact(text: str, given: Array) -> Estimates:
    return exact_of(workload_of(COLUMNS, text), given)


@pytest.mark.parametrize(
    ("inner", "term", "ratio"),
    [
        ("crosstab(treated, ill)", "odds-ratio", True),
        ("group-means(x, by=ill)", "difference", False),
        ("correlation(x, y)", "x:y", False),
        ("linear-regression(y ~ x)", "x", False),
        ("kappa(treated, ill)", "kappa", False),
        ("mean(y)", "", False),
        ("quantiles(y, 0.5, bins=40)", "0.5", False),
    ],
)
@pytest.mark.parametrize("name", DATA)
def test_a_meta_analysis_is_that_of_the_sites_own_answers(name: str, inner: str, term: str, ratio: bool) -> None:
    given = records(name)
    own_text = inner[:-1] + ", robust=false)" if inner.startswith(("correlation", "linear")) else inner
    own = [exact(own_text, given[given[:, 4] == place]) for place in range(len(SITES))]
    index = own[0].terms.index(term)
    values, errors = (np.array([getattr(one, field)[index] for one in own]) for field in ("value", "population"))
    found = exact(f"meta-analysis({inner}, by=site, term={term})" if term else f"meta-analysis({inner}, by=site)", given)
    assert found.terms == (*SITES, "fixed", "random")
    np.testing.assert_allclose(found.value[:4], values, rtol=1e-7)
    assert found.population is not None
    np.testing.assert_allclose(found.population[:4], errors, rtol=1e-5)
    logs, variances = (np.log(values), (errors / values) ** 2) if ratio else (values, errors**2)
    oracle = combine_effects(logs, variances)
    between = paule_mandel(logs, variances)
    weights = 1 / (variances + between)
    random = weights @ logs / weights.sum()
    common = np.array([oracle.mean_effect_fe, random])
    np.testing.assert_allclose(found.value[4:], np.exp(common) if ratio else common, rtol=1e-5)
    assert found.tests["Q"].statistic == pytest.approx(oracle.q, rel=1e-5)
    assert found.summary["tau_squared"] == pytest.approx(between, rel=1e-5, abs=1e-12)
    scale = max(weights @ (logs - random) ** 2 / (len(SITES) - 1), 1.0)
    error = found.population[5] / (found.value[5] if ratio else 1.0)
    assert error == pytest.approx(np.sqrt(scale / weights.sum()), rel=1e-4)


def paule_mandel(values: Array, variances: Array) -> float:
    """Where the weighted squares are what they should be."""

    def excess(between: float) -> float:
        weights = 1 / (variances + between)
        return float(weights @ (values - weights @ values / weights.sum()) ** 2) - (len(values) - 1)

    return float(optimize.brentq(excess, 0.0, 100.0, xtol=1e-15)) if excess(0.0) > 0 else 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("meta-analysis(mean(z), by=site)", "z has no bounds"),
        ("meta-analysis(mean, by=site)", "is not of the form kind"),
        ("meta-analysis(mean(x), by=y)", "has bounds and no levels"),
        ("meta-analysis(mean(x), by=site, term=median)", "term 'median' is unknown"),
        ("meta-analysis(crosstab(site, ill), by=site)", "names 'site' twice"),
        ("meta-analysis(mean(x, cluster=site), by=site)", "cannot be asked of each site. Leave cluster and where out"),
        ("meta-analysis(icc(x, y), by=site)", "cannot be asked of each site. Choose another"),
        ("spearman(x, x)", "is of one column only"),
        ("kruskal-wallis(x, by=y)", "has bounds and no levels"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        exact(text, records("diabetes"))


def binned(values: Array, bins: int) -> Array:
    return np.digitize(values, np.linspace(-4, 6, bins + 1)[1:-1]).astype(np.float64)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DATA)
def test_groups_are_kruskal_and_wallis(name: str) -> None:
    given = records(name)
    found = exact("kruskal-wallis(x, by=site, bins=50)", given)
    there = given[~np.isnan(given[:, 0])]
    ranks = binned(there[:, 0], 50)
    groups = [ranks[there[:, 4] == place] for place in range(len(SITES))]
    oracle, test = stats.kruskal(*groups), found.tests["kruskal-wallis"]
    assert (test.statistic, test.p_value) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-7)
    above = [(np.sign(one[:, None] - ranks).mean() + 1) / 2 for one in groups]
    np.testing.assert_allclose(found.value, above, rtol=1e-9)
    # The answer of the values themselves lies within what the bins leave open.
    exact_above = np.array([(np.sign(there[there[:, 4] == k, :1] - there[:, 0]).mean() + 1) / 2 for k in range(len(SITES))])
    assert found.resolution is not None
    assert (np.abs(exact_above - found.value) <= found.resolution[:, 0] + 1e-12).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bins", [8, 10, 15])
@pytest.mark.parametrize("name", DATA)
def test_rank_correlation_is_spearmans(name: str, bins: int) -> None:
    given = records(name)
    found = exact(f"spearman(x, y, bins={bins})", given)
    x, y = given[~np.isnan(given[:, 0]), :2].T
    oracle = stats.spearmanr(binned(x, bins), binned(y, bins))
    assert found.value[0] == pytest.approx(oracle.statistic, rel=1e-9)
    assert found.tests["spearman"].statistic == pytest.approx(oracle.statistic * np.sqrt(len(x) - 1), rel=1e-9)
    assert found.of_noise[0, 0] <= stats.spearmanr(x, y).statistic <= found.of_noise[0, 1]


def test_the_error_of_a_rank_correlation_is_that_of_the_jackknife() -> None:
    given = records("diabetes")[:, :2]
    given = given[~np.isnan(given).any(axis=1)]
    x, y = (binned(one, 10) for one in given.T)
    left = [stats.spearmanr(np.delete(x, one), np.delete(y, one)).statistic for one in range(0, len(x), 2)]
    jackknife = np.sqrt((len(x) - 1) * np.var(left))
    found = exact("spearman(x, y)", given := np.column_stack([given, np.zeros((len(given), 3))]))
    assert found.population is not None
    assert len(given) > 100
    assert found.population[0] == pytest.approx(jackknife, rel=0.1)
