"""A statistic with ``where`` is that of the records inside, for every kind, and costs no more sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from property.test_statistic_kinds import COLUMNS, EXAMPLES, people, statistic
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Estimates, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.conditions import RowCondition
from quietmean.testing import check_statistic

Array = NDArray[np.float64]

CONDITION = "age >= 35 and (sex == 'f' or weight < 85) and chance < 0.9"
RECORDS = people(400, 3)
AGE, WEIGHT, SEX, SMOKER, CHANCE, ENDED = RECORDS.T
INSIDE = RECORDS[(AGE >= 35) & ((SEX == 0) | (WEIGHT < 85)) & (CHANCE < 0.9)]
INDICATED = Columns([one.model_copy(update={"missing": "indicator"}) if one.numeric else one for one in COLUMNS])
# What is said of all records, in which those outside count as missing.
# Nobody inside is above that: nothing over nothing, but for rounding.
NOBODY = "120:ppv"
OF_ALL = ("proportion(sex)", "histogram", "crosstab")


def asked(text: str, condition: str = CONDITION) -> Statistic:
    return statistic(f"{text[:-1]}, where={condition})")


def answer(one: Statistic, records: Array, columns: Columns = INDICATED) -> Estimates:
    workload = Workload(columns, (one,), PrivacyUnit.RECORD)
    encoded = workload.encode(records)
    return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].estimates


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_is_the_statistic_of_the_records_inside(text: str) -> None:
    with_condition, alone = answer(asked(text), RECORDS, COLUMNS), answer(statistic(text), INSIDE)
    compared = [
        index for index, term in enumerate(alone.terms) if not ((text.startswith(OF_ALL) and "missing" in term) or term == NOBODY)
    ]
    # A count of none is "fewer than 1" where rounding makes it less than 0.
    values = [np.nan_to_num(one.value) if text.startswith("table-1") else one.value for one in (with_condition, alone)]
    np.testing.assert_allclose(values[0][compared], values[1][compared], rtol=1e-6, atol=1e-9)
    for name, test in alone.tests.items():
        np.testing.assert_allclose(with_condition.tests[name].statistic, test.statistic, rtol=1e-6)
    if not text.startswith((*OF_ALL, "calibration", "table-1")) and alone.of_population is not None:
        assert with_condition.of_population is not None
        np.testing.assert_allclose(with_condition.of_population, alone.of_population, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("text", EXAMPLES)
def test_no_record_counts_more_than_without_the_condition(text: str) -> None:
    free, restricted = (Workload(INDICATED, (one,), PrivacyUnit.RECORD) for one in (statistic(text), asked(text)))
    # Table 1 also counts the records inside.
    features = sum(not hasattr(one, "inner") for one in restricted.scales)
    assert features == text.startswith("table-1")
    assert len(restricted.scales) == len(free.scales) + features
    for feature in free.scales:
        assert any(getattr(one, "inner", None) == feature and one.sensitivity == feature.sensitivity for one in restricted.scales)
    outside = RECORDS[~(AGE >= 35)]
    nothing = restricted.of_records(np.full((1, len(COLUMNS)), np.nan))
    np.testing.assert_array_equal(restricted.of_records(outside), np.repeat(nothing, len(outside), axis=0))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        "mean(weight)",
        "table-1(age, smoker)",
        pytest.param("correlation(age, weight)", marks=pytest.mark.slow),
        pytest.param("quantiles(age, bins=12)", marks=pytest.mark.slow),
    ],
)
def test_it_keeps_its_promises(text: str) -> None:
    check_statistic(asked(text, "chance < 0.8 or sex == 'f'"), COLUMNS, RECORDS[:150])


def test_answers_with_and_without_a_condition_do_not_mix() -> None:
    """One vector for several subgroups of the same columns: nothing is taken for the same that is not."""
    texts = ["mean(weight)", "mean(weight, where=smoker)", "mean(weight, where=not smoker)", "correlation(age, weight)"]
    texts += ["correlation(age, weight, where=smoker)", "crosstab(sex, smoker)", "crosstab(sex, smoker, where=age > 50)"]
    for count in CountVisibility:
        workload = Workload(INDICATED, tuple(map(statistic, texts)), PrivacyUnit.RECORD, None, count, 500)
        encoded = workload.encode(RECORDS)
        answers = workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
        smokes, old = RECORDS[SMOKER == 1], RECORDS[AGE > 50]
        assert answers[0].estimates.value[0] == pytest.approx(WEIGHT.mean())
        assert answers[1].estimates.value[0] == pytest.approx(smokes[:, 1].mean())
        assert answers[2].estimates.value[0] == pytest.approx(WEIGHT[SMOKER == 0].mean())
        there = ~np.isnan(smokes[:, 0])
        assert answers[4].estimates.value[0] == pytest.approx(np.corrcoef(smokes[there, 0], smokes[there, 1])[0, 1])
        assert answers[6].estimates.value[0] == pytest.approx(((old[:, 2] == 0) & (old[:, 3] == 0)).sum())


DATED = Columns(
    [
        Column.model_validate({"name": "day", "low": "2020-01-01", "high": "2024-12-31", "missing": "indicator"}),
        Column(name="systolic bp", low=0, high=300),
        Column(name="age", low=0, high=120),
        Column(name="stage", levels=("I", "II", "III, late")),
        Column(name="grade", levels=("1", "2")),
        Column(name="treated", boolean=True),
    ]
)
ROWS = np.array(
    list(
        itertools.product(
            [0.0, 800.0, np.nan], [90.0, 180.0, np.nan], [30.0, 70.0, 500.0, np.nan], [0, 1, 2, np.nan], [0, 1], [0, 1, np.nan]
        )
    )
)
DAY, BP, YEARS, STAGE, GRADE, TREATED = ROWS.T


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("age >= 50", YEARS >= 50),
        ("age == 500", YEARS == 500),
        ("50 <= age < 80", (YEARS >= 50) & (YEARS < 80)),
        ("`systolic bp` / 2 > age", BP / 2 > YEARS),
        ("log(age) < 4 and age^2 > 100", (np.log(YEARS) < 4) & (YEARS**2 > 100)),
        ("stage == 'III, late'", STAGE == 2),
        ('"I" != stage', (STAGE == 1) | (STAGE == 2)),
        ("stage in ('I', 'III, late')", (STAGE == 0) | (STAGE == 2)),
        ("stage not in ('I',)", (STAGE == 1) | (STAGE == 2)),
        ("age in (30, 70)", (YEARS == 30) | (YEARS == 70)),
        ("grade == 2", GRADE == 1),
        ("treated", TREATED == 1),
        ("not treated", TREATED == 0),
        ("treated == 'no'", TREATED == 0),
        ("treated == True", TREATED == 1),
        # A missing value leaves it open, unless the rest decides.
        ("treated or age > 50", (TREATED == 1) | (YEARS > 50)),
        ("not (treated or age > 50)", (TREATED == 0) & (YEARS <= 50)),
        ("not (treated and age > 50)", (TREATED == 0) | (YEARS <= 50)),
        ("day >= '2021-06-01'", DAY >= 517),
        ("'2021-06-01' > day", DAY < 517),
        ("day < 100 and treated", (DAY < 100) & (TREATED == 1)),
    ],
)
def test_what_a_condition_means(text: str, holds: NDArray[np.bool_]) -> None:
    workload = Workload(DATED, (parse_statistic(read_text(f"mean(age, where={text})")),), PrivacyUnit.RECORD)
    np.testing.assert_array_equal(RowCondition(text).holds(DATED, workload.inside(ROWS)), holds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age >", "cannot be read: write for example age >= 50 and sex == 'f'"),
        ("age = 50", "cannot be read"),
        ("1and age > 5", "cannot be read"),
        ("age", "has a part that is not known"),
        ("stage", "has a part that is not known"),
        ("age > 50 & treated", "has a part that is not known"),
        ("agee > 50", r"has 'agee', which is no declared column \(did you mean 'age'"),
        ("stage == II", "has 'II', which is no declared column.* levels between quotes"),
        ("stage == 'IV'", r"compares stage with 'IV': it has the levels I, II, III, late"),
        ("stage > 'I'", "has an order of stage, whose levels have none"),
        ("stage == age", "compares stage with something else"),
        ("stage + 1 > 2", "computes with stage, which has levels"),
        ("stage in 'I'", "has no values in brackets after in"),
        ("age is 5", "compares in a way that is not known"),
        ("day > '1 June 2021'", "write days as 'YEAR-MONTH-DAY'"),
        ("age > 'old'", "has a part that is not known"),
        ("1 > 2", "has no column in it"),
        ("__import__('os').system('true') > 1", "has"),
        ("age.real > 1", "has a part that is not known"),
        ("exec(age) > 1", "has '?exec|has no function 'exec'"),
        ("(lambda: age)() > 1", "has a part that is not known"),
        ("age > " + "1" * 300, "at most 300"),
        ("(" * 250 + "age", "cannot be read"),
        ("age ** treated > 1", "has a power that is no number"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        _ = Workload(DATED, (parse_statistic({"kind": "mean", "column": "age", "where": text}),), PrivacyUnit.RECORD).scales
    assert "\n" not in str(caught.value)


def test_a_statistic_that_cannot_tell_missing_records_has_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    from quietmean.statistics.features import ColumnBlock

    def refused() -> object:
        return Workload(
            DATED, (parse_statistic({"kind": "mean", "column": "age", "where": "treated"}),), PrivacyUnit.RECORD
        ).scales

    assert refused()
    monkeypatch.setattr(ColumnBlock, "complete", None)
    check: Callable[[], object] = refused
    with pytest.raises(InputError, match="cannot tell records in which nothing is present"):
        check()
