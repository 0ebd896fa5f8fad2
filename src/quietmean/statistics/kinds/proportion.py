"""The proportion of records with each level of a column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import MISSING, YES, Column, Columns
from quietmean.statistics.estimates import WHOLE, Estimates, Flag
from quietmean.statistics.features import Axis, Table
from quietmean.statistics.intervals import few, wilson
from quietmean.statistics.statistic import Feature, Released, Statistic

Array = NDArray[np.float64]

# Value, error of the noise and of the population, Wilson's interval, and flags.
PartOf = tuple[float, float, float, tuple[float, float], list[Flag]]

PARTIES_DIFFER = "each party counts once, and how far parties differ was not released: ask for the mean of a column of numbers"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Proportion(Statistic):
    """The proportion of present values of a column that have a level: of ``yes`` for a boolean column, of every level otherwise.

    ``level`` names one. The part of all records without a value has the term ``missing``.
    """

    name = "proportion"
    summary = "the proportion of each level of a column"
    by_place = ("column",)

    column: str = parameter(help="the column, declared with levels or as boolean")
    level: str | None = parameter(None, help="the level; by default yes, or every level")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        column = columns.category(self.column)
        if self.level is not None:
            require_known("level", self.level, (*column.categories, MISSING))
        return (Table((Axis(column),)),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.category(self.column)
        table, labels = Table((Axis(column),)), Axis(column).labels
        one = self.level or (YES if column.boolean else None)
        terms = labels if one is None else (one,)
        parties = columns.unit == PrivacyUnit.PARTY
        found = [_proportion(released, table, labels, term, column, parties) for term in terms]
        values = np.array([row[:3] for row in found])
        return Estimates(
            terms if one is None else (WHOLE,),
            values[:, 0],
            values[:, 1],
            np.zeros(len(terms)),
            np.ones(len(terms)),
            population=None if parties else values[:, 2],
            interval_population=None if parties else np.array([row[3] for row in found]),
            flags=tuple(flag for row in found for flag in row[4]),
            reason=PARTIES_DIFFER if parties else "",
            method="linear; Wilson's interval with the noise in it",
        )


def _proportion(released: Released, table: Table, labels: tuple[str, ...], level: str, column: Column, parties: bool) -> PartOf:
    """The part of the records that count which have a level."""
    cells = np.eye(len(labels))
    counted = np.ones(len(labels)) if level == MISSING else 1.0 - cells[-1]
    return part_of(released, table, cells[labels.index(level)], counted, f"{column.name} {level}", parties)


def part_of(released: Released, table: Feature, chosen: Array, counted: Array, what: str, parties: bool) -> PartOf:
    """The part of the ``counted`` cells' records that are in the ``chosen`` ones; both are weights of cells, (size,)."""
    part, error_of_part = released.weighted(table, counted)
    if part <= LEAST_PRESENT * error_of_part:
        text = f"{what}: too few values for the noise: nothing is known about them; ask for a larger epsilon"
        return math.nan, math.inf, math.inf, (0.0, 1.0), [Flag("nothing-present", text)]
    value = released.weighted(table, chosen)[0] / part
    error = released.weighted(table, (chosen - value * counted) / part)[1]
    records = released.weight * part
    ends = wilson(value, records, error**2)
    inside = min(max(value, 0.0), 1.0)
    flags = [] if parties else few(what, value, error, ends[1] * records)
    return value, error, math.sqrt(error**2 + inside * (1 - inside) / records), ends, flags


STATISTIC = Proportion
