"""Long vectors a piece at a time: what is computed on the way takes the memory of a piece, and not that of a vector."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quietmean.core.arrays import Array

# Coordinates of a piece.
PIECE = 2**18


def pieces(size: int) -> Iterator[slice]:
    """Slices of at most :data:`PIECE` places that cover ``size`` of them, in order; none of an empty vector."""
    return (slice(begin, min(begin + PIECE, size)) for begin in range(0, size, PIECE))


def all_finite(vector: Array) -> bool:
    """Are all entries of a vector, shape (d,), finite numbers?"""
    return all(bool(np.isfinite(vector[piece]).all()) for piece in pieces(len(vector)))
