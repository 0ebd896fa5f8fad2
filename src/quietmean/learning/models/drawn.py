"""What to expect of a model by rounds before its session, from fits of made-up records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.learning.models.glm import model_of
from quietmean.learning.models.model import ModelByRounds
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.columns import Column
from quietmean.statistics.drawn_studies import DrawnStudies, samples
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.models import ModelQuestion
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.studies.agreement.session_study import SessionStudy

# Made-up records, and fits that are drawn at most: each takes all rounds.
_ROWS, _FITS = 1 << 10, 25


@dataclass(frozen=True, eq=False)
class FittedStudies(DrawnStudies[ModelQuestion]):
    """What to expect of a ``model`` of so many ``parties``, whose columns have nothing to do with each other.

    ``noise``: the standard deviation of the noise in the total of all vectors of a round.
    """

    model: ModelByRounds
    parties: int
    noise: float
    records: float
    studies: int = _FITS

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
        parts = np.array_split(self._made_up(spread), self.parties if self.model.by_party else 1)
        for fit in self.model.drawn_fits(parts, weights, self.noise / less_noise / weight, weight, added):
            yield fit.coefficients

    def _made_up(self, spread: float) -> Array:
        """Made-up records, (rows, columns)."""
        scenario = SyntheticRecords(self.model.columns, {}, spread, None, _ROWS)
        return scenario.table(self.model.columns.names)


def fitted_studies(study: SessionStudy, parties: int, noise: float, records: float, studies: int) -> FittedStudies:
    """What to expect of the model that a session of so many parties fits. Raises :class:`InputError` as :func:`model_of` does."""
    return FittedStudies(model_of(study.require_model(), parties), parties, noise, records, studies)
