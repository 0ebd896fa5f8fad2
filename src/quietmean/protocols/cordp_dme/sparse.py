"""Noise levels where each party shares noise with a few others only.

With pairwise terms on a graph, the honest messages have covariance v I + b L, L the Laplacian of the graph between honest
parties: an honest party's leakage is the diagonal of its inverse. One eigendecomposition of L for each coalition gives it for all
(v, b). Where the honest parties form several components, each must hide by itself: a party without honest neighbours leaks 1 / v.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.protocols.cordp_dme.design import least_error
from quietmean.protocols.cordp_dme.pairs import place_pairs
from quietmean.protocols.shared_noise import connected_information, connectivity, through_partner

# b / v is searched on this grid; of ratios within the tolerance of the best the smallest is taken, since it limits the
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
    were tried, all there are if ``exhaustive``; in ``disconnected`` of them the honest parties fell apart. Where they are too
    many, none is tried, and the formulas of :mod:`~quietmean.protocols.shared_noise` bound them all.
    """

    own: float
    pair: float
    error: float
    complete: float
    coalitions: int
    exhaustive: bool
    disconnected: int

    @property
    def cost(self) -> float:
        """Error relative to the complete graph's infimum; 1 is not a cost."""
        return self.error / self.complete


def sparse_design(parties: int, responding: int, colluding: int, unit: float, partners: int) -> SparseDesign:
    """(v, b) of the least error on the regular graph of :func:`place_pairs`, against every coalition of places.

    ``unit`` is s, the variance of the Gaussian mechanism. Raises :class:`InputError` for graphs too large to be decomposed.
    """
    if parties > _LARGEST:
        raise InputError(f"{parties} parties are too many to design noise on a sparse graph: choose at most {_LARGEST}")
    pairs = place_pairs(parties, partners)
    tried = _all_coalitions(parties, colluding)
    # Running parties need no calibration: they start without this import.
    from quietmean.core.threads import one_thread

    with one_thread():
        spectra = [_Spectrum.of(parties, pairs, coalition) for coalition in tried or ()]
        formula = None if spectra else worst_information(parties, partners, colluding)
    if formula is None:
        leaking = np.array([[spectrum.worst(ratio) for ratio in _RATIOS] for spectrum in spectra]).max(axis=0)
    else:
        leaking = np.array([formula(1.0, ratio) for ratio in _RATIOS])
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
        coalitions=len(spectra),
        exhaustive=formula is None,
        disconnected=sum(spectrum.disconnected for spectrum in spectra),
    )


def sparse_leakage(own: float, pair: float, parties: int, pairs: Ints, coalition: frozenset[PartyId]) -> float:
    """max Lambda_ii over honest parties when all messages are public, for one coalition.

    ``own`` and ``pair`` are variances per coordinate, ``pairs`` has shape (M, 2).
    """
    return _Spectrum.of(parties, pairs, tuple(coalition)).worst(pair / own) / own


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """The spectrum of the Laplacian between honest parties: eigenvalues (m,), squared eigenvectors (m, m)."""

    eigenvalues: Array
    squares: Array

    @classmethod
    def of(cls, parties: int, pairs: Ints, coalition: tuple[PartyId, ...]) -> _Spectrum:
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


def place_information(own: float, pair: float, parties: int, partners: int, size: int) -> float:
    """Lambda_ii at most against every coalition of ``size`` if all respond: exact where all can be tried, else by formula.

    ``own`` and ``pair`` are variances per coordinate. The places are the same for every study, only who has which one is drawn.
    """
    tried = _all_coalitions(parties, size) if own > 0 and parties <= _LARGEST else None
    formula = worst_information(parties, partners, size)(own, pair)
    if tried is None:
        return formula
    pairs = place_pairs(parties, partners)
    return min(formula, max(_Spectrum.of(parties, pairs, coalition).worst(pair / own) / own for coalition in tried))


def worst_information(parties: int, partners: int, size: int) -> Callable[[float, float], float]:
    """Lambda_ii at most as a function of (v, b), against every coalition of ``size`` on the graph of :func:`place_pairs`."""
    connected = connectivity(parties, place_pairs(parties, partners), np.ones(parties, dtype=np.bool_))

    def information(own: float, pair: float) -> float:
        if own <= 0:
            return math.inf
        star = own + max(partners - size, 0) * through_partner(own, pair)
        return min(1.0 / star, connected_information(own, pair, connected, parties, size))

    return information


def _all_coalitions(parties: int, size: int) -> list[tuple[PartyId, ...]] | None:
    """All coalitions, but for rotations: the graph looks the same from every place. None where they are too many to be tried."""
    if size == 0:
        return [()]
    if math.comb(parties - 1, size - 1) > int(np.clip(_EFFORT // parties, 20, 400)):
        return None
    return [(0, *others) for others in combinations(range(1, parties), size - 1)]
