"""Central DP for all parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def population(
    sigma: float,
    aggregator: PartyId,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: NDArray[np.float64],
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """The curator receives the values without noise, and releases the noisy sum of those that arrived and its own.

    ``values`` have n rows (d,), ``weights`` the shape (n,). ``sigma``: standard deviation of the noise on the sum.
    """
    parties, curator = schedule.parties, np.array([aggregator])
    is_curator = np.arange(parties) == curator
    sender, receiver = arrivals(schedule, trace.delivered(schedule), 1)
    handed = out.send(values, trace.online[1] & ~is_curator, 1, (sender, receiver))
    star = noise.normal_of(curator, NoiseGroup.INDEPENDENT, np.zeros(1, dtype=np.int64), np.array([sigma]))
    counted = Flow.of((parties, parties), np.append(receiver, curator), np.append(sender, curator))
    total = counted @ handed + Flow.of((parties, 1), curator, np.zeros(1, dtype=np.int64)) @ star
    releases = trace.finished & is_curator
    return Results(out.release(total, releases, 2), counted.numbers(weights), releases)
