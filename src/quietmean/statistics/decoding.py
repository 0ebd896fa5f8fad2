"""Generalised least squares: the quantities of all features from one noisy vector, with what is known about them exactly."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.statistic import TOTAL, Feature, Released

Array = NDArray[np.float64]

# Of the eigenvalues of what equalities restrict, those below this part of the largest say nothing new.
_REDUNDANT = 1e-10


@dataclass(frozen=True, eq=False)
class Decoder:
    """From the mean of vectors to quantities: public post-processing, linear.

    ``read``: the matrix (q, d) and ``offset`` (q,) with quantities = read @ mean + offset. ``spread``: (q, q), their covariance
    where the noise on every coordinate of the mean is 1.
    """

    read: Array
    offset: Array
    spread: Array
    places: Mapping[Feature, NDArray[np.int64]]

    @classmethod
    def of(cls, scales: Mapping[Feature, float], parts: Mapping[Feature, Feature], step: float) -> Decoder:
        """For features with these factors in the vector, rounded to the grid of ``step``; ``parts`` are included in others.

        The best linear unbiased estimate under independent noise of equal size. Equalities: events that several features know
        agree, and the event of all records is 1.
        """
        ends = np.cumsum([feature.size for feature in scales]).tolist()
        places = {feature: np.arange(end - feature.size, end) for feature, end in zip(scales, ends, strict=True)}
        free = np.zeros((ends[-1], ends[-1]))
        for feature, scale in scales.items():
            free[np.ix_(places[feature], places[feature])] = np.linalg.inv(feature.response(scale, step)) / scale
        spread = free @ free.T
        equal, known = _equalities(list(scales), places, ends[-1])
        gain = spread @ equal.T @ _pseudo_inverse(equal @ spread @ equal.T)
        rest = np.eye(ends[-1]) - gain @ equal
        restricted = rest @ spread @ rest.T
        known_places = places | {part: places[whole][whole.places_of(part)] for part, whole in parts.items()}
        return cls(rest @ free, gain @ known, (restricted + restricted.T) / 2, known_places)

    def released(self, mean: Array, noise: float, weight: float) -> Released:
        """What statistics read from a mean vector (d,) with noise of that standard deviation on each coordinate."""
        return Released(weight, self.read @ mean + self.offset, noise**2 * self.spread, self.places)


def _equalities(features: Sequence[Feature], places: Mapping[Feature, NDArray[np.int64]], size: int) -> tuple[Array, Array]:
    """Matrix (m, q) and right sides (m,) of all equalities."""
    told: dict[Hashable, list[Array]] = {}
    for feature in features:
        for event, weights in feature.events().items():
            row = np.zeros(size)
            row[places[feature]] = weights
            told.setdefault(event, []).append(row)
    rows = [(row, 1.0) for row in told.pop(TOTAL, [])]
    rows += [(other - first, 0.0) for first, *others in told.values() for other in others]
    matrix, known = np.array([row for row, _ in rows]).reshape(-1, size), np.array([value for _, value in rows])
    return matrix, known


def _pseudo_inverse(matrix: Array) -> Array:
    """Of a symmetric positive semidefinite matrix, without directions that only rounding fills."""
    if not len(matrix):
        return matrix
    size = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    inverse = np.where(values > _REDUNDANT * values[-1], 1 / np.maximum(values, _REDUNDANT * values[-1]), 0.0)
    found: Array = (vectors * inverse) @ vectors.T / np.outer(size, size)
    return found
