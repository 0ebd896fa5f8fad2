"""Consensus as a differentially private protocol: Gaussian local noise for a target, proven for every coalition of a size.

How many bits a quantiser needs: found by running the protocol on made-up values, since no formula gives the largest input.

In the end a quantiser's input is made of the last quantisation errors alone, in units of the cell always the same; before, of the
noise and the values. A trial sees both. Everything in it comes from public seeds: all parties find the same, and no private
value is needed. What it finds is an estimate, with a margin; overloads are counted in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.bounds import round_up
from quietmean.core.domain import half_range
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.core.readable import count_of
from quietmean.core.schema import AUTO, OPEN, filled, given_value, parameters_of
from quietmean.graphs import Edges
from quietmean.privacy.mutual_information import of_sum, revealed_variance
from quietmean.protocols.consensus.population import follow
from quietmean.protocols.consensus.quantiser import bytes_over_a_link
from quietmean.protocols.consensus.spec import ALL, EACH, MOST_BITS, UNQUANTISED, ConsensusParameters, Deliveries, Quantisation
from quietmean.protocols.fields import EDGES_ARE_MADE
from quietmean.protocols.target import Target
from quietmean.randomness import BitStream, Seed

# Without quantisation an error shrinks by this much before the result is read.
_ACCURACY = 1e-11

Completed = TypeVar("Completed", bound=ConsensusParameters)


def complete(parameters: Completed, parties: int) -> Completed:
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
        raise InputError(f"{says_nothing[0]} is of a quantiser, and bits is missing. Give bits too, or leave it out.")
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

    automatic = requested.bits is AUTO
    # The other settings are checked with the most bits; then the number of bits is found.
    bits = MOST_BITS if requested.bits is None or automatic else requested.bits
    if requested.delta_min > 0 and requested.iterations is OPEN:
        raise InputError(
            f"delta_min is {requested.delta_min:g} > 0 and iterations is missing. Give their number, as every message leaks more."
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
        raise InputError('delta_0 follows from the bits that "auto" finds. Leave it out, or name the bits.')
    return enough_bits(iteration, chosen, requested.value_sd, rate)


def default_iterations(parameters: ConsensusParameters) -> int:
    """The iterations in which an error, or the cell of the quantiser, shrinks by a factor of 1e-11.

    Raises :class:`InputError` if the cells do not shrink at all (gamma = 1).
    """
    from quietmean.protocols.consensus.analysis import Dynamics, iterations_to

    settings = parameters.quantisation
    rate = Dynamics.of(parameters).rho if settings is None else settings.gamma
    if rate >= 1:
        raise InputError("gamma is 1 and iterations is missing: nothing ever shrinks. Give the number of iterations.")
    return iterations_to(rate, _ACCURACY)


# The part of the information that the noise on the edges does not hide: it increases the variance by this share.
_SLACK = 0.01
# The least sigma_z^2 / (2 sigma_s^2), also where the target needs no noise at all.
_LEAST_EXCESS = 0.5
# Where records are protected, what is left of values grows with their number: it counts as if a party had so many.
_MOST_RECORDS = 1e4
# Without a grid a mean counts as exact to this share of the standard deviation of values.
_EXACT = 1e-6


Settings = TypeVar("Settings", bound=ConsensusParameters)


def designed(requested: Settings, target: Target) -> tuple[Settings, float, str]:
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
            f"dropouts of {target.dropouts:g}: consensus is exact only among parties that stay. Plan it with dropouts 0 or take "
            "another protocol."
        )
    for name in ("sigma_local", "local_noise", "sigma_z", "edges", "graph", "connectivity", "radius", "graph_seed"):
        if getattr(requested, name) is not parameters_of(type(requested))[name].default:
            raise InputError(f"option {name!r} is what this plan computes. Leave it out.")
    if target.nats is not None:
        return exact_mean(requested, target)
    honest = target.parties - target.colluding
    mu = mu_of_budget(target.epsilon, target.delta) / target.sensitivity
    sigma = round_up(math.sqrt((1 + _SLACK) / honest) / mu)
    gap = 1 - math.cos(math.pi / honest) if honest > 1 else 1.0
    # A thousandth more than needed keeps rounding on the safe side.
    sigma_z = round_up(1.001 * sigma * math.sqrt(max(honest / _SLACK - 1, 0.0) / gap)) if honest > 1 else 0.0
    started = filled(requested, theta=0.2, c=AUTO, open_edges=ALL)
    noisy = replace(started, local_noise="gaussian", sigma_local=sigma, sigma_z=sigma_z)
    parameters = _on_grid(completed(replace(noisy, graph="harary", connectivity=target.colluding + 1), target), target)
    sigma = parameters.sigma_local
    refuse_overload_of(requested, parameters)
    error = sigma**2 / target.parties + quantisation_error(parameters)
    _require_rest(requested, parameters, target, _SLACK * error)
    certificate = (
        f"every coalition of {count_of(target.colluding, 'party', 'parties')}, also one that hears all differences. "
        f"It is proven, since the graph of {len(parameters.edges)} edges stays connected without them"
    )
    return parameters, error, certificate


def completed(requested: Settings, target: Target) -> Settings:
    """The parameters without an open field; with ``bits`` "auto" not quantised at all where that sends less.

    Cells may only shrink slowly, so a quantised run takes more messages: few bits pay for long vectors.
    """
    quantised = complete(requested, target.parties)
    # So that nothing that a quantiser leaves is larger than is predicted, whatever it is given.
    quantised = replace(quantised, send_overloads=quantised.bits is not None)
    # A smallest cell that was asked for is kept.
    if requested.bits is not AUTO or requested.delta_min > 0:
        return quantised
    plain = complete(requested.quantised(None), target.parties)
    return min(
        (plain, quantised),
        key=lambda parameters: bytes_over_a_link(parameters.quantisation, parameters.iterations, target.dimension),
    )


def exact_mean(requested: Settings, target: Target) -> tuple[Settings, float, str]:
    """The exact mean: noise on the edges only, enough that ``colluding`` parties learn at most ``nats`` of a coordinate.

    No coalition disconnects the graph, so all n_H honest parties are one group, of which the sum is disclosed and nothing else.
    With b = sigma_z^2 / (2 sigma_s^2) the share of a value's variance that is explained is at most
    1 / n_H + (1 - 1 / n_H) / (1 + 2 b (1 - cos(pi / n_H))), as above. Raises :class:`InputError` for less than the sum tells.
    """
    if requested.delta_min > 0:
        raise InputError(
            f"delta_min is {requested.delta_min:g}, which leaves an error in a mean that is to be exact. Leave it out."
        )
    honest, nats, prior = target.parties - target.colluding, target.nats or 0.0, target.prior_sd
    # A thousandth below the target, for what rounding to whole numbers may add.
    share = float(revealed_variance(nats)) * (1 - 1e-3)
    if share * honest <= 1:
        least_nats = of_sum(honest)
        raise InputError(
            (
                f"nats is {nats:g}, but the exact mean of {honest} honest parties already reveals "
                f"{least_nats:.4g} nats of each. Choose a larger nats, more parties or fewer colluding ones."
            )
            if honest > 1
            else (
                f"The exact mean shows {count_of(target.colluding, 'colluding party', 'colluding parties')} "
                "the only other value. Plan for more parties or fewer colluding ones."
            )
        )
    gap = 1 - math.cos(math.pi / honest)
    excess = max((1 - 1 / honest) / (share - 1 / honest) - 1, 0.0) / (2 * gap)
    # A thousandth more than needed keeps rounding on the safe side.
    sigma_z = round_up(1.001 * prior * math.sqrt(2 * max(excess, _LEAST_EXCESS)))
    silent = replace(filled(requested, theta=0.2, c=AUTO, open_edges=ALL), local_noise="none", sigma_local=0.0, sigma_z=sigma_z)
    parameters = completed(replace(silent, graph="harary", connectivity=target.colluding + 1), target)
    # An edge that is given up no longer hides anything: none is.
    parameters = replace(parameters, patience=parameters.iterations + 1)
    parameters = replace(parameters, **parameters.on_grid(target, [sigma_z, prior]))
    refuse_overload_of(requested, parameters)
    _require_rest(requested, parameters, target, (parameters.step or _EXACT * prior) ** 2)
    certificate = (
        f"at most {nats:g} nats a coordinate against every coalition of {count_of(target.colluding, 'party', 'parties')}. "
        f"It is proven, since the graph of {len(parameters.edges)} edges stays connected without them. "
        f"Values are taken as independent and normal, of standard deviation {prior:g} or less, half the range"
    )
    return parameters, 0.0, certificate


def _on_grid(parameters: Settings, target: Target) -> Settings:
    """Parameters with discrete noise, and so much more of it as whole numbers need; unchanged where float64 noise is
    asked for."""
    from quietmean.privacy import mu_of_budget
    from quietmean.protocols.consensus.loss import ConsensusLossConversion

    grid = parameters.on_grid(target, [parameters.sigma_local, *parameters.deviations[:1, 0].tolist()])
    if not grid:
        return parameters
    gridded = replace(parameters, **grid)
    conversion = ConsensusLossConversion(gridded, np.ones(len(gridded.edges), dtype=np.bool_))
    mu = mu_of_budget(target.epsilon, target.delta)
    # As a bound for every coalition: all edges are rounded along.
    more = math.sqrt((1.0 + conversion.dimension * conversion.most_rounding / mu**2) * conversion.correction) * (1 + 1e-10)
    levels: dict[str, Any] = {
        "sigma_local": round_up(parameters.sigma_local * more),
        "sigma_z": round_up(float(parameters.deviations.max(initial=0.0)) * more),
    }
    return replace(gridded, **levels)


def refuse_overload_of(requested: ConsensusParameters, parameters: ConsensusParameters) -> None:
    """Raises :class:`InputError` if a given number of bits would overload. This is for plans; files with it can still be run."""

    if requested.bits is not None and requested.bits is not AUTO:
        refuse_overload(parameters, requested.value_sd)


def _require_rest(requested: ConsensusParameters, parameters: ConsensusParameters, target: Target, most: float) -> None:
    """Raises :class:`InputError` where the iterations that were asked for end before all have the mean, to so much MSE."""
    if requested.iterations is OPEN:
        return
    from quietmean.protocols.consensus.error import unfinished

    if unfinished(parameters, half_range(target.sensitivity) * (_MOST_RECORDS if target.unit.within_party else 1.0)) <= most:
        return
    enough = default_iterations(parameters) if parameters.quantisation is None or parameters.quantisation.gamma < 1 else 0
    remedy = f"Choose {enough}" if enough else "Choose a gamma below 1"
    raise InputError(
        f"iterations is {requested.iterations}, and then the parties do not have the mean yet. {remedy}"
        f"{'' if requested.delta_min > 0 else ', or leave it out'}."
    )


def quantisation_error(parameters: ConsensusParameters) -> float:
    """Mean squared error per coordinate that cells of width delta_min leave in the end."""
    from quietmean.protocols.consensus.analysis import Dynamics

    settings = parameters.quantisation
    if settings is None or settings.delta_min == 0:
        return 0.0
    return Dynamics.of(parameters).steady_state_mse(settings.delta_min, parameters.broadcast)


# Bits enough for any input, so that the trial itself does not overload.
_WIDE = 16
# The largest input of a trial may fill this part of the range; a trial sees some 5 standard deviations of it.
_ROOM = 0.8
# The same at the start, of which a trial sees fewer numbers: some 3 to 4 standard deviations.
_ROOM_AT_START = 0.5
# Numbers per iteration of a trial, and the iterations that count as the end.
_NUMBERS, _END = 10_000, 80
_FEWEST, _MOST = 40, 1500
# By the end of a trial a vanishing input is this small relative to the cells.
_VANISHED = 1e-5
# Beyond this share of permanent overloads a plan is refused.
TOLERATED = 0.005


@dataclass(frozen=True, eq=False)
class Trial:
    """``start`` and ``end``: the largest input in cells, before and after what is not quantisation error has vanished.

    ``overloads``: their share of all numbers in the end.
    """

    start: float
    end: float
    overloads: float


def attempt(parameters: ConsensusParameters, settings: Quantisation, value_sd: float, rate: float) -> Trial:
    """Try the protocol on normal values of standard deviation ``value_sd``.

    ``rate``: how fast differences shrink by themselves.
    """
    shrinking = rate / settings.gamma
    before = math.ceil(math.log(_VANISHED) / math.log(shrinking)) if 0 < shrinking < 1 else _MOST
    before = min(max(before, _FEWEST), _MOST)
    links = parameters.links
    # Nobody is away, so no edge is ever given up: that a plan's patience may be shorter than the trial means nothing here.
    silent: dict[str, Any] = {"local_noise": "none", "sigma_local": 0.0, "open_edges": EACH}
    tried = replace(parameters.quantised(settings), iterations=before + _END, **silent)
    dimension = max(1, min(256, _NUMBERS // max(1, len(links))))
    stream = BitStream(Seed.public("consensus trial"))
    values: Vector = stream.standard_normal((parameters.parties, dimension)) * value_sd
    z: Vector = stream.standard_normal((len(links), dimension)) * links.sigma[:, None]
    present: Mask = np.ones((tried.rounds + 1, parameters.parties), dtype=np.bool_)
    run = follow(tried, Deliveries.complete(tried), present, values, np.ones(parameters.parties), z)
    numbers = _END * dimension * (parameters.parties if parameters.broadcast else len(links))
    start, end = float(run.peaks[:before].max()), float(run.peaks[before:].max())
    return Trial(start, end, float(run.overloads[before:].sum()) / max(1, numbers))


def enough_bits(parameters: ConsensusParameters, settings: Quantisation, value_sd: float, rate: float) -> Quantisation:
    """The fewest bits, 2 at least, and a first cell, with which nothing overloads. Raises :class:`InputError` if 16 do not do."""
    from quietmean.protocols.consensus.analysis import default_delta_0

    spread = float(np.sqrt((parameters.deviations**2).mean())) if parameters.deviations.size else 0.0
    for bits in range(2, _WIDE + 1):
        first = max(default_delta_0(bits, spread, value_sd), settings.delta_min)
        chosen = replace(settings, bits=bits, delta_0=first)
        # While cells shrink, older and larger errors are part of the inputs: a smallest cell only makes it easier.
        trial = attempt(parameters, replace(chosen, bits=_WIDE, delta_min=0.0), value_sd, rate)
        room = _ROOM * chosen.largest_input
        if trial.end <= room:
            return replace(chosen, delta_0=first * max(1.0, trial.start / (_ROOM_AT_START * chosen.largest_input)))
    raise InputError(f"differences overload even {_WIDE} bits. Take a slower gamma than {settings.gamma:g}.")


def refuse_overload(parameters: ConsensusParameters, value_sd: float) -> None:
    """Raises :class:`InputError` for a plan whose quantisers would overload permanently."""
    from quietmean.protocols.consensus.analysis import Dynamics, slowest_difference

    settings = parameters.quantisation
    if settings is None:
        return
    rate = slowest_difference(Dynamics.of(parameters), parameters.broadcast)
    share = attempt(parameters, replace(settings, send_overloads=False), value_sd, rate).overloads
    if share > TOLERATED:
        needed = enough_bits(parameters, settings, value_sd, rate).bits
        kind = "broadcasts" if parameters.broadcast else f"differences over {'two steps' if settings.two_step else 'one step'}"
        raise InputError(
            f"bits is {settings.bits}. With theta {parameters.theta:g} and {kind} {share:.1%} of the numbers would overload for "
            f'ever. They follow in full, which costs more bytes than predicted. Take {needed}, or "auto".'
        )
