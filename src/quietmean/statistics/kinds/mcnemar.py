"""McNemar's test: does a property of the same records change from one column to another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.lazy_scipy import special
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import NOTHING, OfCells
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import chi_squared_test, least_count
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

DIFFERENCE, RATIO, TEST = "difference", "odds-ratio", "mcnemar"
# Noise deviations that each count of changed records must have for their ratio.
_LEAST_CHANGED = 3.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class McNemar(OfCells):
    """Two columns with the same two levels, of the same records: ``difference``, the part with the second level in ``after`` less
    that in ``before``, and ``odds-ratio``, of those who changed to the second level for each that changed from it.

    The test ``mcnemar`` is McNemar's, without a correction for continuity, the noise counted in.
    """

    name = "mcnemar"
    summary = "paired proportions: difference, odds ratio, and McNemar's test"
    by_place = ("before", "after")
    expects = ("odds-ratio",)

    before: str = parameter(help="the first column, with two levels")
    after: str = parameter(help="the second column, with the same levels in the same order")

    def _axes(self, columns: Columns) -> tuple[Column, ...]:
        self._two_levels(columns, self.before)
        return self._alike(columns, self.before, self.after)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None:
            before = float(np.mean(scenario.values[self.before] == 1))
            part = float(special.expit(special.logit(before) + math.log(ratio)))
            scenario.happen(self.after, np.zeros(len(scenario.values[self.before])), part)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self._cells(released, columns)
        to, back = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
        if not cells.known:
            rows = [Row.unknown(DIFFERENCE, (-1.0, 1.0)), Row.unknown(RATIO, (0.0, math.inf))]
            return assembled(rows, flags=(Flag("nothing-present", NOTHING),), headline=(DIFFERENCE,))
        gained, lost, total = cells.sum(to), cells.sum(back), cells.total
        value, changed = (gained - lost) / total, max(gained + lost, 0.0)
        slopes = ((to - back) - value).ravel() / total
        sampling = max(changed / total - value**2, 0.0) / total
        rows = [Row.normal(DIFFERENCE, value, cells.noise_of(slopes), sampling, (-1.0, 1.0))]
        flags = []
        least = [least_count(_LEAST_CHANGED, cells.error(changes)) for changes in (to, back)]
        if gained > least[0] and lost > least[1]:
            noise = cells.noise_of((to / gained - back / lost).ravel())
            rows.append(Row.ratio(RATIO, math.log(gained / lost), noise, 1 / gained + 1 / lost))
        else:
            text = "those who changed one way are within three standard deviations of the noise: no odds ratio"
            flags.append(Flag("small-cell", text, (RATIO,)))
            rows.append(Row.unknown(RATIO, (0.0, math.inf)))
        variance = changed + cells.error(to - back) ** 2
        statistic = (gained - lost) ** 2 / variance if variance > 0 else math.nan
        return assembled(
            rows,
            tests={TEST: chi_squared_test(statistic, 1.0, "McNemar's test")},
            flags=tuple(flags),
            headline=(DIFFERENCE,),
            method="counts of pairs; Wald's interval, and the log scale for the ratio, with the noise in them",
        )


STATISTIC = McNemar
