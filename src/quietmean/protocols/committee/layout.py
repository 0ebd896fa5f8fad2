"""How a verified contribution is dealt: in bits, so that whatever these are, each number is one that it may be.

A number between a and b is a plus a sum of bits times 1, 2, 4, ... and a last weight, which give all of 0..b - a and nothing
else. Members check that what is dealt are bits; then ranges hold by themselves. A relation that bounds a sum of numbers has a
number of its own, dealt in bits as well, by which that sum is above its lower bound: members check that it is exactly that.
Of a single record products are checked, too (:mod:`~quietmean.protocols.committee.records`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.party import Units, Vector
from quietmean.core.statement import LinearRelation, StatedValue
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.records import RecordProducts, RelationSums
from quietmean.protocols.packed_sharing.packing import Residues, Wide, remainders
from quietmean.randomness import Seed

# What float64 may be off of a whole number of steps; bounds that are none are rounded outwards.
_SLACK = 1e-6
# Steps that rounding moves each number of a sum at most.
_ROUNDED = 1
# No number has more bits, as the sum of all has to fit the field.
MOST_BITS = 31


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of numbers in contributions of one kind and weight.

    ``lows``: of each number, shape (numbers,), of which ``dimension`` are summed, and the others belong to relations, first
    to sums and then to products. ``spans``: how far above these they reach.

    Of bit b, ``number[b]`` is the number it belongs to and ``weights[b]`` what it counts there; ``starts``: the first bit of each
    number. ``sums``: of the relations that bound a sum, each of which is 0 with the number of its own.
    ``records``: which numbers are those of a single record, and their products.
    """

    dimension: int
    lows: Ints = field(repr=False)
    spans: Ints = field(repr=False)
    number: Ints = field(repr=False)
    weights: Ints = field(repr=False)
    starts: Ints = field(repr=False)
    sums: RelationSums = field(repr=False)
    records: RecordProducts | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, lows: Ints, highs: Ints, relations: tuple[WholeRelation, ...] = (), records: RecordProducts | None = None
    ) -> Layout:
        """Return the layout of numbers between ``lows`` and ``highs``, shape (d,), with their ``relations`` and ``records``."""
        slack_lows = np.array([relation.low for relation in relations], dtype=np.int64)
        slack_highs = np.array([relation.high for relation in relations], dtype=np.int64)
        most = np.empty(0, dtype=np.int64) if records is None else records.counts - 1
        all_lows = np.concatenate([lows, slack_lows, np.zeros(len(most), dtype=np.int64)])
        all_highs = np.concatenate([highs, slack_highs, most])
        # A number with no choice would have no bit.
        spans = np.maximum(all_highs - all_lows, 1)
        weights = [_weights(int(span)) for span in spans]
        counts = np.array([len(weight) for weight in weights])
        dimension = len(lows)
        columns = [np.r_[relation.places, dimension + row] for row, relation in enumerate(relations)]
        factors = [np.r_[relation.coefficients, -1] for relation in relations]
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            dimension,
            all_lows,
            spans,
            np.repeat(np.arange(len(spans)), counts),
            np.concatenate(weights),
            np.concatenate([[0], np.cumsum(counts)[:-1]]),
            RelationSums(
                np.cumsum([0, *map(len, columns)])[:-1],
                np.concatenate([nothing, *columns]).astype(np.int64),
                np.concatenate([nothing, *factors]).astype(np.int64),
            ),
            records,
        )

    @property
    def bits(self) -> int:
        """How many polynomials a contribution has."""
        return len(self.weights)

    @property
    def slacks(self) -> int:
        """How many numbers belong to relations that bound a sum."""
        return len(self.sums)

    @property
    def relations(self) -> int:
        return self.slacks + (0 if self.records is None else len(self.records.relations))

    def of_contributor(self, seed: Seed) -> Layout:
        """The layout: that of the contributor of this public ``seed``: where there are products, each rounds them by
        numbers of its own."""
        return self if self.records is None else replace(self, lows=self.records.public_offsets(self.lows, seed))

    def of_record(self, value: Vector, numbers: Units, seed: Seed) -> Units:
        """The rounded ``numbers`` (d,) with those of records made anew from the exact ``value`` (d,), so that products hold."""
        if self.records is None:
            return numbers
        made = numbers.copy()
        made[self.records.places] = self.records.steps_of(self.records.levels_of(value, self.lows, self.spans, seed))
        return made

    def bits_of(self, numbers: Units) -> Units:
        """The bits, shape (bits,), of ``numbers``, shape (d,), each moved into its range first.

        Raises :class:`InputError` for numbers of which a relation does not hold.
        """
        levels = np.zeros(len(self.lows), dtype=np.int64)
        levels[: self.dimension] = numbers
        if self.records is not None:
            own = self.records.places
            levels[own] = (levels[own] - self.records.offset) // self.records.units
        summed = slice(self.dimension)
        levels[summed] = np.clip(levels[summed], self.lows[summed], self.lows[summed] + self.spans[summed])
        # Numbers of relations are 0 until here.
        levels[self.dimension : self.dimension + self.slacks] = self.sums.whole(levels)
        if self.records is not None:
            self.records.follow(levels, self.lows)
        above = levels - self.lows
        moved = self.records is not None and (self.records.steps_of(levels) != numbers[self.records.places]).any()
        if moved or (above < 0).any() or (above > self.spans).any():
            raise InputError("a value is not one that this study's records can have. Let the plan of the study encode them.")
        # The last weight counts where the others do not reach.
        position = np.arange(self.bits) - self.starts[self.number]
        ends = np.r_[self.starts[1:], self.bits] - 1
        reach = (np.int64(1) << (ends - self.starts)) - 1
        last = above > reach
        left = above - np.where(last, self.weights[ends], 0)
        dealt: Units = (left[self.number] >> position) & 1
        dealt[ends] = last
        return dealt

    def numbers_of(self, shares: Residues, prime: int) -> Wide:
        """Shares of all numbers, shape (numbers,), from those of their bits."""
        modulus = np.uint64(prime)
        weighed = remainders(self.weights.astype(np.uint64) * shares, prime)
        sums: Wide = (np.add.reduceat(weighed, self.starts, dtype=np.uint64) + (self.lows % prime).astype(np.uint64)) % modulus
        return sums

    def summed_of(self, shares: Residues, prime: int) -> Residues:
        """Shares of the numbers that are added up, shape (d,)."""
        numbers = self.numbers_of(shares, prime)[: self.dimension]
        if self.records is not None:
            own, units = self.records.places, self.records.units.astype(np.uint64)
            numbers[own] = (numbers[own] * units + np.uint64(self.records.offset)) % np.uint64(prime)
        summed: Residues = numbers.astype(np.uint32)
        return summed

    def broken_relations(self, numbers: Wide, prime: int) -> Residues:
        """What is 0 where relations hold, shape (relations,)."""
        sums = self.sums.modulo(numbers, prime)
        if self.records is not None:
            sums = np.concatenate([sums, self.records.broken(numbers, prime)])
        broken: Residues = sums.astype(np.uint32)
        return broken


@functools.lru_cache(maxsize=4096)
def _weights(span: int) -> Ints:
    """1, 2, 4, ... and a last one, of which the sums of subsets are all of 0..span."""
    count = span.bit_length()
    weights = np.int64(1) << np.arange(count, dtype=np.int64)
    weights[-1] = span - (int(weights[-1]) - 1)
    return weights


@dataclass(frozen=True, eq=False)
class WholeRelation:
    """A relation in whole steps: the sum of ``coefficients`` times dealt numbers lies between ``low`` and ``high``."""

    places: Ints
    coefficients: Ints
    low: int
    high: int


def stated_by(parameters: CommitteeParameters) -> StatedValue:
    """That each number lies in the region of the plan, and nothing else."""
    ones = np.ones(parameters.dimension)
    return StatedValue((parameters.centre - parameters.clip) * ones, (parameters.centre + parameters.clip) * ones)


def layout_of_noise(parameters: CommitteeParameters) -> Layout:
    """A dealing of noise: each number within 8 standard deviations."""
    most = np.full(parameters.dimension, parameters.largest_noise, dtype=np.int64)
    return Layout.of(-most, most)


def layout_of(parameters: CommitteeParameters, statement: StatedValue, weight: float) -> Layout:
    """A contribution of a public ``weight``, of which w times the statement holds.

    Raises :class:`InputError` where a relation has no room: modulo p it would hold for other numbers as well.
    """
    middle, shift = weight * parameters.centre / parameters.step, math.ceil(weight * parameters.clip / parameters.step)
    lows = np.floor(weight * statement.low / parameters.step - middle + _SLACK) + shift
    highs = np.ceil(weight * statement.high / parameters.step - middle - _SLACK) + shift
    lows, highs = (np.clip(bounds, 0, 2 * shift).astype(np.int64) for bounds in (lows, highs))
    # A number with no choice keeps one, inside the plan's range.
    lows = np.where((lows == highs) & (lows > 0), lows - 1, lows)
    relations = tuple(
        _whole(relation, weight / parameters.step, shift - middle, lows, highs, parameters.prime)
        for relation in statement.relations
    )
    if not statement.records:
        return Layout.of(lows, highs, relations)
    if weight != 1 or parameters.centre:
        raise InputError("products are those of a single record. Give largest_weight 1.")
    return _of_records(parameters, statement, lows, highs, relations)


def _of_records(
    parameters: CommitteeParameters, statement: StatedValue, lows: Ints, highs: Ints, relations: tuple[WholeRelation, ...]
) -> Layout:
    """``lows`` and ``highs``, of numbers that records do not have; ``relations``: of these."""
    offset = parameters.range // 2
    records = [(place, record.in_steps(parameters.step)) for place, record in statement.records]
    for place, record in records:
        own, units = slice(place, place + record.size), record.units
        lows[own], highs[own] = record.lows[: record.size], record.highs[: record.size]
        if (np.maximum(-lows[own], highs[own]) * units > offset).any():
            raise InputError("a number of a record is beyond the plan's range. Make a new plan.")
        # Of groups a record is in one.
        if len(record.indicators) > 1:
            ones = np.ones(len(record.indicators), dtype=np.int64)
            relations = (*relations, WholeRelation(place + record.indicators, ones, 0, 1))
    products = RecordProducts.of(records, len(lows) + len(relations), offset)
    layout = Layout.of(lows, highs, relations, products)
    products.require_room(layout.lows, layout.lows + layout.spans, parameters.prime)
    return layout


def _whole(relation: LinearRelation, scale: float, shift: float, lows: Ints, highs: Ints, prime: int) -> WholeRelation:
    """``scale``: steps in what means one in a unit's value; ``shift``: what is added to each number."""
    places, coefficients = relation.places, relation.coefficients
    moved, spare = float(coefficients.sum()) * shift, _ROUNDED * int(np.abs(coefficients).sum())
    low = math.floor(relation.low * scale + moved + _SLACK) - spare
    high = math.ceil(relation.high * scale + moved - _SLACK) + spare
    ends = np.array([coefficients * lows[places], coefficients * highs[places]])
    least, most = int(ends.min(axis=0).sum()), int(ends.max(axis=0).sum())
    if max(most - low, high - least) >= prime:
        raise InputError(
            f"a relation of {len(places)} numbers reaches {max(most - low, high - least)} steps, and there is room for {prime}. "
            "Take a larger step, or a smaller largest_weight."
        )
    return WholeRelation(places, coefficients, low, high)
