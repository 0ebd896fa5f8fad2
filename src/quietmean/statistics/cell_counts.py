"""Statistics that are smooth functions of the counts of a table: estimates, noise and sampling from their slopes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.intervals import least_count
from quietmean.statistics.robust import Smooth
from quietmean.statistics.rows import spread
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

# From counts (points, *shape) to values (points, terms). They may be complex, for derivatives.
Function = Callable[[NDArray[Any]], NDArray[Any]]

# An imaginary step of a derivative loses no digits; the other is in deviations of the noise.
_TINY, _STEP = 1e-30, 0.1
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

    @cached_property
    def _root(self) -> Array:
        """A matrix whose product with its transpose is the covariance of the noise."""
        values, vectors = np.linalg.eigh(self.noise)
        root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
        return root

    def smooth(self, function: Function) -> Smooth:
        """A function of the counts, (terms,), without what noise adds on average by its curvature, and its slopes by them."""
        at, shape = self.counts.ravel(), self.counts.shape

        def values(points: NDArray[Any]) -> NDArray[Any]:
            return function(points.reshape(-1, *shape))

        with np.errstate(all="ignore"):
            here = values(at[None])[0].real
            slopes = values(at + 1j * _TINY * np.eye(len(at))).imag.T / _TINY
            curved = np.zeros_like(here)
            if self.noise.any():
                steps = _STEP * self._root.T
                ends = [values(at + sign * steps).real for sign in (1.0, -1.0)]
                curved = (ends[0] + ends[1] - 2 * here).sum(axis=0) / _STEP**2
        return Smooth(here - curved / 2, slopes)

    def noise_of(self, slopes: Array) -> float:
        """The variance of noise of a value with these slopes, (cells,)."""
        return spread(slopes, self.noise)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfCells(Statistic, ABC):
    """A statistic of a table of columns with levels; records with one of them missing are left out."""

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        sorted_by = self._axes(columns)
        names = [column.name for column in sorted_by]
        if len(set(names)) < len(names):
            raise InputError(f"{self.text} names a column twice: name each once")
        return CellIndicators(tuple(Axis(column) for column in sorted_by))

    @abstractmethod
    def _axes(self, columns: Columns) -> tuple[Column, ...]:
        """The columns of the table. Raises :class:`InputError` for some that cannot be compared."""

    def _cells(self, released: Released, columns: Columns) -> CellCounts:
        return CellCounts.of(released, self._table(columns))

    def _two_levels(self, columns: Columns, name: str) -> Column:
        column = columns.category(name)
        if len(column.categories) != _PAIR:
            raise InputError(f"{self.text} needs two levels, but column {name!r} has {len(column.categories)}")
        return column

    def _alike(self, columns: Columns, first: str, second: str) -> tuple[Column, Column]:
        """Two columns whose levels mean the same in the same order: those of one name, or as many with no name in common."""
        pair = columns.category(first), columns.category(second)
        levels = [column.categories for column in pair]
        if levels[0] != levels[1] and (len(levels[0]) != len(levels[1]) or set(levels[0]) & set(levels[1])):
            texts = " and ".join(f"{column.name} has {', '.join(column.categories)}" for column in pair)
            raise InputError(f"{self.text} compares the levels of two columns, but {texts}: declare the same levels in one order")
        return pair


NOTHING = "too few records for the noise: nothing is known about them; ask for a larger epsilon"
