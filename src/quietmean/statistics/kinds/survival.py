"""Survival curves by Kaplan and Meier, with the log-rank test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag, HypothesisTest, Z, known
from quietmean.statistics.features import Axis, Table
from quietmean.statistics.fields import bins_field
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.survival_curve import Curve, log_rank

# The arm where no column divides the records.
ALL = "all"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Survival(Statistic):
    """The part of the records without an event up to the end of each of ``bins`` from 0 to the horizon, for each arm.

    ``event`` is a boolean column: did the time end with the event, or was the record censored then? A record with any of the
    columns missing is left out. Each curve ends where too few are at risk for the noise. The summary of an arm has the median
    and the restricted mean (area up to the horizon).
    """

    name = "survival"
    summary = "Kaplan-Meier curves with the log-rank test"
    by_place = ("time", "event")

    time: str = parameter(help="the column of times, from 0 on")
    event: str = parameter(help="the boolean column: did the event happen then")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    horizon: float | None = parameter(
        None, help="the last time, by default the upper bound", above=0, remedy="choose a time within the bounds"
    )
    bins: int = bins_field(12)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> Table:
        time, event = columns.number(self.time), columns[self.event]
        if not event.boolean:
            raise InputError(f"column {self.event!r} must say whether the event happened: declare it as boolean")
        horizon = time.high if self.horizon is None else self.horizon
        if time.low > 0 or not horizon <= time.high:
            raise InputError(
                f"survival needs times from 0 to the horizon {horizon:g}, but column {self.time!r} has bounds {time.low:g} to "
                f"{time.high:g}: declare bounds that hold both"
            )
        edges = tuple(np.linspace(0.0, horizon, self.bins + 1).tolist())
        arms = () if self.by is None else (Axis(columns.category(self.by)),)
        return Table((*arms, Axis(time, edges), Axis(event)))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        arms = [ALL] if self.by is None else list(columns.category(self.by).categories)
        places = [self._places(table, arm) for arm in range(len(arms))]
        every = np.concatenate(places)
        counts = released.mean(table) * released.weight
        noise = released.covariance(table)[np.ix_(every, every)] * released.weight**2
        times, size = np.array(table.axes[-2].edges[1:]), len(places[0])
        curves = []
        for arm, where in enumerate(places):
            block = slice(arm * size, (arm + 1) * size)
            cells = counts[where]
            own = noise[block, block]
            # Two cells after the end, with an event and without, are one number.
            join = np.zeros((2 * self.bins + 1, size))
            join[: 2 * self.bins, : 2 * self.bins] = np.eye(2 * self.bins)
            join[-1, 2 * self.bins :] = 1.0
            events, censored = cells[: self.bins], cells[self.bins : 2 * self.bins]
            curves.append(Curve(times, events, censored, float(cells[2 * self.bins :].sum()), join @ own @ join.T))
        spread = np.kron(np.eye(len(arms)), join)
        test = None if len(arms) < 2 else log_rank(curves, spread @ noise @ spread.T)
        return _estimates(arms, curves, times, test, columns.unit == PrivacyUnit.PARTY)

    def _places(self, table: Table, arm: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The cells of one arm: events by bin, censored by bin, then both after the end. Event levels are no and yes."""
        cells = np.arange(table.size).reshape(table.shape)
        own = cells if self.by is None else cells[arm]
        found: np.ndarray[Any, np.dtype[np.int64]] = np.concatenate(
            [own[1 : self.bins + 1, 1], own[1 : self.bins + 1, 0], own[self.bins + 1, :2]]
        )
        return found


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
