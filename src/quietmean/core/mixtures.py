"""Parts of an input domain that are mixtures: convex hulls of what the records of statistics are encoded as, and of zero.

The sum over w records lies in w times the hull, the mean of records in the hull itself. Each part has the diameter of the
encodings, so the check of a study's inputs admits no more than records can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.core.schema import Configured, parameter
from quietmean.core.statement import LinearRelation

LENGTH: dict[str, Any] = {"above": 0, "at_most": 1e100, "remedy": "choose a number > 0, at most 1e+100"}
_CELLS: dict[str, Any] = {"at_least": 2, "at_most": 1 << 20, "remedy": "choose 2 or more"}
# What lies below zero by rounding only, relative to the numbers that take part, and how far inside something is moved.
ROUNDING, INSIDE = 1e-12, 1.0 - 2.0**-30


class _Bounded(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def largest(self) -> float: ...


class Mixture(Configured):
    """A part of a domain whose coordinates all have the same ``scale``."""

    scale: float

    @property
    def low(self: _Bounded) -> float:
        """A lower bound of each coordinate."""
        return -self.largest

    @property
    def high(self: _Bounded) -> float:
        """An upper bound of each coordinate."""
        return self.largest

    def farthest(self: _Bounded, middle: float) -> float:
        """No point is at a larger L2 distance from the one whose coordinates all are ``middle``."""
        return (self.largest + abs(middle)) * math.sqrt(self.size)

    def times(self, factor: float) -> Self:
        """The part of all vectors times ``factor`` > 0."""
        return type(self).read({**self.describe(), "scale": self.scale * factor})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Simplex(Mixture):
    """``size`` coordinates >= 0 that add up to ``scale`` at most: a record is in one cell of a table."""

    kind = "simplex"
    size: int = parameter(help="cells", **_CELLS)
    scale: float = parameter(help="what a record counts as in its cell", **LENGTH)

    @property
    def diameter(self) -> float:
        return self.scale * math.sqrt(2)

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return self.scale

    @property
    def text(self) -> str:
        return f"{self.size} cells of a table, each at least 0 and together at most {self.scale:g}"

    @property
    def low(self) -> float:
        """A lower bound of each coordinate."""
        return 0.0

    @property
    def relation(self) -> LinearRelation:
        """What its cells have to do with each other."""
        return LinearRelation(np.arange(self.size), np.ones(self.size, dtype=np.int64), 0.0, self.scale)

    def farthest(self, middle: float) -> float:
        """The largest L2 distance of a point from the one whose coordinates all are ``middle``: of an empty or a full cell."""
        rest = (self.size - 1) * middle**2
        return math.sqrt(rest + max(middle**2, (self.scale - middle) ** 2))

    def holds(self, vector: Vector, scale: float) -> bool:
        return bool(vector.min() >= 0 and vector.sum() <= scale * self.scale * (1 + ROUNDING))

    def move(self, vector: Vector, scale: float) -> None:
        into_simplex(vector, scale * self.scale)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prefixes(Mixture):
    """A table of ordered cells through the square root of the matrix that adds up prefixes; in each of ``groups`` its own."""

    kind = "prefixes"
    size: int = parameter(help="cells, of all groups", at_least=2, at_most=1 << 13, remedy="choose 2 to 8192 cells")
    groups: int = parameter(
        1,
        help="groups, each with an equal part of the cells",
        at_least=1,
        at_most=1 << 12,
        remedy="choose 1 to 4096 groups",
        written=lambda value: bool(value.groups > 1),
    )
    scale: float = parameter(help="the first coordinate of a record in the first cell", **LENGTH)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % self.groups or self.size // self.groups < 2:
            raise InputError(
                f"{self.size} cells cannot be shared equally among {self.groups} groups, at least 2 each. "
                f"Choose {self.groups} times 2 or more."
            )

    @property
    def cells(self) -> int:
        """The number of cells in each group."""
        return self.size // self.groups

    @property
    def diameter(self) -> float:
        return self.scale * prefix_diameter(self.cells, self.groups)

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return self.scale

    @property
    def text(self) -> str:
        where = "" if self.groups == 1 else f" in {self.groups} groups"
        return f"{self.size} ordered cells of a table{where}, encoded as running totals, times {self.scale:g}"

    def holds(self, vector: Vector, scale: float) -> bool:
        cells = self._through(vector / (scale * self.scale), prefix_inverse(self.cells))
        slack = ROUNDING * self.size
        return bool(cells.min() >= -slack and cells.sum() <= 1 + slack and np.isfinite(cells).all())

    def move(self, vector: Vector, scale: float) -> None:
        factor = scale * self.scale
        cells = self._through(np.clip(vector / factor, -2.0, 2.0), prefix_inverse(self.cells))
        into_simplex(cells, 1.0)
        vector[:] = self._through(cells, prefix_root(self.cells)) * factor

    def _through(self, vector: Vector, coefficients: Array) -> Array:
        """Each group's cells through the Toeplitz matrix of these coefficients."""
        by_group = vector.reshape(self.groups, self.cells)
        return np.concatenate([np.convolve(group, coefficients)[: self.cells] for group in by_group])


class BoundedCoordinates(Mixture):
    """What is known of the encodings of records is the size of their coordinates: it alone is checked."""

    scale: float
    largest_coordinate: float

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return self.scale * self.largest_coordinate

    def holds(self, vector: Vector, scale: float) -> bool:
        return bool(np.abs(vector).max() <= scale * self.largest * (1 + ROUNDING))

    def move(self, vector: Vector, scale: float) -> None:
        np.clip(vector, -scale * self.largest, scale * self.largest, out=vector)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Products(BoundedCoordinates):
    """``size`` products of bounded columns. Their hull has no short description: only the size of coordinates is checked.

    ``width`` is the proven distance of the encodings of two records, and ``largest_coordinate`` what one of theirs can be.
    """

    kind = "products"
    size: int = parameter(help="products", at_least=1, at_most=1 << 20, remedy="choose at least 1 product")
    width: float = parameter(help="the largest L2 distance of two records, for scale 1", **LENGTH)
    largest_coordinate: float = parameter(help="the largest absolute value of a coordinate, for scale 1", **LENGTH)
    scale: float = parameter(help="what the product of two bounds counts", **LENGTH)

    @property
    def diameter(self) -> float:
        return self.scale * self.width

    @property
    def text(self) -> str:
        return f"{self.size} products of columns, each from {-self.largest:g} to {self.largest:g}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sums(BoundedCoordinates):
    """``size`` coordinates of a sum over a private number of records, each of an L2 norm of at most ``length``.

    A sum that is too large is cut coordinate by coordinate, which brings no two sums further apart: one record more or less
    changes what enters by ``length`` at most, however many there are.
    """

    kind = "sums"
    size: int = parameter(help="coordinates", at_least=1, at_most=1 << 20, remedy="choose at least 1 coordinate")
    length: float = parameter(help="the largest L2 norm of a record, for scale 1", **LENGTH)
    largest_coordinate: float = parameter(help="the largest absolute value of a coordinate, for scale 1", **LENGTH)
    scale: float = parameter(help="what the record is multiplied with", **LENGTH)

    @property
    def diameter(self) -> float:
        """What one record more or less changes."""
        return self.scale * self.length

    @property
    def text(self) -> str:
        return f"{self.size} sums over any number of records, each of L2 norm at most {self.diameter:g}"


def into_simplex(vector: Vector, total: float) -> None:
    """Entries below 0 become 0, and too much of all of them is scaled down, in place."""
    np.clip(vector, 0.0, total, out=vector)
    entry_sum = float(vector.sum())
    if entry_sum > total:
        vector *= total / entry_sum * INSIDE


@cache
def prefix_root(size: int) -> Array:
    """The first ``size`` coefficients of (1 - z)^(-1/2): twice after each other they add up prefixes."""
    steps = np.arange(1, size)
    coefficients: Array = np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
    coefficients.setflags(write=False)
    return coefficients


@cache
def prefix_inverse(size: int) -> Array:
    """The first ``size`` coefficients of (1 - z)^(1/2), which undoes :func:`prefix_root`."""
    steps = np.arange(1, size)
    coefficients: Array = np.concatenate([[1.0], np.cumprod((2 * steps - 3) / (2 * steps))])
    coefficients.setflags(write=False)
    return coefficients


@cache
def prefix_diameter(size: int, groups: int = 1) -> float:
    """The largest L2 distance of two columns of the square root of the prefix matrix, or length of one.

    Columns of different ``groups`` have no coordinate in common: the two longest are farthest.
    """
    root = prefix_root(size)
    lengths = np.cumsum(root**2)
    farthest = float(lengths[-1])
    # Columns i and i + gap, size - i long: the first i for each gap is not always the worst, all are tried.
    for gap in range(1, size):
        products = np.cumsum(root[gap:] * root[: size - gap])
        squares = lengths[gap:] + lengths[: size - gap] - 2 * products
        farthest = max(farthest, float(squares.max()))
    return math.sqrt(farthest if groups == 1 else max(farthest, 2 * float(lengths[-1])))
