"""Quantiles of a column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag, Z
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.fields import edges_field, numbers_field, usual_bins_field
from quietmean.statistics.kinds.mean import nothing_present
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.statistic import Array, Feature, Released, Statistic

_USUAL_BINS = 64


@dataclass(frozen=True)
class Cumulative:
    """Sums over the cells of an axis up to each edge.

    ``parts``: (edges,), of all records; ``present``: of all records, those with a value; ``weights``: (edges, cells), that read
    ``parts`` from cells. ``of_cells``: the covariance of the cells' noise.
    """

    edges: Array
    parts: Array
    present: float
    weights: Array
    counted: Array
    of_cells: Array

    def noise(self, probability: float) -> Array:
        """Variances of parts - probability times present, shape (edges,)."""
        weights = self.weights - probability * self.counted
        variances: Array = np.maximum(np.einsum("ij,jk,ik->i", weights, self.of_cells, weights), 0.0)
        return variances


def cumulative(released: Released, feature: PrefixTable) -> Cumulative | None:
    """What a prefix table says, or None where noise hides whether anything is present."""
    cells, covariance = released.mean(feature), released.covariance(feature)
    edges = np.array(feature.axis.edges)
    # The last edge belongs to the last bin, and what is above it has a cell of its own.
    weights = np.tri(len(edges), feature.size)
    counted = np.ones(feature.size)
    counted[-1] = 0.0
    present, error = float(counted @ cells), math.sqrt(max(float(counted @ covariance @ counted), 0.0))
    if present <= LEAST_PRESENT * error:
        return None
    return Cumulative(edges, weights @ cells, present, weights, counted, covariance)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Quantiles(Statistic):
    """Quantiles of the present values of a column, linear inside bins; those between the bounds only are known.

    Intervals hold all values that a test of the probability at them does not reject (Woodruff, JASA 47, 1952).
    """

    name = "quantiles"
    summary = "quantiles of a column"
    by_place = ("column", "probabilities")

    column: str = parameter(help="the column")
    probabilities: tuple[float, ...] = numbers_field((0.25, 0.5, 0.75), "which quantiles, between 0 and 1", "probabilities")
    bins: int | None = usual_bins_field(_USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        if len(set(self.probabilities)) < len(self.probabilities) or not all(0 < one < 1 for one in self.probabilities):
            raise InputError(f"{self.text}: probabilities must be different numbers between 0 and 1, such as 0.25 0.5 0.75")
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        return PrefixTable(Axis.of(columns.number(self.column), self.edges, self.bins, _USUAL_BINS))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column, known = columns[self.column], cumulative(released, self._table(columns))
        parties = columns.unit == PrivacyUnit.PARTY
        if known is None:
            return nothing_present(math.nan, column.low, column.high, f"column {column.name!r}")
        smooth = np.clip(isotonic_regression(known.parts).x / known.present, 0.0, 1.0)
        values = np.array([_inverse(known.edges, smooth, one) for one in self.probabilities])
        noise, flags = zip(*(_interval(known, one, 0.0) for one in self.probabilities), strict=True)
        sampling = [one * (1 - one) * known.present / released.weight for one in self.probabilities]
        both, more = zip(
            *(_interval(known, one, two) for one, two in zip(self.probabilities, sampling, strict=True)), strict=True
        )
        told = tuple(dict.fromkeys(flag for found in (*flags, *(() if parties else more)) for flag in found))
        return Estimates(
            tuple(f"{one:g}" for one in self.probabilities),
            values,
            np.array([(high - low) / (2 * Z) for low, high in noise]),
            np.full(len(values), column.low),
            np.full(len(values), column.high),
            population=None if parties else np.array([(high - low) / (2 * Z) for low, high in both]),
            interval_noise=np.array(noise),
            interval_population=None if parties else np.array(both),
            flags=told,
            reason=PARTIES_DIFFER if parties else "",
            method="square root of prefix sums; Woodruff's interval, linear inside bins",
        )


def _inverse(edges: Array, rising: Array, level: float) -> float:
    """Where a function that rises from edge to edge, linear between, reaches ``level``."""
    place = int(np.searchsorted(rising, level))
    if place == 0 or place == len(edges):
        return float(edges[min(place, len(edges) - 1)])
    low, high = rising[place - 1], rising[place]
    return float(edges[place - 1] + (level - low) / (high - low) * (edges[place] - edges[place - 1]))


def _interval(known: Cumulative, probability: float, sampling: float) -> tuple[tuple[float, float], tuple[Flag, ...]]:
    """All values where ``probability`` is not rejected; an end at the first or last edge is flagged."""
    distance = known.parts - probability * known.present
    reach = Z * np.sqrt(known.noise(probability) + sampling)
    edges = known.edges
    low = _first_above(edges, distance + reach)
    high = -_first_above(-edges[::-1], -(distance - reach)[::-1])
    flags = []
    if distance[0] + reach[0] > 0:
        flags.append(Flag("below-edges", f"the {probability:g} quantile may lie below {edges[0]:g}"))
    if distance[-1] - reach[-1] < 0:
        flags.append(Flag("above-edges", f"the {probability:g} quantile may lie above {edges[-1]:g}"))
    return (low, max(low, high)), tuple(flags)


def _first_above(edges: Array, values: Array) -> float:
    """Where values first reach 0, linear between edges; the last edge where they never do."""
    above = np.nonzero(values >= 0)[0]
    place = int(above[0]) if len(above) else len(edges) - 1
    if place == 0 or not len(above):
        return float(edges[place])
    low, high = values[place - 1], values[place]
    return float(edges[place - 1] - low / (high - low) * (edges[place] - edges[place - 1]))


STATISTIC = Quantiles
