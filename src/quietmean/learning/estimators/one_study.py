"""Estimators that are one study of statistics: linear regression, principal components, standardised columns."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin

from quietmean.core.arrays import Array
from quietmean.core.codec import canonical_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.keywords import as_keyword
from quietmean.core.party import Vector
from quietmean.learning.estimators.base import OUTCOME, FitCertificate, InvalidInput, Private, estimator, public
from quietmean.learning.sites import FitSite, learned_bounds_note, parties_of, site_of
from quietmean.planning.accuracy import stated_law, stated_variance
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.protocols.target import budget_warnings
from quietmean.statistics import INDICATOR, Estimates, Released
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.feasible import feasible
from quietmean.studies.outcome.outcome import StudyOutcome


@dataclass(frozen=True, eq=False)
class OneShot:
    """What one release gave. ``notes``: for the owner of the data only."""

    outcome: StudyOutcome
    mean: Vector
    step: float
    noise: float
    notes: tuple[str, ...]

    @property
    def estimates(self) -> tuple[Estimates, ...]:
        """The estimates of each statistic that was asked for."""
        return tuple(answer.estimates for answer in self.outcome.answers)

    @property
    def predictors(self) -> tuple[Estimates, ...]:
        """Estimates with the terms for which no interval holds: to predict with."""
        workload, released = self.outcome.workload, self.released
        return tuple(workload.with_columns(statistic).to_predict(released) for statistic in workload.statistics)

    @property
    def weight(self) -> float:
        """Records, or parties where they are the unit."""
        return self.outcome.answers[0].records

    @property
    def released(self) -> Released:
        """The quantities that the estimates are made of."""
        law = stated_law(self.outcome.execution)
        return self.outcome.workload.decoder(self.step).released(self.mean, self.noise, self.weight, law)


def release(fields: Mapping[str, Any], parts: Sequence[Array], site: FitSite) -> OneShot:
    """One study of the tables ``fields``, with the records (rows, columns) of each party that is here.

    Raises :class:`InputError` for what cannot be asked or if the noise would hide everything, before anything is sent, and
    :class:`ProtocolFailure` without a result.
    """
    terms, plan = planned(fields, parties_of(site, len(parts) if site.members is None else None))
    # At a site nobody knows how many records all have.
    records = float(sum(map(len, parts))) if site.members is None else None
    units = float(plan.target.parties) if terms.unit == PrivacyUnit.PARTY else records
    try:
        feasible(terms, plan.target.parties, units=units, planned=Choice(plan), hope=units is not None)
    except InputError as error:
        # It is a parameter of the estimator, whose method was called.
        error.words = partial(as_keyword, ("accept_wide",))
        raise
    outcome, mean, notes = site.release(terms, plan, parts)
    deviation = math.sqrt(stated_variance(outcome.execution))
    return OneShot(outcome, mean, plan.value_step, deviation, (*budget_warnings(plan.target, records), *notes))


def planned(fields: Mapping[str, Any], parties: int) -> tuple[StudyTerms, Plan]:
    """The study and its plan, which is made once for each: folds and copies of an estimator ask for the same."""
    return _planned(canonical_json(dict(fields)), parties)


@lru_cache(maxsize=64)
def _planned(text: bytes, parties: int) -> tuple[StudyTerms, Plan]:
    terms = StudyTerms.parse(json.loads(text))
    return terms, terms.plan(parties)


@estimator
class OneStudy(Private):
    """An estimator whose fit is one study."""

    @abstractmethod
    def _questions(self, columns: int) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
        """The statistics of a study, and how its outcome is declared."""

    def _tables(self, limits: Array) -> dict[str, Any]:
        """A study of the columns and perhaps the outcome."""
        statistics, outcome = self._questions(len(limits))
        columns = [
            {"name": name, "low": low, "high": high, "missing": INDICATOR}
            for name, (low, high) in zip(self._names(len(limits)), limits.tolist(), strict=True)
        ]
        return {
            "column": [*columns, *([{"name": OUTCOME, **outcome}] if outcome else [])],
            "statistic": [dict(statistic) for statistic in statistics],
            "accept_wide": self.accept_wide,
            **site_of(self.site).agreed(type(self).__name__.lower()),
            **self._budget(),
        }

    def _contract(self, limits: Array) -> Any:
        site = site_of(self.site)
        return site.contract(planned(self._tables(limits), parties_of(site, None))[0])

    def _release(self, limits: Array, parts: Sequence[Array]) -> OneShot:
        """One study of the columns and perhaps the outcome, whose values are the last column of each part."""
        released = release(self._tables(limits), parts, site_of(self.site))
        self._certify(FitCertificate.of_study(released.outcome))
        self.estimates_ = released.estimates
        flags = [flag.message for answer in released.estimates for flag in answer.flags]
        self._tell([*released.notes, *learned_bounds_note(parts, limits), *dict.fromkeys(flags)])
        return released


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
        """The predicted outcomes (N,) of X (N, d).

        Nothing is released. Raises :class:`InputError` where the noise hides the regression.
        """
        rows = self._complete(X)
        predictions: Array = rows @ self._known(self.coef_, "the regression") + self.intercept_
        return predictions


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
        """The components of each row, shape (N, k).

        Nothing is released. Raises :class:`InputError` for those that the noise hides.
        """
        rows = self._complete(X)
        scores: Array = (rows - self.mean_) @ self._visible_components().T
        return scores

    @public
    def inverse_transform(self, X: Any) -> Array:
        """The rows (N, d) with these components (N, k)."""
        restored: Array = np.asarray(X, dtype=np.float64) @ self._visible_components() + self.mean_
        return restored

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _visible_components(self) -> Array:
        visible = int(np.isfinite(self.components_).all(axis=1).cumprod().sum())
        if 0 < visible < len(self.components_):
            raise InvalidInput(
                f"noise hides some of the {len(self.components_)} components. Choose n_components={visible}, or a larger epsilon."
            )
        components: Array = self._known(self.components_, "the components")
        return components

    def _components_of(self, columns: int) -> int:
        if columns < 2:
            raise InvalidInput(f"components of {columns} feature(s) say nothing. Give two columns or more.")
        count = columns if self.n_components is None else self.n_components
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= columns:
            raise InvalidInput(f"n_components is {count!r}. Choose a whole number from 1 to {columns}, the number of columns.")
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
        """The standardised rows, shape (N, d). Nothing is released."""
        scaled: Array = (self._rows(X) - self._known(self.mean_, "the means")) / self.scale_
        return scaled

    @public
    def inverse_transform(self, X: Any) -> Array:
        """Back to the units of the columns, shape (N, d)."""
        restored: Array = self._rows(X) * self.scale_ + self._known(self.mean_, "the means")
        return restored
