"""Means and standard deviations of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from quietmean.core.arrays import Array
from quietmean.learning.estimators.base import estimator, public
from quietmean.learning.estimators.one_study import OneStudy


@estimator
class StandardScaler(OneToOneFeatureMixin, TransformerMixin, OneStudy):  # type: ignore[misc]
    """Columns less their mean, over their standard deviation: the statistics ``mean`` and ``variance`` of one study.

    Privacy unit: one record, or a whole party with ``unit="party"``, whose records' mean then counts once. Neighbouring relation:
    replacement of one unit; ``epsilon`` and ``delta`` are those of the fit.

    ``bounds``: public (low, high) of the columns, required. Everything else as in
    :class:`~quietmean.learning.estimators.base.Private`.

    Fitted: ``mean_``, ``var_`` (divisor n - 1, NaN where the noise hides it), ``scale_``, all (d,), ``mean_standard_error_`` and
    ``var_standard_error_`` of the noise, ``n_samples_seen_`` (parties where they are the unit), ``estimates_``,
    ``certificate_``, ``epsilon_``, ``delta_``. Where the noise hides a variance, with a warning, ``scale_`` is that of a uniform
    distribution within the bounds.
    """

    @public
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One release. ``X``: a list with the X of each party; or X (N, d) with ``groups`` (N,), a party's label for each row, or
        the parameter ``parties``; ``y`` is not used. Raises :class:`InputError`, a ValueError too, before anything is released.
        """
        rows, _ = self._held(X, None, groups, supervised=False)
        columns = rows[0].shape[1]
        limits = self._limits(self.bounds, columns)
        released = self._release(limits, rows)
        means, variances = released.estimates[:columns], released.estimates[columns:]
        self.mean_ = np.array([mean.value[0] for mean in means])
        self.var_ = np.array([variance.value[0] for variance in variances])
        self.mean_standard_error_ = np.array([mean.standard_error[0] for mean in means])
        self.var_standard_error_ = np.array([variance.standard_error[0] for variance in variances])
        uniform = (limits[:, 1] - limits[:, 0]) / math.sqrt(12)
        self.scale_ = np.where(self.var_ > 0, np.sqrt(np.maximum(np.nan_to_num(self.var_), 0.0)), uniform)
        self.n_samples_seen_ = round(released.weight)
        return self

    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        return [{"kind": kind, "column": name} for kind in ("mean", "variance") for name in self._names(columns)], None

    @public
    def transform(self, X: Any) -> Array:
        """Shape (N, d). Nothing is released."""
        scaled: Array = (self._rows(X) - self._known(self.mean_, "the means")) / self.scale_
        return scaled

    @public
    def inverse_transform(self, X: Any) -> Array:
        """Back to the units of the columns, shape (N, d)."""
        restored: Array = self._rows(X) * self.scale_ + self._known(self.mean_, "the means")
        return restored
