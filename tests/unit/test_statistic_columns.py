"""Columns declared once: dates, transforms, codes for missing; what is wrong gets one sentence with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.statistics import Column, Columns
from quietmean.statistics.question_texts import question_texts
from quietmean.statistics.transforms import Transform
from quietmean.studies import StudyTerms
from quietmean.studies.data import read_columns
from support.refusals import refused, refused_rows

TABLE = """crp,admission,discharge,bmi,ward
2.5,2020-01-03,2020-01-10,31,a
-9,2020-02-01 08:30:00,2020-02-01,24.5,b
0,,2020-03-01,-9.0,unknown
-1,not a day,2020-03-01,,a
"""
COLUMNS: list[dict[str, Any]] = [
    {"name": "crp", "low": 0.1, "high": 500, "missing_codes": ["-9"]},
    {"name": "admission", "low": "2020-01-01", "high": "2020-12-31"},
    {"name": "discharge", "since": "2020-01-01", "low": 0, "high": "2020-12-31"},
    {"name": "bmi", "low": 10, "high": 60, "missing_codes": ["-9"]},
    {"name": "ward", "levels": ["a", "b"], "missing_codes": ["unknown"]},
    {"name": "logcrp", "from": "log(crp)"},
    {"name": "stay", "from": "discharge - admission", "low": 0, "high": 60},
    {"name": "obese", "from": "bmi >= 30"},
    {"name": "square", "from": "bmi^2 / 100"},
]


def columns() -> Columns:
    return Columns([Column.model_validate(one) for one in COLUMNS])


def test_cells_become_days_transforms_and_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    found = dict(zip(columns().names, read_columns(path, columns()).T, strict=True))
    nan = np.nan
    np.testing.assert_allclose(found["crp"], [2.5, nan, 0.0, -1.0])
    np.testing.assert_allclose(found["admission"], [2, 31, nan, nan])
    np.testing.assert_allclose(found["discharge"], [9, 31, 60, 60])
    np.testing.assert_allclose(found["bmi"], [31, 24.5, nan, nan])
    np.testing.assert_allclose(found["ward"], [0, 1, nan, 0])
    # Of 0 it is infinite, and moved to its lower bound later; of less than 0 there is none.
    np.testing.assert_allclose(found["logcrp"], [np.log(2.5), nan, -np.inf, nan])
    np.testing.assert_allclose(found["stay"], [7, 0, nan, nan])
    np.testing.assert_allclose(found["obese"], [1, 0, nan, nan])
    np.testing.assert_allclose(found["square"], [9.61, 6.0025, nan, nan])


def test_bounds_of_transforms_follow_from_those_of_their_columns() -> None:
    known = columns()
    assert (known["logcrp"].low, known["logcrp"].high) == (np.log(0.1), np.log(500))
    assert (known["square"].low, known["square"].high) == (1.0, 36.0)
    assert (known["stay"].low, known["stay"].high) == (0, 60)
    assert known["obese"].categories == ("no", "yes")
    assert (known["admission"].low, known["admission"].high, known["admission"].since) == (0, 365, "2020-01-01")


@pytest.mark.parametrize(
    "text", ["a + b", "a - b", "a * b", "a / (b + 9)", "a^2", "-a", "abs(a)", "exp(a) - 2 * b", "(a - 0.3)^4"]
)
def test_bounds_of_transforms_hold(text: str) -> None:
    rng = np.random.default_rng(1)
    ranges = {"a": (-1.5, 2.0), "b": (-3.0, 4.0)}
    transform = Transform(text)
    drawn = {name: np.append(rng.uniform(*ends, 500), ends) for name, ends in ranges.items()}
    low, high = transform.range({name: ranges[name] for name in transform.sources})
    values = transform.values({name: drawn[name] for name in transform.sources})
    assert low - 1e-12 <= values.min() <= values.max() <= high + 1e-12


def test_names_that_are_no_words_stand_between_backquotes() -> None:
    transform = Transform("`blood pressure` - `x-1`")
    assert transform.sources == ("blood pressure", "x-1")
    assert transform.values({"blood pressure": np.array([5.0]), "x-1": np.array([2.0])}).tolist() == [3.0]


def test_the_study_file_says_what_was_declared() -> None:
    study = StudyTerms.parse({"column": COLUMNS})
    again = StudyTerms.parse({"column": study.context()["columns"]})
    assert again.context() == study.context()
    assert [one.text for one in study.workload.statistics][-3:] == ["mean(stay)", "proportion(obese)", "mean(square)"]


def test_questions_say_the_same() -> None:
    study = StudyTerms.parse({"column": COLUMNS})
    texts = question_texts(study.columns, ())
    assert texts[0] == "crp in 0.1..500 [missing_codes=-9, missing=centre]"
    assert texts[-2:] == ["obese = bmi >= 30", "square = bmi^2 / 100"]
    assert StudyTerms.parse({"ask": texts}).context() == study.context()


@refused_rows("what_is_wrong_gets_one_sentence")
def test_what_is_wrong_gets_one_sentence(column: dict[str, Any], words: str) -> None:
    more = [{"name": "other", "low": "2019-01-01", "high": "2020-01-01"}]
    refused(words, StudyTerms.parse, {"column": [*COLUMNS, *more, {"name": "new", **column}]})
