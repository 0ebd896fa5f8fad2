"""Cumulative incidence of competing events (Aalen and Johansen)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag
from quietmean.statistics.features import Table
from quietmean.statistics.fields import bins_field
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.rows import Row, assembled, multinomial, spread
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.supposed import Supposed
from quietmean.statistics.survival_curve import Curve
from quietmean.statistics.timed import ALL, cells_by_arm, horizon_field, time_axis, timed_table

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CumulativeIncidence(Statistic):
    """The part of the records that had each event up to the end of each bin, where one event keeps the others from happening.

    ``cause`` has a level for each event, and ``censored`` is the level of records that had none until their time: by default the
    first. Each curve ends where too few are at risk for the noise. A record with any of the columns missing is left out.
    """

    name = "cumulative-incidence"
    summary = "cumulative incidence of competing events"
    by_place = ("time", "cause")
    expects = ("median", "hazard-ratio")

    time: str = parameter(help="the column of times, from 0 on")
    cause: str = parameter(help="the column whose levels are the events, and being censored")
    censored: str | None = parameter(None, help="the level of records without an event, by default the first")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    horizon: float | None = horizon_field()
    bins: int = bins_field(12)

    def suppose(self, made: Supposed) -> None:
        ratio = made.expected("hazard-ratio") or 1.0
        made.times(self.time, self.cause, self.by, ratio, median=made.expected("median"), none=self.censored)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> Table:
        cause = columns.category(self.cause)
        if self.censored is not None:
            require_known("censored", self.censored, cause.categories)
        if self.by == self.cause:
            raise InputError(f"{self.text} has the column {self.by!r} for arms and for events: name two columns")
        return timed_table(self.by, time_axis(self.name, columns, self.time, self.horizon, self.bins), cause, columns)

    def _causes(self, columns: Columns) -> tuple[list[str], tuple[int, ...]]:
        """The events, and the places of their levels with that of being censored last."""
        levels = list(columns.category(self.cause).categories)
        censored = levels[0] if self.censored is None else self.censored
        events = [level for level in levels if level != censored]
        return events, (*(levels.index(level) for level in events), levels.index(censored))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        arms = [ALL] if self.by is None else list(columns.category(self.by).categories)
        events, causes = self._causes(columns)
        times = np.array(table.axes[-2].edges[1:])
        parties = columns.unit == PrivacyUnit.PARTY
        rows: list[Row] = []
        flags: list[Flag] = []
        at_risk: dict[str, list[float]] = {}
        for arm, cells in zip(arms, cells_by_arm(table, len(arms), causes), strict=True):
            counts = released.mean(table)[cells] * released.weight
            noise = released.covariance(table)[np.ix_(cells, cells)] * released.weight**2
            found = _Incidence.of(times, counts, noise, len(events))
            for place, event in enumerate(events):
                name = event if self.by is None else f"{arm}:{event}"
                rows += found.rows(place, name)
            if found.curve.usable < len(times):
                end = f"{times[found.curve.usable - 1]:g}" if found.curve.usable else "the start"
                flags.append(Flag("curve-cut", f"arm {arm}: too few at risk for the noise after {end}, the curves end there"))
            at_risk[arm] = found.curve.at_risk[: found.curve.usable].tolist()
        summary: dict[str, Any] = {"at_risk": at_risk}
        return assembled(
            rows,
            parties=parties,
            flags=tuple(flags),
            summary=summary,
            reason=PARTIES_DIFFER if parties else "",
            method="Aalen-Johansen of bins, censored at risk for half of theirs; gradient by all cells for noise and sampling",
        )


@dataclass(frozen=True, eq=False)
class _Incidence:
    """One arm: counts by event and bin, (events, bins), the curve of being without any, and how both follow from all cells."""

    curve: Curve
    counts: Array
    noise: Array
    events: Array

    @classmethod
    def of(cls, times: Array, counts: Array, noise: Array, kinds: int) -> _Incidence:
        """From cells: each event by bin, censored by bin, then what is after the last bin."""
        bins = len(times)
        join = np.zeros((2 * bins + 1, len(counts)))
        join[:bins, : kinds * bins] = np.tile(np.eye(bins), kinds)
        join[bins : 2 * bins, kinds * bins : (kinds + 1) * bins] = np.eye(bins)
        join[-1, (kinds + 1) * bins :] = 1.0
        joined = join @ counts
        curve = Curve(times, joined[:bins], joined[bins:-1], float(joined[-1]), join @ noise @ join.T)
        return cls(curve, counts, noise, join)

    def rows(self, place: int, name: str) -> list[Row]:
        """The cumulative incidence of one event at the end of each bin."""
        curve, bins = self.curve, len(self.curve.times)
        usable = curve.usable
        own = np.arange(place * bins, place * bins + usable)
        risk = curve.at_risk[:usable]
        before = np.concatenate([[1.0], curve.survival])[:usable]
        parts = self.counts[own] / risk
        # Survival before each bin, and the hazard in it.
        by_survival = np.vstack([np.zeros(len(self.counts)), (curve.survival[:, None] * curve.log_slopes) @ self.events])[:usable]
        by_hazard = (np.eye(len(self.counts))[own] - parts[:, None] * (curve.risk_slopes[:usable] @ self.events)) / risk[:, None]
        values = np.cumsum(before * parts)
        slopes = np.cumsum(by_survival * parts[:, None] + before[:, None] * by_hazard, axis=0)
        found = []
        for time, value, slope in zip(curve.times.tolist(), values.tolist(), slopes, strict=False):
            noise, sampling = spread(slope, self.noise), multinomial(slope, self.counts)
            found.append(Row.normal(f"{time:g}", value, noise, sampling, (0.0, 1.0)).of(name))
        return found + [Row.unknown(f"{time:g}", (0.0, 1.0)).of(name) for time in curve.times[usable:].tolist()]


STATISTIC = CumulativeIncidence
