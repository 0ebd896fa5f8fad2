"""Conversion of a view's mu to the mu and epsilon that an execution costs: the last step of every certificate.

A transcript has Gaussian noise and real numbers. Where those of the protocol are the same, mu of the view is the exact cost; a
program with float64 noise is that only in real arithmetic (:data:`REAL_ARITHMETIC`). With whole numbers and discrete noise on a
public grid, :class:`GridLossConversion` bounds what runs. Other protocols have an :class:`LossConversion` of their own.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key, drawn_nearly
from quietmean.core.bounds import APriori
from quietmean.core.domain import REPLACED
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.charge import Charge
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.privacy.mutual_information import of_noisy_value
from quietmean.randomness.discrete_gaussian import TOTAL_VARIATION as DISCRETE_VARIATION
from quietmean.randomness.laplace_shares import TOTAL_VARIATION as LAPLACE_VARIATION
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

if TYPE_CHECKING:
    from quietmean.privacy.information import InformationMatrix

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
# The relative error of the sums of one share's probabilities, at most; and the scales that they reach to, besides the change.
_SUMMED = 1e-9
_REACH = 60
# So many factors are remembered.
_KEPT = 256


def smoothing(variance: float) -> float:
    """r^2: 8 where that costs less than 2^-20 of the ``variance``, at least min(2, variance / 2); the rest grows with it."""
    return min(SMOOTHING, max(min(_COARSE_SMOOTHING, variance / 2), variance * _FREE))


def dominating_mu(variance: float, sensitivity: float, unknown: int) -> float:
    """mu of a sum in which noise of this ``variance`` from each of ``unknown`` parties hides a change of norm ``sensitivity``.

    All in steps; rounded up. Infinite without noise.
    """
    total = unknown * variance
    return sensitivity / math.sqrt(total - smoothing(total)) * (1 + _SLACK) if total > 0 else math.inf


# A plan asks for few sums often, and of many parties each takes as long as there are parties.
@lru_cache(_KEPT)
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


def laplace_charge(
    scale: float, steps: int, coordinates: int, *, shares: int, unknown: int, drawn: int, sampler: float = LAPLACE_VARIATION
) -> Charge:
    """The charge of a released sum in which each of ``drawn`` parties has a share of discrete Laplace noise of this ``scale``.

    ``shares`` = k of them are that noise, and more are it and independent noise. ``unknown``: how many who looks does not know.
    From k on that hides a change of L1 norm ``steps`` of whole numbers as they are added up. Fewer count as one share (see
    :func:`epsilon_of_share`). ``sampler``: total variation distance of one number drawn; at ``coordinates`` of each party.
    """
    tv = min(1.0, sampler * coordinates * drawn * (1 + _SLACK))
    if unknown >= shares:
        return Charge.of_laplace(steps, scale, tv=tv)
    return replace(Charge.of_mechanism(epsilon_of_share(scale, steps, coordinates, shares)), tv=tv)


@lru_cache(maxsize=64)
def epsilon_of_share(scale: float, steps: int, coordinates: int, shares: int) -> float:
    """Pure epsilon of one of k ``shares`` on whole numbers that change by L1 norm ``steps`` together; rounded up.

    P(X - Y = j), X and Y negative binomial of shape 1/k <= 1, is a mixture of geometric sequences in |j|, so log-convex there. So
    the worst output is one without noise, and the worst change is spread evenly: with p(j) = P(X - Y = j) over c coordinates it
    is c ln(p(0) / p(ceil(steps / c))), c = min(coordinates, steps). About epsilon + ln(k scale): it grows as the grid gets finer.
    """
    changed = min(coordinates, steps)
    each = -(-steps // changed)
    # ln P(X = n), but for what all have in common.
    shape, numbers = 1 / shares, np.arange(math.ceil(_REACH * scale) + each + 1.0)
    logs = special.gammaln(numbers + shape) - special.gammaln(numbers + 1) - numbers / scale
    # What lies beyond is less than the relative error of these sums.
    here, there = (float(special.logsumexp(logs[apart:] + logs[: logs.size - apart])) for apart in (0, each))
    return changed * (here - there) * (1 + _SUMMED) + _SUMMED


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


EXACT, UPPER_BOUND = "exact", "upper bound"
# The advantage of comparing low bits against float64 noise, a column.
FLOAT64_DELTA = 0.06
_LARGEST_EPSILON = 500.0
_STEP = 1e-9


class LossConversion:
    """Conversion of a certificate's mu to (epsilon, delta).

    Neighbouring relation: replacement at an L2 distance <= the sensitivity.
    ``kind``: what the numbers are; ``definition``: of what; ``notes``: what is assumed of numbers, noise and sampler.
    ``beta``, ``tv``: the additive columns of the execution's charge, see :mod:`quietmean.privacy.charge`; ``charge_notes``: what
    the charge counts and what not, one clause each. ``tv`` is the distance of the program from the mechanism that mu describes,
    over all its draws: (1 + e^epsilon) times that is part of every delta. ``coalition``: who colludes, in words, where also some
    who are no parties of the execution do; everybody together then opens everything. ``coordinates``: of a party's value; None
    where no figure asks for it, or it is not known. ``stated``: the charges that a party may have where mu is not all that is
    known of it, as with pure epsilon.
    """

    kind: ClassVar[str] = EXACT
    # Whether the mu that counts depends on that of the view: where it does not, nobody need work out the view of a coalition.
    reads_view: ClassVar[bool] = True
    definition: str = REPLACED
    notes: tuple[Assumption, ...] = (
        Assumption(Key.NUMBERS, "The noise is Gaussian, and the same for each number. The figures are for exact arithmetic."),
        Assumption(Key.SAMPLER, "The program's random draws have exactly the distribution that is stated."),
    )
    beta: float = 0.0
    tv: float = 0.0
    coalition: str | None = None
    coordinates: int | None = None
    stated: tuple[Charge, ...] = ()
    charge_notes: tuple[str, ...] = ("mu in real arithmetic: what floating-point noise gives away besides is in no column",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        """mu that counts, per honest party; ``view``: mu of the transcript's Gaussian view, both of shape (n_H,).

        It is that of a Gaussian mechanism that dominates the real one, and so adds up with other studies. A mu that only has the
        same epsilon at one delta does not.
        """
        return view

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        """mu that counts of every party, (n,), whichever ``size`` parties collude; ``view``, (n,), bounds the transcript's."""
        return self.mu(Adversary(), range(len(view)), view, sensitivity)

    def nats(self, adversary: Adversary, honest: Sequence[PartyId], information: InformationMatrix, prior_sd: float) -> Array:
        """Mutual information of each honest party's value with the view, in nats per coordinate, (n_H,): at most, or exact as
        :attr:`kind` says. Values are independent and normal with standard deviation ``prior_sd``, on the grid if there is one.

        Raises :class:`InputError` where no bound is known.
        """
        if self.kind != EXACT:
            raise InputError(
                "no bound of mutual information is known for what this protocol draws. Leave prior-sd out, or certify a run of "
                "consensus."
            )
        return information.mutual_information(prior_sd)

    def nats_against_any(self, size: int, prior_sd: float) -> float | None:
        """Nats about the worst party, against any ``size`` colluding parties; None where no bound is known."""
        return None

    def promise(self, mu: float, enforced_by: str) -> APriori:
        """What is promised where ``mu`` bounds the view of every coalition in every history, in real numbers."""
        return APriori(float(self.mu_against_any(0, np.array([mu]), 0.0)[0]), enforced_by, self.beta, self.tv)

    def charge(self, mu: float) -> Charge:
        """What a ledger is charged for a party of this ``mu``: as one of :attr:`stated`, or by mu alone."""
        return next((stated for stated in self.stated if stated.mu == mu), Charge(mu, self.beta, self.tv))

    def epsilon(self, mu: float, delta: float) -> float:
        """The least epsilon that is shown at ``delta``; rounded up."""
        if self.stated and mu > 0:
            return self.charge(mu).epsilon(delta)
        remaining, epsilon = delta, epsilon_of_mu(mu, delta)
        # A larger epsilon costs more of delta: the fixed point from below.
        while math.isfinite(epsilon) and self.delta(mu, epsilon) > delta:
            remaining = min(delta - self._sampled(epsilon), remaining * (1 - _STEP))
            if remaining <= 0:
                return math.inf
            epsilon = epsilon_of_mu(mu, remaining)
        return epsilon

    def delta(self, mu: float, epsilon: float) -> float:
        """The least delta that is shown at ``epsilon``; rounded up."""
        if self.stated and mu > 0:
            return self.charge(mu).delta(epsilon)
        return min(1.0, delta_of_mu(mu, epsilon) + self._sampled(epsilon))

    def _sampled(self, epsilon: float) -> float:
        # Without overflow: beyond this no total variation is small enough.
        return self.tv * (1.0 + math.exp(min(epsilon, _LARGEST_EPSILON)))

    def group_epsilon(self, mu: float, times: float, delta: float) -> float:
        """What is shown at ``delta`` if the value may change ``times`` as much, at least once; rounded up."""
        if self.stated and mu > 0:
            charge, members = self.charge(mu), math.ceil(times)
            if not charge.beta or members == 1:
                return charge.of_group(members).epsilon(delta)
            # A rare event of one change takes of a group's delta by the epsilon that is stated.
            epsilon = members * charge.pure
            return epsilon if charge.of_group(members, epsilon).epsilon(delta) <= epsilon else math.inf
        return self.epsilon(times * mu, delta)


GAUSSIAN = LossConversion()


class RealArithmetic(LossConversion):
    """Gaussian noise in float64: the numbers hold for the same protocol in real numbers."""

    def __init__(self, exposed: bool = False) -> None:
        """``exposed``: single messages are a value plus noise, of which low bits are known to tell two values apart."""
        low_bits = (
            f" The last digits of a number can give a value away, so no delta below {FLOAT64_DELTA:g} per column is claimed."
            if exposed
            else ""
        )
        numbers = (
            "The noise is Gaussian, and the same for each number. The figures are for exact arithmetic: rounding to float64 is "
            "not counted."
        )
        self.notes = (Assumption(Key.NUMBERS, f"{numbers}{low_bits}"), *super().notes[1:])


class WithoutNoise(LossConversion):
    """Nothing is hidden by noise: a party whose value is in what a coalition sees has an infinite epsilon."""

    def __init__(self, reveals: str) -> None:
        """``reveals``: what of whom, one clause."""
        self.notes = (Assumption(Key.NO_NOISE, f"Nothing has noise: {reveals}."),)
        self.charge_notes = ("an infinite mu, for want of noise",)


REAL_ARITHMETIC = RealArithmetic()
EXPOSED_REAL_ARITHMETIC = RealArithmetic(exposed=True)


class LaplaceLossConversion(LossConversion):
    """The loss of one release with a curator's discrete Laplace noise: pure epsilon, against everybody but the curator."""

    kind = UPPER_BOUND

    def __init__(self, charge: Charge, scale: float) -> None:
        """``scale`` of the noise, in the units of the values."""
        self.stated, self.tv = (charge,), charge.tv
        self.charge_notes = (f"pure epsilon with what rounding adds, tv {self.tv:.2g} for the sampler",)
        self.notes = (
            laplace_numbers(f"The curator adds discrete Laplace noise of scale {scale:.6g}", charge),
            drawn_nearly(self.tv),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        # Of a value that is not in the result nothing is seen; a curator that colludes sees all.
        return np.where(np.isinf(view), np.inf, np.where(view > 0, self.stated[0].mu, 0.0))


def laplace_numbers(adds: str, charge: Charge) -> Assumption:
    """What figures with Laplace noise are: who ``adds`` what, and that delta is next to nothing, as ``charge`` has it."""
    tiny = f", with a delta below {charge.delta_below:g}" if charge.delta_below else ""
    return Assumption(Key.NUMBERS, f"{adds}. Epsilon is pure{tiny}, and includes rounding.")


class GridLossConversion(LossConversion):
    """Upper bounds for discrete Gaussian noise on a public grid, from the view of the same protocol in real numbers.

    The bound is a shift of the noise by whole numbers that leaves the view as it was: if the best real shift costs mu^2 a party,
    and d is the number of coordinates, some whole one costs at most (mu^2 + d b^2) v / (v - 8), v the least variance in steps.
    b^2 is a quarter of the squared standardised norms of the whole kernel vectors along which the shift is rounded. Proof:
    docs/proofs/whole-numbers.md.
    """

    kind = UPPER_BOUND

    def __init__(
        self,
        *,
        step: float,
        dimension: int,
        deviations: Sequence[float],
        draws: int,
        rounding: Callable[[Adversary, Sequence[PartyId]], float] | None = None,
        most_rounding: float = 0.0,
    ) -> None:
        """``deviations`` of the noise in use, in the units of ``step``; ``draws``: of how many noise terms of d coordinates.

        ``rounding`` gives b^2, by default 0 for shifts that are whole by themselves; ``most_rounding`` is its largest value over
        all adversaries that see messages as colluders do.
        """
        variances = [(deviation / step) ** 2 for deviation in deviations if deviation]
        self.correction = max((_corrected(variance) for variance in variances), default=1.0)
        self.step, self.dimension = step, dimension
        self._rounding = rounding
        self.most_rounding = most_rounding
        self.tv = TOTAL_VARIATION * draws * dimension
        self.charge_notes = (f"mu with what rounding adds, tv {self.tv:.2g} for the sampler",)
        self.notes = (
            Assumption(
                Key.NUMBERS,
                f"Values and noise (discrete Gaussian) are rounded to multiples of {step:g} before any sum, which the figures "
                "include.",
            ),
            drawn_nearly(self.tv),
        )

    def inflation(self, mu: float, parties: int) -> float:
        """By how much noise must grow for mu to stay a bound with whole numbers, against any coalition, if all finish."""
        rounded = self._rounding(Adversary.collusion(()), range(parties)) if self._rounding else 0.0
        # More noise makes both parts smaller. The rest is rounding.
        return math.sqrt((1.0 + self.dimension * rounded / (mu * mu)) * self.correction) * (1.0 + 1e-10)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return self._widened(view, self._rounding(adversary, honest) if self._rounding else 0.0)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return self._widened(view, self.most_rounding)

    def _widened(self, view: Array, rounded: float) -> Array:
        # A value of which nothing is seen has mu 0: rounding adds nothing.
        seen = view > 0
        widened = np.hypot(view, math.sqrt(self.dimension * rounded))
        return np.multiply(widened, math.sqrt(self.correction), out=np.zeros(view.shape), where=seen)


class LocalNoiseLossConversion(GridLossConversion):
    """The loss where all that a party sends is a function of its noisy value: against any coalition, in any history."""

    def __init__(self, sigma: float, *, step: float, dimension: int, draws: int) -> None:
        super().__init__(step=step, dimension=dimension, deviations=[sigma], draws=draws)
        self._sigma = sigma
        self.notes = (
            *self.notes,
            Assumption(
                Key.HISTORY, "The figure counts each party's own noise only, so it holds for any coalition and any losses."
            ),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        local = sensitivity / self._sigma * math.sqrt(self.correction) if self._sigma else math.inf
        return np.full(len(honest), local)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return self.mu(Adversary(), range(len(view)), view, sensitivity)

    def nats(self, adversary: Adversary, honest: Sequence[PartyId], information: InformationMatrix, prior_sd: float) -> Array:
        # All that is seen of a value is a function of it with its noise, and of what does not depend on it.
        smallest = min(self._sigma, prior_sd) / self.step
        return np.full(len(honest), float(nats_of_whole_numbers(of_noisy_value(prior_sd, self._sigma), smallest**2)))


def _corrected(variance: float) -> float:
    return variance / (variance - SMOOTHING) if variance > SMOOTHING else math.inf
