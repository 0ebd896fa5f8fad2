"""Scores of a boolean outcome: how well they tell it, and whether predicted probabilities are right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.schema import parameter
from quietmean.statistics.columns import LINEAR, LOG, LOG_ODDS, YES, Columns
from quietmean.statistics.complete_records import moments_of
from quietmean.statistics.delta_method import multinomial, spread
from quietmean.statistics.estimate import ASK_FOR_MORE, FEW, NOT_TOLD, Estimate, Flag, least_count
from quietmean.statistics.estimates import CurveOfTerms, Estimates
from quietmean.statistics.features import Axis, Moments, PrefixTable, Vertex
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.features.table import PROBABILITIES
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.kinds.counts import PARTIES_DIFFER, part_of
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.tails import tails
from quietmean.statistics.two_samples import USUAL_BINS, TwoSamples

AUC = "auc"
SENSITIVITY, SPECIFICITY = "sensitivity", "specificity"
KINDS = (SENSITIVITY, SPECIFICITY, "ppv", "npv")
# Up to this many thresholds are all reported; of more, the usual ones, or those that cut the bins into so many even parts.
_MOST_THRESHOLDS, _EVEN_PARTS, _PARTS_OF_LOG = 64, 16, 48
# Cut points are between this part of the scores and the others.
_FIRST_PERCENTILE = 0.01
# Significant digits of cut points.
_FEWEST_DIGITS, _MOST_DIGITS = 2, 6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfScore(Statistic):
    """A statistic of a column of scores and a boolean one of outcomes."""

    one_row = True
    by_place = ("score", "outcome")
    expects = ("auc",)

    score: str = parameter(help="the column of scores")
    outcome: str = parameter(help="the boolean column of outcomes")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        scenario.score(self.score, self.outcome)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Roc(OfScore):
    """How well a score tells who has the outcome: ``auc``, and at edges of the bins, ``0.5:sensitivity``, ``specificity``,
    ``ppv`` and ``npv`` of calling all scores from there on positive.

    Intervals of the area hold it whatever the order within bins is; it is that under the curve through the edges, with DeLong's
    variance. Of many edges those are reported that people decide by. A column that lies between 0 and 1 is cut by log odds,
    unless it says otherwise, for most of what is predicted may be rare.
    """

    name = "roc"
    summary = "area under the ROC curve of a score, sensitivity and specificity"
    null = 0.5

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        return score_table(self.score, self.outcome, self.edges, self.bins, columns)

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        kinds = [term.rpartition(":")[2] for term in estimates.terms]
        return tuple(
            CurveOfTerms(tuple(at for at, other in enumerate(kinds) if other == kind), rises)
            for kind, rises in ((SENSITIVITY, False), (SPECIFICITY, True))
        )

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        parties = columns.unit == PrivacyUnit.PARTY
        samples = TwoSamples.of(released, table)
        flags: list[Flag] = []
        if not samples.known:
            text = "the noise hides whether any record has the outcome, or any has not. No area under the curve is known"
            flags.append(Flag("one-class", text, (AUC,)))
        declared = self.edges is not None or bool(table.axis.column.edges)
        rows = [samples.row(AUC), *_at_thresholds(released, table, samples, declared, flags, parties)]
        return Estimates.of(
            rows,
            noise_only=parties,
            headline=(AUC,),
            flags=tuple(flags),
            reason=PARTIES_DIFFER if parties else "",
            method="trapezoids of bins, DeLong's variance, half of the pairs in one bin; Wilson's intervals; with the noise",
        )


def score_table(score: str, outcome: str, edges: tuple[float, ...] | None, bins: int | None, columns: Columns) -> PrefixTable:
    """Bins of the score by the outcome. Raises :class:`InputError` for an outcome that is not boolean."""
    column, by = columns.number(score), columns.boolean(outcome, "must say whether a record has the outcome")
    by_odds = bins is None and column.low >= 0 and column.high <= 1
    return PrefixTable(Axis.of(column, edges, bins, USUAL_BINS, scale=LOG_ODDS if by_odds else LINEAR), Axis(by))


def thresholds(axis: Axis) -> Ints:
    """The places of the edges that are reported: all inner ones if few, those of usual probabilities, or some."""
    inner, edges = np.arange(1, len(axis.edges) - 1), np.array(axis.edges)
    if len(inner) <= _MOST_THRESHOLDS:
        return inner
    usual = inner[np.isin(edges[inner], PROBABILITIES)]
    if len(usual):
        return usual
    # Of bins that grow by factors most are far below where scores are.
    parts = _PARTS_OF_LOG if axis.column.scale == LOG else _EVEN_PARTS
    return np.unique(np.rint(np.linspace(0, len(edges) - 1, parts + 1)).astype(np.int64))[1:-1]


def _at_thresholds(
    released: Released, table: PrefixTable, samples: TwoSamples, declared: bool, flags: list[Flag], parties: bool
) -> list[Estimate]:
    """What calling all scores of at least each threshold positive gets right, between the percentiles of the scores."""
    places = thresholds(table.axis)
    # Below and from there on, without and with the outcome, for each threshold; what is missing has the last cells.
    below = np.zeros((len(places), table.cells))
    for row, edge in enumerate(places.tolist()):
        below[row, : edge + 1] = 1.0
    here = 1.0 - np.eye(table.cells)[-1]
    kinds = [np.kron(np.eye(table.groups)[group], side) for group in (0, 1) for side in (below, here - below)]
    sums = released.sums(table, np.vstack(kinds))
    parts = samples.part_below()[places]
    rows: list[Estimate] = []
    beyond: list[str] = []
    for at, (label, part) in enumerate(zip(_labels(table.axis, places, declared), parts.tolist(), strict=True)):
        if not _FIRST_PERCENTILE <= part <= 1 - _FIRST_PERCENTILE:
            beyond += [f"{label}:{kind}" for kind in KINDS]
            rows += [Estimate.unknown(f"{label}:{kind}", (0.0, 1.0)) for kind in KINDS]
            continue
        rows += _at(sums, table, at + len(places) * np.arange(4), label, flags, parties)
    if beyond:
        text = "nothing is known of cut points below the 1st or above the 99th percentile of the scores, as released"
        flags.append(Flag(NOT_TOLD, text, tuple(beyond)))
    return rows


def _labels(axis: Axis, places: Ints, declared: bool) -> list[str]:
    """The least scores that count as positive: as ``declared``, else with the digits of the bounds, or more where needed."""
    edges = [math.ceil(edge) if axis.column.whole else edge for edge in np.array(axis.edges)[places].tolist()]
    if declared:
        return [f"{edge:g}" for edge in edges]
    bounds = max(len(f"{abs(end):g}".replace(".", "").strip("0")) for end in (axis.column.low, axis.column.high))
    for digits in range(max(bounds, _FEWEST_DIGITS), _MOST_DIGITS):
        labels = [f"{float(f'{edge:.{digits}g}'):g}" for edge in edges]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{edge:g}" for edge in edges]


def _at(sums: Released, table: PrefixTable, places: Ints, edge: str, flags: list[Flag], parties: bool) -> list[Estimate]:
    """The figures at one threshold, from the places of four sums: without the outcome below and above, with it below and
    above."""
    low_no, high_no, low_yes, high_yes = np.eye(len(sums.quantities))[places]
    pairs = (
        (high_yes, low_yes + high_yes),
        (low_no, low_no + high_no),
        (high_yes, high_no + high_yes),
        (low_no, low_no + low_yes),
    )
    rows = []
    for kind, (chosen, counted) in zip(KINDS, pairs, strict=True):
        row, own_flags = part_of(sums, table, chosen, counted, f"{kind} at {edge}", f"{edge}:{kind}", parties)
        flags += [flag for flag in own_flags if flag.code != FEW]
        rows.append(row)
    return rows


BRIER, LARGE, INTERCEPT, SLOPE = "brier", "in-the-large", "intercept", "slope"
_STEPS, _CLOSE, _FARTHEST = 50, 1e-12, 50.0
# Predictions are kept this far from 0 and 1, so that their log odds are finite.
_LEAST = 1e-6
# Noise deviations that the information of the recalibration must have in each direction.
_LEAST_INFORMATION = 4.0
# The regression covers predictions with at least this many noise deviations of records on either side.
_LEAST_BEYOND = 4.0
# An eigenvalue of an information matrix below this part of the largest is rounding.
_SINGULAR = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Calibration(OfScore):
    """Do predicted probabilities agree with what happens? ``brier`` (mean squared distance), ``in-the-large`` (part with the
    outcome minus mean prediction), ``intercept`` and ``slope`` of a logistic regression of the outcome on the prediction's log
    odds: 0 and 1 where it is right; and the part with the outcome in bins of the prediction.

    The first two are exact, from sums of predictions, their squares and products with the outcome; the regression is of
    predictions moved to the middle of their bins. The same bins as those of ``roc`` cost nothing beside it.
    """

    name = "calibration"
    summary = "do predicted probabilities agree with what happens"

    score: str = parameter(help="the column of predicted probabilities, with bounds from 0 to 1 at most")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._moments(columns), self._table(columns))

    def _moments(self, columns: Columns) -> Moments:
        """The moments of prediction and outcome over the records that have both, as in the table."""
        column = columns.number(self.score).model_copy(update={"missing": "indicator"})
        return moments_of((Vertex(column), Vertex(columns.category(self.outcome), YES)))

    def _table(self, columns: Columns) -> PrefixTable:
        column = columns.number(self.score)
        if column.low < 0 or column.high > 1:
            raise InputError(
                f"column {self.score!r} is a predicted probability, but its bounds are not between 0 and 1. Use roc."
            )
        return score_table(self.score, self.outcome, self.edges, self.bins, columns)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table, moments = self._table(columns), self._moments(columns)
        parties = columns.unit == PrivacyUnit.PARTY
        flags: list[Flag] = []
        cells = _Cells.of(released, table)
        rows = [*_distances(released, moments, cells, flags), *cells.recalibrated(flags)]
        return Estimates.of(
            [*rows, *_observed(released, table, flags, parties)],
            noise_only=parties,
            headline=(LARGE, SLOPE),
            flags=tuple(flags),
            reason=PARTIES_DIFFER if parties else "",
            method="sums of predictions, squares and products; logistic regression of bins; Wilson's intervals; with the noise",
        )


def _distances(released: Released, moments: Moments, cells: _Cells, flags: list[Flag]) -> list[Estimate]:
    """Brier's score and the difference of means; how far the distances spread is read from the cells."""
    part, error = released.weighted(moments, np.eye(moments.size)[0])
    limits = {BRIER: (0.0, 1.0), LARGE: (-1.0, 1.0)}
    fewest = least_count(LEAST_PRESENT, error * released.weight, released.least)
    if part * released.weight <= fewest or not cells.total > released.least:
        text = f"the records are too few for the noise, so no calibration is known. {ASK_FOR_MORE}"
        flags.append(Flag("nothing-present", text, tuple(limits)))
        return [Estimate.unknown(term, limits[term]) for term in limits]
    # Means of 1, p, y, p y and p^2, of the quantities 1, z, +-1, product and square.
    centre, half = moments.vertices[0].centre, moments.vertices[0].half
    unit, z, sign, product, square = np.eye(moments.size)
    p, y, p_y = centre * unit + half * z, (unit + sign) / 2, (centre * (unit + sign) + half * (z + product)) / 2
    p_p = centre**2 * unit + 2 * centre * half * z + half**2 * square
    rows = []
    for term, weights in ((BRIER, p_p - 2 * p_y + y), (LARGE, y - p)):
        value = released.weighted(moments, weights)[0] / part
        noise = released.weighted(moments, (weights - value * unit) / part)[1] ** 2
        slope = (cells.distances[term] - value) / cells.total
        rows.append(Estimate.normal(term, value, noise, multinomial(slope, cells.counts), limits[term]))
    return [rows[0], rows[1].tested()]


@dataclass(frozen=True, eq=False)
class _Cells:
    """Counts without and with the outcome, (2 cells,), the noise's covariance, and the prediction in each cell, (cells,)."""

    counts: Array
    noise: Array
    predicted: Array

    @classmethod
    def of(cls, released: Released, table: PrefixTable) -> _Cells:
        edges = np.array(table.axis.edges)
        middles = (edges[1:] + edges[:-1]) / 2
        # Predictions outside count in the nearest bin.
        predicted = np.clip(np.concatenate([middles[:1], middles, middles[-1:]]), _LEAST, 1 - _LEAST)
        places = np.arange(table.size).reshape(table.groups, table.cells)[:2, :-1].ravel()
        noise = released.covariance(table)[np.ix_(places, places)] * released.weight**2
        return cls(released.mean(table)[places] * released.weight, noise, predicted)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def distances(self) -> dict[str, Array]:
        """The contribution of a record in each cell to each distance, (2 cells,)."""
        squares = np.concatenate([self.predicted**2, (1 - self.predicted) ** 2])
        return {BRIER: squares, LARGE: np.concatenate([-self.predicted, 1 - self.predicted])}

    def within(self) -> _Cells:
        """The cells between which nearly all records are, as far as noise allows to know.

        Beyond are log odds that next to nobody has: they would weigh most, and hold little but noise. Which predictions are
        looked at does not change what the outcome has to do with them.
        """
        cells = len(self.predicted)
        both = np.kron(np.ones((1, 2)), np.eye(cells))
        records, noise = both @ self.counts, both @ self.noise @ both.T
        begin, end = _some(records, noise), cells - _some(records[::-1], noise[::-1, ::-1])
        kept = np.concatenate([np.arange(begin, end), np.arange(cells + begin, cells + end)])
        return _Cells(self.counts[kept], self.noise[np.ix_(kept, kept)], self.predicted[begin:end])

    def halved(self) -> _Cells:
        """The cells in half as many bins: each in the middle of two, by their number of records."""
        cells = len(self.predicted)
        pairs = np.arange(cells) // 2
        join = np.zeros((pairs[-1] + 1, cells))
        join[pairs, np.arange(cells)] = 1.0
        both = np.kron(np.eye(2), join)
        middle = special.expit(join @ special.logit(self.predicted) / join.sum(axis=1))
        return _Cells(both @ self.counts, both @ self.noise @ both.T, middle)

    def recalibrated(self, flags: list[Flag]) -> list[Estimate]:
        """Intercept and slope of the logistic regression on the log odds of the prediction.

        Bins may have moved them by as much as half as many of them move them further.
        """
        inner = self.within()
        fit, coarser = (None, None) if len(inner.predicted) < 2 else (inner._regression(), inner.halved()._regression())
        if fit is None or coarser is None:
            text = "the outcome or the prediction hardly differs beyond the noise. No slope is known"
            flags.append(Flag("no-recalibration", text, (INTERCEPT, SLOPE)))
            return [Estimate.unknown(term) for term in (INTERCEPT, SLOPE)]
        (values, noise, sampling), moved = fit, np.abs(fit[0] - coarser[0])
        return [
            Estimate.normal(term, float(values[index]), float(noise[index, index]), float(sampling[index, index])).widened(
                float(moved[index]), float(moved[index]), estimated=True
            )
            for index, term in enumerate((INTERCEPT, SLOPE))
        ]

    def _regression(self) -> tuple[Array, Array, Array] | None:
        """Coefficients, and the covariances of noise and of sampling; None where noise hides the information."""
        design = np.column_stack([np.ones(len(self.predicted)), special.logit(self.predicted)])
        without, with_it = self.counts.reshape(2, -1)
        coefficients = _fit(design, without + with_it, with_it)
        if coefficients is None:
            return None
        risk = special.expit(design @ coefficients)
        information = design.T @ (((without + with_it) * risk * (1 - risk))[:, None] * design)
        score = np.hstack([-(design * risk[:, None]).T, (design * (1 - risk)[:, None]).T])
        of_score = score @ self.noise @ score.T
        values, vectors = np.linalg.eigh(information)
        for value, vector in zip(values.tolist(), vectors.T, strict=True):
            own = np.tile(risk * (1 - risk) * (design @ vector) ** 2, 2)
            if value <= max(tails().deviations(_LEAST_INFORMATION) * math.sqrt(spread(own, self.noise)), _SINGULAR * values[-1]):
                return None
        sampling: Array = np.asarray(np.linalg.inv(information), dtype=np.float64)
        return coefficients, sampling @ of_score @ sampling, sampling


def _some(counts: Array, noise: Array) -> int:
    """The first cell up to which the counts add up to more than noise hides."""
    variances = np.maximum(np.diag(noise.cumsum(axis=0).cumsum(axis=1)), 0.0)
    enough = np.cumsum(counts) > tails().deviations(_LEAST_BEYOND) * np.sqrt(variances)
    return int(np.argmax(enough)) if enough.any() else len(counts)


def _fit(design: Array, records: Array, with_it: Array) -> Array | None:
    """Logistic regression of counts by Newton's method, or None where it has no maximum.

    Steps begin at predictions that are right, from where noise in counts leads astray least.
    """
    coefficients: Array = np.array([0.0, 1.0])
    for _ in range(_STEPS):
        risk = special.expit(design @ coefficients)
        information = design.T @ ((records * risk * (1 - risk))[:, None] * design)
        values = np.linalg.eigvalsh(information)
        if not values[0] > _SINGULAR * values[-1]:
            return None
        change = np.linalg.solve(information, design.T @ (with_it - records * risk))
        # Risks move by no more than a factor of e or so at a time.
        coefficients = coefficients + change * min(1.0, 1.0 / max(float(np.abs(design @ change).max()), 1e-300))
        if np.abs(coefficients).max() > _FARTHEST:
            return None
        if np.abs(change).max() < _CLOSE:
            return coefficients
    return None


def _observed(released: Released, table: PrefixTable, flags: list[Flag], parties: bool) -> list[Estimate]:
    """The part with the outcome between the thresholds of ``roc``."""
    axis = table.axis
    places = [0, *thresholds(axis).tolist(), len(axis.edges) - 1]
    within = np.zeros((len(places) - 1, table.cells))
    for row, (first, end) in enumerate(pairwise(places)):
        within[row, first + 1 : end + 1] = 1.0
    sums = released.sums(table, np.vstack([np.kron(np.eye(table.groups)[group], within) for group in (0, 1)]))
    labels = Axis(axis.column, tuple(axis.edges[index] for index in places)).labels[1:-2]
    units, rows = np.eye(2 * len(within)), []
    for index, label in enumerate(labels):
        no, yes = units[index], units[index + len(within)]
        estimate, own_flags = part_of(sums, table, yes, no + yes, f"bin {label}", label, parties)
        flags += [flag for flag in own_flags if flag.code != FEW]
        rows.append(estimate)
    return rows
