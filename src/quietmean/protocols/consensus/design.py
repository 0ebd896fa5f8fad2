"""Consensus as a differentially private protocol: Gaussian local noise for a target, proven for every coalition of a size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.core.schema import AUTO, parameters_of
from quietmean.protocols.consensus.completion import complete
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.protocols.target import Target

# The part of the information that the noise on the edges does not hide: it increases the variance by this share.
_SLACK = 0.01


Settings = TypeVar("Settings", bound=ConsensusParameters)


def designed(asked: Settings, target: Target) -> tuple[Settings, float, str]:
    """A graph that no ``colluding`` parties can disconnect, enough noise on its edges, and the least local noise.

    Returns complete parameters, the noise variance per coordinate of the mean, and the text of the certificate. Raises
    :class:`InputError` for planned dropouts, and if an option is given that this design computes.

    Let n_H parties be honest. Their values are seen with noise of covariance sigma^2 I + (sigma_z^2 / 2) L_H. The graph of the
    honest is connected, so the least positive eigenvalue of L_H is at least 2 (1 - cos(pi / n_H)) (M. Fiedler, 1973), and

        Lambda_ii <= 1 / (n_H sigma^2) + (1 - 1 / n_H) / (sigma^2 + sigma_z^2 (1 - cos(pi / n_H))).

    The second term is made a hundredth of the first. Holds for every coalition, not for random ones only.
    """
    from quietmean.privacy import mu_of_budget

    if target.dropouts > 0:
        raise InputError(
            f"dropouts of {target.dropouts:g}: consensus is exact only among parties that stay, plan it with dropouts 0 or take "
            "another protocol"
        )
    for name in ("sigma_local", "local_noise", "sigma_z", "edges", "graph", "connectivity", "radius", "graph_seed"):
        if getattr(asked, name) is not parameters_of(type(asked))[name].default:
            raise InputError(f"option {name!r} is what this plan computes: leave it out")
    honest = target.parties - target.colluding
    mu = mu_of_budget(target.epsilon, target.delta) / target.sensitivity
    sigma = round_up(math.sqrt((1 + _SLACK) / honest) / mu)
    gap = 1 - math.cos(math.pi / honest) if honest > 1 else 1.0
    # A thousandth more than needed keeps rounding on the safe side.
    sigma_z = round_up(1.001 * sigma * math.sqrt(max(honest / _SLACK - 1, 0.0) / gap)) if honest > 1 else 0.0
    noisy = replace(asked.filled(theta=0.2, c=AUTO), local_noise="gaussian", sigma_local=sigma, sigma_z=sigma_z)
    found = _on_grid(complete(replace(noisy, graph="harary", connectivity=target.colluding + 1), target.parties), target)
    sigma = found.sigma_local
    refuse_overload_of(asked, found)
    certificate = (
        f"every coalition of {target.colluding} parties: proven, since no {target.colluding} parties disconnect the graph of "
        f"{len(found.edges)} edges; whoever hears all differences included"
    )
    return found, sigma**2 / target.parties + quantisation_error(found), certificate


def _on_grid(found: Settings, target: Target) -> Settings:
    """With discrete noise, and so much more of it as whole numbers need; unchanged where float64 noise is asked for."""
    from quietmean.privacy import mu_of_budget
    from quietmean.protocols.consensus.loss import WholeLossConversion

    grid = found.on_grid(target, [found.sigma_local, *found.deviations[:1, 0].tolist()])
    if not grid:
        return found
    whole = replace(found, **grid)
    conversion = WholeLossConversion(whole, np.ones(len(whole.edges), dtype=np.bool_))
    mu = mu_of_budget(target.epsilon, target.delta)
    # As a bound for every coalition: all edges are rounded along.
    more = math.sqrt((1.0 + conversion.dimension * conversion.most_rounding / mu**2) * conversion.correction) * (1 + 1e-10)
    levels: dict[str, Any] = {
        "sigma_local": round_up(found.sigma_local * more),
        "sigma_z": round_up(float(found.deviations.max(initial=0.0)) * more),
    }
    return replace(whole, **levels)


def refuse_overload_of(asked: ConsensusParameters, found: ConsensusParameters) -> None:
    """Raises :class:`InputError` if a given number of bits would overload. This is for plans; files with it can still be run."""
    from quietmean.protocols.consensus.trial import refuse_overload

    if asked.bits is not None and asked.bits is not AUTO:
        refuse_overload(found, asked.value_sd)


def quantisation_error(parameters: ConsensusParameters) -> float:
    """Mean squared error per coordinate that cells of width delta_min leave in the end."""
    from quietmean.protocols.consensus.analysis import Dynamics

    settings = parameters.quantisation
    if settings is None or settings.delta_min == 0:
        return 0.0
    return Dynamics.of(parameters).steady_state_mse(settings.delta_min, parameters.broadcast)
