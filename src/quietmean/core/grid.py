"""A public fixed-point grid: vectors whose entries are whole multiples of a step, held as float64 without rounding.

The step is a power of two, or a small whole number of times one, on which values may lie.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Units, Vector

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
        raise InputError(f"grid is {step:g}: choose a power of two, for example 2^-20 = {2.0**-20!r}, or leave it out")
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
        raise InputError(f"a coordinate of a value is not finite or has no room on the plan's grid of {step:g}: scale it down")
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
        f"a number is off the grid of {step:g} or beyond 2^53 of its steps, which no honest party's is: start the study again "
        "with a coarser grid (option largest_value), or without value_bits = 32, and look for the party that sent it"
    )
