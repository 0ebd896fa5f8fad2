"""The information matrix by singular values: for small executions whose sparse system is too ill-conditioned.

Where parties pass on mixtures without fresh noise, what is observed is nearly redundant, and the sparse solver, which works with
squares, loses half of the digits. The view's information about values that carry extra noise v is P / v, with P the block for
the values of the projector onto the row space of G, the map from all noise, extra noise included, to what is observed. The
singular values of G separate that space from what rounding added to it, and bound how much rounding may have turned it.
"""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Matrix
from quietmean.core.errors import NumericalError
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.transcript import Transcript

# Elimination makes matrices dense: beyond this many messages it takes too long.
MOST_MESSAGES = 2500
_EPSILON = float(np.finfo(np.float64).eps)
# Singular values below this many units of rounding are taken for rounding, those above for real; in between it cannot be decided.
_ROUNDING, _REAL = 10.0, 1e6


def direct_information(
    transcript: Transcript, adversary: Adversary, honest: tuple[PartyId, ...], extra: float
) -> tuple[Matrix, float]:
    """The information about honest values that carry extra noise of variance ``extra``, (n_H, n_H), and its relative error.

    Raises :class:`NumericalError` if the transcript is too large, or if rounding hides which messages are redundant.
    """
    if transcript.messages > MOST_MESSAGES:
        raise NumericalError(f"{transcript.messages} messages are too many for dense matrices")
    view = adversary.view(transcript)
    values, noise = transcript.eliminated()
    shifts = np.sqrt(extra) * values[np.ix_(view.messages, np.array(honest))]
    total = np.hstack([noise[np.ix_(view.messages, ~view.noise)], shifts])
    size, magnitude = np.linalg.norm(total, axis=1), _magnitudes(transcript, extra)[view.messages]
    informative = size > 0
    if not informative.any():
        return np.zeros((len(honest), len(honest))), 0.0
    total = total[informative] / size[informative, None]
    _, scales, right = np.linalg.svd(total, full_matrices=False)
    unit = _EPSILON * np.sqrt(sum(total.shape)) * max(float(scales[0]), float((magnitude[informative] / size[informative]).max()))
    rank = int((scales > _ROUNDING * unit).sum())
    if scales[rank - 1] < _REAL * unit:
        raise NumericalError("messages are so nearly redundant that rounding hides what they tell")
    # Rounding of this size turns the space by at most this much (Wedin 1972).
    rounding = max(unit, float(scales[rank]) if rank < scales.size else 0.0)
    block = right[:rank, -len(honest) :]
    return block.T @ block / extra, rounding / float(scales[rank - 1])


def _magnitudes(transcript: Transcript, extra: float) -> Matrix:
    """What each message would weigh if nothing in it cancelled, shape (M,): rounding is relative to that."""
    terms = (
        abs(transcript.noise) @ transcript.noise_scale + np.sqrt(extra) * np.asarray(abs(transcript.values).sum(axis=1)).ravel()
    )
    weights = abs(transcript.dependence)
    magnitude = np.zeros(transcript.messages)
    for message, own in enumerate(terms.tolist()):
        used = slice(weights.indptr[message], weights.indptr[message + 1])
        magnitude[message] = own + float(weights.data[used] @ magnitude[weights.indices[used]])
    return magnitude
