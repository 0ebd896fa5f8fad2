"""Survival curves by Kaplan and Meier, with the log-rank test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag, HypothesisTest, Z, known
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.statistic import Released
from quietmean.statistics.survival_curve import Curve, log_rank
from quietmean.statistics.timed import Timed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Survival(Timed):
    """The part of the records without an event up to the end of each of ``bins`` from 0 to the horizon, for each arm.

    ``event`` is a boolean column: did the time end with the event, or was the record censored then? A record with any of the
    columns missing is left out. Each curve ends where too few are at risk for the noise; how it may go on is in the
    summary of the arm ("extrapolated": without an interval), beside the median and the restricted mean (area up to the horizon).
    """

    name = "survival"
    summary = "Kaplan-Meier curves with the log-rank test"

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        test = None if len(arms) < 2 else log_rank(curves.each, curves.noise)
        return _estimates(arms, curves.each, curves.times, test, columns.unit == PrivacyUnit.PARTY)


def _estimates(
    arms: list[str], curves: list[Curve], times: np.ndarray[Any, np.dtype[np.float64]], test: HypothesisTest | None, parties: bool
) -> Estimates:
    pairs = [(arm, f"{time:g}") for arm in arms for time in times.tolist()]
    rows: list[list[float]] = []
    flags, summary = [], {}
    for arm, curve in zip(arms, curves, strict=True):
        noise, both = curve.log_noise, curve.log_noise + curve.log_sampling
        errors = [curve.survival * np.sqrt(np.maximum(np.diag(one), 0.0)) for one in (noise, both)]
        found = np.column_stack([curve.survival, *errors, curve.interval(noise), curve.interval(both)])
        unknown = [math.nan, math.inf, math.inf, 0.0, 1.0, 0.0, 1.0]
        rows += found.tolist() + [unknown] * (len(times) - curve.usable)
        if curve.usable < len(times):
            end = f"{times[curve.usable - 1]:g}" if curve.usable else "the start"
            flags.append(Flag("curve-cut", f"arm {arm}: too few at risk for the noise after {end}, the curve ends there"))
        summary[arm] = _summary(curve, parties)
    table = np.array(rows)
    return Estimates(
        tuple(f"{arm} {time}" for arm, time in pairs),
        table[:, 0],
        table[:, 1],
        np.zeros(len(table)),
        np.ones(len(table)),
        population=None if parties else table[:, 2],
        interval_noise=table[:, 3:5],
        interval_population=None if parties else table[:, 5:7],
        tests={} if test is None or parties else {"log-rank": test},
        flags=tuple(flags),
        summary=summary,
        groups=tuple(pairs),
        reason=PARTIES_DIFFER if parties else "",
        method="Kaplan-Meier of bins, censored at risk for half of theirs; Greenwood with the noise, log-log ends",
    )


def _summary(curve: Curve, parties: bool) -> dict[str, Any]:
    """Median and restricted mean with their intervals, and the numbers at risk."""
    area, noise, sampling = curve.restricted_mean()
    found: dict[str, Any] = {
        "at_risk": curve.at_risk[: curve.usable].tolist(),
        "extrapolated": curve.extrapolated.tolist(),
        "median": curve.when(curve.survival, 0.5),
        "restricted_mean": known(area),
        "restricted_mean_standard_error": known(math.sqrt(noise)),
    }
    if not parties:
        # All times at which the band has not left one half.
        band = curve.interval(curve.log_noise + curve.log_sampling)
        found["median_interval_population"] = [curve.when(band[:, 0], 0.5), curve.when(band[:, 1], 0.5)]
        reach = Z * math.sqrt(noise + sampling)
        found["restricted_mean_interval_population"] = known([area - reach, area + reach])
    return found


STATISTIC = Survival
