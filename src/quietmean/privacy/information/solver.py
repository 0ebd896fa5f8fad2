"""The information matrix of a view, by a sparse solver and by a dense reference solver.

For a unit change of one honest value, mu^2 is the least sum of squares of the standardised changes u of the unknown noise that,
with unobserved messages free, leave every observed message as it was::

    minimise |u|^2   subject to   A S u + (L - I)_U dm_U = -B dx.

With extra independent noise of variance v on every honest value this always has a solution, and its information matrix
(v I + Lambda^-1)^-1 is well-conditioned; v is then taken away again, eigenvalue by eigenvalue. What only v hid is disclosed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Mask, Matrix
from quietmean.core.errors import NumericalError
from quietmean.core.lazy import csgraph, sparse, sparse_linalg
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.information.direct import direct_information
from quietmean.privacy.information.matrix import InformationMatrix, extra_variance, without_private_noise
from quietmean.privacy.information.noiseless import noiseless_information
from quietmean.privacy.information.round_recursion import recursive_information
from quietmean.privacy.information.round_structure import RoundStructure, find_rounds
from quietmean.transcript import Transcript

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
            raise NumericalError("too ill-conditioned a transcript, and no private noise on values that bounds what it tells")
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
        raise NumericalError(f"the information matrix is accurate only to {best:.1g}: too ill-conditioned a transcript")
    return changes, best
