"""McNemar's test: does a property of the same records change from one column to another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.lazy_scipy import special
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm, ratio
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import chi_squared_test, least_count
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

DIFFERENCE, RATIO, TEST = SmoothTerm("difference", (-1.0, 1.0)), ratio("odds-ratio"), "mcnemar"
# Noise deviations that each count of changed records must have for their ratio.
_LEAST_CHANGED = 3.0
# The cells of those who changed to the second level, and from it.
_TO, _BACK = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])


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

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
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
        if not cells.known:
            return self._nothing((DIFFERENCE, RATIO))
        estimates, flags = cells.estimated(_difference, corrected=False).of([DIFFERENCE]), []
        gained, lost = (cells.sum(changes) for changes in (_TO, _BACK))
        least = [least_count(_LEAST_CHANGED, cells.error(changes)) for changes in (_TO, _BACK)]
        if gained > least[0] and lost > least[1]:
            estimates += cells.estimated(_log_ratio, corrected=False).of([RATIO])
        else:
            text = "those who changed one way are within three standard deviations of the noise: no odds ratio"
            flags.append(Flag("small-cell", text, (RATIO.name,)))
            estimates.append(RATIO.unknown)
        variance = max(gained + lost, 0.0) + cells.error(_TO - _BACK) ** 2
        statistic = (gained - lost) ** 2 / variance if variance > 0 else math.nan
        return Estimates.of(
            estimates,
            tests={TEST: chi_squared_test(statistic, 1.0, "McNemar's test")},
            flags=flags,
            headline=(DIFFERENCE.name,),
            method="counts of pairs; Wald's interval, and the log scale for the ratio, with the noise in them",
        )


def _difference(counts: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((counts[:, 0, 1] - counts[:, 1, 0]) / counts.sum(axis=(1, 2)))[:, None]


def _log_ratio(counts: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.log(counts[:, 0, 1] / counts[:, 1, 0]))[:, None]


STATISTIC = McNemar
