"""Survival curves by Kaplan and Meier, with the log-rank test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.comparison import LOG_RANK_TEST, STRATIFIED_TEST, Curves, extent, log_rank, too_few_bins
from quietmean.statistics.curve_summaries import ends_of, quantile, restricted_mean
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest, known
from quietmean.statistics.intervals import CHI_SQUARED
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.known_levels import LEFT_OUT
from quietmean.statistics.possible import CurveOfTerms, curves_in
from quietmean.statistics.statistic import Released
from quietmean.statistics.survival_curve import Curve
from quietmean.statistics.timed import Timed

MEDIAN = "median"
# The quantiles of the time to the event, by the survival at which each is read.
QUANTILES = {"lower-quartile": 0.75, MEDIAN: 0.5, "upper-quartile": 0.25}
_LOG_RANK = "log-rank"
_TOO_FEW = "too few at risk for the noise from the start"


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

    def table(self, columns: Columns) -> CellIndicators:
        """Strata, where there are any, then arms, then times, then events. Raises :class:`InputError` for strata without arms."""
        table = super().table(columns)
        if self.strata is None:
            return table
        if self.by is None:
            raise InputError(f"{self.text} compares arms within strata: name the column whose levels are arms, as in by=arm")
        if self.strata in (self.by, self.event):
            raise InputError(f"{self.text} has the column {self.strata!r} twice: name another one for the strata")
        return CellIndicators((Axis(columns.category(self.strata)), *table.axes))

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
        if len(arms) > 1 and not parties:
            # An arm that nobody is in is compared with none, and keeps no others from it.
            at_risk = curves.arms_at_risk()
            places = at_risk if len(at_risk) > 1 else list(range(len(arms)))
            compared = curves if len(places) == len(arms) else curves.of_arms(places)
            tests, why = self._tested(compared, columns)
            why += [
                Flag.shared(LEFT_OUT, f"arm {arm}", f"{_TOO_FEW}: left out of the {self._test_name}")
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
            return unknown, [Flag("few-at-risk", f"log-rank: {text}{where}")]
        left_out = [
            Flag.shared(LEFT_OUT, f"{self.strata} {level}", f"{text}: left out of the {name}")
            for level, arms in zip(self.strata_of(columns), used.strata, strict=True)
            if not len(arms[0].bins)
        ]
        return {_LOG_RANK: replace(test, method=name)}, left_out


def _curve(curve: Curve, arm: str) -> list[Estimate]:
    """Survival at each edge."""
    noise, both = curve.noise_errors.tolist(), np.hypot(curve.noise_errors, curve.sampling_errors).tolist()
    of_noise, of_population = (curve.band(sampled).tolist() for sampled in (False, True))
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


STATISTIC = Survival
