"""What is stated in public of every value that enters a sum, so that it can be checked: bounds of its numbers, and relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quietmean.core.arrays import Array, Ints
from quietmean.core.party import Vector


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
