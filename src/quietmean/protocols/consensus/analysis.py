"""How consensus converges: its rate, the best step, the error that quantisation leaves, and quantisers that can follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.graphs.undirected import Edges, is_bipartite
from quietmean.protocols.consensus.spec import ConsensusParameters, DirectedEdges, Quantisation

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

        Else it is an estimate, by a search for the largest root (:func:`~quietmean.protocols.consensus.rate.searched_rate`).
        """
        if self.parties <= _DENSE:
            return self._dense_rho()
        from quietmean.protocols.consensus.rate import regular_rate, searched_rate

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
            "theta is 0 and differences are over one step: a part of them changes sign every step and never vanishes, so the "
            "quantiser would overload for ever; take two_step, broadcast or theta >= 0.2"
        )
    rate = slowest_difference(dynamics, parameters.broadcast)
    if quantisation.gamma <= rate and quantisation.gamma < 1:
        raise InputError(
            f"gamma is {quantisation.gamma:g} but differences shrink only like {rate:.4f}^t: the quantiser would overload and "
            f"freeze the result at a wrong value; take gamma >= {default_gamma(rate):.4f}"
        )
