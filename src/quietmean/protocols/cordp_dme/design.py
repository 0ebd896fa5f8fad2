"""Noise levels of CorDP-DME by formula.

Party i publishes x_i + N_i + sum_j +-S_ij with Var N_i = v and Var S_ij = b per coordinate (each pair's term is added at one end
and subtracted at the other). Of n parties, c collude and reveal the pairwise terms that they know; m = n - c are honest, and
w = v + m b. Then, with s the variance of the Gaussian mechanism at (epsilon, delta, sensitivity),

    privacy, exact:            (1/m) / v + ((m-1)/m) / w = 1 / s,
    error of u responders:     d (v + (n-u) b) / u           (squared L2, unbiased mean of the responders),
    least v + (n-t) b:         s (sqrt(t-c) + sqrt((n-t)(n-c-1)))^2 / (n-c)^2.

v and b are computed directly: from sigma^2 and rho the sum v = sigma^2 (1 + rho (n-1)) cancels catastrophically. Source:
CorDP-DME, Theorems 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.bounds import CoalitionBound
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import Adversary, GridLossConversion, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.cordp_dme.party import CordpDmeParameters, place_pairs
from quietmean.protocols.shared_noise import (
    MaskedMessages,
    connected_information,
    connectivity,
    mu_of,
    star_variance,
    through_partner,
)

# A design for all parties responding has no optimum, only an infimum as the shared noise grows: stop this close to it.
EXCESS = 0.008


class SensitivityConvention(StrEnum):
    """``replacement``: a value anywhere in a ball of radius r becomes any other, L2 distance up to 2 r.

    ``table-ii``: r, the value with which Table II of the CorDP-DME paper was computed; to reproduce that table only, since
    replacement in the ball is then protected less than stated.
    """

    REPLACEMENT = "replacement"
    TABLE_II = "table-ii"


def ball_sensitivity(radius: float, convention: SensitivityConvention = SensitivityConvention.REPLACEMENT) -> float:
    """L2 sensitivity of a value in a ball of radius ``radius``."""
    return 2.0 * radius if convention == SensitivityConvention.REPLACEMENT else radius


@dataclass(frozen=True)
class NoiseDesign:
    """``own`` = v, ``pair`` = b: variances per coordinate. ``excess``: relative distance of the error from its infimum.

    For ``responding`` = t parties of ``parties`` = n and any ``colluding`` = c of them.
    """

    parties: int
    responding: int
    colluding: int
    own: float
    pair: float
    excess: float

    @property
    def variance(self) -> float:
        """sigma^2 = v + (n-1) b: of all noise in one message, per coordinate."""
        return self.own + (self.parties - 1) * self.pair

    @property
    def correlation(self) -> float:
        """rho = -b / sigma^2, between the noise of two messages."""
        return -self.pair / self.variance

    def mse(self, dimension: int, responding: int | None = None) -> float:
        """Squared L2 error of the unbiased mean of u responders, by default those designed for."""
        u = self.responding if responding is None else responding
        return unbiased_mse(self.own, self.pair, self.parties, u, dimension)

    def mse_biased(self, dimension: int, radius: float) -> float:
        """Worst-case squared L2 error of the biased decoder for values in a ball of ``radius``."""
        return biased_mse(self.mse(dimension), radius)


def gaussian_variance(epsilon: float, delta: float, sensitivity: float) -> float:
    """s: the least variance with which one Gaussian release is (epsilon, delta)-DP at this L2 sensitivity; rounded up."""
    # Running parties need no calibration: they start without this import.
    from quietmean.privacy import mu_of_budget

    return (sensitivity / mu_of_budget(epsilon, delta)) ** 2


def optimal_design(parties: int, responding: int, colluding: int, unit: float, excess: float = EXCESS) -> NoiseDesign:
    """The (v, b) of the least error when ``responding`` of ``parties`` publish, against ``colluding`` of them; ``unit`` is s.

    For all parties responding the best error is an infimum: the design is ``excess`` above it (0.8 % needs a variance of
    about 100 s without colluders) and records that. With c >= t - 1 local DP is the optimum: b = 0. Raises
    :class:`InputError` for impossible numbers of parties, and if ``unit`` or ``excess`` is out of range.
    """
    n, t, c = parties, responding, colluding
    _check(n, t, c)
    if not (math.isfinite(unit) and unit > 0 and 0 < excess < 1):
        raise InputError(
            f"a noise variance of {unit:g} with excess {excess:g} is impossible. Choose both > 0, the excess below 1."
        )
    honest = n - c
    if t <= c + 1 or honest == 1:
        return NoiseDesign(n, t, c, unit, 0.0, 0.0)
    if t == n:
        # (1/m)/v is short of 1/s by what w = v + m b still gives away.
        total = unit * (honest - 1) / honest * (1 + excess) / excess
        own = unit / honest * (1 + excess)
        return NoiseDesign(n, t, c, own, (total - own) / honest, excess)
    # Minimise ((t-c) v + (n-t) w) / m under the privacy equation: both are sums of two terms, one for v and one for w.
    from_own, from_total = math.sqrt(t - c), math.sqrt((n - t) * (honest - 1))
    scale = unit * (from_own + from_total) / honest
    own = scale / from_own
    total = scale * (honest - 1) / from_total
    return NoiseDesign(n, t, c, own, max(total - own, 0.0) / honest, 0.0)


def least_error(parties: int, responding: int, colluding: int, unit: float) -> float:
    """inf of v + (n-t) b over all private designs: the error per coordinate, times the number of responders."""
    n, t, c = parties, responding, colluding
    _check(n, t, c)
    if t <= c + 1:
        return unit
    return unit * ((math.sqrt(t - c) + math.sqrt((n - t) * (n - c - 1))) / (n - c)) ** 2


def leakage(own: float, pair: float, parties: int, colluding: int) -> float:
    """Lambda_ii of an honest party: (1/m)/v + ((m-1)/m)/w. All n messages are public, and colluders reveal their shared noise."""
    honest = parties - colluding
    total = own + honest * pair
    if own == 0.0:
        return math.inf
    return (1.0 / own + (honest - 1) / total) / honest


def unbiased_mse(own: float, pair: float, parties: int, responding: int, dimension: int) -> float:
    """d (v + (n-u) b) / u: squared L2 error of the mean of u responders."""
    return dimension * (own + (parties - responding) * pair) / responding


def biased_mse(unbiased: float, radius: float) -> float:
    """r^2 x / (1 + x) with x = unbiased error / r^2: the worst case of the biased decoder over values in a ball."""
    return unbiased / (1.0 + unbiased / radius**2)


def shrinkage(unbiased: float, radius: float) -> float:
    """alpha = 1 / (1 + x): what the biased decoder multiplies the mean with."""
    return 1.0 / (1.0 + unbiased / radius**2)


@dataclass(frozen=True)
class ErrorAtResponders:
    """Squared L2 errors (unbiased) when ``responding`` parties publish."""

    responding: int
    reoptimised: float
    fixed: float
    local: float
    central: float


def responder_curve(
    parties: int, colluding: int, dimension: int, unit: float, fixed: NoiseDesign | None = None
) -> list[ErrorAtResponders]:
    """Error against the number of responders u = 1..n: re-optimised for each of them (as in Figure 1), and by one design.

    ``fixed`` is by default the design for all parties. Local DP: d s / u; central DP on the responders: d s / u^2. ``unit`` is s.
    """
    fixed = fixed or optimal_design(parties, parties, colluding, unit)
    return [
        ErrorAtResponders(
            u,
            optimal_design(parties, u, colluding, unit).mse(dimension),
            fixed.mse(dimension, u),
            dimension * unit / u,
            dimension * unit / u**2,
        )
        for u in range(1, parties + 1)
    ]


def _check(parties: int, responding: int, colluding: int) -> None:
    if parties < 1:
        raise InputError(f"{parties} parties cannot compute anything. Give at least 1.")
    if not 1 <= responding <= parties:
        raise InputError(f"{responding} of {parties} parties responding is impossible. Choose 1..{parties}.")
    if not 0 <= colluding < parties:
        raise InputError(f"{colluding} of {parties} parties colluding leaves nobody honest. Choose 0..{parties - 1}.")


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
    """The (v, b) of the least error on the regular graph of :func:`place_pairs`, against every coalition of places.

    ``unit`` is s, the variance of the Gaussian mechanism. Raises :class:`InputError` for graphs too large to be decomposed.
    """
    if parties > _LARGEST:
        raise InputError(f"{parties} parties are too many to design noise on a sparse graph. Choose at most {_LARGEST}.")
    pairs = place_pairs(parties, partners)
    tried = _all_coalitions(parties, colluding)
    # Running parties need no calibration: they start without this import.
    from quietmean.core.workers import one_thread

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


def worst_coalition(
    parameters: CordpDmeParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """The worst coalition of ``size``; exact without an aggregator where noise is shared in all pairs.

    A party that was online in the round has sent its message, and it counts as seen whether or not it arrived.
    """
    own, pair, sent = parameters.sigma_own**2, parameters.sigma_pair**2, trace.online[1]
    if schedule.all_paired:
        information = all_pairs_information(own, pair, int(sent.sum()), int((~sent).sum()), size)
        return CoalitionBound(mu_of(sensitivity, np.zeros(schedule.parties), information, sent), "formula for noise in all pairs")
    hidden = hidden_by_partners(schedule, np.where(sent, through_partner(own, pair), pair))
    everyone = np.ones(schedule.parties, dtype=np.bool_)
    # Fewer messages disclose less: the bound is that of all parties sending one.
    information = connected_information(
        own, pair, connectivity(schedule.parties, schedule.pairs, everyone), schedule.parties, size
    )
    mu = mu_of(sensitivity, star_variance(own, hidden, size), information, sent)
    return CoalitionBound(mu, "the star of a party's partners, or the connectivity of the graph of partners")


def hidden_by_partners(schedule: Schedule, variance: Array) -> Array:
    """Row i: the ``variance``, (n,), that each partner of party i has, padded with 0."""
    partners = [schedule.partners(party) for party in range(schedule.parties)]
    hidden = np.zeros((schedule.parties, max(map(len, partners), default=0)))
    for party, others in enumerate(partners):
        hidden[party, : len(others)] = variance[list(others)]
    return hidden


def all_pairs_information(own: float, pair: float, sent: int, absent: int, size: int) -> float:
    """Lambda_ii against the worst ``size`` of ``sent`` parties that sent a message and ``absent`` ones that did not.

    An honest absent party hides each message by one more shared term. All coalitions with as many absent members are alike.
    """
    worst = 0.0
    for quiet in range(min(size, absent) + 1):
        alone = own + (absent - quiet) * pair
        honest = max(sent - (size - quiet), 1)
        worst = max(worst, connected_information(alone, pair, float(honest), honest, 0))
    return worst


def grid_bound(parameters: CordpDmeParameters, pairs: Ints, arrived: Mask) -> LossConversion:
    """The bound for whole numbers along the shift that rounds every edge; without a grid that in real arithmetic."""
    own, pair = parameters.sigma_own, parameters.sigma_pair
    messages = MaskedMessages(own, pair, parameters.step, pairs, arrived, parameters.aggregator, parameters.partners is None)
    draws = arrived.size + (len(pairs) if pair else 0)
    return parameters.grid_loss([own, pair], draws, messages.rounding, messages.most_rounding())


def masked_loss(parameters: CordpDmeParameters, schedule: Schedule, arrived: Mask) -> LossConversion:
    """The bound for whole numbers; without a grid that in real arithmetic.

    ``arrived`` (n,): the parties whose message reached the aggregator or was published.
    """
    conversion = grid_bound(parameters, schedule.pairs, arrived)
    if parameters.partners is not None or not isinstance(conversion, GridLossConversion):
        return conversion
    own, pair, everyone = parameters.sigma_own, parameters.sigma_pair, np.ones(schedule.parties, dtype=np.bool_)
    everybody = MaskedMessages(own, pair, parameters.step, schedule.pairs, everyone, None, symmetric=True)
    return _CompleteLossConversion(conversion, everybody)


class _CompleteLossConversion(LossConversion):
    """With noise shared in all pairs: never more than if every message had arrived and was public, of which all views are part.

    Where many are missing, rounding the shift along every edge to them would cost more.
    """

    kind = UPPER_BOUND

    def __init__(self, conversion: GridLossConversion, everybody: MaskedMessages) -> None:
        self._conversion, self._everybody = conversion, everybody
        self.notes, self.tv = conversion.notes, conversion.tv

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        limit = self._limit(self._everybody.arrived.size - len(honest), self._everybody.rounding(adversary, honest), sensitivity)
        return np.minimum(self._conversion.mu(adversary, honest, view, sensitivity), limit)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        limit = self._limit(size, self._everybody.most_rounding(), sensitivity)
        return np.minimum(self._conversion.mu_against_any(size, view, sensitivity), limit)

    def _limit(self, colluding: int, rounded: float, sensitivity: float) -> float:
        own, pair, parties = self._everybody.own, self._everybody.pair, self._everybody.arrived.size
        square = sensitivity**2 * leakage(own**2, pair**2, parties, colluding) + self._conversion.dimension * rounded
        return math.sqrt(square * self._conversion.correction)
