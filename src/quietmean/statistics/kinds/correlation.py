"""Correlations of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.around import Around
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import OfColumns
from quietmean.statistics.delta_method import SmoothTerm, spread
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Moments
from quietmean.statistics.fields import ROBUST, require_names, robust_field
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import near_threshold, t_test
from quietmean.statistics.kinds.variance import PARTIES
from quietmean.statistics.products import CentredMoments, moments_of
from quietmean.statistics.robust import PairMoments, of_correlation
from quietmean.statistics.statistic import Released

# Noise deviations that both variances must have.
_LEAST_VARIANCE = 4.0
_PAIR = 2


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Correlation(OfColumns):
    """Pearson's correlation of each pair of columns, ``age:bmi``, over the records that have all columns.

    Intervals assume a normal distribution; with ``robust``, of two columns, none.
    """

    name = "correlation"
    summary = "correlations of columns"

    robust: bool = robust_field()

    @classmethod
    def meant_in_words(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        return {ROBUST: True} if len(raw.get("columns", ())) == _PAIR else {}

    def _moments(self, columns: Columns) -> Moments:
        require_names(self.name, self.columns, 2)
        if self.robust and len(self.columns) > _PAIR:
            raise InputError("robust is true, but a correlation of more than two columns has no robust errors: ask for each pair")
        return moments_of(self._vertices(columns), robust=self.robust)

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return self._terms_with(column, self._pairs())

    def _pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for j in range(len(self.columns)) for i in range(j)]

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        moved, pairs = self._moved(around, columns), self._pairs()
        if moved is None:
            return {}
        return {term: moved.correlation(i, j) for (i, j), term in zip(pairs, self._terms(pairs), strict=True)}

    def decode(self, released: Released, columns: Columns) -> Estimates:
        centred = self._centred(released, columns)
        pairs = self._pairs()
        terms = [SmoothTerm(name, (-1.0, 1.0), "fisher") for name in self._terms(pairs)]
        values, method = [_correlation(centred, i, j) for i, j in pairs], "model-based: a normal distribution"
        moments, degrees = self._moments(columns), math.inf
        if centred is not None and moments.higher and values[0] is not None:
            (value, noise, model), method = values[0], "robust errors: any distribution"
            freedom = max(centred.records - 3, 1.0)
            own = PairMoments.of(released, moments, *self._vertices(columns)).sampling(of_correlation)
            drawn = own.times(1 / freedom).shrink_towards(np.array([model]))
            degrees = float(drawn.degrees(np.array([noise]), freedom)[0])
            values = [(value, noise, float(drawn.variances[0]))]
        flags: list[Flag] = []
        entries = []
        for term, parts in zip(terms, values, strict=True):
            if parts is None:
                flags.append(Flag.shared("no-correlation", term.name, "noise hides a variance, no correlation", (term.name,)))
            entries.append(term.unknown if parts is None else _tested(term.estimate(*parts, degrees), degrees))
        for (i, j), term in zip(pairs, terms, strict=True):
            flags += near_threshold(term.name, _clearance(centred, i, j), (term.name,))
        parties = columns.unit == PrivacyUnit.PARTY
        return Estimates.of(
            entries,
            noise_only=parties,
            flags=flags,
            reason=PARTIES if parties else "",
            method=f"covariances without the noise's part; Fisher's z with the noise in it; {method}",
        )


def _tested(entry: Estimate, degrees: float) -> Estimate:
    """Add the test that both have nothing to do with each other, on the scale of Fisher's z."""
    if abs(entry.value) >= 1:
        return entry
    test = t_test(math.atanh(entry.value), entry.error / (1 - entry.value**2), degrees)
    return replace(entry, p_value=test.p_value, statistic=test.statistic)


def _clearance(centred: CentredMoments | None, i: int, j: int) -> float:
    """How many times the smaller of both variances is what it must be to be divided by."""
    if centred is None:
        return math.nan
    errors = np.diag(centred.errors)[[i, j]]
    return float((np.diag(centred.covariance)[[i, j]] / (_LEAST_VARIANCE * errors)).min()) if errors.min() > 0 else math.inf


def _correlation(centred: CentredMoments | None, i: int, j: int) -> tuple[float, float, float] | None:
    """The correlation of columns i and j, with the variances of noise and, of a normal distribution, of sampling."""
    if centred is None:
        return None
    variances, errors = np.diag(centred.covariance)[[i, j]], np.diag(centred.errors)[[i, j]]
    if (variances <= np.maximum(_LEAST_VARIANCE * errors, 0.0)).any():
        return None
    size = math.sqrt(float(variances.prod()))
    value = min(max(float(centred.covariance[i, j]) / size, -1.0), 1.0)
    slope = centred.slopes[i, j] / size - value / 2 * (centred.slopes[i, i] / variances[0] + centred.slopes[j, j] / variances[1])
    return value, spread(slope, centred.noise), (1 - value**2) ** 2 / max(centred.records - 3, 1.0)


STATISTIC = Correlation
