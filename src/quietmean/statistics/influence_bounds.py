"""How far what statistics read may move if one party sends something else: quantities, moments and least squares."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.statistics.linear import LinearMap


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
    """Quantities read @ mean + offset of a mean that moves by a ``shift``.

    ``places``: where each feature's quantities are. ``quantities``: (q,), as released; None before the start, when they may be
    those of any records. ``of_all``: they are of all records, not of those in which a condition holds, of which nobody knows
    beforehand how many there are.
    """

    read: LinearMap
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
        rows, moved = weights.reshape(-1, weights.shape[-1]), np.zeros(math.prod(weights.shape[:-1]))
        for here, sums, columns in self.read.by_rows(rows, self.places[feature]):
            shares, farthest = np.abs(sums), self.shift.mean[columns]
            bounded = np.isfinite(farthest)
            # A coordinate that a sum does not read moves it by nothing, also where nothing bounds the coordinate.
            endless = (shares[:, ~bounded] > 0).any(axis=-1)
            moved[here] = np.where(endless, math.inf, shares @ np.where(bounded, farthest, 0.0))
        return moved.reshape(weights.shape[:-1])

    def moved_total(self, feature: Hashable, weights: Array) -> float:
        """How far a weighted sum of a feature's quantities moves at most if it is of totals, by weights (size,)."""
        sums, columns = self.read.reached(weights, self.places[feature])
        return float(np.abs(sums) @ self.shift.total[columns])

    def values(self, feature: Hashable, weights: Array) -> Array | None:
        """Weighted sums of a feature's quantities as they were released."""
        return None if self.quantities is None else np.asarray(weights @ self.quantities[self.places[feature]])

    def noise(self, feature: Hashable, weights: Array) -> Array:
        """The largest standard deviation of the noise in them."""
        own = self._spread(feature)
        squares = np.einsum("...p,pq,...q->...", weights, own, weights)
        return np.asarray(self.shift.most_noise * np.sqrt(np.maximum(squares, 0.0)))

    def own_noise(self, feature: Hashable, weights: Array) -> Array:
        """The covariance of the result's noise in sums by weights (sums, size)."""
        covariance: Array = self.shift.noise**2 * (weights @ self._spread(feature) @ weights.T)
        return covariance

    def _spread(self, feature: Hashable) -> Array:
        return self.read.gram(self.places[feature], self.places[feature])

    def ratio(self, feature: Hashable, top: Array, bottom: Array) -> float:
        """How far a ratio of two sums moves from that of a result.

        With v = a / b as released and v' = a' / b': v - v' = ((a - a') - v (b - b')) / b', and b' is at least b - |b - b'|.
        """
        amount, part, moved = self.values(feature, top), self.values(feature, bottom), float(self.moved(feature, bottom))
        if amount is None or part is None or float(part) <= moved:
            return math.inf
        value = float(amount) / float(part)
        return float(self.moved(feature, top - value * bottom)) / (float(part) - moved)


@dataclass(frozen=True, eq=False)
class TermReading:
    """A term that is a weighted sum of a feature's quantities by ``top`` (size,), over one by ``bottom``; None for 1.

    ``adds_up``: times the weight of all records. ``ends``: between which a ratio lies.
    """

    term: str
    feature: Any
    top: Array
    bottom: Array | None = None
    adds_up: bool = False
    ends: tuple[float, float] = (0.0, 1.0)


# Of columns scaled to [-1, 1]: no mean and no product is larger.
_LARGEST = 1.0


@dataclass(frozen=True, eq=False)
class MovedMoments:
    """How far means, (k,), and covariances, (k, k), of k columns scaled to [-1, 1] move from those of a result.

    ``records``: the least and the largest number of records that have them all. ``known``: the means and covariances of the
    result, divisor n, without the noise's own part; None before the start. ``errors``: the largest standard deviation of the
    noise in each covariance, (k, k), known as these are.
    """

    records: tuple[float, float]
    means: Array
    covariances: Array
    known: tuple[Array, Array] | None
    errors: Array

    @classmethod
    def of(cls, around: Around, feature: Hashable, readers: Array, *, grouped: bool) -> MovedMoments | None:
        """``readers``: weights (k + 1, k + 1, size) of the quantities in the mean of each product of 1 and the columns;
        ``grouped``: of one of several groups.

        None where so few records may have them that nothing bounds their moments, as of groups and subgroups before the start.
        """
        total = readers[0, 0]
        present, lost = around.values(feature, total), float(around.moved(feature, total))
        part = 1.0 if present is None else float(present)
        least = part - lost
        if not around.is_bounded or least <= 0:
            return None
        if present is None and (grouped or not around.of_all):
            return None
        raw = around.values(feature, readers)
        if raw is None:
            # What may be released is not known: each product is between -1 and 1.
            products = (around.moved(feature, readers) + _LARGEST * lost) / least
            sizes = (around.noise(feature, readers) + _LARGEST * around.noise(feature, total)) / least
            own = sizes[0, 1:]
            means = products[0, 1:]
            squares = products[1:, 1:] + means[:, None] + means + np.outer(means, means) + np.outer(own, own)
            return cls(_range(around.shift, part, lost), means, squares, None, np.full(squares.shape, math.inf))
        raw = raw / part
        centre = raw[0, 1:]
        single = readers[0, 1:] - centre[:, None] * total
        first = single[:, None, :] * centre[None, :, None]
        joint = readers[1:, 1:] - raw[1:, 1:, None] * total - first - first.transpose(1, 0, 2)
        means = around.moved(feature, single) / least
        products = around.moved(feature, readers[1:, 1:] - raw[1:, 1:, None] * total) / least
        # The noise's own part of a covariance: that of this result, and at most that of the other one.
        whole = float(around.noise(feature, total)) / least
        own = around.noise(feature, single) / least + means * whole
        bias = around.own_noise(feature, single / part)
        covariances = around.moved(feature, joint) / least + np.outer(means, means) + np.outer(own, own) + np.abs(bias)
        slopes = around.noise(feature, single) / least
        across = np.abs(centre)[:, None] * means + means[:, None] * np.abs(centre) + 2 * np.outer(means, means)
        errors = around.noise(feature, joint) / least + (products + across) * whole
        errors += means[:, None] * slopes + slopes[:, None] * means
        covariance = raw[1:, 1:] - np.outer(centre, centre) + bias
        return cls(_range(around.shift, part, lost), means, covariances, (centre, covariance), errors)

    def variances(self) -> Array:
        """How far variances of the divisor n - 1 move, (k, k), with covariances beside them; infinite for a single record."""
        low, high = self.records
        if low <= 1:
            return np.full(self.covariances.shape, math.inf)
        size = np.ones(self.covariances.shape) if self.known is None else np.abs(self.known[1])
        unbiased, least = low / (low - 1), high / (high - 1)
        moved: Array = unbiased * self.covariances + size * (unbiased - least)
        return moved

    def deviation(self, place: int = 0) -> float:
        """How far a standard deviation moves: |sqrt(a) - sqrt(b)| = |a - b| / (sqrt(a) + sqrt(b))."""
        moved = float(self.variances()[place, place])
        if self.known is None or not math.isfinite(moved):
            return math.sqrt(moved)
        high = self.records[1]
        variance = max(float(self.known[1][place, place]), 0.0) * high / (high - 1)
        together = math.sqrt(variance) + math.sqrt(max(variance - moved, 0.0))
        return min(math.sqrt(moved), moved / together if together > 0 else math.inf)

    def correlation(self, i: int, j: int) -> float:
        """How far c / sqrt(u v) moves, within -1 to 1."""
        if self.known is None:
            return 2.0
        covariance, moved = self.known[1], self.covariances
        ends = [
            (float(covariance[a, b] - moved[a, b]), float(covariance[a, b] + moved[a, b])) for a, b in ((i, i), (j, j), (i, j))
        ]
        (u, most_u), (v, most_v), across = ends
        if min(u, v) <= 0:
            return 2.0
        value = _inside(float(covariance[i, j]) / math.sqrt(float(covariance[i, i] * covariance[j, j])))
        farthest = [_inside(end / math.sqrt(size)) for end in across for size in (u * v, most_u * most_v)]
        return max(abs(end - value) for end in farthest)

    def least_squares(self, floor: float) -> tuple[Array, float] | None:
        """How far slopes on all columns but the last, and the intercept, of the last one move, all scaled.

        With r = c' - S' b for the slopes b = S^-1 c of a result: S'^-1 r, whose entries are those of (1 - |S^-1| D)^-1 |S^-1| |r|
        at most, where D bounds |S' - S|. None where that is infinite, or ``floor`` errors of noise may hide the least eigenvalue.
        """
        if self.known is None:
            return None
        means, covariance = self.known
        size = len(means) - 1
        matrix, moved = covariance[:size, :size], self.covariances[:size, :size]
        least_eigenvalue = float(np.linalg.eigvalsh(matrix)[0]) - float(np.linalg.norm(moved, 2))
        if least_eigenvalue <= floor * float(self.errors[:size, :size].max()) or least_eigenvalue <= 0:
            return None
        inverse = np.linalg.inv(matrix)
        slopes = inverse @ covariance[:size, size]
        # A bound on each entry of r by the triangle's inequality.
        rest = self.covariances[:size, size] + moved @ np.abs(slopes)
        pull = np.abs(inverse) @ moved
        if float(np.abs(np.linalg.eigvals(pull)).max()) >= 1:
            return None
        apart = np.linalg.solve(np.eye(size) - pull, np.abs(inverse) @ rest)
        at_middle = float(
            self.means[size] + np.abs(slopes) @ self.means[:size] + (np.abs(means[:size]) + self.means[:size]) @ apart
        )
        return apart, at_middle


def _range(shift: Shift, part: float, lost: float) -> tuple[float, float]:
    return max(shift.records - shift.weight, 0.0) * (part - lost), shift.records * (part + lost)


def _inside(value: float) -> float:
    return min(max(value, -1.0), 1.0)
