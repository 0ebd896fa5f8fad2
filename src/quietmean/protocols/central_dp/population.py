"""Central DP for all parties at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import Flow, History, Schedule, arrivals
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.protocols.central_dp.protocol import CentralDpParameters


def population(
    parameters: CentralDpParameters,
    schedule: Schedule,
    history: History,
    values: Rows,
    weights: NDArray[np.float64],
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Values as they are go to the curator, who releases the noisy sum of those that arrived and its own."""
    parties, curator = schedule.parties, np.array([parameters.curator])
    is_curator = np.arange(parties) == curator
    sender, receiver = arrivals(schedule, history.delivered(schedule), 1)
    handed = out.send(values, history.online[1] & ~is_curator, 1, (sender, receiver))
    star = noise.normal_of(curator, "star", np.array([0]), np.array([parameters.sigma]))
    counted = Flow.of((parties, parties), np.append(receiver, curator), np.append(sender, curator))
    total = counted @ handed + Flow.of((parties, 1), curator, np.array([0])) @ star
    releases = history.finished & is_curator
    return Results(out.release(total, releases, 2), counted.numbers(weights), releases)
