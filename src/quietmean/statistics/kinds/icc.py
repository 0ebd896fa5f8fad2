"""Intraclass correlations of two columns: how much of their variance is that of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.intervals import fisher, t_quantile
from quietmean.statistics.paired_columns import NOTHING, OfPair, Pair, about_spread, clearance
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Released

AGREEMENT, CONSISTENCY, CONCORDANCE = "agreement", "consistency", "concordance"
TERMS = (AGREEMENT, CONSISTENCY, CONCORDANCE)
_LIMITS = (-1.0, 1.0)


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
        unknown = [Row.unknown(term, _LIMITS) for term in TERMS]
        if pair is None:
            return assembled(unknown, flags=(Flag("nothing-present", NOTHING),), headline=(AGREEMENT,))
        ratio = clearance(pair, lambda both: both.total[:, None])
        if ratio <= 1:
            return assembled(unknown, flags=about_spread(ratio, TERMS), headline=(AGREEMENT,))
        n = pair.records

        def terms(both: Pair) -> Array:
            shared, within = 2 * both.covariance, both.variance_of_difference
            # Mean squares have n - 1 degrees of freedom, and the raters' one.
            raters = both.difference**2 * (n - 1) / n - within / n
            values = [shared / (both.total + raters), shared / both.total, shared / (both.total + both.difference**2)]
            return np.stack(values, axis=1)

        known = pair.estimated(terms)
        rows = []
        for place, term in enumerate(TERMS):
            value = min(max(float(known.values[place]), -1.0), 1.0)
            noise, both = math.sqrt(known.noise[place]), math.sqrt(known.noise[place] + known.sampling[place])
            ends = fisher(value, Z * noise), fisher(value, t_quantile(float(known.degrees[place])) * both)
            rows.append(Row(term, value, noise, both, *_LIMITS, *ends))
        return assembled(
            rows,
            flags=about_spread(ratio, TERMS),
            headline=(AGREEMENT,),
            method="functions of products, without what noise adds on average; Fisher's z, robust errors, with the noise",
        )


STATISTIC = IntraclassCorrelation
