"""The domain of a party's input: where the vector of one unit may lie, and how any vector is moved into it.

Sensitivities are diameters of domains. They hold for what is inside, so every real study holds its inputs against the domain of
its plan. Nothing here refuses a vector: whether a study goes on must not depend on values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard

import numpy as np

from quietmean.core.arrays import all_finite, pieces
from quietmean.core.column_blocks import Blocks
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_class
from quietmean.core.mixtures import Prefixes, Products, Simplex, Sums
from quietmean.core.moment_products import RecordMoments
from quietmean.core.party import Vector
from quietmean.core.schema import Configured, parameter, parameters_of, refuse_unknown, require_complete, require_known
from quietmean.core.statement import StatedValue

# A vector moved onto a boundary must not be outside of it by rounding.
_INSIDE = 1.0 - 2.0**-40
# How far beyond a region rounding may take a domain that is computed from parts, relative to the region.
_ROUNDING = 1e-9
_SEARCHES = 80
# Squares must not overflow.
LARGEST_COORDINATE = 1e100
_AT_MOST = f"at most {LARGEST_COORDINATE:g}"
_LENGTH: dict[str, Any] = {"above": 0, "at_most": LARGEST_COORDINATE, "remedy": f"choose a number > 0, {_AT_MOST}"}
_COORDINATE: dict[str, Any] = {
    "at_least": -LARGEST_COORDINATE,
    "at_most": LARGEST_COORDINATE,
    "remedy": f"choose a number, {_AT_MOST}",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Box(Configured):
    """``size`` coordinates, each from ``low`` to ``high``."""

    kind = "box"
    size: int = parameter(help="coordinates", at_least=1, remedy="choose 1 or more")
    low: float = parameter(help="the least value of a coordinate", **_COORDINATE)
    high: float = parameter(help="the largest value of a coordinate", **_COORDINATE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise InputError(f"a box from {self.low:g} to {self.high:g} is empty. Give two numbers in rising order.")

    @property
    def diameter(self) -> float:
        return (self.high - self.low) * math.sqrt(self.size)

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return max(abs(self.low), abs(self.high))

    @property
    def text(self) -> str:
        return f"{_coordinates(self.size)}{', each' if self.size > 1 else ''} from {self.low:g} to {self.high:g}"

    def farthest(self, middle: float) -> float:
        """The largest L2 distance of a point from the one whose coordinates all are ``middle``."""
        return max(abs(self.low - middle), abs(self.high - middle)) * math.sqrt(self.size)

    def contains(self, domain: InputDomain) -> bool:
        """Does all of a domain lie inside? Never true if it does not."""
        room = _ROUNDING * (self.high - self.low)
        return domain.low >= self.low - room and domain.high <= self.high + room

    def holds(self, vector: Vector, scale: float) -> bool:
        # Without a copy, which would stay in memory.
        return bool((vector >= scale * self.low).all() and (vector <= scale * self.high).all())

    def move(self, vector: Vector, scale: float) -> None:
        np.clip(vector, scale * self.low, scale * self.high, out=vector)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ball(Configured):
    """``size`` coordinates, at an L2 distance of at most ``radius`` from the point whose coordinates all are ``centre``."""

    kind = "ball"
    size: int = parameter(help="coordinates", at_least=1, remedy="choose 1 or more")
    radius: float = parameter(help="the largest L2 distance from the centre", **_LENGTH)
    centre: float = parameter(0.0, help="every coordinate of the centre", **_COORDINATE)

    @property
    def diameter(self) -> float:
        return 2 * self.radius

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return abs(self.centre) + self.radius

    @property
    def text(self) -> str:
        if self.size == 1:
            return f"{_coordinates(1)} from {self.low:g} to {self.high:g}"
        around = f" around {self.centre:g}" if self.centre else ""
        return f"{_coordinates(self.size)} of L2 norm at most {self.radius:g}{around}"

    @property
    def low(self) -> float:
        """The least value of a coordinate."""
        return self.centre - self.radius

    @property
    def high(self) -> float:
        """The largest value of a coordinate."""
        return self.centre + self.radius

    def farthest(self, middle: float) -> float:
        """The largest L2 distance of a point from the one whose coordinates all are ``middle``."""
        return abs(self.centre - middle) * math.sqrt(self.size) + self.radius

    def contains(self, domain: InputDomain) -> bool:
        """Does all of a domain lie inside? Never true if it does not."""
        return domain.farthest(self.centre) <= self.radius * (1 + _ROUNDING)

    def holds(self, vector: Vector, scale: float) -> bool:
        # A coordinate beyond it may be so large that its square overflows.
        if max(-vector.min(), vector.max()) > scale * self.largest:
            return False
        if not self.centre:
            return float(np.linalg.norm(vector)) <= scale * self.radius
        offset = vector - scale * self.centre
        inside = float(np.linalg.norm(offset)) <= scale * self.radius
        # A copy of the value must not stay in memory.
        offset.fill(0.0)
        return inside

    def move(self, vector: Vector, scale: float) -> None:
        vector -= scale * self.centre
        # Divided first, so that squares of large entries do not overflow.
        largest = float(np.abs(vector).max(initial=0.0))
        if largest > 0:
            vector /= largest
            vector *= min(scale * self.radius / float(np.linalg.norm(vector)), largest) * _INSIDE
        vector += scale * self.centre


Part = Box | Ball | Simplex | Prefixes | Blocks | Products | RecordMoments | Sums
_KINDS: dict[str, type[Part]] = {
    part.kind: part for part in (Box, Ball, Simplex, Prefixes, Blocks, Products, RecordMoments, Sums)
}


@python_class
@dataclass(frozen=True)
class InputDomain:
    """The product of ``parts``, each of some coordinates in their order. All are convex, and so is the product."""

    parts: tuple[Part, ...]

    @classmethod
    def box(cls, size: int, low: float, high: float) -> Self:
        """``size`` coordinates, each from ``low`` to ``high``. Raises :class:`InputError` unless low < high."""
        return cls((Box(size=size, low=low, high=high),))

    @classmethod
    def ball(cls, size: int, radius: float, centre: float = 0.0) -> Self:
        """``size`` coordinates in the L2 ball of ``radius`` around the point whose coordinates all are ``centre``."""
        return cls((Ball(size=size, radius=radius, centre=centre),))

    @classmethod
    def product(cls, domains: Sequence[InputDomain]) -> Self:
        """The coordinates of all domains, one after the other. Boxes of equal bounds become one."""
        parts: list[Part] = []
        for part in (part for domain in domains for part in domain.parts):
            last = parts[-1] if parts else None
            if isinstance(part, Box) and isinstance(last, Box) and (part.low, part.high) == (last.low, last.high):
                parts[-1] = Box(size=last.size + part.size, low=part.low, high=part.high)
            else:
                parts.append(part)
        return cls(tuple(parts))

    def times(self, factor: float) -> InputDomain:
        """The domain of all vectors times ``factor`` > 0."""
        return InputDomain(tuple(_times(part, factor) for part in self.parts))

    @property
    def size(self) -> int:
        """How many coordinates a vector has."""
        return sum(part.size for part in self.parts)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two points: the sensitivity under replacement. Of sums over private numbers of records, what
        one more or less changes: the sensitivity under add-remove."""
        return math.sqrt(math.fsum(part.diameter**2 for part in self.parts))

    @property
    def largest(self) -> float:
        """The largest absolute value of a coordinate."""
        return max(part.largest for part in self.parts)

    @property
    def low(self) -> float:
        """The least value of a coordinate."""
        return min(part.low for part in self.parts)

    @property
    def high(self) -> float:
        """The largest value of a coordinate."""
        return max(part.high for part in self.parts)

    @property
    def coordinate_bounds(self) -> tuple[Vector, Vector]:
        """The least and the largest value of each coordinate, (d,)."""
        bounds = [getattr(part, "coordinate_bounds", None) for part in self.parts]
        both = [
            (np.full(part.size, part.low), np.full(part.size, part.high)) if own is None else own
            for part, own in zip(self.parts, bounds, strict=True)
        ]
        return np.concatenate([low for low, _ in both]), np.concatenate([high for _, high in both])

    def bounds_in_pieces(self) -> Iterator[tuple[slice, Vector | float, Vector | float]]:
        """Yield bounds a piece of the coordinates at a time: which they are, low, high; one number where these are equal."""
        begin = 0
        for part in self.parts:
            own = getattr(part, "coordinate_bounds", None)
            for piece in pieces(part.size):
                low, high = (part.low, part.high) if own is None else (own[0][piece], own[1][piece])
                yield slice(begin + piece.start, begin + piece.stop), low, high
            begin += part.size

    @property
    def statement(self) -> StatedValue:
        """What can be checked of a vector without learning it: the bounds of each coordinate, where cells of tables add up, and
        of single records products.

        It is all of the domain where this has boxes, tables and products only (:attr:`is_stated_in_full`).
        """
        low, high = self.coordinate_bounds
        begins = np.cumsum([0, *(part.size for part in self.parts)]).tolist()
        tables = [(part.relation, begin) for part, begin in zip(self.parts, begins, strict=False) if isinstance(part, Simplex)]
        records = tuple((begin, part) for part, begin in zip(self.parts, begins, strict=False) if _is_record(part))
        return StatedValue(low, high, tuple(relation.moved(begin) for relation, begin in tables), records)

    @property
    def is_stated_in_full(self) -> bool:
        """Does a vector of which the statement holds lie inside?"""
        return all(isinstance(part, Box | Simplex) or _is_record(part) for part in self.parts)

    def farthest(self, middle: float) -> float:
        """The largest L2 distance of a point from the one whose coordinates all are ``middle``."""
        return math.sqrt(math.fsum(part.farthest(middle) ** 2 for part in self.parts))

    @property
    def enclosing(self) -> Ball:
        """A small ball with all of it inside, around a point whose coordinates are equal."""
        # The largest distance is convex in the centre.
        low, high = self.low, self.high
        for _ in range(_SEARCHES):
            third = (high - low) / 3
            left, right = low + third, high - third
            low, high = (low, right) if self.farthest(left) <= self.farthest(right) else (left, high)
        middle = low + (high - low) / 2
        # Around most domains the best centre is one of two numbers without rounding.
        centre = min((0.0, self.low + (self.high - self.low) / 2, middle), key=self.farthest)
        return Ball(size=self.size, radius=self.farthest(centre), centre=centre)

    @property
    def text(self) -> str:
        """The domain in words."""
        return "; ".join(part.text for part in self.parts)

    def holds(self, vector: Vector, scale: float = 1.0) -> bool:
        """Does a vector (d,) lie in ``scale`` times the domain? A sum over w units lies in w times the domain of one."""
        return all(part.holds(piece, scale) for part, piece in self._pieces(vector))

    def moved(self, vector: Vector, scale: float = 1.0) -> Vector:
        """The vector (d,) itself if it lies in ``scale`` times the domain, else a new one that does, near it.

        What is not a number counts as the middle. Never raises for any value.
        """
        if all_finite(vector) and self.holds(vector, scale):
            return vector
        moved = np.array(vector, dtype=np.float64)
        largest = np.finfo(np.float64).max / 4
        for part, piece in self._pieces(moved):
            middle = scale * _middle(part)
            np.nan_to_num(piece, copy=False, nan=middle, posinf=largest, neginf=-largest)
            np.clip(piece, -largest, largest, out=piece)
            part.move(piece, scale)
        return moved

    def _pieces(self, vector: Vector) -> list[tuple[Part, Vector]]:
        ends = np.cumsum([part.size for part in self.parts]).tolist()
        return [(part, vector[end - part.size : end]) for part, end in zip(self.parts, ends, strict=True)]

    def describe(self) -> list[dict[str, Any]]:
        """The domain as plain JSON data."""
        return [{"kind": part.kind, **part.describe()} for part in self.parts]

    @classmethod
    def parse(cls, raw: Any) -> Self:
        """The inverse of :meth:`describe`. Raises :class:`InputError` for an unknown kind or field."""
        if not (isinstance(raw, list) and raw and all(isinstance(document, Mapping) for document in raw)):
            raise InputError("domain must be a list of objects, each with a kind. Make a new plan with quietmean plan.")
        parts: list[Part] = []
        for document in raw:
            kind = _KINDS[require_known("domain kind", document.get("kind"), _KINDS)]
            refuse_unknown(f"a domain of kind {kind.kind}", document, ["kind", *parameters_of(kind)])
            part = kind.read(document)
            require_complete(part)
            parts.append(part)
        return cls(tuple(parts))


def _is_record(part: Part) -> TypeGuard[Blocks | RecordMoments]:
    """Are its numbers those of a single record, with the products that they are?"""
    return isinstance(part, RecordMoments) or (isinstance(part, Blocks) and part.products)


def _middle(part: Part) -> float:
    return part.low + (part.high - part.low) / 2 if isinstance(part, Box) else part.centre if isinstance(part, Ball) else 0.0


def _times(part: Part, factor: float) -> Part:
    if not isinstance(part, Box | Ball):
        return part.times(factor)
    lengths = {name: getattr(part, name) * factor for name in parameters_of(type(part)) if name != "size"}
    return replace(part, **lengths)


def _coordinates(size: int) -> str:
    return "1 coordinate" if size == 1 else f"{size} coordinates"
