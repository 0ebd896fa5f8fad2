"""The cumulative distribution of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import PrefixTable
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.kinds.quantiles import USUAL_BINS, cumulative, prefix_table
from quietmean.statistics.possible import CurveOfTerms
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading

# The most edges of a curve that are reported by default.
_MOST_EDGES = 65


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CumulativeDistribution(Statistic):
    """Which part of the present values of a column is at most each edge; of many bins, at 65 edges that divide them evenly."""

    name = "cdf"
    summary = "the cumulative distribution of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        return prefix_table(columns.number(self.column), self.edges, self.bins)

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        table = self._table(columns)
        cells = np.arange(table.size)
        present = (cells < table.size - 1).astype(np.float64)
        return tuple(
            TermReading(table.axis.edge_label(table.axis.edges[edge]), table, (cells <= edge).astype(np.float64), present)
            for edge in self._shown(table).tolist()
        )

    def _shown(self, table: PrefixTable) -> Ints:
        shown = np.arange(len(table.axis.edges))
        if self.edges is None and len(shown) > _MOST_EDGES:
            shown = np.unique(np.rint(np.linspace(0, shown[-1], _MOST_EDGES)).astype(np.int64))
        return shown

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        return (CurveOfTerms(tuple(range(len(estimates.terms))), rises=True, alike=True),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        distribution, edges, shown = cumulative(released, table), np.array(table.axis.edges), self._shown(table)
        terms = [table.axis.edge_label(edge) for edge in edges[shown].tolist()]
        if distribution is None:
            return Estimates.nothing_present(f"column {self.column!r}", dict.fromkeys(terms, (0.0, 1.0)))
        parts = distribution.parts / distribution.present
        noise = distribution.noise(parts) / distribution.present**2
        records, parties = released.weight * distribution.present, columns.unit == PrivacyUnit.PARTY
        known = zip(terms, parts[shown].tolist(), noise[shown].tolist(), strict=True)
        return Estimates.of(
            [Estimate.proportion(*part, records) for part in known],
            noise_only=parties,
            reason=PARTIES_DIFFER if parties else "",
            method="square root of prefix sums; Wilson's interval with the noise in it, for each edge by itself",
        )


STATISTIC = CumulativeDistribution
