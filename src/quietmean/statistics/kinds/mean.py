"""The mean of a column."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.features import PRESENCE_WEIGHT, PresentColumn, ScaledColumn
from quietmean.statistics.statistic import Estimates, Feature, Released, Statistic

# A part of present values below so many standard deviations of its noise cannot be divided by.
_LEAST_PRESENT = 4.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mean(Statistic):
    """The mean of a column over all records (unit ``record``) or over the parties' own means (unit ``party``).

    Where a missing value counts as nothing (:class:`~quietmean.statistics.Column`), the mean of the values that are present.
    """

    name = "mean"
    summary = "the mean of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (_feature(columns[self.column]),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns[self.column]
        feature = _feature(column)
        if isinstance(feature, PresentColumn):
            return _mean_of_present(released, feature)
        value = column.low + float(released.mean(feature)[0]) * column.width
        return Estimates.number(value, released.noise(feature) * column.width, column.low, column.high)


def _feature(column: Column) -> Feature:
    return PresentColumn(column) if column.missing == "indicator" else ScaledColumn(column)


def _mean_of_present(released: Released, feature: PresentColumn) -> Estimates:
    """A ratio of two noisy means, and its error by the delta method.

    Where noise hides whether anything is present, nothing is known: the middle of the bounds, with an infinite error.
    """
    column, noise = feature.column, released.noise(feature)
    total, weighted = (float(part) for part in released.mean(feature))
    present, noise_of_present = weighted / PRESENCE_WEIGHT, noise / PRESENCE_WEIGHT
    if present <= _LEAST_PRESENT * noise_of_present:
        return Estimates.number(column.centre, math.inf, column.low, column.high)
    ratio = total / present
    error = noise * math.sqrt(1 + (ratio / PRESENCE_WEIGHT) ** 2) / present
    half = column.width / 2
    return Estimates.number(column.centre + ratio * half, error * half, column.low, column.high)


STATISTIC = Mean
