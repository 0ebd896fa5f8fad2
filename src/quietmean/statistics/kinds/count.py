"""How many records have a value, or a level of a column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.columns import MISSING, YES, Columns
from quietmean.statistics.conditions import RowCondition
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock
from quietmean.statistics.flags_and_tests import WHOLE
from quietmean.statistics.intervals import few
from quietmean.statistics.kinds.sum import COUNTED
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading, require_records
from quietmean.statistics.subgroups import AnyPresent


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Count(Statistic):
    """How many records have a number in a column, or a level: ``yes`` by default for a boolean one, any for one with levels.

    Without a column: in how many its condition holds.
    """

    name = "count"
    summary = "how many records have a value, or a level, or meet a condition"
    by_place = ("column",)

    column: str = parameter("", help="the column; without one, a condition", written=lambda value: bool(value.column))
    level: str | None = parameter(None, help="the level, of a column that has any")

    @property
    def subject(self) -> str | None:
        return self.column or None

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._weights(columns)[0],)

    def _weights(self, columns: Columns) -> tuple[Feature, Array]:
        """The feature that knows, and the weights of its quantities in the answer. Raises :class:`InputError` where none does."""
        if not self.column:
            if not self.where or self.level is not None:
                raise InputError("count needs a column or a condition. Write for example count(age) or count(where=age >= 65).")
            return AnyPresent(tuple(columns[name] for name in RowCondition(self.where).sources)), np.ones(1)
        column = columns[self.column]
        if column.numeric and self.level is None:
            return ColumnBlock(column), np.eye(5)[0]
        axis = Axis(columns.category(self.column))
        level = self.level or (YES if column.boolean else None)
        if level is None:
            return CellIndicators((axis,)), np.array([float(label != MISSING) for label in axis.labels])
        require_known("level", level, axis.labels)
        return CellIndicators((axis,)), np.array([float(label == level) for label in axis.labels])

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        feature, weights = self._weights(columns)
        return (TermReading(WHOLE, feature, weights, adds_up=True),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        value, error = (sums * released.weight for sums in released.weighted(*self._weights(columns)))
        estimates = Estimates.number(value, error, 0.0, released.weight, reason=COUNTED, method="linear")
        return replace(estimates, flags=tuple(few(self.text, value, error, float(estimates.of_noise[0, 1]), estimates.terms)))


STATISTIC = Count
