"""How sites differ: the mean of each, and a meta-analysis of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import Summary, summary
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.flags_and_tests import Flag, HypothesisTest
from quietmean.statistics.random_effects import METHOD, SEEN, Pooled, SiteMeans, few_sites
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

FIXED, RANDOM = "fixed", "random"
_ROUNDING = 1e-12
# The level at which Cochran's test says that sites differ.
_DIFFERENT = 0.05


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
        block = self._block(columns)
        sites = columns.category(self.by).categories
        summaries = [summary(released, block, index) for index in range(len(sites))]
        limits = (block.column.low, block.column.high)
        rows = [_mean(site, site_summary, limits) for site, site_summary in zip(sites, summaries, strict=True)]
        flags = [Flag("sites-seen", SEEN)]
        flags += [
            Flag.shared(
                "group-left-out", f"site {site}", "too few for its noise, or all the same: left out of what sites have in common"
            )
            for site, site_summary in zip(sites, summaries, strict=True)
            if not _varies(site_summary, block.column)
        ]
        usable = {
            index: site_summary
            for index, site_summary in enumerate(summaries)
            if site_summary is not None and _varies(site_summary, block.column)
        }
        if len(usable) < 2:
            flags.append(Flag("one-site", "fewer than two sites are known: nothing is said about what they have in common"))
            rows += [Estimate.unknown(term, limits) for term in (FIXED, RANDOM)]
            return Estimates.of(rows, flags=tuple(flags), headline=(RANDOM,), method="ratios of noisy means")
        pooled, tests, more, own_flags = _pooled(released, block, usable, limits)
        return Estimates.of(
            [*rows, *pooled],
            tests=tests,
            summary=more,
            flags=(*flags, *own_flags),
            headline=(RANDOM,),
            method=f"ratios of noisy means; inverse variances with the noise in them; {METHOD}",
        )


def _varies(site: Summary | None, column: Column) -> bool:
    """Is a site known, with a variance that is more than rounding?"""
    return site is not None and site.noise_of_mean + site.sampling_of_mean > _ROUNDING * column.width**2


def _mean(site: str, site_summary: Summary | None, limits: tuple[float, float]) -> Estimate:
    if site_summary is None:
        return Estimate.unknown(site, limits)
    return Estimate.normal(
        site, site_summary.mean, site_summary.noise_of_mean, site_summary.sampling_of_mean, limits, site_summary.degrees
    )


def _pooled(
    released: Released, block: ColumnBlock, summaries: dict[int, Summary], limits: tuple[float, float]
) -> tuple[list[Estimate], dict[str, HypothesisTest], dict[str, Any], list[Flag]]:
    """The common means, Cochran's test, and heterogeneity."""
    means = np.array([summary.mean for summary in summaries.values()])
    variances = np.array([summary.noise_of_mean + summary.sampling_of_mean for summary in summaries.values()])
    pooled = Pooled.of(means, variances)
    fixed, random = SiteMeans(released, block).noise([0], list(summaries)).tolist()
    rows = [
        Estimate.normal(FIXED, pooled.fixed, fixed, pooled.fixed_variance - fixed, limits),
        Estimate.normal(RANDOM, pooled.random, random, pooled.random_variance - random, limits, pooled.degrees),
    ]
    flags = few_sites(pooled.sites, (RANDOM,))
    if pooled.test.p_value < _DIFFERENT:
        text = "sites differ by more than chance: the fixed mean is one of these sites only, and its interval of no others"
        flags.append(Flag("heterogeneous", text, (FIXED,)))
    more = {"tau_squared": pooled.between, "i_squared": pooled.i_squared, "sites": len(summaries)}
    return rows, {"Q": pooled.test}, more, flags


STATISTIC = SiteEffects
