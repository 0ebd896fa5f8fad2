"""Cumulative incidence of competing events (Aalen and Johansen)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.columns import Columns
from quietmean.statistics.curve_summaries import ends_of
from quietmean.statistics.delta_method import multinomial, spread
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.fields import bins_field, edges_field
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.possible import CurveOfTerms, curves_in
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.survival_curve import Curve
from quietmean.statistics.time_bins import TimeBins
from quietmean.statistics.timed import ALL, USUAL_BINS, cells_by_arm, horizon_field, time_axis, timed_table

# Counts below this are rounding of zero.
_LEAST = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CumulativeIncidence(Statistic):
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
    horizon: float | None = horizon_field()
    bins: int = bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("hazard-ratio") or 1.0
        scenario.times(self.time, self.cause, self.by, ratio, median=scenario.expected("median"), none=self.censored)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        cause = columns.category(self.cause)
        if self.censored is not None:
            require_known("censored", self.censored, cause.categories)
        if self.by == self.cause:
            raise InputError(f"{self.text} has the column {self.by!r} for arms and for events: name two columns")
        return timed_table(self.by, self._axis(columns)[0], cause, columns)

    def _axis(self, columns: Columns) -> tuple[Axis, int]:
        return time_axis(self.text, columns, self.time, self.horizon, self.bins, self.edges)

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
        table = self._table(columns)
        arms = [ALL] if self.by is None else list(columns.category(self.by).categories)
        events, causes = self._causes(columns)
        bins = TimeBins.of(*self._axis(columns))
        parties = columns.unit == PrivacyUnit.PARTY
        rows: list[Estimate] = []
        flags: list[Flag] = []
        at_risk: dict[str, list[float]] = {}
        for arm, cells in zip(arms, cells_by_arm(table, len(arms), causes), strict=True):
            counts = released.mean(table)[cells] * released.weight
            noise = released.covariance(table)[np.ix_(cells, cells)] * released.weight**2
            incidence = _Incidence.of(bins, counts, noise, len(events))
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

    @classmethod
    def of(cls, bins: TimeBins, counts: Array, noise: Array, kinds: int) -> _Incidence:
        """From cells: each event by bin, censored by bin, then what is after the last bin."""
        count = len(bins)
        join = np.zeros((2 * count + 1, len(counts)))
        join[:count, : kinds * count] = np.tile(np.eye(count), kinds)
        join[count : 2 * count, kinds * count : (kinds + 1) * count] = np.eye(count)
        join[-1, (kinds + 1) * count :] = 1.0
        joined = join @ counts
        curve = Curve(bins, joined[:count], joined[count:-1], float(joined[-1]), join @ noise @ join.T)
        return cls(curve, counts, noise, join)

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
            noise, sampling = spread(slopes[end], self.noise), multinomial(slopes[end], self.counts)
            row = Estimate.normal(f"{curve.bins.ends[end]:g}", float(values[end]), noise, sampling, (0.0, 1.0)).of(name)
            rows.append(row.widened(float(values[end] - low[end]), float(high[end] - values[end])))
        later = curve.bins.times[len(curve.shown) :].tolist()
        return rows + [Estimate.unknown(f"{time:g}", (0.0, 1.0)).of(name) for time in later]

    def _limits(self, own: Array, values: Array) -> tuple[Array, Array]:
        """The limits between which the incidence of one event, (usable,), is for the same records without bins, but for noise.

        The lower one if it came first in each bin, then the others and the censored; the upper one if it came last.
        """
        curve, count = self.curve, self.curve.usable
        low, high = (np.concatenate([[1.0], np.clip(limit, 0.0, 1.0)])[:count] for limit in curve.limits)
        entering = np.maximum(curve.entering[:count], _LEAST)
        single = curve.bins.numbers[:count] == 1
        others = np.where(single, 0.0, np.maximum(curve.events[:count] - own, 0.0))
        hidden = np.where(single, 0.0, np.maximum(curve.censored[:count], 0.0))
        left = np.maximum(entering - others, _LEAST)
        last = left / entering * np.clip(own / np.maximum(left - hidden, np.maximum(own, _LEAST)), None, 1.0)
        return np.minimum(np.cumsum(low * own / entering), values), np.maximum(np.cumsum(high * last), values)


STATISTIC = CumulativeIncidence
