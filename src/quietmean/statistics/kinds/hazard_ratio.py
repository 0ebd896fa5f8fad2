"""Hazard ratios of arms from grouped times: proportional hazards whatever the baseline is inside bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import percent_text
from quietmean.statistics.columns import Columns
from quietmean.statistics.comparison import CUT, Curves, extent, too_few_bins
from quietmean.statistics.estimate import Estimate, Flag, chi_squared_test, exp_or_infinite, least_count, t_test
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.kinds.counts import PARTIES_DIFFER
from quietmean.statistics.statistic import Released
from quietmean.statistics.tails import quantile_of_both, tails
from quietmean.statistics.timed import Timed

# An arm with fewer noise deviations of events has no hazard.
_LEAST_EVENTS = 3.0
# The part of all events up to which it is of no account that they are later.
_LATER = 0.05
_STEPS, _CLOSE, _FARTHEST = 50, 1e-12, 20.0
# The first step from an estimate to an end of its interval, and how often the last one is halved.
_FIRST_STEP, _HALVINGS = 0.05, 30
# Below this the series of two terms is exact in float64.
_NEAR_0 = 1e-7


@dataclass(frozen=True, eq=False)
class _Cells:
    """Events and who is at risk, (arms, bins) each, and how they follow from all counts."""

    events: Array
    risk: Array
    of_events: Array
    of_risk: Array
    noise: Array

    @classmethod
    def of(cls, curves: Curves) -> _Cells:
        arms, size, bins = len(curves.each), 2 * len(curves.bins) + 1, len(curves.bins)
        events, risk = np.zeros((arms, bins, arms * size)), np.zeros((arms, bins, arms * size))
        for arm, curve in enumerate(curves.each):
            block = slice(arm * size, (arm + 1) * size)
            events[arm, :, block] = np.eye(bins, size)
            risk[arm, :, block] = curve.risk_slopes
        counts = np.concatenate([curve.counts for curve in curves.each])
        died, at_risk = events @ counts, risk @ counts
        # Where all have the event nothing tells the arms apart; nobody at risk, or more events than that, is noise.
        kept = ((at_risk > 0) & (died <= at_risk)).all(axis=0) & (died.sum(axis=0) < at_risk.sum(axis=0))
        events, risk = events[:, kept], risk[:, kept]
        return cls(events @ counts, risk @ counts, events, risk, curves.noise)

    def enough(self, least: float) -> bool:
        """Have all arms more events than the noise hides? ``least``: as of :class:`Released`."""
        sums = self.of_events.sum(axis=1)
        errors = np.sqrt(np.maximum(np.einsum("ap,pq,aq->a", sums, self.noise, sums), 0.0))
        fewest = [least_count(_LEAST_EVENTS, error, least) for error in errors.tolist()]
        return bool(self.events.size and (self.events.sum(axis=1) > fewest).all())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HazardRatio(Timed):
    """The hazard of each arm over that of the first, the same at all times (proportional hazards), by the model of grouped times:
    of those at risk in a bin, 1 - exp(-baseline times ratio) have the event there, wherever in the bin hazards are high. The test
    ``wald``: all hazards are equal.

    Those who are censored in a bin of many times are at risk for half of it. Arms are compared as long as noise leaves enough at
    risk in each: the ratio is that of these times, and a flag says where more than a twentieth of the events are later. The
    distance to the ratio in half as many bins is what the bins leave open, part of both intervals and of the test; with fewer
    than 12 bins, unless each has one whole number, that is not known, and no ratio is given.
    """

    name = "hazard-ratio"
    summary = "hazard ratios of arms, proportional hazards"
    one_row = True

    def groups(self, columns: Columns) -> tuple[Axis, ...]:
        """The axis of arms. Raises :class:`InputError` without arms."""
        if self.by is None:
            raise InputError(f"{self.text} compares arms. Name the column whose levels they are, as in by=arm.")
        return super().groups(columns)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        terms = [f"{arm}/{arms[0]}" for arm in arms[1:]]
        if curves.coarse:
            return _unknown(terms, Flag("few-bins", too_few_bins("a hazard ratio"), tuple(terms)))
        used = curves.compared()
        about, cells = extent(arms, curves, used), _Cells.of(used)
        slopes = _logarithms(used)
        if slopes is None or not cells.enough(released.least):
            text = "an arm has too few events for the noise in the bins where both are at risk. No hazard ratio is known"
            return _unknown(terms, Flag("few-events", text, tuple(terms)), about)
        parties = columns.unit == PrivacyUnit.PARTY
        fit = _Fit.of(cells, slopes)
        sampling = np.linalg.inv(fit.information)
        noise = sampling @ fit.gradient @ cells.noise @ fit.gradient.T @ sampling
        changes = used.change_in_half(_logarithms)
        variances = zip(np.diag(noise).tolist(), np.diag(sampling).tolist(), changes.tolist(), strict=True)
        # No more than is sure in spite of the bins.
        sure = np.sign(slopes) * np.maximum(np.abs(slopes) - changes, 0.0)
        wald = float(sure @ np.linalg.solve(noise + sampling, sure))
        rows = [
            _row(cells, slopes, place, Estimate.ratio(term, log, noisy, sampled, change=change), change)
            for place, (term, log, (noisy, sampled, change)) in enumerate(zip(terms, slopes.tolist(), variances, strict=True))
        ]
        return Estimates.of(
            rows,
            noise_only=parties,
            flags=_of_later_events(curves, used, about, terms),
            tests={} if parties else {"wald": chi_squared_test(wald, float(len(terms)), "Wald's test of all hazard ratios")},
            summary=about,
            reason=PARTIES_DIFFER if parties else "",
            method="proportional hazards of grouped times, half a bin for who is censored in it; score intervals, log scale",
        )


def _of_later_events(curves: Curves, used: Curves, about: Mapping[str, Any], terms: Sequence[str]) -> tuple[Flag, ...]:
    """The flag that the ratio is of the first times alone, where many events are later."""
    within, all_events = (sum(float(curve.events.sum()) for curve in some.each) for some in (used, curves))
    later = 1 - within / all_events if all_events > 0 else 0.0
    if later <= _LATER:
        return ()
    part = percent_text(min(later, 1.0))
    text = (
        f"arms are compared until {about['until']:g} alone, and about {part} of the events are later. Where hazards are not "
        "proportional, all times have another ratio"
    )
    return (Flag(CUT, text, tuple(terms)),)


def _unknown(terms: list[str], flag: Flag, about: dict[str, Any] | None = None) -> Estimates:
    rows = [Estimate.unknown(term, (0.0, math.inf)) for term in terms]
    return Estimates.of(rows, noise_only=True, flags=(flag,), summary=about or {}, reason=flag.message)


def _logarithms(curves: Curves) -> Array | None:
    """Logarithms of the hazard ratios; None where nothing is estimated."""
    cells = _Cells.of(curves)
    return _best_logarithms(cells) if cells.events.size else None


@dataclass(frozen=True, eq=False)
class _Fit:
    """The likelihood of grouped times at some logarithms of the ratios, its best baseline of each bin profiled out.

    ``hazards``: cumulative ones in each bin, (arms, bins). Of counts the score is linear but for the ``weights`` of events, so
    that noise moves it hardly on average. ``slopes``: how it falls with each bin's baseline, (arms, bins).
    """

    cells: _Cells
    baseline: Array
    hazards: Array
    weights: Array
    slopes: Array

    @classmethod
    def of(cls, cells: _Cells, logarithms: Array) -> _Fit:
        ratios = np.exp(np.concatenate([[0.0], logarithms]))[:, None]
        fit = cls._at(cells, ratios, np.zeros(cells.events.shape[1]))
        for _ in range(_STEPS):
            change = fit._terms.sum(axis=0) / fit.slopes.sum(axis=0)
            fit = cls._at(cells, ratios, fit.baseline + change)
            if np.abs(change).max() < _CLOSE:
                break
        return fit

    @classmethod
    def _at(cls, cells: _Cells, ratios: Array, baseline: Array) -> _Fit:
        hazards = baseline * ratios
        weights, slopes = _weights(hazards)
        return cls(cells, baseline, hazards, weights, (cells.risk - slopes * cells.events) * ratios)

    @property
    def _terms(self) -> Array:
        """Events minus those that are expected, weighted, (arms, bins): their sum over arms is 0 at the best baseline."""
        terms: Array = self.weights * self.cells.events - self.hazards * self.cells.risk
        return terms

    @property
    def score(self) -> Array:
        """The score of the partial likelihood, (arms - 1,)."""
        score: Array = self._terms.sum(axis=1)[1:]
        return score

    @property
    def _parts(self) -> Array:
        """Which part of what a bin's baseline is moved by counts against each arm, (arms, bins)."""
        parts: Array = self.slopes / self.slopes.sum(axis=0)
        return parts

    @property
    def information(self) -> Array:
        """How the score falls with the logarithms, (arms - 1, arms - 1): its inverse is their covariance of sampling."""
        moved = self.slopes * self.baseline
        information: Array = (np.diag(moved.sum(axis=1)) - moved @ self._parts.T)[1:, 1:]
        return information

    def against(self, place: int) -> tuple[float, float, float]:
        """The score of one logarithm that is free of the others, its information, and the variance of the noise in it."""
        information, others = self.information, [other for other in range(len(self.score)) if other != place]
        free = np.eye(len(self.score))[place]
        if others:
            free[others] = -np.linalg.solve(information[np.ix_(others, others)], information[others, place])
        slopes = free @ self.gradient
        return float(free @ self.score), float(free @ information @ free), float(slopes @ self.cells.noise @ slopes)

    @property
    def gradient(self) -> Array:
        """How the score changes with all counts, (arms - 1, counts)."""
        moved = self.weights[:, :, None] * self.cells.of_events - self.hazards[:, :, None] * self.cells.of_risk
        gradient: Array = (moved.sum(axis=1) - self._parts @ moved.sum(axis=0))[1:]
        return gradient


def _row(cells: _Cells, logarithms: Array, place: int, row: Estimate, change: float) -> Estimate:
    """Take the ends to which the score does not reject: its variance, of noise and of sampling, is that at each ratio.

    By gradient at the estimate alone intervals are too short where noise is large beside the events of an arm. The error of
    the test is that of the end on its side. Without noise the interval is that of Wald.
    """
    if not cells.noise.any():
        return row
    log, ends = float(logarithms[place]), []
    for sampled in (False, True):
        below, above = (abs(_end(cells, logarithms, place, side, sampled) - log) for side in (-1.0, 1.0))
        ends.append((math.exp(log - below - change), exp_or_infinite(log + above + change)))
        error = (below if log > 0 else above) / quantile_of_both(row.noise**2, row.error**2 - row.noise**2)
    test = t_test(math.copysign(max(abs(log) - change, 0.0), log), error, math.inf)
    return replace(row, of_noise=ends[0], of_population=ends[1], p_value=test.p_value, statistic=test.statistic)


def _end(cells: _Cells, logarithms: Array, place: int, side: float, sampled: bool) -> float:
    """The farthest logarithm on one side that the score does not reject; infinite where it never does."""

    def rejected(log: float) -> bool:
        moved = logarithms.copy()
        moved[place] = log
        score, information, noise = _Fit.of(cells, moved).against(place)
        sampling = max(information, 0.0) if sampled else 0.0
        return bool(score**2 > tails().quantile(noise, sampling) ** 2 * (noise + sampling))

    kept, step = float(logarithms[place]), _FIRST_STEP
    while not rejected(kept + side * step):
        kept, step = kept + side * step, 1.5 * step
        if abs(kept) > _FARTHEST:
            return side * math.inf
    for _ in range(_HALVINGS):
        step /= 2
        kept += 0.0 if rejected(kept + side * step) else side * step
    return kept


def _weights(hazards: Array) -> tuple[Array, Array]:
    """h / (1 - exp(-h)) and its slope, (arms, bins) each: what an event weighs where those at risk have the hazard h in a bin."""
    near = np.abs(hazards) < _NEAR_0
    safe = np.where(near, 1.0, hazards)
    happens = -np.expm1(-safe)
    weights = np.where(near, 1 + hazards / 2, safe / happens)
    return weights, np.where(near, 0.5 + hazards / 6, (1 - weights * np.exp(-safe)) / happens)


def _best_logarithms(cells: _Cells) -> Array | None:
    """Logarithms of the hazard ratios by Newton's method; None where there are none."""
    logarithms: Array = np.zeros(len(cells.events) - 1)
    for _ in range(_STEPS):
        fit = _Fit.of(cells, logarithms)
        information = fit.information
        if not np.linalg.eigvalsh(information)[0] > 0:
            return None
        change = np.linalg.solve(information, fit.score)
        logarithms = np.asarray(logarithms + np.clip(change, -1.0, 1.0), dtype=np.float64)
        if np.abs(logarithms).max() > _FARTHEST:
            return None
        if np.abs(change).max() < _CLOSE:
            return logarithms
    return None
