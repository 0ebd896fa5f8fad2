"""Statistics of two columns of the same records that are smooth functions of released products up to order four.

Errors of sampling are by gradient, from the released products of orders three and four, which cost nothing: they hold whatever
the distribution is. Where the noise hides these products, a normal distribution's take their place.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.complete_records import moments_of
from quietmean.statistics.delta_method import Estimated, Function, Smooth, smooth
from quietmean.statistics.estimate import ASK_FOR_MORE, TOO_FEW_COMPLETE, Flag, Interval, near_threshold
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.tails import tails

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
        return cls(released.mean(feature), released.covariance(feature), readers_of(feature, x, y))

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


def readers_of(feature: Moments, x: Vertex, y: Vertex) -> dict[tuple[int, int], Array]:
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


# The products that such a function may depend on.
_ORDERS = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
_NUDGE = 1e-7
_RELATION = 0.5
NOTHING = Flag("nothing-present", TOO_FEW_COMPLETE)


@dataclass(frozen=True, eq=False)
class Pair:
    """Means, variances (divisor n) and covariance of both columns in their units, (points,) each; they may be complex."""

    first: NDArray[Any]
    second: NDArray[Any]
    first_variance: NDArray[Any]
    second_variance: NDArray[Any]
    covariance: NDArray[Any]

    @property
    def difference(self) -> NDArray[Any]:
        """The mean of the second less the first."""
        return np.asarray(self.second - self.first)

    @property
    def variance_of_difference(self) -> NDArray[Any]:
        return np.asarray(self.first_variance + self.second_variance - 2 * self.covariance)

    @property
    def total(self) -> NDArray[Any]:
        return np.asarray(self.first_variance + self.second_variance)


# Terms, (points, terms), from both columns.
PairFunction = Callable[[Pair], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PairOfColumns:
    """The released products of two columns, of so many ``records`` that have both."""

    moments: PairMoments
    columns: tuple[Vertex, Vertex]
    records: float

    @classmethod
    def of(cls, released: Released, feature: Moments, first: Vertex, second: Vertex) -> PairOfColumns | None:
        """None where noise hides whether any record is complete, or all but one are not."""
        part, error = released.weighted(feature, np.eye(feature.size)[0])
        records = released.weight * part
        if part <= LEAST_PRESENT * error or records < 2:
            return None
        return cls(PairMoments.of(released, feature, first, second), (first, second), records)

    def _pair(self, means: Means) -> Pair:
        (x, y), first, second = self.columns, means[1, 0], means[0, 1]
        return Pair(
            x.centre + x.half * first,
            y.centre + y.half * second,
            x.half**2 * (means[2, 0] - first**2),
            y.half**2 * (means[0, 2] - second**2),
            x.half * y.half * (means[1, 1] - first * second),
        )

    def estimated(self, function: PairFunction) -> Estimated:
        def values(means: Means) -> NDArray[Any]:
            return function(self._pair(means))

        smooth, variances = self.moments.smooth(values), _by_gradient(values)
        factor = 1 / max(self.records - 1, 1.0)
        own = self.moments.sampling(variances).times(factor)
        here = {powers: np.array([value.real]) for powers, value in self.moments.means().items()}
        model = variances(_normal(here))[0].real * factor
        drawn = own.shrink_towards(np.maximum(model, 0.0))
        degrees = drawn.degrees(smooth.noise, self.records - 1)
        return Estimated(smooth.values, smooth.noise, np.maximum(drawn.variances, 0.0), degrees)


def _by_gradient(values: Callable[[Means], NDArray[Any]]) -> Variances:
    """The variance that one record adds to a function of the means, by its slopes and the products of twice the order."""

    def variances(means: Means) -> NDArray[Any]:
        def moved(order: tuple[int, int], step: float) -> NDArray[Any]:
            return values({**means, order: means[order] + step})

        slopes = [(moved(order, _NUDGE) - moved(order, -_NUDGE)) / (2 * _NUDGE) for order in _ORDERS]
        total: NDArray[Any] = np.zeros_like(slopes[0])
        for (one, own), (other, its) in product(zip(_ORDERS, slopes, strict=True), repeat=2):
            together = means[one[0] + other[0], one[1] + other[1]] - means[one] * means[other]
            total = total + own * its * together[:, None]
        return total

    return variances


def _normal(means: Means) -> dict[tuple[int, int], NDArray[Any]]:
    """The products up to order four of a normal distribution with these means, variances and covariance."""
    middles = means[1, 0], means[0, 1]
    a, b, c = means[2, 0] - middles[0] ** 2, means[1, 1] - middles[0] * middles[1], means[0, 2] - middles[1] ** 2
    none = np.zeros_like(a)
    central = {(0, 0): none + 1, (1, 0): none, (0, 1): none, (2, 0): a, (1, 1): b, (0, 2): c}
    central |= {(i, 3 - i): none for i in range(4)}
    central |= {(4, 0): 3 * a**2, (3, 1): 3 * a * b, (2, 2): a * c + 2 * b**2, (1, 3): 3 * b * c, (0, 4): 3 * c**2}
    raw = {}
    for first, second in central:
        terms = [
            math.comb(first, i) * math.comb(second, j) * middles[0] ** (first - i) * middles[1] ** (second - j) * central[i, j]
            for i, j in product(range(first + 1), range(second + 1))
        ]
        raw[first, second] = sum(terms, none)
    return raw


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfPair(Statistic, ABC):
    """A statistic of two columns of numbers of the same records."""

    by_place = ("first", "second")
    expects: ClassVar[tuple[str, ...]] = ("correlation", "difference")
    asks_for_relations = True

    first: str = parameter(help="the first column of numbers")
    second: str = parameter(help="the second one")

    def synthesize(self, scenario: SyntheticRecords) -> None:
        relation, difference = scenario.expected("correlation"), scenario.expected("difference")
        scenario.correlate(self.second, [scenario.normal(self.first)], [_RELATION if relation is None else relation])
        if difference is not None:
            column = scenario.columns[self.second]
            shift = difference - float(scenario.values[self.second].mean() - scenario.values[self.first].mean())
            scenario.values[self.second] = np.clip(scenario.values[self.second] + shift, column.low, column.high)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._moments(columns),)

    def _moments(self, columns: Columns) -> Moments:
        if self.first == self.second:
            raise InputError(f"{self.text} is of one column only. Name two.")
        return moments_of(self._vertices(columns), robust=True)

    def _vertices(self, columns: Columns) -> tuple[Vertex, Vertex]:
        return Vertex(columns.number(self.first)), Vertex(columns.number(self.second))

    def _limits(self, columns: Columns) -> Interval:
        """Between what a difference of both columns lies."""
        first, second = columns.number(self.first), columns.number(self.second)
        return second.low - first.high, second.high - first.low

    def _pair(self, released: Released, columns: Columns) -> PairOfColumns | None:
        return PairOfColumns.of(released, self._moments(columns), *self._vertices(columns))


# Noise deviations that a variance must have to be divided by, or to have a root; and what is more than rounding of it.
_LEAST_VARIANCE, _ROUNDING = 4.0, 1e-12


def clearance(pair: PairOfColumns, function: PairFunction) -> float:
    """How many times what the noise hides a variance is, the only term of the function: hidden up to 1."""
    known = pair.estimated(function)
    width = sum(vertex.half**2 for vertex in pair.columns)
    least = max(tails().deviations(_LEAST_VARIANCE) * math.sqrt(known.noise[0]), _ROUNDING * width)
    return float(known.values[0]) / least


def about_spread(ratio: float, terms: tuple[str, ...]) -> tuple[Flag, ...]:
    """What is said of terms that need a variance which is so many times what the noise hides."""
    if ratio > 1:
        return tuple(near_threshold("how far both columns differ between records", ratio, terms))
    text = f"the noise hides how far both columns differ between records. {ASK_FOR_MORE}"
    return (Flag("no-variance", text, terms),)
