"""The proportion of records with each level of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import MISSING, YES, Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.fields import cluster_field
from quietmean.statistics.flags_and_tests import WHOLE, Flag
from quietmean.statistics.intervals import few, least_count
from quietmean.statistics.random_effects import UNKNOWN_SITE, AcrossSites, SiteEstimate, site_column
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading

PARTIES_DIFFER = "each party counts once, and how far parties differ was not released: ask for the mean of a column of numbers"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Proportion(Statistic):
    """The proportion of present values of a column that have a level: of ``yes`` for a boolean column, of every level otherwise.

    ``level`` names one. With ``cluster``, a column of public sites, the proportion over all sites like these
    (:mod:`~quietmean.statistics.random_effects`). The part of all records without a value has the term ``missing``.
    """

    name = "proportion"
    summary = "the proportion of each level of a column"
    by_place = ("column",)
    expects = ("proportion",)

    column: str = parameter(help="the column, declared with levels or as boolean")
    level: str | None = parameter(None, help="the level; by default yes, or every level")
    cluster: str | None = cluster_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        if self.level is not None:
            require_known("level", self.level, (*columns.category(self.column).categories, MISSING))
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        axis = Axis(columns.category(self.column))
        if self.cluster is None:
            return CellIndicators((axis,))
        return CellIndicators((axis, Axis(site_column(self, columns, self.cluster, self.column))))

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        if self.cluster is not None:
            return ()
        column = columns.category(self.column)
        labels, level = Axis(column).labels, self.level or (YES if column.boolean else None)
        return tuple(
            TermReading(label if level is None else WHOLE, CellIndicators((Axis(column),)), *_weights(labels, label))
            for label in (labels if level is None else (level,))
        )

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.category(self.column)
        table, labels = CellIndicators((Axis(column),)), Axis(column).labels
        level = self.level or (YES if column.boolean else None)
        terms = labels if level is None else (level,)
        if self.cluster is not None:
            return self._of_sites(released, columns, terms, named=level is None)
        parties = columns.unit == PrivacyUnit.PARTY
        parts = [
            part_of(released, table, *_weights(labels, each), f"{column.name} {each}", each if level is None else WHOLE, parties)
            for each in terms
        ]
        return Estimates.of(
            [estimate for estimate, _ in parts],
            noise_only=parties,
            flags=[flag for _, flags in parts for flag in flags],
            reason=PARTIES_DIFFER if parties else "",
            method="linear; Wilson's interval with the noise in it",
        )

    def _of_sites(self, released: Released, columns: Columns, levels: tuple[str, ...], named: bool) -> Estimates:
        table = self._table(columns)
        labels, sites = table.axes[0].labels, table.axes[1].column.categories
        across = AcrossSites.new(sites)
        for level in levels:
            own = table.along(0, np.eye(len(labels))[labels.index(level)])
            counted = np.ones(table.size) if level == MISSING else table.along(0, 1.0 - np.eye(len(labels))[-1])
            site_weights = [table.along(1, np.eye(len(sites) + 1)[site]) for site in range(len(sites))]
            across.add(level if named else WHOLE, _at_sites(released, table, own, counted, site_weights), (0.0, 1.0))
        return across.estimates()


def _at_sites(
    released: Released, table: CellIndicators, own: Array, counted: Array, site_weights: list[Array]
) -> list[SiteEstimate]:
    """The part of the counted cells' records in the own ones at each site; the variance of sampling is at that of all sites."""
    sizes = [released.weighted(table, counted * at_site) for at_site in site_weights]
    counts = [(part * released.weight, error * released.weight) for part, error in sizes]
    present = [count > least_count(LEAST_PRESENT, error, released.least) for count, error in counts]
    records = sum(part for (part, _), there in zip(sizes, present, strict=True) if there)
    if not records:
        return [UNKNOWN_SITE] * len(site_weights)
    chosen = [released.weighted(table, own * at_site)[0] for at_site in site_weights]
    common = min(max(sum(part for part, there in zip(chosen, present, strict=True) if there) / records, 0.0), 1.0)
    sites = []
    for at_site, part, (size, _), there in zip(site_weights, chosen, sizes, present, strict=True):
        if not there:
            sites.append(UNKNOWN_SITE)
            continue
        value = part / size
        error = released.weighted(table, (own - value * counted) * at_site / size)[1]
        sites.append(SiteEstimate(value, error**2, common * (1 - common) / (released.weight * size)))
    return sites


def _weights(labels: tuple[str, ...], level: str) -> tuple[Array, Array]:
    """Weights of the cells with a level, and of those that count."""
    cells = np.eye(len(labels))
    return cells[labels.index(level)], np.ones(len(labels)) if level == MISSING else 1.0 - cells[-1]


def part_of(
    released: Released, table: Feature, chosen: Array, counted: Array, subject: str, term: str, parties: bool = False
) -> tuple[Estimate, list[Flag]]:
    """The part of the ``counted`` cells' records that are in the ``chosen`` ones; both are weights of cells, (size,)."""
    part, error_of_part = released.weighted(table, counted)
    if not part * released.weight > least_count(LEAST_PRESENT, error_of_part * released.weight, released.least):
        text = "too few values for the noise: nothing is known about them; ask for a larger epsilon"
        return Estimate.unknown(term, (0.0, 1.0)), [Flag.shared("nothing-present", subject, text, (term,))]
    value = released.weighted(table, chosen)[0] / part
    error = released.weighted(table, (chosen - value * counted) / part)[1]
    records = released.weight * part
    estimate = Estimate.proportion(term, value, error**2, records)
    return estimate, [] if parties else few(subject, value, error, estimate.of_population[1] * records, (term,))


STATISTIC = Proportion
