"""Bounds on mu without any dense matrix: conjugate gradients on the covariance of the view, stopped early but certified.

mu_i^2 = h' S^-1 h, where S is the covariance of the view and h the shift that a unit change of x_i makes. Any estimator lambda
of the adversary is worth (lambda' h)^2 / (lambda' S lambda), a lower bound. Any change u of the unknown noise that undoes the
shift, V u = h, proves the upper bound u' u: take u = V' lambda, and repair what is left of the shift by other noise.

The sparse linear maps of a view, for solvers that only multiply.

Write the rows of a transcript as noise u + (L - I)_U w = -values dx, with the unobserved messages w free. A weight on every
observed row (the adversary's estimator) extends to all rows in just one way that makes the unobserved messages drop out: by
back substitution. So products with the covariance of the view cost as many operations as the transcript has entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Ints, Mask, Matrix
from quietmean.core.bounds import Bound
from quietmean.core.errors import InputError, NumericalError
from quietmean.core.lazy import sparse, sparse_linalg
from quietmean.core.workers import one_thread
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.round_recursion import find_rounds, private_diagonal
from quietmean.privacy.information.solver import information_matrix
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

Sparse: TypeAlias = "sparse.csr_array[np.float64]"

# Free variables of the repair count as noise with this multiple of the typical standard deviation: nearly free, yet regular.
_NEARLY_FREE = 100.0
# What a repaired solution may leave unexplained, relative to what it was given.
_LEFT = 1e-9
_REFINEMENTS = 3


class ViewMap:
    """V, from standard noise that the adversary does not know to the observed messages; V V' is the covariance of the view.

    Each observed message is taken given the earlier observed ones, which changes nothing that can be learnt. Shapes: M rows, O of
    them observed, K noise terms, q columns at once.
    """

    def __init__(self, transcript: Transcript, adversary: Adversary) -> None:
        view = adversary.view(transcript)
        unknown = np.nonzero(~view.noise & (transcript.noise_scale > 0))[0]
        hidden = sparse.csr_array(transcript.dependence @ sparse.diags_array((~view.messages).astype(np.float64)))
        hidden.eliminate_zeros()
        level = _levels(hidden)
        # Rows level by level: each level is then computed from the ones before at once.
        self.order = np.argsort(level, kind="stable")
        self._hidden = sparse.csr_array(hidden[self.order][:, self.order])
        noise = transcript.noise[:, unknown] @ sparse.diags_array(transcript.noise_scale[unknown])
        self.noise = sparse.csr_array(sparse.csr_array(noise)[self.order])
        self._noise_transposed = sparse.csr_array(self.noise.T)
        self._values = sparse.csr_array(transcript.values[self.order])
        self.observed = view.messages[self.order]
        self._levels = _level_maps(self._hidden, np.bincount(level))
        self._internal = _internal(self._hidden, transcript.sender[self.order], ~self.observed)

    def shifts(self, parties: Sequence[int]) -> Matrix:
        """How a unit change of each of these values shifts what is observed: shape (O, q)."""
        return self._forward(self._values[:, list(parties)].toarray())

    def noise_of(self, weights: Matrix) -> Matrix:
        """V' weights: shapes (O, q) -> (K, q)."""
        return np.asarray(self._noise_transposed @ self._backward(weights))

    def observe(self, noise: Matrix) -> Matrix:
        """V noise: shapes (K, q) -> (O, q)."""
        return self._forward(np.asarray(self.noise @ noise))

    def _forward(self, rows: Matrix) -> Matrix:
        for span, used, part, _ in self._levels:
            rows[span] += np.asarray(part @ rows[used])
        return rows[self.observed]

    def _backward(self, weights: Matrix) -> Matrix:
        rows = np.zeros((self.observed.size, weights.shape[1]))
        rows[self.observed] = weights
        for span, used, _, transposed in reversed(self._levels):
            rows[used] += np.asarray(transposed @ rows[span])
        return rows

    def repairer(self) -> Repairer:
        """Changes of noise that move observed messages by given amounts. Raises :class:`NumericalError` if one cannot be."""
        identity = sparse.eye_array(self.observed.size, format="csr")
        free = sparse.csr_array((self._hidden - identity)[:, np.nonzero(self._internal)[0]])
        return Repairer(self.noise, free, self.observed)


class Repairer:
    """A right inverse of V: not the cheapest change of noise, but one that is quick to find, party by party.

    All messages that reach other parties stay as they are; each row's own noise accounts for the rest.
    """

    def __init__(self, noise: Sparse, free: Sparse, observed: Mask) -> None:
        typical = float(np.median(np.abs(noise.data))) if noise.nnz else 1.0
        both = sparse.csr_array(sparse.block_array([[noise, _NEARLY_FREE * typical * free]])) if free.shape[1] else noise
        # Rows that nothing can change are not asked to change.
        self._rows = np.diff(both.indptr) > 0
        self._both, self._noise, self._observed = (
            sparse.csr_array(both[self._rows]),
            sparse.csr_array(noise.T),
            observed,
        )
        self._transposed = sparse.csr_array(self._both.T)
        self._terms = noise.shape[1]
        self._factors = _factorise(sparse.csc_array(self._both @ self._transposed))

    def repair(self, missing: Matrix) -> Matrix:
        """Noise u, shape (K, q), with V u = ``missing``, shape (O, q), up to rounding."""
        right_sides = np.zeros((self._observed.size, missing.shape[1]))
        right_sides[self._observed] = missing
        right_sides = right_sides[self._rows]
        left, change = right_sides, np.zeros((self._both.shape[1], missing.shape[1]))
        for _ in range(_REFINEMENTS):
            change += np.asarray(self._transposed @ self._factors.solve(left))
            left = right_sides - np.asarray(self._both @ change)
        if not np.abs(left).max(initial=0.0) <= _LEFT * max(np.abs(missing).max(initial=0.0), np.finfo(float).tiny):
            raise NumericalError("some observed messages carry no noise that hides them. Use an exact method.")
        result: Matrix = change[: self._terms]
        return result


def _factorise(matrix: sparse.csc_array[np.float64]) -> sparse_linalg.SuperLU[np.float64]:
    try:
        return sparse_linalg.splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError as error:
        raise NumericalError(f"some observed messages carry no noise that hides them ({error}). Use an exact method.") from None


def _levels(hidden: Sparse) -> Ints:
    """The length of the longest chain of unobserved messages that ends in each row."""
    entries = sparse.coo_array(hidden)
    rows, columns = entries.coords
    level = np.zeros(hidden.shape[0], dtype=np.int64)
    while True:
        longer = np.zeros_like(level)
        np.maximum.at(longer, rows, level[columns] + 1)
        if (longer == level).all():
            return level
        level = longer


def _level_maps(hidden: Sparse, sizes: Ints) -> list[tuple[slice, Ints, Sparse, Sparse]]:
    """The map of each level but the first: its rows, the rows that it uses, the map between them and its transpose."""
    ends = np.cumsum(sizes)
    maps = []
    for begin, end in itertools.pairwise(ends):
        part = sparse.csr_array(hidden[begin:end])
        used = np.unique(part.indices).astype(np.int64)
        part = sparse.csr_array(part[:, used])
        maps.append((slice(int(begin), int(end)), used, part, sparse.csr_array(part.T)))
    return maps


def _internal(hidden: Sparse, sender: Ints, unobserved: Mask) -> Mask:
    """Unobserved messages that only their own sender goes on to use."""
    entries = sparse.coo_array(hidden)
    rows, columns = entries.coords
    internal = unobserved.copy()
    internal[columns[sender[rows] != sender[columns]]] = False
    return internal


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
        raise InputError(f"party {min(wrong)} is not an honest party of this execution. Choose an honest one.")
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
