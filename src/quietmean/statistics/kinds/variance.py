"""The variance of a column, and its square root."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.domain import PrivacyUnit
from quietmean.core.schema import parameter
from quietmean.statistics.around import Around
from quietmean.statistics.block_summary import moved_block, square_root, summary
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.flags_and_tests import Flag
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
            limits = {"variance": (0.0, largest), "sd": (0.0, math.sqrt(largest))}
            return Estimates.nothing_present(f"column {column.name!r}", limits, HEADLINE)
        parties, flags = columns.unit == PrivacyUnit.PARTY, []
        if not present.spread_is_known and not parties:
            text = "noise hides the fourth moment; the population's interval assumes a normal distribution"
            flags.append(Flag("normal-theory", f"column {column.name!r}: {text}"))
        variance = present.estimate_of_variance("variance", largest)
        if not variance.known:
            text = f"column {column.name!r}: noise hides the variance; only an upper end is known"
            flags.append(Flag("no-variance", text))
        return Estimates.of(
            [variance, square_root(variance, "sd")],
            noise_only=parties,
            flags=flags,
            headline=HEADLINE,
            reason=PARTIES if parties else "",
            method="second moment without the noise's part; fourth moment, whatever the distribution",
        )


STATISTIC = Variance
