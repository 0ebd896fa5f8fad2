"""Spearman's rank correlation of two columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import CellCounts, OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.fields import usual_bins_field
from quietmean.statistics.flags_and_tests import WHOLE, Flag, Z
from quietmean.statistics.intervals import near_threshold, t_test
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

CORRELATION, TEST = SmoothTerm(WHOLE, (-1.0, 1.0), "fisher"), "spearman"
_USUAL_BINS = 10
# Noise deviations that the spread of the ranks of both columns must have; and what is more than rounding of it.
_LEAST_SPREAD, _ROUNDING = 4.0, 1e-12


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Spearman(OfCells):
    """Spearman's correlation of the ranks of two columns of numbers, those in one bin having the same rank, and the test that
    both are independent. The distance to that of half as many bins, and how far the order within bins may move it by chance,
    are what the bins leave open, part of both intervals.
    """

    name = "spearman"
    summary = "Spearman's rank correlation of two columns"
    by_place = ("first", "second")
    expects = ("correlation",)

    first: str = parameter(help="the first column of numbers")
    second: str = parameter(help="the second one")
    bins: int | None = usual_bins_field(_USUAL_BINS)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        correlation = scenario.expected("correlation") or 0.0
        # Of a normal distribution with this rank correlation.
        scenario.correlate(self.second, [scenario.normal(self.first)], [2 * math.sin(math.pi * correlation / 6)])

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        if self.first == self.second:
            raise InputError(f"{self.text} is of one column only: name two")
        names = (self.first, self.second)
        return tuple(Axis.of(columns.number(name), None, self.bins, _USUAL_BINS) for name in names)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        cells = CellCounts.of(released, table)
        if not cells.known:
            return self._nothing((CORRELATION,))
        spreads = cells.smooth(lambda counts: _ranks(counts)[:, 1:])
        clear = float((spreads.values / np.maximum(_LEAST_SPREAD * spreads.errors, _ROUNDING)).min())
        if clear <= 1:
            text = "the noise hides how values of a column differ, or all are in one bin: no correlation"
            return self._nothing((CORRELATION,), Flag("no-correlation", text))
        (row,) = cells.estimated(_correlation).of([CORRELATION])
        if not all(axis.single[1:-2].all() for axis in table.axes):
            coarser = float(_halved(cells).smooth(_correlation).values[0])
            change = abs(row.value - coarser) + Z * _within_bins(spreads.values, cells.total) if math.isfinite(coarser) else 2.0
            row = row.widened(change, change, estimated=True)
        # Under the hypothesis ranks are independent.
        error = math.sqrt(1 / max(cells.total - 1, 1.0) + row.noise**2)
        return Estimates.of(
            [row],
            tests={TEST: t_test(row.value, error, math.inf, "Spearman's test")},
            flags=tuple(near_threshold("the correlation", clear, (WHOLE,))),
            method="ranks of bins, without what noise adds on average; Fisher's z; by gradient, with the noise and the bins",
        )


def _ranks(counts: NDArray[Any]) -> NDArray[Any]:
    """The covariance and both variances of the ranks, as parts of all records: (points, 3)."""
    parts = counts / counts.sum(axis=(1, 2))[:, None, None]
    margins = parts.sum(axis=2), parts.sum(axis=1)
    # A record is above those of lower cells and above half of those in its own.
    first, second = (np.cumsum(margin, axis=1) - margin / 2 - 0.5 for margin in margins)
    both = np.einsum("pij,pi,pj->p", parts, first, second)
    return np.stack([both, (margins[0] * first**2).sum(axis=1), (margins[1] * second**2).sum(axis=1)], axis=1)


def _correlation(counts: NDArray[Any]) -> NDArray[Any]:
    both, first, second = _ranks(counts).T
    return np.asarray(both / np.sqrt(first * second))[:, None]


def _within_bins(spreads: Array, total: float) -> float:
    """How far the order within bins moves the correlation: its deviation where that order goes with nothing."""
    first, second = spreads.tolist()
    # Ranks without ties have the variance 1 / 12.
    lost = [max(1 / 12 - part, 0.0) for part in (first, second)]
    return math.sqrt((first * lost[1] + second * lost[0] + lost[0] * lost[1]) / (first * second * total))


def _halved(cells: CellCounts) -> CellCounts:
    """The counts in half as many bins of each column: what is below and above stays by itself."""
    joins = []
    for size in cells.counts.shape:
        pairs = np.concatenate([[0], 1 + np.arange(size - 2) // 2, [1 + (size - 1) // 2]])
        join = np.zeros((pairs[-1] + 1, size))
        join[pairs, np.arange(size)] = 1.0
        joins.append(join)
    both = np.kron(joins[0], joins[1])
    return CellCounts(joins[0] @ cells.counts @ joins[1].T, both @ cells.noise @ both.T)


STATISTIC = Spearman
