"""Bars of times in bins: part of ``statistics_bars.py``.

Default options, 12 bins unless said, 2000 and 10,000 records, epsilon 4. Rows of real data are drawn anew with replacement: they
are the population, and what lifelines says of them is the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

EPSILON, DELTA, SEED = 4.0, 1e-6, 20_631
SIZES = (2000, 10_000)


@dataclass(frozen=True)
class Population:
    """A statistic of times, and the true values of some of its terms."""

    what: str
    columns: Columns
    draw: Draw
    text: str
    truth: dict[str, float]


@dataclass
class Held:
    """Of one term, sums over studies: known, whose interval holds, flagged as coarse, and the part of the width that bins are."""

    known: int = 0
    held: int = 0
    coarse: int = 0
    bins: float = 0.0


def measured(population: Population, size: int, seeds: int) -> dict[str, Held]:
    """Of the population's intervals, by term."""
    workload = Workload(population.columns, (parse_statistic(read_text(population.text)),), PrivacyUnit.RECORD)
    noise = math.sqrt(1.2) * workload.sensitivity / mu_of_budget(EPSILON, DELTA) / size
    found = {term: Held() for term in population.truth}
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, size, seed))
        mean = workload.of_records(population.draw(rng, size)).mean(axis=0)
        study = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, size)[0].estimates
        ends, open_ = study.of_population, study.resolution
        if ends is None or open_ is None:
            continue
        for term, held in found.items():
            place = study.terms.index(term)
            low, high = ends[place].tolist()
            if not math.isfinite(study.value[place]):
                continue
            held.known += 1
            held.held += low <= population.truth[term] <= high
            held.coarse += any(flag.code == "coarse-bins" and term in flag.terms for flag in study.flags)
            held.bins += float(open_[place].sum()) / (high - low) if 0 < high - low < math.inf else 0.0
    return found


def _columns(high: float, *, whole: bool = False) -> Columns:
    time = Column(name="t", low=0, high=high, whole=whole)
    return Columns([time, Column(name="e", boolean=True), Column(name="arm", levels=("a", "b"))])


def _rows(event: Array, leaves: Array, arm: Array) -> Array:
    return np.column_stack([np.minimum(event, leaves), event <= leaves, arm]).astype(np.float64)


def populations() -> Iterator[Population]:
    for median in (500, 560, 624, 680):
        yield _exponential(float(median))
    yield from _weibull()
    yield _whole_years()
    yield from _real()


def _exponential(median: float) -> Population:
    scale = median / math.log(2)

    def draw(rng: np.random.Generator, size: int) -> Array:
        leaves = np.minimum(rng.uniform(200, 3000, size), 1800.0)
        return _rows(rng.exponential(scale, size), leaves, np.zeros(size))

    quartiles = {"lower-quartile all": scale * math.log(4 / 3), "median all": median, "upper-quartile all": scale * math.log(4)}
    edges = {f"all {edge}": math.exp(-edge / scale) for edge in (150, 900, 1800)}
    return Population(f"exponential, median {median:g}", _columns(1800), draw, "survival(t, e)", quartiles | edges)


def _weibull() -> Iterator[Population]:
    """Of shape 1/2, which falls steeply at first; a true hazard ratio of 1/2."""

    def draw(rng: np.random.Generator, size: int) -> Array:
        arm = (rng.random(size) < 0.5).astype(np.float64)
        event = 400.0 * (rng.exponential(1.0, size) / np.where(arm > 0, 0.5, 1.0)) ** 2
        return _rows(event, np.minimum(rng.uniform(200, 3000, size), 1825.0), arm)

    def area(hazard: float) -> float:
        root = hazard * math.sqrt(1825 / 400)
        return 800 / hazard**2 * (1 - math.exp(-root) * (1 + root))

    means = {"a": area(1.0), "b": area(0.5), "difference": area(0.5) - area(1.0)}
    medians = {"median a": 400 * math.log(2) ** 2, "median b": 1600 * math.log(2) ** 2}
    for text, truth in (
        ("hazard-ratio(t, e, by=arm)", {"b/a": 0.5}),
        ("restricted-mean(t, e, by=arm)", means),
        ("survival(t, e, by=arm)", medians),
    ):
        yield Population("Weibull of shape 1/2", _columns(1825), draw, text, truth)


def _whole_years() -> Population:
    def draw(rng: np.random.Generator, size: int) -> Array:
        event, leaves = np.ceil(rng.exponential(9.0, size)), rng.integers(1, 20, size).astype(np.float64)
        return _rows(event, np.minimum(leaves, 12.0), np.zeros(size))

    truth = {"median all": 7.0} | {f"all {year}": math.exp(-year / 9) for year in (1, 6, 12)}
    return Population("whole years, one a bin", _columns(12, whole=True), draw, "survival(t, e)", truth)


def _real() -> Iterator[Population]:
    from lifelines import KaplanMeierFitter
    from lifelines.datasets import load_stanford_heart_transplants, load_waltons

    waltons, heart = load_waltons(), load_stanford_heart_transplants()
    last = heart.sort_values(["id", "stop"]).groupby("id").last()
    for name, time, event, high in (
        ("waltons", waltons["T"], waltons["E"], 80.0),
        ("stanford_heart_transplants", last["stop"], last["event"], 1800.0),
    ):
        records = np.column_stack([time, event, np.zeros(len(time))]).astype(np.float64)
        fitted = KaplanMeierFitter().fit(records[:, 0], records[:, 1])
        steps = fitted.survival_function_.iloc[:, 0]
        truth = {"median all": float(fitted.median_survival_time_)}
        truth |= {f"all {edge:g}": float(steps[steps.index <= edge].iloc[-1]) for edge in (high / 4, high / 2)}

        def draw(rng: np.random.Generator, size: int, records: Array = records) -> Array:
            return records[rng.integers(0, len(records), size)]

        yield Population(f"{name} (lifelines)", _columns(high), draw, "survival(t, e)", truth)
