"""What the owner of a text is told of records that do not fit: what was seen, and what makes that file right once it is done."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from quietmean.statistics import Column, Columns
from quietmean.studies.data import Preview, read_columns, text_files
from support.refusals import refused

COLUMNS = Columns([Column(name="age", low=0, high=110), Column(name="arm", levels=("a", "b"))])
NAN = np.nan


class Case(NamedTuple):
    """``content``: of a file; ``seen`` and ``advice``: words of what is told; ``right``: what the file holds.

    ``done``: the file with what was advised done to it, where that is no setting.
    """

    content: str
    seen: str
    advice: str
    right: list[list[float]]
    done: str = ""


NOTE = "\n".join("note" for _ in range(70))
TWO = [[61.0, 0.0], [62.0, 1.0]]
CASES = {
    "backslashes before marks": Case(
        'arm,note,age\na,"say \\"hi, there\\"",61\nb,x,62\n',
        "1 record has more cells than the heading, which has 3 names (line 2). It counts as missing.",
        "1 record of these has a backslash before a quotation mark. Write two marks instead.",
        TWO,
        'arm,note,age\na,"say ""hi, there""",61\nb,x,62\n',
    ),
    "single marks": Case(
        "arm,note,age\na,'a,b',61\nb,x,62\n",
        "1 record has more cells than the heading, which has 3 names (line 2).",
        "1 record of these has a single quotation mark before a cell. Write a double one.",
        TWO,
        'arm,note,age\na,"a,b",61\nb,x,62\n',
    ),
    "a delimiter in a cell": Case(
        "arm;note;age\na;this;that;61\nb;x;62\n",
        "1 record has more cells than the heading, which has 3 names (line 2).",
        "Put a cell with a semicolon in it between double quotation marks.",
        TWO,
        'arm;note;age\na;"this;that";61\nb;x;62\n',
    ),
    "a decimal comma between commas": Case(
        "age,arm\n61,0,a\n62,b\n",
        "1 record has more cells than the heading, which has 2 names (line 2).",
        "Put a cell with a comma in it between double quotation marks.",
        TWO,
        'age,arm\n"61,0",a\n62,b\n',
    ),
    "names of rows": Case(
        '"age","arm"\n"1",61,"a"\n"2",62,"b"\n',
        "2 records have more cells than the heading, which has 2 names (lines 2, 3). They count as missing.",
        "If the first cell is the name of its row, as R writes it, say t.csv#rownames=true.",
        TWO,
    ),
    "a delimiter behind the last cell": Case(
        "age,arm\n61,a,\n62,b,\n",
        "2 records have more cells than the heading, which has 2 names (lines 2, 3).",
        "If a delimiter stands behind the last cell, say t.csv#rownames=false.",
        TWO,
    ),
    "a cell that goes on": Case(
        'age,arm,note\n61,a,"two\nlines"\n62,b,x\n',
        "1 record has a quotation mark that nothing closes (line 2). Close the mark",
        "If the cell goes on in the next line, say t.csv#multiline=true.",
        TWO,
    ),
    "a mark that is not closed": Case(
        'age,note,arm\n61,"one,a\n62,x,b\n',
        "1 record has a quotation mark that nothing closes (line 2).",
        "Close the mark, or write two for one.",
        TWO,
        'age,note,arm\n61,"one",a\n62,x,b\n',
    ),
    "a note of many lines": Case(
        f'age,arm,note\n61,a,"{NOTE}"\n62,b,x\n',
        "1 record has a quotation mark that nothing closes (line 2).",
        "If a record has more than 64 lines, say t.csv#multiline=512.",
        TWO,
    ),
    "lines that end otherwise": Case(
        "age,arm\r\n61,a\n62,b\n",
        "1 record has an end of a line that is not CR LF, as behind the heading (line 2). It counts as missing.",
        "Write CR LF behind each record.",
        TWO,
        "age,arm\r\n61,a\r\n62,b\r\n",
    ),
    "lines that end as on an old Mac": Case(
        "age,arm\n61,a\r62,b\r",
        "1 record has an end of a line that is not LF, as behind the heading (line 2).",
        "Write LF behind each record.",
        TWO,
        "age,arm\n61,a\n62,b\n",
    ),
    "a record that is too long": Case(
        f"age,arm,note\n61,a,{'x' * 2**16}\n62,b,x\n",
        "1 record has more than 0 MiB (line 2). It counts as missing.",
        "Leave out what is so long.",
        TWO,
        "age,arm,note\n61,a,\n62,b,x\n",
    ),
}
# A note that ends with a mark is told only with the setting under which it matters.
SAID = {"a note of many lines": "#multiline=true"}
READ_RIGHTLY = [
    'age,note,arm\n61,6" pipe,a\n62,5\' 2",b\n',
    'age,note,arm\n61,said "so",a\n62,x,b\n',
    'age,note,arm\n61,"said ""so""",a\n62,\'tis,b\n',
    "age,note,arm\n61,C:\\x\\,a\n62,x,b\n",
    "age\tnote\tarm\t\n61\tx\ta\t\n62\ty\tb\t\n",
    "age;\n61;\n62;\n",
]


def read(source: str) -> tuple[list[list[float]], list[str]]:
    told: list[str] = []
    columns = COLUMNS if "arm" in Path(source.partition("#")[0]).read_text().splitlines()[0] else Columns(list(COLUMNS)[:1])
    return read_columns(source, columns, told.append).tolist(), told


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MOST_RECORD", 2**15)
    monkeypatch.setattr("quietmean.studies.data.table.MOST_RECORD", 2**15)


@pytest.mark.parametrize("fast", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_advised_makes_the_file_right(
    name: str, fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    monkeypatch.setattr(text_files, "is_installed", lambda *modules: fast)
    case, path = CASES[name], tmp_path / "t.csv"
    path.write_bytes(case.content.encode())
    values, told = read(f"{path}{SAID.get(name, '')}")
    assert values != case.right
    (sentence,) = [one for one in told if "column" not in one]
    assert case.seen in sentence
    assert case.advice in sentence
    said = ""
    if case.done:
        path.write_bytes(case.done.encode())
    else:
        said = case.advice.removesuffix(".").partition("t.csv")[2]
    assert read(f"{path}{said}") == (case.right, [])


@pytest.mark.parametrize("content", READ_RIGHTLY)
def test_what_is_read_rightly_is_not_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content)
    values, told = read(str(tmp_path / "t.csv"))
    assert [row[0] for row in values] == [61, 62]
    assert told == []


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("names of rows", {"rownames": "true"}),
        ("a delimiter behind the last cell", {"rownames": "false"}),
        ("a cell that goes on", {"multiline": "true"}),
        ("a mark that is not closed", {}),
        ("backslashes before marks", {}),
    ],
)
def test_a_setting_is_proposed_where_it_makes_the_file_right(name: str, proposed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CASES[name].content)
    assert Preview.of(tmp_path / "t.csv", COLUMNS).proposed == proposed


def test_blanks_between_columns_are_said(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    for content in ("age  arm\n 61\ta\n62   \tb \n", ' "age" "arm"\n"61" "a"\n\n62 b\n'):
        path.write_text(content)
        refused(r"^t\.dat has no delimiter .* If blanks are, say t\.dat#delimiter=blanks\.$", read_columns, path, COLUMNS)
        assert read(f"{path}#delimiter=blanks") == (TWO, [])
    path.write_text('"age" "arm"\n"1" 61 "a"\n"a b" 62 "b"\n')
    assert read(f"{path}#delimiter=blanks,rownames=true") == (TWO, [])


@pytest.mark.parametrize(
    "content", ["age arm;sex\n61 a;f\n", "A report of age and arm\nAge;Arm\n61;a\n", "age arm\n\nage,weight\n61,82\n"]
)
def test_blanks_are_not_advised_where_a_delimiter_stands(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content)
    refused(r"^column '(age|arm)' is not one of the ", read_columns, tmp_path / "t.csv", COLUMNS)
