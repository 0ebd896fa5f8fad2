"""Means and products of columns of single records in whole steps: all products follow from the columns, and can be checked.

Of a record in which nothing is missing (b = 1; else all is 0) a column that is scaled to z in [-1, 1] is u = X z, rounded at
random to whole steps, and of a column with levels each level is u = X t, with t = -1 or 1. The numbers are, with h and h' any
public numbers from 0 on,

    P b,   u_i,   floor((u_i u_j + h) / M_ij),   floor((u_i^2 - X_i^2 b + h') / M_i)

and of two levels a multiple of t_i t_j. So each is the coordinate of a record whose z are whole parts of X, times a factor of 1
at most, but for a step of rounding: two records are no further apart than the moments' width and a step for each product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.mixtures import Products
from quietmean.core.schema import parameter, wrong_field
from quietmean.core.statement import ProductRelation, WholeRecord, steps_within, up

# What float64 may be off of a whole number of steps.
_SLACK = 1e-12
# A product that is rounded has digits below.
_LEAST_RADIX = 2
# X and M are rounded to whole numbers of 64 or more: by so much together at most.
_ROUNDED = 1.1


def _listed(kind: Any, name: str, type_name: str, help_: str) -> Any:
    """A field that is an array in JSON."""

    def read(raw: Any) -> Any:
        return convert(raw, kind, lambda _: wrong_field(name, raw, type_name))

    def write(entries: Any) -> list[Any]:
        return [list(entry) if isinstance(entry, tuple) else entry for entry in entries]

    return parameter(help=help_, read=read, write=write)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordMoments(Products):
    """The means and products of columns of one record, in one of ``groups`` or in none: no mean of several records.

    ``levels``: of each column 0 where it is a number, and of a level the number of the column, from 1 on, that it is a level of.
    ``edges``: two columns each, counted from 1 on, the first of which is 0 for a mean; each has its mean. ``weights``: of all
    coordinates of a group, the indicator first, then the edges and then the squares of numbers.
    """

    kind = "record-moments"
    groups: int = parameter(help="groups", at_least=1, at_most=1 << 16, remedy="choose at least 1 group")
    levels: tuple[int, ...] = _listed(tuple[int, ...], "levels", "whole numbers", "0 for a number, else which column's level")
    edges: tuple[tuple[int, int], ...] = _listed(
        tuple[tuple[int, int], ...], "edges", "pairs of whole numbers", "two columns each"
    )
    weights: tuple[float, ...] = _listed(tuple[float, ...], "weights", "numbers", "of the coordinates of a group")

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.levels)
        inside = all(0 <= first <= count and 1 <= other <= count and first != other for first, other in self.edges)
        different = len(set(map(frozenset, self.edges))) == len(self.edges)
        means = sorted(other for first, other in self.edges if not first)
        sized = self.size == self.groups * len(self.weights) and len(self.weights) == 1 + len(self.edges) + len(self.numbers)
        weighed = all(0 < weight <= self.largest_coordinate for weight in self.weights)
        if not (inside and different and sized and weighed and min(self.levels) >= 0 and means == list(range(1, count + 1))):
            raise InputError("The statistics of this plan do not fit its columns. Make a new plan with quietmean plan.")

    @property
    def text(self) -> str:
        where = "" if self.groups == 1 else f" in one of {self.groups} groups"
        return f"{self.size} means and products of the columns of one record{where}, {self.largest:g} at most"

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which columns, from 1 on, have squares."""
        return tuple(column for column, level in enumerate(self.levels, 1) if not level)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the two columns of each product, for all coordinates of a group but the first: edges, then squares."""
        return (*self.edges, *((column, column) for column in self.numbers))

    @cached_property
    def place_of_mean(self) -> dict[int, int]:
        """Where the mean of each column is in the coordinates of a group."""
        return {other: place for place, (first, other) in enumerate(self.edges, 1) if not first}

    def half(self, column: int) -> float:
        """What half the bounds of a column count."""
        return self.scale * self.weights[self.place_of_mean[column]]

    @property
    def halves(self) -> tuple[float, float]:
        """The least and the largest of what half the bounds of a column count."""
        counted = [self.half(column) for column in self.place_of_mean]
        return min(counted), max(counted)

    @property
    def bias(self) -> float:
        """The bias by rounding: how many steps, over those of the least of ``halves``, it moves a number on average at most.

        That of u makes u^2 too large by 1/4 at most, and products of two different ones by nothing.
        """
        squares = zip(self.numbers, self.weights[1 + len(self.edges) :], strict=True)
        most = max((self.scale * weight / self.half(column) ** 2 for column, weight in squares), default=0.0)
        return self.halves[0] * most / 4 * _ROUNDED

    def in_steps(self, step: float) -> WholeRecord:
        """The numbers of a record on a grid of ``step``. Raises :class:`InputError` for one without room for products."""
        return MomentsInSteps.of(self, step).record()


@dataclass(frozen=True)
class MomentsInSteps:
    """Bounds of means and products of columns in whole steps of a grid.

    ``reaches``: X of each column, from 1 on.

    Of each coordinate of a group: ``units``, how many steps one of its number counts, and ``radices``, M of what is rounded.
    """

    moments: RecordMoments = field(repr=False)
    reaches: dict[int, int]
    units: tuple[int, ...]
    radices: tuple[int, ...]

    @classmethod
    def of(cls, moments: RecordMoments, step: float) -> MomentsInSteps:
        """The moments on a grid of ``step``. Raises :class:`InputError` for one without room for products."""
        exact = [moments.scale * weight / step * (1 + _SLACK) for weight in moments.weights]
        reaches = {column: steps_within(moments.half(column) / step) for column in moments.place_of_mean}
        units, radices = [math.floor(exact[0])], [0]
        for (first, other), weight in zip(moments.pairs, exact[1:], strict=True):
            if moments.levels[other - 1] and (not first or moments.levels[first - 1]):
                # -1 or 1.
                units.append(math.floor(weight) if first else reaches[other])
                radices.append(0)
            else:
                units.append(1)
                radices.append(max(_LEAST_RADIX, math.ceil(reaches[first] * reaches[other] / weight)) if first else 0)
        return cls(moments, reaches, tuple(units), tuple(radices))

    @property
    def coefficients(self) -> Array:
        """What each coordinate of a group counts in steps, of the largest record, shape (block,)."""
        moments, counted = self.moments, [float(self.units[0])]
        for (first, other), unit, radix in zip(moments.pairs, self.units[1:], self.radices[1:], strict=True):
            counted.append(
                self.reaches[first] * self.reaches[other] / radix if radix else float(unit if first else self.reaches[other])
            )
        return np.array(counted)

    def record(self) -> WholeRecord:
        """The numbers of a record, group after group, and then the low digits of its products."""
        moments, groups, block = self.moments, self.moments.groups, len(self.units)
        lows, highs, scales = [0], [1], [1 / (moments.scale * moments.weights[0])]
        for (first, other), radix, weight in zip(moments.pairs, self.radices[1:], moments.weights[1:], strict=True):
            of_level = bool(moments.levels[other - 1])
            unrounded = 1 if first or of_level else self.reaches[other]
            most = up(self.reaches[first] * self.reaches[other], radix) if radix else unrounded
            lows.append(-most)
            highs.append(0 if first == other else most)
            scales.append(0.0 if first else most / (moments.scale * weight))
        counts = [radix for radix in self.radices if radix]
        begins = block * np.arange(groups)
        columns: dict[int, list[int]] = {}
        for column, level in enumerate(moments.levels, 1):
            if level:
                columns.setdefault(level, []).append(moments.place_of_mean[column])
        return WholeRecord(
            np.array(lows * groups + [0] * (groups * len(counts)), dtype=np.int64),
            np.array(highs * groups + [count - 1 for count in counts] * groups, dtype=np.int64),
            np.array(self.units * groups, dtype=np.int64),
            np.array(scales * groups),
            begins,
            tuple(tuple(begin + place for place in own) for begin in begins.tolist() for own in columns.values()),
            tuple(
                relation
                for group, begin in enumerate(begins.tolist())
                for relation in self._relations(begin, block * groups + len(counts) * group, list(columns.values()))
            ),
        )

    def _relations(self, begin: int, low: int, columns: list[list[int]]) -> list[ProductRelation]:
        """Return the relations of the group whose numbers are from ``begin`` on, and its low digits from ``low`` on.

        ``columns``: places of levels.
        """
        moments, means = self.moments, self.moments.place_of_mean
        present = {begin: 1}
        # What is not present is 0; a level is -1 or 1, and of one column one level is 1 at most.
        relations = [
            ProductRelation({begin + means[column]: 1}, present, {begin + means[column]: -1}) for column in moments.numbers
        ]
        for places in columns:
            own = [begin + place for place in places]
            relations += [ProductRelation({place: 1}, {place: 1}, {begin: -1}) for place in own]
            relations += [
                ProductRelation({one: 1, begin: 1}, {other: 1, begin: 1}, {begin: 0}) for one, other in combinations(own, 2)
            ]
        for place, (first, other) in enumerate(moments.pairs, 1):
            if not first:
                continue
            radix, squared = self.radices[place], first == other
            sides = [
                {begin + means[column]: self.reaches[column] if radix and moments.levels[column - 1] else 1}
                for column in (first, other)
            ]
            added = {begin: -(self.reaches[other] ** 2)} if squared else {}
            digits = ((low, 1), (begin + place, radix)) if radix else ((begin + place, 1),)
            low += 1 if radix else 0
            relations.append(ProductRelation(sides[0], sides[1], added, digits))
        return relations
