"""Curves of the time to an event: survival, cumulative incidence, and restricted means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.compared import difference_of
from quietmean.statistics.comparison import (
    CUT,
    LOG_RANK_TEST,
    STRATIFIED_TEST,
    Curves,
    difference_of_means,
    ends_of,
    extent,
    log_rank,
    quantile,
    restricted_mean,
    too_few_bins,
)
from quietmean.statistics.delta_method import LEFT_OUT, multinomial, spread
from quietmean.statistics.estimate import CHI_SQUARED, Estimate, Flag, HypothesisTest, known
from quietmean.statistics.estimates import CurveOfTerms, Estimates, curves_in
from quietmean.statistics.features import Axis
from quietmean.statistics.fields import bins_field, edges_field
from quietmean.statistics.kinds.counts import PARTIES_DIFFER
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released
from quietmean.statistics.survival_curve import Curve, TimeBins
from quietmean.statistics.tails import tails
from quietmean.statistics.timed import (
    USUAL_BINS,
    OfTimes,
    Timed,
    entered_in,
    entry_field,
    horizon_field,
    risk_join,
    start_field,
)

MEDIAN = "median"
# The quantiles of the time to the event, by the survival at which each is read.
QUANTILES = {"lower-quartile": 0.75, MEDIAN: 0.5, "upper-quartile": 0.25}
_LOG_RANK = "log-rank"
_TOO_FEW = "too few at risk for the noise, from the start"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Survival(Timed):
    """The part of the records without an event up to the end of each bin (a, b], for each arm, and when it falls to a half, and
    to three and one quarters (``median``, ``lower-quartile``, ``upper-quartile``).

    ``event`` is a boolean column: did the time end with the event, or was the record censored then? A record with any of the
    columns missing is left out; times up to 0 count as 0, and anyone who is observed beyond the horizon had no event until then.
    Where a column of whole numbers has one in each bin this is the estimate of Kaplan and Meier. Else those who are censored in
    a bin count as at risk for half of it, and how far the curve of the records without bins may be from it is part of all
    intervals. Each curve ends where noise leaves too few at risk; how it may go on is in the summary of the arm ("extrapolated":
    without an interval), beside the restricted mean (area up to the horizon). The log-rank test compares arms up to where noise
    allows; the summary says until when.
    """

    name = "survival"
    summary = "Kaplan-Meier curves with the log-rank test"
    one_row = True

    strata: str | None = parameter(None, help="the column within whose levels the log-rank test compares arms")

    def strata_of(self, columns: Columns) -> list[str]:
        """The levels within which arms are compared."""
        return super().strata_of(columns) if self.strata is None else list(columns.category(self.strata).categories)

    def groups(self, columns: Columns) -> tuple[Axis, ...]:
        """Strata, where there are any, then arms. Raises :class:`InputError` for strata without arms."""
        arms = super().groups(columns)
        if self.strata is None:
            return arms
        if self.by is None:
            raise InputError(f"{self.text} compares arms within strata. Name the column whose levels are arms, as in by=arm.")
        if self.strata in (self.by, self.event):
            raise InputError(f"{self.text} has the column {self.strata!r} twice. Name another one for the strata.")
        return (Axis(columns.category(self.strata)), *arms)

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        curves = curves_in([group for group, _ in estimates.groups], rises=False)
        return tuple(curve for group, curve in curves.items() if group not in QUANTILES)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        parties = columns.unit == PrivacyUnit.PARTY
        rows, flags, summary = [], [], {}
        for arm, curve in zip(arms, curves.each, strict=True):
            rows += _curve(curve, arm)
            flags += ends_of(curve, arm, [arm], [f"{name} {arm}" for name in QUANTILES])
            summary[arm] = _summary(curve, parties, released.records)
        for name, level in QUANTILES.items():
            quantiles = [quantile(curve, level, arm).of(name) for arm, curve in zip(arms, curves.each, strict=True)]
            rows += quantiles
            flags += _not_reached([row for row, curve in zip(quantiles, curves.each, strict=True) if curve.usable], name, level)
        last = f"{curves.bins.times[-1]:g}"
        tests, why = dict[str, HypothesisTest](), list[Flag]()
        if len(arms) > 1 and not parties and released.sampled:
            # An arm that nobody is in is compared with none, and keeps no others from it.
            at_risk = curves.arms_at_risk()
            places = at_risk if len(at_risk) > 1 else list(range(len(arms)))
            compared = curves if len(places) == len(arms) else curves.of_arms(places)
            tests, why = self._tested(compared, columns)
            why += [
                Flag.shared(LEFT_OUT, f"arm {arm}", f"it has {_TOO_FEW}. The {self._test_name} leaves it out")
                for place, arm in enumerate(arms)
                if place not in places
            ]
            summary[_LOG_RANK] = _about_test([arms[place] for place in places], compared)
        return Estimates.of(
            rows,
            noise_only=parties,
            tests=tests,
            flags=(*flags, *why),
            summary=summary,
            headline=(*(f"{MEDIAN} {arm}" for arm in arms), *(f"{arm} {last}" for arm in arms)),
            reason=PARTIES_DIFFER if parties else "",
            method="Kaplan-Meier of bins (a, b], with what they leave open; Greenwood with the noise, log-log ends",
        )

    @property
    def _test_name(self) -> str:
        return LOG_RANK_TEST if self.strata is None else STRATIFIED_TEST

    def _tested(self, curves: Curves, columns: Columns) -> tuple[dict[str, HypothesisTest], list[Flag]]:
        """The log-rank test, or why there is none; and which strata are not in it."""
        name = self._test_name
        unknown = {_LOG_RANK: HypothesisTest(math.nan, (len(curves.each) - 1.0,), math.nan, name, CHI_SQUARED)}
        if curves.coarse:
            return unknown, [Flag("few-bins", too_few_bins(f"the {name}"))]
        used, text = curves.compared(), f"an arm has {_TOO_FEW}"
        test = log_rank(used)
        if test is None:
            where = "" if self.strata is None else ", in each stratum"
            return unknown, [Flag("few-at-risk", f"{text}{where}. The {name} is left out")]
        left_out = [
            Flag.shared(LEFT_OUT, f"{self.strata} {level}", f"{text}. The {name} leaves the stratum out")
            for level, arms in zip(self.strata_of(columns), used.strata, strict=True)
            if not len(arms[0].bins)
        ]
        return {_LOG_RANK: replace(test, method=name)}, left_out


def _curve(curve: Curve, arm: str) -> list[Estimate]:
    """Survival at each edge."""
    noise, both = curve.noise_errors.tolist(), np.hypot(curve.noise_errors, curve.sampling_errors).tolist()
    of_noise, of_population = (curve.band(sampled, tails().quantile()).tolist() for sampled in (False, True))
    low, high = curve.limits
    rows = []
    for bin_index, time in zip(curve.bins.shown.tolist(), curve.bins.times.tolist(), strict=True):
        if bin_index >= curve.usable:
            rows.append(Estimate.unknown(f"{time:g}", (0.0, 1.0)).of(arm))
            continue
        value = float(curve.survival[bin_index])
        ends = (tuple(of_noise[bin_index]), tuple(of_population[bin_index]))
        row = Estimate(f"{time:g}", value, noise[bin_index], both[bin_index], 0.0, 1.0, *ends, group=arm)
        rows.append(row.widened(value - float(low[bin_index]), float(high[bin_index]) - value))
    return rows


def _not_reached(rows: list[Estimate], name: str, level: float) -> list[Flag]:
    arms = [row.term for row in rows if math.isnan(row.value)]
    if not arms:
        return []
    text = f"{name} of {', '.join(arms)}: the curve does not fall to {level:g} as far as it is known"
    return [Flag("not-reached", text, tuple(f"{name} {arm}" for arm in arms))]


def _about_test(arms: list[str], curves: Curves) -> dict[str, Any]:
    """What the log-rank test compares, and how far its statistic is from that of half as many bins."""
    used = curves.compared()
    if curves.coarse or log_rank(used) is None:
        return extent(arms, curves, used)

    def statistic(some: Curves) -> Array | None:
        test = log_rank(some)
        return None if test is None else np.array([test.statistic])

    return {**extent(arms, curves, used), "resolution": float(used.change_in_half(statistic)[0])}


def _summary(curve: Curve, parties: bool, records: float) -> dict[str, Any]:
    """Median and restricted mean with their intervals, and the numbers at risk."""
    mean, median = restricted_mean(curve, ""), quantile(curve, 0.5, "")
    document: dict[str, Any] = {
        "at_risk": curve.observed(records),
        "extrapolated": curve.extrapolated.tolist(),
        "exact": curve.bins.exact,
        "median": math.inf if math.isnan(median.value) else median.value,
        "restricted_mean": known(mean.possible().value),
        "restricted_mean_standard_error": known(mean.noise),
    }
    if not parties:
        # All times at which the band has not left one half.
        document["median_interval_population"] = list(median.of_population)
        document["restricted_mean_interval_population"] = None if math.isnan(mean.value) else list(mean.of_population)
    return document


# Counts below this are rounding of zero.
_LEAST = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CumulativeIncidence(OfTimes):
    """The part of the records that had each event up to the end of each bin, where one event keeps the others from happening.

    ``cause`` has a level for each event, and ``censored`` is the level of records that had none until their time: by default the
    first. Bins are (a, b], times up to 0 count as 0, and anyone who is observed beyond the horizon had no event until then. Where
    a column of whole numbers has one in each bin this is the estimate of Aalen and Johansen; else both intervals contain what the
    bins leave open. Each curve ends where noise leaves too few at risk. A record with any of the columns missing is left out.
    """

    name = "cumulative-incidence"
    summary = "cumulative incidence of competing events"
    one_row = True
    by_place = ("time", "cause")
    expects = ("median", "hazard-ratio")

    time: str = parameter(help="the column of times, from 0 on")
    cause: str = parameter(help="the column whose levels are the events, and being censored")
    censored: str | None = parameter(None, help="the level of records without an event, by default the first")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    entry: str | None = entry_field()
    start: float = start_field()
    horizon: float | None = horizon_field()
    bins: int = bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("hazard-ratio") or 1.0
        scenario.times(self.time, self.cause, self.by, ratio, median=scenario.expected("median"), none=self.censored)

    def ended(self, columns: Columns) -> Column:
        cause = columns.category(self.cause)
        if self.censored is not None:
            require_known("censored", self.censored, cause.categories)
        if self.by == self.cause:
            raise InputError(f"{self.text} has the column {self.by!r} for arms and for events. Name two columns.")
        return cause

    def _causes(self, columns: Columns) -> tuple[list[str], tuple[int, ...]]:
        """The events, and the places of their levels with that of being censored last."""
        levels = list(columns.category(self.cause).categories)
        censored = levels[0] if self.censored is None else self.censored
        events = [level for level in levels if level != censored]
        return events, (*(levels.index(level) for level in events), levels.index(censored))

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        curves = curves_in([group for group, _ in estimates.groups], rises=True)
        arms = list(estimates.summary["at_risk"])
        events = len(curves) // len(arms)
        return tuple(replace(curve, whole=arms[place // events]) for place, curve in enumerate(curves.values()))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms = self.arms(columns)
        events, causes = self._causes(columns)
        bins, counts, noise = self.by_arm(released, columns, causes)
        parties = columns.unit == PrivacyUnit.PARTY
        rows: list[Estimate] = []
        flags: list[Flag] = []
        at_risk: dict[str, list[float]] = {}
        for place, (arm, own) in enumerate(zip(arms, counts, strict=True)):
            block = slice(place * len(own), (place + 1) * len(own))
            incidence = _Incidence.of(bins, own, noise[block, block], len(events))
            names = events if self.by is None else [f"{arm}:{event}" for event in events]
            for cause, name in enumerate(names):
                rows += incidence.rows(cause, name)
            flags += ends_of(incidence.curve, arm, names)
            at_risk[arm] = incidence.curve.observed(released.records)
        summary: dict[str, Any] = {"at_risk": at_risk, "exact": bins.exact}
        return Estimates.of(
            rows,
            noise_only=parties,
            flags=tuple(flags),
            summary=summary,
            headline=tuple(row.label for row in rows if row.term == f"{bins.times[-1]:g}"),
            reason=PARTIES_DIFFER if parties else "",
            method="Aalen-Johansen of bins (a, b], with what they leave open; gradient by all cells for noise and sampling",
        )


@dataclass(frozen=True, eq=False)
class _Incidence:
    """One arm: counts by event and bin, (events, bins), the curve of being without any, and how both follow from all cells."""

    curve: Curve
    counts: Array
    noise: Array
    events: Array
    kinds: int

    @classmethod
    def of(cls, bins: TimeBins, counts: Array, noise: Array, kinds: int) -> _Incidence:
        """Make an incidence from cells, (cells,), as :func:`~quietmean.statistics.timed.risk_join` has them."""
        entered = entered_in(counts, len(bins), kinds)
        join = risk_join(len(bins), kinds, late=entered is not None)
        curve = Curve.of_counts(bins, join @ counts, join @ noise @ join.T, entered)
        return cls(curve, counts, noise, join, kinds)

    def rows(self, cause: int, name: str) -> list[Estimate]:
        """The cumulative incidence of one event at each edge."""
        curve = self.curve
        usable = curve.usable
        own = np.arange(cause * len(curve.bins), cause * len(curve.bins) + usable)
        risk = curve.at_risk[:usable]
        before = np.concatenate([[1.0], curve.survival])[:usable]
        parts = self.counts[own] / risk
        # Survival before each bin, and the hazard in it.
        by_survival = np.vstack([np.zeros(len(self.counts)), curve.slopes @ self.events])[:usable]
        by_hazard = (np.eye(len(self.counts))[own] - parts[:, None] * (curve.risk_slopes[:usable] @ self.events)) / risk[:, None]
        values = np.cumsum(before * parts)
        slopes = np.cumsum(by_survival * parts[:, None] + before[:, None] * by_hazard, axis=0)
        low, high = self._limits(self.counts[own], values)
        rows = []
        for end in curve.shown.tolist():
            noise = spread(slopes[end], self.noise)
            sampling = multinomial(slopes[end], self.counts) if curve.entered is None else self._of_risk_sets(cause, end)
            row = Estimate.normal(f"{curve.bins.ends[end]:g}", float(values[end]), noise, sampling, (0.0, 1.0)).of(name)
            rows.append(row.widened(float(values[end] - low[end]), float(high[end] - values[end])))
        later = curve.bins.times[len(curve.shown) :].tolist()
        return rows + [Estimate.unknown(f"{time:g}", (0.0, 1.0)).of(name) for time in later]

    def _of_risk_sets(self, cause: int, end: int) -> float:
        """The variance of sampling at the end of a bin, of who had which event among those at risk in each bin before: with late
        entries nothing says how many there were to be drawn from."""
        curve, bins, until = self.curve, len(self.curve.bins), end + 1
        events, risk = self.counts[: self.kinds * bins].reshape(self.kinds, bins)[:, :until], curve.at_risk[:until]
        before = np.concatenate([[1.0], curve.survival])[:until]
        steps = before * events[cause] / risk
        later = steps.sum() - np.cumsum(steps)
        # Each event takes one from all that comes later, and adds to what it is itself.
        slopes = np.tile(-later / np.maximum(1 - curve.events[:until] / risk, _LEAST) / risk, (self.kinds, 1))
        slopes[cause] += before / risk
        return float(np.maximum((slopes**2 * events).sum(axis=0) - (slopes * events).sum(axis=0) ** 2 / risk, 0.0).sum())

    def _limits(self, own: Array, values: Array) -> tuple[Array, Array]:
        """The limits between which the incidence of one event, (usable,), is for the same records without bins, but for noise.

        The lower one if it came first in each bin, then the others and the censored; the upper one if it came last.
        """
        curve, count = self.curve, self.curve.usable
        low, high = (np.concatenate([[1.0], np.clip(limit, 0.0, 1.0)])[:count] for limit in curve.limits)
        entering = np.maximum(curve.entering[:count], _LEAST)
        single = curve.bins.numbers[:count] == 1
        others = np.where(single, 0.0, np.maximum(curve.events[:count] - own, 0.0))
        late = np.zeros(count) if curve.entered is None else curve.entered[:count]
        hidden = np.where(single, 0.0, np.maximum(curve.censored[:count] + late, 0.0))
        left = np.maximum(entering - others, _LEAST)
        last = left / entering * np.clip(own / np.maximum(left - hidden, np.maximum(own, _LEAST)), None, 1.0)
        most = entering + np.where(single, 0.0, np.maximum(late, 0.0))
        return np.minimum(np.cumsum(low * own / most), values), np.maximum(np.cumsum(high * last), values)


DIFFERENCE = "difference"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RestrictedMean(Timed):
    """The mean time without an event up to the horizon, the area under the Kaplan-Meier curve, for each arm; of two arms also
    their ``difference``, second minus first.

    Bins leave open when in them events were, which is part of both intervals; it moves both arms alike, so that for the
    difference it counts as no more than its distance to that of half as many bins. An arm whose curve noise cuts before the
    horizon is left out: choose an earlier horizon.
    """

    name = "restricted-mean"
    summary = "mean time without an event up to a horizon"
    one_row = True

    def compared(self, columns: Columns) -> dict[str, str]:
        return {} if self.by is None else difference_of(columns.category(self.by), DIFFERENCE)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        parties = columns.unit == PrivacyUnit.PARTY
        rows = [restricted_mean(curve, arm) for arm, curve in zip(arms, curves.each, strict=True)]
        if len(arms) == 2:
            rows.append(difference_of_means(curves, DIFFERENCE))
        flags, last = [], f"{curves.bins.ends[-1]:g}"
        for row in rows[: len(arms)]:
            if math.isnan(row.value):
                terms = (row.term, DIFFERENCE) if len(arms) == 2 else (row.term,)
                text = f"before {last} too few are at risk for the noise. Choose an earlier horizon"
                flags.append(Flag.shared(CUT, f"arm {row.term}", text, terms))
        return Estimates.of(
            rows,
            noise_only=parties,
            flags=tuple(flags),
            headline=(DIFFERENCE,) if len(arms) == 2 else (),
            reason=PARTIES_DIFFER if parties else "",
            method="area under Kaplan-Meier of bins (a, b], with what they leave open; Greenwood with the noise",
        )
