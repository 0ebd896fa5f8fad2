"""Without noise, every statistic is what an independent library computes from the encoded records."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import AalenJohansenFitter, KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import quad
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import brier_score_loss, confusion_matrix, roc_auc_score
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.rates import confint_poisson

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import decimals_for
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from support.workloads import exact_of, workload_of

Array = NDArray[np.float64]

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100, missing="indicator"),
        Column(name="weight", low=20, high=160),
        Column(name="height", low=100, high=230),
        Column(name="arm", levels=("a", "b")),
        Column(name="site", levels=("u", "v", "w", "x")),
        Column(name="race", levels=("p", "q", "r")),
        Column(name="ill", boolean=True),
        Column(name="risk", low=0, high=1),
        Column(name="falls", low=0, high=4),
        Column(name="years", low=0, high=12),
        Column(name="cause", levels=("none", "heart", "other")),
    ]
)
PLACES = {name: place for place, name in enumerate(COLUMNS.names)}


def cohort(count: int = 400, seed: int = 5) -> Array:
    """Records of COLUMNS: years end in the middle of bins of one year, where everything is at half of the bin."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(55, 15, count), 0, 100)
    height = np.clip(rng.normal(170, 10, count), 100, 230)
    weight = np.clip(0.5 * height - 15 + 0.1 * age + rng.normal(0, 8, count), 20, 160)
    arm, site = rng.integers(0, 2, count), rng.integers(0, 4, count)
    race = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    odds = -5 + 0.05 * age + 0.03 * weight + 0.3 * arm
    ill = rng.random(count) < 1 / (1 + np.exp(-odds))
    risk = np.clip((np.floor(16 / (1 + np.exp(-odds + rng.normal(0, 1, count)))) + 0.5) / 16, 0.5 / 16, 15.5 / 16)
    falls = np.minimum(rng.poisson(0.5 + 0.3 * arm), 4)
    years = np.minimum(np.ceil(rng.exponential(6 + 4 * arm)), 12) - 0.5
    cause = np.where(years > 10, 0, rng.choice(3, count, p=[0.2, 0.5, 0.3]))
    age[::9], race[::23] = np.nan, -1
    missing_race = np.where(race < 0, np.nan, race.astype(float))
    return np.column_stack([age, weight, height, arm, site, missing_race, ill, risk, falls, years, cause]).astype(np.float64)


RECORDS = cohort()
AGE, WEIGHT, HEIGHT, ARM, SITE, RACE, ILL, RISK, FALLS, YEARS, CAUSE = RECORDS.T


def exact(text: str, records: Array = RECORDS, columns: Columns = COLUMNS) -> Estimates:
    """The estimates without noise."""
    return exact_of(workload_of(columns, text), records)


def value(found: Estimates, term: str) -> float:
    return float(found.value[found.terms.index(term)])


def ends(found: Estimates, term: str) -> Array:
    population = found.of_population
    assert population is not None
    return np.asarray(population[found.terms.index(term)])


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def test_table_1_is_that_of_pandas() -> None:
    found = exact("table-1(age, weight, race, ill, by=arm)")
    frame = pd.DataFrame(RECORDS, columns=COLUMNS.names)
    for level, (_, group) in zip(("a", "b"), frame.groupby("arm"), strict=True):
        assert value(found, f"{level} n") == pytest.approx(len(group), rel=1e-9)
        for name in ("age", "weight"):
            assert value(found, f"{level} {name} mean") == pytest.approx(group[name].mean(), rel=1e-9)
            assert value(found, f"{level} {name} sd") == pytest.approx(group[name].std(), rel=1e-9)
            assert value(found, f"{level} {name} missing") == pytest.approx(group[name].isna().mean(), abs=1e-9)
        for place, race in enumerate(("p", "q", "r")):
            expected = (group["race"] == place).sum() / group["race"].notna().sum()
            assert value(found, f"{level} race:{race}") == pytest.approx(expected, rel=1e-9)
        assert value(found, f"{level} race missing") == pytest.approx(group["race"].isna().mean(), rel=1e-9)
        assert value(found, f"{level} ill:yes") == pytest.approx(group["ill"].mean(), rel=1e-9)
    two = [frame[frame["arm"] == place] for place in (0, 1)]
    welch = stats.ttest_ind(two[1]["weight"], two[0]["weight"], equal_var=False)
    assert found.tests["weight"].p_value == pytest.approx(welch.pvalue, rel=1e-9)
    pearson = stats.chi2_contingency(pd.crosstab(frame["arm"], frame["race"]), correction=False)
    assert found.tests["race"].p_value == pytest.approx(pearson.pvalue, rel=1e-9)
    p, q = (group["ill"].mean() for group in two)
    assert value(found, "smd ill") == pytest.approx((q - p) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2), rel=1e-9)
    parts = [np.array([(group["race"] == place).sum() for place in range(3)]) / group["race"].notna().sum() for group in two]
    spreads = [np.diag(part) - np.outer(part, part) for part in parts]
    middle = (spreads[0] + spreads[1])[1:, 1:] / 2
    apart = (parts[1] - parts[0])[1:]
    assert value(found, "smd race") == pytest.approx(np.sqrt(apart @ np.linalg.inv(middle) @ apart), rel=1e-9)


def test_table_1_is_printed() -> None:
    summary = exact("table-1(by=arm)").summary
    table = summary["table"]
    assert summary["heads"] == {"a": f"a (n = {(ARM == 0).sum()})", "b": f"b (n = {(ARM == 1).sum()})"}
    age = AGE[(ARM == 0) & ~np.isnan(AGE)]
    # As the less exact group allows.
    both = [AGE[(place == ARM) & ~np.isnan(AGE)] for place in (0, 1)]
    decimals = decimals_for(max(one.std(ddof=1) / np.sqrt(len(one)) for one in both))
    assert table[0]["cells"]["a"] == f"{age.mean():.{decimals}f} ({age.std(ddof=1):.{decimals}f})"
    assert {"p", "smd"} <= set(table[0])
    rows = [line["row"] for line in table]
    assert rows[:2] == ["age, mean (SD)", "age, missing, n (%)"]
    # What is said of all levels stands above them.
    place = rows.index("race, n (%)")
    assert rows[place + 1] == "  race = p"
    assert {"p", "smd"} <= set(table[place])
    assert not {"p", "smd"} & {key for line in table[place + 1 : place + 4] for key in line}
    assert summary["without_sign"] == ["site", "race", "cause"]
    sick = ILL[ARM == 0]
    (ill,) = [line for line in table if line["row"] == "ill = yes, n (%)"]
    assert ill["cells"]["a"] in (f"{sick.sum():.0f} ({100 * sick.mean():.{decimals}f})" for decimals in (0, 1))
    told = exact("table-1()").to_json()
    assert list(told["estimate"]) == ["all"]
    assert told["estimate"]["all"]["age mean"] == pytest.approx(np.nanmean(AGE))


def test_medians_of_table_1_are_those_of_the_records_up_to_a_bin() -> None:
    found = exact("table-1(age, weight, ill, by=arm, medians=true)")
    for place, arm in enumerate(("a", "b")):
        for name, values, width in (("age", AGE, 100), ("weight", WEIGHT, 100)):
            own = values[(place == ARM) & ~np.isnan(values)]
            terms = ("lower quartile", "median", "upper quartile")
            for term, exactly in zip(terms, np.quantile(own, [0.25, 0.5, 0.75]), strict=True):
                assert abs(value(found, f"{arm} {name} {term}") - exactly) <= 1.5 * width / 256
    lines = {line["row"]: line["cells"]["a"] for line in found.summary["table"]}
    assert re.fullmatch(r"[\d.]+ \[[\d.]+ to [\d.]+\]", lines["age, median [quartiles]"])
    assert "ill, median [quartiles]" not in lines
    assert found.n is not None
    assert np.isfinite(found.n[[place for place, term in enumerate(found.terms) if "median" in term], 0]).all()


def test_medians_have_a_share_of_their_own_and_change_no_table_without_them() -> None:
    plain, more = (parse_statistic(read_text(f"table-1(age, race, by=arm{also})")) for also in ("", ", medians=true"))
    assert "medians" not in plain.describe()
    assert [one.total_share(COLUMNS) for one in (plain, more)] == [2.0, 3.0]
    assert more.text == "table-1(age, race, by=arm, medians=true)"


def test_a_row_of_table_1_is_a_question_of_its_own() -> None:
    """Twelve rows beside one other statistic: a thirteenth of the budget each."""
    both = [parse_statistic(read_text(text)) for text in ("table-1(age, weight, race, by=arm)", "histogram(height, bins=4)")]
    workload = Workload(COLUMNS, tuple(both), PrivacyUnit.RECORD)
    assert list(workload.shares.values()) == [1.0] * 4
    assert workload.sensitivity == pytest.approx(2.0)
    assert workload.budget_part(both[0]) == pytest.approx(0.75)


# --- rates -----------------------------------------------------------------------------------------------------------


def test_rates_are_those_of_a_poisson_regression_with_robust_errors() -> None:
    found = exact("rates(falls, years, by=arm, per=100)")
    events = np.array([FALLS[place == ARM].sum() for place in (0, 1)])
    time = np.array([YEARS[place == ARM].sum() for place in (0, 1)])
    squares = [
        ((FALLS - own / observed * YEARS)[place == ARM] ** 2).sum()
        for place, (own, observed) in enumerate(zip(events, time, strict=True))
    ]
    for term, own, observed, square in zip("ab", events, time, squares, strict=True):
        assert value(found, term) == pytest.approx(100 * own / observed, rel=1e-9)
        # The score interval of a count with so many times the variance of a Poisson count: as if there were fewer events.
        part = square / own
        expected = 100 * part * np.array(confint_poisson(own / part, observed, method="score"))
        np.testing.assert_allclose(ends(found, term), expected, rtol=1e-7)
    design = np.column_stack([np.ones(len(ARM)), ARM])
    fit = sm.GLM(FALLS, design, family=sm.families.Poisson(), exposure=YEARS).fit(tol=1e-14, cov_type="HC0")
    assert value(found, "rate-ratio") == pytest.approx(np.exp(fit.params[1]), rel=1e-9)
    np.testing.assert_allclose(ends(found, "rate-ratio"), np.exp(fit.conf_int()[1]), rtol=1e-7)
    assert value(found, "rate-difference") == pytest.approx(100 * (events[1] / time[1] - events[0] / time[0]), rel=1e-9)
    alone = exact("rates(ill, years)")
    assert value(alone, "all") == pytest.approx(ILL.sum() / YEARS.sum(), rel=1e-9)
    weighted = exact("rates(falls, years, by=arm, standard=3 1)")
    assert value(weighted, "standardised") == pytest.approx(float(events / time @ [0.75, 0.25]), rel=1e-9)


@pytest.mark.parametrize(
    ("text", "time", "events", "rate"),
    [
        # Half at 5, half at 15, of which the bound of 12 leaves 12: their events are later.
        ("rates(ill, years)", [5.0, 15.0], [1.0, 1.0], 1 / 17),
        # Of three falls in 15 years 12/15 lie within the bound.
        ("rates(falls, years)", [5.0, 15.0], [1.0, 3.0], (1 + 3 * 12 / 15) / 17),
        ("rates(falls, years)", [5.0, np.inf], [1.0, 3.0], 1 / 17),
        ("rates(falls, years)", [5.0, 12.0], [1.0, 3.0], 4 / 17),
    ],
)
def test_events_beyond_the_time_s_bound_are_no_events(text: str, time: list[float], events: list[float], rate: float) -> None:
    rows = np.full((2, len(COLUMNS)), 1.0)
    rows[:, PLACES["years"]] = time
    rows[:, PLACES["ill" if "ill" in text else "falls"]] = events
    workload = workload_of(COLUMNS, text)
    found = exact_of(workload, rows)
    assert value(found, "all") == pytest.approx(rate, rel=1e-9)


# --- regressions and components --------------------------------------------------------------------------------------


def test_one_shot_logistic_regression_is_discriminant_analysis() -> None:
    found = exact("logistic-regression(ill ~ age + weight + arm)")
    there = ~np.isnan(AGE)
    rows = np.column_stack([AGE, WEIGHT, ARM])[there]
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, ILL[there])
    assert found.terms == ("(Intercept)", "age", "weight", "arm[b]", "auc")
    np.testing.assert_allclose(found.value[:4], [oracle.intercept_[0], *oracle.coef_[0]], rtol=1e-9)
    fit: Any = sm.OLS(ILL[there], sm.add_constant(rows)).fit()
    np.testing.assert_allclose(found.value[1:4], fit.params[1:] * len(rows) / fit.ssr, rtol=1e-9)
    # Near the maximum of the likelihood, within its standard errors, and scores rank records as it does.
    mle: Any = sm.Logit(ILL[there], sm.add_constant(rows)).fit(disp=0)
    assert (np.abs(found.value[1:4] - mle.params[1:]) < mle.bse[1:]).all()
    area = roc_auc_score(ILL[there], rows @ found.value[1:4])
    assert value(found, "auc") == pytest.approx(area, abs=0.03)
    assert found.of_population is None
    assert "maximum likelihood" in found.reason
    assert set(found.summary["signs"].values()) <= {"+", "-"}
    # Without noise there is nothing to draw to 0.
    ranking = np.array(list(found.summary["ranking"].values()))
    np.testing.assert_allclose(ranking / ranking[0], found.value[1:4] / found.value[1], rtol=1e-9)


@pytest.mark.parametrize("scale", [True, False])
def test_components_are_scikit_learns(scale: bool) -> None:
    found = exact(f"pca(age, weight, height, scale={str(scale).lower()})")
    rows = np.column_stack([AGE, WEIGHT, HEIGHT])[~np.isnan(AGE)]
    if scale:
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0, ddof=1)
    oracle = PCA().fit(rows)
    loadings = oracle.components_ * np.sign(oracle.components_[np.arange(3), np.abs(oracle.components_).argmax(axis=1)])[:, None]
    for place in range(3):
        assert value(found, f"PC{place + 1}") == pytest.approx(oracle.explained_variance_[place], rel=1e-9)
        own = [value(found, f"PC{place + 1}:{name}") for name in ("age", "weight", "height")]
        np.testing.assert_allclose(own, loadings[place], rtol=1e-7)
    np.testing.assert_allclose(found.summary["proportion"], oracle.explained_variance_ratio_, rtol=1e-9)
    with pytest.raises(InputError, match="needs 2 or more different columns"):
        exact("pca(age)")


# --- scores and ranks ------------------------------------------------------------------------------------------------


def test_roc_is_scikit_learns() -> None:
    found = exact("roc(risk, ill, bins=16)")
    assert value(found, "auc") == pytest.approx(roc_auc_score(ILL, RISK), rel=1e-9)
    for edge in (0.25, 0.5, 0.75):
        (right_no, false_yes), (false_no, right_yes) = confusion_matrix(ILL, edge <= RISK)
        expected = {
            "sensitivity": right_yes / (right_yes + false_no),
            "specificity": right_no / (right_no + false_yes),
            "ppv": right_yes / (right_yes + false_yes),
            "npv": right_no / (right_no + false_no),
        }
        for name, part in expected.items():
            assert value(found, f"{edge:g}:{name}") == pytest.approx(part, rel=1e-9)
    cases, controls = RISK[ILL == 1], RISK[ILL == 0]
    above = (cases[:, None] > controls) + 0.5 * (cases[:, None] == controls)
    delong = above.mean(axis=1).var(ddof=1) / len(cases) + above.mean(axis=0).var(ddof=1) / len(controls)
    assert found.population is not None
    assert found.population[0] == pytest.approx(delong**0.5, rel=1e-9)


def test_calibration_is_that_of_binned_predictions() -> None:
    found = exact("calibration(risk, ill, bins=16)")
    assert value(found, "brier") == pytest.approx(brier_score_loss(ILL, RISK), rel=1e-9)
    assert value(found, "in-the-large") == pytest.approx((ILL - RISK).mean(), rel=1e-9)
    fit: Any = sm.Logit(ILL, sm.add_constant(np.log(RISK / (1 - RISK)))).fit(disp=0, tol=1e-14)
    np.testing.assert_allclose([value(found, "intercept"), value(found, "slope")], fit.params, rtol=1e-8)
    # The interval is longer by what bins may have moved.
    assert found.resolution is not None
    below, above = found.resolution[found.terms.index("slope")]
    np.testing.assert_allclose(np.add(ends(found, "slope"), (below, -above)), fit.conf_int()[1], rtol=1e-6)
    own = ILL[(RISK >= 0.5) & (RISK < 0.5625)]
    assert value(found, "[0.5, 0.5625)") == pytest.approx(own.mean(), rel=1e-9)


def test_mann_whitney_is_scipys() -> None:
    found = exact("mann-whitney(falls, arm, edges=0 1 2 3 4)")
    # The last bin is [3, 4].
    binned = np.minimum(FALLS, 3)
    oracle = stats.mannwhitneyu(binned[ARM == 1], binned[ARM == 0], use_continuity=False, method="asymptotic")
    sizes = (ARM == 0).sum() * (ARM == 1).sum()
    assert value(found, "probability") == pytest.approx(oracle.statistic / sizes, rel=1e-9)
    assert found.tests["mann-whitney"].p_value == pytest.approx(oracle.pvalue, rel=1e-9)


# --- times to events -------------------------------------------------------------------------------------------------


def test_restricted_means_are_areas_under_powers_of_time_between_the_steps_of_lifelines() -> None:
    """Events only: on logarithmic axes the cumulative hazard is a line from each end of a bin to the next."""
    found = exact("restricted-mean(years, ill, by=arm, horizon=10, bins=10)", with_events())
    assert found.resolution is not None
    for place, arm in enumerate("ab"):
        own = place == ARM
        fit = KaplanMeierFitter().fit(np.ceil(YEARS[own]), np.ceil(YEARS[own]) <= 10)
        steps = fit.predict(np.arange(0, 11)).to_numpy()
        years, hazards = np.log(np.arange(1, 11)), np.log(-np.log(steps[1:]))

        def survival(time: float, years: Array = years, hazards: Array = hazards) -> float:
            # As before the first year, so in the second one.
            start = hazards[0] + (math.log(time) - years[0]) * (hazards[1] - hazards[0]) / (years[1] - years[0])
            return math.exp(-math.exp(start if time < 1 else np.interp(math.log(time), years, hazards)))

        area = sum(quad(survival, year, year + 1, epsabs=1e-11)[0] for year in range(10))
        assert value(found, arm) == pytest.approx(area, rel=1e-8)
        # Between all events at the ends of their bins and at the beginnings.
        most = restricted_mean_survival_time(fit, t=10)
        below, above = found.resolution[found.terms.index(arm)]
        assert value(found, arm) + above == pytest.approx(most, rel=1e-9)
        assert value(found, arm) - below == pytest.approx(most - (1 - steps[-1]), rel=1e-9)
    assert value(found, "difference") == pytest.approx(value(found, "b") - value(found, "a"), rel=1e-9)


def with_events() -> Array:
    """Everybody has the event, but those who are observed for longer than ten years."""
    records = RECORDS.copy()
    records[:, PLACES["ill"]] = YEARS <= 10
    return records


def test_hazard_ratios_are_those_of_a_regression_of_grouped_times() -> None:
    """Of who is at risk in each year, half of a year for who is censored in it: Prentice and Gloeckler's."""
    found = exact("hazard-ratio(years, ill, by=arm)")
    outcomes, design = [], []
    for arm in (0, 1):
        for year in range(12):
            own = (arm == ARM) & (year < YEARS) & (year + 1 > YEARS)
            events = float(ILL[own].sum())
            outcomes.append([events, ((arm == ARM) & (year < YEARS)).sum() - 0.5 * (ILL[own] == 0).sum() - events])
            design.append([*(float(year == other) for other in range(12)), float(arm)])
    family = sm.families.Binomial(link=sm.families.links.CLogLog())
    fit = sm.GLM(np.array(outcomes), np.array(design), family=family).fit(method="newton", tol=1e-14)
    assert value(found, "b/a") == pytest.approx(np.exp(fit.params[-1]), rel=1e-9)
    # Beside what the bins leave open, the same on both sides of the logarithm.
    assert found.resolution is not None
    below, above = found.resolution[0]
    bins = np.array([value(found, "b/a") - below, value(found, "b/a") + above]) / value(found, "b/a")
    assert bins[0] * bins[1] == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(ends(found, "b/a"), np.exp(fit.conf_int()[-1]) * bins, rtol=1e-7)
    with pytest.raises(InputError, match="compares arms"):
        exact("hazard-ratio(years, ill)")


def test_cumulative_incidence_with_ties_is_that_of_its_definition() -> None:
    """Censored after ten years only, so that nobody is at risk for half of a bin; lifelines moves ties apart at random."""
    records = RECORDS.copy()
    cause = np.where(YEARS > 10, 0, np.where(CAUSE == 0, 1, CAUSE))
    records[:, PLACES["cause"]] = cause
    found = exact("cumulative-incidence(years, cause, by=arm, horizon=10, bins=10)", records)
    for place, arm in enumerate("ab"):
        own = place == ARM
        for event, level in (("heart", 1), ("other", 2)):
            expected, free, at_risk = [], 1.0, float(own.sum())
            total = 0.0
            for year in range(10):
                here = own & (year < YEARS) & (year + 1 > YEARS)
                total += free * (here & (cause == level)).sum() / at_risk
                free *= 1 - (here & (cause > 0)).sum() / at_risk
                at_risk -= here.sum()
                expected.append(total)
            values = [value(found, f"{arm}:{event} {year}") for year in range(1, 11)]
            np.testing.assert_allclose(values, expected, rtol=1e-9)
    assert list(found.to_json()["estimate"]) == ["a:heart", "a:other", "b:heart", "b:other"]


def test_cumulative_incidence_without_ties_is_lifelines() -> None:
    """One event in each of many bins: no ties for lifelines to move."""
    columns = Columns([Column(name="t", low=0, high=40), Column(name="c", levels=("none", "x", "y"))])
    rng = np.random.default_rng(3)
    times = rng.permutation(40) + 0.5
    cause = np.where(times > 30, 0.0, rng.integers(1, 3, 40))
    found = exact("cumulative-incidence(t, c, horizon=30, bins=30)", np.column_stack([times, cause]), columns)
    for level, event in ((1, "x"), (2, "y")):
        fit = AalenJohansenFitter().fit(times, cause, event_of_interest=level)
        expected = fit.cumulative_density_.iloc[:, 0].reindex(np.arange(1, 31), method="ffill").to_numpy()
        values = np.array([value(found, f"{event} {year}") for year in range(1, 31)])
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-15)


# --- sites -----------------------------------------------------------------------------------------------------------


def test_sites_are_combined_as_statsmodels_does() -> None:
    found = exact("site-effects(weight, by=site)")
    groups = [WEIGHT[place == SITE] for place in range(4)]
    means, variances = [own.mean() for own in groups], [own.var(ddof=1) / len(own) for own in groups]
    oracle = combine_effects(np.array(means), np.array(variances), method_re="iterated")
    np.testing.assert_allclose(found.value[:4], means, rtol=1e-9)
    assert value(found, "fixed") == pytest.approx(oracle.mean_effect_fe, rel=1e-9)
    # Sites do not differ more than chance: the mean of fixed effects, and no less than its variance.
    assert oracle.tau2 == 0
    assert value(found, "random") == pytest.approx(oracle.mean_effect_fe, rel=1e-9)
    error = oracle.sd_eff_w_fe * stats.t.ppf(0.975, 3)
    np.testing.assert_allclose(ends(found, "random"), [oracle.mean_effect_fe - error, oracle.mean_effect_fe + error], rtol=1e-7)
    assert found.tests["Q"].statistic == pytest.approx(oracle.q, rel=1e-9)
    assert found.summary["tau_squared"] == 0
    assert found.summary["i_squared"] == pytest.approx(max(oracle.i2, 0.0), abs=1e-9)
    shifted = RECORDS.copy()
    shifted[:, PLACES["weight"]] += 6 * SITE
    apart = exact("site-effects(weight, by=site)", shifted)
    groups = [shifted[place == SITE, PLACES["weight"]] for place in range(4)]
    means, variances = [own.mean() for own in groups], [own.var(ddof=1) / len(own) for own in groups]
    oracle = combine_effects(np.array(means), np.array(variances), method_re="iterated", use_t=True, atol=1e-12, maxiter=1000)
    assert value(apart, "random") == pytest.approx(oracle.mean_effect_re, rel=1e-7)
    assert apart.summary["tau_squared"] == pytest.approx(oracle.tau2, rel=1e-6)
    assert apart.summary["i_squared"] == pytest.approx(oracle.i2, rel=1e-9)
    # Knapp and Hartung's.
    error = oracle.sd_eff_w_re_hksj * stats.t.ppf(0.975, 3)
    np.testing.assert_allclose(ends(apart, "random"), [oracle.mean_effect_re - error, oracle.mean_effect_re + error], rtol=1e-6)
    codes = [(flag.code, flag.terms) for flag in apart.flags]
    assert ("heterogeneous", ("fixed",)) in codes
    assert ("few-sites", ("random",)) in codes
    # The mean and the difference of groups over sites like these, from the same variances.
    clustered = exact("mean(weight, cluster=site)", shifted)
    assert clustered.value[0] == pytest.approx(value(apart, "random"), rel=1e-9)
    np.testing.assert_allclose(ends(clustered, ""), ends(apart, "random"), rtol=1e-7)
    within = [[own[ARM[place == SITE] == arm] for arm in (0, 1)] for place, own in enumerate(groups)]
    differences = np.array([two.mean() - one.mean() for one, two in within])
    variances = [sum(own.var(ddof=1) / len(own) for own in pair) for pair in within]
    oracle = combine_effects(differences, np.array(variances), method_re="iterated", use_t=True, atol=1e-12, maxiter=1000)
    assert value(exact("group-means(weight, by=arm, cluster=site)", shifted), "difference") == pytest.approx(
        oracle.mean_effect_re
    )

    assert "sites-seen" in [flag.code for flag in apart.flags]
