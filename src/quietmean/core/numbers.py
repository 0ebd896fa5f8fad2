"""What the numbers of a study are, for one party or for all at once: float64, or whole multiples of the step of a public grid.

:class:`RealNumbers` are the real numbers of the privacy accountant. :class:`WholeNumbers` are what protocols run with by
default: values are rounded towards zero once, noise is discrete, and everything after that is exact.
:class:`RoundedNumbers` are on a grid, too, but what is injected is a real number that is rounded to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.grid import (
    LARGEST_SHARE,
    LARGEST_UNITS,
    divide,
    from_units,
    on_grid,
    to_units,
    too_large,
    towards_zero,
    whole_steps,
)
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, PopulationNoise, Units, Vector

Source = NoiseSource | PopulationNoise


class Numbers(ABC):
    """How values and noise become vectors, and how these are injected, split and added up.

    Parts kept and parts sent always sum to what was held. Vectors have the shape (d,) or, of a population, (n, d), and are in the
    units of the values. ``step``: that of the grid, 0 for none; ``value_step``: that of the grid to which values are rounded.
    """

    step: float = 0.0

    @property
    def value_step(self) -> float:
        return self.step

    @abstractmethod
    def value(self, value: Vector) -> Vector:
        """A party's value as the protocol takes it: on a grid rounded to it, towards zero."""

    @abstractmethod
    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        """Draw Gaussian noise of standard deviation ``sigma`` at least: an array that is not to be written to, times a number.

        ``shared_with``: the other party that draws it as well; of a population, the pairs (M, 2), for an array (M, d).
        """

    def noise(
        self, source: NoiseSource, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: PartyId | None = None
    ) -> Vector:
        """Draw the same as one vector, (d,)."""
        array, factor = self.draw(source, purpose, index, sigma, dimension, shared_with=shared_with)
        return array * factor

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
    """float64 numbers or symbols: every operation is linear."""

    def value(self, value: Vector) -> Vector:
        return value

    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        if shared_with is None:
            return source.normal(purpose, index, dimension), sigma
        return source.shared_normal(shared_with, purpose, index, dimension), sigma

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


class WholeNumbers(Numbers):
    """Multiples of ``step``, held as float64 without rounding. Sums are exact, also where shares are rounded or cut.

    Noise is the discrete Gaussian. ``largest_share``: to how many steps shares are cut, None if they are not.
    Raises :class:`~quietmean.core.errors.ProtocolFailure` for numbers that the grid cannot hold.
    """

    largest_share: ClassVar[int | None] = None

    def __init__(self, step: float) -> None:
        self.step = step

    def value(self, value: Vector) -> Vector:
        # A value on the grid is not copied: the caller wipes the one copy once it has done its work.
        return value if on_grid(value, self.value_step) else towards_zero(value, self.value_step)

    def _in_steps(self, sigma: float) -> float:
        """A deviation of noise in steps. Raises :class:`InputError` for noise that whole numbers cannot hold."""
        if sigma > LARGEST_UNITS * self.step:
            raise InputError(
                f"noise of standard deviation {sigma:g} has no room on a grid of {self.step:g}: choose a coarser one"
            )
        return sigma / self.step

    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        if not sigma:
            return np.zeros(dimension), 1.0
        steps = self._in_steps(sigma)
        if shared_with is None:
            return source.discrete(purpose, index, steps, dimension).astype(np.float64), self.step
        return source.shared_discrete(shared_with, purpose, index, steps, dimension).astype(np.float64), self.step

    def injected(self, vector: Vector) -> Vector:
        return whole_steps(vector, self.step)

    def share(self, held: Vector, parts: int) -> Vector:
        return from_units(self.divided(self._units(held), parts), self.step)

    def kept(self, held: Vector, parts: int, delivered: int) -> Vector:
        units = self._units(held)
        return from_units(units - delivered * self.divided(units, parts), self.step)

    def divided(self, units: Units, parts: int | Units) -> Units:
        """The shares of numbers of steps: one of ``parts`` equal parts, > 0, of any shape that broadcasts."""
        return divide(units, parts, self.largest_share)

    def total(self, vectors: Sequence[Vector]) -> Vector:
        # 2^10 numbers below 2^53 add up in 64 bits without overflow: check on the way.
        total = self._units(vectors[0])
        for vector in vectors[1:]:
            total = total + self._units(vector)
            if np.abs(total).max(initial=0) >= LARGEST_UNITS:
                raise too_large(self.step)
        return from_units(total, self.step)

    def _units(self, vector: Vector) -> Units:
        if not on_grid(vector, self.step):
            raise too_large(self.step)
        return to_units(vector, self.step)


class PortionedNumbers(WholeNumbers):
    """Values, and noise that is injected along with them, on a grid of ``portions`` steps: each portion is in whole steps.

    All other noise is on the grid itself.
    """

    def __init__(self, step: float, portions: int) -> None:
        super().__init__(step)
        self._with_values = WholeNumbers(step * portions)

    @property
    def value_step(self) -> float:
        return self._with_values.step

    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        if purpose in (NoiseGroup.INDEPENDENT, NoiseGroup.GUARD):
            return self._with_values.draw(source, purpose, index, sigma, dimension, shared_with=shared_with)
        return super().draw(source, purpose, index, sigma, dimension, shared_with=shared_with)


class RoundedNumbers(WholeNumbers):
    """Real values and normal noise, of which the sum is rounded to a multiple of ``step`` when it is injected.

    Shares are cut to 32 bits.
    """

    largest_share = LARGEST_SHARE

    @property
    def value_step(self) -> float:
        return 0.0

    def value(self, value: Vector) -> Vector:
        return value

    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        return REAL.draw(source, purpose, index, sigma, dimension, shared_with=shared_with)


REAL = RealNumbers()


def whole_numbers(step: float, portions: int = 1) -> Numbers:
    """Numbers that are whole multiples of ``step`` with discrete noise; float64 for a step of 0.

    ``portions``: in how many equal parts values are injected.
    """
    if not step:
        return REAL
    return WholeNumbers(step) if portions == 1 else PortionedNumbers(step, portions)


def rounded_numbers(step: float) -> Numbers:
    """Multiples of ``step`` to which injections are rounded; float64 for a step of 0."""
    return RoundedNumbers(step) if step else REAL


def numbers_for(value: object, numbers: Numbers) -> Numbers:
    """The numbers of a party whose value is ``value``, in a protocol that computes with ``numbers``.

    Traced parties hold forms of real numbers in place of arrays, in which there is nothing to round: a transcript describes the
    protocol in real numbers, and the protocol's loss conversion bounds what whole numbers add to it.
    """
    return numbers if isinstance(value, np.ndarray) else REAL
