"""Every statistic: its features and errors are as stated, and without noise it is what a well-known library computes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from quietmean.core.codec import canonical_json, to_plain
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Estimates, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.features import Axis
from quietmean.statistics.kinds.tables import independence
from quietmean.statistics.survival_curve import Curve, TimeBins
from quietmean.testing import check_statistic
from support.every_kind import with_every_kind
from support.json_documents import faults
from support.workloads import exact_of

Array = NDArray[np.float64]

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100, missing="indicator"),
        Column(name="weight", low=40, high=140),
        Column(name="sex", levels=("f", "m")),
        Column(name="smoker", boolean=True),
        Column(name="chance", low=0, high=1),
        Column(name="ended", levels=("alive", "moved", "dead")),
    ]
)


def people(count: int, seed: int = 1) -> Array:
    """Records of COLUMNS with missing values."""
    rng = np.random.default_rng(seed)
    sex, smoker = rng.integers(0, 2, count).astype(float), (rng.random(count) < 0.3).astype(float)
    age = np.clip(rng.normal(50, 15, count) + 5 * sex, 0, 100)
    weight = np.clip(60 + 0.3 * age + 8 * sex + rng.normal(0, 10, count), 40, 140)
    age[::7], sex[::11], smoker[::13] = np.nan, np.nan, np.nan
    chance, ended = rng.random(count), rng.integers(0, 3, count).astype(float)
    return np.column_stack([age, weight, sex, smoker, chance, ended])


RECORDS = people(150)
# At least one of every kind; the conformance kit tries all.
EXAMPLES = with_every_kind(
    [
        "mean(age)",
        "mean(weight)",
        "sum(weight)",
        "variance(age)",
        "count(age)",
        "count(weight)",
        "count(sex)",
        "count(smoker)",
        "count(smoker, weight=age)",
        "mean(weight, weight=age)",
        "sum(weight, weight=age, population=1000000)",
        "crosstab(sex, smoker, weight=age)",
        "proportion(sex, weight=age)",
        "proportion(sex)",
        "proportion(smoker)",
        "proportion(sex, level=m)",
        "histogram(weight, bins=5)",
        "histogram(age, edges=10 30 60)",
        "histogram(sex)",
        "quantiles(weight, 0.25 0.5, bins=12)",
        "quantiles(age, bins=12)",
        "cdf(age, bins=6)",
        "crosstab(sex, smoker)",
        "group-means(age, by=sex)",
        "group-means(weight, by=smoker)",
        "correlation(age, weight)",
        "covariance(age, weight)",
        "linear-regression(weight ~ age + sex)",
        "survival(age, smoker, by=sex, horizon=80, bins=5)",
        "survival(age, smoker, by=sex, strata=ended, bins=3)",
        "survival(age, smoker, by=sex, entry=weight, start=30, bins=3)",
        "cumulative-incidence(age, ended, entry=weight, bins=3)",
        "table-1(age, smoker)",
        "table-1(by=sex)",
        "rates(smoker, age)",
        "rates(smoker, age, by=sex, standard=1 2)",
        "logistic-regression(smoker ~ age + weight)",
        "pca(age, weight, chance)",
        "pca(age, weight, scale=false)",
        "roc(weight, smoker, bins=5)",
        "calibration(chance, smoker, bins=4)",
        "mann-whitney(weight, by=sex, bins=8)",
        "hazard-ratio(age, smoker, by=sex, horizon=80, bins=4)",
        "restricted-mean(age, smoker, by=sex, horizon=60, bins=4)",
        "cumulative-incidence(age, ended, horizon=80, bins=4)",
        "cumulative-incidence(age, ended, censored=moved, by=sex, horizon=60, bins=3)",
        "site-effects(weight, by=ended)",
        "mcnemar(smoker, sex)",
        "kappa(sex, smoker)",
        "kappa(sex, smoker, weights=quadratic)",
        "trend(smoker, by=ended)",
        "trend(smoker, by=ended, scores=0 1 5)",
        "mantel-haenszel(sex, smoker, by=ended)",
        "synthetic-table(age, smoker, ended, bins=3)",
        "spearman(age, weight, bins=5)",
        "kruskal-wallis(weight, by=ended, bins=8)",
        "meta-analysis(group-means(weight, by=sex), by=ended)",
        "meta-analysis(crosstab(sex, smoker), by=ended, term=risk-difference)",
        "paired-difference(age, weight)",
        "bland-altman(age, weight)",
        "icc(age, weight)",
        "mean(weight, cluster=ended)",
        "proportion(smoker, cluster=ended)",
        "group-means(weight, by=sex, cluster=ended)",
        "rates(smoker, age, by=sex, cluster=ended)",
    ],
    COLUMNS,
)


def statistic(text: str) -> Statistic:
    return parse_statistic(read_text(text))


def exact(text: str, records: Array = RECORDS, unit: PrivacyUnit = PrivacyUnit.RECORD) -> Estimates:
    """The estimates without noise."""
    workload = Workload(COLUMNS, (statistic(text),), unit)
    return exact_of(workload, records)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", EXAMPLES)
def test_every_statistic_keeps_its_promises(text: str) -> None:
    check_statistic(statistic(text), COLUMNS, RECORDS)


@pytest.mark.sampled(80)
@pytest.mark.parametrize("noise", [0.0, 0.02, 5.0])
@pytest.mark.parametrize("text", EXAMPLES)
def test_every_answer_is_as_its_json_schema_says(text: str, noise: float) -> None:
    """Also where the noise hides all: null and "inf" have their places."""
    workload = Workload(COLUMNS, (statistic(text),), PrivacyUnit.RECORD)
    encoded = workload.encode(RECORDS)
    drawn = np.random.default_rng(3).normal(0, noise, encoded.vector.shape)
    (answer,) = workload.decode(encoded.vector / encoded.weight + drawn, noise, encoded.weight)
    document = json.loads(canonical_json(to_plain(answer.to_json())))
    assert faults("answer", document) == []
    assert faults("answer", document | {"estimates": 1}) != []


def odd_records(draw: np.random.Generator) -> Array:
    """As data are: few, all alike, none present, one group only, two columns the same, most cells empty."""
    records = people(400, int(draw.integers(1000)))[: int(draw.integers(2, 400))]
    kind = draw.integers(6)
    if kind == 0:
        records[:] = records[0]
    if kind == 1:
        records[:] = np.nan
    if kind == 2:
        records[:, 2] = 1.0
    if kind == 3:
        records[:, 3] = records[:, 2]
    if kind == 4:
        records = np.where(draw.random(records.shape) < 0.7, np.nan, records)
    return records


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", EXAMPLES)
def test_an_answer_comes_out_whatever_the_data_and_the_noise(text: str) -> None:
    """A study is over when answers are computed: an error here would lose what its budget has bought."""
    workload = Workload(COLUMNS, (statistic(text),), PrivacyUnit.RECORD)
    for seed in range(60):
        draw = np.random.default_rng([seed, 9])
        encoded = workload.encode(odd_records(draw))
        noise = float(draw.choice([0.0, 1e-6, 1e-3, 0.02, 0.2, 3.0, 1e3]))
        drawn = draw.normal(0, noise, encoded.vector.shape)
        (answer,) = workload.decode(encoded.vector / encoded.weight + drawn, noise, encoded.weight)
        assert len(answer.estimates.terms) > 0, seed
        canonical_json(to_plain(answer.to_json()))
        no_test_of_what_is_hidden(answer.estimates, encoded.weight)


def no_test_of_what_is_hidden(found: Estimates, records: float) -> None:
    """A test of coefficients that noise hides is hidden with them, and residuals have no more degrees of freedom than records."""
    lost = {term for flag in found.flags if flag.code in ("not-identified", "separated") for term in flag.terms}
    for name, test in found.tests.items():
        of = {test.about} if test.about else set(found.headline or found.terms)
        assert math.isnan(test.p_value) or not lost & of, (name, found.flags)
    assert found.summary.get("df", 0.0) < records


AGE, WEIGHT, SEX, SMOKER = RECORDS.T[:4]
PRESENT = AGE[~np.isnan(AGE)]
BINNED = [(PRESENT < 10).sum(), *np.histogram(PRESENT, [10, 30, 60])[0], (PRESENT > 60).sum()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mean(age)", PRESENT.mean()),
        ("mean(weight)", WEIGHT.mean()),
        ("sum(weight)", WEIGHT.sum()),
        ("sum(age)", PRESENT.sum()),
        ("variance(age)", [PRESENT.var(ddof=1), PRESENT.std(ddof=1)]),
        ("count(age)", len(PRESENT)),
        ("count(weight)", len(WEIGHT)),
        ("count(sex)", (~np.isnan(SEX)).sum()),
        ("count(sex, level=missing)", np.isnan(SEX).sum()),
        ("count(smoker)", np.nansum(SMOKER)),
        ("proportion(sex)", [1 - np.nanmean(SEX), np.nanmean(SEX), np.isnan(SEX).mean()]),
        ("proportion(smoker)", np.nanmean(SMOKER)),
        ("histogram(age, edges=10 30 60)", [*BINNED, np.isnan(AGE).sum()]),
        ("cdf(age, bins=4)", [0, *(np.mean(edge > PRESENT) for edge in (25, 50, 75)), 1]),
    ],
)
def test_without_noise_it_is_the_number_of_the_records(text: str, value: float | list[float]) -> None:
    np.testing.assert_allclose(exact(text).value, np.atleast_1d(value), rtol=1e-9, atol=1e-9)


def test_a_party_counts_once() -> None:
    found = exact("mean(weight)", unit=PrivacyUnit.PARTY)
    assert found.value[0] == pytest.approx(WEIGHT.mean())
    assert exact("proportion(smoker)", unit=PrivacyUnit.PARTY).reason
    assert exact("variance(weight)", unit=PrivacyUnit.PARTY).of_population is None
    workload = Workload(COLUMNS, (statistic("mean(weight)"),), PrivacyUnit.PARTY)
    parties = [workload.encode(part).vector for part in np.array_split(RECORDS, 8)]
    means = np.array([part[:, 1].mean() for part in np.array_split(RECORDS, 8)])
    (answer,) = workload.decode(np.mean(parties, axis=0), 0.0, 8.0)
    assert answer.estimates.value[0] == pytest.approx(means.mean())
    assert answer.estimates.population is not None
    assert answer.estimates.population[0] == pytest.approx(means.std(ddof=1) / 8**0.5)
    with pytest.raises(InputError, match="adds up records, but the unit is party"):
        exact("sum(weight)", unit=PrivacyUnit.PARTY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mean(sex)", "has levels and no bounds. Choose a column of numbers"),
        ("proportion(age)", "has bounds and no levels. Choose one declared with levels"),
        ("proportion(sex, level=x)", "level 'x' is unknown. Choose one of f, m, missing"),
        ("count(sex, level=n)", "level 'n' is unknown"),
        ("correlation(age)", "needs 2 or more different columns"),
        ("correlation(age, age)", "needs 2 or more different columns"),
        ("correlation(age, sex)", "has levels and no bounds"),
        ("covariance(age)", "needs 2 or more different columns"),
        ("linear-regression(weight)", "is not of the form outcome ~ column"),
        ("linear-regression(weight ~ age + )", "is not of the form outcome ~ column"),
        ("linear-regression(weight ~ age + age)", "names a column twice"),
        ("linear-regression(weight ~ agee)", r"agee has no bounds \(did you mean 'age'"),
        ("linear-regression(sex ~ age)", "has levels and no bounds"),
        ("survival(age, sex)", "must say whether the event happened. Write sex in yes/no."),
        ("survival(age, weight)", "Write weight in yes/no, or compare it: event = weight >= 1."),
        ("survival(age, died)", r"died has no domain \(did you mean .*Write survival\(age in 0..100, died in yes/no\)"),
        ("table-1(sex, by=sex)", "needs columns beside the one that divides them"),
        ("table-1(age, age)", "Name each once"),
        ("table-1(age, by=weight)", "has bounds and no levels"),
        ("rates(weight, age)", "does not count events"),
        ("rates(smoker, weight)", "is person-time, but its lower bound is 40"),
        ("rates(age, age)", "names one column twice"),
        ("rates(smoker, age, standard=1 2)", "Give a weight >= 0 for each of 0 groups"),
        ("rates(smoker, age, by=sex, standard=1 2 3)", "Give a weight >= 0 for each of 2 groups"),
        ("rates(smoker, age, by=sex, standard=0 0)", "not all of them 0"),
        ("logistic-regression(sex ~ age)", "is the outcome of a logistic regression. Write sex in yes/no."),
        ("logistic-regression(smoker)", "is not of the form outcome ~ column"),
        ("pca(age)", "needs 2 or more different columns"),
        ("pca(age, sex)", "has levels and no bounds"),
        ("roc(age, sex)", "must say whether a record has the outcome. Write sex in yes/no."),
        ("roc(sex, smoker)", "has levels and no bounds"),
        ("calibration(age, smoker)", "is a predicted probability, but its bounds are not between 0 and 1"),
        ("mann-whitney(age, by=ended)", "compares two groups, but column 'ended' has 3 levels"),
        ("hazard-ratio(age, smoker)", "compares arms. Name the column"),
        ("restricted-mean(weight, smoker)", "times from 0 to the horizon"),
        ("cumulative-incidence(age, ended, censored=lost)", "'lost' is unknown"),
        ("cumulative-incidence(age, ended, by=ended)", "for arms and for events. Name two columns"),
        ("site-effects(weight, by=age)", "has bounds and no levels"),
        ("mean(weight, cluster=age)", "has bounds and no levels"),
        ("proportion(sex, cluster=sex)", "named twice, once as cluster"),
        ("group-means(weight, by=sex, cluster=sex)", "named twice, once as cluster"),
        ("rates(smoker, age, cluster=smoker)", "named twice, once as cluster"),
        ("rates(smoker, age, by=sex, standard=1 1, cluster=ended)", "standard and cluster do not go together"),
        ("survival(age, smoker, horizon=200)", "times from 0 to the horizon 200"),
        ("survival(weight, smoker)", "times from 0 to the horizon"),
        ("survival(age, smoker, strata=sex)", "Name the column whose levels are arms"),
        ("survival(age, smoker, by=sex, strata=sex)", "has the column 'sex' twice"),
        ("survival(age, smoker, by=sex, strata=weight)", "has bounds and no levels"),
        ("icc(age, age)", "of one column only"),
        ("paired-difference(age, sex)", "has levels and no bounds"),
        ("mcnemar(smoker, smoker)", "names a column twice"),
        ("mcnemar(smoker, ended)", "compares the levels of two columns, but smoker has no, yes and ended has alive"),
        ("mcnemar(ended, smoker)", "needs two levels, but column 'ended' has 3"),
        ("kappa(sex, age)", "has bounds and no levels"),
        ("kappa(sex, smoker, weights=cubic)", "weights 'cubic' is unknown"),
        ("trend(ended, by=sex)", "needs two levels"),
        ("trend(smoker, by=ended, scores=1 2)", "needs a score for each of 3 groups"),
        ("trend(smoker, by=ended, scores=1 1 1)", "not all the same"),
        ("mantel-haenszel(sex, ended, by=smoker)", "needs two levels"),
        ("mantel-haenszel(sex, smoker, by=sex)", "names a column twice"),
        ("crosstab(sex, sex)", "of one column only"),
        ("crosstab(sex, age)", "has bounds and no levels"),
        ("group-means(age, by=weight)", "has bounds and no levels"),
        ("quantiles(age, 0.5 1.5)", "different numbers between 0 and 1"),
        ("histogram(age, edges=5)", "two or more rising numbers"),
        ("histogram(age, edges=10 5)", "two or more rising numbers"),
        ("histogram(age, edges=-10 5)", "beyond its bounds 0 to 100"),
        ("histogram(age, edges=ten)", "numbers with spaces between them"),
        ("histogram(age, bins=0)", "Choose 1 to 1024 bins"),
        ("count(age, level=x)", "has bounds and no levels"),
    ],
)
def test_questions_that_columns_cannot_answer(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        exact(text)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "must have either bounds, levels or boolean"),
        ({"high": 1}, "'x' has no low. Give both bounds"),
        ({"low": 1}, "'x' has no high. Give both bounds"),
        ({"low": 0, "high": 1, "boolean": True}, "must have either bounds, levels or boolean"),
        ({"levels": ("a",)}, "two or more different levels"),
        ({"levels": ("a", "a")}, "two or more different levels"),
        ({"levels": ("a", "missing")}, "which empty cells have already"),
    ],
)
def test_columns_that_are_none(declared: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Column.model_validate({"name": "x", **declared})


def test_nothing_is_known_where_noise_hides_everything() -> None:
    for text in ("mean(age)", "variance(age)", "proportion(sex)"):
        workload = Workload(COLUMNS, (statistic(text),), PrivacyUnit.RECORD)
        encoded = workload.encode(np.full((5, len(COLUMNS)), np.nan))
        (answer,) = workload.decode(encoded.vector / 5, 0.5, 5.0)
        assert "nothing-present" in answer.to_json()["flags"]
        assert np.isinf(answer.estimates.standard_error).any()


# --- against scipy ---------------------------------------------------------------------------------------------------

BOTH = ~np.isnan(SEX) & ~np.isnan(SMOKER)
TABLE = np.array([[((i == SEX) & (j == SMOKER)).sum() for j in (0, 1)] for i in (0, 1)])
WEIGHTS = [WEIGHT[i == SEX] for i in (0, 1)]


def test_chi_squared_without_noise_is_pearsons() -> None:
    found = exact("crosstab(sex, smoker)")
    oracle = stats.chi2_contingency(TABLE, correction=False)
    test = found.tests["chi-squared"]
    assert test.statistic == pytest.approx(oracle.statistic, rel=1e-9)
    assert test.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    assert test.degrees == (1.0,)
    np.testing.assert_allclose(found.value[[0, 1, 3, 4]], TABLE.ravel(), rtol=1e-9)


def test_chi_squared_of_larger_tables_without_noise_is_pearsons() -> None:
    table = np.array([[20.0, 15.0, 30.0], [10.0, 22.0, 25.0], [5.0, 14.0, 9.0], [12.0, 3.0, 8.0]])
    test, flags = independence(table, np.zeros((12, 12)))
    oracle = stats.chi2_contingency(table, correction=False)
    assert (test.statistic, test.p_value) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-9)
    assert not flags


def test_ratios_without_noise() -> None:
    found = exact("crosstab(sex, smoker)")
    (a, b), (c, d) = TABLE.tolist()
    odds = stats.contingency.odds_ratio(TABLE, kind="sample")
    risk = stats.contingency.relative_risk(d, c + d, b, a + b)
    expected = [float(odds.statistic), float(risk.relative_risk), d / (c + d) - b / (a + b)]
    np.testing.assert_allclose(found.value[-3:], expected, rtol=1e-9)
    assert found.of_population is not None
    intervals = [odds.confidence_interval(0.95), risk.confidence_interval(0.95)]
    np.testing.assert_allclose(found.of_population[-3:-1], [[one.low, one.high] for one in intervals], rtol=1e-9)


def test_t_test_and_anova_without_noise_are_welchs() -> None:
    found = exact("group-means(weight, by=sex)")
    oracle = stats.ttest_ind(WEIGHTS[1], WEIGHTS[0], equal_var=False)
    test = found.tests["t-test"]
    assert (test.statistic, test.p_value) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-9)
    assert test.degrees[0] == pytest.approx(oracle.df, rel=1e-9)
    assert found.of_population is not None
    interval = oracle.confidence_interval(0.95)
    np.testing.assert_allclose(found.of_population[2], [interval.low, interval.high], rtol=1e-9)
    # Of two groups, Welch's analysis of variance is the square of his t-test.
    assert found.tests["anova"].statistic == pytest.approx(oracle.statistic**2, rel=1e-9)
    assert found.tests["anova"].p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    for row, weights in enumerate(WEIGHTS):
        own: Any = stats.ttest_1samp(weights, 0).confidence_interval(0.95)
        np.testing.assert_allclose(found.of_population[row], [own.low, own.high], rtol=1e-9)
    apart = WEIGHTS[1].mean() - WEIGHTS[0].mean()
    assert found.terms[3:] == ("smd", "cohen-d")
    # That of journals (R: tableone, cobalt, stddiff), and Cohen's.
    assert found.value[3] == pytest.approx(apart / np.sqrt(np.mean([one.var(ddof=1) for one in WEIGHTS])), rel=1e-9)
    pooled = np.sqrt(sum((len(one) - 1) * one.var(ddof=1) for one in WEIGHTS) / (len(np.concatenate(WEIGHTS)) - 2))
    assert found.value[4] == pytest.approx(apart / pooled, rel=1e-9)


def test_wilsons_interval_without_noise_is_scipys() -> None:
    found = exact("proportion(smoker)")
    oracle = stats.binomtest(int(np.nansum(SMOKER)), int((~np.isnan(SMOKER)).sum())).proportion_ci(0.95, "wilson")
    assert found.of_population is not None
    np.testing.assert_allclose(found.of_population[0], [oracle.low, oracle.high], rtol=1e-9)


def test_quantiles_are_those_of_the_binned_records() -> None:
    """Linear inside bins: a bin's width from numpy's, and exactly the inverse of the binned distribution."""
    found = exact("quantiles(weight, 0.1 0.25 0.5 0.9, bins=50)")
    edges = np.linspace(40, 140, 51)
    below = np.array([(edge > WEIGHT).mean() for edge in edges[:-1]] + [1.0])
    np.testing.assert_allclose(found.value, np.interp([0.1, 0.25, 0.5, 0.9], below, edges), rtol=1e-9)
    assert found.terms == ("0.1", "0.25", "0.5", "0.9")
    np.testing.assert_allclose(found.value, np.quantile(WEIGHT, [0.1, 0.25, 0.5, 0.9]), atol=2.0)


COMPLETE = ~np.isnan(AGE) & ~np.isnan(SEX)


def test_correlations_without_noise_are_pearsons() -> None:
    found = exact("correlation(age, weight, robust=false)")
    there = ~np.isnan(AGE)
    oracle = stats.pearsonr(AGE[there], WEIGHT[there])
    interval = oracle.confidence_interval(0.95)
    assert found.terms == ("age:weight",)
    assert found.value[0] == pytest.approx(oracle.statistic, rel=1e-9)
    assert found.of_population is not None
    np.testing.assert_allclose(found.of_population[0], [interval.low, interval.high], rtol=1e-9)
    both = exact("covariance(age, weight)")
    expected = np.cov(AGE[there], WEIGHT[there])
    np.testing.assert_allclose(both.value, [expected[0, 0], expected[0, 1], expected[1, 1]], rtol=1e-9)
    assert both.terms == ("age:age", "age:weight", "weight:weight")


def test_regression_without_noise_is_least_squares() -> None:
    found = exact("linear-regression(weight ~ age, robust=false)")
    there = ~np.isnan(AGE)
    oracle = stats.linregress(AGE[there], WEIGHT[there])
    np.testing.assert_allclose(found.value, [oracle.intercept, oracle.slope], rtol=1e-9)
    assert found.population is not None
    assert found.p_value is not None
    np.testing.assert_allclose(found.population, [oracle.intercept_stderr, oracle.stderr], rtol=1e-9)
    assert found.p_value[1] == pytest.approx(oracle.pvalue, rel=1e-6)
    assert found.tests["F"].p_value == pytest.approx(oracle.pvalue, rel=1e-6)
    assert found.summary["r_squared"] == pytest.approx(oracle.rvalue**2, rel=1e-9)
    more = exact("linear-regression(weight ~ age + sex)")
    rows = np.column_stack([np.ones(COMPLETE.sum()), AGE[COMPLETE], SEX[COMPLETE]])
    expected, rest, _, _ = np.linalg.lstsq(rows, WEIGHT[COMPLETE], rcond=None)
    assert more.terms == ("(Intercept)", "age", "sex[m]")
    np.testing.assert_allclose(more.value, expected, rtol=1e-9)
    variance = rest[0] / (len(rows) - 3)
    assert more.population is not None
    np.testing.assert_allclose(more.population**2, variance * np.diag(np.linalg.inv(rows.T @ rows)), rtol=1e-9)
    assert more.summary["sigma"] == pytest.approx(variance**0.5, rel=1e-9)


def test_a_covariate_that_never_changes_is_not_identified() -> None:
    same = RECORDS.copy()
    same[:, 0] = 50.0
    found = exact("linear-regression(weight ~ age)", same)
    assert [flag.code for flag in found.flags] == ["not-identified"]
    assert np.isnan(found.value).all()


def arms() -> tuple[Array, Array]:
    """Times in years at the ends of bins of one year, censored after ten only, and two arms."""
    rng = np.random.default_rng(4)
    arm = rng.integers(0, 2, 300).astype(float)
    return np.ceil(rng.exponential(6 + 5 * arm)), arm


def test_curves_without_noise_are_kaplan_meiers() -> None:
    times, arm = arms()
    time = Column(name="t", low=0, high=12, whole=True)
    columns = Columns([time, Column(name="e", boolean=True), Column(name="arm", levels=("a", "b"))])
    records = np.column_stack([times, (times <= 10).astype(float), arm])
    workload = Workload(columns, (statistic("survival(t, e, by=arm, horizon=10, bins=10)"),), PrivacyUnit.RECORD)
    found = exact_of(workload, records)
    assert [flag.code for flag in found.flags] == ["not-reached"]
    samples = []
    for place in (0, 1):
        own = times[arm == place]
        samples.append(stats.CensoredData(uncensored=own[own <= 10], right=np.full((own > 10).sum(), 10.5)))
        curve = stats.ecdf(samples[-1]).sf
        np.testing.assert_allclose(found.value[10 * place : 10 * place + 10], curve.evaluate(np.arange(1.0, 11.0)), rtol=1e-9)
        assert found.of_population is not None
        ends: Any = curve.confidence_interval(0.95, method="log-log")
        expected = [[ends.low.evaluate(time), ends.high.evaluate(time)] for time in np.arange(1.0, 11.0)]
        np.testing.assert_allclose(found.of_population[10 * place : 10 * place + 10], expected, rtol=1e-9)
    oracle = stats.logrank(samples[0], samples[1])
    assert found.tests["log-rank"].statistic == pytest.approx(oracle.statistic**2, rel=1e-9)
    assert found.tests["log-rank"].p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    told = found.to_json()["estimate"]
    assert list(told) == ["a", "b", "lower-quartile", "median", "upper-quartile"]
    assert list(told["a"])[:2] == ["1", "2"]


def years(count: int) -> TimeBins:
    """Time 0, and so many years after it."""
    axis = Axis(Column(name="t", low=0, high=count), tuple(float(year) for year in range(count + 1)), closed="right")
    return TimeBins.of(axis, count + 1)


def test_a_cut_curve_goes_on_with_the_usual_hazard() -> None:
    """Where hardly anybody is at risk the tail is that of the mean hazard before; where many are, their own."""
    events, censored = np.array([0.0, 20.0, 20.0, 3.0, 0.0]), np.array([0.0, 0.0, 100.0, 2.0, 0.0])
    # None of those at time 0.
    noise = np.diag([0.0, *[4.0] * 4, 0.0, *[4.0] * 5])
    curve = Curve(years(4), events, censored, 1.0, noise)
    assert curve.usable == 3
    usual = 40 / (146 + 146 + 126 - 50)
    risk, error = curve.at_risk[3:], curve.risk_noise[3:]
    np.testing.assert_allclose(risk, [5.0, 1.0])
    np.testing.assert_allclose(error, [17**0.5, 3.0])
    hazards = (np.array([3.0, 0.0]) + 5 * error * usual) / (risk + 5 * error)
    np.testing.assert_allclose(curve.extrapolated, curve.survival[-1] * np.cumprod(1 - hazards))
    assert len(Curve(years(1), np.array([0.0, 100.0]), np.zeros(2), 100.0, np.zeros((5, 5))).extrapolated) == 0
    assert len(Curve(years(1), np.zeros(2), np.zeros(2), 0.0, np.zeros((5, 5))).extrapolated) == 0


def test_those_censored_in_a_bin_are_at_risk_for_half_of_it() -> None:
    events, censored = np.array([0.0, 5.0, 4.0, 2.0]), np.array([0.0, 6.0, 2.0, 8.0])
    curve = Curve(years(3), events, censored, 30.0, np.zeros((9, 9)))
    left = np.array([57.0, 57.0, 46.0, 40.0])
    np.testing.assert_allclose(curve.at_risk, left - censored / 2)
    np.testing.assert_allclose(curve.survival, np.cumprod(1 - events / (left - censored / 2)))
