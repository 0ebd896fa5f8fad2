"""Logistic regression in one shot: the direction of least squares, scaled as linear discriminant analysis scales it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.readable import some_of
from quietmean.core.schema import parameter
from quietmean.statistics.columns import YES, Column, Columns
from quietmean.statistics.complete_records import CentredMoments, Regression
from quietmean.statistics.delta_method import numerical_slopes
from quietmean.statistics.estimate import (
    ASK_FOR_MORE,
    COVARIATES_HIDDEN,
    DEPENDENT,
    NOT_IDENTIFIED,
    SEPARATED,
    TOO_FEW_COMPLETE,
    Estimate,
    Flag,
    least_count,
)
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.kinds.linear_regression import INTERCEPT, inverse_of
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released
from quietmean.statistics.survey_design import Score
from quietmean.statistics.tails import tails
from quietmean.statistics.weighted_lines import WeightedMoments
from quietmean.statistics.weights import Weighable

AUC = "auc"
REASON = (
    "this is a one-shot approximation of maximum likelihood. It is off where covariates are not normal in each class, or effects "
    "are large. For odds ratios with intervals that cover sampling, ask glm(..., family=binomial), which takes rounds"
)
ONE_SHOT = "one-shot"
# Noise deviations that a squared distance of the classes, and the part of each class, must have; and the least such part.
_LEAST_DISTANCE, _LEAST_CLASS, _LEAST_PART = 2.0, 4.0, 1e-5
# The odds ratio of one standard deviation of a covariate, or of a level, that is assumed where the study states none.
_USUAL_RATIO = 1.5
# The ridge of the slopes that rank covariates, in noise deviations of a covariance.
_RIDGE = 2.0
# Outcomes differ at a level where that is more than so many deviations of the noise.
_APART = 2.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogisticRegression(Weighable, Regression):
    """Log odds of a boolean outcome on columns, ``smoker ~ age + bmi``, over the records that have all of them: a risk score from
    one release.

    Slopes are b n / RSS with b and RSS of least squares on the outcome as 0 and 1: those of linear discriminant analysis, which
    has the same direction, and whose score ranks records nearly as that of maximum likelihood. ``auc`` is the area under its ROC
    curve if scores are normal in each class. Nothing is said about a population. To rank records take the slopes of the
    summary, ``ranking``: a ridge keeps the noise out of directions in which the covariates hardly differ.
    """

    name = "logistic-regression"
    summary = "risk score for a boolean outcome, in one shot"
    asks_for_relations = True

    formula: str = parameter(help="outcome ~ column + column ..., the outcome boolean")

    expects = ("odds-ratio",)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        outcome, covariates = self._sides(scenario.columns)
        first = scenario.expected("odds-ratio")
        stated = first is not None or any(scenario.expected(covariate.column.name) is not None for covariate in covariates)
        log_odds = np.zeros(len(scenario.chance))
        for index, vertex in enumerate(covariates):
            own, cause = scenario.expected(vertex.column.name), scenario.covariate(vertex.column, vertex.level)
            if own is not None:
                log_odds += own * cause
                continue
            ratio = first if first is not None and index == 0 else 1.0 if stated else _USUAL_RATIO
            log_odds += math.log(ratio) * (scenario.unit(cause) if vertex.level is None else cause)
        scenario.happen(outcome.column.name, log_odds)

    def _outcome(self, name: str, columns: Columns) -> Vertex:
        return Vertex(columns.boolean(name, "is the outcome of a logistic regression"), YES)

    def _weighted(self, columns: Columns, weight: Column) -> WeightedMoments:
        """What is released of weighted records. Raises :class:`InputError` for a design, which no error here counts."""
        if any((self.psu, self.strata, self.margin, self.population)):
            raise InputError(f"{self.text} says nothing about a population. Leave out all but weight.")
        return WeightedMoments(self._moments(columns), weight, None, squares=False)

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        return self._weighted(columns, weight).features

    def scores(self, columns: Columns, weight: Column) -> list[Score]:
        return []

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        found = replace(self, weight=None).decode(self._weighted(columns, weight).seen(released), columns)
        return replace(found, summary={name: value for name, value in found.summary.items() if name != "records"})

    def decode(self, released: Released, columns: Columns) -> Estimates:
        _, covariates = self._sides(columns)
        terms = (INTERCEPT, *(vertex.name for vertex in covariates))
        levels = self._known(released, columns)
        centred = self._centred(released, columns, levels.covariates)
        # As many records, or where they have weights as many parts of the cap that are more than rounding.
        if centred is None or centred.records <= 2 * released.least * len(terms):
            return _unknown(terms, TOO_FEW_COMPLETE)
        mean, error = (
            float(centred.means[-1]),
            math.sqrt(max(float(centred.mean_slopes[-1] @ centred.noise @ centred.mean_slopes[-1]), 0.0)),
        )
        if 1 - abs(mean) <= max(tails().deviations(_LEAST_CLASS) * error, _LEAST_PART):
            return _unknown(terms, f"the outcome is nearly always the same, as far as the noise shows. {ASK_FOR_MORE}")
        all_terms = (*terms, AUC)
        if not levels.covariates:
            return levels.completed(_unknown(terms, COVARIATES_HIDDEN), all_terms)
        inverse, flags = inverse_of(centred, (INTERCEPT, *(vertex.name for vertex in levels.covariates)))
        if inverse is None:
            return levels.completed(_unknown(terms, DEPENDENT), all_terms)
        flags += [
            *_separated(released, self._moments(columns), levels.covariates, self._sides(columns)[0]),
            Flag(ONE_SHOT, REASON),
        ]
        fitted = replace(levels.completed(_fit(centred, inverse, levels.covariates, flags), all_terms), headline=terms[1:])
        # A covariate that is left out has no known sign, and weight 0 in the ranking.
        left_out = [vertex.name for vertex in covariates if vertex not in levels.covariates]
        if not left_out or "signs" not in fitted.summary:
            return fitted
        signs, ranking = dict.fromkeys(left_out, "unclear"), dict.fromkeys(left_out, 0.0)
        more = {"signs": fitted.summary["signs"] | signs, "ranking": fitted.summary["ranking"] | ranking}
        return replace(fitted, summary={**fitted.summary, **more})


def _separated(released: Released, moments: Moments, covariates: tuple[Vertex, ...], outcome: Vertex) -> list[Flag]:
    """About levels at which the outcome never happens, or always does, as far as the noise shows."""
    unit, names, terms = np.eye(moments.size), list[str](), list[str]()

    def reader(*vertices: Vertex) -> Array:
        place = moments.place_of(dict.fromkeys(vertices, 1))
        assert place is not None  # noqa: S101
        return np.asarray(unit[place])

    for column in dict.fromkeys(vertex.column for vertex in covariates if vertex.level is not None):
        own = [vertex for vertex in covariates if vertex.column == column]
        # A level and the outcome are 1 or -1 over the complete records; who has none of the levels has the first.
        with_it = [(unit[0] + reader(each) + reader(outcome) + reader(each, outcome)) / 4 for each in own]
        without = [(unit[0] + reader(each) - reader(outcome) - reader(each, outcome)) / 4 for each in own]
        with_it.insert(0, (unit[0] + reader(outcome)) / 2 - np.sum(with_it, axis=0))
        without.insert(0, (unit[0] - reader(outcome)) / 2 - np.sum(without, axis=0))
        for place, both in enumerate(zip(with_it, without, strict=True)):
            counts = [[number * released.weight for number in released.weighted(moments, weights)] for weights in both]
            if any(count <= least_count(_APART, error, released.least) for count, error in counts):
                names.append(f"{column.name} {own[place - 1].level}" if place else f"{column.name}, the level compared with")
                terms += [own[place - 1].name] if place else [each.name for each in own]
    text = (
        "the outcome never happens there, or always, as far as the noise shows. Coefficients that depend on it may be any larger"
    )
    return [Flag(SEPARATED, f"{some_of(names, 3)}: {text}", tuple(dict.fromkeys(terms)))] if names else []


def _fit(centred: CentredMoments, inverse: Array, covariates: tuple[Vertex, ...], flags: list[Flag]) -> Estimates:
    size = len(covariates) + 1
    upper = np.triu_indices(size)
    covariance = centred.covariance.copy()
    # What was raised to a floor stays so while it is moved for the gradient.
    covariance[:-1, :-1] = np.linalg.inv(inverse)
    at = np.concatenate([centred.means, covariance[upper]])
    into = np.vstack([centred.mean_slopes, centred.slopes[upper]])
    added = _noise_in_fit(centred, inverse)

    def function(point: Array) -> Array:
        moved = np.zeros((size, size))
        moved[upper] = point[size:]
        return _discriminant(point[:size], moved + np.triu(moved, 1).T, added, covariates)

    values, gradients = function(at), numerical_slopes(function, at) @ into
    noise = gradients @ centred.noise @ gradients.T
    if not (np.isfinite(values).all() and np.isfinite(noise).all()):
        return _unknown(
            (INTERCEPT, *(vertex.name for vertex in covariates)),
            f"the noise hides what the fit leaves unexplained. {ASK_FOR_MORE}",
        )
    rows = [
        Estimate.normal(name, value, variance, 0.0)
        for name, value, variance in zip(
            (INTERCEPT, *(vertex.name for vertex in covariates)), values[:-1].tolist(), np.diag(noise)[:-1].tolist(), strict=True
        )
    ]
    distance, error = float(values[-1]), math.sqrt(max(float(noise[-1, -1]), 0.0))
    rows.append(_area(distance, error, flags))
    signs = {row.term: "+" if row.of_noise[0] > 0 else "-" if row.of_noise[1] < 0 else "unclear" for row in rows[1:-1]}
    ranking = _ranking(centred, covariance[:-1, :-1], covariates)
    more: dict[str, Any] = {"signs": signs, "ranking": ranking, "records": centred.records}
    return Estimates.of(
        rows,
        noise_only=True,
        flags=tuple(flags),
        headline=tuple(vertex.name for vertex in covariates),
        summary=more,
        reason=REASON,
        method="one shot: least squares scaled by b n / RSS (linear discriminant analysis); noise only",
    )


def _ranking(centred: CentredMoments, covariance: Array, covariates: tuple[Vertex, ...]) -> dict[str, float]:
    """Slopes with a ridge, in units: drawn to 0, most where the covariates differ least. The noiseless ones without noise."""
    count = len(covariates)
    ridge = _RIDGE * float(centred.errors[:count, :count].max())
    slopes = np.linalg.solve(covariance + ridge * np.eye(count), centred.covariance[:count, count])
    return {vertex.name: float(slope) / vertex.half for vertex, slope in zip(covariates, slopes, strict=True)}


def _noise_in_fit(centred: CentredMoments, inverse: Array) -> float:
    """What the noise of the slopes takes from the unexplained part of the outcome's variance."""
    count = len(inverse)
    slopes = inverse @ centred.covariance[:count, count]
    residual = centred.slopes[:count, count] - np.einsum("j,ijq->iq", slopes, centred.slopes[:count, :count])
    return float(np.trace(inverse @ residual @ centred.noise @ residual.T))


def _discriminant(means: Array, covariance: Array, added: float, covariates: tuple[Vertex, ...]) -> Array:
    """Intercept, slopes and squared distance of the classes, from moments of columns scaled to [-1, 1], the outcome last.

    The outcome is 1 or -1 here, twice as far apart as 1 and 0.
    """
    cross = covariance[:-1, -1]
    direction = np.linalg.solve(covariance[:-1, :-1], cross)
    unexplained = float(covariance[-1, -1] - cross @ direction) + added
    if unexplained <= 0:
        return np.full(len(means) + 1, math.nan)
    slopes = 2 * direction / unexplained
    more, less = (1 + means[-1]) / 2, (1 - means[-1]) / 2
    apart = cross / 2 / (more * less)
    middle = means[:-1] + (less - more) / 2 * apart
    half = np.array([vertex.half for vertex in covariates])
    centre = np.array([vertex.centre for vertex in covariates])
    in_units = slopes / half
    intercept = math.log(more / less) - slopes @ middle - in_units @ centre
    return np.concatenate([[intercept], in_units, [float(slopes @ apart)]])


def _area(distance: float, error: float, flags: list[Flag]) -> Estimate:
    """The area under the curve of two normal classes whose scores are the squared distance apart."""
    if distance <= tails().deviations(_LEAST_DISTANCE) * error or distance <= 0:
        flags.append(Flag("no-separation", "the noise hides how far the classes are apart. No area under the curve is known"))
        return Estimate.unknown(AUC, (0.0, 1.0))
    value = float(special.ndtr(math.sqrt(distance / 2)))
    slope = math.exp(-distance / 4) / math.sqrt(2 * math.pi) / math.sqrt(2 * distance) / 2
    row = Estimate.normal(AUC, value, (slope * error) ** 2, 0.0, (0.0, 1.0))
    reach = tails().quantile() * error
    ends = [float(special.ndtr(math.sqrt(max(end, 0.0) / 2))) for end in (distance - reach, distance + reach)]
    return replace(row, of_noise=(ends[0], ends[1]))


def _unknown(terms: tuple[str, ...], text: str) -> Estimates:
    rows = [*(Estimate.unknown(term) for term in terms), Estimate.unknown(AUC, (0.0, 1.0))]
    return Estimates.of(rows, noise_only=True, flags=(Flag(NOT_IDENTIFIED, text),), headline=terms[1:], reason=text)
