"""Receiver operating characteristic of a score for a boolean outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.bins import PROBABILITIES
from quietmean.statistics.columns import LINEAR, LOG, LOG_ODDS, Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.fields import boolean_column, edges_field, usual_bins_field
from quietmean.statistics.flags_and_tests import NOT_TOLD, Flag
from quietmean.statistics.intervals import FEW
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER, part_of
from quietmean.statistics.possible import CurveOfTerms
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic
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
class Roc(Statistic):
    """How well a score tells who has the outcome: ``auc``, and at edges of the bins, ``0.5:sensitivity``, ``specificity``,
    ``ppv`` and ``npv`` of calling all scores from there on positive.

    Intervals of the area hold it whatever the order within bins is; it is that under the curve through the edges, with DeLong's
    variance. Of many edges those are reported that people decide by. A column that lies between 0 and 1 is cut by log odds,
    unless it says otherwise, for most of what is predicted may be rare.
    """

    name = "roc"
    summary = "area under the ROC curve of a score, sensitivity and specificity"
    one_row = True
    by_place = ("score", "outcome")
    expects = ("auc",)
    null = 0.5

    score: str = parameter(help="the column of scores")
    outcome: str = parameter(help="the boolean column of outcomes")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        scenario.score(self.score, self.outcome, calibrated=False)

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
            text = "the noise hides whether any record has the outcome, or any has not: no area under the curve"
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
    column, by = columns.number(score), boolean_column(columns, outcome, "whether a record has the outcome")
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
        text = "cut points below the 1st or above the 99th percentile of the scores, as released: nothing is known there"
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
    """At one threshold, from the places of four sums: without the outcome below and above, with it below and above."""
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


STATISTIC = Roc
