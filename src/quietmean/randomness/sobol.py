"""Points of a Sobol sequence, bit for bit those of ``scipy.stats.qmc.Sobol``, without the package around it: for no secret.

``scipy.stats`` takes longer to import, and more memory, than all else that a party needs. Its direction numbers (Joe and Kuo,
2008) are in a file, from which they are read; where they are not, its own class answers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array

Words = NDArray[np.uint32]

_BITS = 30
_FILE = ("stats", "_sobol_direction_numbers.npz")


def sobol(dimension: int, bits: int, seed: int | None = None) -> Array:
    """The first ``2**bits`` points in [0, 1), (points, dimension): as they are, or scrambled and shifted by a ``seed``."""
    import scipy

    file = Path(scipy.__file__).parent.joinpath(*_FILE)
    if not file.exists():
        from scipy.stats import qmc

        drawn: Array = qmc.Sobol(dimension, scramble=seed is not None, rng=seed).random_base2(bits)
        return drawn
    directions = _directions(file, dimension)
    point = np.zeros(dimension, dtype=np.uint32)
    if seed is not None:
        point, directions = _scrambled(directions, np.random.default_rng(seed).spawn(1)[0])
    points = np.empty((1 << bits, dimension), dtype=np.uint32)
    points[0] = point
    # In the order of a Gray code one direction changes at a time.
    for number in range(1, 1 << bits):
        lowest = (number & -number).bit_length() - 1
        point = point ^ directions[:, lowest]
        points[number] = point
    return points.astype(np.float64) * 2.0**-_BITS


def _directions(file: Path, dimension: int) -> Words:
    """The direction numbers (dimension, bits), the highest bit first: by the recurrence of each dimension's primitive
    polynomial."""
    with np.load(file, allow_pickle=False) as numbers:
        polynomials, first = numbers["poly"][:dimension].astype(np.int64), numbers["vinit"][:dimension].astype(np.int64)
    directions = np.ones((dimension, _BITS), dtype=np.int64)
    for row in range(1, dimension):
        polynomial = int(polynomials[row])
        degree = polynomial.bit_length() - 1
        directions[row, :degree] = first[row, :degree]
        for column in range(degree, _BITS):
            word = int(directions[row, column - degree])
            for back in range(1, degree + 1):
                if polynomial >> (degree - back) & 1:
                    word ^= int(directions[row, column - back]) << back
            directions[row, column] = word
    return (directions << np.arange(_BITS - 1, -1, -1)).astype(np.uint32)


def _scrambled(directions: Words, rng: np.random.Generator) -> tuple[Words, Words]:
    """A random shift, and every direction multiplied by a random lower triangular matrix of bits."""
    dimension = len(directions)
    powers = 1 << np.arange(_BITS, dtype=np.uint32)
    shift = (rng.integers(2, size=(dimension, _BITS), dtype=np.uint32) @ powers).astype(np.uint32)
    lower = np.tril(rng.integers(2, size=(dimension, _BITS, _BITS), dtype=np.uint32))
    lower[:, np.arange(_BITS), np.arange(_BITS)] = 1
    # Of bits with the highest first, as the rows of the matrix are.
    bits = directions[:, :, None] >> np.arange(_BITS - 1, -1, -1, dtype=np.uint32) & 1
    mixed = np.einsum("dpk,djk->djp", lower, bits) & 1
    return shift, (mixed @ powers[::-1]).astype(np.uint32)
