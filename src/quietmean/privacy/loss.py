"""Conversion of a view's mu to the mu and epsilon that an execution costs: the last step of every certificate.

A transcript has Gaussian noise and real numbers. Where those of the protocol are the same, mu of the view is the exact cost; a
program with float64 noise is that only in real arithmetic (:data:`REAL_ARITHMETIC`). With whole numbers and discrete noise on a
public grid, :class:`GridLossConversion` bounds what runs. Other protocols have an :class:`LossConversion` of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.privacy.dominating import SMOOTHING, nats_of_whole_numbers
from quietmean.privacy.mutual_information import of_noisy_value
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

if TYPE_CHECKING:
    from quietmean.privacy.information import InformationMatrix


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
    where no figure asks for it, or it is not known.
    """

    kind: ClassVar[str] = EXACT
    definition: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement of one unit's value"
    notes: tuple[Assumption, ...] = (
        Assumption(Key.NUMBERS, "Gaussian noise, the same on every coordinate, and real numbers."),
        Assumption(Key.SAMPLER, "What is drawn has exactly the distribution that is stated."),
    )
    beta: float = 0.0
    tv: float = 0.0
    coalition: str | None = None
    coordinates: int | None = None
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
                "no bound of mutual information is known for what this protocol draws: leave prior-sd out, or certify a run of "
                "consensus"
            )
        return information.mutual_information(prior_sd)

    def nats_against_any(self, size: int, prior_sd: float) -> float | None:
        """Nats about the worst party, against any ``size`` colluding parties; None where no bound is known."""
        return None

    def promise(self, mu: float, enforced_by: str) -> APriori:
        """What is promised where ``mu`` bounds the view of every coalition in every history, in real numbers."""
        return APriori(float(self.mu_against_any(0, np.array([mu]), 0.0)[0]), enforced_by, self.beta, self.tv)

    def epsilon(self, mu: float, delta: float) -> float:
        """The least epsilon that is shown at ``delta``; rounded up."""
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
        return min(1.0, delta_of_mu(mu, epsilon) + self._sampled(epsilon))

    def _sampled(self, epsilon: float) -> float:
        # Without overflow: beyond this no total variation is small enough.
        return self.tv * (1.0 + math.exp(min(epsilon, _LARGEST_EPSILON)))

    def group_epsilon(self, mu: float, times: float, delta: float) -> float:
        """What is shown at ``delta`` if the value may change ``times`` as much, at least once; rounded up."""
        return self.epsilon(times * mu, delta)


GAUSSIAN = LossConversion()


class RealArithmetic(LossConversion):
    """Gaussian noise in float64: the numbers hold for the same protocol in real numbers."""

    def __init__(self, exposed: bool = False) -> None:
        """``exposed``: single messages are a value plus noise, of which low bits are known to tell two values apart."""
        low_bits = (
            f"; low bits of float64 tell values apart: no delta below {FLOAT64_DELTA:g} a column is claimed" if exposed else ""
        )
        numbers = (
            "Gaussian noise, the same on every coordinate, in real arithmetic: that values and noise are float64 is not counted"
        )
        self.notes = (Assumption(Key.NUMBERS, f"{numbers}{low_bits}."), *super().notes[1:])


class WithoutNoise(LossConversion):
    """Nothing is hidden by noise: a party whose value is in what a coalition sees has an infinite epsilon."""

    def __init__(self, reveals: str) -> None:
        """``reveals``: what of whom, one clause."""
        self.notes = (Assumption(Key.NO_NOISE, f"Nothing has noise: {reveals}."),)
        self.charge_notes = ("an infinite mu, for want of noise",)


REAL_ARITHMETIC = RealArithmetic()
EXPOSED_REAL_ARITHMETIC = RealArithmetic(exposed=True)


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
                f"Values and discrete Gaussian noise are whole multiples of {step:g}, rounded before any sum; "
                "the figures are bounds for them.",
            ),
            Assumption(
                Key.SAMPLER,
                f"All draws together are within {self.tv:.1g} of exact ones in total variation, which every delta counts.",
            ),
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
                Key.HISTORY, "The figure counts each party's own noise only, so it holds for any coalition and any history."
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
