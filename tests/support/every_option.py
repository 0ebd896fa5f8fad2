"""Every own option of every protocol, with values that a person may give it: for tests that try all of them, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quietmean.core.schema import options_of
from quietmean.protocols import get_protocol, registry
from support.as_declared import OfEvery, as_declared

SCHEDULES = ("uniform", "permutation", "circulant", "never-same", "ring", "complete", "hypercube", "random-static")
GRAPHS = ("harary", "ring", "complete", "path", "star", "geometric", "geometric-cube")
FLOAT: list[dict[str, Any]] = [{"noise": "insecure-float64"}]
SPANNING = [[0, 1], [1, 2], [2, 3], [0, 3]]
ON_GRAPHS: dict[str, list[dict[str, Any]]] = {
    "edges": [{"edges": SPANNING}],
    "graph": [{"graph": graph} for graph in GRAPHS],
    "graph_seed": [{"graph": "geometric", "graph_seed": 3}],
    "radius": [{"graph": "geometric", "radius": 2.0}],
    "connectivity": [{"graph": "harary", "connectivity": 3}],
}
AGGREGATED: dict[str, list[dict[str, Any]]] = {
    "threshold": [{"threshold": 3}],
    "minimum": [{"minimum": 3}],
    "clip": [{"clip": 0.5}, {"clip": 50.0}],
    "bits": [{"bits": 32}, {"bits": 20}],
    "centre": [{"centre": 0.25}],
    "largest_weight": [{"largest_weight": 200.0}, {"largest_weight": 2.0}],
    "noise": [{"noise": "discrete-gaussian"}, {"noise": "laplace"}, {"noise": "none"}],
    "rotation": [{"rotation": 7}],
    "aggregator": [{"aggregator": 2}],
    "domain": [{"domain": "box"}, {"domain": "ball"}],
}
MIXING: dict[str, list[dict[str, Any]]] = {
    "rounds": [{"rounds": 4}],
    "schedule": [{"schedule": schedule} for schedule in SCHEDULES],
    "out_degree": [{"out_degree": 2}],
}
FIXED_POINT: dict[str, list[dict[str, Any]]] = {
    "value_bits": [{"value_bits": 32}],
    "largest_value": [{"value_bits": 32, "largest_value": 5.0}],
}
# By protocol and option; with others that it needs.
KNOWN: dict[str, dict[str, list[dict[str, Any]]]] = {
    "central-dp": {"noise": [*FLOAT, {"noise": "laplace"}], "curator": [{"curator": 2}]},
    "consensus": {
        "noise": FLOAT,
        **ON_GRAPHS,
        "theta": [{"theta": 0.0}, {"theta": 0.5}],
        "c": [{"c": 0.4}],
        "sigma_z": [{"sigma_z": 10.0}],
        "iterations": [{"iterations": 60}],
        "mode": [{"mode": "broadcast"}],
        "patience": [{"patience": 2}],
        "open_edges": [{"open_edges": "all"}, {"open_edges": "each"}],
        "local_noise": [{"local_noise": "none"}],
        "sigma_local": [{"sigma_local": 1.0}],
        "bits": [{"bits": 3}],
        "gamma": [{"bits": 3, "gamma": 0.9}],
        "delta_0": [{"bits": 3, "delta_0": 1.0}],
        "delta_min": [{"bits": 3, "delta_min": 0.1}],
        "two_step": [{"bits": 3, "two_step": False}],
        "dither_seed": [{"bits": 3, "dither_seed": 5}],
        "value_sd": [{"bits": 3, "value_sd": 2.0}],
    },
    "cordp-dme": {
        "noise": FLOAT,
        "decoder": [{"decoder": "biased", "radius": 2.0}],
        "aggregator": [{"aggregator": 1}],
        "partners": [{"partners": 2}],
        "radius": [{"radius": 3.0}],
    },
    "gopa": {
        "noise": FLOAT,
        "partners": [{"partners": 2}],
        "least_partners": [{"least_partners": 1}],
        "aggregator": [{"aggregator": 2}],
    },
    "gossip": {**MIXING, **FIXED_POINT},
    "inca": {
        **MIXING,
        "noise": FLOAT,
        "injection": [{"injection": "early"}, {"injection": "incremental"}],
        **{name: [{"noise": "insecure-float64", **one} for one in given] for name, given in FIXED_POINT.items()},
    },
    "local-dp": {"noise": FLOAT},
    "muffliato": {
        **MIXING,
        "noise": FLOAT,
        "schedule": [*MIXING["schedule"], {"schedule": "expander"}],
        "momentum": [{"momentum": 1.0}, {"momentum": 1.5}, {"momentum": "chebyshev"}],
    },
    "packed-sharing": {
        "noise": [{"noise": "gaussian"}, {"noise": "laplace"}],
        "secrets": [{"secrets": 1}],
        "minimum": [{"minimum": 3}],
        "lies": [{"lies": 0}],
        "gone": [{"gone": 0}],
        "ballots": [{"ballots": 3}],
        "prime": [{"prime": 65521}, {"prime": 2**31 - 1}],
        "domain": [{"domain": "box"}, {"domain": "ball"}, {"domain": "any"}],
        "largest_weight": [{"largest_weight": 200.0}, {"largest_weight": 2.0}],
    },
    "priv-unit-g": {},
    "secagg": AGGREGATED,
    "secagg-plus": {
        **AGGREGATED,
        "degree": [{"degree": 2}],
        "security_bits": [{"security_bits": 20.0}],
        "correctness_bits": [{"correctness_bits": 20.0}],
    },
    "secret-sharing": {
        **ON_GRAPHS,
        "bound": [{"bound": 5.0}, {"bound": 0.5}],
        "fraction_bits": [{"fraction_bits": 20}],
        "c": [{"c": 0.5}],
        "iterations": [{"iterations": 600}],
    },
}


def _declared(name: str) -> dict[str, list[dict[str, Any]]]:
    """Of a protocol that is not listed each option as a plan for four parties chooses it."""
    chosen = as_declared(name, 4)
    return {key: [{key: chosen[key]}] for key in options_of(get_protocol(name)) if key in chosen}


VALUES = OfEvery(KNOWN, _declared)


def every_option() -> Iterator[tuple[str, dict[str, Any]]]:
    """(protocol, options), each protocol with defaults first."""
    for name in sorted(registry()):
        yield name, {}
        for given in VALUES[name].values():
            for options in given:
                yield name, options


def options_without_values() -> set[tuple[str, str]]:
    """(protocol, option) of which nothing is tried: a test wants none."""
    return {(name, key) for name, kind in registry().items() for key in options_of(kind) if key not in VALUES[name]}
