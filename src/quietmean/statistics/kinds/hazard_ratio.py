"""Hazard ratios of arms by a piecewise constant hazard: a Poisson regression of binned events on person-time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag
from quietmean.statistics.features import Table
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Released
from quietmean.statistics.timed import Curves, Timed

Array = NDArray[np.float64]

# Bins with so few at risk, in all or in one arm, are left out; and an arm with fewer noise deviations of events there.
_LEAST_TESTED, _LEAST_IN_ARM, _LEAST_EVENTS = 20.0, 2.0, 3.0
_STEPS, _CLOSE, _FARTHEST = 50, 1e-12, 20.0


@dataclass(frozen=True, eq=False)
class _Cells:
    """Events and person-time, (arms, bins) each, of the bins that are used, and how they follow from all counts."""

    events: Array
    time: Array
    of_events: Array
    of_time: Array
    noise: Array

    @classmethod
    def of(cls, curves: Curves) -> _Cells:
        arms, size = len(curves.each), len(curves.each[0].noise)
        bins = len(curves.times)
        widths = np.diff(np.concatenate([[0.0], curves.times]))
        events, time = np.zeros((arms, bins, arms * size)), np.zeros((arms, bins, arms * size))
        for arm, curve in enumerate(curves.each):
            block = slice(arm * size, (arm + 1) * size)
            events[arm, :, block] = np.eye(bins, size)
            # Who has the event, or is censored, in a bin was observed for half of it.
            time[arm, :, block] = widths[:, None] * (curve.risk_slopes - 0.5 * np.eye(bins, size))
        counts = np.concatenate([np.concatenate([one.events, one.censored, [one.after]]) for one in curves.each])
        risk = np.array([curve.at_risk for curve in curves.each])
        kept = (risk.sum(axis=0) > _LEAST_TESTED) & (risk.min(axis=0) > _LEAST_IN_ARM) & ((time @ counts) > 0).all(axis=0)
        events, time = events[:, kept], time[:, kept]
        return cls(events @ counts, time @ counts, events, time, curves.noise)

    def enough(self) -> bool:
        """Have all arms more events than the noise hides?"""
        sums = self.of_events.sum(axis=1)
        errors = np.sqrt(np.maximum(np.einsum("ap,pq,aq->a", sums, self.noise, sums), 0.0))
        return bool(self.events.size and (self.events.sum(axis=1) > np.maximum(_LEAST_EVENTS * errors, 0.0)).all())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HazardRatio(Timed):
    """The hazard of each arm over that of the first, the same in all bins (proportional hazards), by Poisson regression of binned
    events on person-time with a constant baseline hazard in each bin. The test ``wald``: all hazards are equal.

    Bins with too few at risk are left out.
    """

    name = "hazard-ratio"
    summary = "hazard ratios of arms, piecewise constant hazards"

    def table(self, columns: Columns) -> Table:
        if self.by is None:
            raise InputError(f"{self.text} compares arms: name the column whose levels they are, as in by=arm")
        return super().table(columns)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms = self.arms(columns)
        cells = _Cells.of(self.curves(released, columns))
        terms = [f"{arm}/{arms[0]}" for arm in arms[1:]]
        parties = columns.unit == PrivacyUnit.PARTY
        slopes = _fit(cells) if cells.enough() else None
        if slopes is None:
            text = "an arm has too few events for the noise in the bins where both are at risk: no hazard ratio"
            unknown = [Row.unknown(term, (0.0, math.inf)) for term in terms]
            return assembled(unknown, parties=True, flags=(Flag("few-events", text),), reason=text)
        information, gradient = _information(cells, slopes), _score_slopes(cells, slopes)
        sampling = np.linalg.inv(information)
        noise = sampling @ gradient @ cells.noise @ gradient.T @ sampling
        variances = zip(terms, slopes.tolist(), np.diag(noise).tolist(), np.diag(sampling).tolist(), strict=True)
        wald = float(slopes @ np.linalg.solve(noise + sampling, slopes))
        return assembled(
            [Row.ratio(*one) for one in variances],
            parties=parties,
            tests={} if parties else {"wald": chi_squared_test(wald, float(len(terms)))},
            reason=PARTIES_DIFFER if parties else "",
            method="piecewise Poisson regression, half of the bin for who leaves in it; with the noise, log scale",
        )


def _parts(cells: _Cells, slopes: Array) -> tuple[Array, Array]:
    """Expected time of each arm at the first one's hazard, (arms, bins), and its part of all arms'."""
    times = cells.time * np.exp(np.concatenate([[0.0], slopes]))[:, None]
    return times, times / times.sum(axis=0)


def _information(cells: _Cells, slopes: Array) -> Array:
    """Of the profile likelihood, (arms - 1, arms - 1): its inverse is the Poisson regression's covariance of the slopes."""
    _, parts = _parts(cells, slopes)
    total = cells.events.sum(axis=0)
    found: Array = (np.diag(parts @ total) - (parts * total) @ parts.T)[1:, 1:]
    return found


def _fit(cells: _Cells) -> Array | None:
    """Logarithms of the hazard ratios by Newton's method, the baseline hazards profiled out; None where there are none."""
    slopes: Array = np.zeros(len(cells.events) - 1)
    total = cells.events.sum(axis=0)
    for _ in range(_STEPS):
        _, parts = _parts(cells, slopes)
        information = _information(cells, slopes)
        if not np.linalg.eigvalsh(information)[0] > 0:
            return None
        change = np.linalg.solve(information, (cells.events - parts * total).sum(axis=1)[1:])
        slopes = np.asarray(slopes + np.clip(change, -1.0, 1.0), dtype=np.float64)
        if np.abs(slopes).max() > _FARTHEST:
            return None
        if np.abs(change).max() < _CLOSE:
            return slopes
    return None


def _score_slopes(cells: _Cells, slopes: Array) -> Array:
    """How the score changes with all counts, (arms - 1, counts)."""
    times, parts = _parts(cells, slopes)
    rates = np.exp(np.concatenate([[0.0], slopes]))
    total, whole = cells.events.sum(axis=0), times.sum(axis=0)
    by_events = cells.of_events.sum(axis=1) - np.einsum("ab,bq->aq", parts, cells.of_events.sum(axis=0))
    moved = rates[:, None, None] * cells.of_time
    by_time = np.einsum("b,abq->aq", total / whole, moved) - np.einsum("ab,bq->aq", parts * total / whole, moved.sum(axis=0))
    found: Array = (by_events - by_time)[1:]
    return found


STATISTIC = HazardRatio
