"""The information matrix of a view without noise: what is seen is known."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Matrix
from quietmean.core.lazy import linalg, sparse, sparse_linalg
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.matrix import INVOLVED, InformationMatrix
from quietmean.transcript import Transcript

# Rounding of a zero, in a combination whose largest weight is 1 and in the share of a value.
_RANK, _ROUNDING = 1e-10, 1e-13
# Entries of the largest dense matrix (400 MB): beyond it, an adversary that sees anything is taken to see every value.
_LARGEST = 50_000_000


def noiseless_information(transcript: Transcript, adversary: Adversary) -> InformationMatrix:
    """All combinations of honest values in what is seen are disclosed, and nothing else is.

    An upper bound where that is more than fits into memory, and where a value is in what is seen with too small a weight to say
    in which combination: then it counts as disclosed itself. Raises :class:`InputError` for an adversary with a party or a
    message that does not exist.
    """
    honest = tuple(adversary.honest(transcript.parties))
    size = len(honest)
    view = adversary.view(transcript).messages
    if transcript.messages * transcript.parties > _LARGEST:
        return InformationMatrix(honest, np.eye(size), np.zeros(size) if view.any() else np.full(size, np.inf), exact=False)
    seen = _values_in(transcript)[np.ix_(view, np.array(honest, dtype=np.int64))]
    involved = (np.abs(seen) > _ROUNDING).any(axis=0)
    disclosed = _row_space(seen)
    hidden_by_rank = involved & ~(np.abs(disclosed) > INVOLVED).any(axis=0)
    if hidden_by_rank.any():
        disclosed = _row_space(np.vstack([disclosed, np.eye(size)[hidden_by_rank]]))
    hidden = linalg.null_space(disclosed) if len(disclosed) else np.eye(size)
    release = np.concatenate([np.full(hidden.shape[1], np.inf), np.zeros(len(disclosed))])
    return InformationMatrix(honest, np.hstack([hidden, disclosed.T]), release, exact=not bool(hidden_by_rank.any()))


def _row_space(rows: Matrix) -> Matrix:
    """An orthonormal basis, (r, n_H), of what rows (R, n_H) span, each as good as the others whatever its size."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    some = largest > _ROUNDING
    if not some.any():
        return np.zeros((0, rows.shape[1]))
    _, scales, right = np.linalg.svd(rows[some] / largest[some, None], full_matrices=False)
    basis: Matrix = right[: int((scales > _RANK * scales[0]).sum())]
    return basis


def _values_in(transcript: Transcript) -> Matrix:
    """How much of each value is in each message, shape (M, n)."""
    if not transcript.messages:
        return np.zeros((0, transcript.parties))
    unit = sparse.csr_array(sparse.eye_array(transcript.messages) - transcript.dependence)
    weights: Matrix = sparse_linalg.spsolve_triangular(unit, transcript.values.toarray(), lower=True, unit_diagonal=True)
    return weights
