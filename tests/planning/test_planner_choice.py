"""The noise that a plan calls smaller is smaller: a few drawn studies, and what the tool would say of a plan that is wrong.

All 500 studies are ``python tools/planner_choice.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.studies.outcome.one_or_rounds import OneOrRounds, WholeError


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))


def test_the_noise_that_a_plan_calls_smaller_is_smaller() -> None:
    """Seeds 0 to 5; errors of 4,000 numbers, which are within 8 % of their own but for a chance of 1 in 10,000."""
    from planner_choice import found

    known = [one for seed in range(6) if (one := found(seed)) is not None]
    assert len(known) >= 4
    assert all(one.right for one in known if not one.tied)


def test_a_plan_that_is_wrong_is_counted_so() -> None:
    from planner_choice import Found

    assert not Found((1.0, 2.0), (2.0, 1.0)).right
    assert Found((1.0, 2.0), (1.0, 3.0)).right
    assert Found((1.0, 2.0), (1.0, 1.03)).tied
    assert not Found((1.0, 2.0), (1.0, 1.3)).tied


def test_errors_of_regressions_tie_by_their_own_chance() -> None:
    """One hidden answer in 60 makes an error twice as large, and by chance: the mean of 60 knows that to a half of itself."""
    from planner_choice import FoundRegression, error_of_mean

    answers = [Estimates.of([Estimate.normal("x", sign, 0.0, 0.0)]) for sign in (1.0, -1.0)] * 30
    assert error_of_mean(answers, 0, 0.0, 60.0) == 0
    one_hidden = [*answers[1:], Estimates.of([Estimate.unknown("x")])]
    sampling = error_of_mean(one_hidden, 0, 0.0, 60.0)
    assert sampling == pytest.approx(0.5, rel=0.05)
    choice = OneOrRounds("one", "rounds", (WholeError(1.0), WholeError(2.0)))
    by_chance, known = (FoundRegression(choice, (WholeError(1.0), WholeError(2.0)), each) for each in (sampling, 0.1))
    assert by_chance.tied
    assert not known.tied
    assert known.right
    assert not FoundRegression(choice, (WholeError(2.0), WholeError(1.0)), 0.1).right
