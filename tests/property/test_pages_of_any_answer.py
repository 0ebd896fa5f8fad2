"""No answer makes a page fail: all missing, infinite, of a level that nobody has, of no width."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from quietmean.report import StudyReport
from quietmean.report.officer import OfficerPage, render_officer_page
from quietmean.report.page import render
from quietmean.report.released import ReportFacts
from quietmean.statistics import Answer
from quietmean.statistics.estimates import Estimates
from quietmean.studies import StudyOutcome
from support.odd_answers import odd_answers
from support.outcomes import EVERY_KIND, PARTIES, finished, truth_of

NAMES = [f"clinic {party}" for party in range(PARTIES)]
FEW, MANY = 1, 60
# A page takes a tenth of a second: no time to look for the smallest answer that fails.
PHASES = (Phase.explicit, Phase.generate)


@cache
def study(text: str) -> tuple[StudyOutcome, tuple[Answer, ...]]:
    outcome = finished(text)
    return outcome, truth_of(outcome)


def pages(outcome: StudyOutcome, truth: tuple[Answer, ...] | None) -> list[str]:
    """The report, and the privacy page."""
    report = StudyReport.of_outcome("study", outcome, NAMES, truth=truth, messages=1, bytes=1, seconds=1.0)
    officer = OfficerPage(
        outcome.execution, outcome.privacy, outcome.certificate, ReportFacts.of_receipt(outcome.receipt(), "study")
    )
    return [render(report), render_officer_page(officer)]


def check(text: str, data: st.DataObject) -> None:
    outcome, truth = study(text)
    changed = replace(outcome, answers=tuple(data.draw(odd_answers(one)) for one in outcome.answers))
    for page in pages(changed, data.draw(st.sampled_from([None, truth]))):
        seen = re.sub(r"<[^>]*>", " ", page)
        odd = re.search(r".{,40}(\bnan\b|\binf\b|(?<![\d.])[-−]0(\.0+)?(?![\d.])).{,40}", " ".join(seen.split()))
        assert odd is None, odd[0]


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(3)
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
    return replace(found.with_columns(value=unknown, noise=unknown, error=unknown), reason="the noise hides all")
