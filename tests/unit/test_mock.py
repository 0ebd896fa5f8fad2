"""Made-up tables: what a study says of its columns and no more, the same everywhere, read by it without a question left."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quietmean as qm
from quietmean.cli.main import main
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data.preview import Preview
from quietmean.studies.data.sources import parties_of_table
from quietmean.studies.outcome.mock import NOTE, mock_rows

NUMBERS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda ends: (ends[0], ends[0] + ends[1]))


def terms(*ask: str, **more: Any) -> StudyTerms:
    return StudyTerms.parse({"ask": list(ask), "epsilon": 1.0, "delta": 1e-6} | more)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """A column of any kind."""
    kind = draw(st.sampled_from(["numbers", "whole", "dates", "levels", "boolean", "log"]))
    low, high = draw(NUMBERS)
    match kind:
        case "numbers":
            return {"low": low, "high": high, "missing_codes": draw(st.sampled_from([[], ["-99999999"]]))}
        case "whole":
            return {"low": round(low), "high": round(low) + draw(st.integers(1, 200)), "whole": True}
        case "dates":
            return {"low": "2020-01-01", "high": draw(st.sampled_from(["2020-01-02", "2031-12-31"])), "since": "2020-01-01"}
        case "levels":
            names = st.text(st.characters(categories=["L", "N"], include_characters=" ,\"'-"), min_size=1, max_size=12)
            levels = draw(st.lists(names.map(str.strip).filter(_plain), min_size=2, max_size=6, unique_by=str.casefold))
            return {"levels": levels, "missing_codes": draw(st.sampled_from([[], ["not told"]]))}
        case "log":
            return {"low": abs(low) + 1e-3, "high": abs(low) + 1e-3 + (high - low), "scale": "log"}
    return {"boolean": True}


def _plain(text: str) -> bool:
    """Is it a level, and no word for missing cells or their code?"""
    return bool(text) and text.casefold() not in {"missing", "na", "nan", "null", "none", "not told", "n/a", "-"}


@settings(max_examples=60)
@given(st.lists(columns(), min_size=1, max_size=5), st.integers(1, 300))
def test_a_study_reads_all_that_is_made_up_for_it(drawn: list[dict[str, Any]], rows: int) -> None:
    named = [{"name": f"c{place}"} | column for place, column in enumerate(drawn)]
    study = StudyTerms.parse({"name": "any", "column": named, "epsilon": 1.0, "delta": 1e-6})
    made = mock_rows(study, rows)
    preview = Preview.of(pl.read_csv(io.BytesIO(made.csv()), infer_schema=False), study.workload.columns)
    assert preview.records == rows
    for column in preview.columns:
        assert (column.outside, column.strange, column.unclear) == (0, 0, 0), column
    assert made.csv() == mock_rows(study, rows).csv()


def test_guesses_and_expectations_show_in_it() -> None:
    study = terms(
        "mean(age in 20..90, expect=mean 55 sd 12)",
        "group-means(bmi in 10..60, by=sex in {f, m}, expect=missing 0.3)",
        "survival(days in 0..2000, dead in yes/no, by=arm in {a, b}, expect=hazard-ratio 3)",
        "obese = bmi >= 30",
    )
    table = mock_rows(study, 4000).to_frame()
    assert table.columns == ["age", "bmi", "sex", "days", "dead", "arm"]
    assert table["age"].mean() == pytest.approx(55, abs=0.5)
    assert table["age"].std() == pytest.approx(12, abs=0.5)
    assert table["bmi"].null_count() / 4000 == pytest.approx(0.3, abs=0.02)
    # Of what nobody expects a few cells are missing, as in data.
    assert table["age"].null_count() / 4000 == pytest.approx(0.02, abs=0.01)
    alive = table.filter(pl.col("days").is_not_null() & pl.col("dead").is_not_null())
    rates = {
        arm: part.filter(pl.col("dead") == "yes").height / float(part["days"].sum())
        for (arm,), part in alive.group_by("arm")
        if arm is not None
    }
    assert rates["b"] / rates["a"] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize("rows", ["mean", "first", "last", 2])
def test_persons_have_several_rows_and_the_file_says_whose(rows: str | int, tmp_path: Path) -> None:
    count = {"count": "private", "most_records": 500} if isinstance(rows, int) else {}
    study = terms("mean(age in 20..90)", unit="person", rows=rows, **count)
    made = mock_rows(study, 90)
    (tmp_path / "mock.csv").write_bytes(made.csv())
    (tmp_path / "mock.format.toml").write_text(made.format_text)
    persons = [row["person"] for row in made.rows()]
    assert 30 < len(set(persons)) < 90
    _, parts = parties_of_table(tmp_path / "mock.csv", study.workload.columns, 3, None, None, study.persons)
    assert sum(len(part) for part in parts) == len(set(persons))


def test_from_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    study = qm.Study(["mean(age in 20..90)", "proportion(sex in {f, m})"], epsilon=1)
    study.save("study.toml")
    main(["study", "mock", "study.toml", "--rows", "7"])
    said = capsys.readouterr().out
    assert "Next      quietmean site data mock.csv study.toml" in said
    rows = list(csv.DictReader(io.StringIO(Path("mock.csv").read_text())))
    assert len(rows) == 7
    assert [row["age"] for row in rows] == [str(cell) if cell is not None else "" for cell in study.mock(7)["age"]]
    main(["study", "mock", "study.toml", "--rows", "7", "--out", "mock.parquet", "--json"])
    assert json.loads(capsys.readouterr().out)["columns"] == ["age", "sex"]
    table = pl.read_parquet("mock.parquet")
    assert np.array_equal(table["age"].to_numpy(), study.mock(7)["age"].to_numpy(), equal_nan=True)
    assert pl.read_parquet_metadata("mock.parquet")["note"] == NOTE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rows", "0"], "rows is 0, and a made-up table has 1 to 1,048,576. Give for example --rows 500."),
        (["--rows", "9000000000"], "Give for example --rows 500."),
        (["--out", "mock.xlsx"], "Name it mock.csv."),
        (["--out", "nowhere/mock.csv"], "no folder nowhere"),
        (["--out", "there.csv"], "file there.csv exists already."),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    qm.Study(["mean(age in 20..90)"], epsilon=1).save("study.toml")
    Path("there.csv").write_text("age\n3\n")
    with pytest.raises(SystemExit) as left:
        main(["study", "mock", "study.toml", *words])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.toml", "there.csv"]
    assert Path("there.csv").read_text() == "age\n3\n"


def test_a_column_of_the_study_is_not_taken_for_persons() -> None:
    with pytest.raises(qm.InputError, match="column 'person' is in the study"):
        mock_rows(terms("mean(person in 0..9)", unit="person"), 5)


def test_who_looks_at_a_made_up_table_is_not_told_that_it_is_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, made, own = tmp_path / "s.toml", tmp_path / "mock.csv", tmp_path / "own.csv"
    study.write_text('[study]\nname = "s"\nask = ["mean(age in 0..110)"]\n')
    main(["study", "mock", str(study), "--rows", "30", "--out", str(made)])
    own.write_text(made.read_text().replace("\n", "\n1", 2).replace("1", "", 1))
    for data, told in ((made, "Made up from the study"), (own, "For you only")):
        capsys.readouterr()
        main(["site", "data", str(data), str(study)])
        assert told in capsys.readouterr().out.splitlines()[0]
