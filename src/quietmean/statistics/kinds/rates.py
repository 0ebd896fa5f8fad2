"""Incidence rates: events per person-time, in groups, with rate ratio and rate difference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import YES, Columns
from quietmean.statistics.estimates import Estimates, Flag, Z
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.fields import numbers_field
from quietmean.statistics.intervals import quadratic_set
from quietmean.statistics.kinds.sum import require_records
from quietmean.statistics.rows import Row, assembled, spread
from quietmean.statistics.statistic import Array, Feature, Released, Statistic

ALL, RATIO, DIFFERENCE, STANDARDISED = "all", "rate-ratio", "rate-difference", "standardised"
# Noise deviations that person-time must have, and events for a ratio.
_LEAST_TIME, _LEAST_EVENTS = 4.0, 3.0
# Person-time counts half as much as events in the encoding: events are rarer, and their noise decides.
_TIME_WEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class _Group:
    """Events and person-time, and the covariance of their noise, (2, 2)."""

    events: float
    time: float
    noise: Array

    @property
    def known(self) -> bool:
        return self.time > max(_LEAST_TIME * math.sqrt(max(self.noise[1, 1], 0.0)), 0.0)

    @property
    def rate(self) -> float:
        return self.events / self.time

    @property
    def noise_of_rate(self) -> float:
        return spread(np.array([1.0, -self.rate]) / self.time, self.noise)

    @property
    def sampling_of_rate(self) -> float:
        """Of a Poisson count."""
        return max(self.events, 0.0) / self.time**2

    def interval(self, sampling: bool) -> tuple[float, float]:
        """All r with (events - r time)^2 <= z^2 (r time + noise of events - r time): right for few events and uncertain time."""
        own, both, timed = self.noise[0, 0], self.noise[0, 1], self.noise[1, 1]
        square = self.time**2 - Z**2 * timed
        slope = -2 * self.events * self.time + Z**2 * (2 * both - (self.time if sampling else 0.0))
        low, high = quadratic_set(square, slope, self.events**2 - Z**2 * own)
        return max(low, 0.0), max(high, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rates(Statistic):
    """Events divided by person-time in each group of ``by``; of two groups also ``rate-ratio`` and ``rate-difference``, second
    against first. ``per`` multiplies: 1000 for events per 1000 units of time.

    ``events`` is a boolean column, or one of counts from 0 to a cap; ``time`` is one from 0 on. Intervals of the population
    assume that events are Poisson. With ``standard``, weights of the groups in their order, the term ``standardised`` is the
    rate of a population with these groups. A record without the group counts nowhere.
    """

    name = "rates"
    summary = "events per person-time, with rate ratio and standardised rate"
    by_place = ("events", "time")

    events: str = parameter(help="the boolean column of events, or one of counts from 0 on")
    time: str = parameter(help="the column of person-time, from 0 on")
    by: str | None = parameter(None, help="the column whose levels are the groups")
    per: float = parameter(1.0, help="units of time that a rate is for", above=0, remedy="choose a number > 0, such as 1000")
    standard: tuple[float, ...] | None = numbers_field(None, "weights of the groups in a standard population", "standard")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        if self.standard is not None:
            groups = 0 if self.by is None else len(columns.category(self.by).categories)
            if len(self.standard) != groups or min(self.standard) < 0 or sum(self.standard) <= 0:
                raise InputError(f"{self.text}: standard needs a weight >= 0 for each of {groups} groups, not all of them 0")
        return (self._moments(columns),)

    def _moments(self, columns: Columns) -> Moments:
        events, time = columns[self.events], columns.number(self.time)
        if not events.boolean and (not events.numeric or events.low != 0):
            raise InputError(f"column {self.events!r} must say whether, or how often, the event happened: boolean, or from 0 on")
        if time.low != 0:
            raise InputError(f"column {self.time!r} is person-time, but its lower bound is {time.low:g}: declare it from 0 on")
        if self.events == self.time:
            raise InputError(f"{self.text} names one column twice: name events, then time")
        vertices = Vertex(events, YES if events.boolean else None), Vertex(time)
        by = None if self.by is None else columns.category(self.by)
        return Moments(tuple((None, vertex) for vertex in vertices), (1.0, _TIME_WEIGHT), by)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        feature = self._moments(columns)
        names = [ALL] if feature.by is None else list(feature.by.categories)
        groups = [_read(released, feature, place) for place in range(len(names))]
        flags = [
            Flag("no-person-time", f"{name}: too little person-time for the noise, no rate")
            for name, group in zip(names, groups, strict=True)
            if not group.known
        ]
        rows = [self._rate(name, group) for name, group in zip(names, groups, strict=True)]
        if len(names) == 2:
            rows += self._against(groups, flags)
        if self.standard is not None:
            rows.append(self._standardised(groups))
        for name, group in zip(names, groups, strict=True):
            if group.events < 2 * math.sqrt(max(group.noise[0, 0], 0.0)):
                flags.append(Flag("few", f"{name}: the noise hides how many events there are, only an upper end is known"))
        return assembled(
            rows,
            flags=tuple(flags),
            method="Poisson events; score interval of Fieller's form with the noise, log scale for the ratio",
        )

    def _rate(self, name: str, group: _Group) -> Row:
        if not group.known:
            return Row.unknown(name, (0.0, math.inf))
        found = Row.normal(name, group.rate * self.per, group.noise_of_rate * self.per**2, group.sampling_of_rate * self.per**2)
        ends = [(low * self.per, high * self.per) for low, high in (group.interval(False), group.interval(True))]
        return replace(found, low=0.0, of_noise=ends[0], of_population=ends[1])

    def _against(self, groups: list[_Group], flags: list[Flag]) -> list[Row]:
        one, two = groups
        if not (one.known and two.known):
            return [Row.unknown(RATIO, (0.0, math.inf)), Row.unknown(DIFFERENCE)]
        errors = (math.sqrt(max(group.noise[0, 0], 0.0)) for group in groups)
        if any(group.events <= _LEAST_EVENTS * error for group, error in zip(groups, errors, strict=True)):
            flags.append(Flag("few-events", "a group has too few events for the noise: no rate ratio, the difference only"))
            ratio = Row.unknown(RATIO, (0.0, math.inf))
        else:
            slopes = [np.array([1 / group.events, -1 / group.time]) for group in groups]
            noise = sum(spread(slope, group.noise) for slope, group in zip(slopes, groups, strict=True))
            ratio = Row.ratio(RATIO, math.log(two.rate / one.rate), noise, 1 / one.events + 1 / two.events)
        noise, sampling = one.noise_of_rate + two.noise_of_rate, one.sampling_of_rate + two.sampling_of_rate
        difference = Row.normal(DIFFERENCE, (two.rate - one.rate) * self.per, noise * self.per**2, sampling * self.per**2)
        return [ratio, difference.tested()]

    def _standardised(self, groups: list[_Group]) -> Row:
        """The weighted mean of rates (direct standardisation)."""
        if self.standard is None or not all(group.known for group, one in zip(groups, self.standard, strict=True) if one):
            return Row.unknown(STANDARDISED, (0.0, math.inf))
        weights = np.array(self.standard) / sum(self.standard) * self.per
        used = [(weight, group) for weight, group in zip(weights.tolist(), groups, strict=True) if weight]
        return Row.normal(
            STANDARDISED,
            sum(weight * group.rate for weight, group in used),
            sum(weight**2 * group.noise_of_rate for weight, group in used),
            sum(weight**2 * group.sampling_of_rate for weight, group in used),
        )


def _read(released: Released, feature: Moments, place: int) -> _Group:
    """Events and person-time of a group, over all its records."""
    (_, events), (_, time) = feature.edges
    readers = np.zeros((2, feature.size))
    begin = place * feature.block
    readers[0, [begin, begin + 1]] = events.centre, events.half
    readers[1, [begin, begin + 2]] = time.centre, time.half
    readers *= released.weight
    found = readers @ released.mean(feature)
    return _Group(float(found[0]), float(found[1]), readers @ released.covariance(feature) @ readers.T)


STATISTIC = Rates
