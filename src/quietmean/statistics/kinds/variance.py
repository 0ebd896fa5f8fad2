"""The variance of a column, and its square root."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.around import Around
from quietmean.statistics.block_summary import Summary, moved_block, summary
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.intervals import within
from quietmean.statistics.rows import nothing_present
from quietmean.statistics.statistic import Feature, Released, Statistic

PARTIES = "each party counts once, and how its records differ says nothing about a population of records"
TERMS = ("variance", "sd")
HEADLINE = ("sd",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Variance(Statistic):
    """The variance (divisor n - 1) and standard deviation of the present values of a column, without the noise's own part."""

    name = "variance"
    summary = "the variance and standard deviation of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (ColumnBlock(columns.number(self.column)),)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        column = columns.number(self.column)
        moved, half = moved_block(around, ColumnBlock(column)), column.width / 2
        if moved is None:
            return {}
        return dict(zip(TERMS, (float(moved.variances()[0, 0]) * half**2, moved.deviation() * half), strict=True))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.number(self.column)
        present = summary(released, ColumnBlock(column))
        largest = (column.width / 2) ** 2 * (released.weight / (released.weight - 1) if released.weight > 1 else 1.0)
        if present is None:
            return nothing_present(
                f"column {column.name!r}", TERMS, [(0.0, largest), (0.0, math.sqrt(largest))], headline=HEADLINE
            )
        parties = columns.unit == PrivacyUnit.PARTY
        return _estimates(present, largest, column.name, parties)


def _estimates(present: Summary, largest: float, column: str, parties: bool) -> Estimates:
    noise = math.sqrt(present.noise_of_variance)
    error = math.sqrt(present.noise_of_variance + present.sampling_of_variance)
    value, flags = present.variance_estimate, []
    if not present.spread_is_known and not parties:
        text = f"column {column!r}: noise hides the fourth moment; the population's interval assumes a normal distribution"
        flags.append(Flag("normal-theory", text))
    if value <= 0 and noise > 0:
        flags.append(Flag("no-variance", f"column {column!r}: noise hides the variance; only an upper end is known"))
        value = math.nan
    centre = present.variance_estimate
    ends = [_ends(centre, deviation, largest, value) for deviation in (noise, error)]
    # Ends of the standard deviation are square roots of those of the variance.
    intervals = [np.array([pair, np.sqrt(pair)]) for pair in ends]
    deviation = math.sqrt(value) if value >= 0 else math.nan
    slope = 1 / (2 * deviation) if deviation > 0 else math.nan if noise > 0 or error > 0 else 0.0
    return Estimates(
        TERMS,
        np.array([value, deviation]),
        np.array([noise, noise * slope]),
        np.zeros(2),
        np.array([largest, math.sqrt(largest)]),
        population=None if parties else np.array([error, error * slope]),
        interval_noise=intervals[0],
        interval_population=None if parties else intervals[1],
        flags=tuple(flags),
        headline=HEADLINE,
        reason=PARTIES if parties else "",
        method="second moment without the noise's part; fourth moment, whatever the distribution",
    )


def _ends(centre: float, error: float, largest: float, value: float) -> tuple[float, float]:
    low, high = within(centre, Z * error, (0.0, largest))
    return (0.0 if math.isnan(value) else low), high


STATISTIC = Variance
