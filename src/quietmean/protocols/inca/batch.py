"""IncA for all parties and coordinates at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule, mixing_matrix
from quietmean.protocols.inca.batch_grid import run_batch_on_grid
from quietmean.protocols.inca.rounds import injection_groups
from quietmean.protocols.inca.spec import IncaParameters
from quietmean.protocols.protocol import Releases


def run_batch(
    parameters: IncaParameters,
    schedule: Schedule,
    history: History,
    values: Vector,
    weights: NDArray[np.float64],
    noise: PopulationNoise,
) -> Releases:
    """The machines' numbers, up to rounding; on a grid exactly. Memory: a handful of (n, d) arrays."""
    if parameters.grid:
        return run_batch_on_grid(parameters, schedule, history, values, weights, noise)
    dimension = values.shape[1]
    noisy_values = values + parameters.sigma_star * noise.normal("star", 0, dimension)
    delivered = history.delivered(schedule)
    settled = history.settled_slots(schedule)
    unnoticed: list[tuple[int, int, Vector, float]] = []
    held, weight, scratch = np.zeros_like(values), np.zeros(len(values)), np.empty_like(values)
    for round_ in range(schedule.rounds + 1):
        if round_ > 0:
            mixing = mixing_matrix(schedule, delivered, round_)
            shares = [(sender, later) for earlier, sender, _, later in settled if earlier == round_]
            part = 1.0 / (schedule.out_degree[round_ - 1] + 1)
            kept = [(later, sender, held[sender] * part[sender], weight[sender] * part[sender]) for sender, later in shares]
            held, weight = np.asarray(mixing @ held), np.asarray(mixing @ weight)
            for _, sender, share, its_weight in kept:
                held[sender], weight[sender] = held[sender] + share, weight[sender] + its_weight
            for _, sender, share, its_weight in (entry for entry in unnoticed if entry[0] == round_):
                held[sender], weight[sender] = held[sender] - share, weight[sender] - its_weight
            unnoticed += kept
        for members, portion, terms in injection_groups(parameters, history, round_):
            # A slice of all parties avoids the copies that a list of them needs.
            chosen = slice(None) if members.size == len(values) else members
            weight[chosen] += portion * weights[chosen]
            if portion:
                _add_scaled(held, chosen, portion, noisy_values, scratch)
            for index, coefficient in terms:
                drawn = noise.normal("delta", index, dimension)
                _add_scaled(held, chosen, coefficient * parameters.sigma_delta, drawn, scratch)
    return Releases(held, weight, history.finished)


def _add_scaled(target: Vector, rows: slice | NDArray[np.int64], factor: float, source: Vector, scratch: Vector) -> None:
    """target[rows] += factor * source[rows]; for all rows without a fresh array, whose page faults cost more than the sum."""
    if isinstance(rows, slice):
        np.multiply(source, factor, out=scratch)
        target += scratch
    else:
        target[rows] += factor * source[rows]
