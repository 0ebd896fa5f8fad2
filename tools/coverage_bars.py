"""Bars of both intervals with default options: part of ``statistics_bars.py``.

A population is a table, from which the records of a study are drawn with replacement, so that its truth is exact; or a way to
draw them. The interval of the population is held against the truth, that of the noise against what the same records say without
noise and bins (:mod:`exact_intervals`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from exact_intervals import Interval, Intervals
from numpy.typing import NDArray
from scipy import stats

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
Exact = Callable[[Array], Intervals]

EPSILON, DELTA, SEED = 4.0, 1e-6, 20_731
SIZES = (2000, 10_000)
LEAST, MOST, MOST_FLAGGED, FEW_BINS = 0.93, 0.98, 0.1, 0.1
# What says nothing about how well an answer is known.
_OF_PRIVACY = ("sites-seen",)


@dataclass(frozen=True)
class Population:
    """A statistic of records, and the true values of some of its terms.

    ``exact``: estimates and intervals of records, (rows, columns), by term. ``truth``: where the population is no table.
    """

    what: str
    columns: Columns
    text: str
    exact: Exact
    terms: tuple[str, ...]
    table: Array | None = None
    draw: Draw | None = None
    truth: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    def true_values(self) -> dict[str, float]:
        if self.table is None:
            return {term: self.truth[term] for term in self.terms}
        known = self.exact(self.table)
        return {term: known[term][0] for term in self.terms}


@dataclass
class Held:
    """Of one term, over studies: whose intervals hold, which are flagged, and widths."""

    studies: int = 0
    known: int = 0
    population: int = 0
    noise: int = 0
    exact: int = 0
    good: int = 0
    flagged: int = 0
    flagged_good: int = 0
    rejected: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    widths: list[float] = field(default_factory=list)
    exact_widths: list[float] = field(default_factory=list)
    bins: list[float] = field(default_factory=list)

    def add(self, found: Estimates, term: str, truth: float, exact: Interval) -> None:
        place = found.terms.index(term)
        about = {flag.code for flag in found.flags if term in flag.terms or not flag.terms} - set(_OF_PRIVACY)
        shown = math.isfinite(float(found.value[place])) and found.of_population is not None
        self.studies += 1
        self.codes.update(about)
        of_exact = _holds(exact[1], exact[2], truth)
        self.exact += of_exact
        good = of_exact
        if shown and found.of_population is not None:
            low, high = found.of_population[place].tolist()
            good = _holds(low, high, truth)
            self.known += 1
            self.population += good
            self.noise += _holds(float(found.of_noise[place, 0]), float(found.of_noise[place, 1]), exact[0])
            self.rejected += found.p_value is not None and bool(found.p_value[place] < 0.05)
            if math.isfinite(high - low) and math.isfinite(exact[2] - exact[1]):
                self.widths.append(high - low)
                self.exact_widths.append(exact[2] - exact[1])
                open_ = 0.0 if found.resolution is None else float(found.resolution[place].sum())
                self.bins.append(min(open_ / (high - low), 1.0) if high > low else 0.0)
        flagged = bool(about) or not shown
        self.good += good
        self.flagged += flagged
        self.flagged_good += flagged and good

    @property
    def of_bins(self) -> float:
        """Which part of the population's interval is what bins leave open."""
        return float(np.median(self.bins)) if self.bins else 0.0

    @property
    def width(self) -> float:
        """Over that of the exact interval, medians of both; NaN where that is a point."""
        exact = float(np.median(self.exact_widths)) if self.exact_widths else 0.0
        return float(np.median(self.widths)) / exact if exact > 0 else math.nan

    @property
    def flagged_of_good(self) -> float:
        return self.flagged_good / max(self.good, 1)

    def verdict(self) -> str:
        """Kept, or what is not; "near" where chance may be why."""
        if not self.known:
            return f"nothing shown ({self._commonest()})"
        low, high = proportion_interval(self.population, self.known)
        part, most = self.population / self.known, MOST if self.of_bins < FEW_BINS else 1.0
        noise = self.noise / self.known
        said = []
        if part < LEAST:
            said.append("near" if high >= LEAST else "**low**")
        # Of whole numbers the exact interval holds more often, too: a point, or one number more.
        if part > most and self.exact / self.studies <= most:
            said.append("near" if low <= most else "**wide**")
        if noise < LEAST:
            said.append("noise near" if proportion_interval(self.noise, self.known)[1] >= LEAST else "**noise low**")
        if self.flagged_of_good >= MOST_FLAGGED:
            said.append(f"**flagged** ({self._commonest()})")
        return ", ".join(said) or "kept"

    def _commonest(self) -> str:
        return self.codes.most_common(1)[0][0] if self.codes else "unknown"


def _holds(low: float, high: float, value: float) -> bool:
    slack = 1e-9 * max(abs(value), 1e-9)
    return low - slack <= value <= high + slack


def proportion_interval(count: int, total: int, level: float = 0.99) -> tuple[float, float]:
    """Of Clopper and Pearson."""
    found = stats.binomtest(count, total).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def workload_of(population: Population) -> Workload:
    return Workload(population.columns, (parse_statistic(read_text(population.text)),), PrivacyUnit.RECORD)


def measured(population: Population, size: int, studies: int) -> dict[str, Held]:
    """Of each term."""
    workload, truth = workload_of(population), population.true_values()
    noise = math.sqrt(1.2) * workload.sensitivity / mu_of_budget(EPSILON, DELTA) / size
    encoded = None if population.table is None else workload.of_records(population.table)
    held = {term: Held() for term in population.terms}
    for study in range(studies):
        rng = np.random.default_rng((SEED, size, study))
        if population.table is not None and encoded is not None:
            drawn = rng.integers(0, len(population.table), size)
            records = population.table[drawn]
            mean = np.bincount(drawn, minlength=len(encoded)) @ encoded / size
        elif population.draw is not None:
            records = population.draw(rng, size)
            mean = workload.of_records(records).mean(axis=0)
        found = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, size)[0].estimates
        exact = population.exact(records)
        for term, one in held.items():
            one.add(found, term, truth[term], exact[term])
    return held


def told(population: Population, size: int, term: str, held: Held) -> str:
    """A line of the page."""

    def part(count: int, total: int) -> str:
        return f"{100 * count / total:.1f}" if total else "-"

    interval = proportion_interval(held.population, held.known) if held.known else (math.nan, math.nan)
    ends = f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if held.known else ""
    width = f"{held.width:.2f}" if math.isfinite(held.width) else "-"
    return (
        f"| {population.what}: `{population.text}` | {term or 'all'} | {size:,} | {part(held.population, held.known)}{ends} | "
        f"{part(held.exact, held.studies)} | {part(held.noise, held.known)} | {width} | {100 * held.of_bins:.0f} | "
        f"{part(held.flagged, held.studies)} / {part(held.flagged_good, held.good)} | {held.studies - held.known} | "
        f"{held.verdict()} |"
    )


HEAD = f"""
## Coverage of both intervals, default options

Each population is a table from which {SIZES[0]:,} and {SIZES[1]:,} records are drawn with replacement: its truth is exact;
six sites are drawn anew. $\\varepsilon = {EPSILON:g}$, and all options of the statistics are the defaults.

*Population*: how often its interval holds the truth, in percent of the studies that show it, with the 99 % interval of this.
*Exact*: how often the usual interval of the records themselves holds it, without noise, bins or bounds, robust where it can be.
*Noise*: how often the other interval holds what these records say without noise and bins.
*Width*: of the population's interval over the exact one's, medians. *Bins*: which part of it bins leave open, in percent.
*Flagged*: of all studies / of those that held the truth, or would have: where nothing is shown, by the exact interval.
*Hidden*: studies that show nothing.

A line is kept if both intervals hold in at least {100 * LEAST:.0f} %, that of the population in at most {100 * MOST:.0f} %
where bins are below a tenth of it (unless the exact one holds as often: of whole numbers), and less than a tenth of the studies
that held are flagged. **low**, **wide**: not even the end of the 99 % interval is within; *near*: that end is.

What is not kept, and why:

- Slopes of one covariate and correlations of two columns have robust errors. Those of more are model-based and say so: errors of
  another shape (heavy tails, errors that grow with a covariate) are held too seldom, the more so the more records there are.
- Twelve bins of time are wide beside the exact intervals of quartiles, medians and restricted means (*width*, *bins*): ours hold
  wherever in its bin an event is, which shorter ones from the same counts could not. More bins or `edges` make them shorter; for
  costs, `scale = "log"`.
- What sites have in common always has a flag below 40 sites: the intervals hold for sites that are normally distributed, as these
  are, and in 88 to 93 % where sites are skewed, which so few do not show.
- Intercept and slope of calibration are not shown where the noise leaves too little of the outcomes, at times where 36 of 2,000
  have it.

| what | of | records | population | exact | noise | width | bins | flagged | hidden | |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|
"""


def lines(populations: Iterator[Population], studies: int) -> Iterator[str]:
    for population in populations:
        for size in SIZES:
            for term, held in measured(population, size, studies).items():
                yield told(population, size, term, held)
