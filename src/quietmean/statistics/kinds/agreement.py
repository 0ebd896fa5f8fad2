"""Agreement and change between two columns of the same records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.lazy import special
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import CellCounts, OfCells, SmoothTerm, ratio
from quietmean.statistics.estimate import SMALL_CELL, Flag, chi_squared_test, least_count, t_test
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis
from quietmean.statistics.paired_columns import NOTHING, OfPair, Pair, about_spread, clearance
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Released
from quietmean.statistics.tails import Z, tails

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

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        return self.alike(columns, self.first, self.second)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        expected = scenario.expected("kappa")
        if expected is not None:
            same = scenario.chance < expected
            scenario.values[self.second] = np.where(same, scenario.values[self.first], scenario.values[self.second])

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self.cells(released, columns)
        if not cells.known:
            return self.nothing((KAPPA, AGREEMENT))
        levels = len(cells.counts)
        (agreement,) = cells.estimated(lambda counts: _parts(counts, np.eye(levels))[:, :1]).of([AGREEMENT])
        weights = self._disagreement(levels)
        # The disagreement that the margins alone would give.
        chance = cells.smooth(lambda counts: _parts(counts, weights)[:, 1:])
        if not chance.values[0] > max(tails().deviations(_LEAST_CHANCE) * chance.errors[0], _ROUNDING):
            text = "the noise hides how often both would differ by chance. No kappa is known"
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


_CHANGE, _ODDS = SmoothTerm("difference", (-1.0, 1.0)), ratio("odds-ratio")
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

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        self.two_levels(columns, self.before)
        return self.alike(columns, self.before, self.after)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("odds-ratio")
        if ratio is not None:
            before = float(np.mean(scenario.values[self.before] == 1))
            part = float(special.expit(special.logit(before) + math.log(ratio)))
            scenario.happen(self.after, np.zeros(len(scenario.values[self.before])), part)

    def compared(self, columns: Columns) -> dict[str, str]:
        before, after = (columns.category(name) for name in (self.before, self.after))
        ends = [f"{column.name} {column.categories[-1]}" for column in (before, after)]
        return {
            _CHANGE.name: f"{ends[1]} minus {ends[0]}",
            _ODDS.name: f"only {ends[1]} against only {ends[0]}",
        }

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self.cells(released, columns)
        if not cells.known:
            return self.nothing((_CHANGE, _ODDS))
        estimates, flags = cells.estimated(_difference, corrected=False).of([_CHANGE]), []
        gained, lost = (cells.sum(changes) for changes in (_TO, _BACK))
        least = [least_count(_LEAST_CHANGED, cells.error(changes)) for changes in (_TO, _BACK)]
        if gained > least[0] and lost > least[1]:
            estimates += cells.estimated(_log_ratio, corrected=False).of([_ODDS])
        else:
            text = "those who changed one way are within three standard deviations of the noise. No odds ratio is known"
            flags.append(Flag(SMALL_CELL, text, (_ODDS.name,)))
            estimates.append(_ODDS.unknown)
        variance = max(gained + lost, 0.0) + cells.error(_TO - _BACK) ** 2
        statistic = (gained - lost) ** 2 / variance if variance > 0 else math.nan
        return Estimates.of(
            estimates,
            tests={self.name: chi_squared_test(statistic, 1.0, "McNemar's test")},
            flags=flags,
            headline=(_CHANGE.name,),
            method="counts of pairs; Wald's interval, and the log scale for the ratio, with the noise in them",
        )


def _difference(counts: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((counts[:, 0, 1] - counts[:, 1, 0]) / counts.sum(axis=(1, 2)))[:, None]


def _log_ratio(counts: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.log(counts[:, 0, 1] / counts[:, 1, 0]))[:, None]


_NAMES = ("agreement", "consistency", "concordance")
_CORRELATIONS = tuple(SmoothTerm(name, (-1.0, 1.0), "fisher") for name in _NAMES)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IntraclassCorrelation(OfPair):
    """Intraclass correlations of two measurements: of ``agreement``, ICC(A,1), which a constant difference of both lowers, of
    ``consistency``, ICC(C,1), which it does not (McGraw and Wong, Psychol. Methods 1, 1996), and Lin's ``concordance``
    (Biometrics 45, 1989). Intervals are on the scale of Fisher's z, and hold for any distribution.
    """

    name = "icc"
    summary = "intraclass correlations of two measurements of the same records"
    expects = ("correlation",)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        pair = self._pair(released, columns)
        unknown = [term.unknown for term in _CORRELATIONS]
        if pair is None:
            return Estimates.of(unknown, flags=(NOTHING,), headline=_NAMES[:1])
        ratio = clearance(pair, lambda both: both.total[:, None])
        about = about_spread(ratio, _NAMES)
        if ratio <= 1:
            return Estimates.of(unknown, flags=about, headline=_NAMES[:1])
        n = pair.records

        def values(both: Pair) -> Array:
            shared, within = 2 * both.covariance, both.variance_of_difference
            # Mean squares have n - 1 degrees of freedom, and the raters' one.
            raters = both.difference**2 * (n - 1) / n - within / n
            each = [shared / (both.total + raters), shared / both.total, shared / (both.total + both.difference**2)]
            return np.stack(each, axis=1)

        return Estimates.of(
            pair.estimated(values).of(_CORRELATIONS),
            flags=about,
            headline=_NAMES[:1],
            method="functions of products, without what noise adds on average; Fisher's z, robust errors, with the noise",
        )


BIAS, SD, LOWER, UPPER = "bias", "sd", "lower-limit", "upper-limit"
_SPREAD = (SD, LOWER, UPPER)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BlandAltman(OfPair):
    """How far the ``second`` of two measurements is from the ``first``: the mean of the differences (``bias``), their standard
    deviation, and the limits of agreement, bias -+ 1.96 sd, between which 95 % of differences lie if they are normal (Bland and
    Altman, Lancet 327, 1986). Intervals of the limits hold for any distribution.
    """

    name = "bland-altman"
    summary = "limits of agreement of two measurements of the same records"

    def compared(self, columns: Columns) -> dict[str, str]:
        return {BIAS: f"{self.second} minus {self.first}"}

    def decode(self, released: Released, columns: Columns) -> Estimates:
        low, high = self._limits(columns)
        widest = high - low
        limits = {BIAS: (low, high), SD: (0.0, widest), LOWER: (low - 2 * widest, high), UPPER: (low, high + 2 * widest)}
        terms = [SmoothTerm(*item) for item in limits.items()]
        pair = self._pair(released, columns)
        if pair is None:
            return Estimates.of([term.unknown for term in terms], flags=(NOTHING,), headline=(LOWER, UPPER))
        own = pair.records / (pair.records - 1)
        ratio = clearance(pair, lambda both: both.variance_of_difference[:, None])
        spread = ratio > 1

        def values(both: Pair) -> Array:
            if not spread:
                return np.asarray(both.difference)[:, None]
            bias, sd = both.difference, np.sqrt(both.variance_of_difference * own)
            return np.stack([bias, sd, bias - Z * sd, bias + Z * sd], axis=1)

        known = pair.estimated(values)
        rows = known.of(terms[: len(known.values)]) + [term.unknown for term in terms[len(known.values) :]]
        return Estimates.of(
            rows,
            flags=about_spread(ratio, _SPREAD),
            headline=(LOWER, UPPER),
            method="smooth functions of means and products, without what noise adds on average; robust errors, with the noise",
        )


_DIFFERENCE = "difference"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairedDifference(OfPair):
    """The mean of the ``second`` column less the ``first`` over the records that have both, with the test ``paired-t``."""

    name = "paired-difference"
    summary = "the mean difference of two columns of the same records, with the paired t-test"

    def compared(self, columns: Columns) -> dict[str, str]:
        return {_DIFFERENCE: f"{self.second} minus {self.first}"}

    def decode(self, released: Released, columns: Columns) -> Estimates:
        term, pair = SmoothTerm(_DIFFERENCE, self._limits(columns)), self._pair(released, columns)
        if pair is None:
            return Estimates.of([term.unknown], flags=(replace(NOTHING, terms=(_DIFFERENCE,)),))
        known = pair.estimated(lambda both: both.difference[:, None])
        (estimate,) = known.of([term])
        return Estimates.of(
            [estimate],
            tests={"paired-t": t_test(estimate.value, estimate.error, float(known.degrees[0]), "paired t test", estimate.noise)},
            method="ratio of noisy means; Student's t",
        )
