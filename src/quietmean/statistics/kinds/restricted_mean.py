"""Restricted mean survival time of arms, and its difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates, Flag
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Released
from quietmean.statistics.timed import Timed

DIFFERENCE = "difference"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RestrictedMean(Timed):
    """The mean time without an event up to the horizon, the area under the Kaplan-Meier curve, for each arm; of two arms also
    their ``difference``, second minus first.

    An arm whose curve noise cuts before the horizon is left out: choose an earlier horizon.
    """

    name = "restricted-mean"
    summary = "mean time without an event up to a horizon"

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns).each
        parties = columns.unit == PrivacyUnit.PARTY
        last = float(curves[0].times[-1])
        rows, flags = [], []
        found = [curve.restricted_mean() for curve in curves]
        for arm, (area, noise, sampling) in zip(arms, found, strict=True):
            if math.isnan(area):
                flags.append(
                    Flag("curve-cut", f"arm {arm}: too few at risk for the noise before {last:g}; choose an earlier horizon")
                )
            rows.append(
                Row.unknown(arm, (0.0, last)) if math.isnan(area) else Row.normal(arm, area, noise, sampling, (0.0, last))
            )
        if len(arms) == 2:
            (one, noise, sampling), (two, more_noise, more_sampling) = found
            difference = Row.normal(DIFFERENCE, two - one, noise + more_noise, sampling + more_sampling, (-last, last))
            rows.append(Row.unknown(DIFFERENCE, (-last, last)) if math.isnan(two - one) else difference.tested())
        return assembled(
            rows,
            parties=parties,
            flags=tuple(flags),
            reason=PARTIES_DIFFER if parties else "",
            method="trapezoids under Kaplan-Meier of bins; Greenwood with the noise",
        )


STATISTIC = RestrictedMean
