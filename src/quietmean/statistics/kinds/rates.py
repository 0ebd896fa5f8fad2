"""Incidence rates: events per person-time, in groups, with rate ratio and rate difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import YES, Column, Columns
from quietmean.statistics.compared import difference_of, ratio_of
from quietmean.statistics.delta_method import Smooth, SmoothTerm, ratio, smooth
from quietmean.statistics.estimate import Estimate, Flag, least_count
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Crossed, Edge, Moments, Vertex
from quietmean.statistics.fields import cluster_field, numbers_field
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.intervals import quadratic_set
from quietmean.statistics.random_effects import UNKNOWN_SITE, AcrossSites, SiteEstimate, differences, site_column
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.tails import quantile_of_both, tails

ALL = "all"
RATIO, DIFFERENCE, STANDARDISED = ratio("rate-ratio"), SmoothTerm("rate-difference"), SmoothTerm("standardised")
# Noise deviations that person-time must have, and events for a ratio.
_LEAST_TIME, _LEAST_EVENTS = 4.0, 3.0
# Person-time counts half as much as events in the encoding: events are rarer, and their noise decides. Their product costs
# nothing then: the maximum cut has the events on one side.
_TIME_WEIGHT = 0.5
# Noise deviations that the sum of squares must have to be believed where it is less than a Poisson count's, and degrees of
# freedom of the whole variance below which a Poisson count stands behind it.
_CERTAIN, _LEAST_DEGREES = 4.0, 4.0


@dataclass(frozen=True, eq=False)
class _Group:
    """Sums over the records of a group of e, t, e^2, e t and t^2, events and time of each; and the covariance of the noise."""

    sums: Array
    noise: Array

    @property
    def events(self) -> float:
        return float(self.sums[0])

    @property
    def time(self) -> float:
        return float(self.sums[1])

    @property
    def known(self) -> bool:
        return self.time > max(tails().deviations(_LEAST_TIME) * math.sqrt(max(self.noise[1, 1], 0.0)), 0.0)

    @property
    def noise_of_events(self) -> float:
        """The standard deviation of the noise in the number of events."""
        return math.sqrt(max(float(self.noise[0, 0]), 0.0))

    @property
    def enough_events(self) -> bool:
        """Are there enough for a ratio?"""
        return self.known and self.events > least_count(_LEAST_EVENTS, self.noise_of_events)

    @cached_property
    def _functions(self) -> Smooth:
        return smooth(_of_sums, self.sums, self.noise, corrected=False)

    @cached_property
    def sampling(self) -> float:
        """The variance of sampling of events - rate time: as released; that of a Poisson count unless less is certain."""
        variance, error = float(self._functions.values[1]), float(self._functions.errors[1])
        return variance if variance > _CERTAIN * error else max(variance, self.events, 0.0)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of :attr:`sampling`, by its noise (Satterthwaite)."""
        error = float(self._functions.errors[1])
        return 2 * (self.sampling / error) ** 2 if error > 0 else math.inf

    @property
    def rate(self) -> tuple[float, float, float]:
        """The rate, and the variances of noise and of sampling."""
        return float(self._functions.values[0]), float(self._functions.noise[0]), self.sampling / self.time**2

    @property
    def log(self) -> tuple[float, float, float]:
        """The logarithm of the rate, and the variances of noise and of sampling."""
        return float(self._functions.values[2]), float(self._functions.noise[2]), self.sampling / self.events**2

    def interval(self, sampling: bool) -> tuple[float, float]:
        """All r with (events - r time)^2 <= q^2 (f r time + noise of events - r time), where f r time is the variance of sampling
        at the rate itself: right for few events and uncertain time."""
        (own, both), (_, timed) = self.noise[:2, :2].tolist()
        quantile, part = tails().quantile(), 0.0
        if sampling:
            quantile = quantile_of_both(*self.rate[1:], _combined([1.0], [self.rate], [self])[-1])
            # Without any event nothing says how events vary.
            part = self.sampling / self.events if self.events > 0 else 1.0
        # Infinite where next to nothing is known of how events vary.
        reach = quantile * quantile
        square = self.time**2 - reach * timed
        if square <= 0:
            return 0.0, math.inf
        slope = -2 * self.events * self.time + reach * (2 * both - part * self.time)
        low, high = quadratic_set(square, slope, self.events**2 - reach * own)
        return max(low, 0.0), max(high, 0.0)


def _of_sums(sums: NDArray[Any]) -> NDArray[Any]:
    """The rate r, the sum of (e - r t)^2 over all records, which is the variance of sampling of events - r time whatever the
    distribution of events, and the logarithm of the rate."""
    events, time, squares, products, squared_times = sums.T
    rate = events / time
    return np.stack([rate, squares - 2 * rate * products + rate**2 * squared_times, np.log(rate)], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rates(Statistic):
    """Events divided by person-time in each group of ``by``; of two groups also ``rate-ratio`` and ``rate-difference``, second
    against first. ``per`` multiplies: 1000 for events per 1000 units of time.

    ``events`` is a boolean column, or one of counts from 0 to a cap; ``time`` is one from 0 on. What a record has beyond the
    upper bound of its time is left out: an event at a later time is none, and of a count the part within the bound counts.
    Intervals of the population hold however events vary between records (quasi-Poisson, with the released squares); where noise
    hides how they vary, for Poisson events, and the flag ``model-based`` says so. With ``standard``, weights of the groups in
    their order, ``standardised`` is the rate of a population with these groups. A record without the group counts nowhere. With
    ``cluster``, a column of public sites, rates, ratio and difference within sites, over all sites like these
    (:mod:`~quietmean.statistics.random_effects`).
    """

    name = "rates"
    summary = "events per person-time, with rate ratio and standardised rate"
    by_place = ("events", "time")
    expects = ("rate", "rate-ratio")

    events: str = parameter(help="the boolean column of events, or one of counts from 0 on")
    time: str = parameter(help="the column of person-time, from 0 on")
    by: str | None = parameter(None, help="the column whose levels are the groups")
    per: float = parameter(1.0, help="units of time that a rate is for", above=0, remedy="choose a number > 0, such as 1000")
    standard: tuple[float, ...] | None = numbers_field(None, "weights of the groups in a standard population", "standard")
    cluster: str | None = cluster_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        per, ratio = scenario.expected("rate"), scenario.expected("rate-ratio") or 1.0
        rate = None if per is None else per / self.per
        if scenario.columns[self.events].boolean:
            scenario.times(self.time, self.events, self.by, ratio, rate=rate)
        else:
            scenario.count(self.events, self.time, self.by, ratio, rate)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        if self.standard is not None and self.cluster is not None:
            raise InputError(f"{self.text}: standard and cluster do not go together yet. Leave one of them out.")
        if self.standard is not None:
            groups = 0 if self.by is None else len(columns.category(self.by).categories)
            if len(self.standard) != groups or min(self.standard) < 0 or sum(self.standard) <= 0:
                raise InputError(
                    f"{self.text} has a standard that does not fit. Give a weight >= 0 for each of {groups} groups, not "
                    "all of them 0."
                )
        return (self._moments(columns),)

    def _moments(self, columns: Columns) -> Moments:
        events, time = columns[self.events], columns.number(self.time)
        if not events.boolean and (not events.numeric or events.low != 0):
            raise InputError(f"column {self.events!r} does not count events. Write {self.events} in yes/no, or in 0..HIGH.")
        if time.low != 0:
            raise InputError(f"column {self.time!r} is person-time, but its lower bound is {time.low:g}. Declare it from 0 on.")
        if self.events == self.time:
            raise InputError(f"{self.text} names one column twice. Name events, then time.")
        happened, observed = Vertex(events, YES if events.boolean else None, time), Vertex(time)
        by: Column | Crossed | None = None if self.by is None else columns.category(self.by)
        if self.cluster is not None:
            sites = site_column(self, columns, self.cluster, self.by, self.events, self.time)
            by = sites if by is None else Crossed(columns.category(self.by or ""), sites)
        edges: tuple[Edge, ...] = ((None, happened), (None, observed), (happened, observed))
        return Moments(edges, (1.0, _TIME_WEIGHT, _TIME_WEIGHT), by)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        if self.cluster is not None:
            return {}
        names = [ALL] if self.by is None else list(columns.category(self.by).categories)
        feature, rates, ends = self._moments(columns), {}, []
        for index, name in enumerate(names):
            events, time = _readers_of(feature, index)[:2]
            rates[name] = around.ratio(feature, events, time) * self.per
            value, own_time = around.values(feature, events), around.values(feature, time)
            rate = math.nan if value is None or own_time is None or own_time <= 0 else float(value / own_time) * self.per
            ends.append((rate - rates[name], rate, rate + rates[name]))
        moved = dict(rates)
        if len(names) == 2:
            (low, rate, high), (own_low, own, own_high) = ends
            reaches = low > 0 and own_low > 0
            moved[RATIO.name] = max(own_high / low - own / rate, own / rate - own_low / high) if reaches else math.inf
            moved[DIFFERENCE.name] = sum(rates.values())
        if self.standard is not None:
            used = [(weight, rates[name]) for weight, name in zip(self.standard, names, strict=True) if weight]
            moved[STANDARDISED.name] = sum(weight * rate for weight, rate in used) / sum(self.standard)
        return moved

    def compared(self, columns: Columns) -> dict[str, str]:
        by = None if self.by is None else columns.category(self.by)
        return {} if by is None else ratio_of(by, RATIO.name) | difference_of(by, DIFFERENCE.name)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        feature = self._moments(columns)
        names = [ALL] if self.by is None else list(columns.category(self.by).categories)
        if self.cluster is not None:
            return self._of_sites(released, feature, names, columns.category(self.cluster).categories)
        groups = [_read(released, feature, index) for index in range(len(names))]
        flags: list[Flag] = []
        for name, group in zip(names, groups, strict=True):
            if not group.known:
                flags.append(
                    Flag.shared("no-person-time", name, "the person-time is too little for the noise. No rate is known", (name,))
                )
            elif _combined([1.0], [group.rate], [group])[-1] < _LEAST_DEGREES:
                text = "the noise hides how events vary between records. The population's interval assumes Poisson events"
                flags.append(Flag.shared("model-based", name, text, (name,)))
        rows = [self._rate(name, group) for name, group in zip(names, groups, strict=True)]
        if len(names) == 2:
            rows += self._against(groups, flags)
        if self.standard is not None:
            used = [(weight, group) for weight, group in zip(self.standard, groups, strict=True) if weight]
            weights = [weight / sum(self.standard) * self.per for weight, _ in used]
            known = all(group.known for _, group in used)
            counted = [group for _, group in used]
            rows.append(
                STANDARDISED.estimate(*_combined(weights, [group.rate for group in counted], counted))
                if known
                else Estimate.unknown(STANDARDISED.name, (0.0, math.inf))
            )
        for name, group in zip(names, groups, strict=True):
            if group.events < 2 * group.noise_of_events:
                upper = group.interval(True)[1] * group.time if group.known else math.inf
                text = f"{name}: the noise hides how many events there are. Only an upper end is known"
                flags.append(Flag("few", text, (name,), upper if math.isfinite(upper) else None))
        terms = {row.term for row in rows}
        headline = next(([term.name] for term in (STANDARDISED, RATIO) if term.name in terms), names)
        return Estimates.of(
            rows,
            flags=tuple(flags),
            headline=tuple(headline),
            method="score interval of Fieller's form with the noise and the released squares, log scale for the ratio",
        )

    def _of_sites(self, released: Released, feature: Moments, names: list[str], sites: tuple[str, ...]) -> Estimates:
        across, count = AcrossSites.new(sites), len(sites)
        groups = [[_read(released, feature, group * count + site) for site in range(count)] for group in range(len(names))]
        rates = [_at_sites(own, self.per) for own in groups]
        for name, own in zip(names, rates, strict=True):
            across.add(name, own, (0.0, math.inf))
        if len(names) == 2:
            across.add(RATIO.name, differences(*(_at_sites(own, logs=True) for own in groups)), ratio=True)
            across.add(DIFFERENCE.name, differences(*rates), tested=True)
        return across.estimates((RATIO.name,) if len(names) == 2 else ())

    def _rate(self, name: str, group: _Group) -> Estimate:
        if not group.known:
            return Estimate.unknown(name, (0.0, math.inf))
        row = replace(Estimate.normal(name, *group.rate), low=0.0)
        return replace(row, of_noise=group.interval(False), of_population=group.interval(True)).times(self.per)

    def _against(self, groups: list[_Group], flags: list[Flag]) -> list[Estimate]:
        if not all(group.known for group in groups):
            return [RATIO.unknown, DIFFERENCE.unknown]
        parts = _combined([-self.per, self.per], [group.rate for group in groups], groups)
        difference = DIFFERENCE.estimate(*parts).tested(parts[-1])
        if all(group.enough_events for group in groups):
            return [RATIO.estimate(*_combined([-1.0, 1.0], [group.log for group in groups], groups)), difference]
        text = "a group has too few events for the noise. The difference is known, the rate ratio is not"
        flags.append(Flag("few-events", text, (RATIO.name,)))
        return [RATIO.unknown, difference]


def _combined(
    weights: Sequence[float], parts: Sequence[tuple[float, float, float]], groups: Sequence[_Group]
) -> tuple[float, float, float, float]:
    """A weighted sum of values of groups with their variances of noise and of sampling, and the degrees of freedom of both."""
    values, noises, samplings = np.array(parts).T
    squares = np.square(weights)
    own = (squares * samplings).tolist()
    noise, sampling = float(squares @ noises), sum(own)
    loose = sum(part**2 / group.degrees for part, group in zip(own, groups, strict=True) if part > 0)
    degrees = (noise + sampling) ** 2 / loose if loose > 0 else math.inf
    return float(np.dot(weights, values)), noise, sampling, degrees


def _at_sites(groups: list[_Group], per: float = 1.0, *, logs: bool = False) -> list[SiteEstimate]:
    """Rates of sites, or their logarithms, with variances of sampling at the rate of all: a site with few events by chance does
    not weigh more."""
    usable = [group.enough_events if logs else group.known for group in groups]
    known = [group for group, clear in zip(groups, usable, strict=True) if clear]
    if not known:
        return [UNKNOWN_SITE] * len(groups)
    events, time = sum(group.events for group in known), sum(group.time for group in known)
    # The rate of all sites together, and how many times the variance of events is that of a Poisson count.
    rate, part = max(events, 0.0) / time, sum(group.sampling for group in known) / events if events > 0 else 1.0
    sites = []
    for group, clear in zip(groups, usable, strict=True):
        if not clear:
            sites.append(UNKNOWN_SITE)
            continue
        value, noise, _ = group.log if logs else group.rate
        sampling = part / (rate * group.time) if logs else part * rate / group.time
        sites.append(SiteEstimate(value * per, noise * per**2, sampling * per**2))
    return sites


def _read(released: Released, feature: Moments, group: int) -> _Group:
    """Sums over all records of a group."""
    readers = _readers_of(feature, group) * released.weight
    sums = readers @ released.mean(feature)
    # The person-time of nobody is rounding.
    if released.mean(feature)[group * feature.block] * released.weight <= released.least:
        sums = np.zeros_like(sums)
    return _Group(sums, readers @ released.covariance(feature) @ readers.T)


def _readers_of(feature: Moments, group: int) -> Array:
    """Weights of the quantities, (5, size), in events, time, squares of events, products of both, and squares of time."""
    (_, events), (_, time), _ = feature.edges
    begin = group * feature.block
    unit, e, t, product, *squares = np.eye(feature.size)[begin : begin + feature.block]
    counted, observed = events.centre * unit + events.half * e, time.centre * unit + time.half * t

    def squared(vertex: Vertex, single: Array, square: Array) -> Array:
        square_of: Array = vertex.centre**2 * unit + 2 * vertex.centre * vertex.half * single + vertex.half**2 * square
        return square_of

    # An event that is there or not is its own square.
    square = counted if events.level is not None else squared(events, e, squares[0])
    both = events.centre * observed + events.half * (time.centre * e + time.half * product)
    return np.array([counted, observed, square, both, squared(time, t, squares[-1])])
