"""The papers' reading of GOPA: everything published is public, and the graph is that of the honest users who published.

They see x_i + own noise + pair noise along that graph: covariance sigma_star^2 I + sigma_delta^2 L, L its Laplacian. Noise shared
with any other party counts as known. The exact loss of an execution is never larger: noise that was not rolled back hides too,
and a coalition without the aggregator sees the total only.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa.outcome import PeerOutcome
from quietmean.protocols.gopa.spec import GopaParameters

# Eigenvalues of a Laplacian below this share of the largest are zero: one for each connected component.
_CONNECTED = 1e-10


def laplacian(pairs: Ints, members: Collection[PartyId]) -> Array:
    """The Laplacian of the graph of the pairs (M, 2) of ``members``, shape (m, m), in rising order of the members."""
    order = np.array(sorted(members), dtype=np.int64)
    inside = pairs[np.isin(pairs, order).all(axis=1)]
    ends = np.searchsorted(order, inside)
    matrix = np.zeros((order.size, order.size))
    matrix[ends[:, 0], ends[:, 1]] = matrix[ends[:, 1], ends[:, 0]] = -1.0
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


def complete_graph(parties: int) -> Array:
    """Laplacian of the complete graph, shape (n, n)."""
    return parties * np.eye(parties) - np.ones((parties, parties))


def graph_mu(graph: Array, sigma_star: float, sigma_delta: float, sensitivity: float = 1.0) -> Array:
    """mu of each user, shape (m,), under replacement of its value by another at L2 distance ``sensitivity``.

    ``graph``: Laplacian of the pairs, shape (m, m).
    """
    eigenvalues, basis = np.linalg.eigh(graph)
    return sensitivity * np.sqrt(_information(eigenvalues, basis, sigma_star**2, sigma_delta**2))


def pairwise_sigma(graph: Array, sigma_star: float, largest_mu: float, sensitivity: float = 1.0) -> float:
    """The least sigma_delta with which no user of the graph has more than ``largest_mu``. ``graph``: its Laplacian (m, m).

    Raises :class:`InputError` where no pair noise suffices, since the own noise of a connected part does not hide its sum.
    """
    from scipy.optimize import brentq

    eigenvalues, basis = np.linalg.eigh(graph)
    information = (largest_mu / sensitivity) ** 2

    def excess(variance: float) -> float:
        return float(_information(eigenvalues, basis, sigma_star**2, variance).max()) / information - 1.0

    if excess(math.inf) >= 0:
        raise InputError(
            f"with sigma_star = {sigma_star:g} the sum of some connected honest users is not hidden, whatever the pairs share: "
            "raise sigma_star or take more partners"
        )
    if excess(0.0) <= 0:
        return 0.0
    high = sigma_star**2 + 1.0 / information
    while excess(high) > 0:
        high *= 4.0
    return math.sqrt(float(brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14)))


def conservative_mu(execution: Execution, coalition: Collection[PartyId]) -> dict[PartyId, float]:
    """mu of every honest user who published, in the papers' reading of an execution of GOPA.

    Raises :class:`InputError` for an execution of another protocol.
    """
    protocol = _parameters_of(execution)
    published = execution.contributors()
    members = [party for party in np.nonzero(published)[0].tolist() if party not in set(coalition)]
    graph = laplacian(shared_pairs(execution), members)
    mu_of_members = graph_mu(graph, protocol.sigma_star, protocol.sigma_delta, execution.sensitivity) if members else ()
    return {party: float(mu) for party, mu in zip(members, mu_of_members, strict=True)}


def shared_pairs(execution: Execution) -> Ints:
    """The pairs, shape (M, 2), whose noise hides both ends of an execution of GOPA, as far as both published.

    Raises :class:`InputError` for an execution of another protocol.
    """
    protocol = _parameters_of(execution)
    schedule, trace = execution.schedule, execution.trace
    if protocol.aggregator is not None:
        return schedule.pairs
    return schedule.pairs[PeerOutcome.of(protocol.least_partners, schedule, trace).added.all(axis=1)]


def _parameters_of(execution: Execution) -> GopaParameters:
    protocol = execution.protocol
    if not isinstance(protocol, GopaParameters):
        raise InputError(f"protocol {protocol.name} is not gopa, of which this is an account: give an execution of gopa")
    return protocol


def _information(eigenvalues: Array, basis: Array, star: float, delta: float) -> Array:
    """The diagonal of (star I + delta L)^-1, shape (m,)."""
    free = eigenvalues <= _CONNECTED * max(float(eigenvalues.max(initial=0.0)), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(free, 1.0 / star, 1.0 / (star + np.where(free, 0.0, delta * eigenvalues)))
    information: Array = (basis**2) @ precision
    return information
