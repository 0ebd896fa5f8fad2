"""Receiver operating characteristic of a score for a boolean outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag
from quietmean.statistics.features import Axis, Table
from quietmean.statistics.fields import boolean_column, edges_field, usual_bins_field
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER, part_of
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.two_samples import TwoSamples

Array = NDArray[np.float64]

AUC = "auc"
KINDS = ("sensitivity", "specificity", "ppv", "npv")

USUAL_BINS = 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Roc(Statistic):
    """How well a score tells who has the outcome: ``auc``, and at each edge of the bins, ``0.5:sensitivity``, ``specificity``,
    ``ppv`` and ``npv`` of calling all scores from there on positive.

    Values in one bin count as equal. The area is that under the curve through the edges, with DeLong's variance.
    """

    name = "roc"
    summary = "area under the ROC curve of a score, sensitivity and specificity"
    by_place = ("score", "outcome")

    score: str = parameter(help="the column of scores")
    outcome: str = parameter(help="the boolean column of outcomes")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (table_of_scores(self.score, self.outcome, self.edges, self.bins, columns),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = table_of_scores(self.score, self.outcome, self.edges, self.bins, columns)
        parties = columns.unit == PrivacyUnit.PARTY
        samples = TwoSamples.of(released, table)
        flags: list[Flag] = []
        if not samples.known:
            text = "the noise hides whether any record has the outcome, or any has not: no area under the curve"
            flags.append(Flag("one-class", text))
        rows = [samples.row(AUC)]
        for place, edge in enumerate(table.axes[0].edges[1:-1], start=2):
            rows += _at(released, table, place, f"{edge:g}", flags, parties)
        return assembled(
            rows,
            parties=parties,
            flags=tuple(dict.fromkeys(flags)),
            reason=PARTIES_DIFFER if parties else "",
            method="trapezoids of binned scores, DeLong's variance; Wilson's intervals; with the noise",
        )


def table_of_scores(score: str, outcome: str, edges: tuple[float, ...] | None, bins: int | None, columns: Columns) -> Table:
    """Bins of the score against the outcome. Raises :class:`InputError` for an outcome that is not boolean."""
    return Table(
        (
            Axis.of(columns.number(score), edges, bins, USUAL_BINS),
            Axis(boolean_column(columns, outcome, "whether a record has the outcome")),
        )
    )


def _at(released: Released, table: Table, place: int, edge: str, flags: list[Flag], parties: bool) -> list[Row]:
    """What calling all cells from ``place`` on positive gets right."""
    cells = np.arange(table.shape[0])
    above = table.along(0, np.where((cells >= place) & (cells < table.shape[0] - 1), 1.0, 0.0))
    below = table.along(0, np.where(cells < place, 1.0, 0.0))
    no, yes = (table.along(1, one) for one in np.eye(3)[:2])
    there = above + below
    pairs = (
        (above * yes, there * yes),
        (below * no, there * no),
        (above * yes, above * (no + yes)),
        (below * no, below * (no + yes)),
    )
    rows = []
    for kind, (chosen, counted) in zip(KINDS, pairs, strict=True):
        value, noise, error, ends, told = part_of(released, table, chosen, counted, f"{kind} at {edge}", parties)
        flags += [flag for flag in told if flag.code != "few"]
        known = Row.normal(f"{edge}:{kind}", value, noise**2, error**2 - noise**2, (0.0, 1.0))
        rows.append(replace(Row.unknown(f"{edge}:{kind}", (0.0, 1.0)) if math.isnan(value) else known, of_population=ends))
    return rows


STATISTIC = Roc
