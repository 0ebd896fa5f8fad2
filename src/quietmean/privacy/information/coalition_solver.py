"""Many coalitions against one execution: the elimination is done once, each coalition costs one small Cholesky factorisation."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.lazy import linalg, sparse
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary, Eavesdropper
from quietmean.privacy.information.coalition_batches import DOUBTFUL, CoalitionBatches, seconds
from quietmean.privacy.information.matrix import InformationMatrix, extra_variance
from quietmean.privacy.information.solver import ViewSolver
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

# Elimination makes matrices dense: beyond this many messages the other solvers are better.
_MESSAGES = 2500
# Redundant observations make the covariance singular; what is observed lies in its range, so a tiny ridge only bounds rounding.
_RIDGE = 1e-13
_ACCURACY = 1e-11
# What two steps with the ridge may leave of a shift, at unit extra noise. Beyond it an observation lies below the ridge.
_LEFT, _PROBES = 1e-13, 4
# What a coalition costs beside its arithmetic, in multiplications.
PER_COALITION = 3e6
# Up to this many messages in a row may build on each other for noise to be kept as a sparse matrix.
_SHALLOW = 3


@dataclass(frozen=True, eq=False)
class _Elimination:
    """All messages in terms of values (M, n) and of noise (M, K), which includes noise of variance ``extra`` on the values."""

    values: Array
    noise: Array | sparse.csr_array[np.float64]
    extra: float


class CoalitionSolver:
    """Information matrices of one execution for many adversaries.

    :meth:`against` takes any adversary, and each costs a solution of its own; :meth:`information` takes coalitions, and gives
    the same, only faster where they are many: the elimination of messages is done once, when it is first needed.
    """

    def __init__(self, transcript: Transcript, method: str = "auto", eavesdropper: Eavesdropper | None = None) -> None:
        """``eavesdropper``: who reads messages, whichever coalition :meth:`information` is about; nobody by default."""
        self.transcript = transcript
        self._eavesdropper = eavesdropper or Eavesdropper()
        self._views = ViewSolver(transcript, method)

    def against(self, adversary: Adversary) -> InformationMatrix:
        """Against one adversary, as by :func:`information_matrix`."""
        return self._views.information(adversary)

    @cached_property
    def _elimination(self) -> _Elimination | None:
        """None where the matrices would be too large."""
        if self.transcript.messages > _MESSAGES:
            return None
        bare, private_variance = self._views.bare
        extra = extra_variance(bare, private_variance)
        return _Elimination(*_columns(bare, np.sqrt(extra)), extra)

    @cached_property
    def _read(self) -> Mask:
        """What the eavesdropper knows, (M,)."""
        return self._eavesdropper.with_corrupt(()).view(self.transcript).messages

    def information(self, coalition: Collection[PartyId]) -> InformationMatrix:
        """Against a coalition, one of many, and the eavesdropper.

        Raises :class:`InputError` and :class:`NumericalError` as :meth:`against` does.
        """
        adversary = self._eavesdropper.with_corrupt(coalition)
        honest = tuple(adversary.honest(self.transcript.parties))
        if not self._views.has_noise or not honest:
            return self._views.information(adversary)
        if self._elimination is None:
            return self._large(adversary)
        values, columns, extra = self._elimination.values, self._elimination.noise, self._elimination.extra
        observed = np.nonzero(self._read | Adversary.collusion(coalition).view(self.transcript).messages)[0]
        # From the unknown columns, not by taking the known ones away from a total: that would leave rounding of either sign.
        members = np.zeros(self.transcript.parties)
        members[list(coalition)] = 1.0
        known_by = np.concatenate([np.asarray(self.transcript.noise_known @ members), members])
        covariance = _gram(columns, observed, known_by == 0)
        unknown = np.diag(covariance) > 1e-9 * extra
        observed, covariance = observed[unknown], covariance[np.ix_(unknown, unknown)]
        noisy, error = _information(covariance, values[np.ix_(observed, np.array(honest))], extra)
        information = InformationMatrix.of_noisy_values(honest, noisy, extra, max(error, _ACCURACY))
        information = information.with_independent_noise(self._views.bare[1])
        # Where it is doubtful, something may be disclosed exactly, which a covariance with a ridge cannot show.
        return information if information.relative_error <= DOUBTFUL else self._views.sparse(adversary)

    @cached_property
    def batches(self) -> CoalitionBatches | None:
        """All coalitions of a size at once, each for a fraction of what :meth:`information` takes; None where it cannot be."""
        bare, variance = self._views.bare
        return CoalitionBatches.of(bare, variance, self._public)

    def seconds(self, size: int, coalitions: int) -> float:
        """About what so many of them take by :attr:`batches`, on one core; infinite where it is not feasible."""
        return seconds(*self._views.bare, self._public, size, coalitions)

    @cached_property
    def _public(self) -> Mask:
        """What is released, and what the eavesdropper knows, (M,)."""
        return self._read | self.transcript.released

    def effort(self, size: int) -> float:
        """What :meth:`information` costs for a usual coalition of ``size``, in multiplications; infinite without an elimination.

        Counted, not measured: it is the same on every machine.
        """
        transcript = self.transcript
        if transcript.messages > _MESSAGES:
            return math.inf
        shared = transcript.message_known[~transcript.released]
        public = transcript.released.sum() + len(self._eavesdropper.observed)
        seen = min(shared.nnz * size / transcript.parties + public, transcript.messages)
        return float(seen**2 * (len(transcript.noise_scale) + transcript.parties + seen) + PER_COALITION)

    def _large(self, adversary: Adversary) -> InformationMatrix:
        structured = self._views.by_rounds(adversary)
        return self._views.sparse(adversary) if structured is None else structured


def _columns(bare: Transcript, extra: float) -> tuple[Array, Array | sparse.csr_array[np.float64]]:
    """The dense map from values, and that from all noise, which includes ``extra`` noise on the values."""
    direct = sparse.csr_array(sparse.hstack([bare.values, bare.noise @ sparse.diags_array(bare.noise_scale)]))
    every, passed_on = direct, direct
    for _ in range(_SHALLOW):
        passed_on = sparse.csr_array(bare.dependence @ passed_on)
        if passed_on.nnz == 0:
            # Messages hardly build on each other, so noise stays sparse: pairs of parties may share a term each.
            values, noise = every[:, : bare.parties], every[:, bare.parties :]
            return values.toarray(), sparse.csr_array(sparse.hstack([noise, extra * values]))
        every = sparse.csr_array(every + passed_on)
    dense_values, dense_noise = bare.eliminated()
    return dense_values, np.hstack([dense_noise, extra * dense_values])


def _gram(columns: Array | sparse.csr_array[np.float64], rows: Ints, unknown: Mask) -> Array:
    if isinstance(columns, np.ndarray):
        dense = columns[np.ix_(rows, unknown)]
        covariance: Array = dense @ dense.T
        return covariance
    seen = columns[rows] @ sparse.diags_array(unknown.astype(np.float64))
    return np.asarray((seen @ seen.T).toarray())


def _information(covariance: Array, shifts: Array, extra: float) -> tuple[Array, float]:
    """The information about values that carry noise of variance ``extra``, and an estimate of its relative error."""
    if not len(covariance):
        return np.zeros((shifts.shape[1], shifts.shape[1])), 0.0
    spread = np.sqrt(np.diag(covariance))
    ridge = _RIDGE * len(covariance)
    factor = linalg.cho_factor(covariance / np.outer(spread, spread) + ridge * np.eye(len(covariance)))
    right = shifts / spread[:, None]
    solution = linalg.cho_solve(factor, right)
    result: Array = right.T @ solution
    # What the ridge took away, to first order; and all of it where an observation is smaller than the ridge.
    lost = extra * ridge * float((solution**2).sum(axis=0).max(initial=0.0))
    if lost > _ACCURACY:
        # Too much to leave to the bound: give the first order back, what the second took is left.
        result += ridge * solution.T @ solution
        lost = extra * ridge**2 * float((solution * linalg.cho_solve(factor, solution)).sum(axis=0).max(initial=0.0))
    left = ridge * linalg.cho_solve(factor, ridge * (solution @ _probes(shifts.shape[1])))
    if np.sqrt(extra) * float(np.abs(left).max()) > _LEFT:
        return result, np.inf
    return (result + result.T) / 2, lost


@cache
def _probes(columns: int) -> Array:
    """Random signs: what is left of any column shows in one of these combinations of all."""
    signs = np.where(BitStream(Seed.public("probes", columns)).uniform(columns * _PROBES) < 0.5, -1.0, 1.0)
    return signs.reshape(columns, _PROBES)
