"""What a party's numbers are: float64, or whole multiples of the step of a public grid, which are split exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from quietmean.core.grid import LARGEST_UNITS, Units, divide, from_units, on_grid, to_units, too_large, whole_steps
from quietmean.core.party import Vector


class Numbers(ABC):
    """How vectors are injected, split and added up. Parts kept and parts sent always sum to what was held.

    All vectors have shape (d,) and are in the units of the values.
    """

    @abstractmethod
    def injected(self, vector: Vector) -> Vector:
        """What is added to the holdings to inject ``vector``: on a grid, the vector rounded to it."""

    @abstractmethod
    def share(self, held: Vector, parts: int) -> Vector:
        """One of ``parts`` equal parts of what is held."""

    @abstractmethod
    def kept(self, held: Vector, parts: int, delivered: int) -> Vector:
        """What is left after ``delivered`` such parts were sent."""

    @abstractmethod
    def total(self, vectors: Sequence[Vector]) -> Vector:
        """The sum of one or more vectors, in this order."""


class RealNumbers(Numbers):
    """float64 numbers or symbols, shape (d,): every operation is linear."""

    def injected(self, vector: Vector) -> Vector:
        return vector

    def share(self, held: Vector, parts: int) -> Vector:
        return held * (1.0 / parts)

    def kept(self, held: Vector, parts: int, delivered: int) -> Vector:
        return held * (1.0 - delivered * (1.0 / parts))

    def total(self, vectors: Sequence[Vector]) -> Vector:
        total = vectors[0]
        for vector in vectors[1:]:
            total = total + vector
        return total


class GridNumbers(Numbers):
    """Multiples of ``step``, shape (d,). Sums are exact, also where shares are rounded or cut."""

    def __init__(self, step: float) -> None:
        self._step = step

    def injected(self, vector: Vector) -> Vector:
        return whole_steps(vector, self._step)

    def share(self, held: Vector, parts: int) -> Vector:
        return from_units(divide(self._units(held), parts), self._step)

    def kept(self, held: Vector, parts: int, delivered: int) -> Vector:
        units = self._units(held)
        return from_units(units - delivered * divide(units, parts), self._step)

    def total(self, vectors: Sequence[Vector]) -> Vector:
        # 2^10 numbers below 2^53 add up in 64 bits without overflow: check on the way.
        total = self._units(vectors[0])
        for vector in vectors[1:]:
            total = total + self._units(vector)
            if np.abs(total).max(initial=0) >= LARGEST_UNITS:
                raise too_large(self._step)
        return from_units(total, self._step)

    def _units(self, vector: Vector) -> Units:
        if not on_grid(vector, self._step):
            raise too_large(self._step)
        return to_units(vector, self._step)


REAL = RealNumbers()


def numbers_of(step: float, value: object) -> Numbers:
    """The arithmetic of a party whose value is ``value`` on a grid of ``step``; 0 for float64.

    Traced parties hold forms of real numbers in place of arrays, in which there is nothing to round: a transcript describes the
    protocol in real numbers, and :mod:`quietmean.protocols.inca.rounding` bounds what rounding adds to it.
    """
    return GridNumbers(step) if step and isinstance(value, np.ndarray) else REAL
