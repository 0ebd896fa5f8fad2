"""The page of every kind of statistic: with all known, with what noise hides, with a group that nobody is in, with dates, and
with names that a page could break at; each has a sentence, and no text is of a program."""

from __future__ import annotations

import html
import re
from functools import cache

import pytest

from quietmean.report.answers import answer_sections
from quietmean.report.words import templates
from quietmean.statistics import Answer, registry
from quietmean.statistics.findings import finding
from support.outcomes import EVERY_KIND, ODD, finished, odd_records, records_of, truth_of

# Standard deviations of the noise of one party: none, a little, and so much that nothing is known.
SILENT, SOME, ALL = 1e-9, 0.5, 1e4
# What a program writes, and no person; in words of their own, not within others.
OF_PROGRAMS = re.compile(r"(?<![\w.])(nan|NaN|None|null|inf|-?0\.0e|[-−]0(?:\.0+)?(?![\d.]))(?![\w:])")


@cache
def answers(text: str, noise: float, odd: bool) -> tuple[tuple[Answer, ...], tuple[Answer, ...]]:
    table = odd_records() if odd else records_of()
    outcome = finished(text, noise=noise, records=table) if not odd else finished(text, noise=noise, columns=ODD, records=table)
    return outcome.answers, truth_of(outcome, table)


def page_of(section: dict[str, object]) -> str:
    return templates().get_template("answer.html").render(one=section)


def seen(page: str) -> str:
    """What a reader sees, labels of figures too; levels that are called as programs write are taken out."""
    text = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)))
    return " ".join(text.split())


# Noise, and whether a group is empty: what make test-all adds.
OTHERS = [(SILENT, False), (SILENT, True), (SOME, True), (ALL, False)]


@pytest.mark.sampled(21)
@pytest.mark.parametrize(
    ("noise", "odd"),
    [(SOME, False), (ALL, True), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)],
)
@pytest.mark.parametrize("text", EVERY_KIND)
def test_no_page_has_a_text_of_a_program(text: str, noise: float, odd: bool) -> None:
    found, truth = answers(text, noise, odd)
    for section in answer_sections(found, truth):
        page = page_of(section)
        assert "<b>one" not in page
        shown = seen(page)
        if odd and ("cause" in text or text.startswith("table-1")):
            # Levels that are called so.
            shown = re.sub(r"\b(null|nan)\b", "level", shown)
        wrong = [shown[max(one.start() - 40, 0) : one.end() + 20] for one in OF_PROGRAMS.finditer(shown)]
        assert wrong == []
        assert len(section["says"]) > len("The mean.")
        assert section["rows"] or section["notes"]
        assert all(len(row) == len(section["heads"]) for row in section["rows"])


@pytest.mark.parametrize("text", EVERY_KIND)
def test_what_noise_hides_is_a_few_lines(text: str) -> None:
    (found,), _ = answers(text, ALL, False)
    (section,) = answer_sections([found], None)
    hidden = [row for row in section["rows"] if row[1] == "hidden"]
    assert len(hidden) <= 3
    assert len(section["notes"]) <= 8
    # One flag for a code and a reason, with its terms, unless each term has an upper end of its own.
    flags = [flag for flag in found.estimates.flags if flag.upper is None]
    by_code: dict[str, int] = {}
    for flag in flags:
        by_code[flag.code] = by_code.get(flag.code, 0) + 1
    assert max(by_code.values(), default=0) <= 3, by_code


def test_every_kind_is_here() -> None:
    assert {answers(text, SOME, False)[0][0].statistic.name for text in EVERY_KIND} == set(registry())


@pytest.mark.parametrize("text", [one for one in EVERY_KIND if one.startswith(("mean", "quantiles", "histogram", "cdf"))])
def test_days_are_days_of_the_calendar(text: str) -> None:
    """In the sentence and in the table; also where they name bins."""
    (section,) = answer_sections(answers(text, SILENT, True)[0], None)
    assert re.search(r"20[12]\d-\d\d-\d\d", section["says"])
    assert any(re.search(r"20[12]\d-\d\d-\d\d", cell) for row in section["rows"] for cell in row[:2])


def test_a_kind_of_others_has_a_sentence() -> None:
    document = {
        "name": "ratio(x)",
        "kind": "ratio",
        "terms": [""],
        "estimate": 2.0,
        "standard_error": 0.1,
        "standard_error_population": None,
        "interval_noise": [1.8, 2.2],
        "interval_population": None,
        "p_value": None,
        "flagged": [],
        "messages": [],
    }
    assert finding(document) == "ratio(x): 2.00 (95 % for the noise 1.80 to 2.20)"
    nothing = document | {"estimate": None, "standard_error": None, "interval_noise": None}
    assert finding(nothing) == "The noise hides what was asked"
