"""Least squares of weighted records: what is released of them, and how much slopes vary by the design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints
from quietmean.statistics.columns import Column
from quietmean.statistics.delta_method import smooth, spread
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.features.weighted import Weighted
from quietmean.statistics.intervals import degrees_of_both
from quietmean.statistics.paired_columns import Sampling, readers_of
from quietmean.statistics.statistic import Feature, Released
from quietmean.statistics.survey_design import SMALL


@dataclass(frozen=True, eq=False)
class WeightedMoments:
    """Moments of records that count with a weight, and by cluster where these were drawn.

    ``own``: those without weights; ``squares``: also with the square of the weight. A coefficient is a smooth function of them.
    With its gradient g a record adds u g q to it, u the part of the weight's cap and q its quantities. Its variance of sampling
    is that of drawing with replacement: n / (n - 1) times the sum of squares, or m / (m - 1) times those of the m clusters' sums
    about their mean.
    """

    own: Moments
    weight: Column
    psu: Column | None
    squares: bool = True

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What is released: with u and, for squares, with u^2, or by cluster."""
        whole = Weighted(self.own, self.weight, squares=self.squares, needs=() if self.psu is None else (self.psu,))
        return (whole,) if self.psu is None else (whole, replace(whole, inner=replace(self.own, by=self.psu)))

    def seen(self, released: Released) -> Released:
        """The weighted moments in the place of those without weights."""
        places: dict[Feature, Ints] = {self.own: released.places[self.features[0]][: self.own.size]}
        return replace(released, places=places, whole=None, least=released.least * SMALL)

    def effective(self, released: Released) -> float | None:
        """As many records of equal weights say as much (Kish); None where clusters were drawn."""
        if self.psu is not None:
            return None
        quantities = released.mean(self.features[0])
        square = float(quantities[self.own.size])
        return float(released.weight * quantities[0] ** 2 / square) if square > 0 else 1.0

    def of_records(self, released: Released, gradients: Array, pair: tuple[Vertex, Vertex], records: float) -> Sampling:
        """The variances of coefficients with these gradients, (coefficients, q), from the squares of two columns' records."""
        readers = readers_of(self.own, *pair)
        weights = np.array([_squared(gradient, readers) for gradient in gradients])
        places = released.places[self.features[0]][self.own.size :]
        covariance = released.covariance_at(places, places)
        factor = 1 / max(records - 1, 1.0)
        uncertain = np.array([spread(each, covariance) for each in weights])
        return Sampling(weights @ released.quantities[places], uncertain).times(factor)

    def of_clusters(self, released: Released, gradients: Array, noise: Array) -> tuple[Array, list[float]]:
        """The variances of coefficients, and the degrees of freedom of their sums with the ``noise``, (coefficients,)."""
        divided = self.features[1]
        clusters, size = divided.size // self.own.size, self.own.size
        quantities, covariance = released.mean(divided), released.covariance(divided)
        found, degrees = [], []
        for gradient, own in zip(gradients, noise.tolist(), strict=True):

            def variance(points: NDArray[Any], gradient: Array = gradient) -> NDArray[Any]:
                each = points.reshape(len(points), clusters, size) @ gradient
                apart = each - each.mean(axis=1, keepdims=True)
                return np.asarray((apart**2).sum(axis=1, keepdims=True) * clusters / (clusters - 1))

            estimated = float(smooth(variance, quantities, covariance).values[0])
            added = float(variance(quantities[None])[0, 0].real) - estimated
            found.append(max(estimated, 0.0))
            degrees.append(degrees_of_both(max(own, 0.0), estimated, clusters - 1, added))
        return np.array(found), degrees


def _squared(gradient: Array, readers: Mapping[tuple[int, int], Array]) -> Array:
    """Weights of the quantities in the square of a record's sum, (q,), of two columns up to order four."""
    powers: dict[int, tuple[int, int]] = {}
    for power, reader in readers.items():
        powers.setdefault(int(np.argmax(reader)), power)
    squared = np.zeros(len(gradient))
    used = [place for place in np.flatnonzero(gradient).tolist() if place in powers]
    for one in used:
        for other in used:
            (a, b), (c, d) = powers[one], powers[other]
            squared += gradient[one] * gradient[other] * readers[a + c, b + d]
    return squared
