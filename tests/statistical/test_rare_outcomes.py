"""Recalibration where outcomes are rare: log odds that nobody has must not hide it with their noise.

7 of 100 records have the outcome, and predictions are right. Of 30 studies at most 4 may show no slope: where one in 25 shows
none, more do for a chance of 1 in 150; where a third do, as if all log odds are looked at, so few do for a chance of 1 in 80.
"""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.statistics import Column, Columns, Estimates
from support.workloads import released, workload_of

# Gaussian mu at delta 1e-6 of epsilon 4, about.
MU, COUNT, STUDIES, SEED = 0.83, 2000, 30, 20_741
COLUMNS = Columns([Column(name="p", low=0, high=1), Column(name="y", boolean=True)])


def studies() -> list[Estimates]:
    workload, found = workload_of(COLUMNS, "calibration(p, y)"), []
    for seed in range(STUDIES):
        rng = np.random.default_rng((SEED, seed))
        p = 1 / (1 + np.exp(3.0 - rng.standard_normal(COUNT)))
        found.append(released(workload, np.column_stack([p, rng.random(COUNT) < p]).astype(np.float64), MU, rng))
    return found


@pytest.mark.slow
def test_a_slope_is_known_and_its_interval_holds_1() -> None:
    """Where it holds in 95 % of studies, it does in all but 5 of 30, but for a chance of 1 in 300."""
    found = studies()
    place = found[0].terms.index("slope")
    ends = [one.of_population[place] for one in found if np.isfinite(one.value[place]) and one.of_population is not None]
    assert len(ends) >= STUDIES - 4
    assert sum(bool(low <= 1 <= high) for low, high in ends) >= len(ends) - 5
