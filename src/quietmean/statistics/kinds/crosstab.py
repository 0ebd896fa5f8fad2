"""Two columns with levels against each other: counts, chi-squared, and of two levels each the ratios of odds and risks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import CellCounts, OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm, ratio
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest
from quietmean.statistics.intervals import CHI_SQUARED, HALF_A_RECORD, chi_squared_test, least_count
from quietmean.statistics.kinds.histogram import counts
from quietmean.statistics.known_levels import LEFT_OUT, KnownMargins
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released, TermReading

# Noise deviations that a cell must have for a ratio to be formed, and expected counts for a test to be trusted.
_LEAST_CELL, _LEAST_EXPECTED = 3.0, 2.0
PEARSON = "Pearson's chi-squared test"
RATIOS = ratio("odds-ratio"), ratio("risk-ratio"), SmoothTerm("risk-difference", (-1.0, 1.0))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crosstab(OfCells):
    """Counts of all pairs of levels, ``f:yes`` for the row's level f and the column's level yes, with those that are missing.

    The test of independence is Pearson's chi-squared of the present levels, with the noise counted in, but for levels that so few
    have that the noise hides them. For two levels each, the
    risk is the part with the column's second level; ratios and the difference are of the row's second level against its first.
    """

    name = "crosstab"
    summary = "counts of two columns against each other, with chi-squared, odds and risk ratio"
    by_place = ("row", "column")
    expects = ("odds-ratio",)

    row: str = parameter(help="the column whose levels are rows")
    column: str = parameter(help="the column whose levels are columns")

    @property
    def subject(self) -> str | None:
        return None

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None and all(len(scenario.columns[name].categories) == 2 for name in (self.row, self.column)):
            scenario.happen(self.column, math.log(ratio) * scenario.values[self.row])

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        if self.row == self.column:
            raise InputError(f"{self.text} is of one column only: name two, or ask for proportion({self.row})")
        return Axis(columns.category(self.row)), Axis(columns.category(self.column))

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        """How the counts are read."""
        table = self._table(columns)
        cells = zip(_terms(table), np.eye(table.size), strict=True)
        return tuple(TermReading(term, table, cell, adds_up=True) for term, cell in cells)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        rows, levels = (axis.labels for axis in table.axes)
        terms = _terms(table)
        names = tuple(f"{self.row} {row} with {self.column} {level}" for row in rows for level in levels)
        estimates = counts(released, released.mean(table), released.covariance(table), terms, names)
        cells = self._cells(released, columns)
        test, flags = independence(cells.counts, cells.noise)
        margins = KnownMargins.of(cells.counts, cells.noise, released.weight)
        for index, upper in margins.hidden_rows.items():
            flags.append(left_out(f"{self.row} {rows[index]}", upper, tuple(f"{rows[index]}:{level}" for level in levels)))
        for index, upper in margins.hidden_columns.items():
            flags.append(left_out(f"{self.column} {levels[index]}", upper, tuple(f"{row}:{levels[index]}" for row in rows)))
        labels = {"rows": list(rows), "columns": list(levels)}
        estimates = replace(estimates, tests={"chi-squared": test}, summary=labels, flags=(*estimates.flags, *flags))
        return _with_ratios(estimates, cells) if cells.counts.shape == (2, 2) else estimates


def _terms(table: CellIndicators) -> tuple[str, ...]:
    rows, levels = (axis.labels for axis in table.axes)
    return tuple(f"{row}:{level}" for row in rows for level in levels)


def left_out(level: str, upper: int, terms: tuple[str, ...]) -> Flag:
    """What is said of a level that a test leaves out; ``terms``: its cells."""
    return Flag(LEFT_OUT, f"{level}: fewer than {upper:,.0f}, too few for the noise: left out of the test", terms, upper)


def independence(table: Array, noise: Array) -> tuple[HypothesisTest, list[Flag]]:
    """Pearson's test with the noise counted in, from counts (rows, columns) and the covariance of their noise.

    What is tested are the distances of cells from the products of the margins, by their own covariance: without noise that is the
    sum of (O - E)^2 / E. Levels that the noise hides are left out, and have no degree of freedom.
    """
    table, noise = KnownMargins.of(table, noise).within(table, noise)
    rows, columns = table.shape
    if min(rows, columns) < 2:
        text = "noise hides all but one row or column of the table: independence is not tested"
        return HypothesisTest(math.nan, (math.nan,), math.nan, PEARSON, CHI_SQUARED), [Flag("empty-margin", text)]
    total = float(table.sum())
    row, column = table.sum(axis=1), table.sum(axis=0)
    degrees = float((rows - 1) * (columns - 1))
    expected = np.outer(row, column) / total
    cell = np.arange(table.size).reshape(table.shape)
    slope = np.eye(table.size)
    for i in range(rows):
        for j in range(columns):
            slope[cell[i, j], cell[i]] -= column[j] / total
            slope[cell[i, j], cell[:, j]] -= row[i] / total
            slope[cell[i, j]] += row[i] * column[j] / total**2
    chances = (expected / total).ravel()
    covariance = slope @ (total * (np.diag(chances) - np.outer(chances, chances)) + noise) @ slope.T
    free = cell[:-1, :-1].ravel()
    distances = (table - expected).ravel()[free]
    statistic = float(distances @ np.linalg.solve(covariance[np.ix_(free, free)], distances))
    flags = []
    if (expected.ravel() < _LEAST_EXPECTED * np.sqrt(np.maximum(np.diag(noise), 0.0))).any():
        flags.append(Flag("few-expected", "an expected count is within two standard deviations of the noise: the test is rough"))
    return chi_squared_test(statistic, degrees, PEARSON), flags


def _with_ratios(estimates: Estimates, cells: CellCounts) -> Estimates:
    """Add odds ratio, risk ratio and risk difference of a two by two table."""
    least = [least_count(_LEAST_CELL, error) for error in np.sqrt(np.maximum(np.diag(cells.noise), 0.0)).tolist()]
    small = bool((cells.counts.ravel() <= least).any())
    known = cells.estimated(_log_ratios, corrected=False, by_row=True)
    entries = [term.unknown for term in RATIOS[:2]] if small else known.of(RATIOS[:2])
    # Of rows that hardly anybody is in nothing is said.
    present = bool((cells.counts.sum(axis=1) > HALF_A_RECORD).all())
    difference = cells.estimated(_risk_difference, corrected=False, by_row=True)
    entries += difference.of(RATIOS[2:]) if present else [RATIOS[2].unknown]
    text = "a cell is within three standard deviations of the noise: no odds ratio or risk ratio, the difference only"
    flags = [Flag("small-cell", text, tuple(term.name for term in RATIOS[:2]))] if small else []
    return replace(
        estimates,
        entries=(*estimates.entries, *(replace(entry, p_value=math.nan, statistic=math.nan) for entry in entries)),
        flags=(*estimates.flags, *flags),
        headline=(RATIOS[0].name,),
    )


def _risks(counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The part of each row with the column's second level, of two by two tables."""
    first, second = (counts[:, row, 1] / counts[:, row].sum(axis=1) for row in (0, 1))
    return first, second


def _log_ratios(counts: NDArray[Any]) -> NDArray[Any]:
    """The logarithms of odds ratio and risk ratio."""
    first, second = _risks(counts)
    odds = counts[:, 0, 0] * counts[:, 1, 1] / (counts[:, 0, 1] * counts[:, 1, 0])
    return np.asarray(np.log(np.stack([odds, second / first], axis=1)))


def _risk_difference(counts: NDArray[Any]) -> NDArray[Any]:
    first, second = _risks(counts)
    return np.asarray(second - first)[:, None]


STATISTIC = Crosstab
