"""Tables of results in documents: every kind of statistic in every format, read again from the document, with hostile names."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.cli.main import main
from quietmean.core.codec import canonical_json, to_plain
from quietmean.core.domain import PrivacyUnit
from quietmean.core.extensions import command_for
from quietmean.statistics import Answer, Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies import StudyOutcome
from quietmean.studies.outcome.tables import FORMATS, ResultTable, tables_of, write_tables
from quietmean.studies.outcome.tables.build import clean, mark
from quietmean.studies.outcome.tables.documents import latex
from support.every_kind import COLUMNS, all_statistics
from support.odd_answers import odd_answers
from support.outcomes import EVERY_KIND, finished
from support.refusals import refused
from support.tables_again import READERS, check, of_latex, plain

# What no text for people may have.
WRONG = re.compile(r"\bnan\b|\bNone\b|\binf\b|(?<![\d.e])[-\u2212]0(\.0+)?(?![\d.])|\bdict\b|\['|^:")
NOISES = (1e-3, 0.3, 30.0)
TABLE_1 = "table-1(x, cause, yes, by=arm, medians=true)"
TEXTS = (*EVERY_KIND, TABLE_1, "crosstab(yes, cause)", "mean(x, cluster=cause)", "rates(yes, x, by=yes)")
# As names of columns and levels; each stands for itself in every format but for what is not seen.
HOSTILE = (
    "<script>alert(1)</script>",
    "a & b_c % d # e $ f { } ~ ^ \\ g",
    "line one\nline two\ttab",
    "=1+1",
    "@sum(a1)",
    "-- --- ---- [x] | \" ' `",
    "\u05d2\u05d9\u05dc \u202eevil\u202c \u0639\u0645\u0631",
    "\x00\x07\x1b[31m",
    "long " * 80,
    "\\input{/etc/passwd} \\end{longtable}",
    "]]> &amp; &#60; <<a>> <%b%> {{c}}",
    "\ud800 \ufffe",
)


@cache
def outcome(noise: float, *texts: str) -> StudyOutcome:
    return finished(*texts, noise=noise)


def answers(noise: float) -> tuple[Answer, ...]:
    """Of all texts; what has many coordinates is a study of its own."""
    found = {one.statistic.text: one for one in outcome(noise, *(text for text in TEXTS if text != TABLE_1)).answers}
    return (*found.values(), *outcome(noise, TABLE_1).answers)


@cache
def document(noise: float) -> dict[str, Any]:
    return {**outcome(noise, TABLE_1).to_json(), "statistics": [one.to_json() for one in answers(noise)]}


def renamed(told: Any, change: Callable[[str], str]) -> Any:
    if isinstance(told, Mapping):
        return {change(str(name)): renamed(one, change) for name, one in told.items()}
    if isinstance(told, list | tuple):
        return [renamed(one, change) for one in told]
    return change(told) if isinstance(told, str) else told


def hostile(name: str) -> dict[str, Any]:
    """A result whose columns, levels and groups have this name in theirs."""
    found = document(0.3)
    kept = [one for one in found["statistics"] if one["kind"] in ("table-1", "group-means", "linear-regression", "crosstab")]

    def change(text: str) -> str:
        return re.sub(r"\bnobody\b|\bcause\b|\barm\b", lambda one: f"{name}{one[0]}", text)

    return {**found, "statistics": [renamed(one, change) for one in kept]}


def texts_of(table: ResultTable) -> list[str]:
    cells = [cell for line in table.lines for cell in line.cells]
    return [table.title, *table.heads, *cells, *table.notes, *(text for _, text in table.footnotes)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("end", FORMATS)
def test_every_statistic_in_every_format(end: str, noise: float, tmp_path: Path) -> None:
    found = document(noise)
    for table in tables_of(found):
        for text in texts_of(table):
            assert not WRONG.search(text), text
            # What heads the levels of a column has no number.
            assert all(line.cells[0] and (line.cells[1] or line.cells[0].endswith(", n (%)")) for line in table.lines)
        assert all(len(line.cells) == len(table.heads) for line in table.lines)
    check(found, tmp_path, end)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("place", range(len(TEXTS)))
@settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate))
@given(data=st.data())
def test_nothing_odd_is_in_a_table(place: int, data: st.DataObject) -> None:
    told = data.draw(odd_answers(answers(0.3)[place])).to_json()
    for table in tables_of({**document(0.3), "statistics": [told]}):
        for text in texts_of(table):
            assert not WRONG.search(text), text


RARE = (None, "no records of a group", "nothing present", "always the same")


def seldom(rare: str | None, count: int = 240) -> NDArray[np.float64]:
    """Records of the columns of every kind: as usual, or of an odd sort."""
    rng = np.random.default_rng(3)
    widths = [(one.low, one.high) if one.numeric else (0, len(one.categories)) for one in COLUMNS]
    found = np.column_stack([rng.uniform(low, high, count) for low, high in widths])
    for place, one in enumerate(COLUMNS):
        found[:, place] = found[:, place] if one.numeric else np.floor(found[:, place])
    if rare == "no records of a group":
        found[:, 3:] = 0.0
    elif rare == "nothing present":
        found[:] = math.nan
    elif rare == "always the same":
        found[:] = found[0]
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("unit", "rare", "noise"),
    [
        *((PrivacyUnit.RECORD, rare, 3.0) for rare in RARE),
        (PrivacyUnit.RECORD, "no records of a group", 1e-6),
        (PrivacyUnit.PARTY, None, 3.0),
    ],
)
def test_every_kind_of_every_unit_and_of_odd_records(unit: PrivacyUnit, rare: str | None, noise: float, tmp_path: Path) -> None:
    records = seldom(rare)
    told = []
    for statistic in all_statistics(unit):
        workload = Workload(COLUMNS, (statistic,), unit)
        parts = [workload.encode(part) for part in np.array_split(records, 40)]
        weight = sum(part.weight for part in parts)
        mean = sum((part.vector for part in parts), np.zeros(workload.dimension)) / weight
        deviation = noise * workload.sensitivity / weight
        mean = mean + deviation * np.random.default_rng(5).standard_normal(len(mean))
        told.append(workload.decode(mean, deviation, weight)[0].to_json())
    result = {**document(0.3), "statistics": told}
    for table in tables_of(result):
        for text in texts_of(table):
            assert not WRONG.search(text), text
    for end in (".html", ".csv", ".tex"):
        check(result, tmp_path, end)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("end", FORMATS)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_texts(name: str, end: str, tmp_path: Path) -> None:
    found = hostile(name)
    assert any(clean(name).split(" ")[0] in text for table in tables_of(found) for text in texts_of(table))
    check(found, tmp_path, end)


@given(text=st.text(max_size=40))
def test_latex_prints_what_was_said(text: str) -> None:
    shown = clean(text)
    assert plain(of_latex(latex(shown).replace("~", " "))) == plain(shown.replace("\u00a0", " "))


def test_a_text_for_documents_has_only_what_is_seen() -> None:
    assert clean("a\nb\tc") == "a b c"
    assert clean("\u202eabc\u202c\x00\ud800") == "abc\ufffd\ufffd"
    assert [mark(place) for place in (0, 25, 26, 52)] == ["a", "z", "aa", "aaa"]


@pytest.mark.slow
def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for end in FORMATS:
        path = tmp_path / f"tables{end}"
        write_tables(document(0.3), path)
        before = path.read_bytes()
        # Of a receipt, whose keys are sorted.
        write_tables(json.loads(canonical_json(to_plain(document(0.3)))), path)
        assert path.read_bytes() == before


@pytest.mark.slow
def test_tables_take_the_place_of_tables_only(tmp_path: Path) -> None:
    for end in FORMATS:
        path = tmp_path / f"tables{end}"
        path.write_bytes(b"something else")
        refused("nothing is overwritten", write_tables, document(0.3), path, force=True)
        path.unlink()
        write_tables(document(0.3), path)
        refused(r"exists already.*or replace it with force=True", write_tables, document(30.0), path)
        write_tables(document(30.0), path, force=True)


def table_of(text: str, noise: float) -> ResultTable:
    found = document(noise)
    (told,) = [one for one in found["statistics"] if one["name"] == parse_statistic(read_text(text)).text]
    return tables_of({**found, "statistics": [told]})[0]


def test_table_1_has_groups_with_their_numbers() -> None:
    table = table_of(TABLE_1, 0.3)
    assert table.heads[0] == ""
    assert re.fullmatch(r"a \(n = [\d,]+\)", table.heads[1])
    assert re.fullmatch(r"nobody \(n < \d+\)", table.heads[3])
    assert table.heads[4] == "p"
    rows = {line.cells[0]: line for line in table.lines}
    assert re.fullmatch(r"[\d.]+ \([\d.]+\)", rows["x, mean (SD)"].cells[1])
    assert re.fullmatch(r"[\d.]+ \[[\d.]+ to [\d.]+\]", rows["x, median [quartiles]"].cells[1])
    assert re.fullmatch(r"\d+ \([\d.]+\)", rows["cause = p"].cells[1])
    # Nobody lacks a value there: noise hides that of most groups.
    few = [cell for name in ("yes", "cause") for cell in rows[f"{name}, missing, n (%)"].cells[1:3]]
    assert any(re.fullmatch(r"< \d+", cell) for cell in few), few
    assert rows["x, mean (SD)"].cells[3] == "hidden"
    assert rows["x, mean (SD)"].marks == ("a",)
    # Many hidden cells are one footnote, not one each.
    assert len(table.footnotes) <= 4
    assert "p: Pearson's chi-squared test, Welch's analysis of variance." in table.notes


def test_a_table_says_what_the_study_cost() -> None:
    for table in tables_of(document(0.3)):
        promised = (
            r"Differentially private: guaranteed \u03b5 \u2264 [\d.]+, realised \u03b5 = [\d.]+, at \u03b4 = 1e-06 "
            r"for one record, against .*p-values\."
        )
        assert re.fullmatch(promised, table.notes[-1])


def test_a_cross_table_has_rows_columns_and_percentages() -> None:
    (told,) = [one for one in document(0.3)["statistics"] if one["name"] == "crosstab(yes, cause)"]
    (table,) = tables_of({**document(0.3), "statistics": [told]})
    assert table.heads == ("", "none", "p", "q", "missing")
    assert [line.cells[0] for line in table.lines] == ["no", "yes", "missing"]
    parts = [re.fullmatch(r"([\d,]+) \(([\d.]+)\)", cell) for cell in table.lines[0].cells[1:4]]
    counts, percentages = zip(*((float(one[1]), float(one[2])) for one in parts if one is not None), strict=True)
    assert abs(sum(percentages) - 100) < 0.2
    assert all(abs(100 * count / sum(counts) - part) < 0.2 for count, part in zip(counts, percentages, strict=True))
    assert re.fullmatch(r"< \d+", table.lines[2].cells[1])
    assert "Pearson's chi-squared test" in "\n".join(table.notes)


def test_a_table_of_two_by_two_has_its_ratios_apart() -> None:
    rng = np.random.default_rng(8)
    columns = Columns([Column(name="drug", boolean=True), Column(name="ill", boolean=True)])
    records = rng.integers(0, 2, (900, 2)).astype(np.float64)
    cross, ratios = tables_of(finished("crosstab(drug, ill)", columns=columns, records=records, noise=0.1).to_json())
    assert [line.cells[0] for line in cross.lines] == ["no", "yes", "missing"]
    assert [line.cells[0] for line in ratios.lines] == ["odds-ratio", "risk-ratio", "risk-difference"]
    assert ratios.heads[1:3] == ("estimate", "95 % interval")
    # What is flagged of cells stands below the cells.
    assert any("The noise hides how many" in text for _, text in cross.footnotes)
    assert ratios.footnotes == ()


def test_ratios_have_their_names() -> None:
    logistic = table_of("logistic-regression(yes ~ x + arm)", 1e-3)
    assert logistic.heads == ("", "log odds ratio", "95 % for the noise alone", "odds ratio", "95 % of it", "n")
    slope = next(line for line in logistic.lines if line.cells[0] == "x")
    assert abs(float(slope.cells[3]) - 1) < 0.1
    assert table_of("rates(yes, x, by=yes)", 0.3).heads[1] == "estimate"
    assert [head for head in table_of("hazard-ratio(x, yes, by=arm, bins=4)", 0.3).heads if "ratio" in head] == ["hazard ratio"]
    assert table_of("linear-regression(y ~ x + arm)", 0.3).heads[1:4] == ("coefficient", "95 % interval", "p")


def test_comparisons_of_arms_say_until_when_and_from_which_events() -> None:
    rng = np.random.default_rng(5)
    times = rng.uniform(0, 9.9, 4000)
    columns = Columns([Column(name="t", low=0, high=10), Column(name="e", boolean=True), Column(name="arm", levels=("a", "b"))])
    records = np.column_stack([times, rng.random(4000) < 0.7, rng.integers(0, 2, 4000)]).astype(np.float64)
    texts = ("hazard-ratio(t, e, by=arm, bins=24)", "survival(t, e, by=arm, bins=24)")
    for table in tables_of(finished(*texts, columns=columns, records=records, noise=0.5).to_json()):
        (about,) = [note for note in table.notes if note.startswith("Arms are compared until ")]
        found = re.match(r"Arms are compared until ([\d.]+); events: a about ([\d,]+), b about ([\d,]+)", about)
        assert found is not None
        before = times <= float(found[1])
        for place, told in enumerate(found.groups()[1:]):
            exactly = ((records[:, 2] == place) & (records[:, 1] == 1) & before).sum()
            assert abs(float(told.replace(",", "")) - exactly) < 40


def test_one_line_for_many_hidden_terms() -> None:
    (table,) = tables_of(finished("roc(risk, yes, bins=4)", noise=100.0).to_json())
    lines = [line for line in table.lines if line.cells[0].startswith("hidden by the noise: ")]
    assert len(lines) == 1
    assert "more" in lines[0].cells[0]
    assert not any("hidden" in line.cells[1:] for line in table.lines)


# --- the command ---


def attempt(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = 0
    try:
        main(shlex.split(line))
    except SystemExit as end:
        code = int(end.code or 0)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "receipt.json"
    finished("table-1(by=arm)", "linear-regression(y ~ x + arm)").save_receipt(path)
    return path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("end", FORMATS)
def test_certify_writes_tables_of_a_receipt(end: str, receipt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, errors = attempt(f"verify receipt receipt.json --table table1{end}", capsys)
    assert (code, errors) == (0, "")
    assert f"tables in table1{end}" in out
    read = READERS[end](receipt.with_name(f"table1{end}"))
    assert [len(rows) > 4 for rows, _ in read] == [True, False] or len(read) == 2
    # Again the same is no mistake, and JSON stays one document.
    code, out, errors = attempt(f"verify receipt receipt.json --table table1{end} --json", capsys)
    assert (code, errors) == (0, "")
    assert "max_epsilon" in json.loads(out)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--table table1.pdf", "tables cannot be written to table1.pdf. Let its name end with .docx, .tex, .html or .csv"),
        ("--table table1", "tables cannot be written to table1. Let its name end with"),
        ("--table nowhere/table1.csv", "no folder nowhere"),
        ("--table page.html --report page.html", "would be one file"),
    ],
)
def test_one_sentence_before_anything_is_computed(
    options: str, told: str, receipt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, errors = attempt(f"verify receipt receipt.json {options}", capsys)
    assert (code, out) == (2, "")
    assert told in errors
    assert len(errors.splitlines()) == 1
    assert [one.name for one in receipt.parent.iterdir()] == ["receipt.json"]


def test_a_file_without_a_result_has_no_tables(receipt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = json.loads(receipt.read_text())
    del raw["result"]
    receipt.write_text(json.dumps(raw))
    code, out, errors = attempt("verify receipt receipt.json --table table1.csv", capsys)
    assert (code, out) == (2, "")
    assert "no result to make tables of" in errors


def test_what_is_missing_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *more: Any, **kept: Any) -> Any:
        if name.split(".")[0] in ("docx", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
        return real(name, *more, **kept)

    monkeypatch.setattr("quietmean.core.extensions.import_module", without)
    remedy = rf"needs the extra 'documents', which is not installed. Run {re.escape(command_for('documents'))}\.$"
    for end in (".docx", ".tex", ".html"):
        refused(remedy, write_tables, document(0.3), tmp_path / f"tables{end}")
    write_tables(document(0.3), tmp_path / "tables.csv")
    assert html.escape("<") not in (tmp_path / "tables.csv").read_text(encoding="utf-8")
