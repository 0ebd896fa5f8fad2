"""How sites differ, and what they have in common: of means, and of any other statistic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter, parameters_of, require_known
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.compared import COMPARED
from quietmean.statistics.delta_method import SmoothTerm, numerical_slopes, ratio, spread
from quietmean.statistics.estimate import Flag
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock, Moments, PrefixTable
from quietmean.statistics.features.block import Crossed, estimate_of_mean, summary
from quietmean.statistics.fields import ROBUST, statistic_reader
from quietmean.statistics.random_effects import FIXED, RANDOM, UNKNOWN_SITE, Pooled, SiteEstimate, SiteMeans, in_common
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
        block, text = (
            self._block(columns),
            "its values are too few, or all the same. What sites have in common leaves it out",
        )
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


_ROUNDING = 1e-12
# Of more quantities at a site not all directions of the noise are followed, but so many; steps are in its deviations.
_MOST_DIRECTIONS, _DRAWN, _STEP = 48, 12, 0.05


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MetaAnalysis(Statistic):
    """An estimate of another statistic at each site, a level of ``by``; what sites have in common is ``fixed``, weighted by the
    inverse of their variances, and ``random``, of all sites like these (:mod:`~quietmean.statistics.random_effects`).

    ``of`` is a statistic as on the command line, ``crosstab(arm, died)``; ``term`` that of its answer which is combined, by
    default its first one. Ratios are combined on their logarithms. A site counts with the noise of the whole study in its
    variance, and one in which the noise hides the estimate is left out. The test ``Q`` is Cochran's. Models have the errors of
    their assumptions.
    """

    name = "meta-analysis"
    summary = "any estimate at each site, heterogeneity, and what sites have in common"
    by_place = ("of", "by")

    of: str = parameter(help="the statistic, as crosstab(arm, died)")
    by: str = parameter(help="the column whose levels are the sites")
    term: str | None = parameter(None, help="the term of its answer, by default the first of those asked for")

    @property
    def subject(self) -> str | None:
        return None

    @cached_property
    def _inner(self) -> Statistic:
        """The statistic of each site. Raises :class:`InputError` for none, or one that is of sites itself."""
        reader = statistic_reader()
        raw = reader.read(self.of)
        kind = raw["kind"]
        if ROBUST in raw:
            raw[ROBUST] = False
        inner = reader.parse(raw)
        if isinstance(inner, MetaAnalysis) or getattr(inner, "cluster", None) is not None or inner.where:
            raise InputError(f"{self.text} is of {kind}, which cannot be asked of each site. Leave cluster and where out of it.")
        return inner

    @property
    def known_expectations(self) -> tuple[str, ...]:
        return self._inner.known_expectations

    def synthesize(self, scenario: SyntheticRecords) -> None:
        self._inner.synthesize(scenario)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        inner, sites = self._inner, columns.category(self.by)
        named = {
            value
            for name, value in inner.agreed_fields().items()
            if isinstance(value, str) and name in parameters_of(type(inner))
        }
        if self.by in named:
            raise InputError(f"{self.text} names {self.by!r} twice. Name another column of sites.")
        return tuple(self._at_sites(feature, sites) for feature in inner.features(columns))

    def _at_sites(self, feature: Feature, sites: Column) -> Feature:
        """The feature of each site, one after the other: a replaced record leaves one site and enters another."""
        if isinstance(feature, CellIndicators):
            return CellIndicators((Axis(sites), *feature.axes))
        if isinstance(feature, PrefixTable) and feature.by is None:
            return replace(feature, by=Axis(sites))
        grouped = isinstance(feature, ColumnBlock) or (isinstance(feature, Moments) and not feature.higher)
        if isinstance(feature, ColumnBlock | Moments) and grouped and not isinstance(feature.by, Crossed):
            by = sites if feature.by is None else Crossed(sites, feature.by)
            # The noise of sites is their own.
            return replace(feature, by=by, compared=False) if isinstance(feature, ColumnBlock) else replace(feature, by=by)
        raise InputError(f"{self.text} is of a statistic that cannot be asked of each site. Choose another one.")

    def decode(self, released: Released, columns: Columns) -> Estimates:
        sites = columns.category(self.by)
        views = [self._at_site(released, columns, place) for place in range(len(sites.categories))]
        each = [self._inner.decode(view, columns).as_shown() for view in views]
        term = self._term(each[0])
        index = each[0].terms.index(term)
        low, high = float(each[0].low[index]), float(each[0].high[index])
        is_ratio = low == 0 and math.isinf(high)
        known = [_estimate(answer, index, is_ratio) for answer in each]
        terms = [ratio(name) if is_ratio else SmoothTerm(name, (low, high)) for name in (*sites.categories, FIXED, RANDOM)]
        text = "the noise hides its estimate. What sites have in common leaves it out"

        def noise(used: list[int]) -> list[float]:
            """The variances of noise in the common values."""
            moved = [
                _moved(views[place], known[place], lambda view: _estimate(self._inner.decode(view, columns), index, is_ratio))
                for place in used
            ]
            return _noise_of_common([known[place] for place in used], moved)

        answer = in_common(
            [
                each_term.estimate(site.value, site.noise, site.sampling) if site.known else each_term.unknown
                for each_term, site in zip(terms, known, strict=False)
            ],
            known,
            lambda name: Flag.shared("group-left-out", f"site {name}", text, (name,)),
            (terms[-2], terms[-1]),
            noise,
            "value",
            method=f"{each[0].method} at each site",
            about={
                "of": term or self._inner.text,
                "ratio": is_ratio,
                **self._compared_at_sites(each[0].comparing(self._inner.compared(columns)), term),
            },
        )
        if is_ratio or not low < 0 < high or "sites" not in answer.summary:
            return answer
        fixed, random = answer.entries[-2:]
        tested = (fixed.tested(), random.tested(answer.summary["sites"] - 1.0))
        return replace(answer, entries=(*answer.entries[:-2], *tested))

    def _compared_at_sites(self, inner: Estimates, term: str) -> dict[str, dict[str, str]]:
        """Who is compared with whom in the term that is combined."""
        compared = inner.summary.get(COMPARED, {})
        return {COMPARED: {term: compared[term]}} if term in compared else {}

    def _at_site(self, released: Released, columns: Columns, place: int) -> Released:
        """What is released of one site, as the inner statistic reads it."""
        sites, places, whole = columns.category(self.by), {}, None
        for feature in self._inner.features(columns):
            every = released.places[self._at_sites(feature, sites)]
            count = len(sites.categories) + (not isinstance(feature, ColumnBlock | Moments))
            size = len(every) // count
            places[feature] = every[place * size : (place + 1) * size]
            if isinstance(feature, CellIndicators) and whole is None:
                whole = np.zeros(len(released.quantities))
                whole[places[feature]] = 1.0
        return replace(released, places=places, whole=whole, counted=False)

    def _term(self, estimates: Estimates) -> str:
        if self.term is not None:
            return require_known("term", self.term, estimates.terms)
        return estimates.headline[0] if estimates.headline else estimates.terms[0]


def _estimate(estimates: Estimates, index: int, is_ratio: bool) -> SiteEstimate:
    """A term of one site; the logarithm of a ratio."""
    value, noise = float(estimates.value[index]), float(estimates.standard_error[index])
    both = math.nan if estimates.population is None else float(estimates.population[index])
    if not math.isfinite(value + noise + both) or (is_ratio and value <= 0):
        return UNKNOWN_SITE
    width = float(estimates.high[index] - estimates.low[index])
    # Of a variance that is only rounding nothing can be said.
    if not both**2 > _ROUNDING * (width if math.isfinite(width) else value) ** 2:
        return UNKNOWN_SITE
    unit = value if is_ratio else 1.0
    return SiteEstimate(math.log(value) if is_ratio else value, (noise / unit) ** 2, max(both**2 - noise**2, 0.0) / unit**2)


def _moved(view: Released, site: SiteEstimate, at: Callable[[Released], SiteEstimate]) -> Array:
    """The covariance (2, 2) of what noise does to a site's estimate and to its variance of sampling, which is part of its weight.

    From differences along the noise: along all its directions, or of long tables along some that are drawn as the noise is.
    """
    exact = np.array([[site.noise, 0.0], [0.0, 0.0]])
    places = np.unique(np.concatenate(list(view.places.values())))
    values, vectors = np.linalg.eigh(view.covariance_at(places, places))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    if not site.noise > 0:
        return exact
    directions = root.T
    if len(places) > _MOST_DIRECTIONS:
        stream = BitStream(Seed.public("meta-analysis", len(places)))
        directions = stream.standard_normal((_DRAWN, len(places))) @ root.T / math.sqrt(_DRAWN)
    slopes = []
    for direction in directions:
        ends = []
        for sign in (1.0, -1.0):
            quantities = view.quantities.copy()
            quantities[places] += sign * _STEP * direction
            moved = at(replace(view, quantities=quantities))
            ends.append(np.array([moved.value, moved.sampling]) if moved.known else np.array([site.value, site.sampling]))
        slopes.append((ends[0] - ends[1]) / (2 * _STEP))
    covariance = np.array(slopes).T @ np.array(slopes)
    # What it does to the estimate is known exactly.
    return covariance * (site.noise / covariance[0, 0]) if covariance[0, 0] > 0 else exact


def _noise_of_common(sites: list[SiteEstimate], moved: list[Array]) -> list[float]:
    """The variances of noise in the common values, fixed and random; ``moved``: what noise does to each site."""
    values, noises, sampling = (np.array([getattr(site, name) for site in sites]) for name in ("value", "noise", "sampling"))

    def both(quantities: Array) -> Array:
        own, its = quantities.reshape(2, -1)
        again = Pooled.of(own, noises + np.maximum(its, 0.0))
        return np.array([again.fixed, again.random])

    return [
        sum(spread(slope.reshape(2, -1)[:, place], covariance) for place, covariance in enumerate(moved))
        for slope in numerical_slopes(both, np.concatenate([values, sampling]))
    ]
