"""Texts that are none of the declared levels: one level more where a study says so; and texts that count as a level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import study_text, used_text
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data.preview import Preview
from quietmean.studies.data.sources import parties_of_table
from quietmean.studies.outcome.mock import mock_rows

CELLS = ["I", "II", "III", "", None, "NA", "88", "Ia", "other"]
REGION = {"name": "region", "levels": ["I", "II"], "missing_codes": ["88"]}


def read(column: dict[str, Any]) -> list[float]:
    """The place of each cell's level, -1 for missing."""
    columns = StudyTerms.parse({"name": "s", "column": [column], "epsilon": 1.0, "delta": 1e-6}).workload.columns
    _, parts = parties_of_table(pl.DataFrame({"region": CELLS * 2}), columns, 2, None, None, None)
    found = parts[0][:, 0].tolist() + parts[1][:, 0].tolist()
    dealt = [found[place // 2 + len(CELLS) * (place % 2)] for place in range(len(CELLS))]
    return [-1 if math.isnan(place) else place for place in dealt]


def test_other_texts_are_a_level_and_what_is_missing_is_missing() -> None:
    assert read(REGION) == [0, 1, -1, -1, -1, -1, -1, -1, -1]
    assert read(REGION | {"other": True}) == [0, 1, 2, -1, -1, -1, -1, 2, 2]
    assert read(REGION | {"other": True, "finer": {"I": ["Ia", "Ib"]}}) == [0, 1, 2, -1, -1, -1, -1, 0, 2]
    assert read(REGION | {"finer": {"I": ["Ia"], "II": ["III"]}}) == [0, 1, 1, -1, -1, -1, -1, 0, -1]


def test_the_owner_is_told_nothing_is_not_understood_where_all_is_a_level() -> None:
    columns = StudyTerms.parse(
        {"name": "s", "column": [REGION | {"other": True}], "epsilon": 1.0, "delta": 1e-6}
    ).workload.columns
    (column,) = Preview.of(pl.DataFrame({"region": CELLS}), columns).columns
    assert (column.strange, column.missing) == (0, 4)


def test_a_table_has_a_line_for_it_and_its_text_and_file_say_so() -> None:
    question = "crosstab(stage in {I, II} [other], sick in yes/no)"
    study = StudyTerms.parse({"ask": [question], "epsilon": 1e6, "delta": 1e-6, "protocol": "local-dp"})
    assert study.questions() == [question]
    assert "other = true" in study_text(study)
    assert "stage (I, II, any other text; " in used_text(study) or "stage (I, II, any other text)" in used_text(study)
    rows = pl.DataFrame({"stage": ["I", "II", "III", "IV"] * 50, "sick": ["yes", "no"] * 100})
    result = qm.Study([question], epsilon=9.0, protocol="central-dp").run(rows, parties=2)
    counts = {row["term"]: row["estimate"] for row in result.rows() if row["term"].startswith("other:")}
    assert counts["other:yes"] == pytest.approx(50, abs=5)
    assert {row["stage"] for row in mock_rows(study, 200).rows()} == {"I", "II", "other", None}


def test_what_counts_as_a_level_stands_in_the_study_and_what_is_asked() -> None:
    column = Column.model_validate(REGION | {"finer": {"I": ["Ia", "Ib"]}})
    assert Column.model_validate(column.describe()) == column
    study = StudyTerms.parse({"name": "s", "column": [column.describe()], "epsilon": 1.0, "delta": 1e-6})
    assert "I with Ia, Ib, II" in used_text(study)
    assert "finer = " in study_text(study, asks=True)


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"boolean": True, "other": True}, "column 'r' has no levels, so no text is another one. Leave other out."),
        ({"low": 0, "high": 1, "other": True}, "Leave other out."),
        ({"low": 0, "high": 1, "finer": {"a": ["x"]}}, "Leave finer out."),
        ({"from": "sqrt(x)", "other": True}, "Leave other out."),
        (
            {"levels": ["a", "other"], "other": True},
            "column 'r' has a level 'other' and counts other texts so. Leave one of them out.",
        ),
        ({"levels": ["a", "b"], "finer": {"c": ["x"]}}, "column 'r' has texts that count as 'c', which is not a level."),
        ({"levels": ["a", "b"], "finer": {"a": ["b"]}}, "column 'r' has 'b' twice among its levels and what counts as one."),
        ({"levels": ["a", "b"], "finer": {"a": ["x"], "b": ["x"]}}, "Name it once."),
        ({"levels": ["a", "b"], "finer": {"a": ["9"]}, "missing_codes": ["9"]}, "Name it once."),
        ({"levels": ["a"]}, "column 'r' needs two or more different levels."),
    ],
)
def test_a_mistake_is_one_sentence(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as told:
        Column.model_validate({"name": "r"} | declared)
    assert sentence in str(told.value)


def test_one_level_and_all_others_are_two() -> None:
    assert Column.model_validate({"name": "r", "levels": ["a"], "other": True}).categories == ("a", "other")


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("crosstab(stage, sick)", {"other:yes": 2.0, "other:no": 1.0}),
        ("proportion(stage)", {"other": 3 / 8}),
        ("table-1(stage, by=sick)", {"yes stage:other": 2 / 4}),
        ("histogram(stage)", {"other": 3.0}),
        ("synthetic-table(stage, sick)", {"stage:other": 3.0, "stage:other sick:yes": 2.0}),
        ("count(stage, level=other)", {"": 3.0}),
        ("count(where=stage == 'other')", {"": 3.0}),
    ],
)
def test_each_question_counts_it(question: str, others: dict[str, float]) -> None:
    """Without noise; beside a first look of a column of numbers, in one study with it."""
    columns = [{"name": "stage", "levels": ["I", "II"], "other": True}, {"name": "sick", "boolean": True}]
    ask = [question, "first-look(age)"]
    study = StudyTerms.parse({"name": "s", "column": columns, "ask": ask, "epsilon": 1.0, "delta": 1e-6, "accept_wide": True})
    stage, sick = ["I", "II", "III", "IV", "IV", "I", "I", "II"], [False, True, True, False, True, False, False, True]
    table = pl.DataFrame({"stage": stage, "sick": sick, "age": [30.0 + place for place in range(8)]})
    records = np.vstack(parties_of_table(table, study.workload.columns, 2, None, None, None)[1])
    encoded = study.workload.encode(records)
    answer, _ = study.workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
    found = dict(zip(answer.estimates.terms, answer.estimates.value.tolist(), strict=True))
    assert {term: found[term] for term in others} == pytest.approx(others)
