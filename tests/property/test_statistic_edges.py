"""Records that leave nothing to estimate, and noise that hides everything: no error, no number made up, a reason in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from support.every_kind import statistics_of, with_every_kind
from support.outcomes import EVERY_KIND

Array = NDArray[np.float64]

COLUMNS = Columns(
    [
        Column(name="x", low=0, high=10, missing="indicator"),
        Column(name="y", low=0, high=10),
        Column(name="arm", levels=("a", "b")),
        Column(name="cause", levels=("none", "p", "q")),
        Column(name="yes", boolean=True),
        Column(name="risk", low=0, high=1),
        Column(name="other", boolean=True),
    ]
)
KINDS = with_every_kind(
    [
        *EVERY_KIND,
        "correlation(x, y)",
        "crosstab(arm, cause)",
        "group-means(x, by=arm, cluster=cause)",
        "kappa(arm, yes)",
        "mann-whitney(x, by=arm, bins=4)",
        "mantel-haenszel(arm, yes, by=cause)",
        "mcnemar(yes, arm)",
        "mean(x, cluster=cause)",
        "meta-analysis(crosstab(arm, yes), by=cause)",
        "meta-analysis(mean(x), by=cause)",
        "pca(x, y, scale=false)",
        "proportion(yes, cluster=cause)",
        "rates(yes, x, by=arm, cluster=cause)",
        "rates(yes, x, by=arm, standard=1 1)",
        "survival(x, yes, by=arm, strata=cause)",
        "survival(x, yes, by=arm, entry=y, start=2)",
        "cumulative-incidence(x, cause, entry=y, bins=4)",
        "hazard-ratio(x, yes, by=arm, entry=y)",
        "mean(x, weight=y)",
        "sum(x, weight=y, strata=arm)",
        "count(x, weight=y, psu=cause)",
        "crosstab(arm, cause, weight=y)",
        "proportion(cause, weight=y, strata=arm, where=x > 3)",
        "table-1(x, yes, cause)",
    ],
    COLUMNS,
)


def ordinary(count: int = 300) -> Array:
    rng = np.random.default_rng(8)
    numbers = rng.uniform(0, 10, (count, 2))
    numbers[::8, 0] = np.nan
    levels = [rng.integers(0, one, count) for one in (2, 3, 2)]
    return np.column_stack([numbers, *levels, rng.random(count), rng.integers(0, 2, count)]).astype(np.float64)


def changed(**columns: float) -> Callable[[], Array]:
    def made() -> Array:
        records = ordinary()
        for name, value in columns.items():
            records[:, COLUMNS.names.index(name)] = value
        return records

    return made


def same_twice() -> Array:
    records = ordinary()
    records[:, 1] = records[:, 0] = np.nan_to_num(records[:, 0], nan=3.0)
    return records


def told_by_x() -> Array:
    records = ordinary()
    above = np.nan_to_num(records[:, 0], nan=3.0) > 5
    records[:, 2:5] = np.column_stack([above, 2.0 * above, above])
    return records


RECORDS: dict[str, Callable[[], Array]] = {
    "ordinary": ordinary,
    "nothing present": lambda: np.full((300, len(COLUMNS)), np.nan),
    "no value of x": changed(x=np.nan),
    "no arm": changed(arm=np.nan),
    "one arm": changed(arm=1),
    "no events": changed(yes=0, cause=0),
    "events only": changed(yes=1, cause=1),
    "always the same": changed(x=5, y=5, risk=0.5),
    "at a bound": changed(x=0, y=0, risk=0),
    "at the other bound": changed(x=10, y=10, risk=1),
    "covariates that are the same": same_twice,
    "one record": lambda: ordinary(1),
    "two records": lambda: ordinary(2),
    "a number tells all levels": told_by_x,
    "three records": lambda: ordinary(3),
}


@cache
def study(text: str, unit: PrivacyUnit) -> Workload:
    return Workload(COLUMNS, (parse_statistic(read_text(text)),), unit)


def decoded(text: str, records: Array, noise: float, seed: int, unit: PrivacyUnit = PrivacyUnit.RECORD) -> Estimates:
    workload = study(text, unit)
    encoded = workload.encode(records)
    error = noise * workload.sensitivity / (1.0 if unit == PrivacyUnit.PARTY else len(records))
    mean = encoded.vector / encoded.weight + error * np.random.default_rng(seed).standard_normal(workload.dimension)
    return workload.decode(mean, error, encoded.weight)[0].estimates


def check(found: Estimates) -> None:
    """Every estimate is a number with an error and two intervals, or missing with a reason; everything can be written."""
    unknown = np.isnan(found.value)
    told = found.to_json()
    json.dumps(told, allow_nan=True)
    assert not unknown.any() or found.flags or found.reason, f"{found.terms}: {found.value} without a word"
    assert np.isfinite(found.value[~unknown]).all()
    assert (found.standard_error[~unknown] >= 0).all()
    intervals = [found.of_noise] if found.of_population is None else [found.of_noise, found.of_population]
    for ends in intervals:
        there = ~np.isnan(ends).any(axis=1) & ~unknown
        assert (ends[there, 0] <= ends[there, 1]).all()
        slack = 1e-9 * (1 + np.where(np.isfinite(found.high - found.low), found.high - found.low, 0.0))
        assert (ends[there, 0] >= (found.low - slack)[there]).all()
        assert (ends[there, 1] <= (found.high + slack)[there]).all()
    for test in found.tests.values():
        assert np.isnan(test.p_value) or 0 <= test.p_value <= 1
    assert all(" " in flag.message for flag in found.flags)


@pytest.mark.sampled(29)
@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("text", KINDS)
def test_nothing_is_made_up(text: str, name: str) -> None:
    records = RECORDS[name]()
    # In records, at no epsilon, about 10, 1 and 0.01.
    for place, noise in enumerate((0.0, 0.5, 4.0, 400.0)):
        for seed in range(3 if noise else 1):
            check(decoded(text, records, noise, 10 * place + seed))


@pytest.mark.sampled(29)
@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("text", KINDS)
def test_a_grid_makes_nothing_up(text: str, name: str) -> None:
    """What a rehearsal shows beside its result: records that are rounded to a grid, of which no more than that is noise."""
    records = RECORDS[name]()
    for step in (2.0**-12, 2.0**-20, 2.0**-30, 2.0**-40):
        workload = study(text, PrivacyUnit.RECORD)
        encoded = workload.encode(records, step=step)
        check(workload.decode(encoded.vector / encoded.weight, step / 2, encoded.weight, step=step)[0].estimates)


# They add up records.
OF_RECORDS = (
    "sum",
    "count",
    "histogram",
    "crosstab",
    "table-1",
    "synthetic-table",
    "rates",
    "site-effects",
    "mcnemar",
    "kappa",
    "trend",
    "mantel-haenszel",
    "spearman",
    "kruskal-wallis",
    "meta-analysis",
    "paired-difference",
    "bland-altman",
    "icc",
)
# Each of a party's records counts by itself.
APART = ("cluster=", "weight=")


@pytest.mark.parametrize("text", KINDS)
def test_parties_count_once(text: str) -> None:
    kind = type(parse_statistic(read_text(text)))
    if text.startswith(OF_RECORDS) or any(field in text for field in APART) or not statistics_of(kind, PrivacyUnit.PARTY):
        with pytest.raises(InputError, match="the unit is party"):
            decoded(text, ordinary(), 0.01, 1, PrivacyUnit.PARTY)
        return
    found = decoded(text, ordinary(), 0.01, 1, PrivacyUnit.PARTY)
    check(found)
    if not text.startswith("mean("):
        assert found.of_population is None
        assert found.reason


@pytest.mark.sampled(13)
@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        ("rates(yes, x, by=arm)", "no value of x", "no-person-time"),
        ("rates(yes, x, by=arm)", "no events", "few"),
        ("rates(yes, x, by=arm)", "one arm", "no-person-time"),
        ("logistic-regression(yes ~ x)", "no events", "not-identified"),
        ("logistic-regression(yes ~ x)", "always the same", "not-identified"),
        ("logistic-regression(yes ~ x + y)", "covariates that are the same", "not-identified"),
        ("logistic-regression(yes ~ x)", "no value of x", "not-identified"),
        ("pca(x, y)", "always the same", "no-components"),
        ("pca(x, y)", "no value of x", "no-components"),
        ("roc(risk, yes)", "no events", "one-class"),
        ("roc(risk, yes)", "events only", "one-class"),
        ("calibration(risk, yes)", "always the same", "no-recalibration"),
        ("calibration(risk, yes)", "nothing present", "nothing-present"),
        ("mann-whitney(x, by=arm)", "one arm", "nothing-present"),
        ("survival(x, yes, by=arm, strata=cause)", "one arm", "few-at-risk"),
        ("hazard-ratio(x, yes, by=arm)", "no events", "few-events"),
        ("hazard-ratio(x, yes, by=arm)", "one arm", "few-events"),
        ("restricted-mean(x, yes, by=arm)", "one arm", "curve-cut"),
        ("restricted-mean(x, yes)", "nothing present", "curve-cut"),
        ("cumulative-incidence(x, cause)", "nothing present", "curve-cut"),
        ("site-effects(x, by=arm)", "one arm", "one-site"),
        ("mean(x, cluster=arm)", "one arm", "one-site"),
        ("group-means(x, by=cause, cluster=arm)", "one arm", "one-site"),
        ("proportion(yes, cluster=arm)", "one arm", "one-site"),
        ("rates(yes, x, cluster=arm)", "no value of x", "one-site"),
        ("rates(yes, x, by=arm, cluster=cause)", "no arm", "group-left-out"),
        ("site-effects(x, by=arm)", "no value of x", "group-left-out"),
        ("spearman(x, y)", "always the same", "no-correlation"),
        ("kruskal-wallis(x, by=arm)", "one arm", "nothing-present"),
        ("meta-analysis(mean(x), by=arm)", "one arm", "one-site"),
        ("paired-difference(x, y)", "no value of x", "nothing-present"),
        ("bland-altman(x, y)", "nothing present", "nothing-present"),
        ("bland-altman(x, y)", "covariates that are the same", "no-variance"),
        ("icc(x, y)", "always the same", "no-variance"),
        ("mcnemar(yes, arm)", "nothing present", "nothing-present"),
        ("mcnemar(yes, arm)", "no events", "small-cell"),
        ("kappa(yes, arm)", "no arm", "nothing-present"),
        ("trend(yes, by=arm)", "one arm", "no-trend"),
        ("trend(yes, by=arm)", "no events", "no-trend"),
        ("mantel-haenszel(arm, yes, by=cause)", "one arm", "nothing-present"),
        ("mantel-haenszel(arm, yes, by=cause)", "no events", "nothing-present"),
        ("table-1(x, by=arm)", "one arm", "nothing-present"),
        ("table-1(x, by=arm)", "no value of x", "nothing-present"),
        ("table-1(x, by=arm)", "always the same", "no-variance"),
        ("table-1(cause, by=arm)", "no arm", "nothing-present"),
    ],
)
def test_a_flag_says_what_is_missing(text: str, name: str, code: str) -> None:
    # The noise of epsilon 1, in records.
    for seed in range(3):
        codes = [flag.code for flag in decoded(text, RECORDS[name](), 4.0, seed).flags]
        assert code in codes, codes


def test_nothing_is_known_of_a_rate_where_next_to_nothing_tells_how_events_vary() -> None:
    """Whose degrees of freedom are so few that the quantile's square is beyond float64."""
    workload, open_ends = study("rates(yes, x)", PrivacyUnit.RECORD), 0
    encoded = workload.encode(RECORDS["no events"]())
    for seed in range(60):
        draw = np.random.default_rng(seed)
        noise = 10.0 ** draw.uniform(-5, -3)
        away = draw.normal(0, noise, encoded.vector.shape) * 10.0 ** draw.uniform(-6, 0)
        found = workload.decode(encoded.vector / encoded.weight + away, noise, encoded.weight)[0].estimates
        check(found)
        assert found.of_population is not None
        open_ends += found.of_population[0].tolist() == [0.0, np.inf]
    assert open_ends > 0


@pytest.mark.sampled(80)
@pytest.mark.parametrize("text", KINDS)
@pytest.mark.parametrize("noise", [1e-6, 0.01, 0.3])
def test_headlines_and_flags_name_terms_of_the_answer(text: str, noise: float) -> None:
    for name in ("ordinary", "one arm", "no events", "one record"):
        found = decoded(text, RECORDS[name](), noise, 1)
        assert set(found.headline) <= set(found.terms)
        for flag in found.flags:
            assert set(flag.terms) <= {*found.terms}, flag


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("text", "term"), [("correlation(x, y)", "x:y"), ("pca(x, y)", "PC1"), ("group-means(y, by=arm)", "smd")]
)
def test_what_is_only_just_above_its_threshold_is_flagged_and_hidden(text: str, term: str) -> None:
    """With rising noise: shown without a word, not shown and flagged from 1 to 1.5 times the threshold, and not shown."""
    seen = []
    for noise in np.geomspace(1e-4, 0.1, 300):
        workload = study(text, PrivacyUnit.RECORD)
        encoded = workload.encode(ordinary())
        (answer,) = workload.decode(encoded.vector / encoded.weight, float(noise), encoded.weight)
        found = answer.estimates
        flagged = any(flag.code == "near-threshold" and term in flag.terms for flag in found.flags)
        at = found.terms.index(term)
        shown = bool(np.isfinite(found.value[at]))
        assert not (shown and flagged)
        # Nothing of it is left beside the value, either.
        assert bool(np.isfinite(found.standard_error[at])) == shown
        if not shown:
            assert found.of_noise[at].tolist() == [found.low[at], found.high[at]]
        seen.append("near" if flagged else "shown" if shown else "hidden")
    assert [one for place, one in enumerate(seen) if place == 0 or seen[place - 1] != one] == ["shown", "near", "hidden"]
