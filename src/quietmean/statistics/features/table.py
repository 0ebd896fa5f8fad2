"""Tables: how many records are in each cell of a cross-classification of columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import Simplex
from quietmean.statistics.columns import MISSING, Column
from quietmean.statistics.statistic import TOTAL, Feature, Records, raw

Array = NDArray[np.float64]

BELOW, ABOVE = "below", "above"
_MOST_CELLS = 4096


@dataclass(frozen=True)
class Axis:
    """One way to sort records: by the levels of a column, or by bins between rising ``edges``, [a, b), the last one closed.

    There is a cell for every record: with ``missing`` last, and for bins ``below`` first and ``above`` before it.
    Raises :class:`InputError` for edges that do not rise or go beyond the bounds.
    """

    column: Column
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        column, edges = self.column, self.edges
        if column.numeric != bool(edges):
            told = "has bounds: give edges or a number of bins" if column.numeric else "has levels: leave its edges out"
            raise InputError(f"column {column.name!r} {told}")
        if edges and (len(edges) < 2 or any(b <= a for a, b in pairwise(edges))):
            raise InputError(f"the edges for column {column.name!r} are not two or more rising numbers: sort them")
        if edges and not (column.low <= edges[0] and edges[-1] <= column.high):
            raise InputError(
                f"the edges for column {column.name!r} go from {edges[0]:g} to {edges[-1]:g}, beyond its bounds {column.low:g} "
                f"to {column.high:g}: stay between them"
            )

    @classmethod
    def of(cls, column: Column, edges: tuple[float, ...] | None, bins: int) -> Axis:
        """By the given edges, or ``bins`` of equal width between the column's bounds. Of a column with levels, by these."""
        if not column.numeric:
            return cls(column)
        return cls(column, tuple(np.linspace(column.low, column.high, bins + 1).tolist()) if edges is None else edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the cells, in their order."""
        if not self.edges:
            return (*self.column.categories, MISSING)
        last = len(self.edges) - 2
        named = [f"[{a:g}, {b:g}{']' if place == last else ')'}" for place, (a, b) in enumerate(pairwise(self.edges))]
        return (BELOW, *named, ABOVE, MISSING)

    def place(self, records: Records) -> NDArray[np.int64]:
        """The cell of each record, shape (rows,)."""
        if not self.edges:
            found = records[self.column.name]
            return np.where(np.isnan(found), len(self.labels) - 1, found).astype(np.int64)
        values, edges = records[raw(self.column.name)], np.array(self.edges)
        cells = np.searchsorted(edges, values, side="right")
        # The last edge belongs to the last bin.
        cells[values == edges[-1]] = len(edges) - 1
        cells[np.isnan(values)] = len(self.labels) - 1
        return cells.astype(np.int64)

    def events(self) -> dict[Hashable, Array]:
        """Weights of the cells, by what other features may know as well."""
        name, cells = self.column.name, np.eye(len(self.labels))
        found: dict[Hashable, Array] = {}
        if not self.edges:
            found |= {("level", name, label): cell for label, cell in zip(self.labels, cells, strict=True)}
        else:
            # The last edge is closed, and no other table need agree with it.
            found |= {("below", name, edge): cells[: place + 1].sum(axis=0) for place, edge in enumerate(self.edges[:-1])}
            if not self.column.fills_in:
                found[("present", name)] = 1.0 - cells[-1]
        return found


@dataclass(frozen=True)
class Table(Feature):
    """1 in the cell of a record, 0 in all others: a replaced record leaves one cell and enters another, sqrt(2) apart.

    Cells are those of all ``axes`` against each other, the last axis running fastest. Quantities: the parts of the records in
    each. They add up to 1.
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if self.size > _MOST_CELLS:
            names = ", ".join(axis.column.name for axis in self.axes)
            raise InputError(
                f"a table of {names} has {self.size} cells: choose fewer bins or levels, at most {_MOST_CELLS} cells"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def sensitivity(self) -> float:
        return math.sqrt(2)

    @property
    def length(self) -> float:
        return 1.0

    @property
    def domain(self) -> InputDomain:
        return InputDomain((Simplex(size=self.size, scale=1.0),))

    def place(self, records: Records) -> NDArray[np.int64]:
        """The cell of each record, shape (rows,)."""
        places = np.ravel_multi_index([axis.place(records) for axis in self.axes], self.shape)
        return np.asarray(places, dtype=np.int64)

    def encode(self, records: Records) -> Array:
        places = self.place(records)
        encoded = np.zeros((len(places), self.size))
        encoded[np.arange(len(places)), places] = 1.0
        return encoded

    def response(self, scale: float, step: float) -> Array:
        return np.eye(self.size) * (np.floor(scale / step) * step / scale if step else 1.0)

    def events(self) -> Mapping[Hashable, Array]:
        found: dict[Hashable, Array] = {TOTAL: np.ones(self.size)}
        for place, axis in enumerate(self.axes):
            for event, weights in axis.events().items():
                found[event] = self.along(place, weights)
        return found

    def along(self, place: int, weights: Array) -> Array:
        """Weights of the cells (size,) that depend on one axis only, from those of its cells."""
        shape = [1] * len(self.axes)
        shape[place] = -1
        wide: Array = np.broadcast_to(weights.reshape(shape), self.shape).ravel().copy()
        return wide
