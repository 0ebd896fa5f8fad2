"""Counts, sums, bins and proportions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, require_known
from quietmean.statistics.columns import MISSING, YES, Columns
from quietmean.statistics.conditions import RowCondition
from quietmean.statistics.estimate import ASK_FOR_MORE, WHOLE, Estimate, Flag, few, least_count
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.features.presence import AnyPresent
from quietmean.statistics.fields import cluster_field, edges_field, usual_bins_field
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.random_effects import UNKNOWN_SITE, AcrossSites, SiteEstimate, site_column
from quietmean.statistics.statistic import Feature, Released, require_records
from quietmean.statistics.weights import Weighable

COUNTED = "a description of the records that were counted, not a parameter of a population"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sum(Weighable):
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
        own = released.tails(reading.feature, reading.top)
        return Estimates.number(value * records, noise * records, *ends, own=own, reason=COUNTED, method="linear")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Count(Weighable):
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
            return AnyPresent((column,)), np.ones(1)
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
        feature, weights = self._weights(columns)
        value, error = (sums * released.weight for sums in released.weighted(feature, weights))
        own = released.tails(feature, weights)
        estimates = Estimates.number(value, error, 0.0, released.weight, own=own, reason=COUNTED, method="linear")
        return replace(estimates, flags=tuple(few(self.text, value, error, float(estimates.of_noise[0, 1]), estimates.terms)))


def is_how_many_match(statistics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that is asked is of how many records a condition holds, as plain data: whether a study is worth its while."""
    return len(statistics) == 1 and statistics[0].get("kind") == Count.name and set(statistics[0]) == {"kind", "where"}


_USUAL_BINS = 10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Histogram(Weighable):
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
        return counts(released, table, table.axes[0].labels)


def counts(released: Released, table: CellIndicators, terms: tuple[str, ...], names: tuple[str, ...] | None = None) -> Estimates:
    """Counts of the cells of a table, each a term; ``names``: in sentences.

    Where counts are private most of that is empty, and sampling errors are those of records whose number is random as well.
    """
    records, entries, flags = released.weight, [], []
    parts, errors = released.mean(table), np.sqrt(np.maximum(np.diag(released.covariance(table)), 0.0))
    cells = zip(terms, names or terms, parts.tolist(), errors.tolist(), released.tails_of_each(table), strict=True)
    for term, name, part, error, own in cells:
        entries.append(Estimate.proportion(term, part, error**2, records, own).times(records))
        flags += few(name, part, error, entries[-1].interval(released.sampled)[1], (term,)) if error > 0 else []
    total = ", the counts add up to the public number" if released.counted else ""
    return Estimates.of(entries, flags=flags, method=f"linear{total}; Wilson's interval with the noise in it")


PARTIES_DIFFER = "each party counts once, and how far parties differ was not released. Ask for the mean of a column of numbers"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Proportion(Weighable):
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
        text = f"the values are too few for the noise. {ASK_FOR_MORE}"
        return Estimate.unknown(term, (0.0, 1.0)), [Flag.shared("nothing-present", subject, text, (term,))]
    value = released.weighted(table, chosen)[0] / part
    gradient = (chosen - value * counted) / part
    error, records = released.weighted(table, gradient)[1], released.weight * part
    estimate = Estimate.proportion(term, value, error**2, records, released.tails(table, gradient))
    upper = estimate.interval(released.sampled)[1] * records
    return estimate, [] if parties else few(subject, value, error, upper, (term,))
