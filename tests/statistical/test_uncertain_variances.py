"""The interval of a mean holds where noise hides half of the variance: near an end of the bounds, and narrow.

Of 4000 studies with fixed seeds a true 95 % gives 93.9 % or more but for one time in a thousand. Degrees of freedom by the number
of records alone, as if the variance had no noise in it, hold in about 92 %.
"""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.block_summary import Summary

SEED, STUDIES, RECORDS, MIDDLE, DEVIATION = 20_761, 4000, 1000, -0.8, 0.05
LEAST = 0.95 - 3.1 * (0.05 * 0.95 / STUDIES) ** 0.5


def held() -> float:
    """In which part of the studies."""
    columns = Columns([Column(name="x", low=-1, high=1)])
    workload = Workload(columns, (parse_statistic(read_text("mean(x)")),), PrivacyUnit.RECORD)
    noise = workload.sensitivity / mu_of_budget(8.0, 1e-6) / RECORDS
    rng, found = np.random.default_rng(SEED), 0
    for _ in range(STUDIES):
        rows = MIDDLE + DEVIATION * rng.standard_normal((RECORDS, 1))
        mean = workload.of_records(rows).mean(axis=0)
        ends = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, RECORDS)[0].estimates.of_population
        assert ends is not None
        found += bool(ends[0, 0] <= MIDDLE <= ends[0, 1])
    print(f"seed {SEED}: {found} of {STUDIES}")
    return found / STUDIES


@pytest.mark.slow
def test_a_mean_whose_variance_is_uncertain() -> None:
    assert held() >= LEAST


@pytest.mark.slow
def test_degrees_by_the_records_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = property(lambda one: one.sampling_of_mean**2 / max(one.present - 1, 1.0))
    monkeypatch.setattr(Summary, "uncertainty_of_sampling", alone)
    assert held() < LEAST
