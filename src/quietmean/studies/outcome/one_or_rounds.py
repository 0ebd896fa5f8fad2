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
from quietmean.core.readable import bound_text, either_side, for_terminal, percent_text, plain
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.complete_records import Regression
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.models import asked_by_rounds
from quietmean.statistics.question_texts import with_domains
from quietmean.statistics.scenario import ROWS
from quietmean.statistics.simulated import half_of
from quietmean.statistics.tails import Z
from quietmean.studies.agreement.study import StudyTerms

# Studies that are drawn of one release and of rounds, and by how much an error has to be smaller.
_RELEASES, _FITS, _MATTERS = 100, 50, 1.1
# Who knows nothing is off by as much as an answer of so many records: as a prior of unit information is, with effects of half
# a standard deviation.
_GUESSED_BY = 4
# An interval is said where it is so many times as wide as the error makes it.
_WIDE = 2.5


@dataclass(frozen=True)
class WholeError:
    """What answers are off by in one term, in the mean: from noise, from sampling, and by bias.

    An answer that noise hides is as far off as a guess, so that the error has no cliff where half are hidden. Without squares,
    one hidden answer in a hundred does not outweigh all others. ``hidden``: are
    most of them? ``stated``: the standard error in the middle of those shown; NaN where they say nothing about a population.
    """

    size: float
    hidden: bool = False
    stated: float = math.nan

    @classmethod
    def of(cls, answers: Sequence[Estimates], place: int, truth: float, guessed: float) -> WholeError:
        """The error of answers; ``guessed``: how far off the ``truth`` is who has none."""
        off: Array = np.array([estimates.value[place] for estimates in answers]) - truth
        there = np.isfinite(off)
        populations = [estimates.population for estimates, known in zip(answers, there, strict=True) if known]
        stated = [errors[place] for errors in populations if errors is not None]
        size = float(np.mean(np.where(there, np.abs(off), guessed)))
        return cls(size, 2 * int(there.sum()) <= len(off), float(np.median(stated)) if stated else math.nan)

    @property
    def interval(self) -> str:
        """The interval, in words, where it says much less than the error; "" where it does not."""
        if not self.stated > _WIDE * self.size:
            return ""
        return f". Its interval would be {for_terminal(either_side(half_of(2 * Z * self.stated, 2)))}"


@dataclass(frozen=True)
class OneOrRounds:
    """A regression that ``one`` release answers, and the question ``by_rounds``.

    ``errors``: of each in the term that the first is judged by. ``epsilon``: what the rounds would cost, where the regression
    has a part of the budget. ``assumed``: whether a column spreads as nobody stated. ``columns``: whose bounds a question that
    is to be typed has.
    """

    one: str
    by_rounds: str
    errors: tuple[WholeError, WholeError]
    epsilon: float | None = None
    assumed: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def better(self) -> str:
        """The question that has the smaller error; "" where both have the same, to 10 %, or noise hides that one."""
        one, rounds = self.errors
        smaller, larger, name = (one, rounds, self.one) if one.size < rounds.size else (rounds, one, self.by_rounds)
        matters = larger.hidden or smaller.size * _MATTERS < larger.size
        return name if matters and not smaller.hidden else ""

    def typed(self, question: str) -> str:
        """A question with the bounds of its columns, as it can be typed."""
        return with_domains(question, self.columns)

    def sentence(self, asked: str) -> str:
        """What is better than the question that is asked, or how the other compares with it."""
        name, (mine, other) = (self.by_rounds, self.errors) if asked == self.one else (self.one, self.errors[::-1])
        cost = f" with epsilon {bound_text(self.epsilon)}" if self.epsilon and name == self.by_rounds else ""
        spread = f", if standard deviations are {percent_text(USUAL_SPREAD)} of the range" if self.assumed else ""
        if self.better in ("", asked) and other.hidden:
            return f"{asked} is the better question: noise would hide the answer of {self.typed(name)}{spread}"
        said = f"{self.typed(name)}{cost} would be off by about {_number(other.size)}"
        if mine.hidden:
            return f"{said}, and noise hides this one{spread}{other.interval}"
        return f"{said} in place of {_number(mine.size)}{spread}{other.interval}"


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
    released = replace(one, studies=_RELEASES)
    drawn = list(released.answers(regression, USUAL_SPREAD, 1.0, 1.0, released.most_drawn(_RELEASES)))
    place = drawn[0].terms.index(released.drawn(regression).term)
    # Each is judged by what all of its own made-up records answer: these are not equally many.
    truth, own = rounds.answer(USUAL_SPREAD, ROWS), rounds.answer(USUAL_SPREAD)
    if place >= len(truth.value):
        return None
    (model,) = rounds.asked
    fitted = list(rounds.answers(model, USUAL_SPREAD, 1.0, 1.0, _FITS))
    guessed = as_guessed(truth, place)
    errors = (
        WholeError.of(drawn, place, float(truth.value[place]), guessed),
        WholeError.of(fitted, place, float(own.value[place]), guessed),
    )
    part = None if workload.budget_part(regression) == 1 else rounds.model.epsilon_of_all
    return OneOrRounds(regression.text, question, errors, part, bool(one.assumed(regression)), tuple(workload.columns))


def as_guessed(answer: Estimates, place: int) -> float:
    """How far off a term is who knows nothing of it, by what all made-up records ``answer`` without noise."""
    if answer.population is None or answer.completeness is None:
        return math.nan
    return float(answer.population[place]) * math.sqrt(answer.completeness.present / _GUESSED_BY)


def _number(error: float) -> str:
    """An error, to two digits."""
    return plain(float(f"{error:.2g}"))
