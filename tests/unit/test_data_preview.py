"""What the owner of the data sees before saying yes: counts, spellings, proposals; and who takes these up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.statistics import Column, Columns
from quietmean.studies.data import Location, Preview, read_columns
from support.command_lines import fails
from support.refusals import refused_rows

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=110),
        Column(name="sex", levels=("f", "m")),
        Column.model_validate({"name": "visit", "low": "2024-01-01", "high": "2024-12-31"}),
    ]
)
STUDY = """[study]
name = "wards"
epsilon = 1.0
delta = 1e-6
[[column]]
name = "age"
low = 0
high = 110
[[column]]
name = "sex"
levels = ["f", "m"]
[[column]]
name = "visit"
low = 2024-01-01
high = 2024-12-31
"""
# Ages with a decimal comma between commas, of which half have three decimals; days first.
ROWS = ['"61,5",f,13/04/2024', '"42,125",F,1/2/2024', '"33,250",weiblich,31/12/2024', "150,m,", ",F,2024-03-01"]


@pytest.fixture
def wards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "wards.csv").write_text("age,sex,visit\n" + "\n".join(ROWS) + "\n")
    return tmp_path / "wards.csv"


def test_what_is_found_in_each_column(wards: Path) -> None:
    preview = Preview.of(wards, COLUMNS)
    age, sex, visit = preview.columns
    assert preview.records == 5
    assert (age.missing, age.outside, age.strange, age.unclear) == (3, 1, 2, 2)
    assert (age.least, age.most) == (61.5, 150)
    assert sex.spellings == (("F", 2), ("weiblich", 1))
    assert (visit.missing, visit.strange, visit.unclear) == (4, 3, 3)
    assert visit.ends == ("2024-03-01", "2024-03-01")
    assert preview.proposed == {"decimal": "comma", "dates": "day-first"}
    assert preview.gained == 5
    assert preview.first[0] == ("line 2", "61,5", "f", "13/04/2024")
    assert preview.last[-1][0] == "line 6"
    unclear, *_ = preview.sentences
    assert unclear.startswith("column 'age': 2 cells may be two numbers")


def test_nothing_is_written_that_nobody_asked_for(wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(wards.parent.iterdir())
    main(["site", "data", "wards.csv", "study.toml", "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["proposed"] == {"decimal": "comma", "dates": "day-first"}
    assert document["written"] is None
    assert sorted(wards.parent.iterdir()) == before
    # Whoever reads the file does not take up what is proposed.
    assert read_columns(wards, COLUMNS)[:, 0].tolist()[:1] == [61.5]
    assert read_columns(wards, COLUMNS)[1, 0] != 42.125


def test_what_is_written_holds_for_every_reader(wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["site", "data", "wards.csv", "study.toml", "--write-format"])
    assert "written to" in capsys.readouterr().out
    assert Location.of(wards).settings == {"decimal": "comma", "dates": "day-first"}
    values = read_columns(wards, COLUMNS)
    assert values[:3, 0].tolist() == [61.5, 42.125, 33.25]
    assert values[:3, 2].tolist() == [103, 31, 365]
    # What is said behind the # comes first.
    assert read_columns(f"{wards}#dates=month-first", COLUMNS)[1, 2] == 1
    again = Preview.of(wards, COLUMNS)
    assert again.proposed == {}


def test_another_format_file_stays(wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (wards.parent / "wards.format.toml").write_text('encoding = "latin-1"\n')
    fails(["site", "data", "wards.csv", "study.toml", "--write-format"], capsys, "wards.format.toml exists already")
    assert (wards.parent / "wards.format.toml").read_text() == 'encoding = "latin-1"\n'


@refused_rows("a_format_file_that_says_nothing")
def test_a_format_file_that_says_nothing(content: str, words: str, wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (wards.parent / "wards.format.toml").write_text(content)
    fails(["site", "data", "wards.csv", "study.toml"], capsys, words)


def test_a_file_that_is_read_well_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,sex,visit\n61.5,f,2024-04-13\n42,m,\n")
    preview = Preview.of(tmp_path / "t.csv", COLUMNS)
    assert preview.sentences == []
    assert preview.proposed == {}
    assert preview.gained == 0


@pytest.mark.parametrize(
    ("program", "number"), [("excel", 45322), ("sas", 23406), ("stata", 2022278400000), ("unix", 1706659200)]
)
def test_whose_numbers_of_days_these_are_is_proposed(program: str, number: int, tmp_path: Path) -> None:
    """By the bounds that the study declares: in 2024 lie those of one program alone."""
    path = tmp_path / "t.csv"
    path.write_text(f"age,sex,visit\n61.5,f,{number}\n42,m,{number}\n")
    preview = Preview.of(path, COLUMNS)
    assert preview.proposed == {"dates": program}
    assert preview.sentences[0].startswith("column 'visit': no cell holds a value")
    assert read_columns(f"{path}#dates={program}", COLUMNS)[:, 2].tolist() == [30, 30]


def test_only_what_shows_it_to_its_owner_makes_a_preview() -> None:
    import quietmean

    package = Path(quietmean.__file__).parent
    makers = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if "Preview.of(" in path.read_text()}
    assert makers == {"cli/check_view.py", "desk/app.py"}
