"""Means, covariances and their noise from released moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.around import Around
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.features import Moments, Vertex, complete_edges, orders_three_and_four
from quietmean.statistics.intervals import least_count
from quietmean.statistics.moments_bound import MovedMoments
from quietmean.statistics.statistic import Released

_PAIR = 2


def moments_of(vertices: tuple[Vertex, ...], heavy: Vertex | None = None, *, robust: bool = False) -> Moments:
    """All means and products of the vertices; those of the ``heavy`` one get twice the weight of the others, squared.

    ``robust``: of two vertices, the second of which may be heavy, also those of orders three and four.
    """
    edges = complete_edges(vertices)
    weights = tuple(math.sqrt(2) if heavy is not None and heavy in edge else 1.0 for edge in edges)
    moments = Moments(edges, weights)
    if not robust or len(vertices) != _PAIR:
        return moments
    higher = orders_three_and_four(*vertices, heavy=heavy is not None)
    return replace(moments, higher=tuple(higher), higher_weights=tuple(higher.values()), proven=moments.sensitivity**2)


def moved_products(around: Around, feature: Moments, vertices: tuple[Vertex, ...]) -> MovedMoments | None:
    """How far means and covariances of the vertices, scaled to [-1, 1], move; see :meth:`MovedMoments.of`."""
    return MovedMoments.of(around, feature, _readers(feature, vertices))


@dataclass(frozen=True, eq=False)
class CentredMoments:
    """Moments of the k vertices, scaled to [-1, 1], over complete records; gradients by the released quantities: (..., q).

    ``records``: how many complete records; ``means`` (k,) with ``mean_slopes``; ``covariance`` (k, k), divisor n, without the
    noise's own part, with ``slopes``; ``noise``: the covariance (q, q) of the quantities.
    """

    records: float
    means: Array
    mean_slopes: Array
    covariance: Array
    slopes: Array
    noise: Array

    @classmethod
    def of(cls, released: Released, feature: Moments, vertices: tuple[Vertex, ...]) -> CentredMoments | None:
        """None where noise hides whether any record is complete."""
        quantities, noise = released.mean(feature), released.covariance(feature)
        part = float(quantities[0])
        error = math.sqrt(max(noise[0, 0], 0.0))
        if part * released.weight <= least_count(LEAST_PRESENT, error * released.weight, released.least):
            return None
        readers = _readers(feature, vertices)
        total = np.eye(feature.size)[0]
        # Ratios to the part that is complete, and how they change.
        raw = readers @ quantities / part
        raw_slopes = (readers - raw[..., None] * total) / part
        means, mean_slopes = raw[0, 1:], raw_slopes[0, 1:]
        slopes = raw_slopes[1:, 1:] - means[:, None, None] * mean_slopes - means[None, :, None] * mean_slopes[:, None, :]
        own = mean_slopes @ noise @ mean_slopes.T
        covariance = raw[1:, 1:] - np.outer(means, means) + own
        return cls(released.weight * part, means, mean_slopes, covariance, slopes, noise)

    @cached_property
    def errors(self) -> Array:
        """Standard deviations of the noise in the covariances, shape (k, k)."""
        variances: Array = np.sqrt(np.maximum(np.einsum("ijp,pq,ijq->ij", self.slopes, self.noise, self.slopes), 0.0))
        return variances


def _readers(feature: Moments, vertices: tuple[Vertex, ...]) -> Array:
    """Weights of the quantities in the mean of each product of 1 and the vertices, shape (k + 1, k + 1, q)."""
    unit = np.eye(feature.size)
    edges = {frozenset(edge): unit[1 + index] for index, edge in enumerate(feature.edges)}
    squares = {vertex: unit[1 + len(feature.edges) + index] for index, vertex in enumerate(feature.numbers)}
    alone = [edges[frozenset((None, vertex))] for vertex in vertices]
    readers = np.zeros((len(vertices) + 1, len(vertices) + 1, feature.size))
    readers[0, 0] = unit[0]
    for i, first in enumerate(vertices):
        readers[0, i + 1] = readers[i + 1, 0] = alone[i]
        for j, second in enumerate(vertices):
            if first == second:
                # A level is 1 or -1.
                reader = squares.get(first, unit[0])
            elif first.column == second.column:
                # Nobody has two levels of one column.
                reader = -unit[0] - alone[i] - alone[j]
            else:
                reader = edges[frozenset((first, second))]
            readers[i + 1, j + 1] = reader
    return readers
