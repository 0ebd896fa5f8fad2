"""What a report says of each statistic: a table behind every figure, both intervals, and nothing that a name could break."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from quietmean.cli.answers import print_answers
from quietmean.core.readable import UNKNOWN, p_text
from quietmean.report import StudyReport
from quietmean.report.answers import answer_sections
from quietmean.report.page import render
from quietmean.report.pictures import forest
from quietmean.report.plots import plot, roc_figure
from quietmean.statistics import Answer
from quietmean.statistics.allocation import made_up
from quietmean.statistics.printed import TidyTerms, shown, together
from quietmean.statistics.tidy import terms_of
from quietmean.studies import StudyTerms
from support.outcomes import EVERY_KIND, finished, truth_of
from support.pages import words_of

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100},
    {"name": "bmi", "low": 10, "high": 60},
    {"name": "crp", "low": 0, "high": 50},
    {"name": "days", "low": 0, "high": 1000},
    {"name": "died", "boolean": True},
    {"name": "arm", "levels": ["<b>old</b>", "new$"]},
]
DRAWN: list[dict[str, Any]] = [
    {"kind": "survival", "time": "days", "event": "died", "by": "arm", "bins": 8},
    {"kind": "survival", "time": "days", "event": "died", "bins": 5},
    {"kind": "histogram", "column": "age", "bins": 12},
    {"kind": "cdf", "column": "age", "bins": 16},
    {"kind": "quantiles", "column": "age"},
    {"kind": "group-means", "column": "bmi", "by": "arm"},
    {"kind": "linear-regression", "formula": "bmi ~ age + arm"},
    {"kind": "correlation", "columns": ["age", "bmi", "crp"]},
]
PLAIN: list[dict[str, Any]] = [{"kind": "mean", "column": "age"}, {"kind": "correlation", "columns": ["age", "bmi"]}]


def answers(noise: float, statistics: list[dict[str, Any]]) -> tuple[Answer, ...]:
    """Of 20 000 records that a public table stands for."""
    workload = StudyTerms.parse({"column": COLUMNS, "statistic": statistics}).workload
    mean = workload.of_records(made_up(workload.columns, 0.25)).mean(axis=0)
    return workload.decode(mean, noise * workload.sensitivity, 20_000.0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-3, 1e3])
def test_every_figure_has_its_table_whatever_the_noise(noise: float) -> None:
    sections = answer_sections(answers(noise, DRAWN), answers(0.0, DRAWN))
    for section in sections:
        assert section["rows"] or any(note.startswith("Hidden by the noise: ") for note in section["notes"])
        assert bool(section["rows"]) or noise == 1e3
        assert len(section["says"]) > 1
        assert all(len(row) == len(section["heads"]) for row in section["rows"])
        assert section["figure"] or section["picture"] or section["correlations"] or noise == 1e3
        # Dark mode: every colour is a variable.
        assert not re.search(r"#[0-9a-f]{6}\b", section["figure"])
        assert "<b>" not in section["figure"]
        assert "nan" not in section["figure"].lower()
    ids = [one for section in sections for one in re.findall(r'\bid="([^"]+)"', section["figure"])]
    assert len(ids) == len(set(ids))


def test_what_a_table_says_is_not_drawn() -> None:
    assert all(plot(one) is None for one in answers(1e-3, PLAIN))


@pytest.mark.slow
def test_numbers_at_risk_stand_under_the_curves() -> None:
    (answer, *_) = answers(1e-4, DRAWN)
    drawn = plot(answer)
    assert drawn is not None
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    at_risk = answer.estimates.summary["new$"]["at_risk"]
    assert f"{at_risk[0]:,.0f}" in texts
    assert "new$" in texts


def test_curves_rise_in_tables_and_for_the_eye() -> None:
    """Whatever the noise is."""
    statistics = [{"kind": "cdf", "column": "age", "bins": 64}]
    workload = StudyTerms.parse({"column": COLUMNS, "statistic": statistics}).workload
    mean = workload.of_records(made_up(workload.columns, 0.25)).mean(axis=0)
    noisy = mean + np.random.default_rng(2).normal(0, 0.02, len(mean))
    (answer,) = workload.decode(noisy, 0.02, 20_000.0)
    assert (np.diff(answer.estimates.value) >= 0).all()
    drawn = plot(answer)
    assert drawn is not None
    (line,) = drawn[0].axes[0].lines
    assert (np.diff(np.asarray(line.get_ydata(), dtype=np.float64)) >= 0).all()


def test_sections_say_what_was_tested_and_without_noise() -> None:
    section = answer_sections(answers(1e-3, DRAWN), answers(0.0, DRAWN))[5]
    assert section["heads"][-1] == "without noise"
    assert any(test.startswith("Welch's t test: t = ") for test in section["tests"])
    assert "% of the privacy budget" in section["method"]
    alone = answer_sections(answers(1e-3, PLAIN), None)[0]
    assert alone["heads"] == ["term", "estimate", "standard error of noise", "95 % for the noise", "95 % for the population"]


def test_a_roc_is_drawn_from_points() -> None:
    ends = np.array([[0.3, 0.5], [0.7, 0.8]])
    figure = roc_figure(np.array([0.1, 0.4]), np.array([0.4, 0.75]), ends)
    assert isinstance(figure, Figure)


@pytest.mark.parametrize(("value", "text"), [(0.0004, "< 0.001"), (0.0421, "0.042"), (float("nan"), "–")])
def test_p_values_as_journals_print_them(value: float, text: str) -> None:
    assert p_text(value) == text


@pytest.fixture(scope="module", params=[0.05, 5.0, 1e4], ids=["little noise", "some noise", "all hidden"])
def every_kind(request: pytest.FixtureRequest) -> tuple[Sequence[Answer], list[dict[str, Any]]]:
    """Answers of every kind, and their sections."""
    found = finished(*EVERY_KIND, "group-means(x, by=cause)", noise=request.param).answers
    return found, answer_sections(found, found)


@pytest.mark.sampled(1)
def test_numbers_of_records_are_whole(every_kind: tuple[Sequence[Answer], list[dict[str, Any]]]) -> None:
    """In tables of pages, terminals and notebooks, whatever their noise; that has the digits that it needs."""
    seen = 0
    for answer, section in zip(*every_kind, strict=True):
        terms = [term for term in terms_of(answer.to_json()) if term.of_records]
        for texts in map(shown, terms):
            assert "." not in f"{texts.estimate} {texts.population} {texts.noise}"
        labels = {term.label or answer.statistic.text for term in terms}
        for row in section["rows"]:
            if row[0] in labels:
                named = dict(zip(section["heads"], row, strict=True))
                assert "." not in "".join(text for head, text in named.items() if head not in ("term", "standard error of noise"))
                seen += 1
    assert seen > 10


@pytest.mark.sampled(2)
def test_no_sentence_has_a_power_of_ten_or_the_name_of_a_cell(
    every_kind: tuple[Sequence[Answer], list[dict[str, Any]]],
) -> None:
    """Cells of two columns, and events of an arm, are called by both levels, not by their names in JSON, such as a:no."""
    for section in every_kind[1]:
        sentences = " ".join([section["says"], section["method"], *section["notes"], *section["tests"]])
        assert not re.search(r"\de[+-]\d", sentences)
        if section["name"].startswith(("crosstab", "cumulative-incidence")):
            names = " ".join([sentences, section["figure"], *(row[0] for row in section["rows"])])
            assert not re.search(r"(a|b|nobody|missing):(no|yes|missing|p|q)", names)


def test_what_is_said_first_is_no_list(every_kind: tuple[Sequence[Answer], list[dict[str, Any]]]) -> None:
    """Where many groups are hidden the sentence above says so, and a note which."""
    assert not any(" more" in section["says"] and "(and" in section["says"] for section in every_kind[1])


def test_no_count_is_said_to_be_below_more_than_there_are(every_kind: tuple[Sequence[Answer], list[dict[str, Any]]]) -> None:
    for answer in every_kind[0]:
        assert all(flag.upper is None or flag.upper <= round(answer.records, 6) + 1 for flag in answer.estimates.flags)


def test_what_noise_hides_has_no_bar_and_no_point(every_kind: tuple[Sequence[Answer], list[dict[str, Any]]]) -> None:
    """A figure ends where its intervals do: a bar of what is hidden would be of the noise."""
    seen = 0
    for answer in every_kind[0]:
        hidden = [term.hidden for term in terms_of(answer.to_json())]
        drawn = plot(answer)
        if answer.statistic.name in ("histogram", "cdf", "proportion") and all(hidden):
            assert drawn is None
            assert answer.statistic.name != "proportion" or forest(answer) is None
        picture = forest(answer) if answer.statistic.name == "proportion" else None
        if picture is not None:
            seen += 1
            known = [one for one, value in zip(hidden, answer.estimates.value, strict=True) if np.isfinite(value)]
            assert [line.at is None for line in picture.lines] == known
        if drawn is None or answer.statistic.name != "histogram":
            continue
        seen += 1
        (axes,) = drawn[0].axes
        bars = [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)]
        assert not bars or all(height == 0 for height, one in zip(bars, hidden, strict=True) if one)
    assert seen or all(all(term.hidden for term in terms_of(one.to_json())) for one in every_kind[0][4:6])


def test_the_only_statistic_uses_all_of_the_budget() -> None:
    (section,) = answer_sections(answers(0.1, PLAIN[:1]), None)
    assert "It used 100 % of the privacy budget." in section["method"]


def test_the_head_counts_the_first_answer_of_each_statistic_and_no_cells() -> None:
    outcome = finished(*EVERY_KIND, noise=0.05)
    report = StudyReport.of_outcome("all", outcome, list("abcdef"), truth=truth_of(outcome), messages=1, bytes=1, seconds=1.0)
    page = words_of(render(report))
    assert len(report.terms) > 3 * len(EVERY_KIND)
    assert re.search(rf"(Each|\d+) of {len(EVERY_KIND)} private first estimates lies? within", page)
    assert re.search(r"Noise (smaller|larger) than the sampling error in (each|\d+) of \d+ first estimates", page)
    assert all(int(number) <= len(EVERY_KIND) for number in re.findall(r"of (\d+) first estimates", page))
    assert "Quote that of the noise where these records are all that the question is about" in page


@pytest.mark.parametrize("is_known", [True, False])
def test_the_head_of_one_statistic_says_nothing_of_one_statistics(is_known: bool) -> None:
    outcome = finished("survival(x, yes, by=arm, bins=4)", noise=0.05)
    truth = truth_of(outcome) if is_known else None
    report = StudyReport.of_outcome("one", outcome, list("abcdef"), truth=truth, messages=1, bytes=1, seconds=1.0)
    page = words_of(render(report))
    assert ("The private first estimate lies within" if is_known else "The private estimates of one statistic,") in page
    assert re.search(r"Noise (smaller|larger) than the sampling error in the first estimate\b", page)
    assert not re.search(r"\b1 (first|private|statistics|estimates)\b", page)


@pytest.mark.parametrize("text", EVERY_KIND)
def test_each_term_has_an_interval_or_nothing_is_known_of_it(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the noise alone says so: on a terminal, in Python and in tables. A count has no other."""
    outcome = finished(text, noise=0.01)
    document = outcome.to_json()
    terms = [term for entry in document["statistics"] for term in terms_of(entry)]
    alone = [term for term in terms if shown(term).population == UNKNOWN != shown(term).noise]
    assert all(shown(term).interval.endswith(" (noise only)") for term in alone)
    assert not any("noise only" in shown(term).interval for term in terms if term not in alone)
    print_answers(document)
    for told in (capsys.readouterr().out, repr(TidyTerms.of(document["statistics"]))):
        # Many terms that are hidden share a line.
        assert ("(noise only)" in told) is any(term in together(terms)[0] for term in alone) or "hidden" in told
    if text.startswith("count("):
        assert alone == terms
