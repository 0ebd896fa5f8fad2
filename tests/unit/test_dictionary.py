"""Columns of a study from the data dictionary of a REDCap project."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.dictionary import Dictionary
from quietmean.studies.data import read_columns
from support.refusals import refused

HEADINGS = [
    "Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label",
    "Choices, Calculations, OR Slider Labels", "Field Note", "Text Validation Type OR Show Slider Number",
    "Text Validation Min", "Text Validation Max", "Identifier?", "Branching Logic (Show field only if...)",
]  # fmt: skip
# Name, type, choices, validation, least, most, identifier.
FIELDS = [
    ("record_id", "text", "", "", "", "", ""),
    ("mrn", "text", "", "integer", "1", "999999", "y"),
    ("age", "text", "", "integer", "18", "110", ""),
    ("weight", "text", "", "number_1dp_comma_decimal", "30,5", "200", ""),
    ("height", "text", "", "number", "", "250", ""),
    ("sex", "radio", "1, Female | 2, <b>Male</b> | 9, Not known", "", "", "", ""),
    ("centre", "dropdown", "b, b | a, a", "", "", "", ""),
    ("twice", "radio", "1, other | 2, other", "", "", "", ""),
    ("smoker", "yesno", "", "", "", "", ""),
    ("drugs", "checkbox", "1, Aspirin | -2, Any, other", "", "", "", ""),
    ("visit", "text", "", "date_dmy", "2024-01-01", "2024-12-31", ""),
    ("seen", "text", "", "datetime_ymd", "2024-01-01 00:00", "today", ""),
    ("born", "text", "", "date_ymd", "", "", ""),
    ("pain", "slider", "none | some | worst", "number", "", "", ""),
    ("bmi", "calc", "[weight]/([height]^2)", "", "", "", ""),
    ("note", "notes", "", "", "", "", ""),
    ("odd", "text", "", "number", "9", "1", ""),
]


@pytest.fixture
def dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dictionary.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(HEADINGS)
        for name, kind, choices, validation, low, high, identifier in FIELDS:
            writer.writerow([name, "form", "", kind, f"The {name}", choices, "", validation, low, high, identifier, ""])
    return path


def test_what_can_be_a_column_is_one(dictionary: Path) -> None:
    found = Dictionary.load(dictionary)
    numbers = {"missing": "indicator"}
    assert {name: {key: value for key, value in one.items() if key != "name"} for name, one in found.columns.items()} == {
        "age": {"low": 18, "high": 110, "whole": True, **numbers},
        "weight": {"low": 30.5, "high": 200, **numbers},
        "sex": {"levels": ["Female", "Male", "Not known"]},
        "centre": {"levels": ["b", "a"]},
        "twice": {"levels": ["1", "2"]},
        "smoker": {"boolean": True},
        "drugs___1": {"boolean": True},
        "drugs____2": {"boolean": True},
        "visit": {"low": "2024-01-01", "high": "2024-12-31", **numbers},
        "pain": {"low": 0, "high": 100, **numbers},
    }
    assert found.codes == {"sex": {"1": "Female", "2": "Male", "9": "Not known"}}
    assert set(found.left_out) == {"record_id", "mrn", "height", "seen", "born", "bmi", "note", "odd"}
    assert found.left_out["mrn"] == "it identifies persons"
    assert found.left_out["height"] == "it has no bounds"
    assert all(why and "\n" not in why for why in found.left_out.values())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    main(["study", "new", "--dictionary", "dictionary.csv", "--json", *arguments])
    output = capsys.readouterr()
    return json.loads(output.out), output.err


def test_a_study_of_all_of_it_reads_a_raw_export(dictionary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, told = run(capsys)
    assert written == {"study": "study.toml", "format": "study.format.toml"}
    assert "field 'bmi' of dictionary.csv is left out: it is computed, without bounds" in told
    columns = StudyTerms.load(Path("study.toml")).workload.columns
    assert len(columns) == 10
    Path("raw.csv").write_text(
        "record_id,age,weight,sex,centre,twice,smoker,drugs___1,drugs____2,visit,pain\n"
        '1,61,"70.5",2,a,1,1,0,1,2024-01-31,7\n2,,,,,,,0,0,,\n'
    )
    Path("study.format.toml").rename("raw.format.toml")
    nothing = [np.nan] * 6 + [0, 0, np.nan, np.nan]
    np.testing.assert_array_equal(read_columns("raw.csv", columns), [[61, 70.5, 1, 1, 0, 1, 0, 1, 30, 7], nothing])


def test_only_what_was_asked_for_and_other_columns_beside(dictionary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, told = run(
        capsys, "mean(age)", "height in 50..250", "old = age >= 80",
    )  # fmt: skip
    assert written == {"study": "study.toml"}
    assert (
        "field 'height' of dictionary.csv is not a column as it is, it has no bounds. Its domain belongs in the question" in told
    )
    columns = StudyTerms.load(Path("study.toml")).workload.columns
    assert columns.names == ("age", "height", "old")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a data dictionary of REDCap. Export it there"),
        (b"a,b\n1,2\n", "is not a data dictionary of REDCap. Export it there"),
        (b"\xff\xfe", "cannot be read. Give the data dictionary as REDCap exports it"),
        (b"field_name,field_type\nnote,notes\n", "has no field that can be a column"),
    ],
)
def test_what_is_no_dictionary_is_one_sentence(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(content)
    refused(words, Dictionary.load, tmp_path / "d.csv")
    refused("cannot be read", Dictionary.load, tmp_path / "none.csv")
