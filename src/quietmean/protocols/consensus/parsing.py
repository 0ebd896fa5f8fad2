"""Reading the parameters of consensus from JSON, defaults included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.entropy import Seed
from quietmean.graphs.undirected import make_graph, normalised_edges
from quietmean.protocols.consensus.spec import ConsensusParameters, Quantisation
from quietmean.protocols.fields import optional_field, required_field

# Without quantisation an error shrinks by this much before the result is read.
_ACCURACY = 1e-11


def parse_edges(raw: Mapping[str, Any], parties: int) -> NDArray[np.int64]:
    if "edges" in raw:
        try:
            return normalised_edges(msgspec.convert(raw["edges"], list[tuple[int, int]]), parties)
        except msgspec.ValidationError as error:
            raise InputError(f"field 'edges' is not as it should be: {error}") from None
    kind = required_field(raw, "graph", str)
    seed = Seed.public("consensus graph", optional_field(raw, "graph_seed", int, 0))
    radius = required_field(raw, "radius", float) if "radius" in raw else None
    return make_graph(kind, parties, seed, radius=radius, connectivity=optional_field(raw, "connectivity", int, 2))


def parse_step(raw: Mapping[str, Any], edges: NDArray[np.int64], parties: int, theta: float) -> float:
    if raw.get("c") != "auto":
        return optional_field(raw, "c", float, 1.0)
    from quietmean.protocols.consensus.analysis import best_step

    return best_step(edges, parties, theta)


def parse_sigma_z(raw: Mapping[str, Any], edges: int) -> NDArray[np.float64]:
    if not isinstance(raw.get("sigma_z"), list):
        return np.full((edges, 2), required_field(raw, "sigma_z", float))
    try:
        pairs = np.array(msgspec.convert(raw["sigma_z"], list[tuple[float, float]]), dtype=np.float64).reshape(-1, 2)
    except msgspec.ValidationError as error:
        raise InputError(f"field 'sigma_z' is not as it should be: {error}") from None
    if len(pairs) != edges:
        raise InputError(f"sigma_z lists {len(pairs)} pairs for {edges} edges: give one pair per edge, in rising order of edges")
    return pairs


def parse_quantisation(raw: Mapping[str, Any], parameters: ConsensusParameters) -> Quantisation:
    from quietmean.protocols.consensus.analysis import (
        Dynamics,
        check_quantisation,
        default_delta_0,
        default_gamma,
        slowest_difference,
    )
    from quietmean.protocols.consensus.trial import enough_bits

    automatic = raw["bits"] == "auto"
    # With them the rest is read; then their number is found.
    bits = 16 if automatic else required_field(raw, "bits", int)
    if not 1 <= bits <= 16:
        raise InputError(f"bits is {bits}: choose 1..16")
    delta_min = optional_field(raw, "delta_min", float, 0.0)
    if delta_min > 0 and "iterations" not in raw:
        raise InputError(
            f"delta_min is {delta_min:g} > 0 and iterations is missing: every message leaks more, so fix their number"
        )
    two_step = raw.get("two_step", parameters.theta == 0 and not parameters.broadcast)
    if not isinstance(two_step, bool):
        raise InputError(f"field 'two_step' is {two_step!r}: it must be true or false")
    rate = slowest_difference(Dynamics.of(parameters), parameters.broadcast) if automatic or "gamma" not in raw else 0.0
    gamma = required_field(raw, "gamma", float) if "gamma" in raw else default_gamma(rate)
    spread = float(np.sqrt((parameters.sigma_z**2).mean())) if parameters.sigma_z.size else 0.0
    value_sd = optional_field(raw, "value_sd", float, 1.0)
    default = default_delta_0(bits, spread, value_sd)
    chosen = Quantisation(
        bits,
        gamma,
        optional_field(raw, "delta_0", float, max(default, delta_min)),
        delta_min,
        two_step,
        optional_field(raw, "dither_seed", int, 0),
    )
    if "gamma" in raw:
        check_quantisation(parameters, chosen)
    if not automatic:
        return chosen
    if "delta_0" in raw:
        raise InputError('delta_0 follows from the bits that "auto" finds: leave it out, or name the bits')
    return enough_bits(parameters, chosen, value_sd, rate)


def default_iterations(parameters: ConsensusParameters) -> int:
    from quietmean.protocols.consensus.analysis import Dynamics, iterations_to

    settings = parameters.quantisation
    rate = Dynamics.of(parameters).rho if settings is None else settings.gamma
    if rate >= 1:
        raise InputError("gamma is 1 and iterations is missing: nothing ever shrinks, give the number of iterations")
    return iterations_to(rate, _ACCURACY)


def parse_choice(raw: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    chosen = optional_field(raw, name, str, known[0])
    if chosen not in known:
        raise InputError(f"{name} {chosen!r} is unknown: choose {' or '.join(known)}")
    return chosen
