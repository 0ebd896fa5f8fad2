"""Principal components of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.complete_records import CentredMoments, OfColumns
from quietmean.statistics.delta_method import spread
from quietmean.statistics.estimate import TOO_FEW_COMPLETE, Estimate, Flag, near_threshold
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.means import PARTIES
from quietmean.statistics.statistic import Released
from quietmean.statistics.tails import tails

# Noise deviations of an entry, times the square root of the number of columns, that eigenvalues must be apart; and of a variance.
_LEAST_GAP, _LEAST_VARIANCE, _NO_GAP = 4.0, 4.0, 1e-12


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A covariance or correlation matrix with its parts: how an entry (k, k) depends on the covariances, and the noise."""

    values: Array
    covariance: Array
    scale: Array
    standardised: bool

    def back(self, gradient: Array) -> Array:
        """The gradient by the covariances, (k, k) symmetric, from that by this matrix."""
        if not self.standardised:
            return gradient
        by_covariances: Array = gradient / np.outer(self.scale, self.scale)
        by_covariances[np.diag_indices_from(by_covariances)] -= (gradient * self.values).sum(axis=1) / self.scale**2
        return by_covariances


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Pca(OfColumns):
    """Principal components of columns over the records that have all of them: ``PC1`` is the variance along the first, and
    ``PC1:age`` the loading of a column, whose largest one is positive.

    By default of the correlations, so that units do not matter; with ``scale=false`` of the covariances. Components whose
    variances noise cannot tell apart are left out. Intervals of the population assume a normal distribution. ``summary`` has
    standard deviations, proportions and their sums, and by how many degrees the noise turns each component.
    """

    name = "pca"
    summary = "principal components of columns"
    asks_for_relations = True
    scale: bool = parameter(True, help="divide each column by its standard deviation")

    def decode(self, released: Released, columns: Columns) -> Estimates:
        vertices = self._vertices(columns)
        centred = self._centred(released, columns)
        if centred is None or centred.records <= 2:
            return self._unknown(TOO_FEW_COMPLETE)
        half = np.array([vertex.half for vertex in vertices]) * math.sqrt(centred.records / (centred.records - 1))
        covariance, slopes = centred.covariance * np.outer(half, half), centred.slopes * np.outer(half, half)[:, :, None]
        errors = centred.errors * np.outer(half, half)
        variances = np.diag(covariance)
        if (variances <= np.maximum(tails().deviations(_LEAST_VARIANCE) * np.diag(errors), 0.0)).any():
            return self._unknown("the noise hides the variance of a column. Leave it out, or ask for a larger epsilon")
        deviations = np.sqrt(variances)
        values = covariance / np.outer(deviations, deviations) if self.scale else covariance
        matrix = _Matrix(values, covariance, deviations, self.scale)
        return self._components(matrix, slopes, centred, columns.unit == PrivacyUnit.PARTY)

    def _components(self, matrix: _Matrix, slopes: Array, centred: CentredMoments, parties: bool) -> Estimates:
        count = len(self.columns)
        values, vectors = np.linalg.eigh(matrix.values)
        values, vectors = values[::-1], vectors[:, ::-1]
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])

        def row(term: str, value: float, gradient: Array, limits: tuple[float, float]) -> Estimate:
            own = matrix.back(gradient)
            turned = own @ matrix.covariance
            noise = spread(np.einsum("ij,ijq->q", own, slopes), centred.noise)
            return Estimate.normal(term, value, noise, 2 * float((turned * turned.T).sum()) / centred.records, limits)

        entry = max(row("", 0.0, _entry(count, i, j), (-1.0, 1.0)).noise for i in range(count) for j in range(i + 1))
        rows: list[Estimate] = []
        flags: list[Flag] = []
        angles: list[float | None] = []
        largest = float(count) if self.scale else math.inf
        for component in range(count):
            name = f"PC{component + 1}"
            gaps = np.delete(values[component] - values, component)
            loadings = [f"{name}:{column}" for column in self.columns]
            smallest_gap = _LEAST_GAP * entry * math.sqrt(count)
            if np.abs(gaps).min() <= max(smallest_gap, _NO_GAP * float(values[0])):
                text = "the noise hides how its variance differs from that of another component. It is left out"
                flags.append(Flag.shared("no-gap", name, text, (name, *loadings)))
                rows += [Estimate.unknown(name, (0.0, largest)), *(Estimate.unknown(term, (-1.0, 1.0)) for term in loadings)]
                angles.append(None)
                continue
            if smallest_gap > 0:
                flags += near_threshold(name, float(np.abs(gaps).min()) / smallest_gap, (name, *loadings))
            vector = vectors[:, component]
            rows.append(row(name, float(values[component]), np.outer(vector, vector), (0.0, largest)))
            others = np.delete(vectors, component, axis=1)
            own = [
                row(term, float(vector[loading]), _symmetric(others @ (others[loading] / gaps), vector), (-1.0, 1.0))
                for loading, term in enumerate(loadings)
            ]
            angles.append(math.degrees(math.sqrt(sum(each.noise**2 for each in own))))
            rows += own
        total = float(np.trace(matrix.values))
        summary: dict[str, Any] = {
            "sdev": [math.sqrt(value) if value > 0 else None for value in values.tolist()],
            "proportion": (values / total).tolist(),
            "cumulative": (np.cumsum(values) / total).tolist(),
            "noise_turns_by_degrees": angles,
            "records": centred.records,
        }
        return Estimates.of(
            rows,
            noise_only=parties,
            flags=tuple(flags),
            headline=("PC1",),
            summary=summary,
            reason=PARTIES if parties else "",
            method="perturbation of second moments less the noise's part; model-based: a normal distribution",
        )

    def _unknown(self, text: str) -> Estimates:
        names = [f"PC{component + 1}" for component in range(len(self.columns))]
        rows = [
            Estimate.unknown(term, (-1.0, 1.0) if ":" in term else (0.0, math.inf))
            for name in names
            for term in (name, *(f"{name}:{column}" for column in self.columns))
        ]
        return Estimates.of(rows, noise_only=True, flags=(Flag("no-components", text),), headline=("PC1",), reason=text)


def _entry(count: int, i: int, j: int) -> Array:
    """The gradient of one entry of a symmetric matrix."""
    gradient = np.zeros((count, count))
    gradient[i, j] += 0.5
    gradient[j, i] += 0.5
    return gradient


def _symmetric(first: Array, second: Array) -> Array:
    symmetric: Array = (np.outer(first, second) + np.outer(second, first)) / 2
    return symmetric
