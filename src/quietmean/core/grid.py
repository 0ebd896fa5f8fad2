"""A public fixed-point grid: vectors whose entries are whole multiples of a step, held as float64 without rounding.

The step is a power of two, or a small whole number of times one, on which values may lie.

What the numbers of a study are, for one party or for all at once: float64, or whole multiples of the step of a public grid.

:class:`RealNumbers` are the real numbers of the privacy accountant. :class:`WholeNumbers` are what protocols run with by
default: values are rounded towards zero once, noise is discrete, and everything after that is exact.
:class:`RoundedNumbers` are on a grid, too, but what is injected is a real number that is rounded to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, PopulationNoise, Units, Vector

# float64 holds all whole numbers below this.
LARGEST_UNITS = 2**53
# The largest share, so that it takes 32 bits on the wire; symmetric, so that its negative fits as well.
LARGEST_SHARE = 2**31 - 1
# The largest exponent of two, far from where float64 loses bits.
_LARGEST_EXPONENT = 900


def check_step(step: float) -> float:
    """The step of a grid, if it is one: a power of two, in the units of the values. Raises :class:`InputError`."""
    fraction, exponent = math.frexp(step) if math.isfinite(step) else (0.0, 0)
    if fraction != 0.5 or abs(exponent) > _LARGEST_EXPONENT:
        raise InputError(f"grid is {step:g}. Choose a power of two, for example 2^-20 = {2.0**-20!r}, or leave it out.")
    return step


def on_grid(vector: Vector, step: float) -> bool:
    """Are all entries, in any shape, finite multiples of ``step`` and below 2^53 steps in size? Both in the same units."""
    with np.errstate(over="ignore"):
        units = np.asarray(np.divide(vector, step))
    nearest = np.asarray(np.rint(units))
    are_whole = bool((units == nearest).all())
    are_small = bool((np.abs(units, out=units) < LARGEST_UNITS).all())
    # A quotient by another number than a power of two may be rounded to a whole one.
    nearest *= step
    are_whole = are_whole and (_is_power(step) or bool((nearest == vector).all()))
    _clear(units, nearest)
    return are_whole and are_small


def within(vector: Vector, largest: float) -> bool:
    """Say if no entry is larger than that in absolute value; NaN is. Not even one entry of a private value is copied."""
    return bool((vector <= largest).all() and (vector >= -largest).all())


def to_units(vector: Vector, step: float) -> Units:
    """A vector of any shape with entries on the grid, as whole numbers of steps: exact."""
    units: Units = (vector / step).astype(np.int64)
    return units


def from_units(units: NDArray[np.signedinteger], step: float) -> Vector:
    """The inverse of :func:`to_units`, for any shape: in the units of ``step``, exact below 2^53 steps."""
    vector: Vector = units.astype(np.float64)
    # In place: vectors are large.
    vector *= step
    return vector


def divide(units: Units, parts: int | Units, largest: int | None = LARGEST_SHARE) -> Units:
    """units / parts, rounded to whole steps, halves up, and cut to +- ``largest`` steps unless that is None.

    ``parts``: > 0, of any shape that broadcasts. Units are below 2^53.

    Halves go up whatever the sign: only so does a change of ``units`` by a multiple of ``parts`` change the result by exactly
    that many steps, on which the privacy bound for grids rests.
    """
    shares: Units = (2 * units + parts) // (2 * parts)
    return shares if largest is None else np.clip(shares, -largest, largest)


def whole_steps(vector: Vector, step: float) -> Vector:
    """Each entry, in any shape, rounded to the nearest multiple of ``step``.

    Raises :class:`ProtocolFailure` for an entry that is not finite or reaches 2^53 steps, beyond which float64 is not exact.
    """
    with np.errstate(over="ignore"):
        units = np.rint(vector / step)
    if not (np.abs(units) < LARGEST_UNITS).all():
        raise too_large(step)
    # Adding zero makes a negative zero a plain one.
    nearest: Vector = units * step + 0.0
    return nearest


def towards_zero(vector: Vector, step: float) -> Vector:
    """Each entry, in any shape, rounded towards zero to a multiple of ``step``: no entry and no norm grows.

    Raises :class:`InputError` for an entry that is not finite or reaches 2^53 steps. The error does not contain it.
    """
    with np.errstate(over="ignore"):
        units = np.asarray(np.divide(vector, step))
    np.trunc(units, out=units)
    sizes = np.asarray(np.abs(units))
    small = bool((sizes < LARGEST_UNITS).all())
    _clear(sizes)
    if not small:
        _clear(units)
        raise InputError(f"a coordinate of a value is not finite or has no room on the plan's grid of {step:g}. Scale it down.")
    if not _is_power(step):
        # The quotient may have been rounded up to a whole number.
        units -= np.sign(units) * (np.abs(units * step) > np.abs(vector))
    # Adding zero makes a negative zero a plain one.
    units *= step
    units += 0.0
    return units


def _clear(*arrays: Array) -> None:
    """Clears arrays that were made from a private value: memory that is given back keeps its bytes until it is used again."""
    for array in arrays:
        array.fill(0.0)


def _is_power(step: float) -> bool:
    return math.frexp(step)[0] == 0.5


def too_large(step: float) -> ProtocolFailure:
    """The error for numbers that a grid cannot hold."""
    return ProtocolFailure(
        f"a number is off the grid of {step:g} or beyond 2^53 of its steps, which no honest party sends. Find the party that "
        "sent it. Start the study again with a coarser grid (option largest_value), or without value_bits = 32."
    )


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
                f"noise of standard deviation {sigma:g} is too large for a grid of step {self.step:g}. Choose a coarser grid."
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


class LaplaceNumbers(WholeNumbers):
    """Whole numbers whose noise is discrete Laplace noise of scale ``sigma``; no two parties share it.

    A party's value is rounded once, whatever it is a sum of: what that adds to its change is counted. Or ``each`` unit that it
    is a sum of was rounded.
    """

    def __init__(self, step: float, *, each: bool = False) -> None:
        super().__init__(step)
        self._each = each

    @property
    def value_step(self) -> float:
        return self.step if self._each else 0.0

    def value(self, value: Vector) -> Vector:
        return value if on_grid(value, self.step) else towards_zero(value, self.step)

    def draw(
        self, source: Source, purpose: str, index: int, sigma: float, dimension: int, *, shared_with: Any = None
    ) -> tuple[Vector, float]:
        if shared_with is not None:
            raise ValueError("Laplace noise is one party's own")
        if not sigma:
            return np.zeros(dimension), 1.0
        return source.discrete(purpose, index, self._in_steps(sigma), dimension, 1).astype(np.float64), self.step


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
