"""Sums of first cells of a table, whose noise hardly grows with the number of cells."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.lazy import linalg
from quietmean.core.mixtures import Prefixes, prefix_diameter, prefix_root
from quietmean.statistics.features.table import Axis, CellIndicators
from quietmean.statistics.linear import Block, LinearMap
from quietmean.statistics.statistic import Feature, Records

# Rounding by half a step changes a cell of the mixture by a step at most, for the inverse of the root has absolute sum 2.
_MIXING = 2.0
_MOST_MIXING = 0.1


@lru_cache(maxsize=4)
def _code(cells: int) -> Array:
    """The encoding of each cell of a group, one row for each."""
    first = np.zeros(cells)
    first[0] = 1.0
    code: Array = linalg.toeplitz(first, prefix_root(cells))
    code.setflags(write=False)
    return code


def _even(cells: int, groups: int) -> Array:
    """The mean of all encodings, at the coordinates of one of the groups."""
    return np.asarray(_code(cells).sum(axis=0) / (cells * groups))


def _on_grid(scaled: Array, even: Array, scale: float, step: float, mixing: float) -> Array:
    rounded: Array = np.rint(((1 - mixing) * scaled + mixing * (scale / 2 * even)) / step) * step + 0.0
    return rounded


@lru_cache(maxsize=4)
def _inverse(cells: int, groups: int, scale: float, step: float, mixing: float) -> tuple[Block, Array, Array]:
    """From the mean of ``scale`` times encodings to quantities: what each group has as its block, and ``left`` times ``right``.

    Rounded encodings are zeros below their diagonal and what is mixed into all, which has rank 1.
    """
    code, mixed = _code(cells) * scale, np.zeros(cells)
    if step:
        even = _even(cells, groups)
        code, mixed = _on_grid(code, even, scale, step, mixing), _on_grid(mixed, even, scale, step, mixing)
    upper, failed = linalg.lapack.dtrtri(np.triu(code - mixed))
    if failed:
        raise np.linalg.LinAlgError("an encoding of cells has no inverse")
    lower = np.ascontiguousarray(upper.T)
    left, right = np.tile(lower @ mixed, groups), np.tile(lower.sum(axis=0), groups)
    return Block(lower), -left[:, None] / (1 + left.sum()), right[None]


@dataclass(frozen=True)
class PrefixTable(Feature):
    """The cells of an axis through the square root of the matrix that adds up prefixes, a Toeplitz matrix.

    The noise on a prefix grows with the logarithm of the number of cells, not with their number (Fichtenberger, Henzinger and
    Upadhyay, ICML 2023). With ``by``, an axis of levels, each of its cells has a matrix of its own. Sensitivity: the largest
    distance of two columns. Quantities: those of the table.
    """

    axis: Axis
    by: Axis | None = None

    @property
    def table(self) -> CellIndicators:
        """The cells one by one: by groups, where there are any, and in each along the axis."""
        return CellIndicators((self.axis,) if self.by is None else (self.by, self.axis))

    @property
    def cells(self) -> int:
        """The number of cells in each group."""
        return len(self.axis.labels)

    @property
    def groups(self) -> int:
        return 1 if self.by is None else len(self.by.labels)

    @property
    def size(self) -> int:
        return self.cells * self.groups

    @property
    def sensitivity(self) -> float:
        return prefix_diameter(self.cells, self.groups)

    @property
    def length(self) -> float:
        # The first column of the root is the longest: the others are parts of it.
        return math.sqrt(float((prefix_root(self.cells) ** 2).sum()))

    @property
    def most_nonzero(self) -> int:
        return self.cells

    @property
    def domain(self) -> InputDomain:
        return InputDomain((Prefixes(size=self.size, groups=self.groups, scale=1.0),))

    def cuts(self) -> dict[str, tuple[float, ...]]:
        return self.table.cuts()

    def encode(self, records: Records) -> Array:
        places: Any = self.axis.place(records)
        groups: Any = None if self.by is None else self.by.place(records)
        if not isinstance(places, np.ndarray):
            return self._recorded(places, groups)
        coded: Array = _code(self.cells)[places]
        if groups is None:
            return coded
        encoded = np.zeros((len(places), self.groups, self.cells))
        encoded[np.arange(len(places)), groups] = coded
        return encoded.reshape(-1, self.size)

    def _recorded(self, places: Any, groups: Any) -> Array:
        """The same for a program that is recorded, which has room for the first row of the code alone."""
        behind = np.arange(self.cells) - places[:, None]
        coded: Array = np.where(behind >= 0, np.maximum(behind, 0).looked_up(prefix_root(self.cells)), 0.0)
        if groups is None:
            return coded
        own = groups[:, None, None] == np.arange(self.groups)[:, None]
        return np.where(own, coded[:, None, :], 0.0).reshape(-1, self.size)

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """A little of all cells is mixed into each, so that what is rounded stays a mixture of encodings."""
        even = np.tile(_even(self.cells, self.groups), self.groups)
        return _on_grid(scaled, even, scale, step, self.mixing(scale, step))

    def response(self, scale: float, step: float) -> Array:
        code = np.asarray(np.kron(np.eye(self.groups), _code(self.cells)), dtype=np.float64)
        if step:
            # The exact rounded encoding of each cell: errors of an approximation would add up over records.
            return np.asarray(self.to_grid(code * scale, scale, step).T / scale)
        return np.asarray(code.T)

    def inverse(self, scale: float, step: float) -> LinearMap:
        block, left, right = _inverse(self.cells, self.groups, scale, step, self.mixing(scale, step))
        rows = np.arange(self.size).reshape(self.groups, -1)
        return LinearMap((self.size, self.size), [(own, own, block) for own in rows]).plus(left, right)

    @property
    def complete(self) -> Array:
        return self.table.complete

    def complete_in(self, by: str) -> Array | None:
        return self.table.complete_in(by)

    def events(self) -> Mapping[Hashable, Array]:
        return self.table.events()

    def mixing(self, scale: float, step: float) -> float:
        """Which part of each value is replaced, so that rounded ones stay mixtures.

        Raises :class:`InputError` where too much would be.
        """
        mixing = _MIXING * 2 * self.size * step / scale if step else 0.0
        if mixing > _MOST_MIXING:
            raise InputError(
                f"the plan's grid of {step:g} is too coarse for {self.size} cells of column {self.axis.column.name!r}. Choose "
                "fewer bins, or a larger share."
            )
        return mixing
