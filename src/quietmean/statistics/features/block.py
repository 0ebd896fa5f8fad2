"""Groups of records, and a column with its powers and missing values: as much noise as its bare mean."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.column_blocks import (
    BLOCK_NORM,
    BLOCK_SIZE,
    CUBE,
    FOURTH,
    MOST_JOINT,
    SPREAD,
    SQUARE,
    SQUARE_CENTRE,
    Blocks,
    JointGroups,
    block_diameter,
    block_in_steps,
)
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.statistics.columns import Column
from quietmean.statistics.estimate import Estimate, least_count, satterthwaite
from quietmean.statistics.influence_bounds import Around, MovedMoments
from quietmean.statistics.statistic import TOTAL, Feature, Records, Released, presence_of


@dataclass(frozen=True)
class Crossed:
    """Columns with levels as one: each level of the first with all of the second, which runs faster and may be crossed itself."""

    first: Column
    second: Groups

    @property
    def name(self) -> str:
        return f"{self.first.name}:{self.second.name}"

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(f"{category}:{other}" for category in self.first.categories for other in self.second.categories)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return self.first.name, *(self.second.names if isinstance(self.second, Crossed) else (self.second.name,))


Groups: TypeAlias = Column | Crossed


def complete_records(names: Iterable[str], by: Groups | None = None) -> Hashable:
    """The event of records that have a value in all of the named columns, and a level in those of the groups."""
    levels = () if by is None else by.names if isinstance(by, Crossed) else (by.name,)
    demanded = frozenset((*names, *levels))
    return ("complete", demanded) if demanded else TOTAL


def complete_in_groups(by: Groups | None, name: str, block: int) -> Array | None:
    """Weights (levels, size) of the first of the ``block`` quantities of each group, for each level of the named column."""
    if isinstance(by, Crossed) and name == by.first.name:
        levels = np.kron(np.eye(len(by.first.categories)), np.ones(len(by.second.categories)))
    elif by is not None and name == by.name:
        levels = np.eye(len(by.categories))
    else:
        return None
    weights: Array = np.kron(levels, np.eye(block)[0])
    return weights


def groups_of(records: Records, by: Groups) -> Array:
    """The place of each record's group, shape (rows,); NaN where a level is missing."""
    if isinstance(by, Crossed):
        return records[by.first.name] * len(by.second.categories) + groups_of(records, by.second)
    return records[by.name]


# Where squares of distances are taken: (x - a)^2 is not below 0 for any a, and the three see most of what is wrong.
_FROM = (-0.5, 0.0, 0.5)


def signs_of_powers(size: int, present: int, mean: int, square: int) -> Array:
    """Weights (4, size) of sums that are not below 0: of p (x - a)^2 for three a, and of p (1 - x^2).

    ``present``, ``mean`` and ``square``: where p, p x and p x^2 are in so many quantities; p is 0 or 1, x from -1 to 1.
    """
    rows = np.zeros((len(_FROM) + 1, size))
    for row, a in zip(rows, _FROM, strict=False):
        row[square], row[mean], row[present] = 1.0, -2 * a, a * a
    rows[-1, present], rows[-1, square] = 1.0, -1.0
    return rows


# The indicator of presence, up to which it costs nothing: sqrt(4 - 1.139) = 1.691 alone, sqrt(2 - 1.139) = 0.928 in groups.
WEIGHT_ALONE, WEIGHT_IN_GROUPS = 1.65, 0.9
# Of joint groups: sqrt(2 - 1.139) = 0.928, and of two sqrt(2 - 1.1225 - 0.2195) = 0.811.
WEIGHT_JOINT, WEIGHT_OF_TWO = 0.92, 0.8
# Where counts are private the indicator costs: a record is sqrt(w^2 + 1.139) long, and a mean m (in half widths of bounds) has
# the noise of that times sqrt(1 + m^2 / w^2): least for m = 0.5 at w = 0.73, and within 3 % of the least from m = 0.4 to 0.65.
WEIGHT_IF_PRIVATE = 0.73
# Rounding to a grid of steps of the scale's part h moves the moments' matrices by less than 4.1 h; those of an even spread have
# eigenvalues above 0.079: so large a part of it, for each h, keeps every rounded record a mixture.
# With parts for a number of two joint groups these are 10.3 h.
_MIXING, _MIXING_OF_TWO = 64.0, 136.0
_MOST_MIXING = 0.5


@dataclass(frozen=True)
class ColumnBlock(Feature):
    """A column z scaled to x in [-1, 1] as (w p, p x, 1.4 p (x^2 - 0.75), 1.5 p (x^3 - x), 1.5 p (x^4 - x^2)), p = 1 if present.

    Sensitivity 2, that of x alone. With ``by``, a column with levels, a record's block stands in the place of its group, and one
    without a group has none. Quantities, for each group: the means of p, p x, p x^2, p x^3 and p x^4.

    ``compared``: groups are compared with each other, and joint where there are few
    (:class:`~quietmean.core.column_blocks.JointGroups`). ``own_mean``: a party that is protected as a whole encodes the mean of
    its present values, instead of the mean of encodings: the spread is then that between parties. ``private``: with the
    indicator's weight for private counts.
    ``of_single_record``: each value is that of one record, of which all powers follow.
    """

    column: Column
    by: Groups | None = None
    own_mean: bool = False
    private: bool = False
    of_single_record: bool = False
    compared: bool = False

    @property
    def groups(self) -> int:
        return 1 if self.by is None else len(self.by.categories)

    @property
    def joint(self) -> bool:
        """Have the groups a part of their numbers in common?"""
        return self.compared and 2 <= self.groups <= MOST_JOINT and not (self.private or self.of_single_record)

    @property
    def _joined(self) -> JointGroups:
        return JointGroups.of(self.groups if self.joint else 1)

    @property
    def presence_weight(self) -> float:
        """What an indicator of presence counts, for half the width of the bounds as the unit."""
        if self.private:
            return WEIGHT_IF_PRIVATE
        if self.joint:
            return WEIGHT_OF_TWO if self.groups == 2 else WEIGHT_JOINT
        return WEIGHT_ALONE if self.by is None else WEIGHT_IN_GROUPS

    @property
    def size(self) -> int:
        return BLOCK_SIZE * self.groups

    @property
    def sensitivity(self) -> float:
        return block_diameter(self.groups, self.presence_weight, joint=self.joint)

    @property
    def length(self) -> float:
        return math.sqrt(self.presence_weight**2 + BLOCK_NORM)

    @property
    def most_nonzero(self) -> int:
        return self.size if self.joint else BLOCK_SIZE

    def for_private_count(self) -> ColumnBlock:
        return replace(self, private=True)

    def for_single_record(self, *, of_party: bool) -> ColumnBlock:
        return self if of_party and not self.own_mean else replace(self, of_single_record=True)

    @property
    def domain(self) -> InputDomain:
        return InputDomain(
            (
                Blocks(
                    groups=self.groups,
                    weight=self.presence_weight,
                    scale=1.0,
                    joint=self.joint,
                    products=self.of_single_record,
                ),
            )
        )

    @property
    def imputed(self) -> tuple[Column, ...]:
        return (self.column,) if self.column.fills_in and self.by is None else ()

    @property
    def complete(self) -> Array:
        return np.tile(np.eye(BLOCK_SIZE)[0], self.groups)

    def complete_in(self, by: str) -> Array | None:
        return complete_in_groups(self.by, by, BLOCK_SIZE)

    def encode(self, records: Records) -> Array:
        # A cell that counts as the middle is present.
        present = np.ones_like(records[self.column.name]) if self.imputed else records[presence_of(self.column.name)]
        scaled = (records[self.column.name] - self.column.centre) / (self.column.width / 2)
        block = self._block(np.clip(scaled, -1.0, 1.0), present)
        if self.by is None:
            return block
        groups = groups_of(records, self.by)
        placed = np.where(groups[:, None] == np.arange(self.groups), 1.0, 0.0)
        return self._joined.together(placed[:, :, None] * block[:, None, :]).reshape(len(block), self.size)

    def _block(self, x: Array, present: Array) -> Array:
        square = x * x
        # Products, which every machine rounds alike: powers are not.
        powers = (x, SQUARE * (square - SQUARE_CENTRE), CUBE * (x * square - x), FOURTH * (square * square - square))
        return np.column_stack([self.presence_weight * present, *(present * power for power in powers)])

    def of_party(self, records: Records) -> Array:
        if not self.own_mean:
            return super().of_party(records)
        present = records[presence_of(self.column.name)]
        counted = np.ones_like(present) if self.column.fills_in else present
        mean = float(records[self.column.name] @ counted) / max(float(counted.sum()), 1.0)
        some = np.array([float(counted.any())])
        return self.encode(
            {self.column.name: np.array([mean if some[0] else self.column.centre]), presence_of(self.column.name): some}
        )

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """A little of an even spread is mixed into each present value, so that what is rounded stays a mixture of encodings."""
        mixing, joined = self.mixing(scale, step), self._joined
        indicator = self._indicator(scale, step)
        blocks = joined.apart(scaled.reshape(len(scaled), self.groups, BLOCK_SIZE))
        present = blocks[:, :, :1] / (self.presence_weight * scale)
        # A party's mean may hold a small part of a group: more of it is mixed, and none is left of what rounding would drown.
        part = np.minimum(mixing / np.maximum(present, mixing), 1.0)
        mixed = ((1 - part) * blocks[:, :, 1:] + part * scale * present * SPREAD) * joined.part[1:]
        # Rounded down, the indicators of all groups together stay at most one.
        indicators = np.where(present >= mixing, np.floor(present * (indicator / step) * (1 + 1e-14)) * step, 0.0)
        rounded = np.where(present >= mixing, np.rint(mixed / step) * step, 0.0) + 0.0
        return joined.of_parts(np.concatenate([indicators, rounded], axis=2)).reshape(len(scaled), self.size)

    def response(self, scale: float, step: float) -> Array:
        if step and self.of_single_record:
            exact = block_in_steps(scale / step, self.presence_weight).response
            return np.asarray(np.kron(np.eye(self.groups), exact), dtype=np.float64)
        mixing, joined = self.mixing(scale, step), self._joined
        group = np.zeros((BLOCK_SIZE, BLOCK_SIZE))
        group[0, 0] = self._indicator(scale, step) / scale
        group[1, 1] = 1.0
        group[2, [0, 2]] = -SQUARE * SQUARE_CENTRE, SQUARE
        group[3, [1, 3]] = -CUBE, CUBE
        group[4, [2, 4]] = -FOURTH, FOURTH
        group[1:] *= 1 - mixing
        group[1:, 0] += mixing * SPREAD
        group[1] *= joined.part[1]
        every = np.kron(np.eye(self.groups), group)
        return np.asarray(joined.matrix @ every if self.joint else every, dtype=np.float64)

    def events(self) -> Mapping[Hashable, Array]:
        # Of a party's own mean the indicator says whether any of its records has a value, and not which part of them.
        if self.own_mean and not self.imputed:
            return {}
        demanded = () if self.imputed else (self.column.name,)
        return {complete_records(demanded, self.by): self.complete}

    def places_of(self, part: Feature) -> Ints:
        # What says no more than who has a value has the first of them.
        return np.arange(part.size)

    def never_negative(self) -> Array:
        return np.asarray(np.kron(np.eye(self.groups), signs_of_powers(BLOCK_SIZE, 0, 1, 2)), dtype=np.float64)

    def _indicator(self, scale: float, step: float) -> float:
        """The indicator of presence times the scale, or its part where groups are joint: on the grid."""
        exact = self.presence_weight * scale * float(self._joined.part[0])
        return float(np.floor(exact / step) * step) if step else exact

    def mixing(self, scale: float, step: float) -> float:
        """Which part of each value is replaced, so that rounded ones stay mixtures.

        Raises :class:`InputError` where too much would be.
        """
        mixing = (_MIXING_OF_TWO if self.joint and self.groups == 2 else _MIXING) * step / scale
        if mixing > _MOST_MIXING:
            raise InputError(
                f"the plan's grid of {step:g} is too coarse for the powers of column {self.column.name!r}. Give its statistics a "
                "larger share, or ask for fewer at once."
            )
        return mixing


# Noise deviations that the part of present values must have to be divided by.
LEAST_PRESENT = 4.0


@dataclass(frozen=True)
class Summary:
    """The present values of one group, in the column's units. ``noise_``: variances of the privacy noise on each.

    ``group``: its place, and ``shared`` (2, groups, 2): covariances of the noise of its mean and variance with those of all.

    ``variance`` is that with the divisor ``present`` - 1, without the noise's own part in it; 0 where the estimate is negative
    (``variance_estimate`` is not cut). ``fourth``: the central moment.
    """

    present: float
    mean: float
    noise_of_mean: float
    variance_estimate: float
    variance: float
    noise_of_variance: float
    fourth: float
    group: int = 0
    shared: Array = field(default_factory=lambda: np.zeros((2, 1, 2)), repr=False)

    def noise_with(self, other: Summary) -> Array:
        """The covariance of the noise of mean and variance of this group and of another one, (4, 4)."""
        pair = (self, other)
        noise: Array = np.block([[one.shared[:, each.group] for each in pair] for one in pair])
        noise[np.diag_indices(4)] = [value for one in pair for value in (one.noise_of_mean, one.noise_of_variance)]
        return noise

    @property
    def sampling_of_mean(self) -> float:
        """The variance of the mean of a random sample of as many values."""
        return self.variance / self.present

    @property
    def uncertainty_of_sampling(self) -> float:
        """Half the variance of ``sampling_of_mean``: it is estimated from as many values, with the noise in it."""
        return self.sampling_of_mean**2 / max(self.present - 1, 1.0) + self.noise_of_variance / (2 * self.present**2)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance of the mean, with noise and sampling (Satterthwaite)."""
        return satterthwaite(self.noise_of_mean + self.sampling_of_mean, self.uncertainty_of_sampling)

    @property
    def spread_is_known(self) -> bool:
        """Is the fourth moment above the square of the second, as it is for all data?"""
        return self.fourth > max(self.variance_estimate, 0.0) ** 2 - self.noise_of_variance

    @property
    def sampling_of_variance(self) -> float:
        """The variance of the variance of a sample: of any distribution, or a normal one if noise hides the fourth moment."""
        if self.spread_is_known:
            squared = max(self.variance**2 - self.noise_of_variance, 0.0)
            return max(self.fourth - squared, 0.0) / self.present
        return 2 * self.variance**2 / self.present

    def estimate_of_variance(self, term: str, largest: float) -> Estimate:
        """The variance as a term; where noise hides it, only an upper end is known."""
        noise = self.noise_of_variance
        estimate = Estimate.normal(term, self.variance_estimate, noise, self.sampling_of_variance, (0.0, largest))
        if not noise > 0:
            return replace(estimate, value=max(estimate.value, 0.0))
        if self.variance_estimate > 0:
            return estimate
        ends = [(0.0, high) for _, high in (estimate.of_noise, estimate.of_population)]
        return replace(estimate, value=math.nan, of_noise=ends[0], of_population=ends[1])


def estimate_of_mean(term: str, present: Summary | None, column: Column) -> Estimate:
    """The mean as a term; unknown where noise hides whether any value is present."""
    limits = (column.low, column.high)
    if present is None:
        return Estimate.unknown(term, limits)
    return Estimate.normal(term, present.mean, present.noise_of_mean, present.sampling_of_mean, limits, present.degrees)


def square_root(variance: Estimate, term: str) -> Estimate:
    """The standard deviation as a term, from the variance: ends of its intervals are the square roots of those of that."""
    value = math.sqrt(variance.value) if variance.value >= 0 else math.nan
    slope = 1 / (2 * value) if value > 0 else math.nan if variance.error > 0 else 0.0
    ends = [(math.sqrt(low), math.sqrt(high)) for low, high in (variance.of_noise, variance.of_population)]
    return Estimate(term, value, variance.noise * slope, variance.error * slope, 0.0, math.sqrt(variance.high), ends[0], ends[1])


def present_in(released: Released, feature: ColumnBlock, group: int = 0) -> tuple[float, float]:
    """How many values a group has (by its index), and the standard deviation of the noise in that."""
    count, error = released.weighted(feature, np.eye(feature.size)[BLOCK_SIZE * group])
    return count * released.weight, error * released.weight


def moved_block(around: Around, feature: ColumnBlock, group: int = 0) -> MovedMoments | None:
    """How far mean and variance of one group (by its index) move; see :meth:`MovedMoments.of`."""
    one, first, second = np.eye(feature.size)[BLOCK_SIZE * group : BLOCK_SIZE * group + 3]
    return MovedMoments.of(around, feature, np.array([[one, first], [first, second]]), grouped=feature.by is not None)


def summary(released: Released, feature: ColumnBlock, group: int = 0) -> Summary | None:
    """The summary of one group (by its index), or None where noise hides whether any value is present."""
    entries = slice(BLOCK_SIZE * group, BLOCK_SIZE * (group + 1))
    quantities, covariance = released.mean(feature)[entries], released.covariance(feature)[entries, entries]
    part = float(quantities[0])
    error = math.sqrt(max(covariance[0, 0], 0.0))
    if part * released.weight <= least_count(LEAST_PRESENT, error * released.weight, released.least):
        return None
    first, second, third, fourth = (quantities[1:] / part).tolist()
    # Gradients of the ratios to the present part, in half widths of the bounds.
    ratios = np.column_stack([-quantities[1:] / part**2, np.eye(BLOCK_SIZE - 1) / part])
    noise = ratios @ covariance @ ratios.T
    mean_noise = float(noise[0, 0])
    gradient = np.array([-2 * first, 1.0])
    variance_noise = float(gradient @ noise[:2, :2] @ gradient) + 2 * mean_noise**2
    slopes = [_slopes(released, feature, each) for each in range(feature.groups)]
    shared = np.array([slopes[group] @ released.covariance(feature) @ own.T for own in slopes]).transpose(1, 0, 2)
    present = released.weight * part
    unbiased = present / (present - 1) if present > 1 else 1.0
    variance = (second - first**2 + mean_noise) * unbiased
    # What noise adds to the fourth moment on average, to second order.
    bias = (6 * second - 18 * first**2) * mean_noise + 12 * first * float(noise[0, 1]) - 4 * float(noise[0, 2])
    central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4 - bias
    column, half = feature.column, feature.column.width / 2
    limit = max((1 - first) * (1 + first), 0.0) * unbiased
    return Summary(
        present=present,
        mean=column.centre + first * half,
        noise_of_mean=mean_noise * half**2,
        variance_estimate=variance * half**2,
        variance=min(max(variance, 0.0), limit) * half**2,
        noise_of_variance=variance_noise * unbiased**2 * half**4,
        fourth=central * half**4,
        group=group,
        shared=shared,
    )


def _slopes(released: Released, feature: ColumnBlock, group: int) -> Array:
    """The gradients of a group's mean and variance by the feature's quantities, (2, size); 0 where nothing is present."""
    entries = BLOCK_SIZE * group + np.arange(3)
    part, first, second = released.mean(feature)[entries].tolist()
    half, slopes = feature.column.width / 2, np.zeros((2, feature.size))
    if part > 0:
        mean, square = first / part, second / part
        slopes[0, entries[:2]] = -mean / part * half, half / part
        slopes[1, entries] = np.array([2 * mean**2 - square, -2 * mean, 1.0]) / part * half**2
    return slopes
