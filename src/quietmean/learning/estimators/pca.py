"""Principal components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from quietmean.core.arrays import Array
from quietmean.learning.estimators.base import InvalidInput, estimator, public
from quietmean.learning.estimators.one_shot import OneShot
from quietmean.learning.estimators.one_study import OneStudy
from quietmean.statistics import Estimates


@estimator
class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, OneStudy):  # type: ignore[misc]
    """Principal components of the covariances: the statistic ``pca`` of one study, over noisy second moments.

    Privacy unit: one record, or a whole party with ``unit="party"``, whose records' mean then counts once. Neighbouring relation:
    replacement of one unit; ``epsilon`` and ``delta`` are those of the fit.

    ``bounds``: public (low, high) of the columns, required. ``n_components`` k, all by default. Everything else as in
    :class:`~quietmean.learning.estimators.base.Private`.

    Fitted: ``components_`` (k, d), ``explained_variance_`` and ``explained_variance_ratio_`` (k,), ``mean_`` (d,), the standard
    errors of the noise ``components_standard_error_`` and ``explained_variance_standard_error_``, ``estimates_``,
    ``certificate_``, ``epsilon_``, ``delta_``. Components that the noise cannot tell apart are NaN, with a warning, and
    ``transform`` is refused until ``n_components`` leaves them out.
    """

    n_components: int | None = None

    @public
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One release. ``X``: a list with the X of each party; or X (N, d) with ``groups`` (N,), a party's label for each row, or
        the parameter ``parties``; ``y`` is not used. Raises :class:`InputError`, a ValueError too, before anything is released.
        """
        rows, _ = self._held(X, None, groups, supervised=False)
        columns = rows[0].shape[1]
        components = self._components_of(columns)
        names = self._names(columns)
        released = self._release(self._limits(self.bounds, columns), rows)
        (estimates,) = released.estimates
        values, errors = (
            _table(estimates, numbers, names)[:components] for numbers in (estimates.value, estimates.standard_error)
        )
        self.explained_variance_, self.components_ = values[:, 0], values[:, 1:]
        self.explained_variance_standard_error_, self.components_standard_error_ = errors[:, 0], errors[:, 1:]
        ratios = estimates.summary.get("proportion", [np.nan] * columns)
        self.explained_variance_ratio_ = np.array(ratios[:components])
        self.mean_ = _means(released)
        self.n_components_ = components
        return self

    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        return [{"kind": "pca", "columns": self._names(columns), "scale": False}], None

    @public
    def transform(self, X: Any) -> Array:
        """Shape (N, k). Nothing is released. Raises :class:`InputError` for components that the noise hides."""
        rows = self._complete(X)
        scores: Array = (rows - self.mean_) @ self._visible_components().T
        return scores

    @public
    def inverse_transform(self, X: Any) -> Array:
        """Shape (N, d), from the components (N, k)."""
        restored: Array = np.asarray(X, dtype=np.float64) @ self._visible_components() + self.mean_
        return restored

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _visible_components(self) -> Array:
        visible = int(np.isfinite(self.components_).all(axis=1).cumprod().sum())
        if 0 < visible < len(self.components_):
            raise InvalidInput(
                f"noise hides some of the {len(self.components_)} components: choose n_components={visible}, or a larger epsilon"
            )
        components: Array = self._known(self.components_, "the components")
        return components

    def _components_of(self, columns: int) -> int:
        if columns < 2:
            raise InvalidInput(f"components of {columns} feature(s) say nothing: give two columns or more")
        count = columns if self.n_components is None else self.n_components
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= columns:
            raise InvalidInput(f"n_components is {count!r}: choose a whole number from 1 to {columns}, the number of columns")
        return int(count)


def _table(estimates: Estimates, values: Array, columns: Sequence[str]) -> Array:
    """Row by component: its variance, then its loadings, shape (d, 1 + d) of d columns."""
    by_term = dict(zip(estimates.terms, values.tolist(), strict=True))
    names = [f"PC{number + 1}" for number in range(len(columns))]
    return np.array([[by_term[name], *(by_term[f"{name}:{column}"] for column in columns)] for name in names])


def _means(one_shot: OneShot) -> Array:
    """The means of the columns, from the first moments that the covariances need anyway."""
    workload = one_shot.outcome.workload
    (moments,) = workload.statistics[0].features(workload.declared)
    # The mean of the indicator of complete records, then those of the columns scaled to [-1, 1].
    first = one_shot.released.mean(moments)[: 1 + len(workload.columns)]
    scaled = np.clip(first[1:] / max(float(first[0]), 1e-9), -1.0, 1.0)
    return np.array(
        [column.centre + column.width / 2 * value for column, value in zip(workload.columns, scaled.tolist(), strict=True)]
    )
