"""Restricted mean survival time of arms, and its difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics.columns import Columns
from quietmean.statistics.curve_summaries import CUT, difference_of_means, restricted_mean
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.statistic import Released
from quietmean.statistics.timed import Timed

DIFFERENCE = "difference"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RestrictedMean(Timed):
    """The mean time without an event up to the horizon, the area under the Kaplan-Meier curve, for each arm; of two arms also
    their ``difference``, second minus first.

    Bins leave open when in them events were, which is part of both intervals; it moves both arms alike, so that for the
    difference it counts as no more than its distance to that of half as many bins. An arm whose curve noise cuts before the
    horizon is left out: choose an earlier horizon.
    """

    name = "restricted-mean"
    summary = "mean time without an event up to a horizon"
    one_row = True

    def decode(self, released: Released, columns: Columns) -> Estimates:
        arms, curves = self.arms(columns), self.curves(released, columns)
        parties = columns.unit == PrivacyUnit.PARTY
        rows = [restricted_mean(curve, arm) for arm, curve in zip(arms, curves.each, strict=True)]
        if len(arms) == 2:
            rows.append(difference_of_means(curves, DIFFERENCE))
        flags, last = [], f"{curves.bins.ends[-1]:g}"
        for row in rows[: len(arms)]:
            if math.isnan(row.value):
                terms = (row.term, DIFFERENCE) if len(arms) == 2 else (row.term,)
                text = f"too few at risk for the noise before {last}; choose an earlier horizon"
                flags.append(Flag.shared(CUT, f"arm {row.term}", text, terms))
        return Estimates.of(
            rows,
            noise_only=parties,
            flags=tuple(flags),
            headline=(DIFFERENCE,) if len(arms) == 2 else (),
            reason=PARTIES_DIFFER if parties else "",
            method="area under Kaplan-Meier of bins (a, b], with what they leave open; Greenwood with the noise",
        )


STATISTIC = RestrictedMean
