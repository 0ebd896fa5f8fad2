"""Calibration of predicted probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import LEAST_PRESENT
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag
from quietmean.statistics.features import Table
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER, part_of
from quietmean.statistics.kinds.roc import USUAL_BINS, table_of_scores
from quietmean.statistics.rows import Row, assembled, multinomial, spread
from quietmean.statistics.statistic import Feature, Released, Statistic

Array = NDArray[np.float64]

BRIER, LARGE, INTERCEPT, SLOPE = "brier", "in-the-large", "intercept", "slope"
_STEPS, _CLOSE, _FARTHEST = 50, 1e-12, 50.0
# Noise deviations that the information of the recalibration must have in each direction.
_LEAST_INFORMATION = 4.0
# Of the largest eigenvalue of an information matrix, what is no more than rounding.
_SINGULAR = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Calibration(Statistic):
    """Do predicted probabilities agree with what happens? The part with the outcome in each bin of the prediction, ``brier``
    (mean squared distance), ``in-the-large`` (part with the outcome minus mean prediction), and ``intercept`` and ``slope`` of
    a logistic regression of the outcome on the prediction's log odds: 0 and 1 where it is right.

    All of it is of predictions moved to the middle of their bins. The same bins as those of ``roc`` cost nothing beside it.
    """

    name = "calibration"
    summary = "do predicted probabilities agree with what happens"
    by_place = ("score", "outcome")

    score: str = parameter(help="the column of predicted probabilities, with bounds from 0 to 1 at most")
    outcome: str = parameter(help="the boolean column of outcomes")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> Table:
        column = columns.number(self.score)
        if column.low < 0 or column.high > 1:
            raise InputError(f"column {self.score!r} is a predicted probability, but its bounds are not between 0 and 1: use roc")
        return table_of_scores(self.score, self.outcome, self.edges, self.bins, columns)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        parties = columns.unit == PrivacyUnit.PARTY
        flags: list[Flag] = []
        cells = _Cells.of(released, table)
        rows = [*cells.rows(flags), *_observed(released, table, flags, parties)]
        return assembled(
            rows,
            parties=parties,
            flags=tuple(dict.fromkeys(flags)),
            reason=PARTIES_DIFFER if parties else "",
            method="predictions in the middle of their bins; Wilson's intervals, logistic regression of cells, with the noise",
        )


@dataclass(frozen=True, eq=False)
class _Cells:
    """Counts without and with the outcome, (2 cells,), the noise's covariance, and the prediction in each cell, (cells,)."""

    counts: Array
    noise: Array
    predicted: Array

    @classmethod
    def of(cls, released: Released, table: Table) -> _Cells:
        edges = np.array(table.axes[0].edges)
        middles = (edges[1:] + edges[:-1]) / 2
        # What is outside counts as the nearest bin.
        predicted = np.concatenate([middles[:1], middles, middles[-1:]])
        places = np.arange(table.size).reshape(table.shape)[:-1, :2].T.ravel()
        noise = released.covariance(table)[np.ix_(places, places)] * released.weight**2
        return cls(released.mean(table)[places] * released.weight, noise, predicted)

    def rows(self, flags: list[Flag]) -> list[Row]:
        total, error = float(self.counts.sum()), math.sqrt(spread(np.ones(len(self.counts)), self.noise))
        limits = {BRIER: (0.0, 1.0), LARGE: (-1.0, 1.0)}
        if total <= max(LEAST_PRESENT * error, 0.0):
            flags.append(Flag("nothing-present", "too few records for the noise: nothing is known about the calibration"))
            return [Row.unknown(term, limits.get(term, (-math.inf, math.inf))) for term in (BRIER, LARGE, INTERCEPT, SLOPE)]
        rows = []
        weights = {
            BRIER: np.concatenate([self.predicted**2, (1 - self.predicted) ** 2]),
            LARGE: np.concatenate([-self.predicted, 1 - self.predicted]),
        }
        for term, own in weights.items():
            value = float(own @ self.counts) / total
            slope = (own - value) / total
            rows.append(Row.normal(term, value, spread(slope, self.noise), multinomial(slope, self.counts), limits[term]))
        return [rows[0], rows[1].tested(), *self._recalibrated(flags)]

    def _recalibrated(self, flags: list[Flag]) -> list[Row]:
        """Intercept and slope of the logistic regression on the log odds of the prediction."""
        design = np.column_stack([np.ones(len(self.predicted)), logit(self.predicted)])
        without, with_it = self.counts.reshape(2, -1)
        found = _fit(design, without + with_it, with_it)
        if found is not None:
            risk = expit(design @ found)
            information = design.T @ ((without + with_it)[:, None] * (risk * (1 - risk))[:, None] * design)
            score = np.hstack([-(design * risk[:, None]).T, (design * (1 - risk)[:, None]).T])
            of_score = score @ self.noise @ score.T
            values, vectors = np.linalg.eigh(information)
            weak = [
                value <= max(_LEAST_INFORMATION * math.sqrt(spread(vector, of_score)), _SINGULAR * values[-1])
                for value, vector in zip(values.tolist(), vectors.T, strict=True)
            ]
            if not any(weak):
                sampling = np.linalg.inv(information)
                noise = sampling @ of_score @ sampling
                return [
                    Row.normal(term, float(found[place]), float(noise[place, place]), float(sampling[place, place]))
                    for place, term in enumerate((INTERCEPT, SLOPE))
                ]
        flags.append(Flag("no-recalibration", "the outcome or the prediction hardly differs beyond the noise: no slope"))
        return [Row.unknown(term) for term in (INTERCEPT, SLOPE)]


def _fit(design: Array, records: Array, with_it: Array) -> Array | None:
    """Logistic regression of counts by Newton's method, or None where it has no maximum."""
    found: Array = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        risk = expit(design @ found)
        information = design.T @ ((records * risk * (1 - risk))[:, None] * design)
        values = np.linalg.eigvalsh(information)
        if not values[0] > _SINGULAR * values[-1]:
            return None
        change = np.linalg.solve(information, design.T @ (with_it - records * risk))
        found = found + np.clip(change, -1.0, 1.0)
        if np.abs(found).max() > _FARTHEST:
            return None
        if np.abs(change).max() < _CLOSE:
            return found
    return None


def _observed(released: Released, table: Table, flags: list[Flag], parties: bool) -> list[Row]:
    """The part with the outcome in each bin."""
    rows = []
    yes, no = (table.along(1, np.eye(3)[place]) for place in (1, 0))
    for place, label in enumerate(table.axes[0].labels[1:-2], start=1):
        own = table.along(0, np.eye(table.shape[0])[place])
        value, noise, error, ends, told = part_of(released, table, own * yes, own * (yes + no), f"bin {label}", parties)
        flags += [flag for flag in told if flag.code != "few"]
        known = Row.normal(label, value, noise**2, error**2 - noise**2, (0.0, 1.0))
        rows.append(replace(Row.unknown(label, (0.0, 1.0)) if math.isnan(value) else known, of_population=ends))
    return rows


STATISTIC = Calibration
