"""The worst coalition of secure aggregation: of how many parties the noise stays unknown to any coalition of a size."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.graphs import Schedule
from quietmean.protocols.secagg.batch import SecAggOutcome
from quietmean.protocols.secagg.neighbourhood import assess
from quietmean.protocols.secagg.spec import SecAggParameters

# A random graph that fails with a larger probability is not relied on.
LEAST_BITS = 39.0


def least_unknown(parameters: SecAggParameters, schedule: Schedule, counted: int, size: int) -> tuple[int, float]:
    """The shares of noise that no coalition of ``size`` knows, and the chance over the random graph that this fails.

    ``counted`` parties are in the sum. Fewer colluders than the threshold open no mask, and masks connect all honest parties: for
    certain where all pairs share one, else but for that chance, for coalitions that were fixed before the graph was drawn. What
    the colluders can open leaves a party its own share.
    """
    if counted < 1:
        return 0, 0.0
    hidden = max(1, counted - size)
    if parameters.neighbours is None or schedule.all_paired:
        return (hidden if size < parameters.threshold else 1), 0.0
    parties = schedule.parties
    neighbourhood = assess(parties, size, parties - counted, parameters.neighbours, parameters.threshold)
    return (hidden, 2.0**-neighbourhood.security_bits) if neighbourhood.security_bits >= LEAST_BITS else (1, 0.0)


def least_unknown_of_each(
    parameters: SecAggParameters, schedule: Schedule, outcome: SecAggOutcome, size: int
) -> tuple[Ints, float]:
    """:func:`least_unknown` of each party after a run, shape (n,): 0 for those of whom no coalition sees anything.

    An input that was handed over and is in no sum shows itself only to those who hold enough shares of both its secrets.
    """
    unknown, chance = least_unknown(parameters, schedule, int(outcome.requested.sum()), size)
    alone = int(_opens_one(parameters, schedule, size))
    return np.where(outcome.requested, unknown, np.where(outcome.handed, alone, 0)), chance


def _opens_one(parameters: SecAggParameters, schedule: Schedule, size: int) -> bool:
    """Can ``size`` parties hold enough shares of some other one's secrets?"""
    if parameters.neighbours is None or schedule.all_paired:
        return size >= parameters.threshold
    neighbourhood = assess(schedule.parties, size, 0, parameters.neighbours, parameters.threshold)
    return neighbourhood.security_bits < LEAST_BITS
