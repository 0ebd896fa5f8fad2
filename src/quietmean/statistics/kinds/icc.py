"""Intraclass correlations of two columns: how much of their variance is that of the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.paired_columns import NOTHING, OfPair, Pair, about_spread, clearance
from quietmean.statistics.statistic import Released

AGREEMENT, CONSISTENCY, CONCORDANCE = "agreement", "consistency", "concordance"
TERMS = tuple(SmoothTerm(name, (-1.0, 1.0), "fisher") for name in (AGREEMENT, CONSISTENCY, CONCORDANCE))


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
        unknown = [term.unknown for term in TERMS]
        if pair is None:
            return Estimates.of(unknown, flags=(NOTHING,), headline=(AGREEMENT,))
        ratio = clearance(pair, lambda both: both.total[:, None])
        about = about_spread(ratio, (AGREEMENT, CONSISTENCY, CONCORDANCE))
        if ratio <= 1:
            return Estimates.of(unknown, flags=about, headline=(AGREEMENT,))
        n = pair.records

        def values(both: Pair) -> Array:
            shared, within = 2 * both.covariance, both.variance_of_difference
            # Mean squares have n - 1 degrees of freedom, and the raters' one.
            raters = both.difference**2 * (n - 1) / n - within / n
            each = [shared / (both.total + raters), shared / both.total, shared / (both.total + both.difference**2)]
            return np.stack(each, axis=1)

        return Estimates.of(
            pair.estimated(values).of(TERMS),
            flags=about,
            headline=(AGREEMENT,),
            method="functions of products, without what noise adds on average; Fisher's z, robust errors, with the noise",
        )


STATISTIC = IntraclassCorrelation
