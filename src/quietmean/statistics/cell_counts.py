"""Statistics that are smooth functions of the counts of a table: estimates, noise and sampling from their slopes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import Estimated, Function, Smooth, SmoothTerm, multinomial, smooth, spread
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.intervals import Flag, least_count
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

NOTHING_PRESENT = Flag("nothing-present", "too few records for the noise: nothing is known about them; ask for a larger epsilon")
_PAIR = 2


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of the present levels of a table, in its ``shape``, and the covariance of their noise, (cells, cells)."""

    counts: Array
    noise: Array

    @classmethod
    def of(cls, released: Released, table: CellIndicators) -> CellCounts:
        """What is missing in any of the columns is left out."""
        inner = tuple(slice(0, size - 1) for size in table.shape)
        places = np.arange(table.size).reshape(table.shape)[inner]
        cells = places.ravel()
        counts = released.mean(table)[cells] * released.weight
        return cls(counts.reshape(places.shape), released.covariance(table)[np.ix_(cells, cells)] * released.weight**2)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def known(self) -> bool:
        """Are there more records than the noise hides?"""
        return self.total > least_count(LEAST_PRESENT, self.error(np.ones(self.counts.shape)))

    def sum(self, weights: Array) -> float:
        """A weighted sum of counts, with weights in their shape."""
        return float((weights * self.counts).sum())

    def error(self, weights: Array) -> float:
        """The standard deviation of its noise."""
        return math.sqrt(spread(weights.ravel(), self.noise))

    def smooth(self, function: Function, *, corrected: bool = True) -> Smooth:
        """A function of counts (points, *shape), without what noise adds on average by its curvature, and its slopes by them."""

        def values(points: NDArray[Any]) -> NDArray[Any]:
            return function(points.reshape(-1, *self.counts.shape))

        return smooth(values, self.counts.ravel(), self.noise, corrected=corrected)

    def noise_of(self, slopes: Array) -> float:
        """The variance of noise of a value with these slopes, (cells,)."""
        return spread(slopes, self.noise)

    def estimated(self, function: Function, *, corrected: bool = True, by_row: bool = False) -> Estimated:
        """A function of counts, with what a random sample of records adds by its slopes, or a sample of each row."""
        known = self.smooth(function, corrected=corrected)
        samples = self.counts if by_row else self.counts.reshape(1, -1)
        sampling = np.array([sum(map(multinomial, own.reshape(samples.shape), samples)) for own in known.slopes])
        return Estimated(known.values, known.noise, sampling, np.full(len(sampling), math.inf))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfCells(Statistic, ABC):
    """A statistic of a table of columns with levels; records with one of them missing are left out."""

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        axes = self._axes(columns)
        if len({axis.column.name for axis in axes}) < len(axes):
            raise InputError(f"{self.text} names a column twice: name each once")
        return CellIndicators(axes)

    @abstractmethod
    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        """The axes of the table. Raises :class:`InputError` for columns that cannot be compared."""

    def _cells(self, released: Released, columns: Columns) -> CellCounts:
        return CellCounts.of(released, self._table(columns))

    def _nothing(self, terms: Sequence[SmoothTerm], flag: Flag = NOTHING_PRESENT) -> Estimates:
        """Nothing is known about its terms; the first one is asked for first."""
        return Estimates.of([term.unknown for term in terms], flags=(flag,), headline=(terms[0].name,) if terms[0].name else ())

    def _two_levels(self, columns: Columns, name: str) -> Axis:
        column = columns.category(name)
        if len(column.categories) != _PAIR:
            raise InputError(f"{self.text} needs two levels, but column {name!r} has {len(column.categories)}")
        return Axis(column)

    def _alike(self, columns: Columns, first: str, second: str) -> tuple[Axis, Axis]:
        """Two columns whose levels mean the same in the same order: those of one name, or as many with no name in common."""
        pair = columns.category(first), columns.category(second)
        levels = [column.categories for column in pair]
        if levels[0] != levels[1] and (len(levels[0]) != len(levels[1]) or set(levels[0]) & set(levels[1])):
            texts = " and ".join(f"{column.name} has {', '.join(column.categories)}" for column in pair)
            raise InputError(f"{self.text} compares the levels of two columns, but {texts}: declare the same levels in one order")
        return Axis(pair[0]), Axis(pair[1])
