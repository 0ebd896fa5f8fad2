"""Variances and covariances of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.around import Around
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import OfColumns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.kinds.variance import PARTIES
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
        vertices, centred, pairs = self._vertices(columns), self._centred(released, columns), self._pairs()
        unbiased = centred.records / (centred.records - 1) if centred is not None and centred.records > 1 else 1.0
        sizes = [vertices[i].half * vertices[j].half * unbiased for i, j in pairs]
        terms = [
            SmoothTerm(name, (0.0 if i == j else -size, size))
            for name, (i, j), size in zip(self._terms(pairs), pairs, sizes, strict=True)
        ]
        if centred is None:
            text = "too few complete records for the noise: nothing is known about them"
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
            method="second moments without the noise's part; model-based: a normal distribution for the population",
        )


def _possible(covariance: Array) -> Array:
    """A matrix near it that is one of columns between -1 and 1: no combination has a variance below 0, no column one above 1."""
    values, vectors = np.linalg.eigh(covariance)
    nearest: Array = covariance if values[0] >= 0 else (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrunk = 1 / np.sqrt(np.maximum(np.diag(nearest), 1.0))
    return np.asarray(nearest * np.outer(shrunk, shrunk), dtype=np.float64)


STATISTIC = Covariance
