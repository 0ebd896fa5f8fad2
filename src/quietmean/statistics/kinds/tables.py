"""Tables of columns with levels: independence, ratios of odds and risks, also within strata, and trends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.compared import ratio_of
from quietmean.statistics.delta_method import LEFT_OUT, CellCounts, KnownMargins, OfCells, SmoothTerm, ratio
from quietmean.statistics.estimate import (
    ASK_FOR_MORE,
    CHI_SQUARED,
    HALF_A_RECORD,
    SMALL_CELL,
    Estimate,
    Flag,
    HypothesisTest,
    chi_squared_test,
    least_count,
    t_test,
)
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.fields import numbers_field
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.kinds.counts import counts
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released
from quietmean.statistics.tails import tails
from quietmean.statistics.weights import Weighable

# Noise deviations that a cell must have for a ratio to be formed, and expected counts for a test to be trusted.
_LEAST_CELL, _LEAST_EXPECTED = 3.0, 2.0
PEARSON = "Pearson's chi-squared test"
RATIOS = ratio("odds-ratio"), ratio("risk-ratio"), SmoothTerm("risk-difference", (-1.0, 1.0))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crosstab(Weighable, OfCells):
    """Counts of all pairs of levels, ``f:yes`` for the row's level f and the column's level yes, with those that are missing.

    The test of independence is Pearson's chi-squared of the present levels, with the noise counted in, but for levels that so few
    have that the noise hides them. For two levels each, the
    risk is the part with the column's second level. Ratios and the difference are of the row's second level against its first, as
    results say: ``smoker yes, sex m against f``.
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

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        if self.row == self.column:
            raise InputError(f"{self.text} is of one column only. Name two, or ask for proportion({self.row}).")
        return Axis(columns.category(self.row)), Axis(columns.category(self.column))

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        """How the counts are read."""
        table = self._table(columns)
        cells = zip(_terms(table), np.eye(table.size), strict=True)
        return tuple(TermReading(term, table, cell, adds_up=True) for term, cell in cells)

    def compared(self, columns: Columns) -> dict[str, str]:
        return _rows_compared(columns.category(self.row), columns.category(self.column))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        rows, levels = (axis.labels for axis in table.axes)
        terms = _terms(table)
        names = tuple(f"{self.row} {row} with {self.column} {level}" for row in rows for level in levels)
        estimates = counts(released, table, terms, names)
        cells, labels = self.cells(released, columns), {"rows": list(rows), "columns": list(levels)}
        test, flags = independence(cells.counts, cells.noise)
        margins = KnownMargins.of(cells.counts, cells.noise, released.weight)
        for index, upper in margins.hidden_rows.items():
            flags.append(left_out(f"{self.row} {rows[index]}", upper, tuple(f"{rows[index]}:{level}" for level in levels)))
        for index, upper in margins.hidden_columns.items():
            flags.append(left_out(f"{self.column} {levels[index]}", upper, tuple(f"{row}:{levels[index]}" for row in rows)))
        # What the test leaves out is of no interest without it.
        flags = flags if released.sampled else []
        estimates = replace(estimates, tests={"chi-squared": test}, summary=labels, flags=(*estimates.flags, *flags))
        return _with_ratios(estimates, cells) if cells.counts.shape == (2, 2) else estimates


def _rows_compared(row: Column, column: Column) -> dict[str, str]:
    return ratio_of(row, *(term.name for term in RATIOS), outcome=f"{column.name} {column.categories[-1]}")


def _terms(table: CellIndicators) -> tuple[str, ...]:
    rows, levels = (axis.labels for axis in table.axes)
    return tuple(f"{row}:{level}" for row in rows for level in levels)


def left_out(level: str, upper: int, terms: tuple[str, ...]) -> Flag:
    """What is said of a level that a test leaves out; ``terms``: its cells."""
    return Flag(LEFT_OUT, f"{level}: fewer than {upper:,.0f}, too few for the noise. The test leaves it out", terms, upper)


def independence(table: Array, noise: Array) -> tuple[HypothesisTest, list[Flag]]:
    """Pearson's test with the noise counted in, from counts (rows, columns) and the covariance of their noise.

    What is tested are the distances of cells from the products of the margins, by their own covariance: without noise that is the
    sum of (O - E)^2 / E. Levels that the noise hides are left out, and have no degree of freedom.
    """
    table, noise = KnownMargins.of(table, noise).within(table, noise)
    rows, columns = table.shape
    if min(rows, columns) < 2:
        text = "the noise hides all but one row or column of the table. Independence is not tested"
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
    if (expected.ravel() < tails().deviations(_LEAST_EXPECTED) * np.sqrt(np.maximum(np.diag(noise), 0.0))).any():
        flags.append(Flag("few-expected", "an expected count is within two standard deviations of the noise. The test is rough"))
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
    text = "a cell is within three standard deviations of the noise. The difference is known, the ratios are not"
    flags = [Flag(SMALL_CELL, text, tuple(term.name for term in RATIOS[:2]))] if small else []
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


ODDS, RISK, DIFFERENCE = RATIOS
# Noise deviations that the sums above and below a ratio must have.
_LEAST_SUM = 3.0
# Sums of products of counts over their number are no numbers of records; so little is rounding.
_NOTHING = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MantelHaenszel(OfCells):
    """``odds-ratio``, ``risk-ratio`` and ``risk-difference`` of two columns with two levels, the same in all strata of ``by``.

    As of :class:`~quietmean.statistics.kinds.tables.Crosstab` they are of the row's second level against its first, and the
    risk is the part with the column's second level. Errors are those of Robins, Breslow and Greenland (Biometrics 42, 1986), and
    of Greenland and Robins (Biometrics 41, 1985), which hold for few large and for many small strata. The test is that of Mantel
    and Haenszel without a correction for continuity. A stratum in which the noise hides a level of the row or the column is left
    out.
    """

    name = "mantel-haenszel"
    summary = "odds ratio, risk ratio and risk difference over strata, with Mantel and Haenszel's test"
    by_place = ("row", "column", "by")
    expects = ("odds-ratio",)

    row: str = parameter(help="the column with two levels that are compared")
    column: str = parameter(help="the column whose second level is the outcome")
    by: str = parameter(help="the column whose levels are the strata")

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        return Axis(columns.category(self.by)), self.two_levels(columns, self.row), self.two_levels(columns, self.column)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None:
            scenario.happen(self.column, math.log(ratio) * scenario.values[self.row])

    def compared(self, columns: Columns) -> dict[str, str]:
        return _rows_compared(columns.category(self.row), columns.category(self.column))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells, strata = self.cells(released, columns), columns.category(self.by).categories
        kept, flags = [], []
        for stratum, name in enumerate(strata):
            own = slice(4 * stratum, 4 * stratum + 4)
            margins = KnownMargins.of(cells.counts[stratum], cells.noise[own, own], released.weight)
            if margins.hidden_rows or margins.hidden_columns:
                text = f"the noise hides a level of {self.row} or {self.column}. The stratum is left out"
                flags.append(Flag.shared(LEFT_OUT, f"{self.by} {name}", text))
            else:
                kept.append(stratum)
        if not kept:
            text = f"the noise hides a level in every stratum. {ASK_FOR_MORE}"
            return self.nothing((ODDS, RISK, DIFFERENCE), Flag("nothing-present", text))
        places = np.arange(cells.counts.size).reshape(cells.counts.shape)[kept].ravel()
        used = CellCounts(cells.counts[kept], cells.noise[np.ix_(places, places)])
        smooth = used.smooth(_sums)
        sums, slopes = dict(zip(_SUMS, smooth.values.tolist(), strict=True)), dict(zip(_SUMS, smooth.slopes, strict=True))
        rows = [
            _ratio(used, ODDS, sums, slopes, "R", "S", _robins_breslow_greenland),
            _ratio(used, RISK, sums, slopes, "with", "without", _greenland_robins),
        ]
        lost = tuple(row.term for row in rows if not row.known)
        if lost:
            text = "the noise nearly hides a sum over the strata. The difference is known, the ratios are not"
            flags.append(Flag(SMALL_CELL, text, lost))
        value, weight = (sums["with"] - sums["without"]) / sums["weight"], sums["weight"]
        own_slopes = (slopes["with"] - slopes["without"] - value * slopes["weight"]) / weight
        rows.append(DIFFERENCE.estimate(value, used.noise_of(own_slopes), sums["differences"] / weight**2))
        variance = max(sums["null"], 0.0) + used.noise_of(slopes["excess"])
        statistic = sums["excess"] ** 2 / variance if variance > 0 else math.nan
        return Estimates.of(
            rows,
            tests={self.name: chi_squared_test(statistic, 1.0, "Mantel-Haenszel test")},
            summary={"strata": len(kept)},
            flags=tuple(flags),
            headline=(ODDS.name,),
            method="sums over strata, without what noise adds on average; log scale for ratios; with the noise",
        )


_SUMS = ("R", "S", "PR", "PS+QR", "QS", "with", "without", "risks", "weight", "differences", "excess", "null")


def _sums(counts: NDArray[Any]) -> NDArray[Any]:
    """Sums over the strata, (points, sums), of tables (a, b), (c, d)."""
    a, b, c, d = counts[:, :, 0, 0], counts[:, :, 0, 1], counts[:, :, 1, 0], counts[:, :, 1, 1]
    total, first, second, with_it, without = a + b + c + d, a + b, c + d, b + d, a + c
    main, other = (a + d) / total, (b + c) / total
    r, s = a * d / total, b * c / total
    each = (
        r,
        s,
        main * r,
        main * s + other * r,
        other * s,
        d * first / total,
        b * second / total,
        (with_it * second * first - d * b * total) / total**2,
        first * second / total,
        (d * c * first**3 + b * a * second**3) / (first * second * total**2),
        d - second * with_it / total,
        first * second * with_it * without / (total**2 * (total - 1)),
    )
    return np.stack([part.sum(axis=1) for part in each], axis=1)


def _robins_breslow_greenland(sums: dict[str, float]) -> float:
    r, s = sums["R"], sums["S"]
    return sums["PR"] / (2 * r**2) + sums["PS+QR"] / (2 * r * s) + sums["QS"] / (2 * s**2)


def _greenland_robins(sums: dict[str, float]) -> float:
    return sums["risks"] / (sums["with"] * sums["without"])


def _ratio(
    cells: CellCounts,
    term: SmoothTerm,
    sums: dict[str, float],
    slopes: dict[str, Array],
    top: str,
    bottom: str,
    sampling: Callable[[dict[str, float]], float],
) -> Estimate:
    """The ratio of two sums with the variance of sampling of its logarithm; unknown where the noise hides one of them."""
    for name in (top, bottom):
        if not sums[name] > max(tails().deviations(_LEAST_SUM) * math.sqrt(cells.noise_of(slopes[name])), _NOTHING):
            return term.unknown
    noise = cells.noise_of(slopes[top] / sums[top] - slopes[bottom] / sums[bottom])
    return term.estimate(math.log(sums[top] / sums[bottom]), noise, sampling(sums))


SLOPE = SmoothTerm("slope")
# Noise deviations that the spread of scores and the number of outcomes must have.
_LEAST = 4.0
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trend(OfCells):
    """How much the part of the records with the second level of ``column`` rises from one level of ``by`` to the next: the
    ``slope`` of the least squares line over the ``scores`` of these levels, with robust errors.

    The test ``trend`` is that of Cochran and Armitage, the noise counted in.
    """

    name = "trend"
    summary = "how a proportion rises over ordered groups, with Cochran and Armitage's test"
    by_place = ("column", "by")
    expects = ("odds-ratio",)

    column: str = parameter(help="the column with two levels")
    by: str = parameter(help="the column whose levels are ordered groups")
    scores: tuple[float, ...] | None = numbers_field(None, "a number for each group, by default 0, 1, 2 and so on", "scores")

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        groups = columns.category(self.by)
        if self.scores is not None and (len(self.scores) != len(groups.categories) or len(set(self.scores)) < 2):
            count = len(groups.categories)
            raise InputError(f"{self.text} needs a score for each of {count} groups, not all the same. Name {count} numbers.")
        return Axis(groups), self.two_levels(columns, self.column)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None:
            scenario.happen(
                self.column, math.log(ratio) * self._scores(scenario.columns)[scenario.values[self.by].astype(np.int64)]
            )

    def _scores(self, columns: Columns) -> Array:
        return (
            np.arange(len(columns.category(self.by).categories), dtype=np.float64)
            if self.scores is None
            else np.array(self.scores)
        )

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells, scores = self.cells(released, columns), self._scores(columns)
        if not cells.known:
            return self.nothing((SLOPE,))
        # Scores around their mean lose no digits.
        scores = scores - float(scores @ np.maximum(cells.counts.sum(axis=1), 0.0)) / cells.total

        def parts(counts: NDArray[Any]) -> NDArray[Any]:
            """Covariance of outcome and score, variances of both, and the slope."""
            total, groups, outcomes = counts.sum(axis=(1, 2)), counts.sum(axis=2), counts[:, :, 1]
            mean, part = groups @ scores / total, outcomes.sum(axis=1) / total
            both = outcomes @ scores / total - mean * part
            spread_of_scores = groups @ scores**2 / total - mean**2
            return np.stack([both, spread_of_scores, part * (1 - part), both / spread_of_scores], axis=1)

        known = cells.estimated(parts)
        both, of_scores, of_outcomes, _ = known.values.tolist()
        errors = np.sqrt(known.noise).tolist()
        least = [max(tails().deviations(_LEAST) * error, _ROUNDING) for error in errors]
        if not (of_scores > least[1] and of_outcomes > least[2]):
            text = "the noise hides all but one group, or whether the outcome happens. No trend is known"
            return self.nothing((SLOPE,), Flag("no-trend", text, (SLOPE.name,)))
        # The variance under the hypothesis, that the outcome has the same chance in all groups.
        test = t_test(both, math.sqrt(of_scores * of_outcomes / cells.total + errors[0] ** 2), math.inf, "Cochran-Armitage test")
        return Estimates.of(
            known[3:].of([SLOPE]),
            tests={self.name: test},
            headline=(SLOPE.name,),
            method="smooth functions of counts, without what noise adds on average; robust errors, with the noise",
        )
