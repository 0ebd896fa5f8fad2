"""Hypothesis strategies: random executions of any protocol. Needs the ``hypothesis`` package."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quietmean.core.arrays import Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.core.schema import OPEN, Configured, Parameter, parameters_of
from quietmean.graphs import NEVER, SCHEDULES, ExecutionTrace, Schedule, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.protocols import Mechanism, get_protocol
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

# Numbers without a limit are no larger than this.
_LARGEST = 100.0


def deviations() -> st.SearchStrategy[float]:
    """Positive numbers over four orders of magnitude, such as standard deviations."""
    return st.floats(-2.0, 2.0).map(lambda exponent: float(10.0**exponent))


def documents(kind: type[Configured], parties: int = 9) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects whose entries are what the fields of ``kind`` say of themselves: type, range, choices.

    Fields that must be there always are, others now and then. Whole numbers without an upper limit are at most ``parties``.
    A field that reads JSON in its own way keeps its default; ``LookupError`` if it has none.
    """
    always: dict[str, st.SearchStrategy[Any]] = {}
    sometimes: dict[str, st.SearchStrategy[Any]] = {}
    for name, parameter in parameters_of(kind).items():
        needed = parameter.required and parameter.default is OPEN
        if parameter.read is None:
            (always if needed else sometimes)[parameter.key] = _values(parameter, parties)
        elif needed:
            raise LookupError(f"field {name!r} reads JSON in its own way and has no default. Give a strategy of the whole object")
    return st.fixed_dictionaries(always, optional=sometimes)


def _values(parameter: Parameter, parties: int) -> st.SearchStrategy[Any]:
    strategies: list[st.SearchStrategy[Any]] = [st.just("auto")] if parameter.auto else []
    if parameter.choices:
        strategies.append(st.sampled_from(parameter.choices))
    else:
        # Where a number is allowed, a text is a keyword of the protocol.
        numbers = [kind for kind in parameter.kinds if kind in (int, float)]
        strategies += [_values_of(kind, parameter, parties) for kind in numbers or parameter.kinds]
    return st.one_of(*strategies, *([st.none()] if parameter.optional else []))


def _values_of(kind: type, parameter: Parameter, parties: int) -> st.SearchStrategy[Any]:
    if kind is bool:
        return st.booleans()
    if kind is int:
        return _whole_numbers(parameter, parties)
    if kind is float:
        return _numbers(parameter)
    if issubclass(kind, StrEnum):
        return st.sampled_from([str(member) for member in kind])
    return st.text("abcxyz-_", min_size=1, max_size=8)


def _whole_numbers(parameter: Parameter, parties: int) -> st.SearchStrategy[int]:
    lows = [parameter.at_least, None if parameter.above is None else parameter.above + 1]
    highs = [parameter.at_most, None if parameter.below is None else math.ceil(parameter.below) - 1]
    low = math.ceil(max((limit for limit in lows if limit is not None), default=0))
    high = math.floor(min((limit for limit in highs if limit is not None), default=max(parties, low)))
    return st.integers(min(low, high), high)


def _numbers(parameter: Parameter) -> st.SearchStrategy[float]:
    low = parameter.at_least if parameter.above is None else parameter.above
    high = parameter.at_most if parameter.below is None else parameter.below
    if high is not None:
        lowest = low if low is not None else high - _LARGEST
        return st.floats(lowest, high, exclude_min=parameter.above is not None, exclude_max=parameter.below is not None)
    return st.floats(-_LARGEST, _LARGEST) if low is None else deviations().map(lambda distance: float(low + distance))


Parameters = Callable[[int], st.SearchStrategy[dict[str, Any]]]

MAX_ROUNDS = 6
# Besides the public kinds: any lists of neighbours, of any length, empty ones included.
IRREGULAR = "irregular"


@st.composite
def injections(draw: st.DrawFn, rounds: int) -> Any:
    """What IncA accepts as ``injection``: early, incremental, or a random valid (c, Z), with or without relative scales."""
    kind = draw(st.sampled_from(["incremental", "early", "general", "scaled"]))
    if kind in ("incremental", "early"):
        return kind
    numbers = BitStream(insecure_seed(draw(st.integers(0, 2**32 - 1)), "injection"))
    portion = 0.2 + numbers.uniform(rounds + 1)
    noise = numbers.standard_normal((rounds, rounds)) + 2.0 * np.eye(rounds)
    injection = {"c": (portion / portion.sum()).tolist(), "Z": np.vstack([noise, -noise.sum(axis=0)]).tolist()}
    return injection | ({"sigma": (0.3 + 3.0 * numbers.uniform(rounds)).tolist()} if kind == "scaled" else {})


@st.composite
def _inca(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    rounds = draw(st.integers(1, MAX_ROUNDS))
    noise = {"sigma_star": draw(deviations()), "sigma_delta": draw(deviations())}
    guard = draw(st.one_of(st.just({}), deviations().map(lambda deviation: {"sigma_guard": deviation})))
    injection = draw(injections(rounds))
    numbers: dict[str, Any] = draw(st.one_of(_number_formats(), _whole_grids()))
    if "noise" in numbers and not isinstance(injection, str):
        injection = draw(whole_injections(rounds))
    document: dict[str, Any] = {"rounds": rounds, "injection": injection}
    return document | noise | guard | numbers


@st.composite
def whole_injections(draw: st.DrawFn, rounds: int) -> Any:
    """What IncA accepts with whole numbers: early, incremental, or a random whole (c, Z) of determinant +-1."""
    kind = draw(st.sampled_from(["incremental", "early", "general"]))
    if kind != "general":
        return kind
    numbers = BitStream(insecure_seed(draw(st.integers(0, 2**32 - 1)), "whole injection"))
    lower, upper = (np.tril(numbers.integers(3, rounds**2).reshape(rounds, rounds) - 1, -1) for _ in range(2))
    noise = (lower + np.eye(rounds)) @ (upper.T + np.eye(rounds))
    portion = (numbers.integers(3, rounds) - 1).tolist()
    return {"c": [*portion, 1 - sum(portion)], "Z": np.vstack([noise, -noise.sum(axis=0)]).tolist()}


@st.composite
def _gossip(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    return {"rounds": draw(st.integers(1, MAX_ROUNDS))} | draw(_number_formats())


def _whole_grids() -> st.SearchStrategy[dict[str, Any]]:
    """A strategy of whole-number grids, with scales of some steps to some hundred million."""
    return st.sampled_from([-20, -11]).map(lambda power: {"noise": "discrete", "grid": 2.0**power, "dimension": 3})


def _number_formats() -> st.SearchStrategy[dict[str, Any]]:
    """float64, or a grid on which shares of values up to some thousands, with such noise, are not cut."""
    grids = st.integers(-14, -10).map(lambda power: {"value_bits": 32, "grid": 2.0**power, "largest_value": 2000.0})
    return st.one_of(st.just({}), grids)


@st.composite
def _cordp_dme(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    noise = {"sigma_own": draw(deviations()), "sigma_pair": draw(deviations())}
    partners = draw(st.sampled_from([None, *range(2, parties, 2)]))
    return noise | {"aggregator": draw(st.one_of(st.none(), st.integers(0, parties - 1))), "partners": partners}


@st.composite
def _priv_unit(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    return {"epsilon": draw(st.floats(0.1, 10.0))}


@st.composite
def _consensus(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    numbers = BitStream(insecure_seed(draw(st.integers(0, 2**32 - 1)), "edges"))
    # A random tree with some further edges.
    tree = [[int(numbers.integers(party, 1)[0]), party] for party in range(1, parties)]
    pairs = numbers.integers(parties, 2 * draw(st.integers(0, 2 * parties))).reshape(-1, 2).tolist()
    edges = sorted({(min(pair), max(pair)) for pair in [*tree, *pairs] if pair[0] != pair[1]})
    sigma_z: Any = draw(deviations())
    if draw(st.booleans()):
        sigma_z = (sigma_z * (0.5 + numbers.uniform(2 * len(edges)))).reshape(-1, 2).tolist()
    document: dict[str, Any] = {
        "edges": [list(edge) for edge in edges],
        "theta": draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])),
        "c": draw(st.floats(0.05, 3.0)),
        "sigma_z": sigma_z,
        "iterations": draw(st.integers(1, MAX_ROUNDS - 1)),
        "mode": draw(st.sampled_from(["unicast", "broadcast"])),
        "patience": draw(st.integers(1, 3)),
    }
    if draw(st.booleans()):
        document |= {"open_edges": "all", "patience": MAX_ROUNDS}
    noise = draw(st.sampled_from(["none", "none", "gaussian", "uniform", "laplace"]))
    if noise != "none":
        document |= {"local_noise": noise, "sigma_local": draw(deviations())}
    if draw(st.booleans()):
        document |= {"bits": draw(st.integers(1, 4)), "delta_min": draw(st.sampled_from([0.0, 0.01]))}
        document |= {"send_overloads": True} if draw(st.booleans()) else {}
    return document


@st.composite
def _secagg(draw: st.DrawFn, parties: int, degree: int | None = None) -> dict[str, Any]:
    holders = parties if degree is None else degree + 1
    threshold = draw(st.integers(holders // 2 + 1, holders))
    clip, steps = draw(st.floats(0.1, 200.0)), draw(st.sampled_from([64.0, 1000.0]))
    return {
        "threshold": threshold,
        "minimum": draw(st.integers(max(2, threshold if degree is None else 2), parties)),
        "granularity": clip / steps,
        "sigma": clip / steps * draw(st.sampled_from([0.4, 3.0, 50.0])),
        "clip": clip,
        "bits": draw(st.sampled_from([9, 16, 20, 32])),
        "centre": draw(st.sampled_from([0.0, 0.5])),
        "largest_weight": 10.0,
        "rounding": draw(st.sampled_from(["conditional", "independent"])),
        "rotation": draw(st.integers(0, 3)),
        "aggregator": draw(st.integers(0, parties - 1)),
    }


@st.composite
def _secagg_plus(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    degree = draw(st.sampled_from([*range(2, parties - 1, 2), parties - 1]))
    return {"degree": degree, **draw(_secagg(parties, degree))}


@st.composite
def _secret_sharing(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    document = draw(_consensus(parties))
    bits = {"bound": 1.0, "fraction_bits": draw(st.integers(0, 4))}
    return {"edges": document["edges"], "c": draw(st.sampled_from([0.25, 0.5, 1.0]))} | bits


@st.composite
def _packed_sharing(draw: st.DrawFn, parties: int) -> dict[str, Any]:
    colluding = draw(st.integers(0, (parties - 1) // 2))
    quorum = (parties + colluding) // 2 + 1
    lies = draw(st.integers(0, max((parties - colluding - 1) // 4, 0)))
    most_left = min(parties - quorum, parties - colluding - 2 * lies - 1)
    left = draw(st.integers(0, max(most_left, 0)))
    return {
        "members": parties,
        "colluding": colluding,
        "colluding_members": colluding,
        "secrets": draw(st.integers(1, max(parties - left - colluding - 2 * lies, 1))),
        "minimum": draw(st.integers(colluding + 1, parties)),
        "lies": lies,
        "gone": left,
        "ballots": draw(st.integers(1, 3)),
        "step": 2.0**-6,
        "sigma": draw(st.sampled_from([2.0**-5, 1.5, 40.0])),
        "centre": draw(st.sampled_from([0.0, 0.5])),
        "clip": 100.0,
        "largest_weight": 10.0,
        "dimension": draw(st.integers(1, 4)),
    }


# What parameters may be that depend on each other, as JSON, given the number of parties. Others follow from their declaration.
PARAMETERS: dict[str, Parameters] = {
    "inca": _inca,
    "gossip": _gossip,
    "consensus": _consensus,
    "cordp-dme": _cordp_dme,
    "priv-unit-g": _priv_unit,
    "secret-sharing": _secret_sharing,
    "secagg": _secagg,
    "secagg-plus": _secagg_plus,
    "packed-sharing": _packed_sharing,
}


# Protocols without shares to settle: messages whose loss the sender never notices are drawn for them, too.
UNNOTICED = frozenset({"consensus", "muffliato"})


@st.composite
def executions(
    draw: st.DrawFn, protocol: str | type[Mechanism], parameters: Parameters | None = None, max_parties: int = 9
) -> Execution:
    """Random executions of a protocol: 2 to ``max_parties`` parties, every schedule, dropouts, lost messages, weights.

    ``parameters`` maps the number of parties to a strategy of the protocol's JSON parameters; by default it follows from how its
    fields are declared (see :func:`documents`). What the protocol refuses is left out, such as too few parties. A protocol whose
    parameters have no field ``schedule`` gets the schedule that it makes itself.
    """
    protocol = get_protocol(protocol) if isinstance(protocol, str) else protocol
    kind = draw(st.sampled_from([*SCHEDULES, IRREGULAR]))
    parties = draw(st.sampled_from([2, 4, 8])) if kind == "hypercube" else draw(st.integers(2, max_parties))
    parsed = _parsed(draw, protocol, parties, parameters or PARAMETERS.get(protocol.name))
    rounds = parsed.rounds
    if "schedule" in parsed.describe():
        schedule = draw(schedules(kind, parties, rounds))
    else:
        schedule = parsed.draw_schedule(parties, insecure_seed(draw(st.integers(0, 99))))
    some = st.floats(0.1, 10.0)
    # A party without records weighs nothing.
    sizes = arrays.arrays(np.float64, parties, elements=some if parsed.traits.needs_records else st.just(0.0) | some)
    weights = draw(st.just(np.ones(parties)) | sizes.filter(np.any))
    trace = draw(traces(schedule))
    if protocol.TRAITS.transfers_mass:
        trace = replace(trace, settled=draw(_settled(schedule, trace)))
    elif protocol.name in UNNOTICED:
        trace = replace(trace, settled=draw(_unnoticed(schedule, trace)))
    return Execution(parsed, schedule, trace, draw(st.floats(0.1, 10.0)), weights)


def _parsed(draw: st.DrawFn, protocol: type[Mechanism], parties: int, parameters: Parameters | None) -> Mechanism:
    grid = draw(_grids()) if issubclass(protocol, DiscreteNoise) else {}
    if parameters is not None:
        chosen = draw(parameters(parties))
        # Other noise than Gaussian is not on a grid.
        fits = chosen.get("local_noise", "gaussian") == "gaussian"
        document = chosen | (grid if fits else {})
    else:
        document = draw(documents(protocol, parties).filter(lambda candidate: not grid or "noise" not in candidate)) | grid
    try:
        return protocol.read(document).resolved(parties)
    except InputError:
        return reject()


def _grids() -> st.SearchStrategy[dict[str, Any]]:
    """float64, or whole numbers: with scales from a fraction of a step to a hundred million steps."""
    return st.one_of(st.just({}), st.sampled_from([-20, -8, -3]).map(lambda power: {"grid": 2.0**power, "dimension": 3}))


@st.composite
def schedules(draw: st.DrawFn, kind: str, parties: int, rounds: int) -> Schedule:
    """A schedule of a kind, or an irregular one; where never-same has too few parties, a circulant."""
    if kind == IRREGULAR:
        return _irregular(BitStream(insecure_seed(draw(st.integers(0, 2**32 - 1)), IRREGULAR)), parties, rounds)
    out_degree = draw(st.integers(1, min(3, parties - 1)))
    if kind == "never-same" and rounds * out_degree > parties - 1:
        out_degree = 1
        kind = kind if rounds <= parties - 1 else "circulant"
    return make_schedule(kind, insecure_seed(draw(st.integers(0, 2**32 - 1))), parties, rounds, out_degree)


def _irregular(numbers: BitStream, parties: int, rounds: int) -> Schedule:
    def neighbours(party: int) -> list[int]:
        order = [int(other) for other in numbers.permutation(parties) if other != party]
        return order[: int(numbers.integers(parties, 1)[0])]

    return Schedule.from_lists([[neighbours(party) for party in range(parties)] for _ in range(rounds)], parties)


@st.composite
def traces(draw: st.DrawFn, schedule: Schedule) -> ExecutionTrace:
    """Permanent and temporary dropouts, and lost messages; also none of them."""
    shape = (schedule.rounds + 1, schedule.parties)
    online = np.ones(shape, dtype=np.bool_)
    if draw(st.booleans()):
        online &= ~draw(_sparse(shape))
    for party, last in draw(
        st.dictionaries(st.integers(0, schedule.parties - 1), st.integers(0, schedule.rounds), max_size=3)
    ).items():
        online[last + 1 :, party] = False
    online[0] = True
    lost = draw(st.one_of(st.none(), _sparse(schedule.neighbours.shape)))
    return ExecutionTrace(online, None if lost is None else lost & (schedule.neighbours != NOBODY))


@st.composite
def _settled(draw: st.DrawFn, schedule: Schedule, trace: ExecutionTrace) -> Ints:
    """Some messages that arrived though their senders learnt of it only some rounds later."""
    delivered = trace.delivered(schedule)
    candidates = [
        (round_ + 1, sender, int(schedule.neighbours[round_, sender, slot]), later)
        for round_, sender, slot in np.argwhere(delivered).tolist()
        for later in range(round_ + 2, schedule.rounds + 1)
        if trace.online[later, sender]
    ]
    chosen = draw(st.lists(st.sampled_from(candidates), max_size=3, unique_by=lambda row: row[:3])) if candidates else []
    return np.array(sorted(chosen), dtype=np.int64).reshape(-1, 4)


@st.composite
def _unnoticed(draw: st.DrawFn, schedule: Schedule, trace: ExecutionTrace) -> Ints:
    """Some messages that arrived though their senders never learn of it."""
    candidates = [
        (round_ + 1, sender, int(schedule.neighbours[round_, sender, slot]), NEVER)
        for round_, sender, slot in np.argwhere(trace.delivered(schedule)).tolist()
    ]
    chosen = draw(st.lists(st.sampled_from(candidates), max_size=4, unique=True)) if candidates else []
    return np.array(sorted(chosen), dtype=np.int64).reshape(-1, 4)


def _sparse(shape: tuple[int, ...]) -> st.SearchStrategy[Mask]:
    return arrays.arrays(np.bool_, shape, elements=st.booleans(), fill=st.just(False))


def values(parties: int, max_dimension: int = 3) -> st.SearchStrategy[Vector]:
    """Values of shape (n, d)."""
    return st.integers(1, max_dimension).flatmap(
        lambda dimension: arrays.arrays(np.float64, (parties, dimension), elements=st.floats(-100.0, 100.0))
    )
