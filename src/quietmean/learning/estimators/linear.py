"""Linear regression by least squares, in one shot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from quietmean.core.arrays import Array
from quietmean.learning.estimators.base import OUTCOME, estimator, public
from quietmean.learning.estimators.one_study import OneStudy
from quietmean.statistics import INDICATOR


@estimator
class LinearRegression(RegressorMixin, OneStudy):  # type: ignore[misc]
    """Least squares with an intercept: the statistic ``linear-regression`` of one study, over noisy second moments.

    Privacy unit: one record, or a whole party with ``unit="party"``, whose records' mean then counts once. Neighbouring relation:
    replacement of one unit; ``epsilon`` and ``delta`` are those of the fit.

    ``bounds``, ``y_bounds``: public (low, high) of the columns and of the outcome, required. Everything else as in
    :class:`~quietmean.learning.estimators.base.Private`.

    Fitted: ``coef_`` (d,), ``intercept_``, their standard errors of the noise ``coef_standard_error_`` and
    ``intercept_standard_error_``, their 95 % intervals of the population ``coef_interval_`` (d, 2) and ``intercept_interval_``
    (2,), of ``unit="party"`` NaN, and ``no_intervals_`` says why, ``estimates_``, ``certificate_``, ``epsilon_``, ``delta_``.
    A coefficient for which no interval holds, as a warning says, has infinite errors, and predicts all the same. Where the noise
    hides the regression all are NaN, with a warning, and ``predict`` is refused.
    """

    y_bounds: ArrayLike | None = None

    @public
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One release. ``X``: a list with the (X, y) of each party; or X (N, d) and y (N,), with ``groups`` (N,), a party's label
        for each row, or the parameter ``parties``. Raises :class:`InputError`, a ValueError too, before anything is released.
        """
        rows, outcomes = self._held(X, y, groups, supervised=True)
        limits = self._limits(self.bounds, rows[0].shape[1])
        parts = [np.column_stack([one, np.asarray(other, dtype=np.float64)]) for one, other in zip(rows, outcomes, strict=True)]
        released = self._release(limits, parts)
        (coefficients,), (predictor,) = released.estimates, released.predictors
        self.intercept_ = float(predictor.value[0])
        self.coef_ = predictor.value[1:]
        self.intercept_standard_error_ = float(coefficients.standard_error[0])
        self.coef_standard_error_ = coefficients.standard_error[1:]
        if coefficients.of_population is not None:
            self.intercept_interval_, self.coef_interval_ = coefficients.of_population[0], coefficients.of_population[1:]
        self._missing_errors("", coefficients.reason if coefficients.of_population is None else "")
        return self

    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        low, high = self._limits(self.y_bounds, 1, "y_bounds")[0].tolist()
        formula = f"{OUTCOME} ~ {' + '.join(self._names(columns))}"
        return [{"kind": "linear-regression", "formula": formula}], {"low": low, "high": high, "missing": INDICATOR}

    @public
    def predict(self, X: Any) -> Array:
        """Shape (N,), from X (N, d). Nothing is released. Raises :class:`InputError` where the noise hides the regression."""
        rows = self._complete(X)
        predictions: Array = rows @ self._known(self.coef_, "the regression") + self.intercept_
        return predictions
