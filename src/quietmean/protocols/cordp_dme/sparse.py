"""Noise levels where each party shares noise with a few others only.

With pairwise terms on a graph, the honest messages have covariance v I + b L, L the Laplacian of the graph between honest
parties: an honest party's leakage is the diagonal of its inverse. One eigendecomposition of L for each coalition gives it for all
(v, b). Where the honest parties form several components, each must hide by itself: a party without honest neighbours leaks 1 / v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.protocols.cordp_dme.design import least_error
from quietmean.protocols.cordp_dme.pairs import place_pairs
from quietmean.randomness import BitStream, Seed

Array = NDArray[np.float64]

# b / v is searched on this grid; among ratios within the tolerance of the best the smallest is taken, since it limits the
# damage of unplanned dropouts.
_RATIOS = np.geomspace(1e-3, 1e5, 161)
_TOLERANCE = 0.01
# Standard deviations are raised by this much over the worst coalition tried.
_MARGIN = 0.02
_LARGEST, _EFFORT = 2000, 24_000
# Connectivity fails where an eigenvalue of the Laplacian besides the first is below this.
_DISCONNECTED = 1e-9


@dataclass(frozen=True, eq=False)
class SparseDesign:
    """``own`` = v and ``pair`` = b as variances per coordinate, with a margin of 2 % in standard deviation.

    ``error``: mean of v + cut b over random responders, ``complete`` its infimum with noise shared in all pairs. ``coalitions``
    of random places were tried (``exhaustive``: all there are); in ``disconnected`` of them the honest parties fell apart.
    ``surrounded``: leakage of a party whose partners collude, as far as ``colluding`` suffices for that, times s.
    """

    own: float
    pair: float
    error: float
    complete: float
    coalitions: int
    exhaustive: bool
    disconnected: int
    surrounded: float

    @property
    def cost(self) -> float:
        """Error relative to the complete graph's infimum; 1 is no cost."""
        return self.error / self.complete


def sparse_design(parties: int, responding: int, colluding: int, unit: float, partners: int) -> SparseDesign:
    """(v, b) of the least error on the regular graph of :func:`place_pairs`, against random coalitions of places.

    ``unit`` is s, the variance of the Gaussian mechanism. A study's public seed, which no party chooses alone, puts the parties
    at random places: parties that agreed to collude before are a random coalition of places. Raises :class:`InputError` for
    graphs too large to be decomposed.
    """
    if parties > _LARGEST:
        raise InputError(f"{parties} parties are too many to design noise on a sparse graph: choose at most {_LARGEST}")
    pairs = place_pairs(parties, partners)
    tried, exhaustive = _coalitions(parties, colluding, partners)
    # Running parties need no calibration: they start without this import.
    from quietmean.privacy.information import one_thread

    with one_thread():
        spectra = [_Spectrum.of(parties, pairs, coalition) for coalition in tried]
    leaking = np.array([[spectrum.worst(ratio) for ratio in _RATIOS] for spectrum in spectra]).max(axis=0)
    cut = partners * (parties - responding) / max(parties - 1, 1)
    error = unit * leaking * (1 + _RATIOS * cut)
    chosen = int(np.argmax(error <= error.min() * (1 + _TOLERANCE)))
    ratio, margin = float(_RATIOS[chosen]), (1 + _MARGIN) ** 2
    own = unit * float(leaking[chosen]) * margin
    return SparseDesign(
        own=own,
        pair=own * ratio,
        error=own * (1 + ratio * cut),
        complete=least_error(parties, responding, colluding, unit),
        coalitions=len(tried),
        exhaustive=exhaustive,
        disconnected=sum(spectrum.disconnected for spectrum in spectra),
        surrounded=_surrounded(parties, pairs, colluding, ratio) * unit / own,
    )


def sparse_leakage(own: float, pair: float, parties: int, pairs: NDArray[np.int64], coalition: frozenset[PartyId]) -> float:
    """max Lambda_ii over honest parties when all messages are public, for one coalition.

    ``own`` and ``pair`` are variances per coordinate, ``pairs`` has shape (M, 2).
    """
    return _Spectrum.of(parties, pairs, tuple(coalition)).worst(pair / own) / own


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Of the Laplacian between honest parties: eigenvalues (m,), squared eigenvectors (m, m)."""

    eigenvalues: Array
    squares: Array

    @classmethod
    def of(cls, parties: int, pairs: NDArray[np.int64], coalition: tuple[PartyId, ...]) -> _Spectrum:
        honest = np.setdiff1d(np.arange(parties), coalition)
        laplacian = np.zeros((parties, parties))
        inside = pairs[~np.isin(pairs, coalition).any(axis=1)]
        laplacian[inside[:, 0], inside[:, 1]] = laplacian[inside[:, 1], inside[:, 0]] = -1.0
        laplacian -= np.diag(laplacian.sum(axis=0))
        eigenvalues, vectors = np.linalg.eigh(laplacian[np.ix_(honest, honest)])
        return cls(np.maximum(eigenvalues, 0.0), vectors**2)

    @property
    def disconnected(self) -> bool:
        return len(self.eigenvalues) > 1 and bool(self.eigenvalues[1] < _DISCONNECTED * max(1.0, self.eigenvalues[-1]))

    def worst(self, ratio: float) -> float:
        """max_i of the inverse of I + ratio L."""
        return float((self.squares @ (1.0 / (1.0 + ratio * self.eigenvalues))).max())


def _coalitions(parties: int, colluding: int, partners: int) -> tuple[list[tuple[PartyId, ...]], bool]:
    count = int(np.clip(_EFFORT // parties, 20, 400))
    # The graph looks the same from every place: a coalition and its rotations are one.
    if colluding == 0:
        return [()], True
    if math.comb(parties - 1, colluding - 1) <= count:
        return [(0, *others) for others in combinations(range(1, parties), colluding - 1)], True
    stream = BitStream(Seed.public("cordp-dme coalitions", parties, colluding, partners))
    return [tuple(stream.permutation(parties)[:colluding].tolist()) for _ in range(count)], False


def _surrounded(parties: int, pairs: NDArray[np.int64], colluding: int, ratio: float) -> float:
    """Worst leakage, at v = 1, against those who surround place 0."""
    near = pairs[(pairs == 0).any(axis=1)].sum(axis=1)[:colluding].tolist()
    return _Spectrum.of(parties, pairs, tuple(near)).worst(ratio)
