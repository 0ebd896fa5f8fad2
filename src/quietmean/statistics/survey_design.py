"""What a sample of weighted records says about its population: ratios and totals, with the variance of the design.

A term is a sum of ratios of weighted sums, each with a factor: of groups that no two share a record, so that a ratio, a total, a
difference of two groups and a mean after stratification are of one form. Variances of sampling are those of drawing with
replacement, linearised, by strata and by clusters where there are any, as in R's ``survey``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy import linalg
from quietmean.statistics.columns import Column
from quietmean.statistics.delta_method import NOTHING_PRESENT, slopes_of, smooth, spread
from quietmean.statistics.estimate import Estimate, Flag, few, least_count, satterthwaite
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock, Crossed
from quietmean.statistics.features.block import LEAST_PRESENT, Groups
from quietmean.statistics.features.weighted import Weighted
from quietmean.statistics.intervals import degrees_of_both
from quietmean.statistics.raking import raked
from quietmean.statistics.statistic import Feature, Released

# With fewer records nothing varies that could be seen, and all that they add is taken to.
_LEAST_DRAWN = 1.5
# Of half a record: parts of the cap may be small.
SMALL = 1e-6
NOT_SEEN = Flag("design-hidden", "the noise hides which clusters lie in which stratum. Nothing is known of a population")


@dataclass(frozen=True)
class SampleDesign:
    """How records were drawn: one by one from ``strata``, or in clusters ``psu``, or in clusters from strata.

    ``population``: how many units, or clusters, there were to draw from, in all or in each stratum.
    """

    strata: Column | None = None
    psu: Column | None = None
    population: tuple[float, ...] | None = None

    @property
    def divided(self) -> tuple[Column, ...]:
        """The columns by which records are divided."""
        return tuple(column for column in (self.strata, self.psu) if column is not None)

    @property
    def shape(self) -> tuple[int, int]:
        """How many strata there are, and into how many clusters each is divided: 1 where records were drawn one by one."""
        return tuple(1 if column is None else len(column.categories) for column in (self.strata, self.psu))  # type: ignore[return-value]

    @property
    def clustered(self) -> bool:
        return self.psu is not None

    @property
    def sizes(self) -> tuple[Feature, ...]:
        """What is known of all records: how many there are in each stratum, or which clusters lie in it."""
        return () if self.strata is None else (CellIndicators(tuple(Axis(column) for column in self.divided)),)


Part = tuple[float, Array, Array | None]


@dataclass(frozen=True, eq=False)
class Score:
    """A term: the sum over its parts of a factor times a ratio of sums of a record's quantities of ``own``, times its weight.

    A part is a factor, the weights of the quantities on top and those below, none for a total. Of two parts one is 0 in each
    record. ``counts``: are records counted, so that a ratio is a part of them? ``raked``: the public totals of each of several
    margins, whose cells the parts are.
    """

    term: str
    ends: tuple[float, float]
    own: Feature
    parts: tuple[Part, ...]
    weight: Column
    design: SampleDesign
    counts: bool = False
    raked: tuple[tuple[float, ...], ...] = ()

    @property
    def feature(self) -> Weighted:
        """What the estimate reads."""
        return Weighted(self.own, self.weight, squares=not self.design.clustered, needs=self.design.divided)

    @property
    def divided(self) -> Weighted:
        """What the variance reads: by strata or clusters, where there are any. Raises :class:`InputError` where none can be."""
        return replace(self.feature, inner=self._inner)

    @property
    def _inner(self) -> Feature:
        columns = self.design.divided
        if not columns:
            return self.own
        if isinstance(self.own, CellIndicators):
            return CellIndicators((*(Axis(column) for column in columns), *self.own.axes))
        if isinstance(self.own, ColumnBlock):
            by: Any = self.own.by
            for column in reversed(columns):
                by = column if by is None else Crossed(column, by)
            return replace(self.own, by=by)
        raise InputError("a condition on several columns has no strata and no psu. Leave them out.")

    def calibrated(self, margins: Sequence[Column], totals: tuple[float, ...]) -> Score:
        """The term after stratification: each record's weight times the public total of its level over the sum of weights there;
        of several margins after raking, so that the sums of weights are those of all levels of each.

        Raises :class:`InputError` where the quantities have no groups.
        """
        if isinstance(self.own, CellIndicators):
            own: Feature = CellIndicators((*(Axis(margin) for margin in margins), *self.own.axes))
            # A table has a cell for what is missing beside each column.
            more = 1
        elif isinstance(self.own, ColumnBlock) and self.own.by is None:
            *outer, last = margins
            by: Groups = last
            own, more = replace(self.own, by=reduce(_crossed, reversed(outer), by)), 0
        else:
            raise InputError("what is counted has no margin. Leave margin and totals out.")
        ((_, top, bottom),) = self.padded
        adds_up, size = self.parts[0][2] is None, self.own.size
        below = self.own.complete if adds_up else bottom
        levels = [len(margin.categories) for margin in margins]
        own_totals = [part.tolist() for part in np.split(np.array(totals), np.cumsum(levels)[:-1])]
        whole = math.fsum(own_totals[0])
        shares = [tuple(total if adds_up else total / whole for total in each) for each in own_totals]
        parts = []
        for cell in np.ndindex(*levels):
            place = int(np.ravel_multi_index(cell, [level + more for level in levels])) * size
            both = np.zeros((2, own.size))
            both[:, place : place + size] = top, below
            # The total of several margins' cell follows from what is released.
            parts.append((shares[0][cell[0]] if len(levels) == 1 else 1.0, both[0], both[1]))
        ends = tuple(end * (whole if adds_up else 1.0) for end in self.ends)
        several = tuple(shares) if len(levels) > 1 else ()
        return replace(self, own=own, parts=tuple(parts), ends=(ends[0], ends[1]), raked=several)

    @property
    def _begins(self) -> Ints:
        """Where the quantities of each group begin in those of :attr:`divided`, (groups,)."""
        strata, clusters = self.design.shape
        # A table has a cell for what is missing beside each column of the design.
        more = int(isinstance(self._inner, CellIndicators) and self.design.clustered)
        places = np.arange(strata)[:, None] * (clusters + more) + np.arange(clusters)
        return np.asarray(places.ravel() * self.own.size)

    @property
    def padded(self) -> list[tuple[float, Array, Array]]:
        """The parts, with all quantities."""

        def all_of(weights: Array | None) -> Array:
            own = np.zeros(self.own.size)
            own[: 0 if weights is None else len(weights)] = 0.0 if weights is None else weights
            return own

        return [(factor, all_of(top), all_of(bottom)) for factor, top, bottom in self.parts]

    @property
    def read(self) -> tuple[Array, Array]:
        """Weights of the quantities of ``feature`` in the means of u t and u b, and if there are squares in those of u^2 t^2,
        u^2 t b and u^2 b^2, for each part; and of those of ``divided`` in the same of each group, part after part."""
        feature, divided, begins = self.feature, self.divided, self._begins
        every, rows = [], []

        def in_groups(weights: Array) -> Array:
            own = np.zeros((len(begins), divided.inner.size))
            own[np.arange(len(begins))[:, None], begins[:, None] + np.arange(len(weights))] = weights
            return own

        for _, top, bottom in self.padded:
            every += [feature.of_parts(weights) for weights in (top, bottom)]
            rows += [divided.of_parts(in_groups(weights)) for weights in (top, bottom)]
            if feature.squares:
                products = [_product(self.own, *pair) for pair in ((top, top), (top, bottom), (bottom, bottom))]
                every += [feature.of_squares(product) for product in products]
                rows += [divided.of_squares(in_groups(product)) for product in products]
        return np.array(every), np.vstack(rows)


def _crossed(inner: Groups, outer: Column) -> Groups:
    return Crossed(outer, inner)


def _product(feature: Feature, first: Array, other: Array) -> Array:
    """Weights of the quantities in the product of two weighted sums of a record's, (size,) each."""
    if not isinstance(feature, ColumnBlock):
        # A record is in one cell.
        return first * other
    product = np.zeros((feature.groups, feature.size // feature.groups))
    one, two = (weights.reshape(product.shape).T for weights in (first, other))
    product[:, :3] = np.stack([one[0] * two[0], one[0] * two[1] + one[1] * two[0], one[1] * two[1]], axis=1)
    return product.ravel()


@dataclass(frozen=True, eq=False)
class Drawn:
    """A term as it was released; ``records``: how many there are, with those that a condition leaves out, NaN if not known."""

    released: Released
    score: Score
    records: float

    @property
    def design(self) -> SampleDesign:
        return self.score.design

    @cached_property
    def known(self) -> tuple[Array, Array]:
        """The sums by which :attr:`Score.read` says, then parts of records in groups; and the covariance of their noise."""
        sizes = self.design.sizes
        features = [self.score.feature, self.score.divided, *sizes]
        reads = [*self.score.read, *(self._of_sizes(feature) for feature in sizes)]
        places = np.concatenate([self.released.places[feature] for feature in features])
        rows: Array = np.asarray(linalg.block_diag(*reads), dtype=np.float64)
        return rows @ self.released.quantities[places], rows @ self.released.covariance_at(places, places) @ rows.T

    def _of_sizes(self, feature: Feature) -> Array:
        strata, clusters = self.design.shape
        more = int(self.design.clustered)
        places = (np.arange(strata)[:, None] * (clusters + more) + np.arange(clusters)).ravel()
        rows: Array = np.eye(feature.size)[places]
        return rows

    @cached_property
    def _seen(self) -> tuple[Array, Mask]:
        """How many records are in each group, (strata, clusters), and where there are more than the noise hides; of clusters
        alone all are there."""
        shape = self.design.shape
        if not self.design.sizes:
            return np.full(shape, self.records), np.ones(shape, dtype=np.bool_)
        sums, noise = self.known
        count = math.prod(shape)
        sizes, errors = (values[-count:] * self.released.weight for values in (sums, np.sqrt(np.maximum(np.diag(noise), 0.0))))
        least = least_count(LEAST_PRESENT, 1.0) * errors
        floor = self.released.least if self.design.clustered else _LEAST_DRAWN
        return sizes.reshape(shape), np.asarray(sizes > np.maximum(least, floor)).reshape(shape)

    @cached_property
    def drawn(self) -> Array:
        """How many records, or clusters, were drawn in each stratum, (strata,); NaN where that is not known."""
        sizes, seen = self._seen
        if self.design.clustered:
            return np.asarray(seen.sum(axis=1), dtype=np.float64)
        if not self.design.sizes:
            return np.array([self.records if self.records > _LEAST_DRAWN else math.nan])
        return np.where(seen[:, 0], sizes[:, 0], math.nan)

    @property
    def _unsampled(self) -> Array:
        """Which part of each stratum was not drawn, (strata,); 1 where it is not known of how many."""
        if self.design.population is None:
            return np.ones(self.design.shape[0])
        return np.asarray(np.maximum(1 - np.nan_to_num(self.drawn) / np.array(self.design.population), 0.0))

    def _by_part(self, sums: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sums (points, kinds) as those of each part, (points, parts, kinds), and of each group, (..., kinds, groups)."""
        kinds, parts = (5 if self.score.feature.squares else 2), len(self.score.parts)
        groups = math.prod(self.design.shape)
        every, rest = sums[:, : parts * kinds], sums[:, parts * kinds : parts * kinds * (1 + groups)]
        return every.reshape(len(sums), parts, kinds), rest.reshape(len(sums), parts, kinds, groups)

    def variance(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The variance of sampling as a function of the sums, (points, sums)."""
        number = self.released.weight
        every, by_group = self._by_part(sums)
        each: Any = np.zeros((len(sums), by_group.shape[-1]))
        own, whole = each, np.zeros(len(sums))
        values, sizes = self._readings(every)
        for place in range(len(self.score.parts)):
            total, group, value, size = every[:, place], by_group[:, place], values[:, place, None], sizes[:, place, None]
            each = each + (group[:, 0] - value * group[:, 1]) * size
            if self.score.feature.squares:
                square = size**2 / number
                own = own + (group[:, 2] - 2 * value * group[:, 3] + value**2 * group[:, 4]) * square
                whole = whole + ((total[:, 2:3] - 2 * value * total[:, 3:4] + value**2 * total[:, 4:5]) * square)[:, 0]
        if self.design.clustered:
            return self._of_clusters(each)[:, None]
        counted = sums[:, -len(self.drawn) :] * number if self.design.sizes else self.drawn[None]
        return self._of_records(each, own, whole, counted)[:, None]

    def _readings(self, every: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """What each part's records are compared with, and what multiplies their sums, (points, parts), from sums of each part."""
        if self.score.raked:
            return raked(every, self.score.raked)
        cap, factors = self.score.weight.high, np.array([factor for factor, _, _ in self.score.parts])
        if self.score.parts[0][2] is None:
            return np.zeros_like(every[..., 0]), np.broadcast_to(factors * self.released.weight * cap, every.shape[:2])
        return every[..., 0] / every[..., 1], factors / every[..., 1]

    def _of_clusters(self, each: NDArray[Any]) -> NDArray[Any]:
        """m / (m - 1) times the squares of the clusters' sums about their mean, in each stratum; one alone is as all are."""
        _, seen = self._seen
        each = each.reshape(len(each), *self.design.shape) * seen
        count = seen.sum(axis=1)
        alone = count == 1
        every = each.sum(axis=(1, 2)) / max(count.sum(), 1)
        middle = np.where(alone, every[:, None], each.sum(axis=2) / np.maximum(count, 1))
        squares = (((each - middle[:, :, None]) * seen) ** 2).sum(axis=2)
        factors = np.where(alone, 1.0, count / np.maximum(count - 1, 1)) * self._unsampled
        return np.asarray(squares @ factors)

    def _of_records(self, each: NDArray[Any], own: NDArray[Any], whole: NDArray[Any], counted: NDArray[Any]) -> NDArray[Any]:
        """n / (n - 1) times the squares about the mean in each stratum; ``counted``: how many records are in each."""
        unsampled, known = self._unsampled, ~np.isnan(self.drawn)
        usual = float(unsampled.mean())
        within = np.where(known, counted, 2.0)
        # Where nothing tells how many there are, all that they add varies. The squares of all together have less noise than
        # those of each: of these as little is taken as strata differ.
        factors = np.where(known, within / (within - 1), 1.0) * unsampled
        apart = (factors - usual) * own - np.where(known, factors * each**2 / within, 0.0)
        return np.asarray(usual * whole + apart.sum(axis=1))

    def _sampling(self, noise: float, effective: float) -> tuple[float, float]:
        """The variance of sampling, and the degrees of freedom of its sum with the noise; infinite where it is not known.

        ``effective``: as many records of equal weights say as much.
        """
        sums, covariance = self.known
        degrees = float(np.maximum(self.drawn - 1, 0.0).sum()) if self.design.clustered else effective - len(self.drawn)
        if self.design.clustered and degrees < 1:
            return math.inf, 1.0
        found = smooth(self.variance, sums, covariance)
        estimated, sampling = float(found.values[0]), max(float(found.values[0]), 0.0)
        if self.design.clustered:
            # The noise of the sums over clusters adds to their squares, more than is known of what these are without it.
            added = float(self.variance(sums[None])[0, 0].real) - estimated
            return sampling, degrees_of_both(noise, estimated, degrees, added)
        uncertain = sampling**2 / max(degrees, 1.0) + float(found.noise[0]) / 2
        return sampling, satterthwaite(noise + sampling, uncertain)

    @property
    def _not_seen(self) -> list[Flag]:
        hidden = self.design.clustered and float(np.maximum(self.drawn - 1, 0.0).sum()) < 1
        return [replace(NOT_SEEN, terms=(self.score.term,))] if hidden else []

    def estimate(self) -> tuple[Estimate, list[Flag], float]:
        """The term, what is said of it, and the degrees of freedom of its error."""
        return self._total() if self.score.parts[0][2] is None else self._ratios()

    def _total(self) -> tuple[Estimate, list[Flag], float]:
        """The sum of w t over the records."""
        sums, noise = self.known
        factor, term = self.released.weight * self.score.weight.high, self.score.term
        value, own = factor * float(sums[0]), factor**2 * max(float(noise[0, 0]), 0.0)
        sampling, degrees = self._sampling(own, math.inf if math.isnan(self.records) else self.records)
        ends = (self.score.ends[0] * factor, self.score.ends[1] * factor)
        row = Estimate.normal(term, value, own, sampling, ends, degrees)
        return row, [*self._few(row), *self._not_seen], degrees

    def _few(self, row: Estimate) -> list[Flag]:
        if not (self.score.counts and row.noise > 0):
            return []
        subject = self.score.term or ("the number" if row.high > 1 else "the part")
        return few(subject, row.value, row.noise, row.of_population[1], (self.score.term,))

    def _value(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The sum of all parts, each times its factor, (points, 1), from their sums (points, sums)."""
        every = sums.reshape(len(sums), len(self.score.parts), -1)
        return np.asarray((every[..., 0] * self._readings(every)[1]).sum(axis=1)[:, None])

    def _known_sizes(self, every: Array, noise: Array) -> Array:
        """By how much the sums below each ratio, or of each level of a margin, are above what noise hides."""
        kinds, parts = every.shape[1], len(every)
        at = np.arange(parts) * kinds + 1
        cells = np.eye(parts)
        if self.score.raked:
            shape = [len(totals) for totals in self.score.raked]
            grid = np.indices(shape).reshape(len(shape), -1)
            cells = np.vstack([np.equal.outer(np.arange(levels), own) for levels, own in zip(shape, grid, strict=True)]) * 1.0
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", cells, noise[np.ix_(at, at)], cells), 0.0))
        number, floor = self.released.weight, self.released.least * SMALL
        least = np.array([least_count(LEAST_PRESENT, error * number, floor) for error in errors.tolist()])
        return np.asarray(cells @ every[:, 1] * number - least)

    def _ratios(self) -> tuple[Estimate, list[Flag], float]:
        """The sum of ratios of w t to w b, each times its factor."""
        sums, noise = self.known
        term, ends, number = self.score.term, self.score.ends, self.released.weight
        every, _ = self._by_part(sums[None])
        # The least sum of parts of the cap that is more than rounding is small where the cap is far above most weights.
        if (self._known_sizes(every[0], noise) <= 0).any():
            return Estimate.unknown(term, ends), [replace(NOTHING_PRESENT, terms=(term,))], math.inf
        count = every[0].size
        value, slopes = float(self._value(sums[None, :count])[0, 0].real), slopes_of(self._value, sums[:count])[0]
        own = spread(slopes, noise[: len(slopes), : len(slopes)])
        # As many records of equal weights would say as much (Kish).
        square = 0.0 if self.design.clustered else float(every[0, :, 4].sum())
        effective = max(number * float(every[0, :, 1].sum()) ** 2 / square, 1.0) if square > 0 else 1.0
        sampling, degrees = self._sampling(own, effective)
        row = Estimate.normal(term, value, own, sampling, ends, degrees)
        if self.score.counts and not self.design.clustered and ends == (0.0, 1.0):
            inside = value * (1 - value)
            row = Estimate.proportion(term, value, own, inside / sampling if inside > 0 and sampling > 0 else effective)
        return row, [*(self._few(row) if row.low >= 0 and not self.design.clustered else []), *self._not_seen], degrees


def estimates_of(released: Released, scores: Sequence[Score], records: float) -> tuple[list[Estimate], list[Flag], list[float]]:
    """The terms, what is said of them, and the degrees of freedom of each; ``records``: as of :class:`Drawn`."""
    found = [Drawn(released, score, records).estimate() for score in scores]
    return [row for row, _, _ in found], [flag for _, flags, _ in found for flag in flags], [degrees for _, _, degrees in found]
