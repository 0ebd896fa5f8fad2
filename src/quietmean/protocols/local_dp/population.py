"""Local DP for all parties at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.core.noise import NoiseGroup
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def population(
    sigma: float,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: NDArray[np.float64],
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Whoever stays releases its noisy value."""
    noisy = out.release(values + noise.normal(NoiseGroup.INDEPENDENT, 0, sigma), trace.finished, 2)
    return Results(noisy, weights, trace.finished)
