"""The mean of a column."""

from __future__ import annotations

from dataclasses import dataclass

from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.features import ScaledColumn
from quietmean.statistics.statistic import Estimates, Feature, Released, Statistic


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mean(Statistic):
    """The mean of a column over all records (unit ``record``) or over the parties' own means (unit ``party``)."""

    name = "mean"
    summary = "the mean of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (ScaledColumn(columns[self.column]),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns[self.column]
        feature = ScaledColumn(column)
        value = column.low + float(released.mean(feature)[0]) * column.width
        return Estimates.number(value, released.noise(feature) * column.width, column.low, column.high)


STATISTIC = Mean
