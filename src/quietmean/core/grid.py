"""A public fixed-point grid: vectors whose entries are whole multiples of a power of two, held as float64 without rounding."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Units, Vector

# float64 holds all whole numbers below this.
LARGEST_UNITS = 2**53
# What a share may be, so that it takes 32 bits on the wire; symmetric, so that its negative fits as well.
LARGEST_SHARE = 2**31 - 1
# Far from where float64 loses bits to tiny or huge exponents.
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
        units = vector / step
    return bool((np.abs(units) < LARGEST_UNITS).all() and (units == np.rint(units)).all())


def to_units(vector: Vector, step: float) -> Units:
    """A vector of any shape with entries on the grid, as whole numbers of steps: exact."""
    units: Units = (vector / step).astype(np.int64)
    return units


def from_units(units: NDArray[np.signedinteger], step: float) -> Vector:
    """The inverse of :func:`to_units`, for any shape: in the units of ``step``, exact below 2^53 steps."""
    vector: Vector = units.astype(np.float64) * step
    return vector


def divide(units: Units, parts: int | Units) -> Units:
    """units / parts, rounded to whole steps, halves up, and cut to +-(2^31 - 1). ``parts``: > 0, of any shape that broadcasts.

    Halves go up whatever the sign: only so does a change of ``units`` by a multiple of ``parts`` change the result by exactly
    that many steps, on which the privacy bound for grids rests.
    """
    shares: Units = (2 * units + parts) // (2 * parts)
    return np.clip(shares, -LARGEST_SHARE, LARGEST_SHARE)


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
        units = np.trunc(vector / step)
    if not (np.abs(units) < LARGEST_UNITS).all():
        raise InputError(
            f"a coordinate of a value is no finite number or has no room on the plan's grid of {step:g}: scale it down"
        )
    # Adding zero makes a negative zero a plain one.
    whole: Vector = units * step + 0.0
    return whole


def too_large(step: float) -> ProtocolFailure:
    """The error for numbers that a grid cannot hold."""
    return ProtocolFailure(
        f"a number is off the grid of {step:g} or beyond 2^53 of its steps, which no honest party's is: start the study again "
        "with a coarser grid (option largest_value), or without value_bits = 32, and look for the party that sent it"
    )
