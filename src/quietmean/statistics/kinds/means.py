"""Means, variances, covariances and correlations of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import CentredMoments, OfColumns, moments_of
from quietmean.statistics.delta_method import SmoothTerm, spread
from quietmean.statistics.estimate import TOO_FEW_COMPLETE, WHOLE, Estimate, Flag, near_threshold, t_test
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock, Moments
from quietmean.statistics.features.block import estimate_of_mean, moved_block, square_root, summary
from quietmean.statistics.fields import ROBUST, cluster_field, require_names, robust_field
from quietmean.statistics.influence_bounds import Around, TermReading
from quietmean.statistics.paired_columns import PairMoments, of_correlation
from quietmean.statistics.random_effects import AcrossSites, SiteMeans, site_column
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.tails import tails
from quietmean.statistics.weights import Weighable


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mean(Weighable):
    """The mean of a column over all records (unit ``record``) or over the parties' own means (unit ``party``).

    With ``cluster``, a column of public sites, the mean over all sites like these: sites may differ, and count as random effects
    (:mod:`~quietmean.statistics.random_effects`). Where a missing value counts as nothing
    (:class:`~quietmean.statistics.Column`), the mean of the values that are present.
    """

    name = "mean"
    summary = "the mean of a column"
    by_place = ("column",)
    expects = ("sd-between",)

    column: str = parameter(help="the column")
    cluster: str | None = cluster_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        if self.cluster is not None:
            scenario.shift_sites(self.column, self.cluster, scenario.expected("sd-between"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._block(columns),)

    def _block(self, columns: Columns) -> ColumnBlock:
        if self.cluster is not None:
            return ColumnBlock(columns.number(self.column), site_column(self, columns, self.cluster, self.column))
        return ColumnBlock(columns.number(self.column), own_mean=columns.unit == PrivacyUnit.PARTY)

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        if self.cluster is not None:
            return ()
        block = self._block(columns)
        column, first = block.column, np.eye(block.size)
        top = column.centre * first[0] + column.width / 2 * first[1]
        return (TermReading(WHOLE, block, top, first[0], ends=(column.low, column.high)),)

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return estimates.terms if column.name == self.column else ()

    def decode(self, released: Released, columns: Columns) -> Estimates:
        block = self._block(columns)
        if self.cluster is not None:
            sites = columns.category(self.cluster).categories
            across = AcrossSites.new(sites)
            means = SiteMeans(released, block)
            across.add(WHOLE, means.of(), (block.column.low, block.column.high), noise=partial(means.noise, [0]))
            return across.estimates()
        column, present = block.column, summary(released, block)
        if present is None:
            return Estimates.nothing_present(f"column {column.name!r}", {WHOLE: (column.low, column.high)})
        return Estimates.of([estimate_of_mean(WHOLE, present, column)], method="ratio of noisy means; Student's t")


PARTIES = "each party counts once, and how its records differ says nothing about a population of records"
TERMS = ("variance", "sd")
HEADLINE = ("sd",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Variance(Statistic):
    """The variance (divisor n - 1) and standard deviation of the present values of a column, without the noise's own part."""

    name = "variance"
    summary = "the variance and standard deviation of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (ColumnBlock(columns.number(self.column)),)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        column = columns.number(self.column)
        moved, half = moved_block(around, ColumnBlock(column)), column.width / 2
        if moved is None:
            return {}
        return dict(zip(TERMS, (float(moved.variances()[0, 0]) * half**2, moved.deviation() * half), strict=True))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.number(self.column)
        present = summary(released, ColumnBlock(column))
        largest = (column.width / 2) ** 2 * (released.weight / (released.weight - 1) if released.weight > 1 else 1.0)
        sampling = "" if columns.unit == PrivacyUnit.PARTY else "; fourth moment, for any distribution"
        if present is None:
            limits = {"variance": (0.0, largest), "sd": (0.0, math.sqrt(largest))}
            return Estimates.nothing_present(f"column {column.name!r}", limits, HEADLINE)
        parties, flags = columns.unit == PrivacyUnit.PARTY, []
        if not present.spread_is_known and not parties:
            text = "the noise hides the fourth moment. The population's interval assumes a normal distribution"
            flags.append(Flag("normal-theory", f"column {column.name!r}: {text}"))
            sampling = "; model-based: a normal distribution for the population"
        variance = present.estimate_of_variance("variance", largest)
        if not variance.known:
            text = f"column {column.name!r}: the noise hides the variance. Only an upper end is known"
            flags.append(Flag("no-variance", text))
        return Estimates.of(
            [variance, square_root(variance, "sd")],
            noise_only=parties,
            flags=flags,
            headline=HEADLINE,
            reason=PARTIES if parties else "",
            method=f"second moment less the noise's part{sampling}",
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Covariance(OfColumns):
    """The covariance matrix (divisor n - 1) of columns over the records that have all of them, without the noise's own part.

    Terms ``age:age`` and ``age:bmi``. Intervals of the population assume a normal distribution, which ``variance`` does not.
    """

    name = "covariance"
    summary = "variances and covariances of columns"

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return self._terms_with(column, self._pairs())

    def _pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for j in range(len(self.columns)) for i in range(j + 1)]

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        moved, halves = self._moved(around, columns), [vertex.half for vertex in self._vertices(columns)]
        if moved is None:
            return {}
        variances, pairs = moved.variances(), self._pairs()
        return {
            term: halves[i] * halves[j] * float(variances[i, j]) for (i, j), term in zip(pairs, self._terms(pairs), strict=True)
        }

    def decode(self, released: Released, columns: Columns) -> Estimates:
        vertices, centred, pairs = self._vertices(columns), self._centred(released, columns), self._pairs()
        unbiased = centred.records / (centred.records - 1) if centred is not None and centred.records > 1 else 1.0
        sizes = [vertices[i].half * vertices[j].half * unbiased for i, j in pairs]
        terms = [
            SmoothTerm(name, (0.0 if i == j else -size, size))
            for name, (i, j), size in zip(self._terms(pairs), pairs, sizes, strict=True)
        ]
        if centred is None:
            text = TOO_FEW_COMPLETE
            unknown = [term.unknown for term in terms]
            return Estimates.of(unknown, noise_only=True, flags=(Flag("nothing-present", text),), reason=text)
        matrix, nearest = centred.covariance, _possible(centred.covariance)
        entries = []
        for (i, j), term, size in zip(pairs, terms, sizes, strict=True):
            sampling = (max(float(matrix[i, i] * matrix[j, j]), 0.0) + float(matrix[i, j]) ** 2) / centred.records
            parts = (float(matrix[i, j]) * size, (float(centred.errors[i, j]) * size) ** 2, sampling * size**2)
            entries.append(term.estimate(*parts).moved_to(float(nearest[i, j]) * size))
        parties = columns.unit == PrivacyUnit.PARTY
        return Estimates.of(
            entries,
            noise_only=parties,
            reason=PARTIES if parties else "",
            method="second moments less the noise's part; model-based: a normal distribution for the population",
        )


def _possible(covariance: Array) -> Array:
    """A matrix near it that is one of columns between -1 and 1: no combination has a variance below 0, no column one above 1."""
    values, vectors = np.linalg.eigh(covariance)
    nearest: Array = covariance if values[0] >= 0 else (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrunk = 1 / np.sqrt(np.maximum(np.diag(nearest), 1.0))
    return np.asarray(nearest * np.outer(shrunk, shrunk), dtype=np.float64)


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
            raise InputError(
                "robust is true, but a correlation of more than two columns has no robust errors. Ask for each pair."
            )
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
                flags.append(
                    Flag.shared("no-correlation", term.name, "the noise hides a variance. No correlation is known", (term.name,))
                )
            entries.append(term.unknown if parts is None else _tested(term.estimate(*parts, degrees), degrees))
        for (i, j), term in zip(pairs, terms, strict=True):
            flags += near_threshold(term.name, _clearance(centred, i, j), (term.name,))
        parties = columns.unit == PrivacyUnit.PARTY
        return Estimates.of(
            entries,
            noise_only=parties,
            flags=flags,
            reason=PARTIES if parties else "",
            method=f"covariances less the noise's part; Fisher's z with the noise in it; {method}",
        )


def _tested(entry: Estimate, degrees: float) -> Estimate:
    """Add the test that both have nothing to do with each other, on the scale of Fisher's z."""
    if abs(entry.value) >= 1:
        return entry
    noise, error = (each / (1 - entry.value**2) for each in (entry.noise, entry.error))
    test = t_test(math.atanh(entry.value), error, degrees, noise=noise)
    return replace(entry, p_value=test.p_value, statistic=test.statistic)


def _clearance(centred: CentredMoments | None, i: int, j: int) -> float:
    """How many times the smaller of both variances is what it must be to be divided by."""
    if centred is None:
        return math.nan
    least = tails().deviations(_LEAST_VARIANCE) * np.diag(centred.errors)[[i, j]]
    return float((np.diag(centred.covariance)[[i, j]] / least).min()) if least.min() > 0 else math.inf


def _correlation(centred: CentredMoments | None, i: int, j: int) -> tuple[float, float, float] | None:
    """The correlation of columns i and j, with the variances of noise and, of a normal distribution, of sampling."""
    if centred is None:
        return None
    variances, errors = np.diag(centred.covariance)[[i, j]], np.diag(centred.errors)[[i, j]]
    if (variances <= np.maximum(tails().deviations(_LEAST_VARIANCE) * errors, 0.0)).any():
        return None
    size = math.sqrt(float(variances.prod()))
    value = min(max(float(centred.covariance[i, j]) / size, -1.0), 1.0)
    slope = centred.slopes[i, j] / size - value / 2 * (centred.slopes[i, i] / variances[0] + centred.slopes[j, j] / variances[1])
    return value, spread(slope, centred.noise), (1 - value**2) ** 2 / max(centred.records - 3, 1.0)
