"""Many coalitions against one execution: the elimination is done once, each coalition costs one small Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array, hstack

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
# Up to so many messages in a row may build on each other for noise to be kept as a sparse matrix.
_SHALLOW = 3


class CoalitionSolver:
    """Information matrices of one execution for many coalitions. Equal to :func:`information_matrix`, only faster."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._structure: RoundStructure | None = None
        bare, self._variance = without_private_noise(transcript)
        self._eliminated = transcript.messages <= _MESSAGES
        if self._eliminated:
            self._extra = extra_variance(bare, self._variance)
            self._values, self._columns = _columns(bare, np.sqrt(self._extra))
        else:
            self._structure = find_rounds(transcript)

    def information(self, coalition: Collection[PartyId]) -> InformationMatrix:
        adversary = Adversary.collusion(coalition)
        honest = tuple(adversary.honest(self._transcript.parties))
        if not self._eliminated or not honest:
            return self._large(adversary)
        observed = np.nonzero(adversary.view(self._transcript).messages)[0]
        # From the unknown columns, not by taking the known ones away from a total: that would leave rounding of either sign.
        members = np.zeros(self._transcript.parties)
        members[list(coalition)] = 1.0
        known_by = np.concatenate([np.asarray(self._transcript.noise_known @ members), members])
        covariance = _gram(self._columns, observed, known_by == 0)
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


def _columns(bare: Transcript, extra: float) -> tuple[NDArray[np.float64], NDArray[np.float64] | csr_array[np.float64]]:
    """The dense map from values, and that from all noise, which includes ``extra`` noise on the values."""
    direct = csr_array(hstack([bare.values, bare.noise @ diags_array(bare.noise_scale)]))
    every, passed_on = direct, direct
    for _ in range(_SHALLOW):
        passed_on = csr_array(bare.dependence @ passed_on)
        if passed_on.nnz == 0:
            # Messages hardly build on each other, so noise stays sparse: pairs of parties may share a term each.
            values, noise = every[:, : bare.parties], every[:, bare.parties :]
            return values.toarray(), csr_array(hstack([noise, extra * values]))
        every = csr_array(every + passed_on)
    dense_values, dense_noise = bare.eliminated()
    return dense_values, np.hstack([dense_noise, extra * dense_values])


def _gram(
    columns: NDArray[np.float64] | csr_array[np.float64], rows: NDArray[np.int64], unknown: NDArray[np.bool_]
) -> NDArray[np.float64]:
    if isinstance(columns, np.ndarray):
        dense = columns[np.ix_(rows, unknown)]
        covariance: NDArray[np.float64] = dense @ dense.T
        return covariance
    sparse = columns[rows] @ diags_array(unknown.astype(np.float64))
    return np.asarray((sparse @ sparse.T).toarray())


def _information(covariance: NDArray[np.float64], shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(covariance):
        return np.zeros((shifts.shape[1], shifts.shape[1]))
    spread = np.sqrt(np.diag(covariance))
    scaled = covariance / np.outer(spread, spread) + _RIDGE * len(covariance) * np.eye(len(covariance))
    right = shifts / spread[:, None]
    result: NDArray[np.float64] = right.T @ cho_solve(cho_factor(scaled), right)
    return (result + result.T) / 2
