"""Write the coefficient table of the Gaussian sampler. Run once; the table is part of the package.

For each octave of the upper-tail probability p (2**-63 ... 1/2), cut into 128 equal cells, the cubic in t in [0, 1) that
interpolates the inverse of the upper tail at the cell's four Chebyshev nodes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import ndtri

OCTAVES, CELLS, DEGREE = 63, 128, 3
TARGET = Path(__file__).parents[1] / "src" / "quietmean" / "randomness" / "inverse_normal.npy"


def make_table() -> np.ndarray:
    nodes = 0.5 - 0.5 * np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    octave = np.arange(OCTAVES)[:, None, None]
    cell = np.arange(CELLS)[None, :, None]
    probability = np.ldexp(1.0 + (cell + nodes) / CELLS, octave - 64)
    values = -ndtri(probability)
    coefficients = np.linalg.solve(np.vander(nodes, increasing=True), values.reshape(-1, DEGREE + 1).T)
    # One more cell, constant zero: where rounding lifts the probability to exactly one half.
    return np.hstack([coefficients, np.zeros((DEGREE + 1, 1))]).astype("<f8")


if __name__ == "__main__":
    np.save(TARGET, make_table(), allow_pickle=False)
