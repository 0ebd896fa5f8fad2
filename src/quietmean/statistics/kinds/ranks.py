"""Ranks of columns: correlations, and comparisons of groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import CellCounts, OfCells, SmoothTerm, multinomial, spread
from quietmean.statistics.estimate import (
    ASK_FOR_MORE,
    CHI_SQUARED,
    WHOLE,
    Estimate,
    Flag,
    HypothesisTest,
    chi_squared_test,
    least_count,
    near_threshold,
    t_test,
)
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.kinds.counts import PARTIES_DIFFER
from quietmean.statistics.scenario import SyntheticRecords, between_groups
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.tails import Z, tails
from quietmean.statistics.two_samples import USUAL_BINS, TwoSamples

CORRELATION = SmoothTerm(WHOLE, (-1.0, 1.0), "fisher")
_BINS_OF_PAIRS = 10
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
    bins: int | None = usual_bins_field(_BINS_OF_PAIRS)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        correlation = scenario.expected("correlation") or 0.0
        # Of a normal distribution with this rank correlation.
        scenario.correlate(self.second, [scenario.normal(self.first)], [2 * math.sin(math.pi * correlation / 6)])

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        if self.first == self.second:
            raise InputError(f"{self.text} is of one column only. Name two.")
        names = (self.first, self.second)
        return tuple(Axis.of(columns.number(name), None, self.bins, _BINS_OF_PAIRS) for name in names)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        cells = CellCounts.of(released, table)
        if not cells.known:
            return self.nothing((CORRELATION,))
        spreads = cells.smooth(lambda counts: _ranks(counts)[:, 1:])
        clear = float((spreads.values / np.maximum(tails().deviations(_LEAST_SPREAD) * spreads.errors, _ROUNDING)).min())
        if clear <= 1:
            text = "the noise hides how values of a column differ, or all are in one bin. No correlation is known"
            return self.nothing((CORRELATION,), Flag("no-correlation", text))
        (row,) = cells.estimated(_correlation).of([CORRELATION])
        if not all(axis.single[1:-2].all() for axis in table.axes):
            coarser = float(_halved(cells).smooth(_correlation).values[0])
            change = abs(row.value - coarser) + Z * _within_bins(spreads.values, cells.total) if math.isfinite(coarser) else 2.0
            row = row.widened(change, change, estimated=True)
        # Under the hypothesis ranks are independent.
        error = math.sqrt(1 / max(cells.total - 1, 1.0) + row.noise**2)
        return Estimates.of(
            [row],
            tests={self.name: t_test(row.value, error, math.inf, "Spearman's test", row.noise)},
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


_CHANCE = "probability"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MannWhitney(Statistic):
    """The chance that a value of the second group is above one of the first, half of the chance that they are equal included: 0.5
    where neither tends to be larger. Intervals hold it whatever the order within bins is. The test ``mann-whitney`` is that of U
    with ties, on binned values.
    """

    name = "mann-whitney"
    summary = "how often one group is above the other, with Mann and Whitney's test"
    one_row = True
    by_place = ("column", "by")
    expects = ("probability",)

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose two levels are the groups")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        second = float(scenario.values[self.by].mean())
        correlation = between_groups([1 - second, second], scenario.expected("probability") or 0.5)
        scenario.correlate(self.column, [scenario.standardised(self.by)], [correlation])

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        groups = columns.category(self.by)
        if len(groups.categories) != 2:
            raise InputError(
                f"{self.text} compares two groups, but column {self.by!r} has {len(groups.categories)} levels. Choose a "
                "column with two."
            )
        return PrefixTable(Axis.of(columns.number(self.column), self.edges, self.bins, USUAL_BINS), Axis(groups))

    def compared(self, columns: Columns) -> dict[str, str]:
        first, second = columns.category(self.by).categories
        return {_CHANCE: f"how often {self.by} {second} is above {self.by} {first}"}

    def decode(self, released: Released, columns: Columns) -> Estimates:
        samples = TwoSamples.of(released, self._table(columns))
        parties = columns.unit == PrivacyUnit.PARTY
        test = samples.test()
        text = f"a group has too few values for the noise. {ASK_FOR_MORE}"
        return Estimates.of(
            [samples.row(_CHANCE)],
            noise_only=parties,
            tests={} if test is None or parties else {self.name: test},
            flags=() if samples.known else (Flag("nothing-present", text),),
            reason=PARTIES_DIFFER if parties else "",
            method="pairs of bins less the noise's part; DeLong's variance with the noise; half of the pairs in one bin",
        )


_METHOD = "Kruskal-Wallis test"
_BINS_OF_GROUPS = 64
# Noise deviations that the size of a group must have.
_LEAST_GROUP = 4.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KruskalWallis(Statistic):
    """The chance that a value of each group is above a value of all records, half of the chance that both are in one bin
    included: 0.5 in every group where none tends to be larger. The test ``kruskal-wallis`` is that of Kruskal and Wallis on
    binned values, with ties and the noise counted in. A group that the noise hides is left out.
    """

    name = "kruskal-wallis"
    summary = "how often each group is above all records, with Kruskal and Wallis' test"
    by_place = ("column", "by")

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose levels are the groups")
    bins: int | None = usual_bins_field(_BINS_OF_GROUPS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        axis = Axis.of(columns.number(self.column), self.edges, self.bins, _BINS_OF_GROUPS)
        return PrefixTable(axis, Axis(columns.category(self.by)))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table, groups = self._table(columns), columns.category(self.by).categories
        shape = (table.groups, table.cells)
        places = np.arange(table.size).reshape(shape)[: len(groups), :-1]
        counts = (released.mean(table)[places.ravel()] * released.weight).reshape(places.shape)
        noise = released.covariance(table)[np.ix_(places.ravel(), places.ravel())] * released.weight**2
        kept, flags = [], []
        for group, name in enumerate(groups):
            own = slice(group * places.shape[1], (group + 1) * places.shape[1])
            if counts[group].sum() > least_count(_LEAST_GROUP, math.sqrt(spread(np.ones(places.shape[1]), noise[own, own]))):
                kept.append(group)
            else:
                text = "its values are too few for the noise. The group is left out"
                flags.append(Flag.shared("group-left-out", f"{self.by} {name}", text, (name,)))
        rows = {name: Estimate.unknown(name, (0.0, 1.0)) for name in groups}
        test = HypothesisTest(math.nan, (math.nan,), math.nan, _METHOD, CHI_SQUARED)
        if len(kept) < 2:
            flags.append(Flag("nothing-present", f"the noise hides all groups but one. {ASK_FOR_MORE}"))
        else:
            cells = (np.array(kept)[:, None] * places.shape[1] + np.arange(places.shape[1])).ravel()
            compared, test = _compared(
                counts[kept], noise[np.ix_(cells, cells)], table.axis.single[:-1], [groups[place] for place in kept]
            )
            rows |= {row.term: row for row in compared}
        return Estimates.of(
            list(rows.values()),
            tests={self.name: test},
            flags=tuple(flags),
            method="ranks of binned values less the noise's part; by gradient with the noise; half of the pairs in one bin",
        )


def _compared(counts: Array, noise: Array, single: Mask, names: list[str]) -> tuple[list[Estimate], HypothesisTest]:
    """Compare groups by their counts in cells, (groups, cells), and the covariance of their noise."""
    groups, cells = counts.shape
    sizes, together = counts.sum(axis=1), counts.sum(axis=0)
    total = float(together.sum())
    # Mean ranks as parts of all records: where half of a cell counts as below it.
    above = np.tri(cells, k=-1) + 0.5 * np.eye(cells)
    place = above @ together / total
    blocks = noise.reshape(groups, cells, groups, cells)
    values, slopes = np.zeros(groups), np.zeros((groups, groups, cells))
    for group in range(groups):
        # Products of two noisy counts are off by their covariance on average.
        cross = float((above * blocks[group].sum(axis=1)).sum())
        values[group] = (float(counts[group] @ above @ together) - cross) / (sizes[group] * total)
        slopes[group, group] += (place - values[group]) / sizes[group]
        slopes[group] += ((counts[group] @ above) / sizes[group] - values[group]) / total
    flat = slopes.reshape(groups, -1)
    rows = []
    tied = together * ~single
    for group, name in enumerate(names):
        open_ = min(max(float(counts[group] @ tied) / (2 * sizes[group] * total), 0.0), 0.5)
        sampling = multinomial(flat[group], counts.ravel())
        rows.append(
            Estimate.normal(name, float(values[group]), spread(flat[group], noise), sampling, (0.0, 1.0)).widened(open_, open_)
        )
    # Under the hypothesis all groups have the distribution of all records; ties make ranks vary less.
    own = np.einsum("aibi->i", blocks)
    ties = float((together**3 - 3 * together * own - together).sum())
    variance = max((1 - ties / (total**3 - total)) * (total + 1) / (12 * total), 0.0)
    parts = sizes / total
    by_chance = variance / total * (np.diag(1 / parts) - 1)
    free = slice(0, groups - 1)
    covariance = (by_chance + flat @ noise @ flat.T)[free, free]
    away = (values - 0.5)[free]
    if not np.linalg.eigvalsh(covariance)[0] > 0:
        return rows, HypothesisTest(math.nan, (groups - 1.0,), math.nan, _METHOD, CHI_SQUARED)
    return rows, chi_squared_test(float(away @ np.linalg.solve(covariance, away)), groups - 1.0, _METHOD)
