"""All statistics of a study at once: from records to one bounded vector, from the mean of vectors to estimates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import MEAN_OF_ROWS, CountVisibility, Neighbouring, PrivacyUnit, counted_text, in_words_of
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.party import Vector
from quietmean.statistics.answers import Answer
from quietmean.statistics.coding import Decoder, Encoded, Groups, strange_cells, sums_of, with_sources
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.conditions import by_columns
from quietmean.statistics.domains import domain_of_sums, scaled_domain
from quietmean.statistics.estimate import Flag, merged
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.first_look import CUT
from quietmean.statistics.persons import Grouped, in_rows
from quietmean.statistics.question_texts import declared_texts
from quietmean.statistics.questions import asked_in
from quietmean.statistics.statistic import (
    Feature,
    Records,
    Released,
    Statistic,
)
from quietmean.statistics.subgroups import DeclaredStatistic

NOBODYS = Flag("nothing-present", "No party has a record of this. Nothing is known.")
_UNTESTED = Flag(
    "untested", "the rows of one person depend on each other, so nothing is tested. Choose rows first or last for a test"
)
_CUT = "bounds of a first look may cut values that matter. Intervals are of clipped values"
Rows: TypeAlias = Array | Grouped | Groups | Iterable[Array | Grouped]
_DEPENDENT = "the rows of one person are not independent, so nothing is said about a population"


@dataclass(frozen=True, eq=False)
class Workload:
    """Statistics of declared columns that are answered from one vector.

    The vector is that of all features, each scaled so that its sensitivity is the square root of its share of the budget: one
    noise level serves all. Sensitivity, under replacement of one unit: the square root of the sum of all shares. Where ``count``
    is private it is that under add-remove, by the lengths of encodings instead of their distances, and every party has the same
    public weight, ``most_records``, whatever its number of records: as if the others were empty, and encoded as zero. ``rows``:
    which of a person's rows count, where that is the unit; ``sites_per_person``: at how many parties one person is at most, an
    assumption. Sums of k rows, and persons at several parties, change by as many times as much. ``products``: each value is one
    record's, with numbers that products determine; others are then encoded for no grid. ``these_records``: answers
    are about no others, so that noise alone counts, and nothing is tested. ``cut``: columns whose bounds may cut much.

    Raises :class:`InputError` for a private count where a whole party is the unit, for sums of a person's rows where counts are
    public, and for a statistic of one row a person that is asked of several.
    """

    columns: Columns
    statistics: tuple[Statistic, ...]
    unit: PrivacyUnit
    # Of the statistics, in their order, where they are not those that they declare.
    allocated: tuple[float, ...] | None = None
    count: CountVisibility = CountVisibility.PUBLIC
    most_records: int = 1
    rows: str | int = MEAN_OF_ROWS
    sites_per_person: int = 1
    products: bool = False
    these_records: bool = False
    cut: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.of_persons:
            self._require_possible_rows()
        if self.hides_count and self.unit == PrivacyUnit.PARTY:
            raise InputError(
                "count is private, but the unit is party, where each party counts once. Choose unit record, or leave it out."
            )
        texts = [statistic.text for statistic in self.statistics]
        for text in texts:
            if texts.count(text) > 1:
                raise InputError(f"statistic {text} is asked for twice. Ask once, with a larger share if it matters more.")

    def _require_possible_rows(self) -> None:
        if self.adds_rows and not self.hides_count:
            raise InputError(
                f"rows = {self.rows} adds up a person's rows, and a public number of rows would tell how many one has. Give "
                "count private, or rows mean, first or last."
            )
        one_row = [statistic.text for statistic in self.statistics if statistic.one_row]
        if one_row and (self.adds_rows or self.averages_rows):
            raise InputError(
                f"{one_row[0]} holds for one row a person, and rows = {self.rows} takes several. Give rows first or last."
            )

    @property
    def of_persons(self) -> bool:
        return self.unit == PrivacyUnit.PERSON

    @property
    def averages_rows(self) -> bool:
        """Does each of a person's rows count with 1 over their number?"""
        return self.of_persons and self.rows == MEAN_OF_ROWS

    @property
    def adds_rows(self) -> bool:
        """Are several rows of a person added up?"""
        return self.of_persons and isinstance(self.rows, int)

    @property
    def changes(self) -> int:
        """How many times as much as a record one unit changes in the vectors of all parties together."""
        if not self.of_persons:
            return 1
        return self.sites_per_person * (self.rows if isinstance(self.rows, int) else 1)

    def units_in(self, records: Array | Grouped) -> int:
        """How many records there are, or persons, or rows of persons where these are added up."""
        return len(records.values if isinstance(records, Grouped) and self.adds_rows else records)

    @property
    def counted(self) -> str:
        """What public weights count, in words."""
        return counted_text(self.unit, self.rows)

    @property
    def hides_count(self) -> bool:
        """Is it private how many records a party has?"""
        return self.count == CountVisibility.PRIVATE

    @property
    def neighbouring(self) -> Neighbouring:
        """What the sensitivity is about."""
        return Neighbouring.ADD_REMOVE if self.hides_count else Neighbouring.REPLACEMENT

    @cached_property
    def declared(self) -> Columns:
        """The columns, with the unit that is protected."""
        return Columns(self.columns, self.unit)

    def with_columns(self, statistic: Statistic) -> DeclaredStatistic:
        """A statistic of the declared columns."""
        return DeclaredStatistic(statistic, self.declared)

    @cached_property
    def shares(self) -> dict[Feature, float]:
        """The features that statistics ask for, each once, and their shares of the budget.

        A statistic's share is that of all its features together; features that several ask for have the sum.
        """
        shares: dict[Feature, float] = {}
        for place, statistic in enumerate(self.statistics):
            with asked_in(statistic, [*self.columns], partial(declared_texts, self.columns)):
                declared = self.with_columns(statistic)
                share = self.allocated[place] if self.allocated else declared.total_share
                parts = declared.parts
            for feature, part in parts.items():
                shares[feature] = shares.get(feature, 0.0) + share * part
        return shares

    @cached_property
    def _joined(self) -> dict[Hashable, Feature]:
        """What is released instead of the features of each family."""
        families: dict[Hashable, dict[Feature, float]] = {}
        for feature, share in self.shares.items():
            if (family := feature.family()) is not None:
                families.setdefault(family, {})[feature] = share
        return {family: type(next(iter(weights))).joined(weights) for family, weights in families.items()}

    @cached_property
    def _including(self) -> dict[Feature, Feature]:
        """What is released anyway and includes a feature that is asked for."""
        pairs = itertools.permutations(self.shares, 2)
        return {feature: other for feature, other in pairs if feature.included_in(other)}

    def whole(self, feature: Feature) -> Feature:
        """The released feature that includes one that a statistic asks for."""
        family = feature.family()
        joined = self._including.get(feature, feature) if family is None else self._joined[family]
        joined = joined.for_private_count() if self.hides_count else joined
        return joined.for_single_record(of_party=not self.unit.within_party) if self.products else joined

    def _change(self, feature: Feature) -> float:
        """What one unit changes in a released feature, L2: its sensitivity, or its length where counts are private."""
        return feature.length if self.hides_count else feature.sensitivity

    @cached_property
    def scales(self) -> dict[Feature, float]:
        """The released features, and the factor that each has in the vector."""
        shares: dict[Feature, float] = {}
        for feature, share in self.shares.items():
            released = self.whole(feature)
            shares[released] = shares.get(released, 0.0) + share
        # A joined feature has its shares in it, as far as distances go.
        as_it_is = set() if self.hides_count else {self.whole(joined) for joined in self.shares if joined.family() is not None}
        return {name: 1.0 if name in as_it_is else math.sqrt(share) / self._change(name) for name, share in shares.items()}

    def budget_part(self, statistic: Statistic) -> float:
        """Which part of the squared sensitivity the features of a statistic use, from 0 to 1; others may use them, too."""
        used = dict.fromkeys(self.whole(feature) for feature in self.with_columns(statistic).features)
        return sum((self.scales[feature] * self._change(feature)) ** 2 for feature in used) / self.sensitivity_of_record**2

    @property
    def dimension(self) -> int:
        """Coordinates of the vector."""
        return sum(feature.size for feature in self.scales)

    @property
    def sensitivity(self) -> float:
        """L2 change of a party's vector when one unit (a record, a person, or all of a party) is replaced; where counts are
        private, when one is added or removed. For persons at several parties: of all their vectors together, added up."""
        return self.changes * self.sensitivity_of_record

    @property
    def l1(self) -> float:
        """At least the L1 change where :attr:`sensitivity` is the L2 one: of every feature times its scale, added up."""
        own = ((feature.l1_length if self.hides_count else feature.l1) * scale for feature, scale in self.scales.items())
        return self.changes * math.fsum(own)

    @property
    def rounded(self) -> int | None:
        """How many numbers rounding to a grid may change by one more step each, of all vectors that one unit changes.

        0 where every unit is rounded by itself, which makes no distance longer; said of units at one party, so that a protocol
        that rounds all the same knows how much. None for every number of one vector.
        """
        if self.sites_per_person > 1:
            return self.sites_per_person * self.dimension
        alone = self.unit.within_party and not self.averages_rows
        return 0 if alone and all(feature.is_whole for feature in self.scales) else None

    @cached_property
    def sensitivity_of_record(self) -> float:
        """The L2 change of a vector for one record, or for all of a party where that is the unit."""
        return math.sqrt(sum((scale * self._change(feature)) ** 2 for feature, scale in self.scales.items()))

    @cached_property
    def domain(self) -> InputDomain:
        """Where the vector of one record, or of one party's mean, lies; its diameter is the sensitivity at most.

        Raises :class:`InputError` for a feature whose domain is wider than its sensitivity.
        """
        scaled = domain_of_sums if self.hides_count else scaled_domain
        return InputDomain.product([scaled(feature, scale) for feature, scale in self.scales.items()])

    def is_stated_in_full(self, statistic: Statistic) -> bool:
        """Is what a statistic reads of a contribution the sum of as many records, once its bounds and relations hold?"""
        features = [self.whole(feature) for feature in self.with_columns(statistic).features]
        return not self.hides_count and all(feature.domain.is_stated_in_full for feature in features)

    def encode(self, records: Rows, *, step: float = 0.0, vectors: Callable[[Array], Array] | None = None) -> Encoded:
        """A party's vector from its ``records``, shape (rows, columns), in the units of the columns; NaN where one is missing.

        They may come in pieces, which make no difference to the vector: where records are protected, few are in memory at a time.
        Where persons are, pieces are of whole persons (:class:`~quietmean.statistics.persons.Grouped`).
        Nothing about the values, or their number, decides whether a study goes on. Those outside the bounds are moved to the
        nearest bound, and what counts in place of a missing one is fixed; no record is a zero vector, or where a party is
        protected as a whole one of missing values. ``step``: that of the plan's grid, to which each unit is rounded before
        anything is added up, so that the sensitivity holds to the last bit; 0 for none. ``vectors``: makes each record's.
        """
        if isinstance(records, Groups):
            return self._encoded(*sums_of(self, records, step))
        pieces = [records] if isinstance(records, np.ndarray | Grouped) else records
        total, count, outside, missing = np.zeros(self.dimension), 0, 0, 0
        whole: list[Array] = []
        for piece in in_rows(pieces):
            grouped, rows = (piece, piece.values) if isinstance(piece, Grouped) else (None, piece)
            if (grouped is not None) != self.of_persons:
                raise InputError("rows of persons need to be known by person, and only they. Read the data for this study.")
            here = strange_cells(self, rows, np.ones(len(rows), dtype=np.int64)).sum(axis=1)
            outside, missing = outside + int(here[0]), missing + int(here[1])
            count += self.units_in(piece)
            if grouped is not None:
                total += self.of_person(grouped, step=step).sum(axis=0)
            elif self.unit.within_party:
                # Whole multiples of a power of two: their sum is exact.
                total += self.sums(rows, np.ones(len(rows)), step=step) if vectors is None else vectors(rows).sum(axis=0)
            else:
                whole.append(rows)
        if self.unit.within_party:
            return self._encoded(total, count, outside, missing)
        inside = self.inside(np.vstack(whole) if whole else np.full((1, len(self.columns)), np.nan))
        means = [feature.of_party(inside) * scale for feature, scale in self.scales.items()]
        return self._encoded(self._rounded(means, step)[0], count, outside, missing)

    def _encoded(self, total: Vector, count: int, outside: int, missing: int) -> Encoded:
        beyond = max(count - self.most_records, 0) if self.hides_count else 0
        return Encoded(total, self.weight_of(count), outside, missing, beyond)

    def weight_of(self, count: int) -> float:
        """The public weight of a party that has so many units."""
        if not self.unit.within_party:
            return 1.0
        return float(self.most_records if self.hides_count else count)

    def of_person(self, grouped: Grouped, *, step: float = 0.0) -> Array:
        """The vector of each person by itself, shape (persons, d): no two are further apart than the sensitivity, at one party.

        Each is rounded after its rows were averaged: rounded before, it would depend on how many they are. Raises
        :class:`InputError` for more rows than one person may have.
        """
        if self.averages_rows:
            inside = self.inside(grouped.values)
            means = [grouped.means(feature.encode(inside)) * scale for feature, scale in self.scales.items()]
            return self._rounded(means, step)
        if grouped.counts.max(initial=0) > (self.rows if isinstance(self.rows, int) else 1):
            raise InputError(f"a person has more rows than rows = {self.rows} lets count. Choose them first.")
        encoded = self.of_records(grouped.values, step=step)
        return encoded if not self.adds_rows else np.add.reduceat(encoded, grouped.starts, axis=0)

    def of_records(self, records: Array, *, step: float = 0.0) -> Array:
        """The vector of each record by itself, shape (rows, d): no two are further apart than the sensitivity."""
        inside, scales = self.inside(records), self.scales
        return self._rounded([feature.encode(inside) * scale for feature, scale in scales.items()], step)

    def sums(self, records: Array, weights: Array, *, step: float = 0.0, features: Collection[Feature] | None = None) -> Array:
        """Weighted sums of records' vectors, (..., d), by weights (..., rows); with ``features`` coordinates of these alone."""
        inside = self.inside(records)
        scales = {feature: scale for feature, scale in self.scales.items() if features is None or feature in features}
        return np.concatenate([feature.sums(inside, weights, scale, step) for feature, scale in scales.items()], axis=-1)

    def _rounded(self, features: list[Array], step: float) -> Array:
        """The vectors of units, (units, d), from their scaled features, (units, size) each."""
        own = zip(self.scales.items(), features, strict=True)
        return np.hstack([feature.to_grid(scaled, scale, step) if step else scaled for (feature, scale), scaled in own])

    def require_grid(self, step: float) -> None:
        """Raises :class:`InputError` for the grid of a plan that is too coarse for what is asked."""
        for feature, scale in self.scales.items():
            feature.mixing(scale, step)

    def inside(self, records: Array) -> Records:
        """The records as features take them: by column, clamped, with what counts in place of missing values (NaN) and where they
        are."""
        return by_columns(self.columns, records)

    def outside(self, records: Array) -> Mask:
        """Which values lie outside their bounds; ``records`` and the result have shape (rows, columns)."""
        limits = [(column.low, column.high) if column.numeric else (0.0, len(column.categories) - 1.0) for column in self.columns]
        low, high = np.array(limits).T
        outside: Mask = (records < low) | (records > high)
        return outside

    def decode(
        self, mean: Vector, noise: float, weight: float, *, step: float = 0.0, law: NoiseLaw | None = None
    ) -> tuple[Answer, ...]:
        """The answers from the mean vector, shape (d,), of total ``weight``.

        ``noise``: standard deviation on each coordinate; ``law``: its law, by default a normal one. ``step``: that of the grid
        for which units were encoded; 0 for none. Nothing is known without any weight.
        """
        if not weight:
            return tuple(answer.unknown(NOBODYS) for answer in self.decode(np.zeros(self.dimension), 0.0, 1.0, step=step))
        released = self.decoder(step).released(mean, noise, weight, law)
        records, counted = float(np.rint(released.records)), in_words_of(self.unit, "records", self.rows)
        return tuple(
            Answer(each, self._estimates(each, released), records, self.budget_part(each), counted) for each in self.statistics
        )

    def never_negative(self, step: float = 0.0) -> tuple[Array, Array]:
        """Combinations of the mean vector, (m, d), and what is added to them, (m,): without noise none is below 0.

        Rounding to the grid of ``step`` takes each coordinate of a record off by that at most.
        """
        decoder = self.decoder(step)
        rows, added = [np.zeros((0, self.dimension))], [np.zeros(0)]
        for feature in self.scales:
            own, places = feature.never_negative(), decoder.places[feature]
            if len(own):
                rows.append(decoder.read.combined(own, places))
                added.append(own @ decoder.offset[places])
        return np.vstack(rows), np.concatenate(added)

    def _estimates(self, statistic: Statistic, released: Released) -> Estimates:
        """What a statistic says, and which of it counts missing cells as the middle, or values that bounds may cut."""
        estimates = self._of_rows((needs := self.with_columns(statistic)).decode(released))
        flags = [_imputed(column, statistic.terms_of(column, estimates)) for column in self.imputed(statistic)]
        flags += [Flag.shared(CUT, name, _CUT) for name in self.cut if name in with_sources(set(needs.uses), self.columns)]
        estimates = replace(
            estimates, flags=merged((*estimates.flags, *flags)), since=_since(statistic, estimates, self.declared)
        )
        estimates = needs.counted(estimates, released).comparing(statistic.compared(self.declared))
        return estimates.in_words(partial(in_words_of, self.unit, rows=self.rows)) if self.of_persons else estimates

    def _of_rows(self, estimates: Estimates) -> Estimates:
        """Leave out what holds for independent rows only, where a person has several.

        The spread of means of rows is at most that of single rows, so that intervals of the population stay; tests are left out.
        Of sums of rows nothing is known about a population of persons.
        """
        if not (self.averages_rows or self.adds_rows):
            return estimates
        flags = (*estimates.flags, _UNTESTED) if estimates.tests or estimates.p_value is not None else estimates.flags
        entries = tuple(replace(entry, p_value=math.nan, statistic=math.nan) for entry in estimates.entries)
        estimates = replace(estimates, entries=entries, tests={}, flags=flags)
        if self.averages_rows:
            return estimates
        return replace(estimates, noise_only=True, reason=estimates.reason or _DEPENDENT)

    def imputed(self, *statistics: Statistic) -> tuple[Column, ...]:
        """The columns whose missing cells count as the middle of their bounds in some of the statistics, by default of all."""
        features = [feature for statistic in statistics or self.statistics for feature in self.with_columns(statistic).features]
        return tuple(dict.fromkeys(column for feature in features for column in feature.imputed))

    def decoder(self, step: float = 0.0) -> Decoder:
        """How quantities of features are read from the mean vector, for units rounded to the grid of ``step``."""
        if step not in self._decoders:
            parts = {share: self.whole(share) for share in self.shares if share not in self.scales}
            steps = {feature: step for feature in self.scales if feature.of_single_record or not self.products}
            once = not self.unit.within_party
            known = {"counted": not self.hides_count, "once": once, "sampled": not self.these_records}
            self._decoders[step] = Decoder.of(self.scales, parts, steps, **known)
        return self._decoders[step]

    @cached_property
    def _decoders(self) -> dict[float, Decoder]:
        return {}

    def largest_party_change(self, weights: Array) -> Array:
        """How many times a party's whole data can move its vector compared with one unit: shape (n,)."""
        return weights if self.unit.within_party else np.ones_like(weights)


def _since(statistic: Statistic, estimates: Estimates, columns: Columns) -> tuple[str, ...]:
    """The day that each term counts from, where any is a day."""
    first = {term: column.since for column in columns if column.since for term in statistic.days_of(column, estimates)}
    return tuple(first.get(term, "") for term in estimates.terms) if first else ()


def _imputed(column: Column, terms: tuple[str, ...]) -> Flag:
    text = (
        f"missing cells of {column.name} count as the middle of its bounds, {column.centre:g}. To count those that are present "
        'only, let the column have missing = "indicator"'
    )
    return Flag("filled-in", text, terms)
