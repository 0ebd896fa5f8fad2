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
from dataclasses import dataclass
from enum import StrEnum

from quietmean.core.errors import InputError

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
    """(v, b) of the least error when ``responding`` of ``parties`` publish, against ``colluding`` of them; ``unit`` is s.

    For all parties responding the best error is an infimum: the design is ``excess`` above it (0.8 % needs a variance of
    about 100 s without colluders) and records that. With c >= t - 1 local DP is the optimum: b = 0. Raises
    :class:`InputError` for impossible numbers of parties, and if ``unit`` or ``excess`` is out of range.
    """
    n, t, c = parties, responding, colluding
    _check(n, t, c)
    if not (math.isfinite(unit) and unit > 0 and 0 < excess < 1):
        raise InputError(
            f"a noise variance of {unit:g} with excess {excess:g} is impossible: choose both > 0, the excess below 1"
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
        raise InputError(f"{parties} parties cannot compute anything: at least 1 is needed")
    if not 1 <= responding <= parties:
        raise InputError(f"{responding} of {parties} parties responding is impossible: choose 1..{parties}")
    if not 0 <= colluding < parties:
        raise InputError(f"{colluding} of {parties} parties colluding leaves nobody honest: choose 0..{parties - 1}")
