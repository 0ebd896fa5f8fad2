"""What to expect of statistics before a study: the widths of their intervals, from public numbers only.

A public table is made up from bounds, levels and guesses: numbers with the guessed mean and standard deviation, and columns that
are independent of each other, but for a statistic that asks how they go together, of which such records tell nothing. It is
encoded, and decoded as if it had the planned noise: so every kind of statistic has its own errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from scipy.stats import qmc

from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates, Z, known
from quietmean.statistics.kinds.linear_regression import INTERCEPT
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.transforms import Transform
from quietmean.statistics.workload import Workload

Array = NDArray[np.float64]
Pair = tuple[float, float]

# Without a guess the standard deviation is anything between these parts of the bounds' width.
SPREADS = (0.1, 1 / 3)
# The one that stands for them where a single number is needed.
USUAL_SPREAD = 0.25
_ROWS = 2048
# A term without bounds of its own is hopeless where noise is so many times its sampling error: an interval that ignored the noise
# would hold the truth in 16 % of all studies.
_MOST_NOISE = 10.0
_LARGEST_FACTOR = 2.0**40
_STEPS = 48
# The correlation of each column with the one before it, where a statistic asks for relations.
_RELATION = 0.5
# So small a noise that errors are linear in it, per record of the public table.
_TINY = 1e-6


def made_up(columns: Columns, spread: float, relation: float = 0.0) -> Array:
    """A public table of the columns, (rows, columns), without missing cells; the same on every machine.

    ``spread``: the standard deviation of a column without a guess, in widths of its bounds. ``relation``: the correlation of the
    ranks of each column, about, with those of the one before it.
    """
    # Any two columns are nearly independent: in random order they would not be to 2 %.
    places = (qmc.Sobol(len(columns), scramble=False).random_base2(_ROWS.bit_length() - 1) * _ROWS).astype(np.int64)
    if relation:
        places = _related(places, relation)
    found: dict[str, Array] = {}
    for place, column in enumerate(columns):
        if column.origin:
            found[column.name] = Transform(column.origin).values(found)
        else:
            found[column.name] = _sorted(column, spread)[places[:, place]]
    return np.column_stack(list(found.values()))


def _related(places: NDArray[np.int64], relation: float) -> NDArray[np.int64]:
    """Ranks by column, (rows, columns), from independent ones: those of a normal autoregression along the columns."""
    scores = ndtri((places + 0.5) / _ROWS)
    for place in range(1, scores.shape[1]):
        scores[:, place] = relation * scores[:, place - 1] + math.sqrt(1 - relation**2) * scores[:, place]
    return scores.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")


def _sorted(column: Column, spread: float) -> Array:
    """The values of one column, rising, (rows,)."""
    places = (np.arange(_ROWS) + 0.5) / _ROWS
    if not column.numeric:
        count = len(column.categories)
        parts = np.array(column.guess or (1 / count,) * count)
        return np.minimum(np.searchsorted(np.cumsum(parts), places), count - 1).astype(np.float64)
    mean, deviation = (
        ((column.guess[0] - column.low) / column.width, column.guess[1] / column.width) if column.guess else (0.5, spread)
    )
    mean = min(max(mean, 1e-3), 1 - 1e-3)
    # A beta distribution has any mean, and up to nearly any variance.
    size = mean * (1 - mean) / min(deviation**2, 0.95 * mean * (1 - mean)) - 1
    inverse = np.asarray(betaincinv(mean * size, (1 - mean) * size, places), dtype=np.float64)
    return column.low + column.width * inverse


@dataclass(frozen=True, eq=False)
class Expected:
    """One statistic before a study. Pairs are ranges over what may be guessed of the spreads, in the units of its terms.

    ``noise`` and ``population``: widths of the two intervals of its principal term, the one with the median part of noise.
    ``ratio``: noise over sampling error. ``hopeless``: none of its terms gets known better than its bounds tell already.
    ``records`` and ``less_noise``: how many times as many records, or as little noise, would do; 1 if it is not hopeless.
    """

    statistic: Statistic
    budget_part: float
    term: str
    noise: Pair
    population: Pair | None
    ratio: Pair
    hopeless: bool
    records: float = 1.0
    less_noise: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.statistic.text,
            "term": self.term,
            "budget_part": self.budget_part,
            "width_noise": known(list(self.noise)),
            "width_population": None if self.population is None else known(list(self.population)),
            "noise_over_sampling": known(list(self.ratio)),
            "hopeless": self.hopeless,
        }


@dataclass(frozen=True, eq=False)
class Expectation:
    """The statistics of a workload for so many public ``records`` (parties, if they are the unit).

    ``noise``: the standard deviation that a study adds to each coordinate of the total of all records' vectors. ``step``: that of
    its grid, so that the study decodes with the same matrices.
    """

    workload: Workload
    noise: float
    records: float
    step: float = 0.0

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        return tuple(self._of(statistic) for statistic in self.workload.statistics)

    @cached_property
    def _spreads(self) -> tuple[float, ...]:
        guessed = all(column.guess or column.origin or not column.numeric for column in self.workload.columns)
        return (USUAL_SPREAD,) if guessed else (SPREADS[0], USUAL_SPREAD, SPREADS[1])

    @cached_property
    def _means(self) -> dict[Pair, Array]:
        """Mean vectors of public tables so far, by spread and relation."""
        return {}

    def _mean(self, spread: float, relation: float) -> Array:
        if (spread, relation) not in self._means:
            table = made_up(self.workload.columns, spread, relation)
            self._means[spread, relation] = self.workload.of_records(table, step=self.step).mean(axis=0)
        return self._means[spread, relation]

    def _estimates(self, statistic: Statistic, spread: float, more: float = 1.0, less_noise: float = 1.0) -> Estimates:
        weight = self.records * more
        mean = self._mean(spread, _relation(statistic))
        released = self.workload.decoder(self.step).released(mean, self.noise / less_noise / weight, weight)
        return statistic.decode(released, self.workload.declared)

    def _of(self, statistic: Statistic) -> Expected:
        found = [self._estimates(statistic, spread) for spread in self._spreads]
        term = principal(found[len(found) // 2])
        widths = [_width(one.of_noise[term]) for one in found]
        both = [None if one.of_population is None else _width(one.of_population[term]) for one in found]
        ratios = [float(noise_over_sampling(one)[term]) for one in found]
        hopeless = self._is_hopeless(statistic, 1.0, 1.0)
        return Expected(
            statistic,
            self.workload.budget_part(statistic),
            found[0].terms[term],
            (min(widths), max(widths)),
            None if None in both else (min(one for one in both if one is not None), max(one for one in both if one is not None)),
            (min(ratios), max(ratios)),
            hopeless,
            *(
                (
                    _smallest(lambda factor: not self._is_hopeless(statistic, factor, 1.0)),
                    _smallest(lambda factor: not self._is_hopeless(statistic, 1.0, factor)),
                )
                if hopeless
                else (1.0, 1.0)
            ),
        )

    def _is_hopeless(self, statistic: Statistic, more: float, less_noise: float) -> bool:
        """Under every spread."""
        return all(hopeless(self._estimates(statistic, spread, more, less_noise)) for spread in self._spreads)


def _relation(statistic: Statistic) -> float:
    return _RELATION if statistic.asks_for_relations else 0.0


def noise_over_sampling(found: Estimates) -> Array:
    """By term, (terms,); infinite where there is no sampling error or noise hides the term."""
    if found.population is None:
        return np.full(len(found.terms), math.inf)
    with np.errstate(all="ignore"):
        sampling = np.sqrt(np.maximum(found.population**2 - found.standard_error**2, 0.0))
        ratio = np.where(sampling > 0, found.standard_error / sampling, np.where(found.standard_error > 0, math.inf, 0.0))
    unknown: Array = np.where(np.isfinite(found.value) & np.isfinite(found.standard_error), ratio, math.inf)
    return unknown


def principal(found: Estimates) -> int:
    """The place of the term with the median part of noise; an intercept is nobody's question."""
    ratio = noise_over_sampling(found)
    order = [place for place in np.argsort(ratio, kind="stable").tolist() if found.terms[place] != INTERCEPT] or [0]
    return int(order[(len(order) - 1) // 2])


def hopeless(found: Estimates) -> bool:
    """Is no term known better than its bounds tell already?"""
    room = found.high - found.low
    within = np.where(np.isfinite(room), 2 * Z * found.standard_error < room, noise_over_sampling(found) <= _MOST_NOISE)
    return not bool((within & np.isfinite(found.value) & np.isfinite(found.standard_error)).any())


def shares_by_widths(workload: Workload) -> tuple[float, ...]:
    """Shares that make the sum of squared widths, each relative to its sampling error, least; of all statistics, in their order.

    Weights sqrt(kappa / D) of features, kappa the noise of a statistic's principal estimate over its sampling error: shares
    kappa D. With three digits, so that all machines have the same; times the shares that the study declares.
    """
    found = []
    for statistic in workload.statistics:
        alone = Workload(workload.columns, (statistic,), workload.unit)
        mean = alone.of_records(made_up(workload.columns, USUAL_SPREAD, _relation(statistic))).mean(axis=0)
        # Both errors are of so many records; their number is the same for all.
        estimates = alone.decode(mean, _TINY * alone.sensitivity, float(_ROWS))[0].estimates
        ratio = noise_over_sampling(estimates)
        kappa = float(ratio[principal(estimates)])
        found.append(kappa / _TINY if math.isfinite(kappa) and kappa > 0 else math.nan)
    usual = float(np.nanmedian(found)) if np.isfinite(found).any() else 1.0
    # What has no sampling error, such as a count of all records, gets as much as is usual.
    relative = [(usual if math.isnan(one) else one) / usual for one in found]
    return tuple(
        float(f"{statistic.total_share(workload.declared) * one:.3g}")
        for statistic, one in zip(workload.statistics, relative, strict=True)
    )


def best_bins(column: Column, records: float, noise: float) -> int:
    """How many bins of equal width show a distribution best: least integrated squared error of the histogram as a density.

    ``noise``: the standard deviation in the part of the records in one bin. The error has a part from the width of the bins (of a
    normal distribution with the guessed deviation), one from sampling, and one from noise.
    """
    deviation = column.guess[1] if column.guess else USUAL_SPREAD * column.width
    bins = np.arange(2, 201)
    width = column.width / bins
    rough = width**2 / (12 * 4 * math.sqrt(math.pi) * deviation**3)
    error = rough + 1 / (records * width) + column.width * noise**2 / width**2
    return int(bins[int(np.argmin(error))])


def _width(ends: Array) -> float:
    return float(ends[1] - ends[0])


def _smallest(does: Callable[[float], bool]) -> float:
    """The smallest factor that does, rounded up a little; infinite if none does. More never does less."""
    low, high = 1.0, 2.0
    while not does(high):
        low, high = high, high * 2
        if high > _LARGEST_FACTOR:
            return math.inf
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
        if high / low < 1.01:
            break
    return high
