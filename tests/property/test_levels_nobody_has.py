"""Without noise, nobody is nobody: a level that no record has changes no test, and nothing is compared with it.

With noise thresholds are measured in it. In a study without noise they must not be rounding, for every kind.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import UNITS_OF_VECTORS, PrivacyUnit
from quietmean.statistics import Column, Columns, Estimates, Statistic, Workload, parse_statistic, read_text
from support.every_kind import COLUMNS, NAMES, all_statistics, random_rows

Array = NDArray[np.float64]
SEED, RECORDS = 20261130, 500
MORE = (
    "crosstab(sex, smoker)",
    "restricted-mean(age, smoker, by=sex, horizon=60, bins=4)",
    "hazard-ratio(age, smoker, by=sex, bins=20)",
    "kruskal-wallis(weight, by=ended, bins=8)",
    "survival(age, smoker, by=ended, bins=20)",
    "survival(age, smoker, by=sex, bins=20)",
    "rates(smoker, age, by=sex)",
    "trend(smoker, by=sex)",
    "table-1(age, smoker, by=ended)",
)
STATISTICS = {one.text: one for one in (*all_statistics(), *(parse_statistic(read_text(text)) for text in MORE))}
# What compares two groups, or those with an event and those without, by the fields that name these: of one of them alone nothing
# is known. No terms stand for all.
COMPARING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "crosstab": (("row", "column"), ("odds-ratio", "risk-ratio")),
    "group-means": (("by",), ("difference", "smd", "cohen-d")),
    "hazard-ratio": (("by", "event"), ()),
    "logistic-regression": (("outcome",), ()),
    "mann-whitney": (("by",), ()),
    "mantel-haenszel": (("row", "column"), ()),
    "mcnemar": (("before", "after"), ("odds-ratio",)),
    "rates": (("by",), ("rate-ratio", "rate-difference")),
    "restricted-mean": (("by",), ("difference",)),
    "roc": (("outcome",), ("auc",)),
    "trend": (("outcome", "by"), ()),
}


def exact(statistic: Statistic, columns: Columns, rows: Array, unit: PrivacyUnit = PrivacyUnit.RECORD) -> Estimates:
    workload = Workload(columns, (statistic,), unit)
    encoded = workload.encode(rows)
    with np.errstate(all="ignore"):
        return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].estimates


def people() -> Array:
    rows = random_rows(np.random.default_rng(SEED), RECORDS, 0.05)
    # Levels of three: only the first two are there.
    ended = NAMES.index("ended")
    rows[:, ended] = np.where(rows[:, ended] == 2, 1, rows[:, ended])
    return rows


@pytest.mark.parametrize("text", [text for text in STATISTICS if "ended" in text])
def test_a_level_that_nobody_has_changes_no_test(text: str) -> None:
    without = Columns(
        [column if column.name != "ended" else Column(name="ended", levels=("alive", "moved")) for column in COLUMNS]
    )
    declared, fewer = exact(STATISTICS[text], COLUMNS, people()), exact(STATISTICS[text], without, people())
    for name in declared.tests.keys() & fewer.tests.keys():
        one, other = declared.tests[name], fewer.tests[name]
        # Of two groups an analysis of variance is a t test.
        if len(one.degrees) == len(other.degrees):
            assert one.degrees == pytest.approx(other.degrees, nan_ok=True), name
        assert one.p_value == pytest.approx(other.p_value, rel=1e-6, nan_ok=True), name
    both = [term for term in declared.terms if term in fewer.terms]
    for term in both:
        pair = [float(found.value[found.terms.index(term)]) for found in (declared, fewer)]
        assert pair[0] == pytest.approx(pair[1], rel=1e-6, abs=1e-9, nan_ok=True), term


def divided_by(statistic: Statistic) -> list[str]:
    """The columns of two levels whose levels are compared."""
    fields = statistic.agreed_fields()
    fields["outcome"] = fields.get("outcome", str(fields.get("formula", "")).partition("~")[0].strip())
    names = [fields.get(name) for name in COMPARING[statistic.name][0]]
    return [name for name in names if name in NAMES and len(COLUMNS[name].categories) == 2]


@pytest.mark.parametrize(
    ("statistic", "unit"),
    [
        pytest.param(one, unit, id=f"{one.text}-{unit}")
        for unit in UNITS_OF_VECTORS
        for one in (STATISTICS.values() if unit == PrivacyUnit.RECORD else all_statistics(unit))
        if one.name in COMPARING
    ],
)
def test_nothing_is_compared_with_nobody(statistic: Statistic, unit: PrivacyUnit) -> None:
    for name in divided_by(statistic):
        # Where all have the event hazards are compared.
        for level in (0.0,) if name == getattr(statistic, "event", None) else (0.0, 1.0):
            rows = random_rows(np.random.default_rng(SEED), RECORDS, 0.05)
            place = NAMES.index(name)
            rows[:, place] = np.where(np.isnan(rows[:, place]), np.nan, level)
            found = exact(statistic, COLUMNS, rows, unit)
            for term in set(COMPARING[statistic.name][1] or found.terms) & set(found.terms):
                value = float(found.value[found.terms.index(term)])
                assert math.isnan(value), f"{term} is {value} where all have {name} {COLUMNS[name].categories[int(level)]}"


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_curves_of_nobody_are_tested_against_none(level: float) -> None:
    """Where all are in one arm there is no test, and where one of three is empty the two others are compared, which is said."""
    rows, place = people(), NAMES.index("sex")
    rows[:, place] = np.where(np.isnan(rows[:, place]), np.nan, level)
    found = exact(STATISTICS["survival(age, smoker, by=sex, bins=20)"], COLUMNS, rows)
    assert math.isnan(found.tests["log-rank"].p_value)
    among = exact(STATISTICS["survival(age, smoker, by=ended, bins=20)"], COLUMNS, people())
    (flag,) = [flag for flag in among.flags if flag.code == "level-left-out"]
    assert flag.message.startswith("arm dead: ")
    assert among.tests["log-rank"].degrees == (1.0,)
    assert set(among.summary["log-rank"]["events"]) == {"alive", "moved"}


def test_every_kind_that_compares_is_asked() -> None:
    assert set(COMPARING) == {one.name for one in STATISTICS.values() if one.name in COMPARING and divided_by(one)}
