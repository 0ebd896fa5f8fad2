"""Arrays by the kind of their numbers, under the names that all signatures use, and long ones a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
# One of two dimensions.
Matrix: TypeAlias = Array
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


# Coordinates of a piece.
PIECE = 2**18


def pieces(size: int) -> Iterator[slice]:
    """Slices of at most :data:`PIECE` places that cover ``size`` of them, in order; none of an empty vector."""
    return (slice(begin, min(begin + PIECE, size)) for begin in range(0, size, PIECE))


def all_finite(vector: Array) -> bool:
    """Are all entries of a vector, shape (d,), finite numbers?"""
    return all(bool(np.isfinite(vector[piece]).all()) for piece in pieces(len(vector)))
