"""What the first two powers of a number between -1 and 1 have to do with each other."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array

# Where squares of distances are taken: (x - a)^2 is not below 0 for any a, and the three see most of what is wrong.
_FROM = (-0.5, 0.0, 0.5)


def signs_of_powers(size: int, present: int, mean: int, square: int) -> Array:
    """Weights (4, size) of sums that are not below 0: of p (x - a)^2 for three a, and of p (1 - x^2).

    ``present``, ``mean`` and ``square``: where p, p x and p x^2 are among so many quantities; p is 0 or 1, x from -1 to 1.
    """
    rows = np.zeros((len(_FROM) + 1, size))
    for row, a in zip(rows, _FROM, strict=False):
        row[square], row[mean], row[present] = 1.0, -2 * a, a * a
    rows[-1, present], rows[-1, square] = 1.0, -1.0
    return rows
