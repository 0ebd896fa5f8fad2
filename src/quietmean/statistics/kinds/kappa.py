"""Cohen's kappa: agreement of two columns beyond chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.schema import parameter
from quietmean.statistics.cell_counts import NOTHING, CellCounts, Function, OfCells
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import t_test
from quietmean.statistics.rows import Row, assembled, multinomial
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released

KAPPA, AGREEMENT = "kappa", "agreement"
NONE, LINEAR, QUADRATIC = "none", "linear", "quadratic"
# Noise deviations that disagreement by chance must have to be divided by.
_LEAST_CHANCE = 4.0
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Kappa(OfCells):
    """Cohen's ``kappa`` of two columns with the same levels, and ``agreement``, the part of the records with the same
    level in both.

    ``weights``: a disagreement of k levels counts alike for all k, "linear" k, or "quadratic" k^2 times. The test ``kappa``:
    there is no agreement beyond chance, by the error under that hypothesis (Fleiss, Cohen and Everitt, Psychol. Bull. 72, 1969).
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

    def _axes(self, columns: Columns) -> tuple[Column, ...]:
        return self._alike(columns, self.first, self.second)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        expected = scenario.expected("kappa")
        if expected is not None:
            same = scenario.chance < expected
            scenario.values[self.second] = np.where(same, scenario.values[self.first], scenario.values[self.second])

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self._cells(released, columns)
        unknown = [Row.unknown(KAPPA, (-1.0, 1.0)), Row.unknown(AGREEMENT, (0.0, 1.0))]
        if not cells.known:
            return assembled(unknown, flags=(Flag("nothing-present", NOTHING),), headline=(KAPPA,))
        agreement = _row(cells, lambda counts: _parts(counts, np.eye(counts.shape[1]))[:, :1], AGREEMENT, (0.0, 1.0))
        function, chance = self._kappa(len(cells.counts)), cells.smooth(self._chance(len(cells.counts)))
        if not chance.values[0] > max(_LEAST_CHANCE * math.sqrt(cells.noise_of(chance.slopes[0])), _ROUNDING):
            text = "the noise hides how often both would differ by chance: no kappa"
            return assembled([unknown[0], agreement], flags=(Flag("no-chance", text, (KAPPA,)),), headline=(KAPPA,))
        kappa = _row(cells, function, KAPPA, (-1.0, 1.0))
        # Under the hypothesis counts are the products of the margins.
        rows, columns_ = np.maximum(cells.counts.sum(axis=1), 0.0), np.maximum(cells.counts.sum(axis=0), 0.0)
        by_chance = CellCounts(np.outer(rows, columns_) / cells.total, cells.noise * 0)
        slopes = by_chance.smooth(function).slopes[0]
        error = math.sqrt(multinomial(slopes, by_chance.counts.ravel()) + cells.noise_of(slopes))
        return assembled(
            [kappa, agreement],
            tests={KAPPA: t_test(kappa.value, error, math.inf, "test of agreement beyond chance")},
            headline=(KAPPA,),
            method="smooth functions of counts, without what noise adds on average; by gradient, with the noise",
        )

    def _disagreement(self, levels: int) -> Array:
        apart = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels))).astype(np.float64)
        return (apart > 0).astype(np.float64) if self.weights == NONE else apart if self.weights == LINEAR else apart**2

    def _chance(self, levels: int) -> Function:
        """The disagreement that the margins alone would give."""
        weights = self._disagreement(levels)
        return lambda counts: _parts(counts, weights)[:, 1:]

    def _kappa(self, levels: int) -> Function:
        weights = self._disagreement(levels)

        def kappa(counts: NDArray[Any]) -> NDArray[Any]:
            observed, expected = _parts(counts, weights).T
            return np.asarray(1 - observed / expected)[:, None]

        return kappa


def _parts(counts: NDArray[Any], weights: Array) -> NDArray[Any]:
    """The weighted sum of the parts of pairs, and of the products of the margins, (points, 2)."""
    parts = counts / counts.sum(axis=(1, 2))[:, None, None]
    rows, columns = parts.sum(axis=2), parts.sum(axis=1)
    return np.stack([(parts * weights).sum(axis=(1, 2)), ((rows @ weights) * columns).sum(axis=1)], axis=1)


def _row(cells: CellCounts, function: Function, term: str, limits: tuple[float, float]) -> Row:
    smooth = cells.smooth(function)
    slopes = smooth.slopes[0]
    return Row.normal(term, float(smooth.values[0]), cells.noise_of(slopes), multinomial(slopes, cells.counts.ravel()), limits)


STATISTIC = Kappa
