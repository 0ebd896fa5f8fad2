"""Table 1 of a study: means and proportions of many columns, in groups, with tests and standardised differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import LEAST_PRESENT, Summary, estimate_of_mean, moved_block, square_root, summary
from quietmean.statistics.columns import MISSING, YES, Column, Columns
from quietmean.statistics.completeness import completeness_of, records_of, whole_number
from quietmean.statistics.delta_method import spread
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock, PrefixTable
from quietmean.statistics.fields import names_field
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.intervals import Flag, HypothesisTest, few, least_count
from quietmean.statistics.kinds.counts import part_of
from quietmean.statistics.kinds.group_means import moved_smd, welch_anova, welch_t
from quietmean.statistics.kinds.quantiles import cumulative, moved_quantiles, prefix_table, quantile_rows
from quietmean.statistics.kinds.tables import independence, left_out
from quietmean.statistics.known_levels import KnownMargins
from quietmean.statistics.standardised import SMD, difference_of_levels, difference_of_means
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.table_1_text import MEDIAN, QUARTILES, Table1Text, footnote

ALL, SIZE = "all", "n"
# Bins of medians, and the probabilities.
_BINS, _QUARTERS = 256, (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Table1(Statistic):
    """What the records are like: for each column of numbers its mean, standard deviation and part that is missing, for each other
    one the proportion of each level; in each group of ``by``, or of all records.

    Of two groups also standardised mean differences, the second minus the first. Each column has a test: Welch's t or analysis of
    variance, or chi-squared, with the noise counted in; nothing is corrected for their number. Every column has a whole
    ``share``: a table of ten columns takes as much of the budget as ten statistics. ``medians`` adds ``age median`` and its
    quartiles, at a share of their own. ``summary`` has the table as it is printed.
    """

    name = "table-1"
    summary = "means and proportions of many columns in groups, with standardised differences"
    by_place = ("columns",)
    takes_all = True
    counts_records = True

    columns: tuple[str, ...] = names_field("the columns, by default all that are declared", "columns")
    by: str | None = parameter(None, help="the column whose levels are the groups")
    medians: bool = parameter(
        False,
        help="the median and quartiles of each column of numbers, too, which take as much of the budget as its mean",
        written=lambda value: value.medians,
    )

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        by, described = self._by(columns), self._rows(columns)
        features: tuple[Feature, ...] = tuple(self._feature(column, by) for column in described)
        features += tuple(self._prefixes(column, by) for column in described if column.numeric and self.medians)
        counted = by is None or any(isinstance(feature, CellIndicators) for feature in features)
        # Tables know how many records each group has; blocks know only how many have a value.
        return features if counted or by is None else (*features, CellIndicators((Axis(by),)))

    def total_share(self, columns: Columns) -> float:
        return self.share * len(self.features(columns))

    def _by(self, columns: Columns) -> Column | None:
        return None if self.by is None else columns.category(self.by)

    def _rows(self, columns: Columns) -> list[Column]:
        names = self.columns or tuple(name for name in columns.names if name != self.by)
        if not names or len(set(names)) < len(names) or self.by in names:
            raise InputError(f"{self.text} needs columns beside the one that divides them: name each once, and not {self.by!r}")
        return [columns[name] for name in names]

    def _feature(self, column: Column, by: Column | None) -> ColumnBlock | CellIndicators:
        if column.numeric:
            return ColumnBlock(column, by)
        return CellIndicators((Axis(column),) if by is None else (Axis(by), Axis(column)))

    def _prefixes(self, column: Column, by: Column | None) -> PrefixTable:
        """The table for medians, with as many bins as the noise of a group allows; ``quantiles`` may have more."""
        return prefix_table(column, None, None, by, _BINS)

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        names = (column.name, f"{column.name} mean", f"{column.name} sd")
        pairs = zip(estimates.terms, estimates.groups, strict=True)
        return tuple(term for term, (_, name) in pairs if name in names)

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        pairs = zip(estimates.terms, estimates.groups, strict=True)
        names = [f"{column.name} {term}" for term in ("mean", MEDIAN, *QUARTILES)]
        return tuple(term for term, (_, name) in pairs if name in names)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        by = self._by(columns)
        groups = [ALL] if by is None else list(by.categories)
        moved: dict[str, float] = {}
        for column in self._rows(columns):
            feature = self._feature(column, by)
            for index, group in enumerate(groups):
                if isinstance(feature, ColumnBlock):
                    own = _moved_numbers(around, feature, index)
                    table = self._prefixes(column, by) if self.medians else None
                    quantiles = [] if table is None else moved_quantiles(around, table, _QUARTERS, index)
                    own |= dict(zip((QUARTILES[0], MEDIAN, QUARTILES[1]), quantiles, strict=False))
                    moved |= {f"{group} {column.name} {moment}": most for moment, most in own.items()}
                else:
                    moved |= {f"{group} {term}": most for term, most in _moved_levels(around, feature, column, index)}
            if isinstance(feature, ColumnBlock) and len(groups) == 2:
                pair = [
                    block for block in (moved_block(around, feature, 0), moved_block(around, feature, 1)) if block is not None
                ]
                moved |= {f"{SMD} {column.name}": moved_smd(pair)} if len(pair) == 2 else {}
        return moved

    def decode(self, released: Released, columns: Columns) -> Estimates:
        by, columns_of_rows = self._by(columns), self._rows(columns)
        groups = [ALL] if by is None else list(by.categories)
        features = self.features(columns)
        sizes = [_Size.of(released, features, group, by) for group in range(len(groups))]
        rows = [size.row(released.weight).of(group) for size, group in zip(sizes, groups, strict=True)]
        flags: list[Flag] = []
        tests: dict[str, HypothesisTest] = {}
        for column in columns_of_rows:
            feature = self._feature(column, by)
            if isinstance(feature, ColumnBlock):
                own_rows, test = _numbers(released, feature, groups, sizes, flags)
                own_rows += _quantiles(released, self._prefixes(column, by), groups, flags) if self.medians else []
            else:
                own_rows, test = _levels(released, column, feature, groups, flags)
            rows += own_rows
            if test is not None:
                tests[column.name] = replace(test, about=column.name)
        order = [*groups, SMD]
        rows = sorted((row.possible() for row in rows), key=lambda row: order.index(row.group))
        # All but who has no level of by.
        weights = np.sum([size.gradient for size in sizes], axis=0)
        parts, most = sum(size.part for size in sizes), released.weight if math.isnan(released.records) else released.records
        present = math.nan if math.isnan(parts) else whole_number(parts * released.weight, most)
        error = sizes[0].error if by is None else math.sqrt(spread(weights, released.deviations))
        n = self._n(released, columns, dict(zip(groups, sizes, strict=True)), rows)
        text: dict[str, Any] = {
            **Table1Text(groups, rows, tests, flags).summary(columns_of_rows),
            "footnote": footnote(columns_of_rows, groups, rows, SMD in {row.group for row in rows}),
        }
        return Estimates.of(
            rows,
            tests=tests,
            summary=text,
            flags=tuple(flags),
            n=n,
            completeness=None
            if by is None and released.counted
            else completeness_of(released, (present, error * released.weight), weights),
            method="ratios of noisy means and counts; Student, Wilson, Welch and chi-squared with the noise in them",
        )

    def _n(self, released: Released, columns: Columns, sizes: dict[str, _Size], rows: list[Estimate]) -> Array:
        """The number of records of each row and the noise in it, (rows, 2): the present values of its column in its group."""
        by, weight = self._by(columns), released.weight
        counts: dict[tuple[str, str], tuple[float, float]] = {}
        for column in self._rows(columns):
            feature = self._feature(column, by)
            weights = [feature.complete] if by is None else feature.complete_in(by.name)
            for group, size, row in zip(
                sizes, sizes.values(), weights if weights is not None else [None] * len(sizes), strict=True
            ):
                all_records = (
                    (math.nan, math.nan)
                    if math.isnan(size.part)
                    else (
                        whole_number(size.part * weight, weight if math.isnan(released.records) else released.records),
                        size.error * weight,
                    )
                )
                present = (math.nan, math.nan) if row is None else records_of(released, feature, row)
                own = ("mean", "sd", MEDIAN, *QUARTILES)
                names = (*(f"{column.name} {term}" for term in own), *(f"{column.name}:{level}" for level in column.categories))
                counts |= {(group, name): present for name in names} | {
                    (group, f"{column.name} {MISSING}"): all_records,
                    (group, SIZE): all_records,
                }
        return np.array([counts.get((row.group, row.term), (math.nan, math.nan)) for row in rows])


@dataclass(frozen=True, eq=False)
class _Size:
    """Which part of all records a group has, and how that depends on all released quantities, (q,)."""

    part: float
    gradient: Array
    error: float

    @classmethod
    def of(cls, released: Released, features: tuple[Feature, ...], group: int, by: Column | None) -> _Size:
        gradient = np.zeros(len(released.quantities))
        if by is None:
            whole = gradient if released.whole is None else released.whole
            return cls(released.part, whole, released.records_error / released.weight)
        table = next(feature for feature in features if isinstance(feature, CellIndicators))
        cells = np.eye(table.shape[0])[group]
        gradient[released.places[table]] = table.along(0, cells)
        part, error = released.weighted(table, table.along(0, cells))
        return cls(part, gradient, error)

    def row(self, records: float) -> Estimate:
        if math.isnan(self.part):
            return Estimate.unknown(SIZE, (0.0, records))
        row = Estimate.proportion(SIZE, self.part, self.error**2, records)
        return (row if self.gradient.any() else replace(row, of_population=row.of_noise)).times(records)


def _numbers(
    released: Released, feature: ColumnBlock, groups: list[str], sizes: list[_Size], flags: list[Flag]
) -> tuple[list[Estimate], HypothesisTest | None]:
    """Mean, standard deviation and missing part of a column of numbers in each group."""
    column = feature.column
    summaries = [summary(released, feature, index) for index in range(len(groups))]
    rows: list[Estimate] = []
    for index, (group, group_summary, size) in enumerate(zip(groups, summaries, sizes, strict=True)):
        if group_summary is None:
            terms = tuple(f"{group} {column.name} {moment}" for moment in ("mean", "sd"))
            flags.append(
                Flag.shared("nothing-present", f"{column.name} in {group}", "too few values for the noise, left out", terms)
            )
        rows += [
            estimate_of_mean(f"{column.name} mean", group_summary, column).of(group),
            _deviation(group_summary, column, group, flags).of(group),
        ]
        if not feature.imputed:
            moment = f"{column.name} {MISSING}" + (f" in {group}" if feature.by is not None else "")
            row = _missing(released, column, feature, index, size).of(group)
            known = row.noise > 0 and not math.isnan(row.value)
            hidden = few(moment, row.value, row.noise, row.of_population[1] * size.part * released.weight) if known else []
            rows.append(_unless_few(row, hidden, flags))
    present = [group_summary for group_summary in summaries if group_summary is not None]
    if len(groups) == 2:
        smd = difference_of_means(summaries[0], summaries[1], column, flags, f"{SMD} {column.name}")
        rows.append(replace(smd, term=column.name).of(SMD))
    if len(groups) < 2 or len(present) < 2:
        return rows, None
    if len(groups) > 2:
        return rows, welch_anova(present)
    return rows, welch_t(*present)


def _quantiles(released: Released, feature: PrefixTable, groups: list[str], flags: list[Flag]) -> list[Estimate]:
    """Median and quartiles in each group; what they say goes to ``flags``."""
    column, rows = feature.axis.column, []
    names = [f"{column.name} {quantile}" for quantile in (QUARTILES[0], MEDIAN, QUARTILES[1])]
    for index, group in enumerate(groups):
        distribution = cumulative(released, feature, index)
        terms = tuple(f"{group} {name}" for name in names)
        if distribution is None:
            text = "too few values for the noise, no median"
            flags.append(Flag.shared("nothing-present", f"{column.name} in {group}", text, terms))
            rows += [Estimate.unknown(name, (column.low, column.high)).of(group) for name in names]
            continue
        for name, term, (row, own_flags) in zip(
            names, terms, quantile_rows(distribution, _QUARTERS, 1 / released.weight), strict=True
        ):
            rows.append(replace(row, term=name).of(group))
            flags += [replace(flag, message=f"{column.name} in {group}: {flag.message}", terms=(term,)) for flag in own_flags]
    return rows


def _deviation(group_summary: Summary | None, column: Column, group: str, flags: list[Flag]) -> Estimate:
    """Ends of its intervals are the square roots of those of the variance."""
    term, largest_sd = f"{column.name} sd", column.width / math.sqrt(2)
    if group_summary is None:
        return Estimate.unknown(term, (0.0, largest_sd))
    variance = group_summary.estimate_of_variance(term, largest_sd**2)
    if not variance.known:
        text = f"{column.name} in {group}: noise hides the variance; only an upper end is known"
        flags.append(Flag("no-variance", text, (f"{group} {term}",)))
    return square_root(variance, term)


def _moved_numbers(around: Around, feature: ColumnBlock, group: int) -> dict[str, float]:
    """How far mean and standard deviation of a column move in one group."""
    half, own = feature.column.width / 2, moved_block(around, feature, group)
    return {} if own is None else {"mean": half * float(own.means[0]), "sd": half * own.deviation()}


def _moved_levels(around: Around, feature: CellIndicators, column: Column, group: int) -> Iterator[tuple[str, float]]:
    """How far the proportion of each level of a column moves in one group, and the part that is missing."""
    labels = (*column.categories, MISSING)
    own, chosen_at = _of_group(feature, group), len(feature.axes) - 1
    for level in (YES, MISSING) if column.boolean else labels:
        chosen, counted = _level_weights(feature, own, labels, level, chosen_at)
        term = f"{column.name} {MISSING}" if level == MISSING else f"{column.name}:{level}"
        yield term, around.ratio(feature, chosen, counted)


def _of_group(feature: CellIndicators, group: int) -> Array:
    """Weights of the cells of one group, (size,)."""
    return feature.along(0, np.eye(feature.shape[0])[group]) if len(feature.axes) > 1 else np.ones(feature.size)


def _level_weights(feature: CellIndicators, own: Array, labels: tuple[str, ...], level: str, axis: int) -> tuple[Array, Array]:
    """Weights of a group's cells with a level, and of those that count."""
    chosen = own * feature.along(axis, np.eye(len(labels))[labels.index(level)])
    return chosen, own if level == MISSING else own * (1 - feature.along(axis, np.eye(len(labels))[-1]))


def _missing(released: Released, column: Column, feature: ColumnBlock, group: int, size: _Size) -> Estimate:
    """The part of a group without a value."""
    term = f"{column.name} {MISSING}"
    if not size.part * released.weight > least_count(LEAST_PRESENT, size.error * released.weight):
        return Estimate.unknown(term, (0.0, 1.0))
    where = released.places[feature][group * feature.size // feature.groups]
    present = float(released.quantities[where]) / size.part
    gradient = size.gradient * present
    gradient[where] -= 1.0
    noise = spread(gradient / size.part, released.deviations)
    return Estimate.proportion(term, 1 - present, noise, released.weight * size.part)


def _unless_few(row: Estimate, few_flags: list[Flag], flags: list[Flag]) -> Estimate:
    """A part of a group; where noise hides how many these are, nothing but that they are fewer than some number."""
    flags += [replace(flag, terms=(f"{row.group} {row.term}",)) for flag in few_flags]
    if not few_flags or math.isnan(row.value):
        return row
    return replace(row, value=math.nan, of_population=(0.0, row.of_population[1]), of_noise=(0.0, row.of_noise[1]))


def _levels(
    released: Released, column: Column, feature: CellIndicators, groups: list[str], flags: list[Flag]
) -> tuple[list[Estimate], HypothesisTest | None]:
    """The proportion of each level of a column in the present values of each group, and the part that is missing."""
    labels = (*column.categories, MISSING)
    grouped = len(feature.axes) > 1
    rows = []
    for index, group in enumerate(groups):
        own = _of_group(feature, index)
        for level in (YES, MISSING) if column.boolean else labels:
            chosen, counted = _level_weights(feature, own, labels, level, len(feature.axes) - 1)
            level_name = f"{column.name} {level}" + (f" in {group}" if grouped else "")
            term = f"{column.name} {MISSING}" if level == MISSING else f"{column.name}:{level}"
            row, own_flags = part_of(released, feature, chosen, counted, level_name, term)
            row = row.of(group)
            rows.append(_unless_few(row, own_flags, flags))
    if not grouped:
        return rows, None
    there = np.arange(feature.size).reshape(feature.shape)[:-1, :-1]
    cells = released.mean(feature)[there.ravel()] * released.weight
    covariance = released.covariance(feature)[np.ix_(there.ravel(), there.ravel())] * released.weight**2
    test, own_flags = independence(cells.reshape(there.shape), covariance)
    flags += [replace(flag, message=f"{column.name}: {flag.message}") for flag in own_flags]
    margins = KnownMargins.of(cells.reshape(there.shape), covariance, released.weight)
    for index, upper in margins.hidden_columns.items():
        level = column.categories[index]
        # Of a boolean column there is a row for yes only.
        shown = YES if column.boolean else level
        flags.append(left_out(f"{column.name} {level}", upper, tuple(f"{group} {column.name}:{shown}" for group in groups)))
    if len(groups) == 2:
        rows.append(difference_of_levels(column, cells.reshape(there.shape), covariance, flags, f"{SMD} {column.name}").of(SMD))
    return rows, test
