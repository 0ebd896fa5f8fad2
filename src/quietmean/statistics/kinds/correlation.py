"""Correlations of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import OfColumns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest, Z
from quietmean.statistics.intervals import near_threshold, t_test
from quietmean.statistics.kinds.variance import PARTIES
from quietmean.statistics.products import CentredMoments
from quietmean.statistics.statistic import Released

# Noise deviations that both variances must have.
_LEAST_VARIANCE = 4.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Correlation(OfColumns):
    """Pearson's correlation of each pair of columns, ``age:bmi``, over the records that have all columns."""

    name = "correlation"
    summary = "correlations of columns"

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return self._terms_with(column, self._pairs())

    def _pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for j in range(len(self.columns)) for i in range(j)]

    def decode(self, released: Released, columns: Columns) -> Estimates:
        found = self._centred(released, columns)
        pairs = self._pairs()
        rows = [_correlation(found, i, j) for i, j in pairs]
        terms = self._terms(pairs)
        flags = [
            Flag.shared("no-correlation", term, "noise hides a variance, no correlation", (term,))
            for term, row in zip(terms, rows, strict=True)
            if math.isnan(row[0])
        ]
        for (i, j), term in zip(pairs, terms, strict=True):
            flags += near_threshold(term, _clearance(found, i, j), (term,))
        noise, both = (np.array([row[place] for row in rows]) for place in (1, 2))
        intervals = [np.array([_fisher(row[0], row[place]) for row in rows]) for place in (1, 2)]
        parties, tested = columns.unit == PrivacyUnit.PARTY, [_test(row[0], row[2]) for row in rows]
        return Estimates(
            terms,
            np.array([row[0] for row in rows]),
            noise,
            np.full(len(rows), -1.0),
            np.ones(len(rows)),
            population=None if parties else both,
            interval_noise=intervals[0],
            interval_population=None if parties else intervals[1],
            p_value=None if parties else np.array([one.p_value for one in tested]),
            test_statistic=None if parties else np.array([one.statistic for one in tested]),
            flags=tuple(flags),
            reason=PARTIES if parties else "",
            method="covariances without the noise's part; Fisher's z with the noise in it; model-based: a normal distribution",
        )


def _clearance(found: CentredMoments | None, i: int, j: int) -> float:
    """How many times the smaller of both variances is what it must be to be divided by."""
    if found is None:
        return math.nan
    errors = np.diag(found.errors)[[i, j]]
    return float((np.diag(found.covariance)[[i, j]] / (_LEAST_VARIANCE * errors)).min()) if errors.min() > 0 else math.inf


def _correlation(found: CentredMoments | None, i: int, j: int) -> tuple[float, float, float]:
    """The correlation, and its errors of the noise and of the population."""
    nothing = (math.nan, math.inf, math.inf)
    if found is None:
        return nothing
    variances, errors = np.diag(found.covariance)[[i, j]], np.diag(found.errors)[[i, j]]
    if (variances <= np.maximum(_LEAST_VARIANCE * errors, 0.0)).any():
        return nothing
    size = math.sqrt(float(variances.prod()))
    value = min(max(float(found.covariance[i, j]) / size, -1.0), 1.0)
    slope = found.slopes[i, j] / size - value / 2 * (found.slopes[i, i] / variances[0] + found.slopes[j, j] / variances[1])
    noise = max(float(slope @ found.noise @ slope), 0.0)
    sampling = (1 - value**2) ** 2 / max(found.records - 3, 1.0)
    return value, math.sqrt(noise), math.sqrt(noise + sampling)


def _fisher(value: float, error: float) -> tuple[float, float]:
    """The interval on the scale of Fisher's z, on which an error is divided by 1 - r^2."""
    if math.isnan(value) or abs(value) >= 1:
        return (-1.0, 1.0) if error > 0 else (value, value)
    reach = Z * error / (1 - value**2)
    return math.tanh(math.atanh(value) - reach), math.tanh(math.atanh(value) + reach)


def _test(value: float, error: float) -> HypothesisTest:
    """That there is no correlation, on the scale of Fisher's z."""
    if math.isnan(value) or abs(value) >= 1:
        return HypothesisTest(math.nan, (math.inf,), math.nan)
    return t_test(math.atanh(value), error / (1 - value**2), math.inf)


STATISTIC = Correlation
