"""Variances that hold whatever the model is, from released products of two columns up to order four, the noise counted in.

The variance of a slope is that of e (x - m) / v over the number of records (HC1: MacKinnon and White, J. Econometrics 29, 1985),
with e what the line leaves; that of a correlation r of columns a and b in standard units the variance of a b - r (a^2 + b^2) / 2.
Both are functions of the released means. They are smooth, so what noise adds to them on average, by their curvature, is taken
off, and how far it moves them, by their slope, is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.statistics.delta_method import Function, Smooth, smooth
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.statistic import Released

# Means of x^i y^j by (i, j), each of shape (points,): they may be complex, for derivatives.
Means = Mapping[tuple[int, int], NDArray[Any]]
# Variances for one record of some estimates, shape (points, estimates).
Variances = Callable[[Means], NDArray[Any]]

_MOST_POWERS = 4
# The part of the noise's variance that pulls an estimated variance towards the model's.
_DRAWN = 0.1
# The least degrees of freedom of an estimated variance that was pulled towards the model's.
_LEAST_DEGREES = 4.0


@dataclass(frozen=True, eq=False)
class Sampling:
    """The variances of estimates by sampling, (estimates,), and the variance that noise gives each of these."""

    variances: Array
    uncertainty: Array

    def times(self, factors: Array | float) -> Sampling:
        return Sampling(self.variances * factors, self.uncertainty * np.square(factors))

    def shrink_towards(self, model: Array) -> Sampling:
        """Draw the variances to the model's by as much as the noise may be why they differ, and not at all without noise.

        Within a third of the noise's deviation these are the model's; beyond, the less is taken off the further they are apart,
        as in Stein's estimate. Noise alone would else make a variance, which is at least 0, too large on average.
        """
        apart = np.maximum(self.variances, 0.0) - model
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(self.uncertainty > 0, np.maximum(1 - _DRAWN * self.uncertainty / apart**2, 0.0), 1.0)
        return Sampling(model + own * apart, own * self.uncertainty)

    def degrees(self, noise: Array, degrees: float) -> Array:
        """Degrees of freedom of the sum with known variances of ``noise`` (Satterthwaite); ``degrees``: those without noise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            satterthwaite = (noise + self.variances) ** 2 / (self.variances**2 / max(degrees, 1.0) + self.uncertainty / 2)
        return np.where(self.variances > 0, np.maximum(satterthwaite, min(degrees, _LEAST_DEGREES)), math.inf)


@dataclass(frozen=True, eq=False)
class PairMoments:
    """The released means of all products of two columns up to order four that they have.

    ``quantities`` (q,) and the covariance of their noise; ``readers``: which of them is the mean of which powers of both.
    """

    quantities: Array
    noise: Array
    readers: Mapping[tuple[int, int], Array]

    @classmethod
    def of(cls, released: Released, feature: Moments, x: Vertex, y: Vertex) -> PairMoments:
        return cls(released.mean(feature), released.covariance(feature), _readers(feature, x, y))

    def means(self) -> dict[tuple[int, int], NDArray[Any]]:
        """The means of all products, as they were released."""
        return {powers: self.quantities @ reader / self.quantities[0] for powers, reader in self.readers.items()}

    def smooth(self, function: Variances) -> Smooth:
        """The values of functions of the means, without what the noise adds on average, and their slopes by the quantities."""
        return smooth(self.of_quantities(function), self.quantities, self.noise)

    def sampling(self, variances: Variances) -> Sampling:
        """The variance that one record adds to functions of the means."""
        own = self.smooth(variances)
        return Sampling(own.values, own.noise)

    def of_quantities(self, function: Variances) -> Function:
        """A function of the means as one of the quantities."""
        return lambda points: function({powers: points @ reader / points[:, 0] for powers, reader in self.readers.items()})


def _readers(feature: Moments, x: Vertex, y: Vertex) -> dict[tuple[int, int], Array]:
    """Which quantity is the mean of which powers of both, those of a level being 1 or the level itself."""
    readers = {}
    for first, second in product(range(5), repeat=2):
        powers = {x: first % 2 if x.level is not None else first, y: second}
        index = feature.place_of({vertex: power for vertex, power in powers.items() if power})
        if first + second <= _MOST_POWERS and index is not None:
            readers[first, second] = np.eye(feature.size)[index]
    return readers


def _central(means: Means, first: int, second: int) -> NDArray[Any]:
    """The mean of (x - its mean)^first (y - its mean)^second."""
    middles = -means[1, 0], -means[0, 1]
    mean = np.zeros_like(middles[0])
    for i, j in product(range(first + 1), range(second + 1)):
        factor = math.comb(first, i) * math.comb(second, j)
        mean = mean + factor * middles[0] ** (first - i) * middles[1] ** (second - j) * means[i, j]
    return mean


def of_line(origin: float) -> Variances:
    """Variances for the least squares line of y on x: of its height at the ``origin`` of x, and of its slope."""

    def variances(means: Means) -> NDArray[Any]:
        square = _central(means, 2, 0)
        slope = _central(means, 1, 1) / square
        # Means of the squared residual times powers of x, less its mean.
        left = [
            _central(means, power, 2) - 2 * slope * _central(means, power + 1, 1) + slope**2 * _central(means, power + 2, 0)
            for power in range(3)
        ]
        away = (origin - means[1, 0]) / square
        return np.stack([left[0] + 2 * away * left[1] + away**2 * left[2], left[2] / square**2], axis=1)

    return variances


def of_correlation(means: Means) -> NDArray[Any]:
    """The variance for the correlation of x and y."""
    square = {0: _central(means, 2, 0), 1: _central(means, 0, 2)}
    root = np.sqrt(square[0] * square[1])
    value = _central(means, 1, 1) / root
    both = (1 + value**2 / 2) * _central(means, 2, 2) / root**2
    mixed = value / root * (_central(means, 3, 1) / square[0] + _central(means, 1, 3) / square[1])
    own = value**2 / 4 * (_central(means, 4, 0) / square[0] ** 2 + _central(means, 0, 4) / square[1] ** 2)
    return np.asarray(both - mixed + own)[:, None]
