"""Many coalitions against one execution: the elimination is done once, each coalition costs one small Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.solver import extra_variance, information_matrix, without_private_noise
from quietmean.transcript import Transcript

# Elimination makes matrices dense: beyond this many messages the sparse solver is better.
_MESSAGES = 2500
# Redundant observations make the covariance singular; what is observed lies in its range, so a tiny ridge only bounds rounding.
_RIDGE = 1e-13
_ACCURACY = 1e-11
_DOUBTFUL = 1e-7


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for linear algebra: with many small problems more only wait for each other, the more so on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


class CoalitionSolver:
    """Information matrices of one execution for many coalitions. Equal to :func:`information_matrix`, only faster."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        bare, self._variance = without_private_noise(transcript)
        self._eliminated = transcript.messages <= _MESSAGES
        if self._eliminated:
            self._extra = extra_variance(bare, self._variance)
            values, noise = bare.eliminated()
            # Columns grouped by who knows them, so that a coalition's part can be taken out again.
            self._columns = np.hstack([noise, np.sqrt(self._extra) * values])
            self._known = np.vstack([bare.noise_known.toarray(), np.eye(transcript.parties, dtype=np.bool_)])
            self._values = values
            self._covariance = self._columns @ self._columns.T

    def information(self, coalition: Collection[PartyId]) -> InformationMatrix:
        adversary = Adversary.collusion(coalition)
        honest = tuple(adversary.honest(self._transcript.parties))
        if not self._eliminated or not honest:
            return information_matrix(self._transcript, adversary)
        observed = np.nonzero(adversary.view(self._transcript).messages)[0]
        known = self._columns[np.ix_(observed, self._known[:, list(coalition)].any(axis=1))]
        covariance = self._covariance[np.ix_(observed, observed)] - known @ known.T
        unknown = np.diag(covariance) > 1e-9 * self._extra
        observed, covariance = observed[unknown], covariance[np.ix_(unknown, unknown)]
        noisy = _information(covariance, self._values[np.ix_(observed, np.array(honest))])
        information = InformationMatrix.of_noisy_values(honest, noisy, self._extra, _ACCURACY)
        information = information.with_independent_noise(self._variance)
        if information.relative_error > _DOUBTFUL:
            # Perhaps something is disclosed exactly, which a covariance with a ridge cannot tell.
            return information_matrix(self._transcript, adversary)
        return information


def _information(covariance: NDArray[np.float64], shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(covariance):
        return np.zeros((shifts.shape[1], shifts.shape[1]))
    spread = np.sqrt(np.diag(covariance))
    scaled = covariance / np.outer(spread, spread) + _RIDGE * len(covariance) * np.eye(len(covariance))
    right = shifts / spread[:, None]
    result: NDArray[np.float64] = right.T @ cho_solve(cho_factor(scaled), right)
    return (result + result.T) / 2
