"""Questions with the domains of their columns: one grammar for the command, study files, Python and R."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.statistics import Column, registry
from quietmean.statistics.names import quoted, unquoted
from quietmean.statistics.question_texts import question_texts
from quietmean.statistics.questions import read_questions
from quietmean.statistics.registry import ALIASES
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms

_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12).map(str.strip)
_NUMBERS = st.floats(-1e20, 1e20, allow_nan=False)


def _texts(terms: StudyTerms) -> list[str]:
    return question_texts(terms.columns, [statistic.text for statistic in terms.workload.statistics])


def _asked(*texts: str) -> StudyTerms:
    return StudyTerms.parse({"ask": list(texts)})


@st.composite
def columns_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Anything that can be said of a column."""
    kind = draw(st.sampled_from(["numbers", "dates", "levels", "boolean"]))
    codes = draw(st.one_of(st.just({}), st.lists(_NAMES, min_size=1, max_size=3).map(lambda codes: {"missing_codes": codes})))
    if kind == "boolean":
        return {"name": name, "boolean": True, **codes}
    if kind == "levels":
        levels = draw(st.lists(_NAMES.filter(lambda level: level not in ("", "missing")), min_size=2, max_size=4, unique=True))
        return {"name": name, "levels": levels, **codes}
    rule = {"missing": draw(st.sampled_from(["centre", "indicator"]))}
    if kind == "dates":
        days = sorted(draw(st.lists(st.dates(datetime.date(1900, 1, 1)), min_size=3, max_size=3, unique=True)))
        since = draw(st.sampled_from([{}, {"since": days[0].isoformat()}]))
        return {"name": name, "low": days[1].isoformat(), "high": days[2].isoformat(), **since, **rule, **codes}
    low, high = sorted(draw(st.tuples(_NUMBERS, _NUMBERS).filter(lambda ends: ends[0] != ends[1])))
    bins: list[dict[str, Any]] = [{}, {"edges": [low, high]}]
    if high > 0:
        bins.append({"scale": "log"})
    if abs(low) < 1e9 and high - low > 3 and high < 1e9:
        bins.append({"whole": True})
    return {"name": name, "low": low, "high": high, **rule, **codes, **draw(st.sampled_from(bins))}


@st.composite
def transforms_of(draw: st.DrawFn, name: str, numeric: list[Column]) -> dict[str, Any]:
    """A column that is made of others, with anything that can be said of one; some are called as they are written."""
    sources = draw(st.lists(st.sampled_from([column.name for column in numeric]), min_size=1, max_size=2))
    origin = draw(st.sampled_from([" + ", " - ", " * "])).join(f"`{source.replace('`', '``')}`" for source in sources)
    if draw(st.booleans()):
        return {"name": name, "from": f"{origin} >= {draw(st.integers(-9, 9))}"}
    said = draw(st.sampled_from([{}, {"missing": "centre"}, {"missing": "indicator"}]))
    bounded: list[dict[str, Any]] = [{}, {"low": 0.5, "high": 7.0}, {"low": 0.5, "high": 7.0, "edges": [1.0, 6.25]}]
    return {"name": draw(st.sampled_from([name, origin])), "from": origin, **draw(st.sampled_from(bounded)), **said}


@given(st.data())
def test_what_is_printed_is_read_as_the_same(data: st.DataObject) -> None:
    names = data.draw(st.lists(_NAMES.filter(bool), min_size=3, max_size=5, unique=True))
    columns = [Column.model_validate(data.draw(columns_of(name))) for name in names[:-1]]
    numeric = [column for column in columns if column.numeric and not column.since]
    if numeric:
        made = Column.model_validate(data.draw(transforms_of(names[-1], numeric)))
        place = data.draw(st.integers(columns.index(numeric[-1]) + 1, len(columns)))
        columns.insert(place, made)
    assume(len({column.name for column in columns}) == len(columns))
    statistics = [
        f"{data.draw(st.sampled_from(['mean', 'proportion', 'quantiles']))}({quoted(column.name)})"
        for column in data.draw(st.lists(st.sampled_from(columns), unique_by=lambda column: column.name))
    ]
    texts = question_texts(columns, statistics)
    tables, asked = read_questions(texts)
    again = [Column.model_validate(table) for table in tables]
    assert [column.describe() for column in again] == [column.describe() for column in columns]
    assert [raw["column"] for raw in asked] == [unquoted(text.partition("(")[2][:-1]) for text in statistics]
    assert question_texts(again, statistics) == texts


_CASES = [
    (["mean(age in 0..110)"], ["mean(age in 0..110)"]),
    (["age in 0..110"], ["mean(age in 0..110)"]),
    (["crosstab(sex in {f,m}, smoker in yes/no)"], ["crosstab(sex in {f, m}, smoker in yes/no)"]),
    (["crosstab(sex in {f,m}, smoker in True/False)"], ["crosstab(sex in {f, m}, smoker in yes/no)"]),
    (["mean(day in 2020-01-01..2024-12-31)"], ["mean(day in 2020-01-01..2024-12-31)"]),
    (["mean(log(crp in 0.1..500))"], ["crp in 0.1..500", "mean(log(crp))"]),
    (["mean(crp in 0.1..500)", "mean( log( crp ) )"], ["mean(crp in 0.1..500)", "mean(log( crp ))"]),
    (["proportion(bmi >= 30)", "bmi in 10..60"], ["bmi in 10..60", "proportion(bmi >= 30)"]),
    (
        ["lm(bmi in 10..60 ~ age in 0..110 + sex in {f, m})"],
        ["linear-regression(bmi in 10..60 ~ age in 0..110 + sex in {f, m})"],
    ),
    (["t-test(bmi in 10..60 ~ sex in {f, m})"], ["group-means(bmi in 10..60, sex in {f, m})"]),
    (
        ["km(Surv(t in 0..100, died in yes/no) ~ arm in {a, b})"],
        ["survival(t in 0..100, died in yes/no, by=arm in {a, b})"],
    ),
    (["mean(age in 0..110, where=sex == 'f')", "sex in {f, m}"], ["mean(age in 0..110, where=sex == 'f')", "sex in {f, m}"]),
    (
        ["mean(visits in 0..30 [whole, missing-codes=-9 'not known'])"],
        ["mean(visits in 0..30 [whole, missing_codes=-9 `not known`])"],
    ),
    (["mean(`a+b` in 0..5)", "mean(x-ray in 0..5)"], ["mean(`a+b` in 0..5)", "mean(x-ray in 0..5)"]),
    (["mean(height in cm in 0..250)"], ["mean(height in cm in 0..250)"]),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "printed"), _CASES)
def test_a_question_in_its_canonical_text(texts: list[str], printed: list[str]) -> None:
    terms = _asked(*texts)
    shown = _texts(terms)
    assert [" ".join(text.split()) for text in shown] == [" ".join(text.split()) for text in printed] or shown == printed
    again = _asked(*shown)
    assert again.workload.statistics == terms.workload.statistics
    assert {column.name: column for column in again.columns} == {column.name: column for column in terms.columns}


def test_a_derived_column_has_the_name_that_it_is_given() -> None:
    days = "in 2020-01-01..2020-12-31"
    terms = _asked("mean(stay)", f"discharge {days}", f"admission {days}", "stay = discharge - admission in 0..60 [whole]")
    assert [column.name for column in terms.columns] == ["discharge", "admission", "stay"]
    stay = terms.workload.columns["stay"]
    assert (stay.origin, stay.low, stay.high, stay.whole) == ("discharge - admission", 0, 60, True)
    assert _asked(*_texts(terms)).columns == terms.columns


@pytest.mark.parametrize(
    ("said", "column"),
    [
        ("z = log(y)", {"from": "log(y)"}),
        ("z = log(y) [scale=log]", {"from": "log(y)", "scale": "log"}),
        ("z = y^2 [missing=centre]", {"from": "y^2", "missing": "centre"}),
        ("`a b` = (y - 1) in 0..9 [edges=0 3 9]", {"from": "(y - 1)", "low": 0.0, "high": 9.0, "edges": [0.0, 3.0, 9.0]}),
        ("z = `w[1]` * 2", {"from": "`w[1]` * 2"}),
        ("z = abs(y) >= 3", {"from": "abs(y) >= 3", "boolean": True}),
    ],
)
def test_what_is_said_of_a_derived_column(said: str, column: dict[str, Any]) -> None:
    terms = _asked(said, "y in 1..50", "`w[1]` in 0..2", "mean(y)")
    name = unquoted(said.partition(" = ")[0])
    described = terms.workload.columns[name].describe()
    # Documents do not write centre.
    expected = {"name": name, "missing": "indicator", **column}
    if "boolean" in column or expected["missing"] == "centre":
        del expected["missing"]
    assert {key: described[key] for key in expected} == expected
    assert _asked(*_texts(terms)).context() == terms.context()


@pytest.mark.parametrize("alias", [*ALIASES, *registry()])
def test_every_name_of_the_field_leads_to_a_statistic_or_says_what_it_lacks(alias: str) -> None:
    with pytest.raises(InputError) as told:
        _asked(f"{alias}()")
    assert " unknown" not in str(told.value)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["mean(age)"], "age has no bounds. Write mean(age in LOW..HIGH)."),
        (["mean(agee)", "age in 0..110"], "agee has no bounds (did you mean 'age'?). Write mean(agee in LOW..HIGH)."),
        (["crosstab(sex, smoker)"], "Nothing is said of smoker either. Write crosstab(sex in {A, B}, smoker in {A, B})."),
        (["crosstab(sex in {f, m}, smoker)"], "smoker has no levels. Write crosstab(sex in {f, m}, smoker in {A, B})."),
        (["mean(log(crp))"], "crp has no bounds. Write mean(log(crp in LOW..HIGH))."),
        (["lm(bmi ~ age in 0..110)"], "bmi has no bounds. Write linear-regression(bmi in LOW..HIGH ~ age in 0..110)."),
        (["crosstab(sex in f/m, smoker in yes/no)"], "'sex in f/m' has no domain behind in: it is one of LOW..HIGH"),
        (["count(where=age >= 65, age in 0..110)"], "has 'age' behind its condition. Write it before where"),
        (["mean(age in 0..110, where=bmi > 3)"], 'Add "bmi in LOW..HIGH" as'),
        (["mean(age in 0..110, where=bmi in 3..9)"], "Write bmi >= 3 and bmi <= 9"),
        (["mean(age in 110..0)"], "age in 110..0 has its bounds reversed. Write age in 0..110."),
        (["mean(d in 2024-01-01..2020-01-01)"], "has its bounds reversed. Write d in 2020-01-01..2024-01-01."),
        (["mean(age in 0..9)", "sum(age in 0..8)"], "column 'age' is declared twice, in 0..9 and in 0..8. Keep one of them."),
        (["mean(age in 0-110)"], "'age in 0-110' has no domain behind in"),
        (["mean(age in [0, 110])"], "'age in [0, 110]' has no domain behind in"),
        (["mean(age in low..high)"], "age in low..high has 'low', which is neither a number nor a day."),
        (["mean(age in 0..110 [hole])"], "column 'age' has 'hole' in square brackets (did you mean 'whole'?)."),
        (["linear-regression(age in 0..110, bmi in 10..60)"], "Write linear-regression(age ~ bmi), the outcome first."),
        (["meen(age in 0..110)"], "statistic 'meen' is unknown (did you mean 'mean'?)"),
        (["age"], "Write for example mean(age in 0..110)."),
        (["sex in {f, }"], "sex in {f, } has an empty level."),
    ],
)  # fmt: skip
def test_what_is_wrong_in_one_sentence_for_all_front_ends(texts: list[str], sentence: str, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    listed = ", ".join(f'"{text}"' for text in texts)
    study.write_text(f"[study]\nask = [{listed}]\n")
    for ask in (lambda: qm.Study(texts, epsilon=1), lambda: StudyTerms.load(study)):
        with pytest.raises(InputError) as told:
            ask()
        assert sentence in str(told.value)
        assert "--" not in str(told.value)


def test_python_the_study_file_and_tables_mean_the_same_study(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text('[study]\nask = ["mean(age in 0..110)", "proportion(sex in {f, m})"]\nepsilon = 1.0\n')
    asked = qm.Study(["mean(age in 0..110)", "proportion(sex in {f, m})"], epsilon=1)
    by_name = qm.Study({"age": (0, 110), "sex": ["f", "m"]}, ["mean(age)", "proportion(sex)"], epsilon=1)
    mixed = qm.Study({"age": (0, 110)}, ["mean(age)", "proportion(sex in {f, m})"], epsilon=1)
    assert asked == by_name == mixed == qm.Study.load(study)


@given(st.data())
def test_a_study_file_of_questions_means_the_study_of_tables(data: st.DataObject) -> None:
    names = data.draw(st.lists(_NAMES.filter(bool), min_size=2, max_size=4, unique=True))
    columns = [data.draw(columns_of(name)) for name in names]
    statistics = [
        {"kind": "proportion" if {"levels", "boolean"} & column.keys() else "mean", "column": column["name"]}
        for column in data.draw(st.lists(st.sampled_from(columns), unique_by=lambda column: column["name"]))
    ]
    terms = StudyTerms.parse({"column": columns, "statistic": statistics})
    text = study_text(terms, asks=True)
    again = StudyTerms.from_tables(tomllib.loads(text), "study.toml")
    assert "ask = [" in text
    assert "[[column]]" not in text
    assert again.context() == terms.context()


def test_a_document_of_before_is_written_in_questions_that_say_what_it_meant() -> None:
    columns = [{"name": name, "low": 0, "high": 1} for name in "xy"]
    statistics = [{"kind": "linear-regression", "formula": "y ~ x"}]
    terms = StudyTerms.parse({"column": columns, "statistic": statistics})
    text = study_text(terms, asks=True)
    assert {'  "x in 0..1 [missing=centre]",', '  "linear-regression(y ~ x, robust=false)",'} <= set(text.splitlines())
    assert StudyTerms.from_tables(tomllib.loads(text), "study.toml").context() == terms.context()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "logistic-regression(smoker ~ age)",
            "smoker has no domain. Nothing is said of age either. "
            "For numbers write logistic-regression(smoker in yes/no ~ age in LOW..HIGH), for levels age in {A, B}.",
        ),
        ("crosstab(a, b)", "a has no levels. Nothing is said of b either. Write crosstab(a in {A, B}, b in {A, B})."),
        (
            "paired-difference(x, y)",
            "x has no bounds. Nothing is said of y either. Write paired-difference(x in LOW..HIGH, y in LOW..HIGH).",
        ),
        (
            "linear-regression(y ~ x + z in 0..1)",
            "y has no bounds. Nothing is said of x either. "
            "For numbers write linear-regression(y in LOW..HIGH ~ x in LOW..HIGH + z in 0..1), for levels x in {A, B}.",
        ),
    ],
)
def test_all_columns_without_a_domain_are_told_at_once(text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        _asked(text)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("linear-regression(age in 0..110 ~ sex)", "linear-regression(age in 0..110 ~ sex in LOW..HIGH)"),
        ("histogram(sex)", "histogram(sex in LOW..HIGH)"),
    ],
)
def test_a_column_of_either_kind_is_told_both_ways_to_declare_it(text: str, asked: str) -> None:
    with pytest.raises(InputError) as told:
        _asked(text)
    assert f"sex has no bounds. For numbers write {asked}, for levels sex in {{A, B}}." in str(told.value)


@pytest.mark.parametrize(
    ("cells", "levels"), [("f,m,,f", True), ("3,4,,5", False), ("2020-01-02,", False), (",", False), ("f,3", False)]
)
def test_data_with_texts_leave_levels_alone(cells: str, levels: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["age,sex", *(f"3,{cell}" for cell in cells.split(","))]))
    with pytest.raises(SystemExit):
        main(["run", str(table), "--parties", "2", "linear-regression(age in 0..110 ~ sex)"])
    told = capsys.readouterr().err
    assert ("sex has no levels. Write linear-regression(age in 0..110 ~ sex in {A, B})." in told) == levels
    assert ("sex has no bounds. For numbers write " in told) != levels


@pytest.mark.parametrize(
    "text",
    [
        "mean(bmi, where=glucose > 80)",
        "mean(bmi, where=glucose > 80 and clinic == 'A' and smoker)",
        "mean(bmi in 10..60, where=glucose > 80 and not smoker)",
        "table-1(bmi, glucose, where=visit >= '2021-05-01')",
        "group-means(bmi, by=sex, where=ward in ('A', 'B') or bmi > 20)",
        "table-1()",
    ],
)
def test_one_error_says_all_that_a_line_lacks(text: str) -> None:
    """What it says to write and to add is a study."""

    def filled(part: str) -> str:
        return part.replace("LOW..HIGH", "10..60").replace("FIRST..LAST", "2020-01-01..2026-01-01")

    with pytest.raises(InputError) as told:
        StudyTerms.parse({"name": "s", "ask": [text]})
    said = str(told.value)
    added = re.findall(r'"([^"]+ in [^"]+)"', said)
    written = re.search(r"(?:[Ww]rite|such as) (.+?\))(?:\.|, for levels)", said)
    assert StudyTerms.parse({"name": "s", "ask": [filled(written[1] if written else text), *map(filled, added)]}).statistics
