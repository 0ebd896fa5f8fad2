"""The leakage of one execution for every pair of noise levels, from one eigendecomposition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.matrix import InformationMatrix, without_private_noise
from quietmean.privacy.information.solver import information_matrix
from quietmean.transcript import Transcript


@dataclass(frozen=True, eq=False)
class NoiseLevels:
    """What a view leaks if the noise on each value has standard deviation ``private`` and all other noise is ``factor`` times
    that of the transcript: Lambda = basis diag(1 / (private^2 + factor^2 release)) basis'.

    ``bare`` is the information matrix without private noise; ``squares`` (n_H, n_H) its squared basis.
    """

    bare: InformationMatrix
    squares: Array

    @property
    def honest(self) -> tuple[PartyId, ...]:
        return self.bare.honest

    def information(self, private: float, factor: float) -> InformationMatrix:
        """The information matrix at these levels; ``factor`` is positive."""
        return self.bare.scaled(1.0 / factor**2).with_independent_noise(private**2)

    def mu(self, private: float, factor: float, sensitivity: float) -> Array:
        """mu per honest party, shape (n_H,): O(n_H^2) operations."""
        variance = private**2 + factor**2 * self.bare.release
        if not variance.min(initial=np.inf) > 0.0:
            return self.information(private, factor).mu(sensitivity)
        mu: Array = sensitivity * np.sqrt(self.squares @ (1.0 / variance))
        return mu


def noise_levels(transcript: Transcript, adversary: Adversary) -> NoiseLevels:
    """Everything about the noise levels of an execution; the private noise of ``transcript`` itself does not matter."""
    bare, _ = without_private_noise(transcript)
    information = information_matrix(bare, adversary)
    return NoiseLevels(information, information.basis**2)
