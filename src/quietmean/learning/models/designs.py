r"""Designs in coordinates in which privacy noise does least harm, from public bounds alone.

With x the terms of a record, the rows of a design are y = T x, with T such that :math:`\|T x\| \le 1` for all values within the
public bounds. T is that of the smallest ellipsoid around the origin that holds all of these, which is the inverse root of the
information of the D-optimal design on them (Kiefer and Wolfowitz 1960; Titterington 1978): noise of one length in all directions
does then the same harm whatever the terms are called, coded or scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.learning.models.formulas import FormulaTerms

_STEPS = 250
# The least eigenvalue of the terms' correlations over the public sample, below which they are one term too many.
_COLLINEAR = 1e-8
# How much longer terms may be between the public points.
_BETWEEN = 1.005
# What is rounding in values of 0 and 1.
_NONE = 1e-6
_ALL = "all records"


@dataclass(frozen=True, eq=False)
class Level:
    """Records of one level of a column: the ``coefficients`` of the rows, (p,), with which these have 1 and the others 0, and the
    ``terms`` that depend on them."""

    name: str
    coefficients: Array
    terms: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ModelDesign:
    """The rows of ``terms`` in the unit ball. Raises :class:`InputError` for terms that are collinear whatever the data are."""

    terms: FormulaTerms

    @property
    def names(self) -> tuple[str, ...]:
        return self.terms.names

    @property
    def size(self) -> int:
        return len(self.names)

    @cached_property
    def scaling(self) -> Array:
        """T, (p, p): coefficients of the terms are T' times those of the rows."""
        public = self.terms.public
        lengths = np.sqrt(np.mean(public**2, axis=0))
        if (lengths == 0).any():
            raise InputError(f"the term {self.names[int(lengths.argmin())]} is 0 for all values within the bounds: leave it out")
        scaled = public / lengths
        values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
        if values[0] < _COLLINEAR:
            part = np.abs(vectors[:, 0])
            some = ", ".join(self.names[place] for place in np.argsort(-part)[:3] if part[place] > 0.05)
            raise InputError(f"some of the terms are a sum of the others whatever the data are ({some}): leave one out")
        weights = np.full(len(scaled), 1 / len(scaled))
        for _ in range(_STEPS):
            variances = _variances(scaled, weights)
            weights *= variances / len(values)
        information = (scaled * weights[:, None]).T @ scaled
        root = np.linalg.inv(np.linalg.cholesky(information))
        scaling: Array = root / np.sqrt(_variances(scaled, weights).max()) / lengths / _BETWEEN
        return scaling

    @property
    def constant(self) -> Array | None:
        """The coefficients of the rows with which every record has 1, (p,); None where the terms have no intercept."""
        return next((level.coefficients for level in self.levels if level.name == _ALL), None)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The part of all records, and of each level of a column, those that the terms can tell from the others."""
        there = {_ALL: np.ones(len(self.terms.public)), **self.terms.levels_of_public}
        values = np.column_stack(list(there.values())).astype(np.float64)
        public = self.terms.public @ self.scaling.T
        rows = np.linalg.solve(public.T @ public, public.T @ values).T
        matched = np.abs(public @ rows.T - values).max(axis=0) <= _NONE
        terms = np.abs(rows @ self.scaling) > _NONE
        return tuple(
            Level(name, np.asarray(own), tuple(np.array(self.names)[depends].tolist()))
            for name, own, depends, tells in zip(there, rows, terms, matched.tolist(), strict=True)
            if tells
        )

    def rows(self, records: Mapping[str, Array]) -> Array:
        """(N, p), of complete records by column; longer ones than 1, which rounding alone makes, are shortened."""
        rows = self.terms.design(records) @ self.scaling.T
        inside: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return inside


def _variances(rows: Array, weights: Array) -> Array:
    information: Array = (rows * weights[:, None]).T @ rows
    variances: Array = ((rows @ np.linalg.inv(information)) * rows).sum(axis=1)
    return variances
