"""How far each term of a study's statistics moves where the vector that they are read from moves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Vector
from quietmean.statistics.decoding import Decoder
from quietmean.statistics.flags_and_tests import WHOLE
from quietmean.statistics.statistic import TermReading
from quietmean.statistics.workload import Workload

Array = NDArray[np.float64]

# A divisor that moves by less is a public number.
_FIXED = 1e-9


@dataclass(frozen=True, eq=False)
class Shift:
    """How far each coordinate of a ``mean`` of vectors may move, (d,), or of their ``total``, (d,), with so much ``weight``."""

    mean: Array
    total: Array
    weight: float


@dataclass(frozen=True)
class Move:
    """``most``: how far a term moves at most, infinite where nothing bounds it; None where that is not known."""

    statistic: str
    term: str
    most: float | None

    @property
    def label(self) -> str:
        return self.statistic if self.term == WHOLE else f"{self.statistic} {self.term}"


def moves(workload: Workload, shift: Shift, step: float, mean: Vector | None = None) -> tuple[Move, ...]:
    """Of each term that is linear in the vector, or a ratio of what is; of others of a statistic as a whole that it is not known.

    ``mean``: the mean vector, (d,), without which ratios are taken to be of records that all have a value. ``step``: as for
    :meth:`Workload.decode`.
    """
    return tuple(_moves(workload, shift, workload.decoder(step), mean))


def _moves(workload: Workload, shift: Shift, decoder: Decoder, mean: Vector | None) -> Iterator[Move]:
    for statistic in workload.statistics:
        readings = workload.asked(statistic).readings
        if not readings:
            yield Move(statistic.text, WHOLE, None)
        for reading in readings:
            yield Move(statistic.text, reading.term, _most(reading, shift, decoder, mean))


def _most(reading: TermReading, shift: Shift, decoder: Decoder, mean: Vector | None) -> float | None:
    places = decoder.places[reading.feature]
    read, offset = decoder.read[places], decoder.offset[places]
    if not np.isfinite(shift.mean).all():
        return math.inf
    if reading.adds_up:
        return float(np.abs(reading.top @ read) @ shift.total + abs(reading.top @ offset) * shift.weight)
    if reading.bottom is None:
        return float(np.abs(reading.top @ read) @ shift.mean)
    moved = float(np.abs(reading.bottom @ read) @ shift.mean)
    if moved < _FIXED * max(1.0, float(shift.mean.max())):
        return float(np.abs(reading.top @ read) @ shift.mean) / float(reading.bottom @ offset)
    if mean is None:
        # All is present, and the ratio at whichever end moves more.
        slopes = [np.abs((reading.top - end * reading.bottom) @ read) @ shift.mean for end in reading.ends]
        return float(max(slopes)) / (1 - moved) if moved < 1 else math.inf
    # With v = a / b as released and v' = a' / b': v - v' = ((a - a') - v (b - b')) / b', and b' is no less than b - |b - b'|.
    quantities = read @ mean + offset
    part = float(reading.bottom @ quantities)
    if part <= moved:
        return math.inf
    value = float(reading.top @ quantities) / part
    return float(np.abs((reading.top - value * reading.bottom) @ read) @ shift.mean) / (part - moved)
