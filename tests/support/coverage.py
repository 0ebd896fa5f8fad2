"""How often intervals of statistics hold the population's value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics import Estimates

Array = NDArray[np.float64]


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
