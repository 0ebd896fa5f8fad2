"""All parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace, Flow, Schedule
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def population(
    sigmas: tuple[float, float],
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: NDArray[np.float64],
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Whoever stays publishes its value under its own noise and that of its pairs."""
    sigma_star, sigma_delta = sigmas
    pairs = schedule.pairs
    shared = noise.shared_normal(pairs, "delta", 0, sigma_delta)
    # Each pair is in two rows: the larger number adds what they share, the smaller subtracts it.
    signs = np.tile([-1.0, 1.0], len(pairs))
    masks = Flow.of((schedule.parties, len(pairs)), pairs.ravel(), np.repeat(np.arange(len(pairs)), 2), signs) @ shared
    hidden = values + noise.normal("star", 0, sigma_star) + masks
    return Results(out.release(hidden, trace.finished, 2), weights, trace.finished)
