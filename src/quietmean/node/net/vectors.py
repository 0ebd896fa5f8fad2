"""Encoding of vectors as bytes: float64 values as they are in memory, or 32-bit steps of the study's grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import PeerError
from quietmean.core.grid import LARGEST_SHARE, from_units, on_grid, to_units
from quietmean.core.party import Vector
from quietmean.node.net.wire import Payload


def encode_vector(vector: Vector, grid: float = 0.0) -> memoryview:
    """The bytes of a vector of shape (d,): int32 steps of ``grid``, 4 bytes each, if there is a grid and all steps fit.

    Else float64, 8 bytes each, not copied. Only releases can have steps that need more than 32 bits; float64 holds them exactly.
    """
    if grid and on_grid(vector, grid):
        units = to_units(vector, grid)
        if np.abs(units).max(initial=0) <= LARGEST_SHARE:
            return _bytes_of(units.astype("<i4"))
    return _bytes_of(np.ascontiguousarray(vector, dtype="<f8"))


def _bytes_of(array: Array | NDArray[np.int32]) -> memoryview:
    # A memoryview of no items could not be cast.
    raw: NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
    return raw.data


def decode_vector(raw: Payload, width: int = 8, grid: float = 0.0) -> Vector:
    """The vector, shape (d,). ``width``: bytes per number, 4 or 8.

    Raises :class:`PeerError` unless all numbers are finite and, if there is a grid, on it.
    """
    if len(raw) % width or (width != 8 and not grid):
        raise PeerError(f"a vector of {len(raw)} bytes in values of {width}, which is none of this study's")
    if width == 4:
        return from_units(np.frombuffer(raw, dtype="<i4"), grid)
    vector = np.frombuffer(raw, dtype="<f8").astype(np.float64, copy=False)
    # Any entry that is not finite makes this so; large finite ones can too, then every entry is checked.
    with np.errstate(all="ignore"):
        square = float(np.dot(vector, vector))
    if not math.isfinite(square) and not np.isfinite(vector).all():
        raise PeerError("a vector with an entry that is not finite")
    if grid and not on_grid(vector, grid):
        raise PeerError(f"a vector with an entry off the study's grid of {grid:g}, or beyond 2^53 of its steps")
    return vector


@dataclass(frozen=True, slots=True)
class VectorCodec:
    """The vectors of one study: ``dimension`` values each, on a grid of step ``grid`` if that is not 0."""

    dimension: int
    grid: float = 0.0

    def encode(self, vector: Vector) -> memoryview:
        """The bytes of a vector of shape (dimension,): see :func:`encode_vector`."""
        return encode_vector(vector, self.grid)

    def width(self, raw: Payload) -> int:
        """Bytes per number in what :meth:`encode` returned, from its length."""
        return 4 if self.grid and raw and len(raw) == 4 * self.dimension else 8

    def decode(self, raw: Payload) -> Vector:
        return decode_vector(raw, self.width(raw), self.grid)
