"""How sites differ: the mean of each, and a meta-analysis of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.schema import parameter
from quietmean.statistics.block_summary import Summary, summary
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates, Flag, HypothesisTest
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.kinds.sum import require_records
from quietmean.statistics.rows import Row, assembled, slopes_of, spread
from quietmean.statistics.statistic import Feature, Released, Statistic

Array = NDArray[np.float64]

FIXED, RANDOM = "fixed", "random"
_ROUNDING = 1e-12
SEEN = "the result shows each site's own mean, to everybody who sees the result: sites must agree to that"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SiteEffects(Statistic):
    """The mean of a column at each site, a level of ``by``, and what they have in common: ``fixed``, weighted by the inverse of
    their variances, and ``random``, with the variance between sites of DerSimonian and Laird.

    The test ``Q`` is Cochran's, that all sites have the same mean; ``summary`` has I^2 and tau^2. The noise is part of each
    site's variance, so that it does not pass for a difference. A site's mean has the noise of the whole study: it is for few
    large sites.
    """

    name = "site-effects"
    summary = "the mean of each site, heterogeneity, and their common mean"
    by_place = ("column", "by")

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose levels are the sites")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._block(columns),)

    def _block(self, columns: Columns) -> ColumnBlock:
        return ColumnBlock(columns.number(self.column), columns.category(self.by))

    def decode(self, released: Released, columns: Columns) -> Estimates:
        block = self._block(columns)
        sites = columns.category(self.by).categories
        found = [summary(released, block, place) for place in range(len(sites))]
        limits = (block.column.low, block.column.high)
        rows = [_mean(site, one, limits) for site, one in zip(sites, found, strict=True)]
        flags = [Flag("sites-seen", SEEN)]
        flags += [
            Flag("group-left-out", f"site {site}: too few for its noise, or all the same: left out of what sites have in common")
            for site, one in zip(sites, found, strict=True)
            if not _varies(one, block.column)
        ]
        known = {place: one for place, one in enumerate(found) if one is not None and _varies(one, block.column)}
        if len(known) < 2:
            flags.append(Flag("one-site", "fewer than two sites are known: nothing is said about what they have in common"))
            rows += [Row.unknown(term, limits) for term in (FIXED, RANDOM)]
            return assembled(rows, flags=tuple(flags), method="ratios of noisy means")
        pooled, tests, more = _pooled(released, block, known, limits)
        return assembled(
            [*rows, *pooled],
            tests=tests,
            summary=more,
            flags=tuple(flags),
            method="ratios of noisy means; inverse variances with the noise in them, DerSimonian and Laird",
        )


def _varies(one: Summary | None, column: Column) -> bool:
    """Is a site known, with a variance that is more than rounding?"""
    return one is not None and one.noise_of_mean + one.sampling_of_mean > _ROUNDING * column.width**2


def _mean(site: str, one: Summary | None, limits: tuple[float, float]) -> Row:
    if one is None:
        return Row.unknown(site, limits)
    return Row.normal(site, one.mean, one.noise_of_mean, one.sampling_of_mean, limits)


def _pooled(
    released: Released, block: ColumnBlock, known: dict[int, Summary], limits: tuple[float, float]
) -> tuple[list[Row], dict[str, HypothesisTest], dict[str, Any]]:
    """The common means, Cochran's test, and heterogeneity."""
    size = block.size // block.groups
    noises = np.array([one.noise_of_mean for one in known.values()])
    places = np.concatenate([np.arange(size * place, size * place + 3) for place in known])
    at = released.mean(block)[places]

    def function(quantities: Array) -> Array:
        means, sampling = _moments(quantities.reshape(-1, 3), block.column, released.weight, noises)
        return _meta(means, noises + sampling)[:2]

    means, sampling = _moments(at.reshape(-1, 3), block.column, released.weight, noises)
    fixed, random, statistic, between = _meta(means, noises + sampling)
    slopes = slopes_of(function, at)
    noise = [spread(one, released.covariance(block)[np.ix_(places, places)]) for one in slopes]
    rows = []
    for term, value, own, tau in ((FIXED, fixed, noise[0], 0.0), (RANDOM, random, noise[1], between)):
        total = 1 / float((1 / (noises + sampling + tau)).sum())
        rows.append(Row.normal(term, float(value), own, max(total - own, 0.0), limits))
    degrees = len(known) - 1.0
    more = {
        "tau_squared": float(between),
        "i_squared": max(1 - degrees / float(statistic), 0.0) if statistic > 0 else 0.0,
        "sites": len(known),
    }
    return rows, {"Q": chi_squared_test(float(statistic), degrees)}, more


def _moments(quantities: Array, column: Column, records: float, noises: Array) -> tuple[Array, Array]:
    """Means of sites and their variances of sampling from parts, first and second moments, (sites, 3)."""
    half = column.width / 2
    part, first, second = quantities[:, 0], quantities[:, 1] / quantities[:, 0], quantities[:, 2] / quantities[:, 0]
    present = records * part
    variances = (second - first**2 + noises / half**2) * half**2 / np.maximum(present - 1, 1.0)
    return column.centre + first * half, np.maximum(variances, 0.0)


def _meta(means: Array, variances: Array) -> Array:
    """The common means with fixed and with random effects, Cochran's Q, and the variance between sites: shape (4,)."""
    weights = 1 / variances
    fixed = weights @ means / weights.sum()
    statistic = weights @ (means - fixed) ** 2
    spare = weights.sum() - (weights**2).sum() / weights.sum()
    between = max((statistic - (len(means) - 1)) / spare, 0.0)
    looser = 1 / (variances + between)
    return np.array([fixed, looser @ means / looser.sum(), statistic, between])


STATISTIC = SiteEffects
