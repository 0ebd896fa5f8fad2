"""Two columns with levels against each other: counts, chi-squared, and of two levels each the ratios of odds and risks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest, Z
from quietmean.statistics.intervals import CHI_SQUARED, HALF_A_RECORD, chi_squared_test, least_count, within
from quietmean.statistics.kinds.histogram import counts
from quietmean.statistics.known_levels import LEFT_OUT, KnownMargins
from quietmean.statistics.rows import exp_or_infinite
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, TermReading, require_records

# Noise deviations that a cell must have for a ratio to be formed, and expected counts for a test to be trusted.
_LEAST_CELL, _LEAST_EXPECTED = 3.0, 2.0
PEARSON = "Pearson's chi-squared test"
RATIOS = ("odds-ratio", "risk-ratio", "risk-difference")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crosstab(Statistic):
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

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        if self.row == self.column:
            raise InputError(f"{self.text} is of one column only: name two, or ask for proportion({self.row})")
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        return CellIndicators((Axis(columns.category(self.row)), Axis(columns.category(self.column))))

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        """Of the counts."""
        table = self._table(columns)
        cells = zip(_terms(table), np.eye(table.size), strict=True)
        return tuple(TermReading(term, table, cell, adds_up=True) for term, cell in cells)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        rows, levels = (axis.labels for axis in table.axes)
        terms = _terms(table)
        names = tuple(f"{self.row} {row} with {self.column} {level}" for row in rows for level in levels)
        estimates = counts(released, released.mean(table), released.covariance(table), terms, names)
        shape = (len(rows) - 1, len(levels) - 1)
        places = np.arange(table.size).reshape(table.shape)[:-1, :-1].ravel()
        cells = released.mean(table)[places] * released.weight
        noise = released.covariance(table)[np.ix_(places, places)] * released.weight**2
        test, flags = independence(cells.reshape(shape), noise)
        margins = KnownMargins.of(cells.reshape(shape), noise, released.weight)
        for index, upper in margins.hidden_rows.items():
            flags.append(left_out(f"{self.row} {rows[index]}", upper, tuple(f"{rows[index]}:{level}" for level in levels)))
        for index, upper in margins.hidden_columns.items():
            flags.append(left_out(f"{self.column} {levels[index]}", upper, tuple(f"{row}:{levels[index]}" for row in rows)))
        labels = {"rows": list(rows), "columns": list(levels)}
        estimates = replace(estimates, tests={"chi-squared": test}, summary=labels, flags=(*estimates.flags, *flags))
        return _with_ratios(estimates, cells, noise) if shape == (2, 2) else estimates


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


def _with_ratios(estimates: Estimates, cells: Array, noise: Array) -> Estimates:
    """The same with odds ratio, risk ratio and risk difference of a two by two table, cells (a, b, c, d) in rows."""
    a, b, c, d = cells.tolist()
    deviations = np.sqrt(np.maximum(np.diag(noise), 0.0))
    flags: list[Flag] = []
    if (cells <= [least_count(_LEAST_CELL, deviation) for deviation in deviations.tolist()]).any():
        text = "a cell is within three standard deviations of the noise: no odds ratio or risk ratio, the difference only"
        flags.append(Flag("small-cell", text, RATIOS[:2]))
        logs = [(math.nan, math.nan, math.nan)] * 2
    else:
        odds = np.array([1 / a, -1 / b, -1 / c, 1 / d])
        risk = np.array([1 / (a + b), 1 / (a + b) - 1 / b, -1 / (c + d), 1 / d - 1 / (c + d)])
        logs = [
            (math.log(a * d / (b * c)), float(odds @ noise @ odds), 1 / a + 1 / b + 1 / c + 1 / d),
            (math.log(d / (c + d) * (a + b) / b), float(risk @ noise @ risk), 1 / d - 1 / (c + d) + 1 / b - 1 / (a + b)),
        ]
    rows = [_from_log(*log) for log in logs] + [_difference(cells, noise)]
    values, noises, errors = (np.array([row[index] for row in rows]) for index in range(3))
    of_noise, of_population = (np.array([row[index] for row in rows]) for index in (3, 4))
    return replace(
        estimates,
        terms=(*estimates.terms, *RATIOS),
        value=np.concatenate([estimates.value, values]),
        standard_error=np.concatenate([estimates.standard_error, noises]),
        low=np.concatenate([estimates.low, [0.0, 0.0, -1.0]]),
        high=np.concatenate([estimates.high, [math.inf, math.inf, 1.0]]),
        population=np.concatenate([np.asarray(estimates.population), errors]),
        interval_noise=np.vstack([estimates.of_noise, of_noise]),
        interval_population=np.vstack([np.asarray(estimates.interval_population), of_population]),
        flags=(*estimates.flags, *flags),
        headline=RATIOS[:1],
    )


Row = tuple[float, float, float, tuple[float, float], tuple[float, float]]


def _from_log(value: float, noise: float, sampling: float) -> Row:
    """A ratio from its logarithm: value, errors of noise and population, and their intervals."""
    noise_only, both = math.sqrt(noise), math.sqrt(noise + sampling)
    ratio = math.exp(value)
    intervals = [(math.exp(value - Z * error), exp_or_infinite(value + Z * error)) for error in (noise_only, both)]
    return ratio, ratio * noise_only, ratio * both, intervals[0], intervals[1]


def _difference(cells: Array, noise: Array) -> Row:
    """The risk of the second row minus that of the first."""
    a, b, c, d = cells.tolist()
    first, second = a + b, c + d
    if min(first, second) <= HALF_A_RECORD:
        return (math.nan, math.nan, math.nan, (-1.0, 1.0), (-1.0, 1.0))
    first_risk, second_risk = b / first, d / second
    slope = np.array([first_risk / first, -(1 - first_risk) / first, -second_risk / second, (1 - second_risk) / second])
    variance = float(slope @ noise @ slope)
    sampling = sum(max(risk * (1 - risk), 0.0) / count for risk, count in ((first_risk, first), (second_risk, second)))
    errors = [math.sqrt(variance), math.sqrt(variance + sampling)]
    value = second_risk - first_risk
    ends = [within(value, Z * error, (-1.0, 1.0)) for error in errors]
    return value, errors[0], errors[1], ends[0], ends[1]


STATISTIC = Crosstab
