"""Kruskal and Wallis' test of several groups."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import multinomial, spread
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest
from quietmean.statistics.intervals import CHI_SQUARED, chi_squared_test, least_count
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

TEST = "kruskal-wallis"
_METHOD = "Kruskal-Wallis test"
_USUAL_BINS = 64
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
    bins: int | None = usual_bins_field(_USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        axis = Axis.of(columns.number(self.column), self.edges, self.bins, _USUAL_BINS)
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
                text = "too few values for the noise: left out"
                flags.append(Flag.shared("group-left-out", f"{self.by} {name}", text, (name,)))
        rows = {name: Estimate.unknown(name, (0.0, 1.0)) for name in groups}
        test = HypothesisTest(math.nan, (math.nan,), math.nan, _METHOD, CHI_SQUARED)
        if len(kept) < 2:
            flags.append(Flag("nothing-present", "the noise hides all groups but one: nothing is compared"))
        else:
            cells = (np.array(kept)[:, None] * places.shape[1] + np.arange(places.shape[1])).ravel()
            compared, test = _compared(
                counts[kept], noise[np.ix_(cells, cells)], table.axis.single[:-1], [groups[place] for place in kept]
            )
            rows |= {row.term: row for row in compared}
        return Estimates.of(
            list(rows.values()),
            tests={TEST: test},
            flags=tuple(flags),
            method="ranks of binned values, without the noise's part; by gradient with the noise; half of the pairs in one bin",
        )


def _compared(counts: Array, noise: Array, single: Mask, names: list[str]) -> tuple[list[Estimate], HypothesisTest]:
    """From the counts of groups in cells, (groups, cells), and the covariance of their noise."""
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


STATISTIC = KruskalWallis
