"""Where the quantities of a result may lie if one party sent something else: what statistics bound their terms by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from quietmean.statistics.statistic import Feature, TermReading

Array = NDArray[np.float64]

# A divisor that moves by less is a public number.
_FIXED = 1e-9


@dataclass(frozen=True, eq=False)
class Shift:
    """How far each coordinate of a ``mean`` of vectors may move, (d,), or of their ``total``, (d,), with so much ``weight``.

    ``most_noise``: the largest standard deviation of the noise on a coordinate of either mean, and ``noise`` that of the result;
    ``records``: the weight of all.
    """

    mean: Array
    total: Array
    weight: float
    most_noise: float = 0.0
    records: float = 1.0
    noise: float = 0.0


@dataclass(frozen=True, eq=False)
class Around:
    """Quantities read @ mean + offset of a mean that moves by a ``shift``; ``spread``: their covariance under noise of size 1.

    ``quantities``: (q,), as released; None before the start, when they may be those of any records. ``of_all``: they are of all
    records, not of those in which a condition holds, of which nobody knows beforehand how many there are.
    """

    read: Array
    spread: Array
    places: Mapping[Feature, NDArray[np.int64]]
    shift: Shift
    offset: Array
    quantities: Array | None = None
    of_all: bool = True

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.shift.mean).all())

    def moved(self, feature: Feature, weights: Array) -> Array:
        """How far weighted sums of a feature's quantities move at most, (...), by weights (..., size)."""
        moved: Array = np.abs(weights @ self.read[self.places[feature]]) @ self.shift.mean
        return moved

    def values(self, feature: Feature, weights: Array) -> Array | None:
        """The same sums as they were released."""
        return None if self.quantities is None else np.asarray(weights @ self.quantities[self.places[feature]])

    def noise(self, feature: Feature, weights: Array) -> Array:
        """The largest standard deviation of the noise in them."""
        own = self.spread[np.ix_(self.places[feature], self.places[feature])]
        squares = np.einsum("...p,pq,...q->...", weights, own, weights)
        return np.asarray(self.shift.most_noise * np.sqrt(np.maximum(squares, 0.0)))

    def own_noise(self, feature: Feature, weights: Array) -> Array:
        """The covariance of the result's noise in sums by weights (sums, size)."""
        places = self.places[feature]
        covariance: Array = self.shift.noise**2 * (weights @ self.spread[np.ix_(places, places)] @ weights.T)
        return covariance

    def of(self, reading: TermReading) -> float:
        """How far a term moves that is read from quantities directly; infinite where nothing bounds it."""
        feature, top, bottom = reading.feature, reading.top, reading.bottom
        if not self.is_bounded:
            return math.inf
        if reading.adds_up:
            places = self.places[feature]
            each = float(np.abs(top @ self.read[places]) @ self.shift.total)
            return each + abs(float(top @ self.offset[places])) * self.shift.weight
        if bottom is None:
            return float(self.moved(feature, top))
        moved = float(self.moved(feature, bottom))
        if moved < _FIXED * max(1.0, float(self.shift.mean.max())):
            return float(self.moved(feature, top)) / float(bottom @ self.offset[self.places[feature]])
        if self.quantities is None:
            # All is present, and the ratio at whichever end moves more.
            if not self.of_all or not all(map(math.isfinite, reading.ends)) or moved >= 1:
                return math.inf
            return max(float(self.moved(feature, top - end * bottom)) for end in reading.ends) / (1 - moved)
        return self.ratio(feature, top, bottom)

    def ratio(self, feature: Feature, top: Array, bottom: Array) -> float:
        """How far a ratio of two sums moves from that of a result.

        With v = a / b as released and v' = a' / b': v - v' = ((a - a') - v (b - b')) / b', and b' is no less than b - |b - b'|.
        """
        part, moved = self.values(feature, bottom), float(self.moved(feature, bottom))
        if part is None or float(part) <= moved:
            return math.inf
        value = float(self.values(feature, top)) / float(part)  # type: ignore[arg-type]
        return float(self.moved(feature, top - value * bottom)) / (float(part) - moved)
