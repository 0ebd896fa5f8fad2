"""Names of columns, however strange, wherever a name can stand: between backquotes each means the column, and is written so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.learning.models.formulas import FormulaTerms
from quietmean.statistics import Column, Columns, read_text
from quietmean.statistics.names import in_plain_words, quoted, split, unquoted
from quietmean.statistics.transforms import Transform
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import study_text
from support.refusals import refused, refused_rows

NAMES = (
    # Of tables as people have them.
    "systolic bp", "a+b", "a,b", "x-ray", "b.p", "1B", "年齢", "µg", "weight (kg)", "BMI [kg/m2]", "age>65", "a=b",
    "men's age", "%change",
    "#", "a;b", "a|b", "$x", "€", "a/b", "a*b", "a^b", "a:b", "a-1", "a  b", "a b c d", "a@b", "what?", "Größe", "naïve",
    "возраст",
    "العمر", "गिनती", "👶", "x²", "½", "x_1", "_", "__", "1", "0", "1e5", "0x1F", "1_000", "2024-01-02", "T1/2", "x" * 60,
    # That mean something else to a grammar.
    "log", "abs", "and", "in", "not", "class", "lambda", "True", "None", "C", "I", "bs", "missing", "where", "level=f", "by=y",
    "share",
    "NaN", "inf", "Intercept", "(Intercept)", "I(x)", "C(x)", "log(y)", "y ~ x", "~", "-", "+", ",", ".", "-1", "y:x",
    "name_0_",
    "present(y)", "raw(y)",
    # That a grammar may take apart.
    "a(b", "a)b", "(", ")(", "[x", "x]", "a`b", "`a`", "``", "'q'", '"q"', "'", '"', "a'b'c", "a\\b", "a\\nb", "é", "e\u0301",
    "ﬁn", "ſ", "Å",
    "𝑥", "ª", " lead", "trail ", "two\tin", "two\nlines", "__class__", "a.b.c",
)  # fmt: skip
PLAIN = "zz"
ROWS = np.random.default_rng(5).uniform(1.0, 9.0, (40, 3))
LEVELS = np.random.default_rng(6).integers(0, 2, (40, 1)).astype(np.float64)


def back(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def study(name: str, declared: dict[str, Any], *texts: str, more: Sequence[dict[str, Any]] = ()) -> StudyTerms:
    """Of the column that is asked about, and two of numbers and one with levels besides."""
    columns = [
        {"name": name, "missing": "indicator", **declared},
        {"name": "y", "low": 0, "high": 10, "missing": "indicator"},
        {"name": "x", "low": 0, "high": 10, "missing": "indicator"},
        {"name": "group", "levels": ["f", "m"]},
        *more,
    ]
    return StudyTerms.parse({"column": columns, "statistic": [read_text(text) for text in texts]})


def vector(asked: StudyTerms, numeric: bool) -> Array:
    first = ROWS[:, :1] if numeric else LEVELS
    rows = np.hstack([first, ROWS[:, 1:], LEVELS[::-1]])
    own = [column.name for column in asked.columns if not column.origin]
    assert len(own) == rows.shape[1]
    derived = [column for column in asked.columns if column.origin]
    for column in derived:
        values = {each.name: rows[:, place] for place, each in enumerate(asked.columns[: rows.shape[1]])}
        rows = np.hstack([rows, Transform(column.origin).values(values)[:, None]])
    return asked.workload.encode(rows).vector


NUMBER, BOOLEAN = {"low": 0, "high": 10}, {"boolean": True}
# Each text has NAME where the name stands between backquotes.
PLACES: dict[str, dict[str, Any]] = {
    "mean(NAME)": NUMBER, "sum(column=NAME)": NUMBER, "mean(y, cluster=NAME)": {"levels": ["a", "b"]},
    "group-means(y, by=NAME)": {"levels": ["a", "b"]}, "group-means(y, NAME)": {"levels": ["a", "b"]},
    "correlation(NAME, y, x)": NUMBER, "correlation(x, NAME)": NUMBER, "table-1(NAME, x, by=group)": NUMBER,
    "crosstab(NAME, group)": BOOLEAN, "count(NAME)": BOOLEAN, "proportion(NAME, level=yes)": BOOLEAN,
    "mean(y, where=NAME > 3)": NUMBER, "mean(y, where=NAME)": BOOLEAN, "count(where=NAME >= 3)": NUMBER,
    "mean(y, where=not NAME and group == 'f')": BOOLEAN, "mean(y, where=NAME in ('yes', 'no'))": BOOLEAN,
    "mean(y, where=abs(NAME - x) < 2 * NAME)": NUMBER, "mean(NAME, where=NAME ^ 2 > 9)": NUMBER,
    "linear-regression(y ~ NAME)": NUMBER, "linear-regression(NAME ~ y + x)": NUMBER,
    "linear-regression(y ~ x + NAME + group)": BOOLEAN,
    "linear-regression(formula=y ~ NAME)": NUMBER, "logistic-regression(NAME ~ y)": BOOLEAN,
    "linear-regression(y ~ x*NAME)": BOOLEAN, "linear-regression(y ~ log(NAME + 1) + x)": NUMBER,
    "linear-regression(log(NAME + 1) ~ I(x^2) + x)": NUMBER,
    "meta-analysis(of=mean(NAME), by=group)": NUMBER, "meta-analysis(of=linear-regression(y ~ NAME), by=group)": NUMBER,
    "quantiles(NAME, 0.5, bins=8)": NUMBER, "roc(y, NAME)": BOOLEAN, "survival(y, NAME, by=group)": BOOLEAN,
}  # fmt: skip


def test_there_are_eighty() -> None:
    assert len(set(NAMES)) >= 80
    refused("character 0", Column, name="a\0b", low=0, high=1)


@pytest.mark.sampled(300)
@pytest.mark.parametrize("text", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_between_backquotes_is_the_column(name: str, text: str) -> None:
    declared = PLACES[text]
    asked = study(name, declared, text.replace("NAME", back(name)))
    same = study(PLAIN, declared, text.replace("NAME", PLAIN))
    # Another name changes nothing but names.
    assert np.array_equal(vector(asked, declared is NUMBER), vector(same, declared is NUMBER))
    # What is written of it is read as the same, in a report and in a file.
    (statistic,) = asked.workload.statistics
    again = StudyTerms.parse({"column": [*asked.tables()["column"]], "statistic": [read_text(statistic.text)]})
    assert again.workload.statistics == (statistic,)
    assert StudyTerms.from_tables(asked.tables(), "study").tables() == asked.tables()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", NAMES)
def test_a_study_file_has_the_name(name: str, tmp_path: Path) -> None:
    asked = study(name, NUMBER, f"mean({back(name)})", f"linear-regression(y ~ x*{back(name)})")
    path = tmp_path / "study.toml"
    path.write_text(study_text(asked), encoding="utf-8")
    assert StudyTerms.load(path).sealable().tables() == asked.sealable().tables()


@pytest.mark.parametrize("name", NAMES)
def test_a_transform_has_the_name(name: str) -> None:
    for text in ("log(NAME + 1)", "NAME^2", "NAME >= 3", "(NAME - NAME) / 2 + NAME"):
        asked, same = Transform(text.replace("NAME", back(name))), Transform(text.replace("NAME", PLAIN))
        assert asked.sources == (name,)
        assert np.array_equal(asked.values({name: ROWS[:, 0]}), same.values({PLAIN: ROWS[:, 0]}))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_has_the_name(name: str) -> None:
    asked = study(name, NUMBER, f"linear-regression(y ~ {back(name)} + x, expect={back(name)} 0.3 missing 0.1)")
    assert asked.workload.statistics[0].expect == tuple(sorted({name: 0.3, "missing": 0.1}.items()))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", NAMES)
def test_a_model_by_rounds_has_the_name(name: str) -> None:
    def terms(own: str, formula: str) -> FormulaTerms:
        return FormulaTerms(formula, Columns([Column(name=own, low=0, high=10), Column(name="y", boolean=True)]))

    for text in ("y ~ NAME", "y ~ log(NAME + 1) + I(NAME**2)", "y ~ poly(NAME, 2)", "y ~ 0 + NAME"):
        asked, same = terms(name, text.replace("NAME", back(name))), terms(PLAIN, text.replace("NAME", PLAIN))
        assert asked.used == (name,)
        assert np.array_equal(asked.design({name: ROWS[:, 0]}), same.design({PLAIN: ROWS[:, 0]}))
        assert len(asked.groups) == len(same.groups)
        assert all(name in term for term in asked.names if term != "Intercept" and "`" not in name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_written_as_it_is_read(name: str) -> None:
    for separators in ("", ",", "~+", ", "):
        text = quoted(name, separators)
        assert unquoted(text) == name
        for separator in separators:
            assert [unquoted(part) for part in split(separator.join(["p", text, "q"]), separator)] == ["p", name, "q"]
    text, words = in_plain_words(f"{back(name)} + log({back(name)})")
    assert set(words.values()) == {name}
    assert text.isascii()


# What stands without backquotes where only separators end a name: as people wrote names before there were any.
@pytest.mark.parametrize(
    "name", ["systolic bp", "x-ray", "b.p", "1B", "年齢", "weight (kg)", "men's age", "%change", "a/b", "T1/2", "age>65"]
)
def test_a_name_without_a_separator_needs_no_backquotes(name: str) -> None:
    texts = ("mean(NAME)", "correlation(NAME, y)", "group-means(y, by=group, where=x > 1)", "linear-regression(y ~ NAME + x)")
    for text in texts:
        asked = study(name, NUMBER, text.replace("NAME", name))
        assert np.array_equal(vector(asked, True), vector(study(PLAIN, NUMBER, text.replace("NAME", PLAIN)), True))


@pytest.mark.parametrize("text", ["log(systolic bp)", "x-ray ~ 1", "1B > 3", "a.b + 1"])
def test_a_text_that_cannot_be_read_says_how_names_are_written(text: str) -> None:
    with pytest.raises(InputError, match="between backquotes, as in `systolic bp`"):
        _ = Transform(text).sources


# --- formulas of more than columns ----------------------------------------------------------------------------------------------

FORMULAS = {
    "y ~ x*smoker": ("y ~ x + smoker + x:smoker", {"x:smoker": "(x) * (smoker)"}),
    "y ~ x:z": ("y ~ x:z", {"x:z": "(x) * (z)"}),
    "y ~ (x + z)^2": ("y ~ x + z + x:z", {"x:z": "(x) * (z)"}),
    "y ~ (x + z)**2": ("y ~ x + z + x:z", {"x:z": "(x) * (z)"}),
    "y ~ x/z": ("y ~ x + x:z", {"x:z": "(x) * (z)"}),
    "y ~ x + z - z": ("y ~ x", {}),
    "y ~ I(x^2) + x": ("y ~ x^2 + x", {"x^2": "x^2"}),
    "y ~ I(x**2) + x": ("y ~ x^2 + x", {"x^2": "x^2"}),
    "y ~ I(x + z)": ("y ~ `x + z`", {"x + z": "x + z"}),
    "y ~ I(x > 5)": ("y ~ x > 5", {"x > 5": "x > 5"}),
    "log(y) ~ log(x)": ("log(y) ~ log(x)", {"log(y)": "log(y)", "log(x)": "log(x)"}),
    "y ~ log(x)*z": ("y ~ log(x) + z + log(x):z", {"log(x)": "log(x)", "log(x):z": "(log(x)) * (z)"}),
    "y ~ C(sex)": ("y ~ sex", {}),
    "y ~ C(sex) + 1": ("y ~ sex", {}),
    "y ~ 1 + x": ("y ~ x", {}),
    "y ~ x + sqrt(z)": ("y ~ x + sqrt(z)", {"sqrt(z)": "sqrt(z)"}),
}


def formula_study(kind: str, formula: str) -> StudyTerms:
    columns: list[dict[str, Any]] = [
        {"name": "y", "boolean": True} if kind.startswith("logistic") else {"name": "y",
        "low": 1, "high": 10, "missing": "indicator"},
        *({"name": name, "low": 1, "high": 10, "missing": "indicator"} for name in ("x", "z")),
        {"name": "smoker", "boolean": True}, {"name": "sex", "levels": ["f", "m"]}, {"name": "nought", "low": 0, "high": 1},
    ]  # fmt: skip
    return StudyTerms.parse({"column": columns, "statistic": [read_text(f"{kind}({formula})"), {"kind": "table-1", "by": "sex"}]})


@pytest.mark.parametrize("kind", ["linear-regression", "logistic-regression"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_written_out_as_columns(formula: str, kind: str) -> None:
    if kind.startswith("logistic") and formula.startswith("log("):
        pytest.skip("an outcome of two levels has no logarithm")
    asked = formula_study(kind, formula)
    written, derived = FORMULAS[formula]
    assert asked.statistics[0]["formula"] == written
    assert {column.name: column.origin for column in asked.columns[6:]} == derived
    assert asked.workload.dimension > 0
    # What is asked of all columns is not asked of those that only terms are.
    assert {"columns"} <= set(asked.statistics[1]) or not derived
    # Whoever reads the file has nothing left to write out.
    tables = asked.tables()
    assert StudyTerms.from_tables(tables, "study").tables() == tables


@pytest.mark.parametrize("kind", ["linear-regression", "logistic-regression"])
@refused_rows("a_formula_that_no_columns_stand_for_says_the_way")
def test_a_formula_that_no_columns_stand_for_says_the_way(formula: str, says: str, kind: str) -> None:
    assert says in refused("", formula_study, kind, formula)


ANSWERED: dict[str, Callable[[Array, Array], Array]] = {
    "y ~ x*z": lambda x, z: np.column_stack([np.ones_like(x), x, z, x * z]),
    "y ~ I(x^2) + log(z)": lambda x, z: np.column_stack([np.ones_like(x), x**2, np.log(z)]),
}


@pytest.mark.parametrize("formula", ANSWERED)
def test_a_formula_is_answered_as_least_squares_answers_it(formula: str) -> None:
    tables = formula_study("linear-regression", formula).tables()
    asked = StudyTerms.from_tables({**tables, "statistic": tables["statistic"][:1]}, "study")
    rng = np.random.default_rng(3)
    x, z = rng.uniform(1, 10, (2, 500))
    y = np.clip(2 + 0.3 * x + 0.05 * x * z + rng.normal(0, 0.1, 500), 1, 10)
    values = {"y": y, "x": x, "z": z, "smoker": x * 0, "sex": x * 0, "nought": x * 0}
    rows = np.column_stack([Transform(c.origin).values(values) if c.origin else values[c.name] for c in asked.columns])
    encoded = asked.workload.encode(rows)
    (answer,) = asked.workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
    expected = np.linalg.lstsq(ANSWERED[formula](x, z), y, rcond=None)[0]
    assert np.allclose(answer.estimates.value, expected, atol=1e-6)


# --- a count of records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["public", "private"])
@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("x >= 5", lambda x, group: x >= 5),
        ("group == 'm'", lambda x, group: group == 1),
        ("not (x >= 5 and group == 'm')", lambda x, group: (x < 5) | (group == 0)),
        ("x >= 100", lambda x, group: x > 100),
        ("x >= 0 or x < 0", lambda x, group: ~np.isnan(x)),
    ],
)
def test_a_count_of_records_needs_no_column(where: str, holds: Callable[[Array, Array], Array], count: str) -> None:
    columns = [{"name": "x", "low": 0, "high": 10, "missing": "indicator"}, {"name": "group", "levels": ["f", "m"]}]
    private = {"count": "private", "most_records": 50} if count == "private" else {}
    texts = [f"count(where={where})", "mean(x)"]
    asked = StudyTerms.parse({"column": columns, "statistic": [read_text(text) for text in texts], **private})
    x, group = ROWS[:, 0].copy(), LEVELS[:, 0].copy()
    x[:5], group[3:8] = np.nan, np.nan
    encoded = asked.workload.encode(np.column_stack([x, group]))
    answer = asked.workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0]
    assert answer.statistic.text == texts[0]
    assert float(answer.estimates.value[0]) == pytest.approx(holds(x, group).sum(), abs=1e-6)


@pytest.mark.parametrize("text", ["count()", "count(level=f)", "count(level=f, where=x > 1)"])
def test_a_count_of_nothing_says_what_to_write(text: str) -> None:
    refused(r"Write for example count.age. or count.where=age >= 65..", study, "age", NUMBER, text)
