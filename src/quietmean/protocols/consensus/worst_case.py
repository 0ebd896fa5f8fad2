"""The worst coalition of consensus by formula, while no edge drops out: every message arrives, or all have to be open at first.

A coalition learns s_H + N(0, sigma_local^2 I + b L_H) of the honest parties, with b = sigma_z^2 / 2: what neighbours share hides
as in protocols where pairs share noise.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import half_range
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

_MARGIN = 1e-9


def worst_coalition(
    parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound | None:
    """The worst coalition of ``size``; None without Gaussian noise on the values, and where edges may have dropped out."""
    if parameters.local_noise != "gaussian":
        return None
    if parameters.open_edges == ALL:
        # None drops out, whichever messages arrive.
        return lasting_bound(parameters, sensitivity, size)
    if not Deliveries.of(parameters, schedule, trace).all_known:
        return None
    return complete_bound(parameters, sensitivity, size)


def lasting_bound(parameters: ConsensusParameters, sensitivity: float, size: int) -> CoalitionBound:
    """Bound mu for all executions, with what is certain of the graph that is left, or every coalition where there are few."""
    from quietmean.protocols.consensus.error import hiding_covariance
    from quietmean.protocols.consensus.loss import MOST_TRIED, connected_without

    parties, own = parameters.parties, parameters.sigma_local**2
    pair, hiding = _shared(parameters), (parameters.deviations > 0).all(axis=1)
    if math.comb(parties, size) > MOST_TRIED:
        by_formula, smallest_pair = complete_bound(parameters, sensitivity, size), float(pair[hiding].min(initial=np.inf))
        left = connected_without(size, parameters.edges[hiding], parties)
        information = connected_information(own, smallest_pair, left + size, parties, size) if hiding.any() else np.inf
        return CoalitionBound(np.minimum(by_formula.mu, sensitivity * math.sqrt(information)), by_formula.proof)
    worst = np.zeros(parties)
    for corrupt in itertools.combinations(range(parties), size):
        honest = np.setdiff1d(np.arange(parties), corrupt)
        by_party = np.diag(np.linalg.inv(hiding_covariance(parameters, corrupt)))
        worst[honest] = np.maximum(worst[honest], by_party)
    # A margin for the rounding of linear algebra.
    return CoalitionBound(sensitivity * np.sqrt(worst) * (1 + _MARGIN), "the graph that is left, coalition by coalition")


def promise(parameters: ConsensusParameters, size: int, sensitivity: float) -> APriori:
    """What is known before the start where all edges have to be open: of every execution against ``size`` colluders.

    Who tells anything tells what follows from the noisy value minus z^(0) of all its edges, and from differences of z^(0):
    what leavers and lost messages change is a function of that.
    """
    from quietmean.protocols.consensus.loss import whatever_happens

    if not parameters.step:
        conversion: LossConversion = parameters.grid_loss([], 0)
    else:
        conversion = whatever_happens(parameters)
    mu, nats = math.inf, conversion.nats_against_any(size, half_range(sensitivity))
    if parameters.local_noise == "gaussian":
        view = lasting_bound(parameters, sensitivity, size).mu
        mu = float(conversion.mu_against_any(size, view, sensitivity).max())
    why = "each party's edges: it tells nothing of its value before all of them are open"
    return APriori(mu, why, conversion.beta, conversion.tv, nats=math.inf if nats is None else nats)


def complete_bound(parameters: ConsensusParameters, sensitivity: float, size: int) -> CoalitionBound:
    """The bound if no edge drops out."""
    own, shared = parameters.sigma_local**2, _shared(parameters)
    near: list[list[float]] = [[] for _ in range(parameters.parties)]
    for (low, high), pair in zip(parameters.edges.tolist(), shared.tolist(), strict=True):
        for party in (low, high):
            near[party].append(through_partner(own, pair))
    hidden = np.zeros((parameters.parties, max(map(len, near), default=0)))
    for party, variances in enumerate(near):
        hidden[party, : len(variances)] = variances
    everyone = np.ones(parameters.parties, dtype=np.bool_)
    connected = connectivity(parameters.parties, parameters.edges, everyone)
    smallest_pair = float(shared.min(initial=np.inf)) if shared.size else 0.0
    information = connected_information(own, smallest_pair, connected, parameters.parties, size)
    mu = mu_of(sensitivity, star_variance(own, hidden, size), information, everyone)
    return CoalitionBound(mu, "the star of a party's neighbours, or the connectivity of the graph")


def _shared(parameters: ConsensusParameters) -> Array:
    """The weight of every edge in the Laplacian, (m,): s_i^2 s_j^2 / (s_i^2 + s_j^2) for standard deviations s of z^(0)."""
    variance = parameters.deviations**2
    total = variance.sum(axis=1)
    weight: Array = np.divide(variance[:, 0] * variance[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    return weight
