"""No answer makes a page fail: all missing, infinite, of a level that nobody has, of no width."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from quietmean.report import StudyReport
from quietmean.report.officer import OfficerPage, Stated
from quietmean.report.page import render
from quietmean.report.rendering import render_template
from quietmean.statistics import Answer, registry
from quietmean.statistics.estimates import Estimates, HypothesisTest
from quietmean.studies import StudyOutcome
from support.outcomes import EVERY_KIND, PARTIES, finished, truth_of

NAMES = [f"clinic {party}" for party in range(PARTIES)]
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e300, 1e-300, -3.0)
FEW, MANY = 1, 60
# A page takes a tenth of a second: no time to look for the smallest answer that fails.
PHASES = (Phase.explicit, Phase.generate)


@cache
def study(text: str) -> tuple[StudyOutcome, tuple[Answer, ...]]:
    outcome = finished(text)
    return outcome, truth_of(outcome)


def pages(outcome: StudyOutcome, truth: tuple[Answer, ...] | None) -> list[str]:
    """The report, and the page for who answers for the data."""
    report = StudyReport.of_outcome("study", outcome, NAMES, truth=truth, messages=1, bytes=1, seconds=1.0)
    officer = OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, Stated.of_receipt(outcome.receipt(), "study"))
    return [render(report), render_template("officer.html", whose="", officer=officer.sections())]


@st.composite
def odd_answers(draw: st.DrawFn, answer: Answer) -> Answer:
    """The answer with some of its numbers, or all, replaced by odd ones."""
    found = answer.estimates
    everywhere = draw(st.booleans())

    def numbers(like: np.ndarray[Any, Any]) -> Any:
        if everywhere:
            return np.full(like.shape, draw(st.sampled_from(ODD)))
        changed = np.array(like, dtype=np.float64).ravel()
        for place in draw(st.lists(st.integers(0, max(changed.size - 1, 0)), max_size=changed.size)) if changed.size else ():
            changed[place] = draw(st.sampled_from(ODD))
        return changed.reshape(like.shape)

    def data(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {name: data(value) for name, value in one.items()}
        if isinstance(one, list | tuple):
            return [data(value) for value in one]
        if isinstance(one, float | int) and not isinstance(one, bool) and draw(st.booleans()):
            return draw(st.sampled_from((*ODD, None)))
        return one

    shape = (len(found.terms), 2)
    both = found.of_population
    # One field at a time, or all together.
    chosen = draw(st.sets(st.sampled_from(("value", "standard_error", "noise", "both", "range", "p", "tests", "summary"))))
    ends = found.low if "range" not in chosen else found.value
    tests = {
        name: HypothesisTest(
            draw(st.sampled_from(ODD)), tuple(draw(st.sampled_from(ODD)) for _ in one.degrees), float(one.p_value)
        )
        for name, one in found.tests.items()
    }
    return replace(
        answer,
        estimates=replace(
            found,
            value=numbers(found.value) if "value" in chosen else found.value,
            standard_error=np.abs(numbers(found.standard_error)) if "standard_error" in chosen else found.standard_error,
            interval_noise=numbers(np.zeros(shape)) if "noise" in chosen else found.interval_noise,
            interval_population=numbers(np.zeros(shape) if both is None else both)
            if "both" in chosen
            else found.interval_population,
            low=ends,
            high=found.high if "range" not in chosen else ends,
            p_value=None if found.p_value is None else numbers(found.p_value) if "p" in chosen else found.p_value,
            tests=tests if "tests" in chosen else found.tests,
            summary=data(found.summary) if "summary" in chosen else found.summary,
        ),
    )


def test_every_kind_is_here() -> None:
    assert {study(text)[0].answers[0].statistic.name for text in EVERY_KIND} == set(registry())


def check(text: str, data: st.DataObject) -> None:
    outcome, truth = study(text)
    changed = replace(outcome, answers=tuple(data.draw(odd_answers(one)) for one in outcome.answers))
    for page in pages(changed, data.draw(st.sampled_from([None, truth]))):
        seen = re.sub(r"<[^>]*>", " ", page)
        odd = re.search(r".{,40}(\bnan\b|\binf\b|(?<![\d.])[-−]0(\.0+)?(?![\d.])).{,40}", " ".join(seen.split()))
        assert odd is None, odd[0]


@pytest.mark.parametrize("text", EVERY_KIND)
@settings(max_examples=FEW, deadline=None, derandomize=True, database=None, phases=PHASES)
@given(data=st.data())
def test_no_answer_makes_a_page_fail(text: str, data: st.DataObject) -> None:
    check(text, data)


@pytest.mark.slow
@pytest.mark.parametrize("text", EVERY_KIND)
@settings(max_examples=MANY, deadline=None, derandomize=True, database=None, phases=PHASES)
@given(data=st.data())
def test_no_answer_makes_a_page_fail_at_length(text: str, data: st.DataObject) -> None:
    check(text, data)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_study_without_any_estimate_has_a_page(alone: bool, known: bool) -> None:
    outcome = finished(*(["variance(x)"] if alone else ["mean(x)", "mean(y)"]))
    hidden = tuple(replace(one, estimates=nothing(one.estimates)) for one in outcome.answers)
    truth = truth_of(outcome)
    for page in pages(replace(outcome, answers=hidden), truth if known else None):
        assert "nan" not in re.sub(r"<[^>]*>", " ", page)


def nothing(found: Estimates) -> Estimates:
    unknown = np.full(len(found.terms), math.nan)
    return replace(found, value=unknown, standard_error=unknown, population=unknown, reason="the noise hides all")
