"""Bars of both intervals with default options: part of ``statistics_bars.py``.

A population is a table, from which the records of a study are drawn with replacement, so that its truth is exact; or a way to
draw them. The interval of the population is held against the truth, that of the noise against what the same records say without
noise and bins (:mod:`exact_intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from exact_intervals import Array, Intervals
from held_intervals import Draw, Held, proportion_interval, studies, workload_of
from page_parts import row

from quietmean.statistics import Columns

EPSILON, SEED = 4.0, 20_731
SIZES = (2000, 10_000)
LEAST, MOST, MOST_FLAGGED, FEW_BINS = 0.93, 0.98, 0.1, 0.1


@dataclass(frozen=True)
class Population:
    """A statistic of records, and the true values of some of its terms.

    ``exact``: estimates and intervals by term, of the columns of records. ``truth``: where the population is no table.
    """

    what: str
    columns: Columns
    text: str
    exact: Callable[..., Intervals]
    terms: tuple[str, ...]
    records: Array | Draw
    truth: Mapping[str, float] = field(default_factory=dict)

    def true_values(self) -> Mapping[str, float]:
        if callable(self.records):
            return self.truth
        known = self.exact(*self.records.T)
        return {term: known[term][0] for term in self.terms}


def verdict(held: Held) -> str:
    """Kept, or what is not; "near" where chance may be why."""
    commonest = held.codes.most_common(1)[0][0] if held.codes else "unknown"
    if not held.known:
        return f"nothing shown ({commonest})"
    low, high = proportion_interval(held.population, held.known)
    share, most = held.population / held.known, MOST if of_bins(held) < FEW_BINS else 1.0
    said = []
    if share < LEAST:
        said.append("near" if high >= LEAST else "**low**")
    # Of whole numbers the exact interval holds more often, too: a point, or one number more.
    if share > most and held.exact / held.studies <= most:
        said.append("near" if low <= most else "**wide**")
    if held.noise / held.known < LEAST:
        said.append("noise near" if proportion_interval(held.noise, held.known)[1] >= LEAST else "**noise low**")
    if held.flagged_good / max(held.good, 1) >= MOST_FLAGGED:
        said.append(f"**flagged** ({commonest})")
    return ", ".join(said) or "kept"


def of_bins(held: Held) -> float:
    """Which part of the population's interval is what bins leave open."""
    return float(np.median(held.bins)) if held.bins else 0.0


def measured(population: Population, size: int, count: int) -> dict[str, Held]:
    """What came of each term in that many studies."""
    truth, held = population.true_values(), {term: Held() for term in population.terms}
    draws = (np.random.default_rng((SEED, size, study)) for study in range(count))
    for records, found in studies(workload_of(population.columns, population.text), population.records, size, EPSILON, draws):
        exact = population.exact(*records.T)
        for term, one in held.items():
            one.add(found, term, truth[term], exact[term])
    return held


def line(population: Population, size: int, term: str, held: Held) -> str:
    """A line of the page."""

    def percent(count: int, total: int) -> str:
        return f"{100 * count / total:.1f}" if total else "-"

    low, high = proportion_interval(held.population, held.known) if held.known else (math.nan, math.nan)
    ends = f" ({100 * low:.1f} to {100 * high:.1f})" if held.known else ""
    # Over that of the exact interval, medians of both; none where that is a point.
    exact = float(np.median(held.exact_widths)) if held.exact_widths else 0.0
    return row(
        (
            f"{population.what}: `{population.text}`",
            term or "all",
            f"{size:,}",
            f"{percent(held.population, held.known)}{ends}",
            percent(held.exact, held.studies),
            percent(held.noise, held.known),
            f"{float(np.median(held.widths)) / exact:.2f}" if exact > 0 else "-",
            f"{100 * of_bins(held):.0f}",
            f"{percent(held.flagged, held.studies)} / {percent(held.flagged_good, held.good)}",
            held.studies - held.known,
            verdict(held),
        )
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


def lines(population: Population, count: int) -> Iterator[str]:
    for size in SIZES:
        for term, held in measured(population, size, count).items():
            yield line(population, size, term, held)
