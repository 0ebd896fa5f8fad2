"""IncA for all parties and coordinates at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule, mixing_matrix
from quietmean.protocols.inca.spec import IncaParameters
from quietmean.protocols.inca.transcript import injection_groups
from quietmean.protocols.protocol import Releases


def run_batch(
    parameters: IncaParameters,
    schedule: Schedule,
    history: History,
    values: Vector,
    weights: NDArray[np.float64],
    noise: PopulationNoise,
) -> Releases:
    """The machines' numbers, up to rounding. Memory: a handful of (n, d) arrays."""
    dimension = values.shape[1]
    noisy_values = values + parameters.sigma_star * noise.normal("star", 0, dimension)
    delivered = history.delivered(schedule)
    held, weight = np.zeros_like(values), np.zeros(len(values))
    for round_ in range(schedule.rounds + 1):
        if round_ > 0:
            mixing = mixing_matrix(schedule, delivered, round_)
            held, weight = np.asarray(mixing @ held), np.asarray(mixing @ weight)
        for members, portion, terms in injection_groups(parameters, history, round_):
            # A slice of all parties avoids the copies that a list of them needs.
            chosen = slice(None) if members.size == len(values) else members
            weight[chosen] += portion * weights[chosen]
            if portion:
                held[chosen] += portion * noisy_values[chosen]
            for index, coefficient in terms:
                held[chosen] += (coefficient * parameters.sigma_delta) * noise.normal("delta", index, dimension)[chosen]
    return Releases(held, weight, history.finished)
