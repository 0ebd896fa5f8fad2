"""The mean difference of two columns of the same records, with the paired t-test."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quietmean.statistics.columns import Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.intervals import t_test
from quietmean.statistics.paired_columns import NOTHING, OfPair
from quietmean.statistics.statistic import Released

TERM, TEST = "difference", "paired-t"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairedDifference(OfPair):
    """The mean of the ``second`` column less the ``first`` over the records that have both, with the test ``paired-t``."""

    name = "paired-difference"
    summary = "the mean difference of two columns of the same records, with the paired t-test"

    def decode(self, released: Released, columns: Columns) -> Estimates:
        term, pair = SmoothTerm(TERM, self._limits(columns)), self._pair(released, columns)
        if pair is None:
            return Estimates.of([term.unknown], flags=(replace(NOTHING, terms=(TERM,)),))
        known = pair.estimated(lambda both: both.difference[:, None])
        (estimate,) = known.of([term])
        return Estimates.of(
            [estimate],
            tests={TEST: t_test(estimate.value, estimate.error, float(known.degrees[0]), "paired t test")},
            method="ratio of noisy means, Student's t",
        )


STATISTIC = PairedDifference
