"""Bounds on mu without any dense matrix: conjugate gradients on the covariance of the view, stopped early but certified.

mu_i^2 = h' S^-1 h, where S is the covariance of the view and h the shift that a unit change of x_i makes. Any estimator lambda
of the adversary is worth (lambda' h)^2 / (lambda' S lambda), a lower bound. Any change u of the unknown noise that undoes the
shift, V u = h, proves the upper bound u' u: take u = V' lambda, and repair what is left of the shift by other noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Matrix
from quietmean.core.bounds import Bound
from quietmean.core.errors import InputError, NumericalError
from quietmean.core.workers import one_thread
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.round_recursion import private_diagonal
from quietmean.privacy.information.round_structure import find_rounds
from quietmean.privacy.information.solver import information_matrix
from quietmean.privacy.information.view_map import Repairer, ViewMap
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

# Parties at a time: enough to use each matrix entry well, few enough for the processor's cache.
_BLOCK = 16
_PROBES = 24
_CHECK_EVERY = 10
_MOST_ITERATIONS = 4000
# Rounding in sums of squares, and in a repair, relative: both far above what was ever seen.
_ROUNDING = 1e-9
# Error estimates of the exact method are widened by this factor.
_ERROR_FACTOR = 10.0


def bound_mu(
    transcript: Transcript,
    adversary: Adversary,
    sensitivity: float,
    parties: Sequence[int] | None = None,
    relative_width: float = 1e-3,
) -> list[Bound]:
    """Bounds on mu of honest ``parties``, in their order, at this L2 ``sensitivity``. The upper ones are what is to be reported.

    For all honest parties (``None``) exactly, up to rounding, where the transcript goes in rounds: O(n^2) numbers stored. For
    a sample by iteration until ``relative_width``, or until that is out of reach: memory grows with the transcript alone. Raises
    :class:`InputError` for a party that is not honest.
    """
    honest = adversary.honest(transcript.parties)
    wrong = set(parties or ()) - set(honest)
    if wrong:
        raise InputError(f"party {min(wrong)} is not an honest party of this execution: bound mu of honest ones")
    if parties is None:
        bounds = _all_by_rounds(transcript, adversary, sensitivity)
        if bounds is not None:
            return bounds
        parties = honest
    try:
        with one_thread():
            return _iterate(transcript, adversary, sensitivity, parties, relative_width)
    except NumericalError:
        return _exactly(transcript, adversary, sensitivity, parties)


def _all_by_rounds(transcript: Transcript, adversary: Adversary, sensitivity: float) -> list[Bound] | None:
    structure = find_rounds(transcript)
    diagonal = None if structure is None else private_diagonal(structure, adversary)
    if structure is None or diagonal is None:
        return None
    information, error = diagonal
    # The error is relative to what the private noise alone would leak.
    slack = _ERROR_FACTOR * error / structure.variance
    return [_bound(max(value - slack, 0.0), value, value + slack, sensitivity) for value in information.tolist()]


def _exactly(transcript: Transcript, adversary: Adversary, sensitivity: float, parties: Sequence[int]) -> list[Bound]:
    information = information_matrix(transcript, adversary)
    index_of = {party: number for number, party in enumerate(information.honest)}
    mu, upper = information.mu(sensitivity), information.mu_upper(sensitivity)
    bounds = [(float(mu[index_of[party]]), float(upper[index_of[party]])) for party in parties]
    if not information.exact:
        return [Bound(0.0, value, top) for value, top in bounds]
    return [Bound.exact(value) if value == top else Bound(2.0 * value - top, value, top) for value, top in bounds]


def _bound(lower: float, estimate: float, upper: float, sensitivity: float) -> Bound:
    low, middle, high = (sensitivity * float(np.sqrt(value)) for value in (lower, estimate, upper))
    return Bound(low, middle, high)


def _iterate(
    transcript: Transcript, adversary: Adversary, sensitivity: float, parties: Sequence[int], width: float
) -> list[Bound]:
    view = ViewMap(transcript, adversary)
    repairer = view.repairer()
    scale = _diagonal(view)
    bounds: list[Bound] = []
    for begin in range(0, len(parties), _BLOCK):
        shifts = view.shifts(parties[begin : begin + _BLOCK])
        lower, upper = _conjugate_gradients(view, repairer, scale, shifts, width)
        for low, high in zip(lower.tolist(), upper.tolist(), strict=True):
            bounds.append(_bound(low, (low + high) / 2, high, sensitivity))
    return bounds


def _diagonal(view: ViewMap) -> Matrix:
    """1 / S_jj, roughly, from random signs: shape (O, 1); 0 where nothing unknown is observed."""
    stream = BitStream(Seed.public("probes"))
    terms = view.noise.shape[1]
    signs = np.where(stream.uniform(terms * _PROBES) < 0.5, -1.0, 1.0).reshape(terms, _PROBES)
    variance = (view.observe(signs) ** 2).mean(axis=1, keepdims=True)
    inverse: Matrix = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0.0)
    return inverse


def _conjugate_gradients(view: ViewMap, repairer: Repairer, scale: Matrix, shifts: Matrix, width: float) -> tuple[Matrix, Matrix]:
    """Lower and upper bounds of h' S^-1 h for each column h of ``shifts``, (O, q)."""
    weights, missing = np.zeros_like(shifts), shifts.copy()
    step = scale * missing
    energy = _dots(missing, step)
    lower, upper = np.zeros(shifts.shape[1]), np.full(shifts.shape[1], np.inf)
    for iteration in range(_MOST_ITERATIONS + 1):
        if iteration % _CHECK_EVERY == 0:
            low, high, missing = _certified(view, repairer, shifts, weights)
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
            # Widths are of mu, half those of its square.
            if (upper - lower <= 1.5 * width * lower + np.finfo(float).tiny).all():
                break
        image = view.observe(view.noise_of(step))
        length = _ratio(energy, _dots(step, image))
        weights += length * step
        missing = missing - length * image
        residual = scale * missing
        previous, energy = energy, _dots(missing, residual)
        step = residual + _ratio(energy, previous) * step
    return lower, upper


def _dots(first: Matrix, second: Matrix) -> Matrix:
    dots: Matrix = np.einsum("ij,ij->j", first, second)
    return dots


def _ratio(numerator: Matrix, denominator: Matrix) -> Matrix:
    """0 where a column has converged to the last digit."""
    ratio: Matrix = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0.0)
    return ratio


def _certified(view: ViewMap, repairer: Repairer, shifts: Matrix, weights: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Bounds that hold whatever ``weights`` is, evaluated afresh, and what is missing of the shifts."""
    noise = view.noise_of(weights)
    missing = shifts - view.observe(noise)
    lower = _ratio(_dots(weights, shifts) ** 2, _dots(noise, noise))
    complete = noise + repairer.repair(missing)
    upper = _dots(complete, complete)
    return lower * (1.0 - _ROUNDING), upper * (1.0 + _ROUNDING), missing
