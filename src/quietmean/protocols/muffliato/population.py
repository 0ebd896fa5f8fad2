"""Muffliato for all parties at once."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule, arrivals
from quietmean.protocols.muffliato.mixing import gossip_flows
from quietmean.protocols.muffliato.spec import MuffliatoParameters
from quietmean.transcript.numbers import NoTerms, NumericReading
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def population(
    parameters: MuffliatoParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """What party i holds after round t is sent in round t + 1 to its neighbours. Nothing is released.

    ``values`` have n rows (d,), ``weights`` the shape (n,).
    """
    everyone, momentum = np.ones(schedule.parties, dtype=np.bool_), parameters.gamma
    delivered, acknowledged = trace.deliveries(schedule)
    held = previous = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma)
    weight = before = weights.astype(np.float64)
    for round_, mixing in enumerate(gossip_flows(schedule, delivered, acknowledged), 1):
        held = out.send(held, everyone, round_, arrivals(schedule, delivered, round_))
        previous = held if round_ == 1 else previous
        held, previous = _accelerated(mixing @ held, previous, momentum), held
        weight, before = momentum * mixing.numbers(weight) + (1.0 - momentum) * before, weight
    return Results(out.keep(held, everyone, schedule.rounds + 1), weight, trace.finished)


def mixed(parameters: MuffliatoParameters, schedule: Schedule, trace: ExecutionTrace, start: Vector) -> Vector:
    """What every party holds after all rounds, shape (n, m), if it starts with its row of ``start`` (n, m) and without noise."""
    reading, weights = NumericReading(start), np.ones(schedule.parties)
    return reading.vectors(population(parameters, schedule, trace, reading.values, weights, NoTerms(*start.shape), reading).rows)


def _accelerated(mixed: Rows, previous: Rows, momentum: float) -> Rows:
    return mixed if momentum == 1.0 else mixed * momentum + previous * (1.0 - momentum)
