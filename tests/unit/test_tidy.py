"""Rows of results: what the JSON says, the frame and the CSV file say, of every kind of statistic, whatever the numbers are."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from quietmean.core.codec import canonical_json, to_plain
from quietmean.statistics import Answer, Column, Columns
from quietmean.statistics.estimate import known
from quietmean.statistics.printed import TidyTerms, TidyTests, notes_of, printed_rows, printed_table, shown
from quietmean.statistics.tidy import TERM_COLUMNS, TEST_COLUMNS, Term, terms_of
from support.odd_answers import odd_answers
from support.outcomes import EVERY_KIND, finished, records_of
from support.refusals import refused

PHASES = (Phase.explicit, Phase.generate)
BROOM = ["term", "estimate", "std.error", "conf.low", "conf.high", "statistic", "p.value", "n", "flag"]
# What no text for people may have.
WRONG = re.compile(r"\bnan\b|\bNone\b|\binf\b|(?<![\d.])[-−]0(\.0+)?(?![\d.])")
NOISES = (0.001, 0.3, 30.0)


@cache
def answer(text: str, noise: float = 0.05) -> Answer:
    return finished(text, noise=noise).answers[0]


def through_a_receipt(told: Any) -> Any:
    return json.loads(canonical_json(to_plain(told)))


def same(one: Any, other: Any) -> bool:
    """Of a number of a row and one of JSON, where infinite ones are texts."""
    return other is None if one is None else float(other) == one


@pytest.mark.sampled(11)
@pytest.mark.parametrize("text", EVERY_KIND)
@settings(max_examples=5, deadline=None, derandomize=True, database=None, phases=PHASES)
@given(data=st.data())
def test_rows_say_what_the_estimates_and_the_json_say(text: str, data: st.DataObject) -> None:
    """The estimates themselves, their JSON, and what a receipt keeps of it, whose keys are sorted: all three alike."""
    whole = answer(text) if data.draw(st.booleans()) else data.draw(odd_answers(answer(text)))
    # The summary is plain JSON data already.
    whole = replace(whole, estimates=replace(whole.estimates, summary={}))
    found, document = whole.estimates, whole.to_json()
    rows = TidyTerms.of([document]).rows()
    assert rows == TidyTerms.of([through_a_receipt(document)]).rows()
    assert [row["term"] for row in rows] == list(found.terms)
    assert list(rows[0]) == list(TERM_COLUMNS)
    both = found.of_population
    arrays = {"estimate": found.value, "std.error": found.population, "statistic": found.test_statistic, "p.value": found.p_value}
    arrays |= {"n": None if found.n is None else found.n[:, 0], "noise.std.error": found.standard_error}
    for place, row in enumerate(rows):
        assert row["name"] == whole.statistic.text
        for name, array in arrays.items():
            assert same(row[name], None if array is None else known(float(array[place]))), (row["term"], name)
        for prefix, ends in (("", both), ("noise.", found.of_noise)):
            pair = None if ends is None else known(ends[place].tolist())
            for which, name in enumerate(("conf.low", "conf.high")):
                assert same(row[prefix + name], None if pair is None else pair[which])
        about = {flag.code for flag in found.flags if not flag.terms or row["term"] in flag.terms}
        assert set((row["flag"] or "").split(", ")) - {""} == about
    json_by_term = dict(leaves(document["estimate"]))
    assert [row["estimate"] for row in rows] == [json_by_term[one] for one in json_by_term]
    tests = TidyTests((document,)).rows()
    assert {row["test"]: (row["statistic"], row["p.value"]) for row in tests} == {
        name: (one["statistic"], one["p_value"]) for name, one in document.get("tests", {}).items()
    }
    assert all(row["method"] for row in tests)


def leaves(told: Any, *path: str) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(told, Mapping):
        return [leaf for name, one in told.items() for leaf in leaves(one, *path, name)]
    return [(path, told)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", EVERY_KIND)
@settings(max_examples=5, deadline=None, derandomize=True, database=None, phases=PHASES)
@given(data=st.data())
def test_nothing_odd_is_printed(text: str, data: st.DataObject) -> None:
    whole = data.draw(odd_answers(answer(text, data.draw(st.sampled_from(NOISES)))))
    for texts in printed_rows(terms_of(whole.to_json())):
        assert not WRONG.search("  ".join(texts.values())), texts
        assert texts["estimate"]
    assert not WRONG.search("\n".join(TidyTests((whole.to_json(),)).sentences()))
    assert whole.statistic.text in repr(TidyTerms.of([whole.to_json()])) or len(whole.estimates.terms[0]) > 0
    assert "<table>" in whole.estimates._repr_html_()


@pytest.mark.sampled(32)
@pytest.mark.parametrize("text", EVERY_KIND)
@pytest.mark.parametrize("noise", NOISES)
def test_frames_have_the_rows_and_the_types(text: str, noise: float) -> None:
    found = answer(text, noise).estimates
    frame = found.to_frame()
    assert frame.columns == list(TERM_COLUMNS)
    assert frame.columns[1:10] == BROOM
    # An interval is conf.low and conf.high; low and high of an answer are what its terms can be.
    assert not {"low", "high"} & set(frame.columns)
    assert frame.rows(named=True) == found.rows()
    assert {frame.schema[name] for name, kind in TERM_COLUMNS.items() if kind is float} == {polars.Float64()}
    assert {frame.schema[name] for name, kind in TERM_COLUMNS.items() if kind is str} == {polars.String()}


def test_a_frame_of_no_tests_has_its_columns() -> None:
    frame = TidyTests((answer("mean(x)").to_json(),)).to_frame()
    assert frame.columns == list(TEST_COLUMNS)
    assert frame.height == 0


def test_what_a_test_is_called() -> None:
    called = {row["method"] for text in EVERY_KIND for row in TidyTests((answer(text).to_json(),)).rows()}
    assert called >= {"Pearson's chi-squared test", "Welch's analysis of variance", "log-rank test", "Mann-Whitney test"}
    two = finished("group-means(x, by=yes)", "table-1(x, cause, by=yes)").answers
    sentences = TidyTests(tuple(one.to_json() for one in two)).sentences()
    assert [sentence.partition(" = ")[0] for sentence in sentences] == [
        "Welch's analysis of variance: F",
        "Welch's t test: t",
        "cause: Pearson's chi-squared test: chi-squared",
        "x: Welch's t test: t",
    ]


def test_the_statistic_of_a_term_goes_with_its_p_value() -> None:
    """Of the normal or Student's distribution: the larger the statistic, the smaller the p-value."""
    for text in EVERY_KIND:
        rows = [row for row in answer(text).estimates.rows() if row["p.value"] is not None]
        order = sorted(rows, key=lambda row: -abs(row["statistic"]))
        assert [row["p.value"] for row in order] == sorted(row["p.value"] for row in rows)


def test_csv_holds_the_numbers_to_the_last_digit(tmp_path: Path) -> None:
    whole = TidyTerms.of([answer(text).to_json() for text in EVERY_KIND])
    path = tmp_path / "answers.csv"
    whole.to_csv(path)
    read = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    assert len(read) == len(whole.rows())
    for row, texts in zip(whole.rows(), read, strict=True):
        assert texts == {name: "" if value is None else str(value) for name, value in row.items()}


def test_csv_takes_no_other_file_s_place(tmp_path: Path) -> None:
    found, path = answer("mean(x)").estimates, tmp_path / "table.csv"
    path.write_text("age;sex\n1;f\n")
    refused("nothing is overwritten", found.to_csv, path, force=True)
    path.unlink()
    found.to_csv(path)
    # The same content is there already: nothing to do. Another one of the kind is replaced where it is asked for.
    found.to_csv(path)
    other = answer("variance(x)").estimates
    refused("exists already. Name another for the table, or replace it with force=True", other.to_csv, path)
    other.to_csv(path, force=True)
    assert "sd" in path.read_text()


def test_a_summary_without_lines_is_not_a_table() -> None:
    assert printed_table({"table": 3, "until": 4}) is None


DATED = Columns(
    [
        Column.model_validate({"name": "seen", "low": "2019-01-01", "high": "2023-12-31"}),
        Column(name="arm", levels=("a", "b", "c")),
    ]
)


def dated(text: str, noise: float = 1e-4) -> list[Any]:
    rng = np.random.default_rng(2)
    records = np.column_stack([rng.uniform(700, 800, 900), rng.integers(0, 3, 900)])
    return terms_of(finished(text, columns=DATED, records=records, noise=noise).answers[0].to_json())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "days", "lengths"),
    [
        ("mean(seen)", 1, 0),
        ("quantiles(seen)", 3, 0),
        ("group-means(seen, by=arm)", 3, 0),
        ("site-effects(seen, by=arm)", 5, 0),
        ("table-1(seen, by=arm)", 3, 3),
        ("variance(seen)", 0, 2),
    ],
)
def test_dates_come_back_as_dates(text: str, days: int, lengths: int) -> None:
    """Means, quantiles and their intervals are days of the calendar; deviations are lengths, and so are errors."""
    day = re.compile(r"20(20|21)-\d\d-\d\d")
    terms = dated(text)
    found = [term for term in terms if term.since]
    assert len(found) == days
    for term in found:
        texts = shown(term)
        assert day.fullmatch(texts.estimate)
        assert all(len(day.findall(one)) == 2 for one in (texts.population, texts.noise))
        assert texts.population.split(" to ")[0] <= texts.estimate <= texts.population.split(" to ")[1]
        assert texts.error.endswith(" days")
        assert term.row()["since"] == "2019-01-01"
        assert 690 < term.row()["estimate"] < 810
    others = [term for term in terms if not term.since and (term.own.endswith("sd") or text.startswith("variance"))]
    assert len(others) == lengths
    assert not any(day.search(shown(term).estimate) for term in others)


def test_one_line_says_what_many_flags_say() -> None:
    flags = [{"code": "few", "message": f"bin {place}: too few", "terms": [f"bin {place}"]} for place in range(11)]
    flags += [{"code": "coarse-bins", "message": "choose more bins", "terms": []}] * 2
    notes = notes_of(flags)
    assert notes == ["bin 0: too few (and so for 10 more: bin 1, bin 2, bin 3 ...)", "choose more bins"]


def test_no_number_of_one_flag_is_said_of_others() -> None:
    """Of flags of one kind each has an upper end of its own, or is worded in its own way."""
    flags = [{"code": "few", "message": f"bin {place}: fewer than {9 + place}", "terms": [f"{place}"]} for place in range(5)]
    assert notes_of(flags) == ["bin 0: fewer than 9 (and 4 more, each with its own number: bin 1, bin 2, bin 3 ...)"]
    others = [{"code": "few", "message": f"level {text}", "terms": []} for text in ("a: is rare", "b: is left out", "c: is gone")]
    assert notes_of(others) == ["level a: is rare (and 2 more of this kind)"]


def test_an_interval_has_the_digits_of_its_own_width() -> None:
    """Bins widen intervals beyond what the error says; whole numbers are shown without decimals."""

    def texts(estimate: float, error: float, ends: tuple[float, float]) -> tuple[str, str]:
        found = shown(
            Term("a", "quantiles", "", "a", estimate, math.nan, (math.nan, math.nan), error, ends, math.nan, math.nan, 9.0)
        )
        return found.estimate, found.noise

    assert texts(1264.73, 9.5, (1195.93, 1330.51)) == ("1,264.7", "1,196 to 1,331")
    assert texts(12.34, 0.12, (12.1, 12.58)) == ("12.34", "12.10 to 12.58")
    assert texts(4.0, 0.0036, (4.0, 4.0)) == ("4", "4 to 4")
    assert texts(4.0, 0.0036, (4.0, 4.01)) == ("4.0000", "4.0000 to 4.0100")


def test_a_curve_of_which_nothing_is_known_has_no_quantiles_beyond_it() -> None:
    """ "Not reached" is said of a curve that stays above, not of one that noise hides; one line says why, for both arms."""
    found = answer("survival(x, yes, by=arm)", 1e3).to_json()
    terms = terms_of(found)
    assert {shown(term).estimate for term in terms} == {"hidden"}
    assert {shown(term).noise for term in terms} == {"–"}
    assert "not-reached" not in {flag["code"] for flag in found["flagged"]}
    about = [note for note in notes_of(found["flagged"]) if "too few are at risk for the noise. The curve ends there" in note]
    assert len(about) == 1
    assert all(f"arm {arm}" in about[0] for arm in ("a", "b"))


def test_what_noise_hides_is_below_a_number_or_hidden() -> None:
    texts = {term.term: shown(term).estimate for term in terms_of(answer("crosstab(arm, yes)", 0.05).to_json())}
    assert re.fullmatch(r"< \d+", texts["nobody:yes"])
    assert texts["a:yes"][0].isdigit()
    hidden = shown(terms_of(answer("group-means(x, by=arm)", 0.05).to_json())[2])
    assert (hidden.estimate, hidden.population) == ("hidden", "–")
    parts = {term.term: shown(term).estimate for term in terms_of(answer("proportion(cause)", 0.05).to_json())}
    assert re.fullmatch(r"< 0\.0\d+", parts["missing"])


def test_adjusted_r_squared() -> None:
    """As statsmodels has it, without noise."""
    import statsmodels.api as sm

    records = records_of()
    records = records[~np.isnan(records[:, 0])]
    records[:, 1] = np.clip(records[:, 1] * 0.5 + records[:, 0] * 0.3, 0, 10)
    found = finished("linear-regression(y ~ x + risk)", noise=1e-9, records=records).answers[0].estimates.summary
    reference = sm.OLS(records[:, 1], sm.add_constant(records[:, [0, 5]])).fit()
    assert math.isclose(found["r_squared"], reference.rsquared, rel_tol=1e-5)
    assert math.isclose(found["adjusted_r_squared"], reference.rsquared_adj, rel_tol=1e-5)


def test_an_r_squared_that_noise_hides_is_not_known() -> None:
    hidden = replace(answer("linear-regression(y ~ x + arm)", 3.0).estimates).summary
    assert hidden.get("r_squared") is None or hidden["r_squared"] > 0
