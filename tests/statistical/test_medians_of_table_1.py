"""Medians and quartiles in the groups of a Table 1: both intervals hold, with noise and sampling, on skewed and on whole numbers.

Each of 24 intervals is made REPETITIONS times. One that holds in 93 % or more of all studies holds in fewer than LEAST of
these with a probability below 1e-4, all 24 together below 2.4e-3. The seed is fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns
from support.workloads import workload_of

SEED, RECORDS, EPSILON = 20, 2000, 4.0
REPETITIONS = 300
LEAST = int(stats.binom.ppf(1e-4, REPETITIONS, 0.93))
COLUMNS = Columns(
    [
        Column(name="cost", low=1, high=1e6, scale="log"),
        Column(name="stay", low=0, high=60, whole=True),
        Column(name="arm", levels=("a", "b")),
    ]
)
QUARTERS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


def drawn(rng: np.random.Generator, count: int) -> np.ndarray:
    arm = rng.integers(0, 2, count)
    cost = np.clip(np.exp(rng.normal(7 + 0.5 * arm, 1.5)), 1, 1e6)
    return np.column_stack([cost, np.minimum(rng.geometric(0.2 - 0.05 * arm), 60), arm]).astype(np.float64)


@pytest.mark.slow
def test_intervals_of_medians_hold() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    workload = workload_of(COLUMNS, "table-1(cost, stay, by=arm, medians=true)")
    deviation = math.sqrt(1.2) * workload.sensitivity / mu_of_budget(EPSILON, 1e-6) / RECORDS
    many = drawn(rng, 2_000_000)
    truth = {
        f"{group} {name} {term}": float(np.quantile(many[many[:, 2] == place, column], part))
        for place, group in enumerate("ab")
        for column, name in enumerate(("cost", "stay"))
        for term, part in QUARTERS.items()
    }
    population, noise = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for _ in range(REPETITIONS):
        records = drawn(rng, RECORDS)
        mean = workload.of_records(records).mean(axis=0)
        found = workload.decode(mean + deviation * rng.standard_normal(len(mean)), deviation, RECORDS)[0].estimates
        for term, exactly in truth.items():
            place = found.terms.index(term)
            group, name, *quantile = term.split(" ", 2)
            own = records[records[:, 2] == "ab".index(group), 0 if name == "cost" else 1]
            of_records = float(np.quantile(own, QUARTERS[" ".join(quantile)], method="inverted_cdf"))
            assert found.of_population is not None
            population[term] += found.of_population[place, 0] <= exactly <= found.of_population[place, 1]
            noise[term] += found.of_noise[place, 0] <= of_records <= found.of_noise[place, 1]
    print(population, noise)
    assert min(population.values()) >= LEAST
    assert min(noise.values()) >= LEAST
