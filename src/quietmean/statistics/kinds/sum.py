"""The sum of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.flags_and_tests import WHOLE
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading, require_records

COUNTED = "a description of the records that were counted, not a parameter of a population"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sum(Statistic):
    """The sum of a column over all records; a missing value adds nothing, or the middle of the bounds, as the column says."""

    name = "sum"
    summary = "the sum of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (ColumnBlock(columns.number(self.column)),)

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        column = columns.number(self.column)
        weights = np.array([column.centre, column.width / 2, 0.0, 0.0, 0.0])
        return (TermReading(WHOLE, ColumnBlock(column), weights, adds_up=True),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.number(self.column)
        (reading,) = self.readings(columns)
        value, noise = released.weighted(reading.feature, reading.top)
        records = released.weight
        ends = (min(column.low, 0.0) * records, max(column.high, 0.0) * records)
        return Estimates.number(value * records, noise * records, *ends, reason=COUNTED, method="linear")


STATISTIC = Sum
