"""Cohen's kappa: agreement of two columns beyond chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import CellCounts, OfCells
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import t_test
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

KAPPA, AGREEMENT = SmoothTerm("kappa", (-1.0, 1.0)), SmoothTerm("agreement", (0.0, 1.0))
NONE, LINEAR, QUADRATIC = "none", "linear", "quadratic"
# Noise deviations that disagreement by chance must have to be divided by.
_LEAST_CHANCE = 4.0
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Kappa(OfCells):
    """Cohen's ``kappa`` of two columns with the same levels, and ``agreement``, the part of the records with the same
    level in both.

    ``weights``: a disagreement of k levels counts alike for all k, "linear" k, or "quadratic" k^2 times. The test ``kappa``:
    agreement is that of chance, by the error under that hypothesis (Fleiss, Cohen and Everitt, Psychol. Bull. 72, 1969).
    """

    name = "kappa"
    summary = "Cohen's kappa, agreement of two columns beyond chance"
    by_place = ("first", "second")
    expects = ("kappa",)

    first: str = parameter(help="the first column with levels")
    second: str = parameter(help="the second column, with the same levels in the same order")
    weights: str = parameter(
        NONE,
        help="what a disagreement of k levels counts: the same for all (none), k (linear) or k squared (quadratic)",
        choices=(NONE, LINEAR, QUADRATIC),
        written=lambda value: bool(value.weights != NONE),
    )

    def _axes(self, columns: Columns) -> tuple[Axis, ...]:
        return self._alike(columns, self.first, self.second)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        expected = scenario.expected("kappa")
        if expected is not None:
            same = scenario.chance < expected
            scenario.values[self.second] = np.where(same, scenario.values[self.first], scenario.values[self.second])

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self._cells(released, columns)
        if not cells.known:
            return self._nothing((KAPPA, AGREEMENT))
        levels = len(cells.counts)
        (agreement,) = cells.estimated(lambda counts: _parts(counts, np.eye(levels))[:, :1]).of([AGREEMENT])
        weights = self._disagreement(levels)
        # The disagreement that the margins alone would give.
        chance = cells.smooth(lambda counts: _parts(counts, weights)[:, 1:])
        if not chance.values[0] > max(_LEAST_CHANCE * chance.errors[0], _ROUNDING):
            text = "the noise hides how often both would differ by chance: no kappa"
            flag = Flag("no-chance", text, (KAPPA.name,))
            return Estimates.of([KAPPA.unknown, agreement], flags=(flag,), headline=(KAPPA.name,))

        def function(counts: NDArray[Any]) -> NDArray[Any]:
            observed, expected = _parts(counts, weights).T
            return np.asarray(1 - observed / expected)[:, None]

        (kappa,) = cells.estimated(function).of([KAPPA])
        # Under the hypothesis counts are the products of the margins.
        margins = [np.maximum(cells.counts.sum(axis=axis), 0.0) for axis in (1, 0)]
        by_chance = CellCounts(np.outer(*margins) / cells.total, cells.noise).estimated(function, corrected=False)
        error = math.sqrt(by_chance.sampling[0] + by_chance.noise[0])
        return Estimates.of(
            [kappa, agreement],
            tests={KAPPA.name: t_test(kappa.value, error, math.inf, "test of agreement beyond chance")},
            headline=(KAPPA.name,),
            method="smooth functions of counts, without what noise adds on average; by gradient, with the noise",
        )

    def _disagreement(self, levels: int) -> Array:
        apart = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels))).astype(np.float64)
        return (apart > 0).astype(np.float64) if self.weights == NONE else apart if self.weights == LINEAR else apart**2


def _parts(counts: NDArray[Any], weights: Array) -> NDArray[Any]:
    """The weighted sum of the parts of pairs, and of the products of the margins, (points, 2)."""
    parts = counts / counts.sum(axis=(1, 2))[:, None, None]
    rows, columns = parts.sum(axis=2), parts.sum(axis=1)
    return np.stack([(parts * weights).sum(axis=(1, 2)), ((rows @ weights) * columns).sum(axis=1)], axis=1)


STATISTIC = Kappa
