"""What a sum with discrete Gaussian noise of several parties costs: the Gaussian mechanism that dominates it.

Each of m parties adds noise N_Z(0, v) to its whole numbers, and the sum is released; v and everything below are in steps of the
grid. For any two inputs whose sums differ by a whole vector of L2 norm D, and any r^2 < m v, the two releases are, up to factors
e^(+-eta) of probabilities, post-processing of two Gaussians that are

    mu = D / sqrt(m v - r^2)

standard deviations apart. A coordinate adds to eta

    sum_{k=1}^{m-1} 2 artanh x(v k / (k + 1))  -  2 ln(1 - x(r^2)),        x(u) = 2 sum_{i>=1} exp(-2 pi^2 u i^2):

the first for taking the sum of discrete Gaussians for one of variance m v, the second for taking that for a Gaussian of variance
m v - r^2 that is rounded at random. Proof: docs/proofs/whole-numbers.md. Neighbouring relation: that of the two inputs.

With D / sqrt(m v) alone delta would be too small, up to a fifth at one step of noise. Unlike a bound by concentrated differential
privacy this one adds up with other studies, and nothing is lost in a conversion.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from quietmean.core.arrays import Array
from quietmean.privacy.charge import Charge
from quietmean.privacy.conversion import delta_of_mu
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION as DISCRETE_VARIATION

# r^2 where noise is wide: the factors e^eta are then below 1 + 1e-50 for any study.
SMOOTHING = 8.0
# r^2 where it is narrow, of which eta is 3e-17 a coordinate; and the part of the variance that more of it may cost.
_COARSE_SMOOTHING = 2.0
_FREE = 2.0**-20
# Margin for rounding: mu and eta are each computed by a few operations.
_SLACK = 1e-12
# Terms of x(u): the sixth is below exp(-70 u), and u >= 1/8 wherever x is used.
_FREQUENCIES = np.arange(1.0, 8.0) ** 2
# Beyond this x(u) is too large for the bound.
_LARGEST_EXCESS = 0.5
_LARGEST_EXPONENT = 700.0


def smoothing(variance: float) -> float:
    """r^2: 8 where that costs less than 2^-20 of the ``variance``, at least min(2, variance / 2); the rest grows with it."""
    return min(SMOOTHING, max(min(_COARSE_SMOOTHING, variance / 2), variance * _FREE))


def dominating_mu(variance: float, sensitivity: float, unknown: int) -> float:
    """mu of a sum in which noise of this ``variance`` from each of ``unknown`` parties hides a change of norm ``sensitivity``.

    All in steps; rounded up. Infinite without noise.
    """
    total = unknown * variance
    return sensitivity / math.sqrt(total - smoothing(total)) * (1 + _SLACK) if total > 0 else math.inf


def model_factor(variance: float, coordinates: int, drawn: int) -> float:
    """eta of a sum of ``drawn`` parties' noise over all ``coordinates``, and of any part of these parties; rounded up.

    Infinite where noise is so narrow that nothing is bounded.
    """
    if coordinates < 1 or drawn < 1:
        return 0.0
    counts = np.arange(1, drawn)
    merging = _excess(variance * counts / (counts + 1))
    # Of one party alone r^2 is smallest.
    rounding = float(_excess(np.array([smoothing(variance)]))[0])
    if rounding >= _LARGEST_EXCESS or (merging >= _LARGEST_EXCESS).any():
        return math.inf
    return coordinates * (2 * float(np.arctanh(merging).sum()) - 2 * math.log1p(-rounding)) * (1 + _SLACK)


def discrete_charge(
    variance: float,
    sensitivity: float,
    coordinates: int,
    *,
    unknown: int,
    drawn: int,
    beta: float = 0.0,
    sampler: float = DISCRETE_VARIATION,
) -> Charge:
    """The charge of a released sum with noise of ``drawn`` parties, of which that of ``unknown`` ones is not known to who looks.

    ``variance`` of one party's noise in squared steps, L2 ``sensitivity`` in steps of whole numbers as they are added up (what
    rounding adds to it included), ``coordinates`` of the sum. ``beta``: the chance that rounding, or a random graph, exceeds what
    was assumed. ``sampler``: total variation distance of one number drawn. Columns: see :mod:`quietmean.privacy.charge`; factors
    e^eta of probabilities are within tanh(eta / 2) in total variation. Neighbouring relation: the one of ``sensitivity``.
    """
    model = math.tanh(model_factor(variance, coordinates, drawn) / 2) * (1 + _SLACK)
    tv = min(1.0, model + sampler * coordinates * drawn)
    return Charge(dominating_mu(variance, sensitivity, unknown), min(1.0, beta), tv)


def discrete_delta(mu: float, eta: float, epsilon: float, *, beta: float = 0.0, sampled: float = 0.0) -> float:
    """delta at ``epsilon`` of what is ``mu``-GDP up to factors e^(+-``eta``): e^eta delta(mu, epsilon - 2 eta) and the rest.

    Less than by the columns of a charge where eta is large. ``sampled``: the total variation distance of all draws.
    """
    if math.isinf(mu) or eta > _LARGEST_EXPONENT:
        return 1.0
    gaussian = math.exp(eta) * delta_of_mu(mu, max(epsilon - 2 * eta, 0.0))
    return min(1.0, gaussian + beta + sampled * (1 + math.exp(min(epsilon, _LARGEST_EXPONENT))))


def _excess(variances: Array) -> Array:
    """x(u) for each of ``variances``, at least."""
    excess: Array = 2 * np.exp(-2 * math.pi**2 * np.outer(variances, _FREQUENCIES)).sum(axis=1) * (1 + _SLACK)
    return excess


def nats_of_whole_numbers(nats: ArrayLike, least_variance: float) -> Array:
    """A bound of I in nats with discrete Gaussian values and noise on a grid, from the ``nats`` of Gaussian ones.

    ``least_variance``: of noise and values, in squared steps. For a linear view with whole coefficients whose kernel has a short
    basis (docs/proofs/whole-numbers.md): the view follows from that of Gaussians whose variances are smaller by 8 steps
    squared, and so
    1/2 ln(1 + (e^2I - 1) v / (v - 8)). Infinite for variances up to 8. Any shape.
    """
    given = np.asarray(nats, dtype=np.float64)
    if least_variance <= SMOOTHING:
        return np.where(given > 0, np.inf, 0.0)
    return 0.5 * np.log1p(np.expm1(2.0 * given) * (least_variance / (least_variance - SMOOTHING)))
