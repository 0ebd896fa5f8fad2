"""Mann and Whitney's test of two groups."""

from __future__ import annotations

from dataclasses import dataclass

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.fields import edges_field, usual_bins_field
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.kinds.proportion import PARTIES_DIFFER
from quietmean.statistics.scenario import SyntheticRecords, between_groups
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.two_samples import USUAL_BINS, TwoSamples

TERM, TEST = "probability", "mann-whitney"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MannWhitney(Statistic):
    """The chance that a value of the second group is above one of the first, half of the chance that they are equal included: 0.5
    where neither tends to be larger. Intervals hold it whatever the order within bins is. The test ``mann-whitney`` is that of U
    with ties, on binned values.
    """

    name = "mann-whitney"
    summary = "how often one group is above the other, with Mann and Whitney's test"
    one_row = True
    by_place = ("column", "by")
    expects = ("probability",)

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose two levels are the groups")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        second = float(scenario.values[self.by].mean())
        correlation = between_groups([1 - second, second], scenario.expected("probability") or 0.5)
        scenario.correlate(self.column, [scenario.standardised(self.by)], [correlation])

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        groups = columns.category(self.by)
        if len(groups.categories) != 2:
            raise InputError(f"{self.text} compares two groups, but column {self.by!r} has {len(groups.categories)} levels")
        return PrefixTable(Axis.of(columns.number(self.column), self.edges, self.bins, USUAL_BINS), Axis(groups))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        samples = TwoSamples.of(released, self._table(columns))
        parties = columns.unit == PrivacyUnit.PARTY
        test = samples.test()
        text = "a group has too few values for the noise: nothing is known about it; ask for a larger epsilon"
        return Estimates.of(
            [samples.row(TERM)],
            noise_only=parties,
            tests={} if test is None or parties else {TEST: test},
            flags=() if samples.known else (Flag("nothing-present", text),),
            reason=PARTIES_DIFFER if parties else "",
            method="pairs of bins, without the noise's part; DeLong's variance with the noise; half of the pairs in one bin",
        )


STATISTIC = MannWhitney
