"""What to expect of a model by rounds before its session, from fits of made-up records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.learning.models.glm import GeneralizedLinearModel, model_of
from quietmean.learning.models.model import ModelByRounds, ModelKeywords
from quietmean.privacy import mu_of_budget
from quietmean.privacy.composition import epsilon_within
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.columns import Column
from quietmean.statistics.complete_records import Regression
from quietmean.statistics.drawn_studies import DrawnStudies, samples
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.expectation import columns_of
from quietmean.statistics.models import ModelQuestion, asked_by_rounds
from quietmean.statistics.registry import read_text
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import noise_of_total

# Made-up records, and fits that are drawn at most: each takes all rounds.
_ROWS, _FITS = 1 << 10, 25


@dataclass(frozen=True, eq=False)
class FittedStudies(DrawnStudies[ModelQuestion]):
    """What to expect of a ``model`` of so many ``parties``.

    ``noise``: the standard deviation of the noise in the total of all vectors of a round. ``regression``: of one release, as
    which records are made up; without it columns have nothing to do with each other.
    """

    model: ModelByRounds
    parties: int
    noise: float
    records: float
    studies: int = _FITS
    regression: Regression | None = None

    @cached_property
    def asked(self) -> Sequence[ModelQuestion]:
        return (ModelQuestion(self.model.text),)

    def columns_of(self, question: ModelQuestion) -> Sequence[Column]:
        return list(self.model.columns)

    def most_drawn(self, studies: int) -> int:
        return min(studies, _FITS)

    def terms_of(self, first: Estimates) -> Sequence[str | None]:
        return first.headline or first.terms

    def answers(self, question: ModelQuestion, spread: float, more: float, less_noise: float, count: int) -> Iterator[Estimates]:
        weight, rounds = self.records * more, self.model.rounds
        stream = BitStream(Seed.public("expectation", question.text, count))
        added = stream.standard_normal((count, rounds, self.model.dimension_for(self.parties)))
        weights = samples(weight, count, _ROWS, stream)
        # Parties matter where each has coefficients of its own.
        parts = np.array_split(self.made_up(spread), self.parties if self.model.by_party else 1)
        for fit in self.model.drawn_fits(parts, weights, self.noise / less_noise / weight, weight, added):
            yield fit.coefficients

    def made_up(self, spread: float, rows: int = _ROWS) -> Array:
        """So many made-up records, (rows, columns)."""
        regression, columns = self.regression, self.model.columns
        expect = {} if regression is None else dict(regression.expect)
        scenario = SyntheticRecords(columns, expect, spread, None, rows)
        if regression is not None:
            regression.synthesize(scenario)
        return scenario.table(columns.names)

    def answer(self, spread: float, rows: int = _ROWS) -> Estimates:
        """What so many made-up records answer without noise."""
        return self.model.without_noise([self.made_up(spread, rows)]).coefficients


def fitted_instead(study: StudyTerms, regression: Regression, parties: int, records: float) -> FittedStudies | None:
    """What to expect of a regression of one release by rounds, for the part of the budget that it uses; None where no model fits.

    Raises :class:`InputError` for a session that cannot be.
    """
    question, part = asked_by_rounds(regression.text), study.workload.budget_part(regression)
    if not question:
        return None
    names = columns_of(regression, study.workload)
    columns = [column for column in study.workload.columns if column.name in names]
    mu = mu_of_budget(study.epsilon, study.delta) * math.sqrt(part)
    epsilon = study.epsilon if part == 1 else epsilon_within(mu, study.delta)
    budget: ModelKeywords = {"epsilon": epsilon, "delta": study.delta, "colluding": study.colluding}
    budget |= {"dropouts": study.dropouts, "protocol": study.protocol}
    family = str(read_text(question)["family"])
    model = GeneralizedLinearModel(regression.formula, columns, family=family, where=regression.where or "", **budget)
    noise = noise_of_total(model.session_study(parties).plan(parties))
    return FittedStudies(model, parties, noise, records, regression=regression)


def fitted_studies(study: SessionStudy, parties: int, noise: float, records: float, studies: int) -> FittedStudies:
    """What to expect of the model that a session of so many parties fits. Raises :class:`InputError` as :func:`model_of` does."""
    return FittedStudies(model_of(study.require_model(), parties), parties, noise, records, studies)
