"""The rate of convergence for many parties, from sparse matrices.

On Psi, z = C a + P C b turns T into theta I + (1 - theta) N with N (a, b) = (b, (I - 2c M^-1 D) a + 2c M^-1 A b), M = I + cD.
So the roots are theta + (1 - theta) nu, where nu^2 M v - 2c nu A v + (cD - I) v = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigs, eigsh

from quietmean.core.arrays import Array, Ints
from quietmean.graphs.undirected import Edges
from quietmean.randomness import BitStream, Seed

# Largest roots that are looked for, and the size of the space in which they are.
_ROOTS, _SPACE, _RESTARTS = 8, 80, 30
_ACCURACY = 1e-9
_DOUBTFUL = 1e-6
_STARTS = 2
_MEASURED, _MEASURED_ACCURACY = 600, 5e-3


def adjacency(edges: Edges, parties: int) -> csr_array[np.float64]:
    """The adjacency matrix, shape (n, n), of edges (m, 2)."""
    low, high = edges.T
    places = (np.concatenate([low, high]), np.concatenate([high, low]))
    return csr_array(coo_array((np.ones(2 * len(edges)), places), shape=(parties, parties)))


def regular_rate(edges: Edges, parties: int, theta: float, c: float, bipartite: bool) -> float:
    """The exact rate if all degrees d are equal, for edges (m, 2).

    nu^2 (1 + cd) - 2c a nu + (cd - 1) = 0 for each eigenvalue a of A; the outermost a decide. Of complex nu,
    |nu| is the same for all a, and Re nu grows with a; real ones grow with |a|.
    """
    matrix = adjacency(edges, parties)
    degree = float(matrix.sum(axis=1)[0])
    # From just above and below the spectrum, so that eigenvalues that are close to its ends are found as well.
    values = [2, 2 if bipartite else 1]
    outer = [_outermost(matrix, sign, count, degree)[-1] for sign, count in zip((1.0, -1.0), values, strict=True)]
    roots = np.concatenate([np.roots([1 + c * degree, -2 * c * a, c * degree - 1]) for a in outer])
    others = theta + (1 - theta) * roots
    # The end +d belongs to the mean itself, as nu = 1 and nu = (cd - 1) / (cd + 1); of that pair the second is an error.
    rest = theta + (1 - theta) * (c * degree - 1) / (c * degree + 1) * np.array([1.0, -1.0 if bipartite else 1.0])
    return float(max(np.abs(others).max(), np.abs(rest).max()))


def _outermost(matrix: csr_array[np.float64], sign: float, count: int, degree: float) -> Array:
    """The ``count`` largest eigenvalues of ``sign`` A, largest first, times ``sign``."""
    start = _start(matrix.shape[0], 0)
    shift = degree * (1 + 1e-3)
    eigenvalues = eigsh(sign * matrix.tocsc(), k=count, sigma=shift, which="LM", tol=1e-12, v0=start, return_eigenvectors=False)
    ordered: Array = sign * np.sort(eigenvalues)[::-1]
    return ordered


def searched_rate(degree: Ints, edges: Edges, parties: int, theta: float, c: float, bipartite: bool) -> float:
    """An estimate: the largest root that Arnoldi iterations from several starts find, or the rate at which x shrinks in a run.

    ``degree`` has shape (n,), ``edges`` (m, 2). What is found are true roots, but a larger one may be missed, above all at
    theta = 0, where hundreds are of nearly the same size.
    """
    operator = _operator(degree.astype(np.float64), adjacency(edges, parties), theta, c)
    known_roots = [1.0, *([2 * theta - 1.0] if bipartite else [])]
    best = 0.0
    for attempt in range(_STARTS):
        roots = _largest_roots(operator, attempt)
        for root in known_roots:
            near = np.abs(roots - root) < 1e-7
            roots = roots[~near] if near.sum() <= 1 else np.delete(roots, int(np.argmin(np.abs(roots - root))))
        best = max(best, float(np.abs(roots).max(initial=0.0)))
    measured = measured_rate(degree, edges, parties, theta, c)
    return best if best >= measured * (1 - _MEASURED_ACCURACY) else measured


def measured_rate(degree: Ints, edges: Edges, parties: int, theta: float, c: float) -> float:
    """The rate at which x shrinks over some hundred iterations from one start, accurate to some parts in a thousand.

    ``degree`` has shape (n,), ``edges`` (m, 2).
    """
    matrix, share = adjacency(edges, parties), 1 / (1 + c * degree)
    x = np.sin(np.arange(parties, dtype=np.float64) ** 2)
    x -= (x / share).sum() / (1 / share).sum()
    # Equation (31): two earlier x make the next, whatever z^(0) was; here that of z^(0) = 0.
    before, sizes = x, []
    for _ in range(_MEASURED):
        pull = 2 * c * (1 - theta) * share
        now = (2 * theta * x + pull * (matrix @ x)) - (
            (2 * theta - 1) * before + pull * (theta * (matrix @ before) + (1 - theta) * degree * before)
        )
        before, x = x, now
        sizes.append(float(np.linalg.norm(x - before)))
    late = np.array(sizes)
    usable = int(np.nonzero(late > 1e-10 * late[0])[0][-1])
    begin = usable // 2
    # Complex roots make the size oscillate: the slope over a long stretch, fitted, averages that out.
    return float(np.exp(np.polyfit(np.arange(begin, usable + 1), np.log(late[begin : usable + 1]), 1)[0]))


def _operator(degree: Array, matrix: csr_array[np.float64], theta: float, c: float) -> LinearOperator:
    """T in the coordinates (a, b) scaled by M^(1/2)."""
    parties = len(degree)
    half = diags_array(1 / np.sqrt(1 + c * degree))
    mixing, own = csr_array(2 * c * (half @ matrix @ half)), (1 - c * degree) / (1 + c * degree)

    def apply(vector: Array) -> Array:
        first, second = vector.ravel()[:parties], vector.ravel()[parties:]
        moved = theta * second + (1 - theta) * (own * first + mixing @ second)
        return np.concatenate([theta * first + (1 - theta) * second, moved])

    return LinearOperator((2 * parties, 2 * parties), matvec=apply, dtype=np.float64)


def _largest_roots(operator: LinearOperator, attempt: int) -> NDArray[np.complex128]:
    """Roots of large size, confirmed by their residuals: if it breaks down, the solver returns others."""
    size = operator.shape[0]
    eigenpairs: tuple[NDArray[np.inexact[Any]], NDArray[np.inexact[Any]]]
    try:
        eigenpairs = eigs(operator, k=_ROOTS, ncv=_SPACE, which="LM", tol=_ACCURACY, maxiter=_RESTARTS, v0=_start(size, attempt))
    except ArpackNoConvergence as stopped:
        eigenpairs = stopped.eigenvalues, stopped.eigenvectors
    except ArpackError:
        return np.empty(0, dtype=np.complex128)
    good = []
    for root, vector in zip(eigenpairs[0], eigenpairs[1].T, strict=True):
        length = float(np.linalg.norm(vector))
        image = operator.matvec(vector.real) + 1j * operator.matvec(vector.imag)
        if length > 0 and np.linalg.norm(image - root * vector) <= _DOUBTFUL * length:
            good.append(root)
    return np.array(good, dtype=np.complex128)


def _start(size: int, attempt: int) -> Array:
    """Random, since a regular start may lie in a space without the wanted roots; public, so that all parties find the same."""
    return BitStream(Seed.public("consensus rate", attempt)).standard_normal((size,))


# Numbers per iteration of a trial, and the iterations that count as the end.
_NUMBERS, _END = 10_000, 80
_FEWEST, _MOST = 40, 1500
