"""Correlations of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.around import Around
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import OfColumns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Moments
from quietmean.statistics.fields import ROBUST, require_names, robust_field
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest, Z
from quietmean.statistics.intervals import fisher, near_threshold, t_quantile, t_test
from quietmean.statistics.kinds.variance import PARTIES
from quietmean.statistics.products import CentredMoments, moments_of
from quietmean.statistics.robust import PairMoments, Sampling, of_correlation
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
        terms = self._terms(pairs)
        rows, method = [_correlation(centred, i, j) for i, j in pairs], "model-based: a normal distribution"
        moments = self._moments(columns)
        if centred is not None and moments.higher and rows[0].known:
            own = PairMoments.of(released, moments, *self._vertices(columns)).sampling(of_correlation)
            rows, method = [rows[0].robust(own, centred.records)], "robust errors: any distribution"
        flags = [
            Flag.shared("no-correlation", term, "noise hides a variance, no correlation", (term,))
            for term, row in zip(terms, rows, strict=True)
            if not row.known
        ]
        for (i, j), term in zip(pairs, terms, strict=True):
            flags += near_threshold(term, _clearance(centred, i, j), (term,))
        parties, tested = columns.unit == PrivacyUnit.PARTY, [row.test() for row in rows]
        return Estimates(
            terms,
            np.array([row.value for row in rows]),
            np.array([row.noise for row in rows]),
            np.full(len(rows), -1.0),
            np.ones(len(rows)),
            population=None if parties else np.array([row.both for row in rows]),
            interval_noise=np.array([fisher(row.value, Z * row.noise) for row in rows]),
            interval_population=None if parties else np.array([fisher(row.value, row.reach) for row in rows]),
            p_value=None if parties else np.array([test.p_value for test in tested]),
            test_statistic=None if parties else np.array([test.statistic for test in tested]),
            flags=tuple(flags),
            reason=PARTIES if parties else "",
            method=f"covariances without the noise's part; Fisher's z with the noise in it; {method}",
        )


@dataclass(frozen=True)
class _Row:
    """A correlation with its errors of the noise and of the population, and the degrees of freedom of this one."""

    value: float
    noise: float
    both: float
    degrees: float = math.inf

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)

    @property
    def reach(self) -> float:
        return t_quantile(self.degrees) * self.both

    def robust(self, own: Sampling, records: float) -> _Row:
        """The same with errors that hold for any distribution."""
        degrees = max(records - 3, 1.0)
        drawn = own.times(1 / degrees).shrink_towards(np.array([self.both**2 - self.noise**2]))
        both = math.sqrt(self.noise**2 + float(drawn.variances[0]))
        return _Row(self.value, self.noise, both, float(drawn.degrees(np.array([self.noise**2]), degrees)[0]))

    def test(self) -> HypothesisTest:
        """That there is no correlation, on the scale of Fisher's z."""
        if not self.known or abs(self.value) >= 1:
            return HypothesisTest(math.nan, (math.inf,), math.nan)
        return t_test(math.atanh(self.value), self.both / (1 - self.value**2), self.degrees)


def _clearance(centred: CentredMoments | None, i: int, j: int) -> float:
    """How many times the smaller of both variances is what it must be to be divided by."""
    if centred is None:
        return math.nan
    errors = np.diag(centred.errors)[[i, j]]
    return float((np.diag(centred.covariance)[[i, j]] / (_LEAST_VARIANCE * errors)).min()) if errors.min() > 0 else math.inf


def _correlation(centred: CentredMoments | None, i: int, j: int) -> _Row:
    """The correlation of columns i and j, with the errors of a normal distribution."""
    nothing = _Row(math.nan, math.inf, math.inf)
    if centred is None:
        return nothing
    variances, errors = np.diag(centred.covariance)[[i, j]], np.diag(centred.errors)[[i, j]]
    if (variances <= np.maximum(_LEAST_VARIANCE * errors, 0.0)).any():
        return nothing
    size = math.sqrt(float(variances.prod()))
    value = min(max(float(centred.covariance[i, j]) / size, -1.0), 1.0)
    slope = centred.slopes[i, j] / size - value / 2 * (centred.slopes[i, i] / variances[0] + centred.slopes[j, j] / variances[1])
    noise = max(float(slope @ centred.noise @ slope), 0.0)
    sampling = (1 - value**2) ** 2 / max(centred.records - 3, 1.0)
    return _Row(value, math.sqrt(noise), math.sqrt(noise + sampling))


STATISTIC = Correlation
