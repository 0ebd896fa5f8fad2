"""Contributions of a single record: products of its numbers, which follow from these and are checked, exact to the last step.

A product is q = M y + r for whole numbers, with 0 <= r + h < M for a public h of the contributor, and y is what is added up: the
floor of (q + h) / M, for which nobody has a choice. Over contributors h is uniform, so that y is right in the mean, whatever
values are frequent. All relations hold in whole numbers if they hold modulo p, since no side of one reaches p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import Units, Vector
from quietmean.core.statement import ProductRelation, WholeRecord
from quietmean.protocols.discrete import round_with
from quietmean.protocols.packed_sharing.packing import (
    Wide,
    uniform,
)
from quietmean.randomness import BitStream, Seed


@dataclass(frozen=True, eq=False)
class RelationSums:
    """The sums of relations, one for each: of ``factors`` times the numbers at ``columns``, from place ``begins`` on."""

    begins: Ints
    columns: Ints
    factors: Ints

    @classmethod
    def of(cls, sums: Sequence[Sequence[tuple[int, int]]]) -> Self:
        """Make terms of (column, factor), one or more of each relation."""
        lengths = [len(terms) for terms in sums]
        terms = np.array([term for sum_ in sums for term in sum_], dtype=np.int64).reshape(-1, 2)
        return cls(np.cumsum([0, *lengths[:-1]]), terms[:, 0], terms[:, 1])

    def __len__(self) -> int:
        return len(self.begins)

    def whole(self, numbers: Ints) -> Ints:
        """Return the sums of all numbers themselves, shape (relations,)."""
        return np.add.reduceat(self.factors * numbers[self.columns], self.begins)

    def modulo(self, numbers: Wide, prime: int) -> Wide:
        """Return the sums of shares or residues of all numbers, shape (relations,)."""
        modulus = np.uint64(prime)
        # 2^32 residues of 31 bits have a sum below 2^63.
        terms = (self.factors % prime).astype(np.uint64) * numbers[self.columns] % modulus
        sums: Wide = np.add.reduceat(terms, self.begins) % modulus
        return sums

    def range(self, lows: Ints, highs: Ints) -> tuple[list[int], list[int]]:
        """The least and the largest value of each, for numbers between these."""
        ends = np.array([self.factors * lows[self.columns], self.factors * highs[self.columns]])
        least, most = np.add.reduceat(ends.min(axis=0), self.begins), np.add.reduceat(ends.max(axis=0), self.begins)
        return least.tolist(), most.tolist()


@dataclass(frozen=True, eq=False)
class RecordProducts:
    """``places``: of the numbers that are added up and belong to records; each is ``units`` times its level, from ``offset`` on.

    ``free``: the places of levels that are given, each ``scales`` times a number of the value; ``indicators``: which of these
    are 0 or 1; ``levels``: which are at an end of their range, if present, one of each group of them at the upper end at most.
    ``low_digits``: the places of numbers that are not added up, with ``counts`` values each. ``relations``: in the
    order in which digits follow from them; each says ``first`` times ``second`` plus ``rest`` is 0.
    """

    places: Ints = field(repr=False)
    units: Ints = field(repr=False)
    offset: int
    free: Ints = field(repr=False)
    scales: Array = field(repr=False)
    indicators: Ints = field(repr=False)
    levels: tuple[Ints, ...] = field(repr=False)
    low_digits: Ints = field(repr=False)
    counts: Ints = field(repr=False)
    relations: tuple[ProductRelation, ...] = field(repr=False)
    first: RelationSums = field(repr=False)
    second: RelationSums = field(repr=False)
    rest: RelationSums = field(repr=False)

    @classmethod
    def of(cls, records: Sequence[tuple[int, WholeRecord]], begin: int, offset: int) -> Self:
        """``records``: where their numbers begin in those that are added up; ``begin``: where low digits do."""
        places, low_digits, free, scales, indicators, counts = [], [], [], [], [], []
        levels: list[Ints] = []
        relations: list[ProductRelation] = []
        for first, record in records:
            own = np.concatenate([first + np.arange(record.size), begin + np.arange(len(record.lows) - record.size)])
            begin += len(record.lows) - record.size
            places.append(own[: record.size])
            low_digits.append(own[record.size :])
            counts.append((record.highs - record.lows + 1)[record.size :])
            free.append(own[: record.size][record.scales > 0])
            scales.append(record.scales[record.scales > 0])
            indicators.append(own[record.indicators])
            levels += [own[list(group)] for group in record.levels]
            relations += [_moved(relation, own.tolist()) for relation in record.relations]
        rest = [[*relation.added.items(), *((place, -radix) for place, radix in relation.digits)] for relation in relations]
        return cls(
            np.concatenate(places),
            np.concatenate([record.units for _, record in records]),
            offset,
            np.concatenate(free),
            np.concatenate(scales),
            np.concatenate(indicators),
            tuple(levels),
            np.concatenate(low_digits),
            np.concatenate(counts),
            tuple(relations),
            RelationSums.of([list(relation.first.items()) for relation in relations]),
            RelationSums.of([list(relation.second.items()) for relation in relations]),
            RelationSums.of(rest),
        )

    def require_room(self, lows: Ints, highs: Ints, prime: int) -> None:
        """Raises :class:`InputError` unless all relations hold only if they do modulo ``prime``, for numbers in these ranges."""
        # Whichever public h low digits are moved by.
        lows = lows.copy()
        lows[self.low_digits] = 1 - self.counts
        (low, high), (least, most), (below, above) = (sums.range(lows, highs) for sums in (self.first, self.second, self.rest))
        for row in range(len(self.relations)):
            corners = [end * other_end for end in (low[row], high[row]) for other_end in (least[row], most[row])]
            reach = max(-(min(corners) + below[row]), max(corners) + above[row])
            if reach >= prime:
                raise InputError(
                    f"a product reaches {reach} on the plan's grid, and there is room for {prime}. Leave products out, or ask "
                    "for fewer statistics."
                )

    def broken(self, numbers: Wide, prime: int) -> Wide:
        """What is 0 where relations hold, of residues or shares of all numbers; shape (relations,)."""
        first, second, rest = (sums.modulo(numbers, prime) for sums in (self.first, self.second, self.rest))
        broken: Wide = (first * second + rest) % np.uint64(prime)
        return broken

    def public_offsets(self, lows: Ints, seed: Seed) -> Ints:
        """The ``lows`` of all numbers with those of low digits of one contributor, whose public ``seed`` it is."""
        moved = lows.copy()
        moved[self.low_digits] -= uniform(BitStream(seed), len(self.counts), _OFFSETS).astype(np.int64) % self.counts
        return moved

    def levels_of(self, value: Vector, lows: Ints, spans: Ints, seed: Seed) -> Ints:
        """The levels of a record whose ``value`` (d,) this is, all others 0: given ones are rounded at random, others follow."""
        levels = np.zeros(len(lows), dtype=np.int64)
        drawn = round_with(BitStream(seed), value[self.free] * self.scales)
        levels[self.free] = np.clip(drawn, lows[self.free], (lows + spans)[self.free])
        exact = dict(zip(self.free.tolist(), (value[self.free] * self.scales).tolist(), strict=True))
        levels[self.indicators] = [exact[place] > _PRESENT for place in self.indicators.tolist()]
        for group in self.levels:
            # None of them, or the one that has most of a mixture.
            most = max(group.tolist(), key=exact.__getitem__)
            levels[group] = lows[group]
            levels[most] += spans[most] if exact[most] > 0 else 0
        for relation in self.relations:
            if not relation.digits and _value(relation, levels):
                # Nothing that a record can be: what is not present is 0.
                levels[list(relation.first)] = 0
        self.follow(levels, lows)
        return levels

    def follow(self, levels: Ints, lows: Ints) -> None:
        """Put in all digits, where ``levels`` of all numbers has those that are given."""
        for relation in self.relations:
            if not relation.digits:
                continue
            left = _value(relation, levels)
            for (place, radix), (_, above) in pairwise(relation.digits):
                count, low = above // radix, int(lows[place])
                levels[place] = (left - low) % count + low
                left = (left - int(levels[place])) // count
            levels[relation.digits[-1][0]] = left

    def steps_of(self, levels: Ints) -> Units:
        """What is added up of records, shape (places,)."""
        steps: Units = levels[self.places] * self.units + self.offset
        return steps


# An indicator is 0 or 1, or of a mixture of records something between.
_PRESENT = 0.5
# Public numbers are drawn modulo this prime, 2^31 - 1, and then modulo the number of a digit's values.
_OFFSETS = 2**31 - 1


def _moved(relation: ProductRelation, places: list[int]) -> ProductRelation:
    """Return the relation of numbers that are at other places."""

    def at(terms: Mapping[int, int]) -> dict[int, int]:
        return {places[place]: factor for place, factor in terms.items()}

    digits = tuple((places[place], radix) for place, radix in relation.digits)
    return ProductRelation(at(relation.first), at(relation.second), at(relation.added), digits)


def _value(relation: ProductRelation, levels: Ints) -> int:
    def total(terms: Mapping[int, int]) -> int:
        return sum(factor * int(levels[place]) for place, factor in terms.items())

    return total(relation.first) * total(relation.second) + total(relation.added)
