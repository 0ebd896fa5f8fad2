"""Where the quantities of a result may lie if one party sent something else: what statistics bound their terms by."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints


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

    ``places``: where each feature's quantities are. ``quantities``: (q,), as released; None before the start, when they may be
    those of any records. ``of_all``: they are of all records, not of those in which a condition holds, of which nobody knows
    beforehand how many there are.
    """

    read: Array
    spread: Array
    places: Mapping[Any, Ints]
    shift: Shift
    offset: Array
    quantities: Array | None = None
    of_all: bool = True

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.shift.mean).all())

    def moved(self, feature: Hashable, weights: Array) -> Array:
        """How far weighted sums of a feature's quantities move at most, (...), by weights (..., size)."""
        moved: Array = np.abs(weights @ self.read[self.places[feature]]) @ self.shift.mean
        return moved

    def values(self, feature: Hashable, weights: Array) -> Array | None:
        """Weighted sums of a feature's quantities as they were released."""
        return None if self.quantities is None else np.asarray(weights @ self.quantities[self.places[feature]])

    def noise(self, feature: Hashable, weights: Array) -> Array:
        """The largest standard deviation of the noise in them."""
        own = self.spread[np.ix_(self.places[feature], self.places[feature])]
        squares = np.einsum("...p,pq,...q->...", weights, own, weights)
        return np.asarray(self.shift.most_noise * np.sqrt(np.maximum(squares, 0.0)))

    def own_noise(self, feature: Hashable, weights: Array) -> Array:
        """The covariance of the result's noise in sums by weights (sums, size)."""
        places = self.places[feature]
        covariance: Array = self.shift.noise**2 * (weights @ self.spread[np.ix_(places, places)] @ weights.T)
        return covariance

    def ratio(self, feature: Hashable, top: Array, bottom: Array) -> float:
        """How far a ratio of two sums moves from that of a result.

        With v = a / b as released and v' = a' / b': v - v' = ((a - a') - v (b - b')) / b', and b' is at least b - |b - b'|.
        """
        amount, part, moved = self.values(feature, top), self.values(feature, bottom), float(self.moved(feature, bottom))
        if amount is None or part is None or float(part) <= moved:
            return math.inf
        value = float(amount) / float(part)
        return float(self.moved(feature, top - value * bottom)) / (float(part) - moved)
