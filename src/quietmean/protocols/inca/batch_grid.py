"""IncA on a grid for all parties and coordinates at once: the machines' numbers, to the unit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.grid import LARGEST_UNITS, Units, divide, from_units, to_units
from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule, mixing_matrix
from quietmean.protocols.inca.numbers import rounded, too_large
from quietmean.protocols.inca.rounds import injection_groups
from quietmean.protocols.inca.spec import IncaParameters
from quietmean.protocols.protocol import Releases


def run_batch_on_grid(
    parameters: IncaParameters,
    schedule: Schedule,
    history: History,
    values: Vector,
    weights: NDArray[np.float64],
    noise: PopulationNoise,
) -> Releases:
    """Vectors exactly as the machines have them, weights up to rounding."""
    noisy_values = values + noise.normal("star", 0, values.shape[1]) * parameters.sigma_star
    delivered, acknowledged = history.delivered(schedule), history.acknowledged(schedule)
    settled = history.settled_slots(schedule)
    kept_although_used: list[tuple[int, int, Units, float]] = []
    held, weight = np.zeros(values.shape, dtype=np.int64), np.zeros(len(values))
    for round_ in range(schedule.rounds + 1):
        if round_ > 0:
            parts = schedule.out_degree[round_ - 1] + 1
            shares, its_weight = divide(held, parts[:, None]), weight / parts
            used = [(sender, later) for earlier, sender, _, later in settled if earlier == round_]
            kept_although_used += [(later, sender, shares[sender], its_weight[sender]) for sender, later in used]
            held -= acknowledged[round_ - 1].sum(axis=1)[:, None] * shares
            _hand_over(held, shares, schedule, delivered, round_)
            weight = np.asarray(mixing_matrix(schedule, delivered, round_) @ weight)
            for sender, _ in used:
                weight[sender] += its_weight[sender]
            for _, sender, share, told in (entry for entry in kept_although_used if entry[0] == round_):
                held[sender], weight[sender] = held[sender] - share, weight[sender] - told
        for members, portion, terms in injection_groups(parameters, history, round_):
            weight[members] += portion * weights[members]
            injected = noisy_values[members] * portion
            for index, coefficient in terms:
                drawn = noise.normal("delta", index, values.shape[1])[members]
                injected = injected + drawn * (coefficient * parameters.sigma_delta)
            held[members] += to_units(rounded(injected, parameters.grid), parameters.grid)
        if np.abs(held).max(initial=0) >= LARGEST_UNITS:
            raise too_large(parameters.grid)
    return Releases(from_units(held, parameters.grid), weight, history.finished)


def _hand_over(held: Units, shares: Units, schedule: Schedule, delivered: NDArray[np.bool_], round_: int) -> None:
    """Add to each receiver's holdings what arrived, slot by slot: no party has two messages from one sender in a round."""
    for slot in range(schedule.neighbours.shape[2]):
        senders = np.nonzero(delivered[round_ - 1, :, slot])[0]
        np.add.at(held, schedule.neighbours[round_ - 1, senders, slot], shares[senders])
