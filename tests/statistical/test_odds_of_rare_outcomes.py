"""The interval of an odds ratio of rare outcomes, beside Fisher's conditional one of scipy, which knows the cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats.contingency import odds_ratio

from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns
from support.workloads import released, workload_of

COLUMNS = Columns([Column(name="arm", boolean=True), Column(name="ill", boolean=True)])
WORKLOAD = workload_of(COLUMNS, "crosstab(arm, ill)")
# Two and four in a hundred are ill.
RISKS = (0.02, 0.04)
TRUTH = math.prod((RISKS[1] / (1 - RISKS[1]), (1 - RISKS[0]) / RISKS[0]))
STUDIES, SEED = 200, 20_753


def studied(n: int, epsilon: float | None) -> tuple[int, int, int, list[float]]:
    """Of so many studies: those with an interval, those of these that hold the truth, those in which Fisher's does, and how long
    logarithms of the intervals are beside Fisher's; without noise if ``epsilon`` is None."""
    rng = np.random.default_rng([SEED, n, int(epsilon or 0)])
    mu = mu_of_budget(epsilon, 1e-6) if epsilon else math.inf
    known = held = fishers = 0
    widths = []
    for _ in range(STUDIES):
        arm = rng.integers(0, 2, n)
        ill = rng.random(n) < np.array(RISKS)[arm]
        answer = released(WORKLOAD, np.column_stack([arm, ill]).astype(np.float64), mu, rng)
        cells = [[int(((arm == group) & (ill == outcome)).sum()) for outcome in (1, 0)] for group in (1, 0)]
        exact = odds_ratio(np.array(cells), kind="conditional").confidence_interval(0.95)
        fishers += bool(exact.low <= TRUTH <= exact.high)
        place = answer.terms.index("odds-ratio")
        if math.isfinite(answer.value[place]):
            assert answer.of_population is not None
            low, high = np.asarray(answer.of_population[place]).tolist()
            known, held = known + 1, held + (low <= TRUTH <= high)
            if exact.low > 0 and math.isfinite(exact.high):
                widths.append(math.log(high / low) / math.log(exact.high / exact.low))
    return known, held, fishers, widths


@pytest.mark.parametrize("n", [500, *(pytest.param(n, marks=pytest.mark.slow) for n in (2000, 10_000))])
def test_it_holds_as_often_as_fishers_and_is_shorter(n: int) -> None:
    """Without noise; an exact interval of few cells is too long, of many it is the same."""
    known, held, fishers, widths = studied(n, None)
    assert known >= 0.97 * STUDIES
    assert held / known >= 0.9
    assert abs(held / known - fishers / STUDIES) < 0.03
    assert 0.8 < np.median(widths) < 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "epsilon", "least"), [(500, 4.0, 60), (2000, 1.0, 90), (2000, 4.0, 195), (10_000, 1.0, 195)])
def test_it_holds_with_noise_where_that_does_not_hide_a_cell(n: int, epsilon: float, least: int) -> None:
    """At 95 %, below 88 % of 60 or more are 1 in 40."""
    known, held, _, widths = studied(n, epsilon)
    assert known >= least
    assert held / known >= 0.88
    # Longer than what knows the cells.
    assert np.median(widths) > 0.95
