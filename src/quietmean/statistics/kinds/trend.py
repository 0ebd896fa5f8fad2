"""Cochran and Armitage's test: does a proportion rise or fall over ordered groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.fields import numbers_field
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import t_test
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

SLOPE, TEST = SmoothTerm("slope"), "trend"
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

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        groups = columns.category(self.by)
        if self.scores is not None and (len(self.scores) != len(groups.categories) or len(set(self.scores)) < 2):
            count = len(groups.categories)
            raise InputError(f"{self.text} needs a score for each of {count} groups, not all the same: name {count} numbers")
        return Axis(groups), self._two_levels(columns, self.column)

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
        cells, scores = self._cells(released, columns), self._scores(columns)
        if not cells.known:
            return self._nothing((SLOPE,))
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
        if not (of_scores > max(_LEAST * errors[1], _ROUNDING) and of_outcomes > max(_LEAST * errors[2], _ROUNDING)):
            text = "the noise hides all but one group, or whether the outcome happens: no trend"
            return self._nothing((SLOPE,), Flag("no-trend", text, (SLOPE.name,)))
        # The variance under the hypothesis, that the outcome has the same chance in all groups.
        test = t_test(both, math.sqrt(of_scores * of_outcomes / cells.total + errors[0] ** 2), math.inf, "Cochran-Armitage test")
        return Estimates.of(
            known[3:].of([SLOPE]),
            tests={TEST: test},
            headline=(SLOPE.name,),
            method="smooth functions of counts, without what noise adds on average; robust errors, with the noise",
        )


STATISTIC = Trend
