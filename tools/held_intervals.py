"""Released statistics under Gaussian noise, study after study, and how often their intervals and tests are right.

Noise has sqrt(1.2) times the standard deviation that one trusted curator would add, at delta 1e-6, under replacement of a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from exact_intervals import Array, Interval
from scipy import stats

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Columns, Estimates, Workload, parse_statistic, read_text

Draw = Callable[[np.random.Generator, int], Array]

DELTA, FACTOR = 1e-6, math.sqrt(1.2)


def workload_of(columns: Columns, text: str) -> Workload:
    return Workload(columns, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)


def noise_of(workload: Workload, epsilon: float, records: float) -> float:
    """The standard deviation on each coordinate of the mean."""
    return FACTOR * workload.sensitivity / mu_of_budget(epsilon, DELTA) / records


def decoded(workload: Workload, mean: Array, noise: float, records: float) -> Estimates:
    return workload.decode(mean, noise, records)[0].estimates


def noisy(workload: Workload, mean: Array, epsilon: float, records: float, rng: np.random.Generator) -> Estimates:
    """One release of the statistic."""
    noise = noise_of(workload, epsilon, records)
    return decoded(workload, mean + noise * rng.standard_normal(len(mean)), noise, records)


def studies(
    workload: Workload, population: Array | Draw, size: int, epsilon: float, draws: Iterable[np.random.Generator]
) -> Iterator[tuple[Array, Estimates]]:
    """Records and their release, one study for each generator: drawn with replacement from a table, or made by a function."""
    encoded = np.zeros((0, 0)) if callable(population) else workload.of_records(population)
    for rng in draws:
        if callable(population):
            records = population(rng, size)
            mean = workload.of_records(records).mean(axis=0)
        else:
            drawn = rng.integers(0, len(population), size)
            records, mean = population[drawn], np.bincount(drawn, minlength=len(population)) @ encoded / size
        yield records, noisy(workload, mean, epsilon, size, rng)


def holds(low: float, high: float, value: float) -> bool:
    slack = 1e-9 * max(abs(value), 1e-9)
    return low - slack <= value <= high + slack


def proportion_interval(count: int, total: int, level: float = 0.99) -> tuple[float, float]:
    """The interval of Clopper and Pearson."""
    found = stats.binomtest(count, total).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


@dataclass
class Held:
    """What came of one term over studies: whose intervals hold, which are flagged, and widths.

    ``known``: studies that show it; ``asked``: those of them that have an interval of the population; ``exact``: whose exact
    interval holds; ``good``: that hold the truth, or would, by the exact interval where nothing is shown.
    """

    studies: int = 0
    known: int = 0
    asked: int = 0
    population: int = 0
    noise: int = 0
    exact: int = 0
    good: int = 0
    flagged: int = 0
    flagged_good: int = 0
    tested: int = 0
    rejected: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    widths: list[float] = field(default_factory=list)
    exact_widths: list[float] = field(default_factory=list)
    bins: list[float] = field(default_factory=list)

    def add(self, found: Estimates, term: str, truth: float, exact: Interval) -> None:
        place = found.terms.index(term)
        # What is said of privacy says nothing about how well an answer is known.
        about = {flag.code for flag in found.flags if term in flag.terms or not flag.terms} - {"sites-seen"}
        known = math.isfinite(float(found.value[place]))
        self.studies += 1
        self.codes.update(about)
        good = of_exact = holds(exact[1], exact[2], truth)
        self.exact += of_exact
        if known:
            self.known += 1
            self.noise += holds(float(found.of_noise[place, 0]), float(found.of_noise[place, 1]), exact[0])
        if known and found.of_population is not None:
            low, high = found.of_population[place].tolist()
            good = holds(low, high, truth)
            self.asked += 1
            self.population += good
            if math.isfinite(high - low) and math.isfinite(exact[2] - exact[1]):
                self.widths.append(high - low)
                self.exact_widths.append(exact[2] - exact[1])
                open_ = 0.0 if found.resolution is None else float(found.resolution[place].sum())
                self.bins.append(min(open_ / (high - low), 1.0) if high > low else 0.0)
        flagged = bool(about) or not known
        self.good += good
        self.flagged += flagged
        self.flagged_good += flagged and good
