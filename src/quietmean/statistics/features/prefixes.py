"""Tables that are encoded for sums of their first cells: for cumulative distributions and quantiles."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.lazy_scipy import linalg
from quietmean.core.mixtures import Prefixes, prefix_diameter, prefix_root
from quietmean.statistics.features.table import Axis, CellIndicators
from quietmean.statistics.statistic import Feature, Records

# Rounding by half a step changes a cell of the mixture by a step at most, for the inverse of the root has absolute sum 2.
_MIXING = 2.0
_MOST_MIXING = 0.1


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
    def domain(self) -> InputDomain:
        return InputDomain((Prefixes(size=self.size, groups=self.groups, scale=1.0),))

    def cuts(self) -> dict[str, tuple[float, ...]]:
        return self.table.cuts()

    def encode(self, records: Records) -> Array:
        encoded: Array = self._code()[self.table.place(records)]
        return encoded

    def _code(self) -> Array:
        """The encoding of each cell, one row for each."""
        first = np.zeros(self.cells)
        first[0] = 1.0
        code: Array = linalg.toeplitz(first, prefix_root(self.cells))
        return code if self.by is None else np.asarray(np.kron(np.eye(self.groups), code), dtype=np.float64)

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """A little of all cells is mixed into each, so that what is rounded stays a mixture of encodings."""
        mixing = self.mixing(scale, step)
        even = scale / 2 * self._code().mean(axis=0)
        rounded: Array = np.rint(((1 - mixing) * scaled + mixing * even) / step) * step + 0.0
        return rounded

    def response(self, scale: float, step: float) -> Array:
        code = self._code()
        if step:
            # The exact rounded encoding of each cell: errors of an approximation would add up over records.
            code = self.to_grid(code * scale, scale, step) / scale
        return code.T

    @property
    def complete(self) -> Array:
        return self.table.complete

    def complete_in(self, by: str) -> Array | None:
        return self.table.complete_in(by)

    def events(self) -> Mapping[Hashable, Array]:
        return self.table.events()

    def mixing(self, scale: float, step: float) -> float:
        """Raises :class:`InputError` where too much would be."""
        mixing = _MIXING * 2 * self.size * step / scale if step else 0.0
        if mixing > _MOST_MIXING:
            raise InputError(
                f"the plan's grid of {step:g} is too coarse for {self.size} cells of column {self.axis.column.name!r}: choose "
                "fewer bins, or a larger share"
            )
        return mixing
