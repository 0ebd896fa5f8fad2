"""The mean of a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import estimate_of_mean, summary
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.fields import cluster_field
from quietmean.statistics.flags_and_tests import WHOLE
from quietmean.statistics.random_effects import AcrossSites, SiteMeans, site_column
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mean(Statistic):
    """The mean of a column over all records (unit ``record``) or over the parties' own means (unit ``party``).

    With ``cluster``, a column of public sites, the mean over all sites like these: sites may differ, and count as random effects
    (:mod:`~quietmean.statistics.random_effects`). Where a missing value counts as nothing
    (:class:`~quietmean.statistics.Column`), the mean of the values that are present.
    """

    name = "mean"
    summary = "the mean of a column"
    by_place = ("column",)
    expects = ("sd-between",)

    column: str = parameter(help="the column")
    cluster: str | None = cluster_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        if self.cluster is not None:
            scenario.shift_sites(self.column, self.cluster, scenario.expected("sd-between"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._block(columns),)

    def _block(self, columns: Columns) -> ColumnBlock:
        if self.cluster is not None:
            return ColumnBlock(columns.number(self.column), site_column(self, columns, self.cluster, self.column))
        return ColumnBlock(columns.number(self.column), own_mean=columns.unit == PrivacyUnit.PARTY)

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        if self.cluster is not None:
            return ()
        block = self._block(columns)
        column, first = block.column, np.eye(block.size)
        top = column.centre * first[0] + column.width / 2 * first[1]
        return (TermReading(WHOLE, block, top, first[0], ends=(column.low, column.high)),)

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return estimates.terms if column.name == self.column else ()

    def decode(self, released: Released, columns: Columns) -> Estimates:
        block = self._block(columns)
        if self.cluster is not None:
            sites = columns.category(self.cluster).categories
            across = AcrossSites.new(sites)
            means = SiteMeans(released, block)
            across.add(WHOLE, means.of(), (block.column.low, block.column.high), noise=partial(means.noise, [0]))
            return across.estimates()
        column, present = block.column, summary(released, block)
        if present is None:
            return Estimates.nothing_present(f"column {column.name!r}", {WHOLE: (column.low, column.high)})
        return Estimates.of([estimate_of_mean(WHOLE, present, column)], method="ratio of noisy means, Student's t")


STATISTIC = Mean
