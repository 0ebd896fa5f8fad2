"""The worst coalition of consensus by formula, while every message arrives and so no edge is given up.

A coalition learns s_H + N(0, sigma_local^2 I + b L_H) of the honest parties, with b = sigma_z^2 / 2: what neighbours share hides
as in protocols where pairs share noise.
"""

from __future__ import annotations

import numpy as np

from quietmean.core.bounds import CoalitionBound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner


def worst_coalition(
    parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound | None:
    """For every coalition of ``size``; None without Gaussian noise on the values, and where a message did not arrive."""
    if parameters.local_noise != "gaussian" or not Deliveries.of(parameters, schedule, trace).all_known:
        return None
    return complete_bound(parameters, sensitivity, size)


def complete_bound(parameters: ConsensusParameters, sensitivity: float, size: int) -> CoalitionBound:
    """If every message arrives."""
    own, variance = parameters.sigma_local**2, parameters.deviations**2
    total = variance.sum(axis=1)
    shared = np.divide(variance[:, 0] * variance[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    near: list[list[float]] = [[] for _ in range(parameters.parties)]
    for (one, other), pair in zip(parameters.edges.tolist(), shared.tolist(), strict=True):
        for party in (one, other):
            near[party].append(through_partner(own, pair))
    hidden = np.zeros((parameters.parties, max(map(len, near), default=0)))
    for party, found in enumerate(near):
        hidden[party, : len(found)] = found
    everyone = np.ones(parameters.parties, dtype=np.bool_)
    connected = connectivity(parameters.parties, parameters.edges, everyone)
    least = float(shared.min(initial=np.inf)) if shared.size else 0.0
    information = connected_information(own, least, connected, parameters.parties, size)
    mu = mu_of(sensitivity, star_variance(own, hidden, size), information, everyone)
    return CoalitionBound(mu, "the star of a party's neighbours, or the connectivity of the graph")
