"""Noise that pairs of parties share and that cancels in the sum: bounds for every coalition, and what whole numbers cost.

**Bounds.** The honest parties' messages have covariance v I + b L, with L the Laplacian of the graph of pairs between honest
parties, and noise shared with honest parties that sent nothing on top. Neither bound tries a coalition; both are proven in
``docs/proofs/coalitions.md``.

**Whole numbers.** Parties publish one masked value each: own noise, and noise that pairs share with opposite signs. A whole
change of the value of an honest party can be hidden by a whole change of its own noise. All other whole changes of noise that
leave the view as it was are sums of few short ones:

* an edge between two honest parties whose messages are seen: its noise, and the own noise of both ends;
* an edge to an honest party of which nothing is seen: its noise, and the own noise of the end that is seen;
* where several messages are seen as a sum only: the own noise of two of them, with opposite signs.

Each coordinate along these that the best real shift uses is rounded, at a cost of a quarter of the squared standardised norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId
from quietmean.privacy import Adversary

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


@dataclass(frozen=True, eq=False)
class MaskedMessages:
    """One message from each party of the mask ``arrived`` (n,), and the pairs (M, 2) that share noise.

    Standard deviations ``own`` and ``pair`` are in the units of ``step``. ``aggregator``: the party that alone sees single
    messages; None if they are public. ``symmetric``: all pairs share noise, and none of it is taken out again, so that the best
    shift passes from each party to all others alike.
    """

    own: float
    pair: float
    step: float
    pairs: Ints
    arrived: Mask
    aggregator: PartyId | None
    symmetric: bool

    def most_rounding(self) -> float:
        """:meth:`rounding` against any colluders, at most: whether the aggregator is one of them or not."""
        nobody, everyone = Adversary(), range(self.arrived.size)
        # Fewer honest parties share fewer terms. Nobody's number is -1.
        return max(replace(self, aggregator=who).rounding(nobody, everyone) for who in (None, -1))

    def rounding(self, adversary: Adversary, honest: Sequence[PartyId]) -> float:
        """b^2: what rounding the shift adds to mu squared for each coordinate, at most."""
        is_honest = np.zeros(self.arrived.size, dtype=np.bool_)
        is_honest[list(honest)] = True
        hidden = self.pairs[is_honest[self.pairs].all(axis=1)] if self.pair else self.pairs[:0]
        from_own = (self.step / self.own) ** 2 if self.own else np.inf
        from_pair = (self.step / self.pair) ** 2 if self.pair else 0.0
        if adversary.observed:
            # Any of the messages may be seen alone, and any others as a sum.
            return (len(hidden) * (from_pair + 2 * from_own) if len(hidden) else 0.0) / 4.0 + len(honest) * from_own / 2.0
        seen_ends = self.arrived[hidden].sum(axis=1)
        both, single = int((seen_ends == 2).sum()), int((seen_ends == 1).sum())
        others = max(int((is_honest & self.arrived).sum()) - 1, 0)
        if self.aggregator is None or self.aggregator in adversary.corrupt:
            used = others if self.symmetric and both else both
            norms = used * (from_pair + 2 * from_own) if used else 0.0
        else:
            norms = others * 2 * from_own if others else 0.0
        return float(norms + (single * (from_pair + from_own) if single else 0.0)) / 4.0
