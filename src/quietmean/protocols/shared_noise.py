"""Bounds for every coalition where pairs of parties share noise that cancels in the sum.

The honest parties' messages have covariance v I + b L, with L the Laplacian of the graph of pairs between honest parties, and
noise shared with honest parties that sent nothing on top. Neither bound tries a coalition; both are proven in
``docs/mathematics/coalitions.md``.
"""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask

# The most parties of a graph whose Laplacian is decomposed; for larger ones only the star bounds.
_LARGEST_GRAPH = 2000
# The error of the second eigenvalue by rounding, relative to the largest.
_ROUNDING = 1e-10


def through_partner(own: float, pair: float) -> float:
    """The variance by which one honest partner that sent its own message hides a value: v b / (v + b)."""
    return own * pair / (own + pair) if own > 0 else 0.0


def star_variance(own: float, hidden: Array, size: int) -> Array:
    """The least variance that hides each value from ``size`` parties, shape (n,).

    ``hidden``, shape (n, n): by how much each partner of a party (column) adds to what hides it; 0 for others. The worst
    coalition of a party takes those that add most.
    """
    kept = np.sort(hidden, axis=1)[:, : max(hidden.shape[1] - size, 0)]
    variance: Array = own + kept.sum(axis=1)
    return variance


def connectivity(parties: int, pairs: Ints, members: Mask) -> float:
    """The second eigenvalue of the Laplacian of the pairs, shape (M, 2), of ``members`` (n,); rounded down.

    0 where the graph is too large to be decomposed.
    """
    inside = pairs[members[pairs].all(axis=1)]
    count = int(members.sum())
    if count > 1 and len(inside) == count * (count - 1) // 2:
        return float(count)
    if not 1 < count <= _LARGEST_GRAPH:
        return 0.0
    index_of = np.cumsum(members) - 1
    low, high = index_of[inside].T
    laplacian = np.zeros((count, count))
    laplacian[low, high] = laplacian[high, low] = -1.0
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    values = np.linalg.eigvalsh(laplacian)
    return max(0.0, float(values[1] - _ROUNDING * values[-1]))


def connected_information(own: float, pair: float, connected: float, members: int, size: int) -> float:
    """Lambda_ii at most, of any of ``members`` parties that are not corrupt.

    ``connected``: :func:`connectivity` of their graph. Taking away a party lowers it by 1 at most (Fiedler 1973).
    """
    honest = max(members - size, 1)
    if own <= 0:
        return np.inf
    return (1.0 / own + (honest - 1) / (own + pair * max(connected - size, 0.0))) / honest


def mu_of(sensitivity: float, variance: Array, information: float, members: Mask) -> Array:
    """mu of the parties that sent anything, by the better of a variance that hides each, (n,), and an information of any."""
    with np.errstate(divide="ignore"):
        information_bound = np.minimum(1.0 / variance, information)
    return np.where(members, sensitivity * np.sqrt(information_bound), 0.0)
