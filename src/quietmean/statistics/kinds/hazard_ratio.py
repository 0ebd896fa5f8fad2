"""Hazard ratios of arms by a piecewise constant hazard: a Poisson regression of binned events on person-time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Columns
from quietmean.statistics.comparison import Curves, extent, too_few_bins
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Table
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Released
from quietmean.statistics.timed import Timed

Array = NDArray[np.float64]

# An arm with fewer noise deviations of events has no hazard.
_LEAST_EVENTS = 3.0
_STEPS, _CLOSE, _FARTHEST = 50, 1e-12, 20.0


@dataclass(frozen=True, eq=False)
class _Cells:
    """Events and person-time in widths of bins, (arms, bins) each, and how they follow from all counts."""

    events: Array
    time: Array
    of_events: Array
    of_time: Array
    noise: Array

    @classmethod
    def of(cls, curves: Curves) -> _Cells:
        arms, size, bins = len(curves.each), 2 * len(curves.bins) + 1, len(curves.bins)
        events, time = np.zeros((arms, bins, arms * size)), np.zeros((arms, bins, arms * size))
        for arm, curve in enumerate(curves.each):
            block = slice(arm * size, (arm + 1) * size)
            events[arm, :, block] = np.eye(bins, size)
            # Who has the event in a bin was observed for half of it. The width of a bin is part of its baseline hazard.
            time[arm, :, block] = curve.risk_slopes - 0.5 * np.eye(bins, size)
        counts = np.concatenate([curve.counts for curve in curves.each])
        kept = ((time @ counts) > 0).all(axis=0)
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

    Arms are compared as long as noise leaves enough at risk in each; the summary says until when, and what is left out. The
    distance to the ratio in half as many bins is what the bins leave open, part of both intervals and of the test; with fewer
    than 12 bins, unless each has one whole number, that is not known, and there is no ratio.
    """

    name = "hazard-ratio"
    summary = "hazard ratios of arms, piecewise constant hazards"

    def table(self, columns: Columns) -> Table:
        if self.by is None:
            raise InputError(f"{self.text} compares arms: name the column whose levels they are, as in by=arm")
        return super().table(columns)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        terms = [f"{arm}/{arms[0]}" for arm in arms[1:]]
        if curves.coarse:
            return _unknown(terms, Flag("few-bins", too_few_bins("a hazard ratio"), tuple(terms)))
        used = curves.compared()
        about, cells = extent(arms, curves, used), _Cells.of(used)
        slopes = _logarithms(used)
        if slopes is None or not cells.enough():
            text = "an arm has too few events for the noise in the bins where both are at risk: no hazard ratio"
            return _unknown(terms, Flag("few-events", text, tuple(terms)), about)
        parties = columns.unit == PrivacyUnit.PARTY
        information, gradient = _information(cells, slopes), _score_slopes(cells, slopes)
        sampling = np.linalg.inv(information)
        noise = sampling @ gradient @ cells.noise @ gradient.T @ sampling
        changes = used.change_in_half(_logarithms)
        variances = zip(np.diag(noise).tolist(), np.diag(sampling).tolist(), changes.tolist(), strict=True)
        # No more than is sure in spite of the bins.
        sure = np.sign(slopes) * np.maximum(np.abs(slopes) - changes, 0.0)
        wald = float(sure @ np.linalg.solve(noise + sampling, sure))
        return assembled(
            [
                Row.ratio(term, log, noisy, sampled, change=change)
                for term, log, (noisy, sampled, change) in zip(terms, slopes.tolist(), variances, strict=True)
            ],
            parties=parties,
            tests={} if parties else {"wald": chi_squared_test(wald, float(len(terms)), "Wald's test of all hazard ratios")},
            summary=about,
            reason=PARTIES_DIFFER if parties else "",
            method="piecewise Poisson regression, half of the bin for who leaves in it; with the noise and the bins, log scale",
        )


def _unknown(terms: list[str], flag: Flag, about: dict[str, Any] | None = None) -> Estimates:
    rows = [Row.unknown(term, (0.0, math.inf)) for term in terms]
    return assembled(rows, parties=True, flags=(flag,), summary=about or {}, reason=flag.message)


def _logarithms(curves: Curves) -> Array | None:
    """Of the hazard ratios; None where there are none."""
    cells = _Cells.of(curves)
    return _fit(cells) if cells.events.size else None


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
