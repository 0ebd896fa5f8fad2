"""CorDP-DME for all parties at once."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.noise import NoiseGroup
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def pair_signs(parties: int, pairs: Ints) -> Flow:
    """Shape (n, M), from pairs (M, 2): the larger number of a pair adds its term, the smaller subtracts it."""
    columns = np.repeat(np.arange(len(pairs)), 2)
    return Flow((parties, len(pairs)), pairs.ravel(), columns, np.tile([-1.0, 1.0], len(pairs)))


def population(
    parameters: CordpDmeParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Every party adds its noise to its value. It sends the sum or, without recipients, publishes it with what it received.

    With an aggregator only the aggregator sees the single messages, and so does every coalition with it. ``values`` have n rows
    (d,), ``weights`` the shape (n,).
    """
    parties, sends = schedule.parties, schedule.out_degree[0] > 0
    noisy = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_own)
    shared = noise.shared_normal(schedule.pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_pair)
    hidden = noisy + pair_signs(parties, schedule.pairs) @ shared
    arrived = arrivals(schedule, trace.delivered(schedule), 1)
    hidden = out.send(hidden, trace.online[1] & sends, 1, arrived)
    sender, receiver = arrived
    received = Flow.of((parties, parties), receiver, sender)
    publishes = trace.online[1] & ~sends
    total = out.release(hidden + received @ hidden, publishes, 2)
    return Results(total, weights + received.numbers(weights), publishes)
