"""Kaplan-Meier curves from binned counts with noise, and what bins leave open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.statistics.estimates import monotone
from quietmean.statistics.features import Axis
from quietmean.statistics.tails import Z, tails

Places = Ints


@dataclass(frozen=True, eq=False)
class TimeBins:
    """Bins up to ``ends``, from the first time, 0 or another, which is a bin of its own, to the horizon: arrays (bins,).

    ``first`` and ``last``: between which times anyone who is in a bin left. ``numbers``: how many different times it may have
    been, infinite where times are no whole numbers. ``shown``: the last bin before each edge, (edges,); the last time, where a
    study often ends for all who are left, is a bin of its own beside the one that it ends.
    """

    ends: Array
    first: Array
    last: Array
    numbers: Array
    shown: Places

    @classmethod
    def of(cls, axis: Axis, edges: int) -> Self:
        """Make time bins from an axis with bins (a, b], whose edges are ``edges`` and, before the last one, that of its
        own bin.
        """
        ends = np.array(axis.edges)
        first, last, numbers = ends[:-1], ends[1:], np.full(len(ends) - 1, math.inf)
        if axis.column.whole:
            first, last = np.floor(first) + 1, np.floor(last)
            # A bin between two whole numbers is empty.
            numbers = np.maximum(last - first + 1, 1.0)
            first = np.minimum(first, last)
        elif len(ends) > edges:
            numbers[-1] = 1.0
        shown = np.append(np.arange(1, edges - 1), len(ends) - 1)
        ends, first, last = (np.concatenate([ends[:1], ends_from_1]) for ends_from_1 in (ends[1:], first, last))
        return cls(ends, first, last, np.concatenate([[1.0], numbers]), shown)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def times(self) -> Array:
        """The edges at which curves are known, (edges,)."""
        return self.ends[self.shown]

    @property
    def begins(self) -> Places:
        """The bins that begin at the edge before each of them, (edges,): from 1 on."""
        return np.arange(1, len(self.shown) + 1)

    @property
    def exact(self) -> bool:
        """Does each bin hold one time only? Then nothing is lost by counting."""
        return bool((self.numbers == 1).all())

    @property
    def share(self) -> Array:
        """For which part of a bin's events those who are last seen in it are at risk: all of one time, half of very many."""
        share: Array = (1 + 1 / self.numbers) / 2
        return share

    @property
    def middle(self) -> Array:
        """The mean time of events that are spread evenly."""
        return (self.first + self.last) / 2

    def within(self, bin_index: int, part: float) -> float:
        """When ``part`` of the events of a bin, above 0 and at most 1, have happened."""
        first, numbers = float(self.first[bin_index]), float(self.numbers[bin_index])
        if math.isinf(numbers):
            return first + part * float(self.last[bin_index] - first)
        return first + max(math.ceil(part * numbers - 1e-9), 1) - 1

    def until(self, count: int) -> TimeBins:
        """The first ``count`` of them."""
        return TimeBins(
            self.ends[:count], self.first[:count], self.last[:count], self.numbers[:count], self.shown[self.shown < count]
        )

    def halves(self) -> Places:
        """The place of each bin in half as many: two neighbours are one, and bins of time 0 and of the last time stay."""
        places: Places = np.where(np.arange(len(self)) > 0, (np.arange(len(self)) + 1) // 2, 0)
        if len(self) > len(self.shown) + 1:
            places[-1] = places[-2] + 1
        return places

    def joined(self, places: Places) -> TimeBins:
        """Bins that are several of these, by their places."""
        begins = np.searchsorted(places, np.arange(places[-1] + 1))
        ends = np.append(begins[1:], len(places)) - 1
        shown = np.unique(places[self.shown])
        numbers = np.add.reduceat(self.numbers, begins)
        return TimeBins(self.ends[ends], self.first[begins], self.last[ends], numbers, shown)


# A curve ends where fewer are at risk than this number, or than this many deviations of their noise.
_LEAST_AT_RISK, _LEAST_DEVIATIONS = 0.25, 5.0
# Up to this many times that threshold, which bins are shown depends on their noise.
_NEAR = 1.5
# The largest exponent of e within float64: from there on an interval is from 0 to 1.
_LARGEST_POWER = 700.0


@dataclass(frozen=True, eq=False)
class Curve:
    """One arm. ``events`` and ``censored``: counts by bin, (bins,); ``after``: who is still observed at the end.

    Who comes under observation late is one ``censored`` less in the bin of the entry, and one less ``after`` it where that is
    later: at risk from the next time on. ``entered``: how many there are by bin, (bins,); None where all are there from the first
    time.

    ``noise``: the covariance of the noise of events, censored and after, in this order, (2 bins + 1, 2 bins + 1). Those censored
    in a bin of one time are at risk for its events, those in a bin of many times for half of them.
    """

    bins: TimeBins
    events: Array
    censored: Array
    after: float
    noise: Array
    entered: Array | None = None

    @cached_property
    def counts(self) -> Array:
        """Events, censored and after: (2 bins + 1,)."""
        return np.concatenate([self.events, self.censored, [self.after]])

    @property
    def leaving(self) -> Array:
        """How many are last seen in each bin, (bins,)."""
        return self.events + self.censored + (0.0 if self.entered is None else self.entered)

    @cached_property
    def entering(self) -> Array:
        """How many are observed when each bin begins, (bins,)."""
        fewer = self.events + self.censored
        entering: Array = self.after + np.cumsum(fewer[::-1])[::-1]
        return entering

    @cached_property
    def risk_slopes(self) -> Array:
        """How the numbers at risk follow from events, censored and after: (bins, 2 bins + 1)."""
        bins = len(self.events)
        later = np.triu(np.ones((bins, bins)))
        return np.hstack([later, later - np.diag(1 - self.bins.share), np.ones((bins, 1))])

    @cached_property
    def at_risk(self) -> Array:
        """How many are at risk in each bin, (bins,)."""
        at_risk: Array = self.risk_slopes @ self.counts
        return at_risk

    @cached_property
    def risk_noise(self) -> Array:
        """Standard deviations of the noise of the numbers at risk, (bins,)."""
        variances = np.einsum("ip,pq,iq->i", self.risk_slopes, self.noise, self.risk_slopes)
        deviations: Array = np.sqrt(np.maximum(variances, 0.0))
        return deviations

    def bins_with(self, deviations: float) -> int:
        """The number of first bins in which at least this many noise deviations are at risk."""
        fewest = np.maximum(_LEAST_AT_RISK, tails().deviations(deviations) * self.risk_noise)
        # Without noise all may have the event: then nobody is at risk in the next bin.
        enough = (self.at_risk >= fewest) & (self.at_risk > self.events - fewest)
        return len(enough) if enough.all() else int(np.argmin(enough))

    @cached_property
    def usable(self) -> int:
        """The number of first bins in which enough are at risk."""
        return self.bins_with(_LEAST_DEVIATIONS)

    @cached_property
    def shown(self) -> Places:
        """The usable bins before edges."""
        return self.bins.shown[self.bins.shown < self.usable]

    @cached_property
    def near(self) -> Places:
        """The shown bins with so few at risk that they are known because noise happened to be in their favour, or nearly so."""
        risk, errors = self.at_risk[self.shown], self.risk_noise[self.shown]
        return self.shown[risk < _NEAR * tails().deviations(_LEAST_DEVIATIONS) * errors]

    @cached_property
    def survival(self) -> Array:
        """The part that survives the end of each usable bin. Unprojected: noise may make it rise."""
        d, a = self.events[: self.usable], self.at_risk[: self.usable]
        survival: Array = np.cumprod(1 - d / a, dtype=np.float64) + 0.0
        return survival

    @cached_property
    def falling(self) -> Array:
        """The nearest curve that never rises, and stays between 0 and 1, (usable,)."""
        nearest: Array = np.clip(monotone(self.survival, self.noise_errors, rises=False), 0.0, 1.0)
        return nearest

    def observed(self, most: float) -> list[float]:
        """How many of at most so many records are observed when each usable bin begins, but for single times: it never rises
        unless some come late."""
        begins = self.bins.begins[self.bins.begins < self.usable]
        variances = np.einsum("ip,pq,iq->i", self._observing[begins], self.noise, self._observing[begins])
        nearest = self.entering[begins]
        if self.entered is None:
            nearest = monotone(nearest, np.sqrt(np.maximum(variances, 0.0)), rises=False)
        return [float(number) for number in np.clip(nearest, 0.0, None if math.isnan(most) else most)]

    @property
    def _observing(self) -> Array:
        """How the numbers that are observed follow from events, censored and after: (bins, 2 bins + 1)."""
        bins = len(self.events)
        later = np.triu(np.ones((bins, bins)))
        return np.hstack([later, later, np.ones((bins, 1))])

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The limits of the curve of the same records without bins, at the end of each usable bin, but for noise.

        The lower one if all who are censored in a bin left before its events, and who entered came after them; the upper one if
        the other way round.
        """
        count = self.usable
        d, entering = self.events[:count], self.entering[:count]
        hidden, late = self.censored[:count], np.zeros(count)
        if self.entered is not None:
            late = np.where(self.bins.numbers[:count] == 1, 0.0, np.maximum(self.entered[:count], 0.0))
            hidden = hidden + self.entered[:count]
        hidden = np.where(self.bins.numbers[:count] == 1, 0.0, np.maximum(hidden, 0.0))
        fewest = np.maximum(entering - hidden, np.maximum(d, _LEAST_AT_RISK))
        low = np.cumprod(1 - d / fewest, dtype=np.float64)
        high = np.cumprod(1 - d / np.maximum(entering + late, np.maximum(d, _LEAST_AT_RISK)), dtype=np.float64)
        return np.minimum(low, self.survival), np.maximum(high, self.survival)

    @cached_property
    def extrapolated(self) -> Array:
        """The curve at the edges after the usable bins: never rising, without an interval.

        Empty if nothing is there to go on from.

        Each hazard is drawn towards the mean of the usable bins as if so many more had been at risk as make a bin usable: few
        at risk tell little, and a curve that went on level would say that nobody has the event any more.
        """
        count = self.usable
        if count == 0:
            return np.zeros(0)
        usual = max(float(self.events[:count].sum() / self.at_risk[:count].sum()), 0.0)
        weight = np.maximum(tails().deviations(_LEAST_DEVIATIONS) * self.risk_noise[count:], 1.0)
        # What is usual in a bin, not at one time.
        expected = weight * np.where(self._instant[count:], 0.0, usual)
        hazards = (self.events[count:] + expected) / (np.maximum(self.at_risk[count:], 0.0) + weight)
        later: Array = self.falling[-1] * np.cumprod(1 - np.clip(hazards, 0.0, 1.0), dtype=np.float64)
        return later[self.bins.shown[len(self.shown) :] - count]

    @property
    def _instant(self) -> Mask:
        """The bins of time 0 and, beside another one, of the last time."""
        instant: Mask = np.zeros(len(self.bins), dtype=np.bool_)
        instant[0] = True
        instant[len(self.bins.shown) + 1 :] = True
        return instant

    @cached_property
    def slopes(self) -> Array:
        """The gradient of survival by the counts, (usable, 2 bins + 1)."""
        count = self.usable
        d, a = self.events[:count], self.at_risk[:count]
        hazards = (d / a**2)[:, None] * self.risk_slopes[:count]
        hazards[np.arange(count), np.arange(count)] -= 1 / a
        return self._accumulated(hazards)

    def _accumulated(self, changes: Array) -> Array:
        """Changes of survival, (usable, m), from those of the part that survives each bin."""
        before, kept = 1.0, 1 - self.events[: self.usable] / self.at_risk[: self.usable]
        total, accumulated = np.zeros(changes.shape[1]), np.zeros_like(changes)
        for bin_index, part in enumerate(kept.tolist()):
            total = total * part + before * changes[bin_index]
            accumulated[bin_index], before = total, before * part
        return accumulated

    @cached_property
    def noise_covariance(self) -> Array:
        """The covariance of the noise of survival, (usable, usable)."""
        noise: Array = self.slopes @ self.noise @ self.slopes.T
        return noise

    @cached_property
    def sampling_covariance(self) -> Array:
        """Greenwood's, of survival, (usable, usable)."""
        hazards = self.events[: self.usable] / self.at_risk[: self.usable]
        variances = np.maximum(hazards * (1 - hazards), 0.0) / self.at_risk[: self.usable]
        by_bin = self._accumulated(np.eye(self.usable))
        covariance: Array = (by_bin * variances) @ by_bin.T
        return covariance

    @cached_property
    def noise_errors(self) -> Array:
        """Standard errors of the noise of survival, (usable,)."""
        errors: Array = np.sqrt(np.maximum(np.diag(self.noise_covariance), 0.0))
        return errors

    @cached_property
    def sampling_errors(self) -> Array:
        """Greenwood's standard errors, (usable,)."""
        errors: Array = np.sqrt(np.maximum(np.diag(self.sampling_covariance), 0.0))
        return errors

    def band(self, sampled: bool, quantile: float) -> Array:
        """The interval at each usable bin, (usable, 2), for the noise, or for noise and sampling; ``quantile``: of the noise.

        Sampling has its interval on the scale of log(-log S), the noise, which is normal on that of S, one of its own; their
        distances from the estimate are added in squares (Zou and Donner, Statistics in Medicine 27, 2008).
        """
        # Beyond 0 and 1 an interval of one point would look like certainty.
        survival, reach = np.clip(self.survival, 0.0, 1.0), quantile * self.noise_errors
        alone = np.column_stack([survival, survival])
        if sampled:
            both = zip(survival.tolist(), self.sampling_errors.tolist(), strict=True)
            alone = np.array([_log_log(*one) for one in both]).reshape(-1, 2)
        below, above = np.hypot(survival - alone[:, 0], reach), np.hypot(alone[:, 1] - survival, reach)
        ends: Array = np.clip(np.column_stack([survival - below, survival + above]), 0.0, 1.0)
        return ends

    def interval(self, sampled: bool) -> Array:
        """The band with what bins leave open beside it, (usable, 2)."""
        band, (low, high) = self.band(sampled, tails().quantile()), self.limits
        ends = np.column_stack([band[:, 0] - (self.survival - low), band[:, 1] + (high - self.survival)])
        inside: Array = np.clip(ends, 0.0, 1.0)
        return inside

    def joined(self, bins: TimeBins, join: Array) -> Curve:
        """The curve in other bins; ``join``: the matrix that makes their counts from these."""
        own = len(self.bins)
        entered = None if self.entered is None else join[len(bins) : -1, own:-1] @ self.entered
        return self.of_counts(bins, join @ self.counts, join @ self.noise @ join.T, entered)

    @classmethod
    def of_counts(cls, bins: TimeBins, counts: Array, noise: Array, entered: Array | None = None) -> Curve:
        """Make a curve from events, censored and after, (2 bins + 1,), and the covariance of their noise."""
        own = len(bins)
        return cls(bins, counts[:own], counts[own:-1], float(counts[-1]), noise, entered)

    def halved(self) -> Curve:
        """The curve in half as many bins."""
        return self.joined(*in_half_as_many(self.bins))


def up_to(bins: TimeBins, count: int) -> tuple[TimeBins, Array]:
    """The first ``count`` bins, and the matrix that makes their counts: who leaves later is observed after them."""
    join = np.zeros((2 * count + 1, 2 * len(bins) + 1))
    join[:count, :count] = join[count:-1, len(bins) : len(bins) + count] = np.eye(count)
    join[-1, count : len(bins)] = join[-1, len(bins) + count :] = 1.0
    return bins.until(count), join


def in_half_as_many(bins: TimeBins) -> tuple[TimeBins, Array]:
    """Half as many bins, and the matrix that makes their counts."""
    if not len(bins):
        return bins, np.eye(1)
    places = bins.halves()
    fewer = int(places[-1]) + 1
    by_bin = np.zeros((fewer, len(bins)))
    by_bin[places, np.arange(len(bins))] = 1.0
    join = np.zeros((2 * fewer + 1, 2 * len(bins) + 1))
    join[:fewer, : len(bins)] = join[fewer:-1, len(bins) : -1] = by_bin
    join[-1, -1] = 1.0
    return bins.joined(places), join


def _log_log(value: float, error: float) -> tuple[float, float]:
    """The interval of a part of survivors with a standard error."""
    if error == 0 or not 0 < value < 1:
        # No scale of logarithms: what a normal error allows.
        return value - Z * error, value + Z * error
    power = Z * error / (value * -math.log(value))
    reach = math.exp(min(power, _LARGEST_POWER))
    low: float = value**reach
    high: float = value ** (1 / reach)
    return low, high
