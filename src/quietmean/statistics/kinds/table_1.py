"""Table 1 of a study: means and proportions of many columns, in groups, with tests and standardised differences."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import MISSING, YES, Column, Columns
from quietmean.statistics.compared import difference_of
from quietmean.statistics.complete_records import completeness_of, records_of, whole_number
from quietmean.statistics.delta_method import KnownMargins
from quietmean.statistics.estimate import Estimate, Flag, HypothesisTest, few, least_count
from quietmean.statistics.estimates import Completeness, Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock, PrefixTable
from quietmean.statistics.features.block import LEAST_PRESENT, estimate_of_mean, moved_block, square_root, summary
from quietmean.statistics.fields import names_field
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.kinds.counts import part_of
from quietmean.statistics.kinds.group_means import moved_smd, welch_anova, welch_t
from quietmean.statistics.kinds.quantiles import cumulative, moved_quantiles, prefix_table, quantile_rows
from quietmean.statistics.kinds.tables import independence, left_out
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.table_1_text import MEDIAN, QUARTILES, Table1Text, footnote
from quietmean.statistics.two_samples import SMD, difference_of_levels, difference_of_means

ALL, SIZE = "all", "n"
# Bins of medians, as many as the noise of a group allows; ``quantiles`` may have more. And the probabilities.
_BINS, _QUARTERS = 256, (0.25, 0.5, 0.75)
_NOT_KNOWN = (math.nan, math.nan)

# Records: a number whose noise is less is known but for rounding.
_ROUNDING = 1e-5


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
        by, questions = self._by(columns), self._questions(columns)
        # Medians come last.
        features = [question.feature for question in sorted(questions, key=lambda question: isinstance(question, _Medians))]
        # Tables know how many records each group has; blocks know only how many have a value.
        if by is not None and not any(isinstance(feature, CellIndicators) for feature in features):
            features.append(CellIndicators((Axis(by),)))
        return tuple(features)

    def total_share(self, columns: Columns) -> float:
        return self.share * len(self.features(columns))

    def _by(self, columns: Columns) -> Column | None:
        return None if self.by is None else columns.category(self.by)

    def _rows(self, columns: Columns) -> list[Column]:
        names = self.columns or tuple(name for name in columns.names if name != self.by)
        if not names or len(set(names)) < len(names) or self.by in names:
            raise InputError(f"{self.text} needs columns beside the one that divides them. Name each once, and not {self.by!r}.")
        return [columns[name] for name in names]

    def _questions(self, columns: Columns) -> list[_Question]:
        by, questions = self._by(columns), list[_Question]()
        for column in self._rows(columns):
            questions.append(_Numbers(column, by) if column.numeric else _Levels(column, by))
            if column.numeric and self.medians:
                questions.append(_Medians(column, by))
        return questions

    def _groups(self, columns: Columns) -> tuple[str, ...]:
        by = self._by(columns)
        return (ALL,) if by is None else by.categories

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return _named((column.name, f"{column.name} mean", f"{column.name} sd"), estimates)

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return _named([f"{column.name} {term}" for term in ("mean", MEDIAN, *QUARTILES)], estimates)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        groups, moved = self._groups(columns), dict[str, float]()
        for question in self._questions(columns):
            for index, group in enumerate(groups):
                moved |= {f"{group} {term}": most for term, most in question.moved(around, index).items()}
            if len(groups) == 2 and isinstance(question, _Numbers):
                pair = [block for index in (0, 1) if (block := moved_block(around, question.feature, index)) is not None]
                moved |= {f"{SMD} {question.column.name}": moved_smd(pair)} if len(pair) == 2 else {}
        return moved

    def compared(self, columns: Columns) -> dict[str, str]:
        by = self._by(columns)
        return {} if by is None else difference_of(by, SMD)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        by, names, features, weight = self._by(columns), self._groups(columns), self.features(columns), released.weight
        sizes = [_Size.of(released, features, group, by) for group in range(len(names))]
        groups, tests = _Groups(released, names, sizes, []), dict[str, HypothesisTest]()
        # Each row with the number of records that it is of.
        rows = [(size.row(weight).of(name), size.records(released)) for name, size in zip(names, sizes, strict=True)]
        for question in self._questions(columns):
            present = question.present(released)
            for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
                own = question.rows(groups, index)
                rows += [(row.of(name), size.records(released) if row.term == question.absent else present[index]) for row in own]
            apart, test = question.compared(groups)
            rows += [(replace(apart, term=question.column.name).of(SMD), _NOT_KNOWN)] if apart is not None else []
            if test is not None:
                tests[question.column.name] = replace(test, about=question.column.name)
        order = [*names, SMD]
        rows.sort(key=lambda row: order.index(row[0].group))
        entries = [row.possible() for row, _ in rows]
        if not released.sampled:
            entries, tests = [entry.about_these_records() for entry in entries], {}
        described = self._rows(columns)
        text: dict[str, Any] = {
            **Table1Text(names, entries, tests, groups.flags).summary(described, by),
            "footnote": footnote(described, entries, SMD in {row.group for row in entries}, tested=bool(tests)),
        }
        return Estimates.of(
            entries,
            tests=tests,
            summary=text,
            flags=tuple(groups.flags),
            n=np.array([number for _, number in rows]),
            completeness=None if by is None and released.counted else groups.completeness,
            method="ratios of noisy means and counts; Student, Wilson, Welch and chi-squared with the noise in them",
        )


def _named(names: Collection[str], estimates: Estimates) -> tuple[str, ...]:
    """The terms that have one of these names in their group."""
    return tuple(term for term, (_, name) in zip(estimates.terms, estimates.groups, strict=True) if name in names)


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
        cells = table.along(0, np.eye(table.shape[0])[group])
        gradient[released.places[table]] = cells
        return cls(released.weighted(table, cells)[0], gradient, released.weighted(table, cells)[1])

    def row(self, records: float) -> Estimate:
        if math.isnan(self.part):
            return Estimate.unknown(SIZE, (0.0, records))
        row = Estimate.proportion(SIZE, self.part, self.error**2, records)
        return (row if self.gradient.any() else replace(row, of_population=row.of_noise)).times(records)

    def records(self, released: Released) -> tuple[float, float]:
        """How many records it has, a whole number, and the error of the noise in that."""
        if math.isnan(self.part):
            return _NOT_KNOWN
        most = released.weight if math.isnan(released.records) else released.records
        return whole_number(self.part * released.weight, most), self.error * released.weight


@dataclass(frozen=True, eq=False)
class _Groups:
    """What was released of the groups: how large each is, and what is said of them."""

    released: Released
    names: tuple[str, ...]
    sizes: list[_Size]
    flags: list[Flag]

    @property
    def completeness(self) -> Completeness:
        """Counts all but who has no level of the column that divides them."""
        weights = np.sum([size.gradient for size in self.sizes], axis=0)
        part, error = sum(size.part for size in self.sizes), self.released.error(weights)
        present, _ = _Size(part, weights, error).records(self.released)
        one = self.sizes[0].error if len(self.sizes) == 1 else error
        return completeness_of(self.released, (present, one * self.released.weight), weights)

    def unless_few(self, row: Estimate, few_flags: list[Flag], index: int) -> Estimate:
        """A part of a group; where noise hides how many these are, nothing but that they are fewer than some number."""
        # Without noise but rounding, none is none.
        if row.noise * self.sizes[index].part * self.released.weight < _ROUNDING:
            return row
        self.flags.extend(replace(flag, terms=(f"{self.names[index]} {row.term}",)) for flag in few_flags)
        if not few_flags or math.isnan(row.value):
            return row
        return replace(row, value=math.nan, of_population=(0.0, row.of_population[1]), of_noise=(0.0, row.of_noise[1]))


@dataclass(frozen=True)
class _Question(ABC):
    """What the table asks of one column in each group, and of two groups together; terms begin with the name of the column."""

    column: Column
    by: Column | None

    @property
    @abstractmethod
    def feature(self) -> Feature:
        """The feature that the question is read from."""

    @abstractmethod
    def rows(self, groups: _Groups, index: int) -> list[Estimate]:
        """The estimates in one group, by its place; what there is to say goes to the groups' flags."""

    @abstractmethod
    def moved(self, around: Around, index: int) -> Mapping[str, float]:
        """How far each of its terms moves in one group."""

    def compared(self, groups: _Groups) -> tuple[Estimate | None, HypothesisTest | None]:
        """The standardised difference of two groups, and the test that all are alike, where there are any."""
        return None, None

    @property
    def absent(self) -> str:
        """The term of the part that is missing, which is one of all records."""
        return f"{self.column.name} {MISSING}"

    def name_in(self, index: int) -> str:
        """How sentences end about one of several groups."""
        return "" if self.by is None else f" in {self.by.categories[index]}"

    def present(self, released: Released) -> list[tuple[float, float]]:
        """How many records of each group have a value, and the error of the noise in that."""
        # Of a median, those that have a mean.
        feature = (
            ColumnBlock(self.column, self.by, compared=True) if self.column.numeric else _Levels(self.column, self.by).feature
        )
        weights = feature.complete[None] if self.by is None else feature.complete_in(self.by.name)
        assert weights is not None  # noqa: S101
        return [records_of(released, feature, row) for row in weights]


class _Numbers(_Question):
    """Mean, standard deviation and missing part of a column of numbers."""

    @property
    def feature(self) -> ColumnBlock:
        return ColumnBlock(self.column, self.by, compared=True)

    def rows(self, groups: _Groups, index: int) -> list[Estimate]:
        column, group, present = self.column, groups.names[index], summary(groups.released, self.feature, index)
        mean, deviation = (f"{column.name} {moment}" for moment in ("mean", "sd"))
        rows = [estimate_of_mean(mean, present, column)]
        largest = column.width / math.sqrt(2)
        if present is None:
            text = "the values are too few for the noise. They are left out"
            terms = (f"{group} {mean}", f"{group} {deviation}")
            groups.flags.append(Flag.shared("nothing-present", f"{column.name} in {group}", text, terms))
            rows.append(Estimate.unknown(deviation, (0.0, largest)))
        else:
            variance = present.estimate_of_variance(deviation, largest**2)
            if not variance.known:
                text = f"{column.name} in {group}: the noise hides the variance. Only an upper end is known"
                groups.flags.append(Flag("no-variance", text, (f"{group} {deviation}",)))
            rows.append(square_root(variance, deviation))
        return rows if self.feature.imputed else [*rows, self._missing(groups, index)]

    def _missing(self, groups: _Groups, index: int) -> Estimate:
        """The part of a group without a value."""
        released, size = groups.released, groups.sizes[index]
        if not size.part * released.weight > least_count(LEAST_PRESENT, size.error * released.weight):
            return Estimate.unknown(self.absent, (0.0, 1.0))
        where = released.places[self.feature][index * self.feature.size // self.feature.groups]
        present = float(released.quantities[where]) / size.part
        gradient = size.gradient * present
        gradient[where] -= 1.0
        noise, records = released.error(gradient / size.part) ** 2, released.weight * size.part
        row = Estimate.proportion(self.absent, 1 - present, noise, records)
        name = self.absent + self.name_in(index)
        upper = row.interval(released.sampled)[1] * records
        return groups.unless_few(row, few(name, row.value, row.noise, upper) if noise else [], index)

    def compared(self, groups: _Groups) -> tuple[Estimate | None, HypothesisTest | None]:
        summaries = [summary(groups.released, self.feature, index) for index in range(len(groups.names))]
        present = [each for each in summaries if each is not None]
        apart = None
        if len(summaries) == 2:
            apart = difference_of_means(summaries[0], summaries[1], self.column, groups.flags, f"{SMD} {self.column.name}")
        if len(present) < 2:
            return apart, None
        return apart, welch_t(*present) if len(summaries) == 2 else welch_anova(present)

    def moved(self, around: Around, index: int) -> Mapping[str, float]:
        half, own = self.column.width / 2, moved_block(around, self.feature, index)
        if own is None:
            return {}
        return {f"{self.column.name} mean": half * float(own.means[0]), f"{self.column.name} sd": half * own.deviation()}


class _Medians(_Question):
    """Median and quartiles of a column of numbers."""

    @property
    def feature(self) -> PrefixTable:
        return prefix_table(self.column, None, None, self.by, _BINS)

    @property
    def _terms(self) -> list[str]:
        return [f"{self.column.name} {quantile}" for quantile in (QUARTILES[0], MEDIAN, QUARTILES[1])]

    def rows(self, groups: _Groups, index: int) -> list[Estimate]:
        column, group, distribution = self.column, groups.names[index], cumulative(groups.released, self.feature, index)
        subject, terms = f"{column.name} in {group}", tuple(f"{group} {name}" for name in self._terms)
        if distribution is None:
            groups.flags.append(
                Flag.shared("nothing-present", subject, "the values are too few for the noise. No median is known", terms)
            )
            return [Estimate.unknown(name, (column.low, column.high)) for name in self._terms]
        found = quantile_rows(distribution, _QUARTERS, 1 / groups.released.weight)
        for term, (_, flags) in zip(terms, found, strict=True):
            groups.flags.extend(replace(flag, message=f"{subject}: {flag.message}", terms=(term,)) for flag in flags)
        return [replace(row, term=name) for name, (row, _) in zip(self._terms, found, strict=True)]

    def moved(self, around: Around, index: int) -> Mapping[str, float]:
        return dict(zip(self._terms, moved_quantiles(around, self.feature, _QUARTERS, index), strict=True))


class _Levels(_Question):
    """The proportion of each level of a column in the present values, and the part that is missing."""

    @property
    def feature(self) -> CellIndicators:
        return CellIndicators((Axis(self.column),) if self.by is None else (Axis(self.by), Axis(self.column)))

    def _asked(self, index: int) -> Iterator[tuple[str, str, Array, Array]]:
        """Each level with its term, and the weights of a group's cells with it and of those that count."""
        table, labels = self.feature, (*self.column.categories, MISSING)
        own = np.ones(table.size) if self.by is None else table.along(0, np.eye(table.shape[0])[index])
        of_levels = [own * table.along(len(table.axes) - 1, cell) for cell in np.eye(len(labels))]
        for level in (YES, MISSING) if self.column.boolean else labels:
            term = self.absent if level == MISSING else f"{self.column.name}:{level}"
            yield level, term, of_levels[labels.index(level)], own if level == MISSING else own - of_levels[-1]

    def rows(self, groups: _Groups, index: int) -> list[Estimate]:
        rows = []
        for level, term, chosen, counted in self._asked(index):
            subject = f"{self.column.name} {level}{self.name_in(index)}"
            row, flags = part_of(groups.released, self.feature, chosen, counted, subject, term)
            rows.append(groups.unless_few(row, flags, index))
        return rows

    def compared(self, groups: _Groups) -> tuple[Estimate | None, HypothesisTest | None]:
        if self.by is None:
            return None, None
        released, feature, column = groups.released, self.feature, self.column
        there = np.arange(feature.size).reshape(feature.shape)[:-1, :-1]
        cells = released.mean(feature)[there] * released.weight
        covariance = released.covariance(feature)[np.ix_(there.ravel(), there.ravel())] * released.weight**2
        test = self._tested(groups, cells, covariance) if released.sampled else None
        if len(groups.names) != 2:
            return None, test
        return difference_of_levels(column, cells, covariance, groups.flags, f"{SMD} {column.name}"), test

    def _tested(self, groups: _Groups, cells: Array, covariance: Array) -> HypothesisTest:
        """The test that all groups have the same levels; what it leaves out goes to the groups' flags."""
        column = self.column
        test, flags = independence(cells, covariance)
        groups.flags.extend(replace(flag, message=f"{column.name}: {flag.message}") for flag in flags)
        for index, upper in KnownMargins.of(cells, covariance, groups.released.weight).hidden_columns.items():
            level = column.categories[index]
            # Of a boolean column there is a row for yes only.
            terms = tuple(f"{group} {column.name}:{YES if column.boolean else level}" for group in groups.names)
            groups.flags.append(left_out(f"{column.name} {level}", upper, terms))
        return test

    def moved(self, around: Around, index: int) -> Mapping[str, float]:
        return {term: around.ratio(self.feature, chosen, counted) for _, term, chosen, counted in self._asked(index)}
