"""Bland and Altman's limits of agreement of two columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Z
from quietmean.statistics.paired_columns import NOTHING, OfPair, Pair, about_spread, clearance
from quietmean.statistics.statistic import Released

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


STATISTIC = BlandAltman
