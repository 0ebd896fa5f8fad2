"""Variances and covariances of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.around import Around
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import OfColumns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.kinds.variance import PARTIES
from quietmean.statistics.possible import moved_to
from quietmean.statistics.statistic import Released


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
        vertices = self._vertices(columns)
        centred = self._centred(released, columns)
        pairs = self._pairs()
        terms = self._terms(pairs)
        sizes = np.array([vertices[i].half * vertices[j].half for i, j in pairs])
        unbiased = centred.records / (centred.records - 1) if centred is not None and centred.records > 1 else 1.0
        high = sizes * unbiased
        low = np.where([i == j for i, j in pairs], 0.0, -high)
        if centred is None:
            text = "too few complete records for the noise: nothing is known about them"
            nothing, endless = np.full(len(pairs), math.nan), np.full(len(pairs), math.inf)
            return Estimates(terms, nothing, endless, low, high, flags=(Flag("nothing-present", text),), reason=text)
        matrix = centred.covariance
        values = np.array([matrix[i, j] for i, j in pairs]) * high
        noise = np.array([centred.errors[i, j] for i, j in pairs]) * high
        sampling = np.array([max(matrix[i, i] * matrix[j, j], 0.0) + matrix[i, j] ** 2 for i, j in pairs]) / centred.records
        parties = columns.unit == PrivacyUnit.PARTY
        released_as = Estimates(
            terms,
            values,
            noise,
            low,
            high,
            population=None if parties else np.sqrt(noise**2 + sampling * high**2),
            reason=PARTIES if parties else "",
            method="second moments without the noise's part; model-based: a normal distribution for the population",
        )
        nearest = _possible(matrix)
        return moved_to(released_as, np.array([nearest[i, j] for i, j in pairs]) * high)


def _possible(covariance: Array) -> Array:
    """A matrix near it that is one of columns between -1 and 1: no combination has a variance below 0, no column one above 1."""
    values, vectors = np.linalg.eigh(covariance)
    nearest: Array = covariance if values[0] >= 0 else (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrunk = 1 / np.sqrt(np.maximum(np.diag(nearest), 1.0))
    return np.asarray(nearest * np.outer(shrunk, shrunk), dtype=np.float64)


STATISTIC = Covariance
