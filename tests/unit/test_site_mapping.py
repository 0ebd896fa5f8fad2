"""What a site calls and codes its columns: read by it as the study's, and by nobody else seen."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from quietmean.statistics import Column, Columns
from quietmean.studies.data import Location, Preview, read_columns
from quietmean.studies.data.sources import parties_of_table
from support.odd_cells import USUAL, WRITERS, read_files_in_this_process
from support.refusals import refused

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=110, missing_codes=("-9",)),
        Column(name="sex", levels=("f", "m")),
        Column(name="smoker", boolean=True),
        Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31"}),
    ]
)
FORMAT = """
decimal = "comma"
[mapping]
person = "PatNr"
[mapping.columns]
age = { name = "ALTER", factor = 0.5 }
day = "DATUM"
[mapping.columns.sex]
name = "age"
codes = { 1 = "f", "02" = "m", "w" = "f" }
[mapping.columns.smoker]
codes = { 7 = "ja", 8 = false, 9 = "" }
"""
ROWS = ["122,5;1;7;1.2.2001;a", "-9;01;8;;a", "80;2;9;31.12.2001;b", "60,1234;w;true;3.2.2001;", "x;m;3;2001-01-02;"]
NAN = np.nan
RECORDS = [[61.25, 0, 1, 31], [NAN, 0, 0, NAN], [40, 1, NAN, 364], [30.0617, 0, 1, 33], [NAN, 1, -1, 1]]


@pytest.fixture
def wards(tmp_path: Path) -> Path:
    (tmp_path / "wards.csv").write_text("\n".join(["ALTER;age;smoker;DATUM;PatNr", *ROWS]) + "\n")
    (tmp_path / "wards.format.toml").write_text(FORMAT)
    return tmp_path / "wards.csv"


def test_names_codes_and_units(wards: Path) -> None:
    np.testing.assert_allclose(read_columns(wards, COLUMNS), RECORDS)
    preview = Preview.of(wards, COLUMNS)
    assert [column.strange for column in preview.columns] == [1, 0, 1, 0]
    assert dict(preview.columns[2].spellings) == {"3": 1}
    assert preview.persons == (4, 2)
    assert "5 records are of 4 persons, at most 2 of one" in preview.sentences
    assert preview.to_json()["persons"] == 4
    assert "ALTER" not in repr(Location.of(wards))


def test_the_same_by_a_named_file_and_from_a_query(wards: Path, tmp_path: Path) -> None:
    elsewhere = (tmp_path / "wards.format.toml").rename(tmp_path / "clinic.toml")
    np.testing.assert_allclose(read_columns(f"{wards}#format={elsewhere}", COLUMNS), RECORDS)
    query = tmp_path / "q.sql"
    query.write_text("SELECT * FROM data WHERE DATUM IS NOT NULL")
    found = read_columns(f"{wards}#format={elsewhere},query={query}", COLUMNS)
    np.testing.assert_allclose(found, [RECORDS[row] for row in (0, 2, 3, 4)])


def test_a_column_says_the_party_by_its_own_name(wards: Path) -> None:
    names, parts = parties_of_table(wards, COLUMNS, None, "PatNr")
    assert names == ["a", "b"]
    np.testing.assert_allclose(parts[0], RECORDS[:2])


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", [one for one in WRITERS if not one.startswith(("pandas", "Polars", "PyArrow", "DuckDB"))])
def test_every_reader_goes_by_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of a power of two is exact."""
    read_files_in_this_process(monkeypatch)
    columns = Columns([Column(name="years", low=0, high=55), Column(name="treated", levels=("yes", "no"))])
    (tmp_path / "f.toml").write_text(
        '[mapping.columns]\nyears = { name = "age", factor = 0.5 }\n'
        'treated = { name = "arm", codes = { a = "yes", "ä" = "no", 1 = "no" } }\n'
    )
    source = str(WRITERS[name](tmp_path, USUAL))
    found = read_columns(f"{source}{',' if '#' in source else '#'}format={tmp_path / 'f.toml'}", columns)
    np.testing.assert_array_equal(found, np.column_stack([np.array(USUAL["age"]) / 2, [0, 1, 1, 0]]))


def test_codes_that_are_one_number_count_by_spelling_only(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sex\n1\n01\n1.0\n")
    (tmp_path / "t.format.toml").write_text('[mapping.columns.sex]\ncodes = { 1 = "f", 01 = "m" }\n')
    columns = Columns([Column(name="sex", levels=("f", "m"))])
    np.testing.assert_array_equal(read_columns(tmp_path / "t.csv", columns).ravel(), [0, 1, -1])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("mapping = 1", "mapping of wards.format.toml is not a table"),
        ("[mapping]\npersons = 'a'", "[mapping] of wards.format.toml has 'persons' (did you mean 'person'?)"),
        ("[mapping]\nperson = 1", "has a person that is not a name of a column. Write person ="),
        ("[mapping.columns]\nage = 1", "mapping.columns.age of wards.format.toml is not a table"),
        ("[mapping.columns.age]\nnames = 'a'", "has 'names' (did you mean 'name'?)"),
        ("[mapping.columns.age]\nname = 1", "has a name that is not a text"),
        ("[mapping.columns.sex]\ncodes = [1]", "has codes that are not valid. Write codes ="),
        ("[mapping.columns.sex]\ncodes = { 1 = [2] }", "has codes that are not valid. Write codes ="),
        *((f"[mapping.columns.age]\nfactor = {one}", "Write factor = 0.4536") for one in ("0", "nan", "inf", "true", "'2'")),
        (
            "[mapping.columns]\nage = 'ALTER'\nsex = 'age'\nday = { name = 'DATUM', factor = 2 }",
            "column 'day' has a factor in the site's mapping, and no numbers. Leave it out",
        ),
        ("[mapping.columns]\nage = 'ALTERS'", "column 'ALTERS' is not one of the 5 columns of wards.csv (did you mean 'ALTER'?)"),
        ("[mapping]\nperson = 'PatNrs'\n[mapping.columns]\nage='ALTER'", "column 'PatNrs' is not one of the 5 columns"),
    ],
)
def test_a_mapping_that_says_nothing_is_one_sentence(content: str, words: str, wards: Path) -> None:
    (wards.parent / "wards.format.toml").write_text(content)
    assert words in refused("", Preview.of, wards, COLUMNS)


def test_every_cell_is_recoded_by_itself(tmp_path: Path) -> None:
    """No row says how another one is read, whatever stands in it."""
    (tmp_path / "t.format.toml").write_text(
        '[mapping.columns]\nage = { name = "n", factor = -2.5, codes = { 9 = "" } }\nsex = { codes = { 1 = "f", 2 = "m" } }\n'
    )
    columns = Columns([Column(name="age", low=0, high=110), Column(name="sex", levels=("f", "m"))])
    cells = ["1", "01", "9", "9.0", "x", "", "1e400", "2", "f", "-", "1,5"]
    alone = {}
    for pair in itertools.product(cells, repeat=2):
        (tmp_path / "t.csv").write_text(f"n;sex\n{pair[0]};{pair[1]}\n")
        alone[pair] = read_columns(tmp_path / "t.csv", columns)[0]
    (tmp_path / "t.csv").write_text("n;sex\n" + "".join(f"{one};{two}\n" for one, two in alone))
    np.testing.assert_array_equal(read_columns(tmp_path / "t.csv", columns), list(alone.values()))
