"""How consensus converges: its rate, the best step, the error that quantisation leaves, and quantisers that can follow.

The rate of convergence for many parties, from sparse matrices.

On Psi, z = C a + P C b turns T into theta I + (1 - theta) N with N (a, b) = (b, (I - 2c M^-1 D) a + 2c M^-1 A b), M = I + cD.
So the roots are theta + (1 - theta) nu, where nu^2 M v - 2c nu A v + (cD - I) v = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigs, eigsh

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.graphs import Edges, is_bipartite
from quietmean.protocols.consensus.spec import ConsensusParameters, DirectedEdges, Quantisation
from quietmean.randomness import BitStream, Seed

# Beyond this many parties eigenvalues of the dense companion matrix take minutes: see :mod:`.rate`.
_DENSE = 300
# Steps c that are tried are spaced like this around the best of a coarse grid.
_COARSE, _FINE = np.geomspace(0.01, 3.0, 15), np.geomspace(1 / 1.5, 1.5, 9)


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The linear iteration z+ = T z + ... of a connected graph, with T = theta I + (1-theta)(P - 2c P C (I + cD)^-1 C')."""

    edges: Edges
    parties: int
    theta: float
    c: float

    @classmethod
    def of(cls, parameters: ConsensusParameters) -> Dynamics:
        return cls(parameters.edges, parameters.parties, parameters.theta, parameters.c)

    @cached_property
    def links(self) -> DirectedEdges:
        return DirectedEdges.of(self.edges, self.parties, np.ones((len(self.edges), 2)))

    @cached_property
    def bipartite(self) -> bool:
        return is_bipartite(self.edges, self.parties)

    @property
    def antisymmetric_noise(self) -> bool:
        """Does the part of z that does not touch x (Psi-perp) hold a part that is multiplied by 2 theta - 1 each step?"""
        return len(self.edges) > self.parties - (1 if self.bipartite else 0)

    @cached_property
    def incidence(self) -> Array:
        """C, shape (2m, n): row (i, j) has B_ij at i."""
        matrix = np.zeros((len(self.links), self.parties))
        matrix[np.arange(len(self.links)), self.links.sender] = self.links.sign
        return matrix

    @cached_property
    def swap(self) -> Array:
        """P, shape (2m, 2m): exchanges the two directions of every edge."""
        return np.eye(len(self.links))[self.links.reverse]

    @cached_property
    def read_out(self) -> Array:
        """H = -(I + cD)^-1 C', shape (n, 2m): what an error of z does to x."""
        return -self.incidence.T / (1 + self.c * self.links.degree)[:, None]

    @cached_property
    def psi(self) -> Array:
        """An orthonormal basis of Psi = span(C) + span(P C), shape (2m, dim Psi)."""
        both = np.hstack([self.incidence, self.swap @ self.incidence])
        left, scales, _ = np.linalg.svd(both, full_matrices=False)
        basis: Array = left[:, scales > 1e-9 * scales[0]]
        return basis

    @cached_property
    def transition(self) -> Array:
        """T on Psi, in the coordinates of :attr:`psi`."""
        pushed = 2 * self.c * self.swap @ self.incidence @ self.read_out
        full = self.theta * np.eye(len(self.links)) + (1 - self.theta) * (self.swap + pushed)
        return self.psi.T @ full @ self.psi

    @cached_property
    def rho(self) -> float:
        """The spectral radius of T on Psi: x converges like rho^t. Exact up to rounding, if :attr:`rho_is_exact`.

        Else it is an estimate, by a search for the largest root (:func:`~quietmean.protocols.consensus.analysis.searched_rate`).
        """
        if self.parties <= _DENSE:
            return self._dense_rho()

        degree = self.links.degree
        step = (self.edges, self.parties, self.theta, self.c, self.bipartite)
        return regular_rate(*step) if self.rho_is_exact else searched_rate(degree, *step)

    @property
    def rho_is_exact(self) -> bool:
        """Is ``rho`` exact? It is for up to 300 parties, and where all have the same number of neighbours."""
        return self.parties <= _DENSE or bool((self.links.degree == self.links.degree[0]).all())

    def _dense_rho(self) -> float:
        n = self.parties
        adjacency = np.zeros((n, n))
        adjacency[self.edges[:, 0], self.edges[:, 1]] = adjacency[self.edges[:, 1], self.edges[:, 0]] = 1.0
        degree = np.diag(adjacency.sum(axis=1))
        step = (2 * self.c * (1 - self.theta) / (1 + self.c * adjacency.sum(axis=1)))[:, None]
        now = 2 * self.theta * np.eye(n) + step * adjacency
        before = (2 * self.theta - 1) * np.eye(n) + step * (self.theta * adjacency + (1 - self.theta) * degree)
        companion = np.block([[now, -before], [np.eye(n), np.zeros((n, n))]])
        roots = list(np.linalg.eigvals(companion))
        # These roots belong to the mean itself, and to the mode that a bipartite graph leaves free: neither is an error of x.
        for harmless in [1.0, *([2 * self.theta - 1.0] if self.bipartite else [])]:
            roots.pop(int(np.argmin(np.abs(np.array(roots) - harmless))))
        return float(np.abs(roots).max(initial=0.0))

    def steady_state_mse(self, delta_min: float, broadcast: bool = False) -> float:
        """The mean squared error, over the parties, that quantisation errors uniform on cells of ``delta_min`` leave in x.

        e+ = T e + n with independent errors n of variance delta_min^2 / 12: (delta_min^2 / 12) (1/n) tr(H X H') with
        X = T X T' + I on Psi. Replaces equations (38)-(39) of the paper, which leave out all but the last error.
        """
        from scipy.linalg import solve_discrete_lyapunov

        if broadcast:
            entering = 2 * self.c * (1 - self.theta) * self.psi.T @ self.swap @ self.incidence
            source = entering @ entering.T
        else:
            source = np.eye(self.psi.shape[1])
        spread = solve_discrete_lyapunov(self.transition, source)
        seen = self.read_out @ self.psi
        return float(np.einsum("ij,jk,ik->", seen, spread, seen)) * delta_min**2 / 12 / self.parties

    def worst_error(self, iterations: int) -> Array:
        """Logarithm of the largest |x_i^(t) - mean| over values in [-1, 1]^n, for t = 1 .. ``iterations``, when z^(0) = 0.

        Exact up to rounding, relative to its own size: it may be far below the smallest float.
        """
        pushed = 2 * self.c * (1 - self.theta) * self.swap @ self.incidence / (1 + self.c * self.links.degree)
        goal = np.linalg.solve(np.eye(self.psi.shape[1]) - self.transition, self.psi.T @ pushed)
        seen, error, logarithm = self.read_out @ self.psi, -goal, 0.0
        worst = np.empty(iterations)
        for t in range(iterations):
            size = float(np.abs(error).max())
            if size == 0.0:
                worst[t:] = -np.inf
                break
            error, logarithm = error / size, logarithm + math.log(size)
            with np.errstate(divide="ignore"):
                worst[t] = logarithm + float(np.log(np.abs(seen @ error).sum(axis=1).max()))
            error = self.transition @ error
        return worst


def best_step(edges: Edges, parties: int, theta: float) -> float:
    """The c of the fastest convergence: the best of a fine grid around the best of a coarse one, to 2 digits."""

    def rate(c: float) -> float:
        return Dynamics(edges, parties, theta, float(c)).rho

    coarse = min(_COARSE, key=rate)
    return float(f"{min(coarse * _FINE, key=rate):.2g}")


def slowest_difference(dynamics: Dynamics, broadcast: bool = False) -> float:
    """rho*: the rate at which what is quantised vanishes. The noise takes part unless only x is sent."""
    moving = dynamics.antisymmetric_noise and dynamics.theta > 0 and not broadcast
    return max(dynamics.rho, abs(1 - 2 * dynamics.theta) if moving else 0.0)


def default_gamma(rho_star: float) -> float:
    return max(0.85, 1 - 0.6 * (1 - rho_star))


def default_delta_0(bits: int, sigma_z: float, sigma_s: float) -> float:
    """The first cell: three standard deviations of the first difference, and half as much again, without overload."""
    return 3.0 * math.sqrt(sigma_z**2 + sigma_s**2) * 1.5 / (2.0 ** (bits - 1) - 0.5)


def iterations_to(rate: float, accuracy: float) -> int:
    """How many steps shrink an error by the factor ``accuracy``."""
    return max(1, math.ceil(math.log(accuracy) / math.log(rate))) if rate > 0 else 1


def check_quantisation(parameters: ConsensusParameters, quantisation: Quantisation) -> None:
    """Raises :class:`InputError` for a quantiser whose cells shrink faster than the differences that it encodes."""
    dynamics = Dynamics.of(parameters)
    if parameters.theta == 0 and not parameters.broadcast and not quantisation.two_step and dynamics.antisymmetric_noise:
        raise InputError(
            "theta is 0, and each message is rounded as a difference from the one before. These differences never vanish, so "
            "the rounding would fail in every step. Take two_step, broadcast or theta >= 0.2."
        )
    rate = slowest_difference(dynamics, parameters.broadcast)
    if quantisation.gamma <= rate and quantisation.gamma < 1:
        raise InputError(
            f"gamma is {quantisation.gamma:g} but differences shrink only like {rate:.4f}^t. The quantiser would overload and "
            f"freeze the result at a wrong value. Take gamma >= {default_gamma(rate):.4f}."
        )


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
