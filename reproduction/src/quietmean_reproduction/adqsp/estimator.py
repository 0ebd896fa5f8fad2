"""The estimator of mutual information that the paper uses: nearest neighbours (Kraskov, Stögbauer, Grassberger 2004)."""

from __future__ import annotations

import numpy as np

from quietmean.core.party import Vector

NEIGHBOURS = 3
# The toolbox that the paper names spreads its samples by this much against ties.
SPREAD = 1e-10
_ROUNDING = 1e-15


def knn_information(first: Vector, second: Vector, neighbours: int = NEIGHBOURS) -> float:
    """Nats between samples (N, a) and (N, b): the first of the two estimates, from distances in the largest coordinate.

    An estimate without error bounds: biased towards 0 where one direction of the samples is far longer than another, and for
    variables that determine each other about ln N, whatever the truth.
    """
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    count = len(first)
    together = np.hstack([first, second])
    distances, _ = cKDTree(together).query(together, neighbours + 1, p=np.inf)
    distance: Vector = np.asarray(distances)[:, -1] - _ROUNDING

    def near(samples: Vector) -> Vector:
        # Every sample counts itself.
        within = cKDTree(samples).query_ball_point(samples, distance, p=np.inf, return_length=True)
        return np.asarray(within, dtype=np.float64)

    shared = digamma(near(first)) + digamma(near(second))
    return float(digamma(neighbours) + digamma(count) - shared.mean())


def knn_of_itself(sample: Vector, spreading: Vector) -> float:
    """What the estimator gives for I(S; S), which is infinite: (N, 1), and (N, 2) standard normal numbers against ties."""
    return knn_information(sample + SPREAD * spreading[:, :1], sample + SPREAD * spreading[:, 1:])
