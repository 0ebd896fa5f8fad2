"""Filling in what a configured consensus leaves open: the graph, the step, the quantiser and the number of iterations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.schema import AUTO, OPEN, given_value, parameters_of
from quietmean.graphs.undirected import Edges
from quietmean.protocols.consensus.spec import ALL, EACH, MOST_BITS, UNQUANTISED, ConsensusParameters, Quantisation
from quietmean.protocols.graph_fields import EDGES_ARE_MADE

# Without quantisation an error shrinks by this much before the result is read.
_ACCURACY = 1e-11

Settings = TypeVar("Settings", bound=ConsensusParameters)


def complete(parameters: Settings, parties: int) -> Settings:
    """Complete parameters for n ``parties``, with no field open. Raises :class:`InputError` for contradictions."""
    edges = parameters.graph_edges(parties)
    theta = given_value(parameters.theta, 0.0)
    completed = replace(
        parameters,
        edges=edges,
        parties=parties,
        theta=theta,
        c=_step(parameters, edges, parties, theta),
        iterations=given_value(parameters.iterations, 1),
        local_noise=given_value(parameters.local_noise, "none"),
        sigma_local=given_value(parameters.sigma_local, 0.0),
        open_edges=EACH,
        **EDGES_ARE_MADE,
        **UNQUANTISED,
    )
    if parameters.bits is not None:
        completed = completed.quantised(_quantisation(parameters, completed))
    elif says_nothing := [name for name, usual in UNQUANTISED.items() if getattr(parameters, name) != usual]:
        raise InputError(f"{says_nothing[0]} is of a quantiser, and bits is missing: give bits too, or leave it out")
    iterations = default_iterations(completed) if parameters.iterations is OPEN else completed.iterations
    return replace(completed, iterations=iterations, **_opening(parameters, iterations))


def _opening(requested: ConsensusParameters, iterations: int) -> dict[str, Any]:
    """Where all edges have to be open none is given up later, unless a patience is named."""
    usual = requested.patience == parameters_of(type(requested))["patience"].default
    patience = iterations + 1 if requested.open_edges == ALL and usual else requested.patience
    return {"open_edges": given_value(requested.open_edges, EACH), "patience": patience}


def _step(parameters: ConsensusParameters, edges: Edges, parties: int, theta: float) -> float:
    if parameters.c is not AUTO:
        return float(given_value(parameters.c, 1.0))
    from quietmean.protocols.consensus.analysis import best_step

    return best_step(edges, parties, theta)


def _quantisation(requested: ConsensusParameters, iteration: ConsensusParameters) -> Quantisation:
    """The requested quantiser, with defaults that follow from the ``iteration``, which is not quantised."""
    from quietmean.protocols.consensus.analysis import (
        Dynamics,
        check_quantisation,
        default_delta_0,
        default_gamma,
        slowest_difference,
    )
    from quietmean.protocols.consensus.trial import enough_bits

    automatic = requested.bits is AUTO
    # The other settings are checked with the most bits; then the number of bits is found.
    bits = MOST_BITS if requested.bits is None or automatic else requested.bits
    if requested.delta_min > 0 and requested.iterations is OPEN:
        raise InputError(
            f"delta_min is {requested.delta_min:g} > 0 and iterations is missing: every message leaks more, so fix their number"
        )
    two_step = given_value(requested.two_step, iteration.theta == 0 and not iteration.broadcast)
    gamma_chosen = requested.gamma is not OPEN
    rate = slowest_difference(Dynamics.of(iteration), iteration.broadcast) if automatic or not gamma_chosen else 0.0
    gamma = requested.gamma if gamma_chosen else default_gamma(rate)
    spread = float(np.sqrt((iteration.deviations**2).mean())) if iteration.deviations.size else 0.0
    delta_0 = given_value(requested.delta_0, max(default_delta_0(bits, spread, requested.value_sd), requested.delta_min))
    chosen = Quantisation(bits, gamma, delta_0, requested.delta_min, two_step, requested.dither_seed, requested.send_overloads)
    if gamma_chosen:
        check_quantisation(iteration, chosen)
    if not automatic:
        return chosen
    if requested.delta_0 is not OPEN:
        raise InputError('delta_0 follows from the bits that "auto" finds: leave it out, or name the bits')
    return enough_bits(iteration, chosen, requested.value_sd, rate)


def default_iterations(parameters: ConsensusParameters) -> int:
    """The iterations in which an error, or the cell of the quantiser, shrinks by a factor of 1e-11.

    Raises :class:`InputError` if the cells do not shrink at all (gamma = 1).
    """
    from quietmean.protocols.consensus.analysis import Dynamics, iterations_to

    settings = parameters.quantisation
    rate = Dynamics.of(parameters).rho if settings is None else settings.gamma
    if rate >= 1:
        raise InputError("gamma is 1 and iterations is missing: nothing ever shrinks, give the number of iterations")
    return iterations_to(rate, _ACCURACY)
