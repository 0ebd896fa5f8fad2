"""Bins of times (a, b]: what is public about when those in a bin had their event or were last seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.statistics.features import Axis

Places = Ints


@dataclass(frozen=True, eq=False)
class TimeBins:
    """Bins up to ``ends``, from time 0, which is a bin of its own, to the horizon: arrays of shape (bins,).

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
        """From an axis with bins (a, b], whose edges are ``edges`` and, before the last one, that of its own bin."""
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
        ends, first, last = (np.concatenate([[0.0], ends_from_1]) for ends_from_1 in (ends[1:], first, last))
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
        """For each bin its place in half as many: two neighbours are one, and bins of time 0 and of the last time stay."""
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
