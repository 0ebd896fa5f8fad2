"""Missing cells are left out by every kind in one way: answers are those of the complete records, and say how many these are."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import statsmodels.api as statsmodels
from lifelines.datasets import load_lung
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Answer, Column, Columns, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.kinds.synthetic_table import SyntheticTable
from quietmean.statistics.kinds.table_1 import Table1
from support.every_kind import COLUMNS, all_statistics
from support.workloads import workload_of

Array = NDArray[np.float64]
ROWS, PARTIES = 800, 8
# Nothing of an answer is noise.
SILENT = 1e-12
STATISTICS = {statistic.text: statistic for statistic in all_statistics()}


def full() -> Array:
    rng = np.random.default_rng(12)
    sex, smoker, ended = rng.integers(2, size=ROWS), rng.random(ROWS) < 0.45, rng.choice(3, ROWS, p=[0.5, 0.2, 0.3])
    age = np.clip(45 + 5 * sex + 12 * rng.standard_normal(ROWS), 1, 99)
    weight = np.clip(60 + 0.3 * age + 8 * sex + 8 * rng.standard_normal(ROWS), 41, 139)
    chance = np.clip(0.45 + 0.1 * smoker + 0.2 * rng.standard_normal(ROWS), 0.01, 0.99)
    return np.column_stack([age, weight, chance, sex, ended, smoker]).astype(np.float64)


def holed(way: str) -> Array:
    """A part of all cells at random, or a whole party without any value of some columns."""
    records, rng = full(), np.random.default_rng(5)
    if way == "party":
        records[::PARTIES, :4] = np.nan
    else:
        records[rng.random(records.shape) < float(way)] = np.nan
    return records


def columns_of(statistic: Statistic) -> list[int]:
    """The places of the columns that a statistic needs, by what changes its vector."""
    workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD)
    records = full()[:20]
    before = workload.of_records(records)
    needed = []
    for place in range(len(COLUMNS)):
        moved = records.copy()
        moved[:, place] = np.nan
        if not np.array_equal(workload.of_records(moved), before):
            needed.append(place)
    return needed


def answered(statistic: Statistic, records: Array, noise: float = SILENT) -> Answer:
    workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD)
    (answer,) = workload.decode(workload.of_records(records).mean(axis=0), noise, float(len(records)))
    return answer


@pytest.mark.sampled(88)
@pytest.mark.parametrize("way", ["0", "0.15", "0.4", "party"])
@pytest.mark.parametrize("text", [text for text, one in STATISTICS.items() if not isinstance(one, Table1 | SyntheticTable)])
def test_an_answer_is_that_of_the_complete_records(text: str, way: str) -> None:
    statistic = STATISTICS[text]
    records = holed(way)
    complete = records[~np.isnan(records[:, columns_of(statistic)]).any(axis=1)]
    found, expected = answered(statistic, records).estimates, answered(statistic, complete).estimates
    assert found.terms == expected.terms
    # What is said of those that are missing is another thing.
    about = [place for place, term in enumerate(found.terms) if "missing" not in term]
    assert len(about) > 0
    np.testing.assert_allclose(found.value[about], expected.value[about], rtol=1e-6, atol=1e-6)
    for name, test in expected.tests.items():
        np.testing.assert_allclose(found.tests[name].statistic, test.statistic, rtol=1e-5, atol=1e-6)
    assert found.completeness is not None
    assert found.completeness.present == pytest.approx(len(complete), abs=1e-3)
    assert found.completeness.missing == pytest.approx(len(records) - len(complete), abs=1e-3)
    assert found.n is not None
    by = getattr(statistic, "by", None)
    if by is None:
        assert found.n[:, 0] == pytest.approx(len(complete), abs=1e-3)
        return
    column = COLUMNS[by]
    levels = complete[:, COLUMNS.names.index(by)]
    sizes = {level: float((levels == place).sum()) for place, level in enumerate(column.categories)}
    for place, term in enumerate(found.terms):
        name = found.groups[place][0] if found.groups else term
        assert found.n[place, 0] == pytest.approx(sizes.get(name, len(complete)), abs=1e-3), term


@pytest.mark.parametrize("way", ["0", "0.15", "0.4", "party"])
@pytest.mark.parametrize("by", [None, "sex"])
def test_table_1_is_of_the_present_values_of_each_column(way: str, by: str | None) -> None:
    records = holed(way)
    found = answered(Table1(by=by), records).estimates
    assert found.n is not None
    sex = records[:, COLUMNS.names.index("sex")]
    value, n = dict(zip(found.terms, found.value, strict=True)), dict(zip(found.terms, found.n[:, 0], strict=True))
    for place, group in enumerate(["all"] if by is None else ["f", "m"]):
        own = records if by is None else records[sex == place]
        for column in COLUMNS:
            if column.name == by:
                continue
            cells = own[:, COLUMNS.names.index(column.name)]
            present = cells[~np.isnan(cells)]
            part = 1 - len(present) / len(cells) if len(cells) else 0.0
            assert value[f"{group} {column.name} missing"] == pytest.approx(part, abs=1e-6) or part < 1e-6
            if column.numeric:
                assert value[f"{group} {column.name} mean"] == pytest.approx(present.mean(), rel=1e-6)
                assert value[f"{group} {column.name} sd"] == pytest.approx(present.std(ddof=1), rel=1e-5)
                assert n[f"{group} {column.name} mean"] == pytest.approx(len(present), abs=1e-3)
            else:
                level = column.categories[-1]
                share = float((present == len(column.categories) - 1).mean())
                assert value[f"{group} {column.name}:{level}"] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("text", STATISTICS)
def test_nothing_read_at_all_is_null_with_a_reason(text: str) -> None:
    """A column in another unit, or of another name: no value in any cell. Nothing is made up."""
    statistic = STATISTICS[text]
    answer = answered(statistic, np.full((ROWS, len(COLUMNS)), np.nan), 1e-4)
    found = answer.estimates
    # What counts, or adds up, says that there is none.
    if statistic.name not in ("sum", "count", "histogram", "crosstab", "table-1", "synthetic-table"):
        known = [place for place, term in enumerate(found.terms) if "missing" not in term]
        assert np.isnan(found.value[known]).all()
        assert [flag.code for flag in found.flags if flag.code not in ("sites-seen", "filled-in")] or found.reason
    if found.completeness is not None:
        assert abs(found.completeness.present) < 10 * found.completeness.present_error + 1e-9
        assert found.completeness.missing > ROWS - 10 * found.completeness.missing_error - 1e-9
    for flag in found.flags:
        assert set(flag.terms) <= set(found.terms)
    json.dumps(answer.to_json(), allow_nan=True)


def test_what_noise_adds_to_the_number_present_is_what_is_stated() -> None:
    """400 draws: their spread is within 15 % of what is stated, four standard errors of a spread from so many."""
    for count, unit_rows in ((CountVisibility.PUBLIC, ROWS), (CountVisibility.PRIVATE, ROWS)):
        workload = Workload(
            COLUMNS, tuple(STATISTICS[text] for text in ("mean(age)",)), PrivacyUnit.RECORD, None, count, 2 * ROWS
        )
        weight = float(unit_rows if count == CountVisibility.PUBLIC else 2 * ROWS)
        mean = workload.of_records(holed("0.4")).sum(axis=0) / weight
        rng = np.random.default_rng(1)
        found = []
        for _ in range(400):
            (answer,) = workload.decode(mean + 1e-3 * rng.standard_normal(len(mean)), 1e-3, weight)
            complete = answer.estimates.completeness
            assert complete is not None
            found.append((complete.present, complete.missing, complete.present_error, complete.missing_error))
        drawn = np.array(found)
        assert drawn[:, 0].std() == pytest.approx(drawn[0, 2], rel=0.15)
        if count == CountVisibility.PUBLIC:
            assert drawn[:, 1].std() == pytest.approx(drawn[0, 3], rel=0.15)


def test_forty_percent_missing_at_default_options_is_within_the_noise_of_the_complete_records() -> None:
    """Mean, slope, correlation, odds ratio, survival: within 4.5 standard errors, which a right answer leaves in 1 of 150 000."""
    columns = Columns(
        [
            Column(name="x", low=0, high=100),
            Column(name="y", low=0, high=100),
            Column(name="t", low=0, high=10),
            Column(name="g", levels=("a", "b")),
            Column(name="e", boolean=True),
        ]
    )
    rng = np.random.default_rng(8)
    x = np.clip(75 + 8 * rng.standard_normal(4000), 0, 100)
    y = np.clip(0.5 * x + 8 * rng.standard_normal(4000), 0, 100)
    g = rng.random(4000) < 0.5
    records = np.column_stack([x, y, np.minimum(rng.exponential(8, 4000), 10), g, rng.random(4000) < 0.3 + 0.2 * g])
    records[rng.random(records.shape) < 0.4] = np.nan
    asked = {
        "mean(x)": [0],
        "linear-regression(y ~ x)": [0, 1],
        "correlation(x, y)": [0, 1],
        "crosstab(g, e)": [3, 4],
        "survival(t, e, bins=5)": [2, 4],
    }
    for text, needed in asked.items():
        workload = workload_of(columns, text)
        complete = records[~np.isnan(records[:, needed]).any(axis=1)]
        (exact,) = workload.decode(workload.of_records(complete).mean(axis=0), SILENT, float(len(complete)))
        mean, noise = workload.of_records(records).mean(axis=0), 2e-4 * workload.sensitivity
        (answer,) = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, 4000.0)
        found = answer.estimates
        for place, term in enumerate(found.terms):
            if "missing" in term or math.isnan(exact.estimates.value[place]):
                continue
            assert abs(found.value[place] - exact.estimates.value[place]) <= 4.5 * found.standard_error[place], (text, term)
        assert found.completeness is not None
        assert abs(found.completeness.present - len(complete)) < 4.5 * found.completeness.present_error
        assert not [flag for flag in found.flags if flag.code == "filled-in"]


def test_the_missing_cells_of_the_lung_study() -> None:
    """Real records with missing cells, bounds declared and nothing else: answers and numbers as of pandas and statsmodels."""
    lung = load_lung().rename(columns={"wt.loss": "loss", "meal.cal": "meal", "ph.karno": "karno"})
    asked = {"loss": (-30.0, 70.0), "meal": (0.0, 3000.0), "karno": (0.0, 100.0)}
    columns = Columns([Column(name=name, low=low, high=high) for name, (low, high) in asked.items()])
    records = lung[list(asked)].to_numpy(dtype=np.float64)
    assert np.isnan(records).sum() > 60
    pair = lung[["loss", "meal"]].dropna()
    fitted = statsmodels.OLS(pair["loss"], statsmodels.add_constant(pair["meal"])).fit()
    expected = {
        "mean(loss)": ("", lung["loss"].mean(), lung["loss"].count()),
        "variance(karno)": ("variance", lung["karno"].var(), lung["karno"].count()),
        "correlation(loss, meal)": ("loss:meal", pair.corr().iloc[0, 1], len(pair)),
        "linear-regression(loss ~ meal)": ("meal", fitted.params["meal"], len(pair)),
    }
    for text, (term, value, count) in expected.items():
        workload = workload_of(columns, text)
        (answer,) = workload.decode(workload.of_records(records).mean(axis=0), SILENT, float(len(records)))
        place = answer.estimates.terms.index(term)
        assert answer.estimates.value[place] == pytest.approx(value, rel=1e-6), text
        assert answer.estimates.n is not None
        assert answer.estimates.n[place, 0] == pytest.approx(count, abs=1e-3), text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", STATISTICS)
def test_no_interval_is_one_point_where_there_is_noise(text: str) -> None:
    """However far noise moves an estimate out of its range: one point would look like certainty."""
    workload = Workload(COLUMNS, (STATISTICS[text],), PrivacyUnit.RECORD)
    records = holed("0.15")
    records[:, 4], records[:, 5] = 0.0, 0.0
    mean, rng = workload.of_records(records).mean(axis=0), np.random.default_rng(6)
    for noise in (1e-4, 3e-3, 3e-2):
        for _ in range(25):
            (answer,) = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, float(ROWS))
            found = answer.estimates
            noisy = np.isfinite(found.standard_error) & (found.standard_error > 0) & np.isfinite(found.value)
            for interval in (found.of_noise, found.of_population):
                if interval is not None:
                    points = noisy & (interval[:, 0] >= interval[:, 1])
                    assert not points.any(), [term for term, point in zip(found.terms, points, strict=True) if point]


OF_ARMS = (
    "survival(age, smoker, by=sex, bins=4)",
    "cumulative-incidence(age, ended, by=sex, bins=4)",
    "restricted-mean(age, smoker, by=sex, bins=4)",
    "rates(smoker, age, by=sex)",
    "group-means(age, by=sex)",
)


@pytest.mark.parametrize("text", OF_ARMS)
def test_terms_of_a_group_are_of_so_many_as_it_has(text: str) -> None:
    """Curves, their quantiles and causes, means and rates: who is not in the group of a term is not counted."""
    found = answered(parse_statistic(read_text(text)), full()).estimates
    assert found.n is not None
    for place, level in enumerate(("f", "m")):
        size = int((full()[:, COLUMNS.names.index("sex")] == place).sum())
        own = [at for at, term in enumerate(found.terms) if level in re.split(r"[ :]", term)]
        assert own
        assert found.n[own, 0] == pytest.approx(size, rel=1e-6)
