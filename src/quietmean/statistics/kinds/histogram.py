"""How many records are in each bin of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.intervals import few
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading, require_records

_USUAL_BINS = 10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Histogram(Statistic):
    """How many records lie in each bin [a, b) of a column, ``below`` the first edge, ``above`` the last one, and ``missing``.

    Of a column with levels: how many records have each. The counts add up to the number of records, where that is public.
    """

    name = "histogram"
    summary = "how many records are in each bin of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")
    bins: int | None = usual_bins_field(_USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        return CellIndicators((Axis.of(columns[self.column], self.edges, self.bins, _USUAL_BINS),))

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        table = self._table(columns)
        cells = zip(table.axes[0].labels, np.eye(table.size), strict=True)
        return tuple(TermReading(label, table, cell, adds_up=True) for label, cell in cells)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        return counts(released, released.mean(table), released.covariance(table), table.axes[0].labels)


def counts(
    released: Released, parts: Array, covariance: Array, terms: tuple[str, ...], names: tuple[str, ...] | None = None
) -> Estimates:
    """Counts of cells, from the parts of the released weight in them and the covariance of these; ``names``: in sentences.

    Where counts are private most of that is empty, and sampling errors are those of records whose number is random as well.
    """
    records, entries, flags = released.weight, [], []
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0)).tolist()
    for term, name, part, error in zip(terms, names or terms, parts.tolist(), errors, strict=True):
        entries.append(Estimate.proportion(term, part, error**2, records).times(records))
        flags += few(name, part, error, entries[-1].of_population[1], (term,)) if error > 0 else []
    total = ", the counts add up to the public number" if released.counted else ""
    return Estimates.of(entries, flags=flags, method=f"linear{total}; Wilson's interval with the noise in it")


STATISTIC = Histogram
