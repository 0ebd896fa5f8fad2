"""The information matrix of a view: a sparse solver, a dense reference solver, singular values, and views without noise.

For a unit change of one honest value, mu^2 is the least sum of squares of the standardised changes u of the unknown noise that,
with unobserved messages free, leave every observed message as it was::

    minimise |u|^2   subject to   A S u + (L - I)_U dm_U = -B dx.

With extra independent noise of variance v on every honest value this always has a solution, and its information matrix
(v I + Lambda^-1)^-1 is well-conditioned; v is then taken away again, eigenvalue by eigenvalue. What only v hid is disclosed.

Where parties pass on mixtures without fresh noise, what is observed is nearly redundant, and the sparse solver, which works with
squares, loses half of the digits. The view's information about values that carry extra noise v is P / v, with P the block for
the values of the projector onto the row space of G, the map from all noise, extra noise included, to what is observed. The
singular values of G separate that space from what rounding added to it, and bound how much rounding may have turned it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Mask, Matrix
from quietmean.core.errors import NumericalError
from quietmean.core.lazy import csgraph, linalg, sparse, sparse_linalg
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.matrix import INVOLVED, InformationMatrix, extra_variance, without_private_noise
from quietmean.privacy.information.round_recursion import RoundStructure, find_rounds, recursive_information
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
        raise NumericalError(f"{transcript.messages} messages are too many for dense matrices. Use the iterative method.")
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
        raise NumericalError("rounding hides what messages tell, as some almost repeat others. Choose noise of more equal size.")
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


# Rounding of a zero, in a combination whose largest weight is 1 and in the share of a value.
_DEPENDENT, _NOTHING = 1e-10, 1e-13
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
    involved = (np.abs(seen) > _NOTHING).any(axis=0)
    disclosed = _span(seen)
    hidden_by_rank = involved & ~(np.abs(disclosed) > INVOLVED).any(axis=0)
    if hidden_by_rank.any():
        disclosed = _span(np.vstack([disclosed, np.eye(size)[hidden_by_rank]]))
    hidden = linalg.null_space(disclosed) if len(disclosed) else np.eye(size)
    release = np.concatenate([np.full(hidden.shape[1], np.inf), np.zeros(len(disclosed))])
    return InformationMatrix(honest, np.hstack([hidden, disclosed.T]), release, exact=not bool(hidden_by_rank.any()))


def _span(rows: Matrix) -> Matrix:
    """An orthonormal basis, (r, n_H), of what rows (R, n_H) span, each as good as the others whatever its size."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    some = largest > _NOTHING
    if not some.any():
        return np.zeros((0, rows.shape[1]))
    _, scales, right = np.linalg.svd(rows[some] / largest[some, None], full_matrices=False)
    basis: Matrix = right[: int((scales > _DEPENDENT * scales[0]).sum())]
    return basis


def _values_in(transcript: Transcript) -> Matrix:
    """How much of each value is in each message, shape (M, n)."""
    if not transcript.messages:
        return np.zeros((0, transcript.parties))
    unit = sparse.csr_array(sparse.eye_array(transcript.messages) - transcript.dependence)
    weights: Matrix = sparse_linalg.spsolve_triangular(unit, transcript.values.toarray(), lower=True, unit_diagonal=True)
    return weights


# Keeps the factorisation regular where rows are redundant; refined away afterwards. Rows and columns are scaled to about 1 first.
_REGULARISATION = 1e-9
_REFINEMENTS = 20
# With fewer honest parties the sparse solver has little to solve, and the recursion over rounds only its overhead.
_MANY = 16
# A faster method whose relative error may be larger than this gives way to the sparse solver, which refines.
_DOUBTFUL = 1e-7
# Largest gap, with values scaled to unit extra noise: beyond it the refined solution is not accepted.
_ACCEPTED = 1e-9
_Solve: TypeAlias = Callable[[Transcript, Adversary, tuple[PartyId, ...], float], tuple[Matrix, float]]
_Factorise: TypeAlias = "Callable[[sparse.csc_array[np.float64]], sparse_linalg.SuperLU[np.float64]]"
# Singular values of the dense view below this share of the largest noise anywhere are what rounding left of zero.
_RANK = 1e-11


def information_matrix(transcript: Transcript, adversary: Adversary, method: str = "auto") -> InformationMatrix:
    """Lambda of one adversary's view about the honest values: see :class:`ViewSolver`, which serves several adversaries."""
    return ViewSolver(transcript, method).information(adversary)


class ViewSolver:
    """Information matrices of one transcript for any adversaries; what they have in common is computed once.

    ``method`` is ``auto`` (round by round where the transcript allows it, else sparse), ``sparse`` (any execution) or ``dense``
    (small ones, and the reference in tests).
    """

    def __init__(self, transcript: Transcript, method: str = "auto") -> None:
        self.transcript = transcript
        self.method = method

    @cached_property
    def has_noise(self) -> bool:
        """Is any of what is sent hidden by anything? Without, what is seen is known, and nothing has to be solved."""
        return bool((self.transcript.noise_scale > 0).any())

    @cached_property
    def structure(self) -> RoundStructure | None:
        """The transcript's steps; None if it has no such structure."""
        return find_rounds(self.transcript)

    @cached_property
    def bare(self) -> tuple[Transcript, float]:
        """The transcript without the private noise on every value, and the variance of that."""
        return without_private_noise(self.transcript)

    def information(self, adversary: Adversary) -> InformationMatrix:
        """Lambda of the adversary's view about the honest values.

        Raises :class:`NumericalError` if no solver reaches the required accuracy and no bound exists, and :class:`InputError` for
        an adversary with a party or a message that does not exist.
        """
        honest = tuple(adversary.honest(self.transcript.parties))
        if not honest:
            return InformationMatrix((), np.zeros((0, 0)), np.zeros(0))
        if not self.has_noise:
            return noiseless_information(self.transcript, adversary)
        if self.method == "dense":
            return _dense(self.transcript, adversary, honest)
        structured = self.by_rounds(adversary) if self.method == "auto" and len(honest) >= _MANY else None
        return self.sparse(adversary) if structured is None else structured

    def by_rounds(self, adversary: Adversary) -> InformationMatrix | None:
        """Solved by the recursion over rounds; None without such a structure, or the recursion is too inaccurate."""
        information = None if self.structure is None else recursive_information(self.structure, adversary)
        return information if information is not None and information.relative_error <= _DOUBTFUL else None

    def sparse(self, adversary: Adversary) -> InformationMatrix:
        """Solve one sparse system for the whole execution, refined; if that fails, by slower solvers, and at last by a bound."""
        for solve in (_quick, direct_information, _stable):
            try:
                information = self._solved_by(adversary, solve)
            except (RuntimeError, NumericalError):
                continue
            if solve is not direct_information or information.relative_error <= _DOUBTFUL:
                return information
        return self._bound(adversary)

    def _solved_by(self, adversary: Adversary, solve: _Solve) -> InformationMatrix:
        honest = tuple(adversary.honest(self.transcript.parties))
        bare, private_variance = self.bare
        extra = extra_variance(bare, private_variance)
        noisy, error = solve(bare, adversary, honest, extra)
        return InformationMatrix.of_noisy_values(honest, noisy, extra, error).with_independent_noise(private_variance)

    def _bound(self, adversary: Adversary) -> InformationMatrix:
        """An upper bound: no view reveals more than the values themselves with the private noise on each of them."""
        honest, (_, private_variance) = tuple(adversary.honest(self.transcript.parties)), self.bare
        if private_variance == 0.0:
            raise NumericalError(
                "the transcript is too ill-conditioned, and values have no noise of their own. Choose noise of more equal size."
            )
        return InformationMatrix(honest, np.eye(len(honest)), np.full(len(honest), private_variance), exact=False)


def _dense(transcript: Transcript, adversary: Adversary, honest: tuple[PartyId, ...]) -> InformationMatrix:
    view = adversary.view(transcript)
    values, noise = transcript.eliminated()
    shifts = values[np.ix_(view.messages, np.array(honest))]
    left, scales, _ = np.linalg.svd(noise[np.ix_(view.messages, ~view.noise)])
    rank = int((scales > _RANK * np.abs(noise).max(initial=0.0)).sum())
    noisy, noiseless = left[:, :rank].T @ shifts, left[:, rank:].T @ shifts
    whitened = noisy / scales[:rank, None]
    disclosed = _row_space(noiseless, 1e-9)
    return InformationMatrix.from_parts(honest, _without(whitened.T @ whitened, disclosed), disclosed)


def _row_space(rows: Matrix, threshold: float) -> Matrix:
    _, scales, right = np.linalg.svd(rows, full_matrices=False)
    return right[scales > threshold]


def _without(matrix: Matrix, disclosed: Matrix) -> Matrix:
    keep = np.eye(len(matrix)) - disclosed.T @ disclosed
    return keep @ matrix @ keep


def _quick(transcript: Transcript, adversary: Adversary, honest: tuple[PartyId, ...], extra: float) -> tuple[Matrix, float]:
    return _solve(transcript, adversary, honest, extra, _quasi_definite)


def _stable(transcript: Transcript, adversary: Adversary, honest: tuple[PartyId, ...], extra: float) -> tuple[Matrix, float]:
    # Rows without noise of their own make tiny pivots: order by stability rather than by symmetry.
    return _solve(transcript, adversary, honest, extra, _pivoted)


def _solve(
    transcript: Transcript, adversary: Adversary, honest: tuple[PartyId, ...], extra: float, factorise: _Factorise
) -> tuple[Matrix, float]:
    """The information about honest values that carry extra noise of variance ``extra``, and its relative error."""
    view = adversary.view(transcript)
    rows = np.nonzero(_ingredients(transcript, view.messages))[0]
    unit = sparse.eye_array(transcript.messages, format="csr") - transcript.dependence
    free = sparse.csr_array(unit[rows][:, rows[~view.messages[rows]]])
    shifts = sparse.csr_array(transcript.values[rows][:, list(honest)])
    unknown = np.nonzero(~view.noise)[0]
    noise = sparse.csr_array(
        sparse.block_array(
            [
                [
                    transcript.noise[rows][:, unknown] @ sparse.diags_array(transcript.noise_scale[unknown]),
                    np.sqrt(extra) * shifts,
                ]
            ]
        )
    )
    # Scale every constraint by its own noise, every free message by its largest coefficient.
    spread = np.sqrt(np.asarray(noise.multiply(noise).sum(axis=1)).ravel())
    row_scale = sparse.diags_array(1.0 / np.where(spread > 0, spread, np.sqrt(extra)))
    noise, free, right = (
        sparse.csr_array(row_scale @ noise),
        sparse.csr_array(row_scale @ free),
        (row_scale @ shifts).toarray(),
    )
    largest = np.asarray(abs(free).max(axis=0).todense()).ravel() if free.shape[1] else np.zeros(0)
    free = sparse.csr_array(free @ sparse.diags_array(1.0 / np.where(largest > 0, largest, 1.0)))
    changes, gap = _refined(noise, free, right * np.sqrt(extra), factorise)
    return changes.T @ changes / extra, gap


def _ingredients(transcript: Transcript, observed: Mask) -> Mask:
    """Which messages are observed or went into an observed one: the others reveal nothing, and rounding must not change that."""
    start = transcript.messages
    marked = sparse.vstack([transcript.dependence, sparse.csr_array(observed[None, :].astype(np.float64))], format="csr")
    graph = sparse.csr_array((marked.data, marked.indices, marked.indptr), shape=(start + 1, start + 1))
    reached = csgraph.breadth_first_order(graph, start, return_predecessors=False)
    ingredients = np.zeros(start + 1, dtype=np.bool_)
    ingredients[reached] = True
    return ingredients[:start]


def _quasi_definite(matrix: sparse.csc_array[np.float64]) -> sparse_linalg.SuperLU[np.float64]:
    return sparse_linalg.splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def _pivoted(matrix: sparse.csc_array[np.float64]) -> sparse_linalg.SuperLU[np.float64]:
    return sparse_linalg.splu(matrix, permc_spec="COLAMD", diag_pivot_thresh=1.0)


def _refined(
    noise: sparse.csr_array[np.float64],
    free: sparse.csr_array[np.float64],
    right: Matrix,
    factorise: _Factorise,
) -> tuple[Matrix, float]:
    """The least u with noise u + free w = right for some w, and its error. Shapes (M, K), (M, U), (M, q) -> (K, q).

    Factorise, then refine until the gap between primal and dual no longer shrinks; the gap bounds the error of u'u. Regularised
    the system is quasi-definite: a symmetric order without pivoting is nearly always stable and keeps the fill small.
    """
    rows, columns = free.shape
    gram = noise @ noise.T + _REGULARISATION * sparse.eye_array(rows)
    corner = -_REGULARISATION * sparse.eye_array(columns)
    matrix = sparse.block_array([[gram, free], [free.T, corner]], format="csc") if columns else gram.tocsc()
    factors = factorise(matrix)
    noise_transposed, free_transposed = sparse.csr_array(noise.T), sparse.csr_array(free.T)
    dual, slack = np.zeros((rows, right.shape[1])), np.zeros((columns, right.shape[1]))
    best, changes = np.inf, np.zeros((noise.shape[1], right.shape[1]))
    upper, lower = right, np.zeros((columns, right.shape[1]))
    for _ in range(_REFINEMENTS):
        step = factors.solve(np.vstack([upper, -lower]))
        dual, slack = dual + step[:rows], slack + step[rows:]
        candidate = np.asarray(noise_transposed @ dual)
        upper, lower = right - noise @ candidate - free @ slack, np.asarray(free_transposed @ dual)
        gap = float(((np.abs(dual) * np.abs(upper)).sum(axis=0) + (np.abs(slack) * np.abs(lower)).sum(axis=0)).max(initial=0.0))
        if not gap < best:
            break
        stalled = gap > 0.5 * best
        best, changes = gap, candidate
        if stalled:
            break
    if not best <= _ACCEPTED:
        raise NumericalError(f"the transcript is too ill-conditioned (accuracy {best:.1g}). Choose noise of more equal size.")
    return changes, best


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
