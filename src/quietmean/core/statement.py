"""What is stated in public of every value that enters a sum, so that it can be checked: bounds of its numbers, and relations.

Column blocks of single records are such values in whole steps: every power follows from the value, by products. Of a value x =
u / X, for whole u from -X to X, and of its indicator b the numbers are, with t = floor(u^2 / N) and h, h', ... any public
numbers from 0 on,

    P b,   u,   floor((t - C b + h) / M2),   floor((u (t - T) + h') / M3),   floor((t (t - T) + h'') / M4)

which are the coordinates of a column block but for rounding. With h uniform that has the right mean, as floor((q + h) / M) has
the mean q / M for a whole q; t is rounded in the same way. No coordinate of two records is further apart than in the block itself
by more than 1.3 steps, nor but in three coordinates out of five: together by sqrt(5) steps at most, which is what the rounding of
five numbers is charged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.core.readable import count_of


@dataclass(frozen=True, eq=False)
class LinearRelation:
    """The sum of ``coefficients`` (whole numbers) times the numbers at ``places`` lies between ``low`` and ``high``.

    That is said of one unit; of a sum over w units it holds with w times both.
    """

    places: Ints
    coefficients: Ints
    low: float
    high: float

    def moved(self, by: int) -> LinearRelation:
        """Return the relation for numbers that begin at place ``by``."""
        return LinearRelation(self.places + by, self.coefficients, self.low, self.high)


@dataclass(frozen=True)
class ProductRelation:
    """``first`` times ``second`` plus ``added`` is the sum of ``digits``: exact, in whole numbers.

    Each of the three is a sum of coefficients times numbers, by place. ``digits``: (place, what one of it counts), from the
    lowest on, of which the first counts 1. A digit has as many values as the next one counts more, and each of these times what
    all higher ones are gives another number, so that the numbers in a product determine all of its digits. None: it is 0.
    """

    first: Mapping[int, int]
    second: Mapping[int, int]
    added: Mapping[int, int]
    digits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class WholeRecord:
    """The numbers of a single record in whole steps, of which all but a few follow from others.

    ``lows`` and ``highs``, shape (numbers,): what each may be, of which the first ``size`` are added up, each times ``units``
    steps, and the others are low digits of products. ``scales``, shape (size,): how many one in the value's units is; 0 where a
    number follows from others. ``indicators``: the places of numbers that are 0 or 1, of which one is 1 at most. ``levels``: of
    those that are at an end of their range, if anything is present; of each such tuple one is at the upper end at most.
    ``relations``: in an order in which each determines the digits that it has.
    """

    lows: Ints
    highs: Ints
    units: Ints
    scales: Array
    indicators: Ints
    levels: tuple[tuple[int, ...], ...]
    relations: tuple[ProductRelation, ...]

    @property
    def size(self) -> int:
        return len(self.units)


class StatedRecord(Protocol):
    """A part of a value whose numbers are those of a single record: no mean of several."""

    @property
    def halves(self) -> tuple[float, float]:
        """The least and the largest of what half the bounds of a column count."""

    @property
    def bias(self) -> float:
        """The bias by rounding: how many steps, over those of the least of ``halves``, it moves a number on average at most."""

    def in_steps(self, step: float) -> WholeRecord:
        """The statement about numbers on a grid of ``step``.

        Raises :class:`InputError` for a grid that is too coarse or too fine.
        """


@dataclass(frozen=True, eq=False)
class StatedValue:
    """States of the value of one unit: each number is between ``low`` and ``high``, shape (d,), and the ``relations`` hold.

    ``records``: (place of the first number, what they are) of numbers of which products are stated, too. Of a sum over several
    units that would say nothing, so a value that has such numbers is that of one.
    """

    low: Vector = field(repr=False)
    high: Vector = field(repr=False)
    relations: tuple[LinearRelation, ...] = ()
    records: tuple[tuple[int, StatedRecord], ...] = ()


# Steps from the middle of the bounds to an end: fewer make coefficients too small, and more squares too coarse.
FEWEST_STEPS, MOST_STEPS = 64, 1800
# Squares have so many values for each of these steps, and at most so many, where fourth powers have room modulo 2^31 - 1.
_FINE, _LARGEST_SQUARE = 32, 30_000
# x rounded at random has x^2 too large by 1 / (4 X^2) at most. That is most in 1.5 (x^4 - x^2), by less than 2 / X steps.
BIAS = 2.0
# Of the block (p, x, x^2, x^3, x^4): numbers that are added up, and low digits of products: of x^2 two.
_INDICATOR, _VALUE, _SQUARE, _CUBE, _FOURTH, _LOW_SQUARE, _LOWEST_SQUARE, _LOW_CUBE, _LOW_FOURTH = range(9)
_SUMMED, _ALL = 5, 9


@dataclass(frozen=True)
class BlockInSteps:
    """``reach``: X; ``present``: P; ``coarse``: N; ``top``: T; ``middle``: C; ``square``, ``cube``, ``fourth``: M2, M3, M4.

    ``steps``: how many steps half the width of the bounds is, X or a little more.
    """

    steps: float
    reach: int
    present: int
    coarse: int
    top: int
    middle: int
    square: int
    cube: int
    fourth: int

    @classmethod
    def of(cls, steps: float, weight: float, factors: tuple[float, float, float, float]) -> BlockInSteps:
        """``weight``: of the indicator; ``factors``: of x^2, what is taken off it, of x^3 and of x^4.

        Each coefficient is the block's or a little less, so that two records are no further apart. Raises :class:`InputError`.
        """
        square, centre, cube, fourth = factors
        reach = steps_within(steps)
        coarse = max(reach // _FINE, up(reach**2, _LARGEST_SQUARE))
        exact = reach**2 / coarse
        top = round(exact)
        largest = max(exact, top)
        return cls(
            steps,
            reach,
            math.floor(weight * steps * (1 + 1e-12)),
            coarse,
            top,
            round(centre * exact),
            math.ceil(exact / (square * steps)),
            math.ceil(reach * largest / (cube * steps)),
            math.ceil(largest**2 / (fourth * steps)),
        )

    @property
    def response(self) -> Array:
        """The means of the block in the unit of half the bounds, from those of (p, x, x^2, x^3, x^4), (5, 5)."""
        exact, matrix = self.reach**2 / self.coarse, np.zeros((_SUMMED, _SUMMED))
        matrix[_INDICATOR, 0] = self.present
        matrix[_VALUE, 1] = self.reach
        matrix[_SQUARE, [0, 2]] = -self.middle / self.square, exact / self.square
        matrix[_CUBE, [1, 3]] = -self.reach * self.top / self.cube, self.reach * exact / self.cube
        matrix[_FOURTH, [2, 4]] = -exact * self.top / self.fourth, exact**2 / self.fourth
        return matrix / self.steps

    def record(self, groups: int, ones: tuple[float, float]) -> WholeRecord:
        """The numbers of a record that is in one of ``groups``, or in none. ``ones``: what p and x count in the value, if 1."""
        highest = self.reach**2 // self.coarse + 1
        cubic = math.floor(0.3850 * self.reach * max(self.top, highest)) + 2 * self.reach
        beyond = max(highest * (highest - self.top), 0)
        lows = [0, -self.reach, -up(self.middle, self.square), -up(cubic, self.cube), -up(self.top**2 // 4 + 1, self.fourth)]
        highs = [
            1,
            self.reach,
            up(highest - self.middle, self.square),
            up(cubic, self.cube),
            up(beyond, self.fourth),
        ]
        low_digits = [self.square, self.coarse, self.cube, self.fourth]
        begins = _SUMMED * np.arange(groups)
        return WholeRecord(
            np.concatenate([np.tile(lows, groups), np.zeros(groups * len(low_digits))]).astype(np.int64),
            np.concatenate([np.tile(highs, groups), np.tile(low_digits, groups) - 1]).astype(np.int64),
            np.tile([self.present, 1, 1, 1, 1], groups),
            np.tile([1 / ones[0], self.reach / ones[1], 0.0, 0.0, 0.0], groups),
            begins,
            (),
            tuple(relation for group in range(groups) for relation in self._relations(group, groups)),
        )

    def _relations(self, group: int, groups: int) -> list[ProductRelation]:
        summed, low = _SUMMED * group, _SUMMED * groups + (_ALL - _SUMMED) * group
        places = [*range(summed, summed + _SUMMED), *range(low, low + _ALL - _SUMMED)]
        value, present = {places[_VALUE]: 1}, {places[_INDICATOR]: 1}
        # t, in the digits that it has.
        square = {places[_INDICATOR]: self.middle, places[_LOW_SQUARE]: 1, places[_SQUARE]: self.square}
        of_square = (
            (places[_LOWEST_SQUARE], 1),
            (places[_LOW_SQUARE], self.coarse),
            (places[_SQUARE], self.coarse * self.square),
        )
        return [
            # What is not present is 0.
            ProductRelation(value, present, {places[_VALUE]: -1}),
            ProductRelation(value, value, {places[_INDICATOR]: -self.coarse * self.middle}, of_square),
            ProductRelation(value, square, {places[_VALUE]: -self.top}, ((places[_LOW_CUBE], 1), (places[_CUBE], self.cube))),
            ProductRelation(
                square,
                square,
                {place: -self.top * factor for place, factor in square.items()},
                ((places[_LOW_FOURTH], 1), (places[_FOURTH], self.fourth)),
            ),
        ]


def steps_within(steps: float) -> int:
    """How many whole ones there are. Raises :class:`InputError` for too few, or too many, for products to be checked."""
    # A whole number that was divided and multiplied may be a little less.
    reach = math.floor(steps * (1 + 1e-12))
    if not FEWEST_STEPS <= reach <= MOST_STEPS:
        raise InputError(
            f"the plan's grid has {count_of(reach, 'step')} from the middle of the bounds to an end. Checks of products need "
            f"{FEWEST_STEPS} to {MOST_STEPS}. Give statistics more equal shares, or leave products out."
        )
    return reach


def up(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)
