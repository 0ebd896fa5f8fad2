"""Curves from binned times hold what the records give without bins, under noise; what forgets the bins or their side does not.

100 studies, 12 points of each: where an interval holds in 95 % of the studies at every point, some point of the two curves below
holds in fewer than 82 of 100 in less than 1 of 80 000 cases. Wrong are labels at the wrong end, as if times were half a bin
later, and half of the withdrawals without what the bins leave open.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from numpy.typing import NDArray
from statsmodels.duration.hazard_regression import PHReg

from quietmean.statistics import Column, Columns
from support.coverage import workload_of

Array = NDArray[np.float64]

# Gaussian mu at delta 1e-6 of epsilon 4, about.
MU, COUNT, STUDIES, SEED = 0.83, 4000, 100, 20_611
LEAST = 82


def draw(rng: np.random.Generator) -> Array:
    """Whole years, many of them withdrawn: 12 is the end for all who are left."""
    event, leaves = np.ceil(rng.exponential(7.0, COUNT)), rng.integers(1, 20, COUNT)
    return np.column_stack([np.minimum(np.minimum(event, leaves), 12), (event <= leaves) & (event <= 12)]).astype(np.float64)


def worst(*, whole: bool, later: float = 0.0, forget_bins: bool = False) -> int:
    """In how many studies the interval of the noise holds the curve of the records, at the worst of 12 points."""
    columns = Columns([Column(name="years", low=0, high=13, whole=whole), Column(name="died", boolean=True)])
    workload = workload_of(columns, "survival(years, died, horizon=12, bins=12)")
    noise, held = math.sqrt(1.2) * workload.sensitivity / MU / COUNT, np.zeros(12, dtype=np.int64)
    for seed in range(STUDIES):
        rng = np.random.default_rng((SEED, seed))
        records = draw(rng)
        right = KaplanMeierFitter().fit(records[:, 0], records[:, 1]).survival_function_at_times(np.arange(1, 13)).to_numpy()
        moved = records + np.array([later, 0.0])
        mean = workload.of_records(moved).mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        found = workload.decode(mean, noise, COUNT)[0].estimates
        ends = found.of_noise[:12].copy()
        if forget_bins:
            assert found.resolution is not None
            ends += found.resolution[:12] * [1.0, -1.0]
        held += (ends[:, 0] <= right + 1e-12) & (right <= ends[:, 1] + 1e-12) & np.isfinite(found.value[:12])
    return int(held.min())


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_the_curve_of_the_records_is_inside(whole: bool) -> None:
    assert worst(whole=whole) >= LEAST


@pytest.mark.slow
def test_labels_at_the_wrong_end_are_found() -> None:
    assert worst(whole=False, later=0.5) < LEAST


@pytest.mark.slow
def test_half_of_the_withdrawals_without_what_bins_leave_open_is_found() -> None:
    assert worst(whole=False, forget_bins=True) < LEAST


RATIO, LEAST_OF_ONE = 0.6, 86


def heaped(rng: np.random.Generator, count: int) -> Array:
    """Days of two arms, hazards in proportion RATIO, where all events of ten days are on the first of them."""
    arm = rng.integers(0, 2, count)
    event = 10 * np.floor(rng.exponential(1 / np.where(arm == 1, 0.25 * RATIO, 0.25))) + 1
    leaves = np.minimum(rng.integers(1, 160, count), 120)
    return np.column_stack([np.minimum(event, leaves), event <= leaves, arm]).astype(np.float64)


def ratio_of(records: Array, ties: str) -> float:
    """As statsmodels has it from the days themselves."""
    fit = PHReg(records[:, 0], records[:, 2:], status=records[:, 1], ties=ties).fit()
    return math.exp(float(fit.params[0]))


@pytest.mark.slow
def test_hazard_ratios_hold_where_hazards_step_inside_bins() -> None:
    """In 86 of 100 studies, seed 20 612, at least: a true coverage of 95 % has fewer in 1 of 1500 cases.

    The interval of the population holds the ratio, that of the noise what Efron's likelihood gives for the exact days of these
    records. What Breslow's gives is another number, and the same test finds it.
    """
    columns = Columns(
        [Column(name="day", low=0, high=120, whole=True), Column(name="ill", boolean=True), Column(name="arm", levels=("a", "b"))]
    )
    workload, count = workload_of(columns, "hazard-ratio(day, ill, by=arm, horizon=120, bins=12)"), 10_000
    noise, held = math.sqrt(1.2) * workload.sensitivity / MU / count, dict.fromkeys(("truth", "efron", "breslow"), 0)
    for study in range(STUDIES):
        rng = np.random.default_rng((SEED + 1, study))
        records = heaped(rng, count)
        mean = workload.of_records(records).mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        found = workload.decode(mean, noise, count)[0].estimates
        assert found.of_population is not None
        held["truth"] += bool(found.of_population[0, 0] <= RATIO <= found.of_population[0, 1])
        for ties in ("efron", "breslow"):
            held[ties] += bool(found.of_noise[0, 0] <= ratio_of(records, ties) <= found.of_noise[0, 1])
    print(f"seed {SEED + 1}: of {STUDIES} hold {held}")
    assert min(held["truth"], held["efron"]) >= LEAST_OF_ONE
    assert held["breslow"] < LEAST_OF_ONE
