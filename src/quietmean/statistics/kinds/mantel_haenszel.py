"""Ratios of two by two tables in strata, by Mantel and Haenszel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import CellCounts, OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm, ratio
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.known_levels import LEFT_OUT, KnownMargins
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

ODDS, RISK, DIFFERENCE = ratio("odds-ratio"), ratio("risk-ratio"), SmoothTerm("risk-difference", (-1.0, 1.0))
TEST = "mantel-haenszel"
# Noise deviations that the sums above and below a ratio must have.
_LEAST_SUM = 3.0
# Sums of products of counts over their number are no numbers of records; so little is rounding.
_NOTHING = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MantelHaenszel(OfCells):
    """``odds-ratio``, ``risk-ratio`` and ``risk-difference`` of two columns with two levels, the same in all strata of ``by``.

    As of :class:`~quietmean.statistics.kinds.crosstab.Crosstab` they are of the row's second level against its first, and the
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

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        return Axis(columns.category(self.by)), self._two_levels(columns, self.row), self._two_levels(columns, self.column)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None:
            scenario.happen(self.column, math.log(ratio) * scenario.values[self.row])

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells, strata = self._cells(released, columns), columns.category(self.by).categories
        kept, flags = [], []
        for stratum, name in enumerate(strata):
            own = slice(4 * stratum, 4 * stratum + 4)
            margins = KnownMargins.of(cells.counts[stratum], cells.noise[own, own], released.weight)
            if margins.hidden_rows or margins.hidden_columns:
                text = f"the noise hides a level of {self.row} or {self.column}: left out"
                flags.append(Flag.shared(LEFT_OUT, f"{self.by} {name}", text))
            else:
                kept.append(stratum)
        if not kept:
            text = "the noise hides a level in every stratum: nothing is known"
            return self._nothing((ODDS, RISK, DIFFERENCE), Flag("nothing-present", text))
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
            text = "a sum over the strata is within three standard deviations of the noise: no ratio, the difference only"
            flags.append(Flag("small-cell", text, lost))
        value, weight = (sums["with"] - sums["without"]) / sums["weight"], sums["weight"]
        own_slopes = (slopes["with"] - slopes["without"] - value * slopes["weight"]) / weight
        rows.append(DIFFERENCE.estimate(value, used.noise_of(own_slopes), sums["differences"] / weight**2))
        variance = max(sums["null"], 0.0) + used.noise_of(slopes["excess"])
        statistic = sums["excess"] ** 2 / variance if variance > 0 else math.nan
        return Estimates.of(
            rows,
            tests={TEST: chi_squared_test(statistic, 1.0, "Mantel-Haenszel test")},
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
        if not sums[name] > max(_LEAST_SUM * math.sqrt(cells.noise_of(slopes[name])), _NOTHING):
            return term.unknown
    noise = cells.noise_of(slopes[top] / sums[top] - slopes[bottom] / sums[bottom])
    return term.estimate(math.log(sums[top] / sums[bottom]), noise, sampling(sums))


STATISTIC = MantelHaenszel
