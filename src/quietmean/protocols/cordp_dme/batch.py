"""CorDP-DME for all parties and coordinates at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule
from quietmean.protocols.cordp_dme.masks import shared_masks
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters
from quietmean.protocols.protocol import Releases


def run_batch(
    parameters: CordpDmeParameters,
    schedule: Schedule,
    history: History,
    values: Vector,
    weights: NDArray[np.float64],
    noise: PopulationNoise,
) -> Releases:
    """The machines' numbers, up to rounding. Memory: a handful of (n, d) arrays and a block of shared noise."""
    parties, dimension = values.shape
    online = history.online[1]
    hidden = values + parameters.sigma_own * noise.normal("star", 0, dimension)
    # What two absent parties share is in nobody's message.
    matters = schedule.pairs[online[schedule.pairs].any(axis=1)]
    hidden += parameters.sigma_pair * shared_masks(parties, matters, noise, dimension)
    senders, slots = np.nonzero(history.delivered(schedule)[0])
    receivers = schedule.neighbours[0][senders, slots]
    total, weight = hidden.copy(), weights.astype(np.float64)
    np.add.at(total, receivers, hidden[senders])
    np.add.at(weight, receivers, weights[senders])
    return Releases(total, weight, online & (schedule.out_degree[0] == 0))
