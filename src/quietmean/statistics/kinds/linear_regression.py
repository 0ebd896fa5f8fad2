"""Linear regression by least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.complete_records import CentredMoments, Regression, moments_of, moved_products
from quietmean.statistics.delta_method import SmoothTerm, levels_stay
from quietmean.statistics.estimate import (
    COVARIATES_HIDDEN,
    DEPENDENT,
    NOT_IDENTIFIED,
    TOO_FEW_COMPLETE,
    Estimate,
    Flag,
    HypothesisTest,
    degrees_of_freedom,
    f_test,
    near_threshold,
)
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.fields import ROBUST, robust_field, sides_of
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.kinds.means import PARTIES
from quietmean.statistics.names import split
from quietmean.statistics.paired_columns import PairMoments, of_line
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released
from quietmean.statistics.survey_design import Score
from quietmean.statistics.tails import tails
from quietmean.statistics.weighted_lines import WeightedMoments
from quietmean.statistics.weights import Weighable

INTERCEPT = "(Intercept)"
_BY_DESIGN = "weighted by design, with replacement"
# What a summary says of records that count alike.
_OF_RECORDS = ("records", "df", "adjusted_r_squared")
# Noise deviations of a product that the least eigenvalue of the covariates' covariance must have; a smaller one is raised.
_LEAST_EIGENVALUE, _FLOOR = 4.0, 0.5
_NO_VARIANCE = 1e-12
# The part of a covariate's variance in directions that noise hides from which on its slope is hidden.
_ALONG = 0.01
# The part of a slope's noise by the spread of covariates up to which it is of no account that chance decided to show it.
_OF_NO_ACCOUNT = 0.25


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearRegression(Weighable, Regression):
    """Least squares of an outcome on columns, ``bmi ~ age + sex``, over the records that have all of them.

    A column with levels has a term ``sex[m]`` for each level but the first; a level that so few
    have that the noise hides it is left out. Intervals assume errors of the same variance for all
    records; with ``robust``, of one covariate, none. Noise in the covariates is counted in the errors, and its own part is
    subtracted from their variances. With ``weight``, errors are by design: of one covariate, or of any with clusters ``psu``.
    """

    name = "linear-regression"
    summary = "least squares of an outcome on columns"

    expects = ("slope", "correlation")

    robust: bool = robust_field()

    @classmethod
    def meant_in_words(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        return {ROBUST: True} if _looks_of_one(str(raw.get("formula", ""))) else {}

    def synthesize(self, scenario: SyntheticRecords) -> None:
        outcome, covariates = self._sides(scenario.columns)
        name = outcome.column.name
        spread = float(scenario.values[name].std())
        causes, correlations = [], []
        for index, vertex in enumerate(covariates):
            cause, own = scenario.covariate(vertex.column, vertex.level), scenario.expected(vertex.column.name)
            slope = scenario.expected("slope") if own is None and index == 0 else own
            correlation = slope * float(cause.std()) / spread if slope is not None and spread > 0 else None
            if correlation is None and index == 0:
                correlation = scenario.expected("correlation")
            if correlation:
                causes.append(scenario.unit(cause))
                correlations.append(correlation)
        if causes:
            scenario.correlate(name, causes, correlations)

    def _outcome(self, name: str, columns: Columns) -> Vertex:
        return Vertex(columns.number(name))

    def _moments(self, columns: Columns) -> Moments:
        outcome, covariates = self._sides(columns)
        if self.robust and len(sides_of(self.formula)[1]) > 1:
            raise InputError(
                f"robust is true, but {self.formula!r} has several covariates. Leave robust out, or keep one covariate."
            )
        return moments_of((*covariates, outcome), heavy=outcome, robust=self.robust)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        if self.weight is not None:
            return {}
        outcome, covariates = self._sides(columns)
        moments = self._moments(columns)
        if not levels_stay(around, moments, covariates):
            return {}
        moved = moved_products(around, moments, (*covariates, outcome))
        apart = None if moved is None else moved.least_squares(_LEAST_EIGENVALUE)
        if apart is None:
            return {}
        in_units = np.abs(_to_units(outcome, covariates)) @ np.concatenate([[apart[1]], apart[0]])
        return dict(zip((INTERCEPT, *(vertex.name for vertex in covariates)), in_units.tolist(), strict=True))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        outcome, covariates = self._sides(columns)
        moments, errors = self._moments(columns), _of_model
        if moments.higher:
            errors = partial(_robust, PairMoments.of(released, moments, covariates[0], outcome), covariates[0], outcome)
        return self._decode(released, columns, errors)

    def _decode(self, released: Released, columns: Columns, errors: _Errors, effective: float | None = None) -> Estimates:
        """The estimates; ``effective``: as how many records of equal weights these tell, by default how many there are."""
        outcome, covariates = self._sides(columns)
        terms = (INTERCEPT, *(vertex.name for vertex in covariates))
        levels = self._known(released, columns)
        centred = self._centred(released, columns, levels.covariates)
        if centred is not None:
            # Noise may count more records than there are.
            number = min(centred.records, released.records) if effective is None else effective
            centred = replace(centred, records=number)
        if centred is None or centred.records <= len(terms):
            return _unknown(terms, TOO_FEW_COMPLETE)
        if not levels.covariates:
            return levels.completed(_unknown(terms, COVARIATES_HIDDEN), terms)
        kept = (INTERCEPT, *(vertex.name for vertex in levels.covariates))
        fitted = _fit(centred, outcome, levels.covariates, kept, errors, columns.unit == PrivacyUnit.PARTY)
        return replace(levels.completed(fitted, terms), headline=terms[1:])

    def _weighted(self, columns: Columns, weight: Column) -> WeightedMoments:
        """What is released of weighted records. Raises :class:`InputError` for a design by which errors cannot be known."""
        outcome, covariates = self._sides(columns)
        if self.strata is not None or self.margin or self.population is not None:
            raise InputError(f"{self.text} is a regression, which takes weight and psu alone. Leave strata and the like out.")
        if self.psu is None and len(covariates) > 1:
            raise InputError(
                f"{self.text} weighs several covariates, whose errors need clusters. Name them, as in psu=site, or keep one."
            )
        psu = None if self.psu is None else columns.category(self.psu)
        return WeightedMoments(moments_of((*covariates, outcome), heavy=outcome, robust=psu is None), weight, psu, psu is None)

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        return self._weighted(columns, weight).features

    def scores(self, columns: Columns, weight: Column) -> list[Score]:
        return []

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        weighted, (outcome, covariates) = self._weighted(columns, weight), self._sides(columns)
        errors = partial(_by_design, weighted, released, (covariates[0], outcome), records)
        plain = replace(self, weight=None, psu=None, robust=weighted.psu is None)
        found = plain._decode(weighted.seen(released), columns, errors, weighted.effective(released))
        return replace(found, summary={name: value for name, value in found.summary.items() if name not in _OF_RECORDS})


def _looks_of_one(formula: str) -> bool:
    """Does a text that may be a formula of more than columns have one covariate?"""
    sides = split(formula, "~")
    return len(sides) == 2 and len(split(sides[1], "+")) == 1 and not any(len(split(sides[1], sign)) > 1 for sign in "*/^")


def _fit(
    centred: CentredMoments,
    outcome: Vertex,
    covariates: tuple[Vertex, ...],
    terms: tuple[str, ...],
    errors: _Errors,
    parties: bool,
) -> Estimates:
    count = len(covariates)
    inverse, flags = inverse_of(centred, terms)
    if inverse is None:
        return _unknown(terms, DEPENDENT)
    pulled = any(flag.code == NOT_IDENTIFIED for flag in flags)
    cross = centred.covariance[:count, count]
    slopes = inverse @ cross
    # How the slopes, then the intercept, change with the released quantities; all columns are scaled to [-1, 1] here.
    residual = centred.slopes[:count, count] - np.einsum("j,ijq->iq", slopes, centred.slopes[:count, :count])
    gradient = inverse @ residual
    middle = float(centred.means[count] - slopes @ centred.means[:count])
    first = centred.mean_slopes[count] - slopes @ centred.mean_slopes[:count] - centred.means[:count] @ gradient
    values = np.concatenate([[middle], slopes])
    gradients = np.vstack([first, gradient])
    noise = gradients @ centred.noise @ gradients.T
    degrees = centred.records - count - 1
    own = float(np.trace(inverse @ residual @ centred.noise @ residual.T))
    unexplained = max(float(centred.covariance[count, count] - cross @ slopes) + own, 0.0)
    variance = unexplained * centred.records / degrees
    means = centred.means[:count]
    sampling = np.block([[1 + means @ inverse @ means, -(inverse @ means)[None]], [-(inverse @ means)[:, None], inverse]])
    sampling = sampling * variance / centred.records
    change = _to_units(outcome, covariates)
    values = change @ values + np.eye(count + 1)[0] * outcome.centre
    noise, sampling = change @ noise @ change.T, change @ sampling @ change.T
    total = float(centred.covariance[count, count])
    explained = 1 - unexplained / total if total > 0 and not pulled else math.nan
    summary: dict[str, Any] = {
        # Below 0, noise hides what is explained.
        "r_squared": min(explained, 1.0) if explained >= 0 else None,
        "adjusted_r_squared": 1 - (1 - min(explained, 1.0)) * (centred.records - 1) / degrees if explained >= 0 else None,
        "sigma": None if pulled else math.sqrt(variance) * outcome.half,
        "df": degrees,
        "records": centred.records,
    }
    # Of one covariate no covariance of slopes is asked for, and errors may be robust.
    sampled = (_of_model if pulled else errors)(change @ gradients, sampling, noise, degrees)
    return _estimates(terms, values, noise, sampled, flags, summary, parties)


@dataclass(frozen=True, eq=False)
class _Sampled:
    """The covariance of the estimates by sampling, and the degrees of freedom of each with the noise, and of all slopes."""

    covariance: Array
    freedom: list[float]
    of_all: float
    method: str


# From the gradients of the estimates by the quantities, (k + 1, q), the model's covariance of sampling, that of the noise, both
# (k + 1, k + 1), and the degrees of freedom.
_Errors = Callable[[Array, Array, Array, float], _Sampled]


def _of_model(gradients: Array, sampling: Array, noise: Array, degrees: float) -> _Sampled:
    pairs = zip(np.maximum(np.diag(noise), 0.0).tolist(), np.diag(sampling).tolist(), strict=True)
    freedom = [degrees_of_freedom(one, two, degrees) for one, two in pairs]
    return _Sampled(sampling, freedom, degrees, "model-based: errors of constant variance")


def _by_design(
    weighted: WeightedMoments,
    released: Released,
    pair: tuple[Vertex, Vertex],
    records: float,
    *known: Any,
) -> _Sampled:
    """Variances of weighted records, or of the clusters that were drawn, in the columns' units; ``known``: as of any errors."""
    gradients, model, noise, degrees = known
    own = np.maximum(np.diag(noise), 0.0)
    if weighted.psu is not None:
        variances, freedom = weighted.of_clusters(released, gradients, own)
        return _Sampled(np.diag(variances), freedom, min(freedom), _BY_DESIGN)
    number = records if records > 1 else degrees
    drawn = weighted.of_records(released, gradients, pair, number).shrink_towards(np.diag(model))
    freedom = drawn.degrees(own, degrees).tolist()
    return _Sampled(np.diag(np.maximum(drawn.variances, 0.0)), freedom, freedom[-1], _BY_DESIGN)


def _robust(
    pair: PairMoments, covariate: Vertex, outcome: Vertex, gradients: Array, model: Array, noise: Array, degrees: float
) -> _Sampled:
    """Robust variances of intercept and slope, in the columns' units (HC1)."""
    units = np.array([outcome.half, outcome.half / covariate.half]) ** 2
    own = pair.sampling(of_line(-covariate.centre / covariate.half)).times(units / degrees).shrink_towards(np.diag(model))
    freedom = own.degrees(np.maximum(np.diag(noise), 0.0), degrees).tolist()
    return _Sampled(np.diag(own.variances), freedom, freedom[1], "robust errors (HC1): their variance may differ")


def inverse_of(centred: CentredMoments, terms: tuple[str, ...]) -> tuple[Array | None, list[Flag]]:
    """The inverse of the covariates' covariance matrix, None if singular even without noise; ``terms``: intercept and slopes.

    Where noise hides that covariates differ, eigenvalues are raised, which pulls slopes to 0. No interval holds for these, as the
    flags say. Where it nearly does, chance decides whether slopes are shown that their spread moves.
    """
    count = len(terms) - 1
    eigenvalues, vectors = np.linalg.eigh(centred.covariance[:count, :count])
    error = float(centred.errors[:count, :count].max())
    least, flags = tails().deviations(_LEAST_EIGENVALUE) * error, list[Flag]()
    if (low := eigenvalues < least).any():
        text = "the noise hides how the covariates differ. Leave one out, or ask for a larger epsilon"
        flags.append(Flag(NOT_IDENTIFIED, text, _along(vectors[:, low], terms)))
        eigenvalues = np.maximum(eigenvalues, _FLOOR * error)
    if eigenvalues[0] <= _NO_VARIANCE:
        return None, flags
    inverse = (vectors / eigenvalues) @ vectors.T
    if least > 0:
        moved = _moved_by_spread(centred, inverse) > _OF_NO_ACCOUNT
        for value, vector in zip(eigenvalues.tolist(), vectors.T, strict=True):
            if names := _along(np.where(moved, vector, 0.0)[:, None], terms):
                flags += near_threshold("the spread of covariates", value / least, names)
    return inverse, flags


def _moved_by_spread(centred: CentredMoments, inverse: Array) -> Array:
    """Which part of the noise in each slope is that of the covariates' covariances, (count,): little, where slopes are small."""
    count = len(inverse)
    slopes = inverse @ centred.covariance[:count, count]
    of_spread = np.einsum("j,ijq->iq", slopes, centred.slopes[:count, :count])
    gradients = (inverse @ of_spread, inverse @ (centred.slopes[:count, count] - of_spread))
    part, whole = (np.einsum("iq,qr,ir->i", gradient, centred.noise, gradient) for gradient in gradients)
    return np.asarray(np.divide(part, whole, out=np.zeros(count), where=whole > 0))


def _along(directions: Array, terms: tuple[str, ...]) -> tuple[str, ...]:
    """The covariates that lie along some of the directions, (covariates, directions), and with them the intercept."""
    names = [term for term, part in zip(terms[1:], (directions**2).sum(axis=1).tolist(), strict=True) if part > _ALONG]
    return (terms[0], *names) if names else ()


def _to_units(outcome: Vertex, covariates: tuple[Vertex, ...]) -> Array:
    """The map from intercept and slopes of scaled columns to those in units, but for the outcome's centre: shape (k + 1,
    k + 1)."""
    rates = np.array([outcome.half / vertex.half for vertex in covariates])
    change = np.diag([outcome.half, *rates])
    change[0, 1:] = -rates * np.array([vertex.centre for vertex in covariates])
    return change


def _estimates(
    terms: tuple[str, ...],
    values: Array,
    noise: Array,
    sampled: _Sampled,
    flags: list[Flag],
    summary: dict[str, Any],
    parties: bool,
) -> Estimates:
    both, slopes = (noise + sampled.covariance)[1:, 1:], len(terms) - 1.0
    wald = float(values[1:] @ np.linalg.pinv(both, hermitian=True) @ values[1:]) / slopes
    tests: dict[str, HypothesisTest] = {} if parties else {"F": f_test(wald, slopes, sampled.of_all, "F test of all slopes")}
    variances = (np.diag(covariance).tolist() for covariance in (noise, sampled.covariance))
    parts = zip(terms, zip(values.tolist(), *variances, sampled.freedom, strict=True), strict=True)
    return Estimates.of(
        [SmoothTerm(term).estimate(*part).tested(part[-1]) for term, part in parts],
        noise_only=parties,
        tests=tests,
        flags=flags,
        headline=terms[1:],
        summary=summary,
        reason=PARTIES if parties else "",
        method=f"least squares, noise in all moments; {sampled.method}",
    )


def _unknown(terms: tuple[str, ...], text: str) -> Estimates:
    flags = (Flag(NOT_IDENTIFIED, text),)
    return Estimates.of(map(Estimate.unknown, terms), noise_only=True, flags=flags, headline=terms[1:], reason=text)
