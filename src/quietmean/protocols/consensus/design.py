"""Consensus as a differentially private protocol: Gaussian local noise for a target, proven for every coalition of a size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.protocols.protocol import Demand, Design

if TYPE_CHECKING:
    from quietmean.protocols.consensus.protocol import Consensus
    from quietmean.protocols.consensus.spec import ConsensusParameters

# The share of the information that the noise on the edges may let through: it costs this much in variance.
_SLACK = 0.01


def design(protocol: Consensus, demand: Demand, options: Mapping[str, Any]) -> Design[ConsensusParameters]:
    """A graph that no ``colluding`` parties can disconnect, enough noise on its edges, and the least local noise.

    Let n_H parties be honest. Their values are seen with noise of covariance sigma^2 I + (sigma_z^2 / 2) L_H. The graph of the
    honest is connected, so the least positive eigenvalue of L_H is at least 2 (1 - cos(pi / n_H)) (M. Fiedler, 1973), and

        Lambda_ii <= 1 / (n_H sigma^2) + (1 - 1 / n_H) / (sigma^2 + sigma_z^2 (1 - cos(pi / n_H))).

    The second term is made a hundredth of the first. Holds for every coalition, not for random ones only.
    """
    from quietmean.privacy import mu_of_budget

    if demand.dropouts > 0:
        raise InputError(
            f"dropouts of {demand.dropouts:g}: consensus is exact only among parties that stay, plan it with dropouts 0 or take "
            "another protocol"
        )
    for name in ("sigma_local", "local_noise", "sigma_z", "edges", "graph", "connectivity", "radius", "graph_seed"):
        if name in options:
            raise InputError(f"option {name!r} is what this plan computes: leave it out")
    honest = demand.parties - demand.colluding
    mu = mu_of_budget(demand.epsilon, demand.delta) / demand.sensitivity
    sigma = round_up(math.sqrt((1 + _SLACK) / honest) / mu)
    gap = 1 - math.cos(math.pi / honest) if honest > 1 else 1.0
    # A thousandth more than needed keeps rounding on the safe side.
    sigma_z = round_up(1.001 * sigma * math.sqrt(max(honest / _SLACK - 1, 0.0) / gap)) if honest > 1 else 0.0
    graph = {"graph": "harary", "connectivity": demand.colluding + 1}
    noise = {"local_noise": "gaussian", "sigma_local": sigma, "sigma_z": sigma_z}
    parameters = protocol.parse({"theta": 0.2, "c": "auto", **options, **graph, **noise}, demand.parties)
    protocol.refuse_overload(parameters, options)
    certificate = (
        f"every coalition of {demand.colluding} parties: proven, since no {demand.colluding} parties disconnect the graph of "
        f"{len(parameters.edges)} edges; whoever hears all differences included"
    )
    return Design(parameters, sigma**2 / demand.parties + quantisation_error(parameters), 0.0, certificate)


def quantisation_error(parameters: ConsensusParameters) -> float:
    """Mean squared error per coordinate that cells of width delta_min leave in the end."""
    from quietmean.protocols.consensus.analysis import Dynamics

    settings = parameters.quantisation
    if settings is None or settings.delta_min == 0:
        return 0.0
    return Dynamics.of(parameters).steady_state_mse(settings.delta_min, parameters.broadcast)
