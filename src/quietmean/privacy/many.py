"""Many coalitions against one execution: the elimination is done once, each coalition costs one small Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.filter import filtered_information
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.rounds import RoundStructure, find_rounds
from quietmean.privacy.scales import extra_variance, without_private_noise
from quietmean.privacy.solver import information_matrix
from quietmean.privacy.threads import one_thread
from quietmean.transcript import Transcript

__all__ = ["CoalitionSolver", "one_thread"]

# Elimination makes matrices dense: beyond this many messages the other solvers are better.
_MESSAGES = 2500
# Redundant observations make the covariance singular; what is observed lies in its range, so a tiny ridge only bounds rounding.
_RIDGE = 1e-13
_ACCURACY = 1e-11
_DOUBTFUL = 1e-7


class CoalitionSolver:
    """Information matrices of one execution for many coalitions. Equal to :func:`information_matrix`, only faster."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._structure: RoundStructure | None = None
        bare, self._variance = without_private_noise(transcript)
        self._eliminated = transcript.messages <= _MESSAGES
        if self._eliminated:
            self._extra = extra_variance(bare, self._variance)
            values, noise = bare.eliminated()
            self._columns = np.hstack([noise, np.sqrt(self._extra) * values])
            self._known = np.vstack([bare.noise_known.toarray(), np.eye(transcript.parties, dtype=np.bool_)])
            self._values = values
        else:
            self._structure = find_rounds(transcript)

    def information(self, coalition: Collection[PartyId]) -> InformationMatrix:
        adversary = Adversary.collusion(coalition)
        honest = tuple(adversary.honest(self._transcript.parties))
        if not self._eliminated or not honest:
            return self._large(adversary)
        observed = np.nonzero(adversary.view(self._transcript).messages)[0]
        # From the unknown columns, not by taking the known ones away from a total: that would leave rounding of either sign.
        noise = self._columns[np.ix_(observed, ~self._known[:, list(coalition)].any(axis=1))]
        covariance = noise @ noise.T
        unknown = np.diag(covariance) > 1e-9 * self._extra
        observed, covariance = observed[unknown], covariance[np.ix_(unknown, unknown)]
        noisy = _information(covariance, self._values[np.ix_(observed, np.array(honest))])
        information = InformationMatrix.of_noisy_values(honest, noisy, self._extra, _ACCURACY)
        information = information.with_independent_noise(self._variance)
        if information.relative_error > _DOUBTFUL:
            # Perhaps something is disclosed exactly, which a covariance with a ridge cannot tell.
            return information_matrix(self._transcript, adversary, "sparse")
        return information

    def _large(self, adversary: Adversary) -> InformationMatrix:
        structured = None if self._structure is None else filtered_information(self._structure, adversary)
        if structured is not None and structured.relative_error <= _DOUBTFUL:
            return structured
        return information_matrix(self._transcript, adversary, "sparse")


def _information(covariance: NDArray[np.float64], shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(covariance):
        return np.zeros((shifts.shape[1], shifts.shape[1]))
    spread = np.sqrt(np.diag(covariance))
    scaled = covariance / np.outer(spread, spread) + _RIDGE * len(covariance) * np.eye(len(covariance))
    right = shifts / spread[:, None]
    result: NDArray[np.float64] = right.T @ cho_solve(cho_factor(scaled), right)
    return (result + result.T) / 2
