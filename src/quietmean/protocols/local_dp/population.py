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
    """Every party that stays releases its noisy value.

    ``values`` have n rows (d,), ``weights`` the shape (n,). ``sigma``: standard deviation of the noise.
    """
    noisy = out.release(values + noise.normal(NoiseGroup.INDEPENDENT, 0, sigma), trace.finished, 2)
    return Results(noisy, weights, trace.finished)
