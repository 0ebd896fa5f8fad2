"""The mean difference of two columns of the same records, with the paired t-test."""

from __future__ import annotations

from dataclasses import dataclass

from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.intervals import t_test
from quietmean.statistics.paired_columns import NOTHING, OfPair
from quietmean.statistics.rows import Row, assembled
from quietmean.statistics.statistic import Released

TERM, TEST = "difference", "paired-t"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairedDifference(OfPair):
    """The mean of the ``second`` column less the ``first`` over the records that have both, with the test ``paired-t``."""

    name = "paired-difference"
    summary = "the mean difference of two columns of the same records, with the paired t-test"

    def decode(self, released: Released, columns: Columns) -> Estimates:
        first, second = columns.number(self.first), columns.number(self.second)
        limits = (second.low - first.high, second.high - first.low)
        pair = self._pair(released, columns)
        if pair is None:
            return assembled([Row.unknown(TERM, limits)], flags=(Flag("nothing-present", NOTHING, (TERM,)),))
        known = pair.estimated(lambda both: both.difference[:, None])
        value, noise, sampling, degrees = (float(each[0]) for each in (known.values, known.noise, known.sampling, known.degrees))
        test = t_test(value, (noise + sampling) ** 0.5, degrees, "paired t test")
        return assembled(
            [Row.normal(TERM, value, noise, sampling, limits, degrees)],
            tests={TEST: test},
            method="ratio of noisy means, Student's t",
        )


STATISTIC = PairedDifference
