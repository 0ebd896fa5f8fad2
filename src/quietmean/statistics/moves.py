"""How far each term of a study's statistics moves where the vector that they are read from moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quietmean.core.party import Vector
from quietmean.statistics.answers import Answer
from quietmean.statistics.coding import Decoder
from quietmean.statistics.estimate import WHOLE
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.influence_bounds import Around, Shift
from quietmean.statistics.statistic import Statistic, TermReading
from quietmean.statistics.workload import Workload

# Records of which answers are made up, for their terms and ranges: as many values of each column as there are levels or more.
_MADE_UP = 64
_STRIDE = 27
# A divisor that moves by less is a public number.
_FIXED = 1e-9


@dataclass(frozen=True)
class Move:
    """How far one term of a statistic moves.

    ``most``: how far a term moves at most, infinite where nothing bounds it; None where an older document does not say.

    ``range``: where it can be anything between these two numbers, which no values give anything beyond: what is shown beyond by
    noise or a lie says so itself, and counts as the end.
    """

    statistic: str
    term: str
    most: float | None
    range: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        return self.statistic if self.term == WHOLE else f"{self.statistic} {self.term}"


def moves(
    workload: Workload, shift: Shift, step: float, mean: Vector | None = None, answers: Sequence[Answer] = ()
) -> tuple[Move, ...]:
    """How far each term of each statistic moves: what follows from the bounds of features through its estimator, or its whole
    range.

    ``mean``: the mean vector, (d,), with its ``answers``; without it, before the start, ratios are of records that all have a
    value. ``step``: as for :meth:`Workload.decode`.
    """
    decoder = workload.decoder(step)
    estimates = {answer.statistic.text: answer.estimates for answer in answers}
    return tuple(_moves(workload, around_of(decoder, shift, mean), decoder, estimates))


def around_of(decoder: Decoder, shift: Shift, mean: Vector | None) -> Around:
    quantities = None if mean is None else decoder.read @ mean + decoder.offset
    return Around(decoder.read, decoder.spread, decoder.places, shift, decoder.offset, quantities)


def _moves(workload: Workload, around: Around, decoder: Decoder, answers: Mapping[str, Estimates]) -> Iterator[Move]:
    made_up: dict[str, Estimates] = {}
    for statistic in workload.statistics:
        features_of = workload.with_columns(statistic)
        seen = features_of.around(around, decoder.whole)
        if readings := features_of.statistic.readings(features_of.seen):
            # Ratios are released as they come out, beyond the ends of their range too: it bounds nothing.
            yield from (Move(statistic.text, reading.term, _moved(seen, reading)) for reading in readings)
            continue
        bounds = dict(features_of.statistic.moved(seen, features_of.seen))
        if statistic.text not in answers and not made_up:
            made_up = _made_up(workload)
        estimates = (answers or made_up)[statistic.text]
        if around.is_bounded:
            yield from _within_ranges(statistic, bounds, estimates)
        else:
            # Nothing that is shown need be within a range then.
            yield from (Move(statistic.text, term, math.inf) for term in estimates.terms)


def _within_ranges(statistic: Statistic, bounds: Mapping[str, float], estimates: Estimates) -> Iterator[Move]:
    for term, low, high in zip(estimates.terms, estimates.low.tolist(), estimates.high.tolist(), strict=True):
        most, width = bounds.get(term, math.inf), high - low
        yield (
            Move(statistic.text, term, most)
            if most < width or math.isinf(width)
            else Move(statistic.text, term, width, (low, high))
        )


def _made_up(workload: Workload) -> dict[str, Estimates]:
    """Answers of public records that are nobody's: their terms, and between what each lies whatever the data."""
    places = np.arange(_MADE_UP)
    columns = []
    for index, column in enumerate(workload.columns):
        order = places * (_STRIDE + 2 * index) % _MADE_UP
        columns.append(
            column.low + column.width * (order + 0.5) / _MADE_UP
            if column.numeric
            else (order % len(column.categories)).astype(np.float64)
        )
    mean = workload.of_records(np.column_stack(columns)).mean(axis=0)
    return {answer.statistic.text: answer.estimates for answer in workload.decode(mean, 0.0, float(_MADE_UP))}


def _moved(around: Around, reading: TermReading) -> float:
    """How far a term moves that is read from quantities directly; infinite where nothing bounds it."""
    feature, top, bottom = reading.feature, reading.top, reading.bottom
    if not around.is_bounded:
        return math.inf
    if reading.adds_up:
        places = around.places[feature]
        each = float(np.abs(top @ around.read[places]) @ around.shift.total)
        return each + abs(float(top @ around.offset[places])) * around.shift.weight
    if bottom is None:
        return float(around.moved(feature, top))
    moved = float(around.moved(feature, bottom))
    if moved < _FIXED * max(1.0, float(around.shift.mean.max())):
        return float(around.moved(feature, top)) / float(bottom @ around.offset[around.places[feature]])
    if around.quantities is None:
        # All is present, and the ratio at whichever end moves more.
        if not around.of_all or not all(map(math.isfinite, reading.ends)) or moved >= 1:
            return math.inf
        return max(float(around.moved(feature, top - end * bottom)) for end in reading.ends) / (1 - moved)
    return around.ratio(feature, top, bottom)
