"""How sites differ: the mean of each, and a meta-analysis of them."""

from __future__ import annotations

from dataclasses import dataclass

from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import estimate_of_mean, summary
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.delta_method import SmoothTerm
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.flags_and_tests import Flag
from quietmean.statistics.random_effects import FIXED, RANDOM, SiteMeans, in_common
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SiteEffects(Statistic):
    """The mean of a column at each site, a level of ``by``, and what they have in common: ``fixed``, weighted by the inverse of
    their variances, and ``random``, of all sites like these, which differ by a variance of their own
    (:mod:`~quietmean.statistics.random_effects`).

    The test ``Q`` is Cochran's, that all sites have the same mean; ``summary`` has I^2 and tau^2. The noise is part of each
    site's variance, so that it does not pass for a difference. A site's mean has the noise of the whole study: it is for few
    large sites.
    """

    name = "site-effects"
    summary = "the mean of each site, heterogeneity, and their common mean"
    by_place = ("column", "by")
    expects = ("sd-between",)

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose levels are the sites")

    def synthesize(self, scenario: SyntheticRecords) -> None:
        scenario.shift_sites(self.column, self.by, scenario.expected("sd-between"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._block(columns),)

    def _block(self, columns: Columns) -> ColumnBlock:
        return ColumnBlock(columns.number(self.column), columns.category(self.by))

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return estimates.terms if column.name == self.column else ()

    def decode(self, released: Released, columns: Columns) -> Estimates:
        block, text = self._block(columns), "too few for its noise, or all the same: left out of what sites have in common"
        sites, means = columns.category(self.by).categories, SiteMeans(released, block)
        limits = (block.column.low, block.column.high)
        return in_common(
            [estimate_of_mean(site, summary(released, block, index), block.column) for index, site in enumerate(sites)],
            means.of(),
            lambda site: Flag.shared("group-left-out", f"site {site}", text),
            (SmoothTerm(FIXED, limits), SmoothTerm(RANDOM, limits)),
            lambda known: means.noise([0], known).tolist(),
            "mean",
            method="ratios of noisy means",
        )


STATISTIC = SiteEffects
