"""What is stated in public of every value that enters a sum, so that it can be checked: bounds of its numbers, and relations."""

from __future__ import annotations

from dataclasses import dataclass, field

from quietmean.core.arrays import Ints
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
        """The same of numbers that begin at place ``by``."""
        return LinearRelation(self.places + by, self.coefficients, self.low, self.high)


@dataclass(frozen=True, eq=False)
class StatedValue:
    """Of the value of one unit: each number is between ``low`` and ``high``, shape (d,), and the ``relations`` hold."""

    low: Vector = field(repr=False)
    high: Vector = field(repr=False)
    relations: tuple[LinearRelation, ...] = ()
