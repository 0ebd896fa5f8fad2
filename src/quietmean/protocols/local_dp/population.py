"""Local DP for all parties at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import History, Schedule
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.protocols.local_dp.protocol import LocalDpParameters


def population(
    parameters: LocalDpParameters,
    schedule: Schedule,
    history: History,
    values: Rows,
    weights: NDArray[np.float64],
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Whoever stays releases its noisy value."""
    noisy = out.release(values + noise.normal("star", 0, parameters.sigma), history.finished, 2)
    return Results(noisy, weights, history.finished)
