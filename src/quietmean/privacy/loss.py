"""Conversion of a view's mu to the mu and epsilon that an execution costs: the last step of every certificate.

A transcript has Gaussian noise. Where the real noise is Gaussian too, mu of the view is the exact cost. A protocol with
other noise has an :class:`LossConversion` of its own, whose mu is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu

Array = NDArray[np.float64]

EXACT, UPPER_BOUND = "exact", "upper bound"


class LossConversion:
    """Conversion of a certificate's mu to (epsilon, delta).

    Neighbouring relation: replacement at an L2 distance <= the sensitivity.
    ``kind``: what the numbers are; ``definition``: of what; ``notes``: what they assume, one clause each.
    """

    kind: ClassVar[str] = EXACT
    definition: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement of one unit's value"
    notes: tuple[str, ...] = ("Gaussian noise, the same on every coordinate",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        """mu that counts, per honest party; ``view``: mu of the transcript's Gaussian view, both of shape (n_H,)."""
        return view

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        """mu that counts of every party, (n,), whichever ``size`` parties collude; ``view``, (n,), bounds the transcript's."""
        return self.mu(Adversary(), range(len(view)), view, sensitivity)

    def epsilon(self, mu: float, delta: float) -> float:
        """The least epsilon that is shown at ``delta``; rounded up."""
        return epsilon_of_mu(mu, delta)

    def delta(self, mu: float, epsilon: float) -> float:
        """The least delta that is shown at ``epsilon``; rounded up."""
        return delta_of_mu(mu, epsilon)

    def group_epsilon(self, mu: float, times: float, delta: float) -> float:
        """What is shown at ``delta`` if the value may change ``times`` as much, at least once; rounded up."""
        return self.epsilon(times * mu, delta)


GAUSSIAN = LossConversion()
