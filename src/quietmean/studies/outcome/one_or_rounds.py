"""Which has the smaller error, one release or rounds: of a regression that both answer, before anything is agreed on.

Nothing is chosen for the parties. Each of them signs the text of a question, and a model by rounds is another session with other
messages. Besides, what is better depends on how many parties come. So the question to type is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.lazy import fitted_instead
from quietmean.core.readable import bound_text, either_side, for_terminal, percent_text
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.complete_records import Regression
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.models import asked_by_rounds
from quietmean.statistics.question_texts import with_domains
from quietmean.statistics.simulated import half_of
from quietmean.statistics.tails import Z
from quietmean.studies.agreement.study import StudyTerms

# Studies of one release that are drawn, and by how much an error has to be smaller.
_DRAWN, _MATTERS = 100, 1.1
# The median of a normal error, and how much more than a mean a median varies, in standard deviations.
_MEDIAN, _MORE = 0.6745, 1.2533


@dataclass(frozen=True)
class OneOrRounds:
    """A regression that ``one`` release answers, and the question ``by_rounds``.

    ``errors``: the whole error of each in the term that the first is judged by, as a standard deviation: from noise, from
    sampling, and off the answer of all records. It is infinite where noise hides most answers. ``epsilon``: what the rounds would
    cost, where the regression has a part of the budget. ``assumed``: whether a column spreads as nobody stated.
    ``columns``: whose bounds a question that is to be typed has.
    """

    one: str
    by_rounds: str
    errors: tuple[float, float]
    epsilon: float | None = None
    assumed: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def better(self) -> str:
        """The question that has the smaller error; "" where both have the same, to 10 %."""
        one, rounds = self.errors
        if not min(one, rounds) * _MATTERS < max(one, rounds):
            return ""
        return self.one if one < rounds else self.by_rounds

    def typed(self, question: str) -> str:
        """A question with the bounds of its columns, as it can be typed."""
        return with_domains(question, self.columns)

    def sentence(self, asked: str) -> str:
        """What is better than the question that is asked, or how the other compares with it."""
        other, mine = (self.by_rounds, self.errors) if asked == self.one else (self.one, self.errors[::-1])
        cost = f" with epsilon {bound_text(self.epsilon)}" if self.epsilon and other == self.by_rounds else ""
        spread = f", if standard deviations are {percent_text(USUAL_SPREAD)} of the range" if self.assumed else ""
        if self.better in ("", asked) and not math.isfinite(mine[1]):
            return f"{asked} is the better question: noise would hide the answer of {self.typed(other)}{spread}"
        said = f"{self.typed(other)}{cost} would have an interval of about {_reach(mine[1])}"
        if not math.isfinite(mine[0]):
            return f"{said}, and noise hides this one{spread}"
        return f"{said} in place of {_reach(mine[0])}{spread}"


def compared(study: StudyTerms, regression: Regression, one: Expectation, parties: int) -> OneOrRounds | None:
    """Compare a regression with the same by rounds, for the parties and records of a plan; None where only one can be asked."""
    workload, question = study.workload, asked_by_rounds(regression.text)
    public = study.unit == PrivacyUnit.RECORD and not workload.hides_count and not workload.these_records
    if not question or not public or study.nats is not None or study.committee is not None:
        return None
    try:
        rounds = fitted_instead(study, regression, parties, one.records)
    except InputError:
        return None
    released = replace(one, studies=_DRAWN)
    drawn = list(released.answers(regression, USUAL_SPREAD, 1.0, 1.0, released.most_drawn(_DRAWN)))
    place = drawn[0].terms.index(released.drawn(regression).term)
    truth = rounds.answer(USUAL_SPREAD).value
    if place >= len(truth):
        return None
    (model,) = rounds.asked
    fitted = list(rounds.answers(model, USUAL_SPREAD, 1.0, 1.0, rounds.most_drawn(_DRAWN)))
    errors = (whole_error(drawn, place, float(truth[place])), whole_error(fitted, place, float(truth[place])))
    part = None if workload.budget_part(regression) == 1 else rounds.model.epsilon_of_all
    return OneOrRounds(regression.text, question, errors, part, bool(one.assumed(regression)), tuple(workload.columns))


def whole_error(answers: Sequence[Estimates], place: int, truth: float) -> float:
    """The standard deviation of a term off the ``truth``: as stated, with how far off its middle is; as found where the answers
    state no sampling. It is infinite where most answers are hidden."""
    values = np.array([estimates.value[place] for estimates in answers])
    there = np.isfinite(values)
    if 2 * int(there.sum()) <= len(values):
        return math.inf
    off: Array = values[there] - truth
    shown = [estimates.population for estimates, known in zip(answers, there, strict=True) if known]
    stated = [errors[place] for errors in shown if errors is not None]
    if not stated:
        return float(np.median(np.abs(off))) / _MEDIAN
    spread = float(np.median(stated))
    bias = float(np.median(off)) ** 2 - (_MORE * spread) ** 2 / len(off)
    return math.sqrt(spread**2 + max(bias, 0.0))


def _reach(error: float) -> str:
    """The half of an interval with such an error."""
    return for_terminal(either_side(half_of(2 * Z * error, 2)))
