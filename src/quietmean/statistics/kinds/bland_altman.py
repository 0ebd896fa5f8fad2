"""Bland and Altman's limits of agreement of two columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.paired_columns import NOTHING, OfPair, Pair, about_spread, clearance
from quietmean.statistics.rows import Row, assembled
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
        first, second = columns.number(self.first), columns.number(self.second)
        low, high = second.low - first.high, second.high - first.low
        widest = high - low
        limits = {BIAS: (low, high), SD: (0.0, widest), LOWER: (low - 2 * widest, high), UPPER: (low, high + 2 * widest)}
        pair = self._pair(released, columns)
        if pair is None:
            rows = [Row.unknown(*item) for item in limits.items()]
            return assembled(rows, flags=(Flag("nothing-present", NOTHING),), headline=(LOWER, UPPER))
        own = pair.records / (pair.records - 1)
        ratio = clearance(pair, lambda both: both.variance_of_difference[:, None])
        spread = ratio > 1

        def terms(both: Pair) -> Array:
            if not spread:
                return np.asarray(both.difference)[:, None]
            bias, sd = both.difference, np.sqrt(both.variance_of_difference * own)
            return np.stack([bias, sd, bias - Z * sd, bias + Z * sd], axis=1)

        known = pair.estimated(terms)
        columns_of = zip(limits.items(), known.values, known.noise, known.sampling, known.degrees, strict=False)
        rows = [
            Row.normal(
                term, float(value), float(noise), float(sampling), ends, float(degrees) if math.isfinite(degrees) else math.inf
            )
            for (term, ends), value, noise, sampling, degrees in columns_of
        ]
        rows += [Row.unknown(term, limits[term]) for term in _SPREAD if not spread]
        return assembled(
            rows,
            flags=about_spread(ratio, _SPREAD),
            headline=(LOWER, UPPER),
            method="smooth functions of means and products, without what noise adds on average; robust errors, with the noise",
        )


STATISTIC = BlandAltman
