"""How often intervals of statistics hold the population's value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]


def workload_of(columns: Columns, *texts: str) -> Workload:
    """Return the statistics of records that these texts ask for."""
    return Workload(columns, tuple(parse_statistic(read_text(text)) for text in texts), PrivacyUnit.RECORD)


def exact(workload: Workload, records: Array) -> Estimates:
    """Return what the first statistic of these records is without noise."""
    encoded = workload.encode(records)
    return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].estimates


def released(workload: Workload, records: Array, mu: float, rng: np.random.Generator, stated: float = 1.0) -> Estimates:
    """Return one study's result, with 1.2 times the variance of one trusted curator's noise.

    ``stated``: how much of the noise's deviation the study says that there is.
    """
    encoded = workload.encode(records)
    noise = math.sqrt(1.2) * workload.sensitivity / mu / len(records)
    mean = encoded.vector / encoded.weight + noise * rng.standard_normal(workload.dimension)
    return workload.decode(mean, noise * stated, encoded.weight)[0].estimates


@dataclass(frozen=True)
class Coverage:
    """Parts of the studies with a known result in which the interval holds, and one from sampling alone; how many they are.

    ``bins``: the part of the interval's width that is what bins leave open, on average; ``by_chance``: in which part of the
    studies the interval without it holds, as that of a value which bins do not move must.
    """

    held: float
    ignoring: float
    known: int
    bins: float
    by_chance: float

    @classmethod
    def of(cls, studies: Iterable[Estimates], place: int, truth: float) -> Coverage:
        """Of the term at ``place``."""
        held, ignoring, known, by_chance, bins = 0, 0, 0, 0, 0.0
        for found in studies:
            interval, population = found.of_population, found.population
            if interval is None or population is None or math.isnan(found.value[place]):
                continue
            known += 1
            low, high = interval[place]
            below, above = (0.0, 0.0) if found.resolution is None else found.resolution[place]
            held += bool(low <= truth <= high)
            by_chance += bool(low + below <= truth <= high - above)
            bins += float((below + above) / (high - low))
            sampling = math.sqrt(max(population[place] ** 2 - found.standard_error[place] ** 2, 0.0))
            ignoring += bool(abs(found.value[place] - truth) <= 1.96 * sampling)
        return cls(held / known, ignoring / known, known, bins / known, by_chance / known)

    def require_of_500(self) -> None:
        """Of 500 seeds, a true coverage of 95 % is inside but for a chance of 1 in 1500."""
        assert self.known >= 490, self
        assert 0.916 <= self.held <= 0.984, self
        assert self.ignoring < 0.916, f"noise makes no difference: {self}"
