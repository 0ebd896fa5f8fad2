"""A study about these records: noise alone counts, on every surface, for every kind of statistic."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.report import StudyReport, write_study_report
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.kinds.first_look import FirstLook
from quietmean.statistics.printed import TidyTerms, TidyTests
from quietmean.studies import StudyOutcome
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.first_screen import first_screen
from quietmean.studies.outcome.tables import write_tables
from support.outcomes import EVERY_KIND, finished
from support.promises import lines_of_page

# What only tests and a population have; of a word in the name of a statistic or of a column it is no matter.
TESTED = re.compile(
    r"(?<!cause:)\bp [=<]|p-value|\btest(?!able)|degrees of freedom|\bdf\b|welch|student|wilson|pearson|log-rank|wald"
    r"|cochran|greenwood|χ|I²|τ²|i_squared|tau|heterogene|chi-squared|random sample|population|at the 5 %",
    re.IGNORECASE,
)
# Where a study says what it is about.
SAID = ("so that is the interval to quote. Nothing is tested", ABOUT_THESE)

# Each kind, and where one has more terms, tests or flags than its example.
ASKED = (
    *EVERY_KIND,
    "mean(x, cluster=cause)",
    "proportion(yes, cluster=cause)",
    "group-means(x, by=yes, cluster=cause)",
    "group-means(x, by=yes)",
    "crosstab(yes, other)",
    "linear-regression(y ~ risk)",
    "table-1(by=yes, medians=true)",
    "mean(x, where=arm == 'a')",
)


@cache
def outcome(text: str, these_records: bool, noise: float = 0.5) -> StudyOutcome:
    return finished(text, noise=noise, these_records=these_records)


def entry(text: str, these_records: bool) -> dict[str, Any]:
    (answer,) = outcome(text, these_records).to_json()["statistics"]
    return dict(answer)


def named(document: Any) -> Iterator[str]:
    """All names of values in JSON, however deep, but for those of a study's terms."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield str(key)
            yield from named(value)
    elif isinstance(document, list):
        for value in document:
            yield from named(value)


def said_of_tests(text: str, about: StudyOutcome) -> list[str]:
    """What a surface says of tests, or of a population, but for what the statistic is called."""
    text, asked = " ".join(text.split()), about.answers[0].statistic
    for sentence in (*SAID, asked.text, f"{asked.summary[0].upper()}{asked.summary[1:]}"):
        text = text.replace(sentence, "")
    return [text[max(0, hit.start() - 60) : hit.end() + 40] for hit in TESTED.finditer(text)]


def surfaces(about: StudyOutcome, tmp_path: Path) -> dict[str, str]:
    """Everything on which its answer is shown, as text."""
    receipt = json.loads(json.dumps(about.receipt(), default=str))
    report, tables = tmp_path / "report.html", tmp_path / "tables.html"
    write_study_report(StudyReport.of_outcome("all", about, list("abcdef"), messages=1, bytes=1, seconds=1.0), report)
    write_tables(about.to_json(), tables)
    estimates = about.answers[0].estimates
    return {
        "screen": " ".join(" ".join(first_screen(receipt)).split()),
        "report": lines_of_page(report.read_text(encoding="utf-8")),
        "tables": lines_of_page(tables.read_text(encoding="utf-8")),
        "python": repr(estimates),
        "notebook": lines_of_page(estimates._repr_html_()),
        "messages": " ".join(flag.message for flag in estimates.flags) + estimates.method,
    }


@pytest.mark.parametrize("text", ASKED)
def test_json_says_nothing_of_sampling(text: str) -> None:
    usual, these = entry(text, False), entry(text, True)
    assert these["population"] == "these records"
    for field in ("standard_error_population", "interval_population", "p_value", "test_statistic", "coverage_ignoring_noise"):
        assert these[field] is None, field
    assert "tests" not in these
    found = {key for key in named(these.get("summary", {})) if TESTED.search(key) or key in ("p", "adjusted_r_squared")}
    assert found == set()
    for field in ("terms", "standard_error", "n"):
        assert these[field] == usual[field]


@pytest.mark.parametrize("text", ASKED)
def test_rows_have_the_interval_of_the_noise_and_no_test(text: str) -> None:
    entries = (entry(text, True),)
    for row in TidyTerms.of(entries).rows():
        assert row["p.value"] is row["statistic"] is None
        for name in ("std.error", "conf.low", "conf.high"):
            assert row[name] == row[f"noise.{name}"]
    assert TidyTests(entries).rows() == []


# With as much noise that most is hidden, other flags are raised.
@pytest.mark.parametrize("noise", [0.5, 8.0])
@pytest.mark.parametrize("text", ASKED)
def test_no_surface_tells_of_a_test_or_a_population(text: str, noise: float, tmp_path: Path) -> None:
    about = outcome(text, True, noise)
    shown = surfaces(about, tmp_path)
    assert {name: said for name, text_shown in shown.items() if (said := said_of_tests(text_shown, about))} == {}
    # Where no interval is shown, none is about anything: a first look proposes bounds, with an upper end of what is outside.
    has_interval = any(
        math.isfinite(end)
        for answer in about.answers
        for row in answer.estimates.entries
        for end in row.of_noise
        if row.known and not isinstance(answer.statistic, FirstLook)
    )
    assert (ABOUT_THESE in shown["screen"]) == has_interval


@pytest.mark.parametrize("text", ASKED)
def test_a_forecast_has_the_width_of_the_noise_and_no_power(text: str) -> None:
    these, usual = (Expectation(outcome(text, about).workload, 1e-3 * 2000, 2000.0, studies=12) for about in (True, False))
    (expected,) = these.expected
    assert expected.population is None
    assert expected.power is None
    drawn, beyond = (each.drawn(each.workload.statistics[0]) for each in (these, usual))
    assert drawn.width == pytest.approx(np.sort(drawn.noise)[(len(drawn.noise) - 1) // 2], nan_ok=True)
    # Where several terms are asked for alike, sampling decides which one is the usual one.
    if drawn.term == beyond.term:
        assert np.array_equal(drawn.noise, beyond.noise, equal_nan=True)


def test_the_words_are_found_where_a_study_is_about_more(tmp_path: Path) -> None:
    """So that the tests above can fail."""
    for place, text in enumerate(("group-means(x, by=yes)", "survival(x, yes, by=arm, bins=4)", "table-1(by=arm)")):
        folder = tmp_path / str(place)
        folder.mkdir()
        about = outcome(text, False, 0.05)
        shown = surfaces(about, folder)
        silent = [name for name in ("report", "tables") if not said_of_tests(shown[name], about)]
        assert silent == []
