"""Statistics of some of the records only: for them all others are records in which nothing is present.

The set of possible encodings does not grow, so that sensitivities are those without the condition. Those outside look like
records that lack a value: only the number of records inside, where it is released, tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.readable import some_of
from quietmean.statistics.columns import INDICATOR, Column, Columns
from quietmean.statistics.complete_records import counted
from quietmean.statistics.conditions import RowCondition
from quietmean.statistics.estimate import NOT_TOLD, Flag
from quietmean.statistics.estimates import Estimates, possible
from quietmean.statistics.features.of_another import OfAnother
from quietmean.statistics.features.presence import AnyPresent, Indicator, any_present
from quietmean.statistics.influence_bounds import Around, TermReading
from quietmean.statistics.linear import LinearMap
from quietmean.statistics.statistic import TOTAL, Feature, Records, Released, Statistic, presence_of, raw
from quietmean.statistics.tails import decoded_with
from quietmean.statistics.weights import Weighable, weight_of

# What differs by less, of itself and of its error, is the same but for rounding.
_NEAR = 1e-6


@dataclass(frozen=True)
class Within(OfAnother):
    """A feature of the records in which a condition holds; any other is encoded as one in which nothing is present."""

    condition: RowCondition
    declared: tuple[Column, ...]
    of_single_record: bool = False

    @property
    def most_nonzero(self) -> int:
        return self.inner.most_nonzero

    @property
    def is_whole(self) -> bool:
        return self.inner.is_whole

    def for_single_record(self, *, of_party: bool) -> Feature:
        inner = self.inner.for_single_record(of_party=of_party)
        return replace(self, inner=inner, of_single_record=inner.of_single_record)

    @property
    def domain(self) -> InputDomain:
        return self.inner.domain

    def encode(self, records: Records) -> Array:
        return self.inner.encode(self._inside(records))

    def sums(self, records: Records, weights: Array, scale: float, step: float) -> Array:
        return self.inner.sums(self._inside(records), weights, scale, step)

    def looks_at(self) -> tuple[Feature, ...]:
        return (*self.inner.looks_at(), Inside(self.condition, self.declared))

    def of_party(self, records: Records) -> Array:
        return self.inner.of_party(self._inside(records))

    def _inside(self, records: Records) -> Records:
        """The records, with nothing present where the condition does not hold."""
        holds = self.condition.holds(Columns(self.declared), records)
        within: dict[str, Array] = {}
        for column in self.declared:
            name, missing = column.name, column.centre if column.numeric else np.nan
            within[name] = np.where(holds, records[name], missing)
            within[presence_of(name)] = np.where(holds, records[presence_of(name)], 0.0)
            if column.numeric:
                within[raw(name)] = np.where(holds, records[raw(name)], np.nan)
        return within

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        return self.inner.to_grid(scaled, scale, step)

    def mixing(self, scale: float, step: float) -> float:
        return self.inner.mixing(scale, step)

    def response(self, scale: float, step: float) -> Array:
        return self.inner.response(scale, step)

    def inverse(self, scale: float, step: float) -> LinearMap:
        return self.inner.inverse(scale, step)

    def events(self) -> Mapping[Hashable, Array]:
        # What is known of all records holds of those in which nothing is present, too.
        return {
            event if event == TOTAL else ("within", self.condition, event): weights
            for event, weights in self.inner.events().items()
        }

    def never_negative(self) -> Array:
        return self.inner.never_negative()

    @property
    def complete(self) -> Array | None:
        return self.inner.complete

    def complete_in(self, by: str) -> Array | None:
        return self.inner.complete_in(by)

    def family(self) -> Hashable:
        family = self.inner.family()
        return None if family is None else ("within", self.condition, family)

    @classmethod
    def joined(cls, features: Mapping[Any, float]) -> Feature:
        first: Within = next(iter(features))
        return replace(first, inner=type(first.inner).joined({feature.inner: share for feature, share in features.items()}))

    def included_in(self, other: Feature) -> bool:
        return isinstance(other, Within) and other.condition == self.condition and self.inner.included_in(other.inner)

    def places_of(self, part: Any) -> Ints:
        return self.inner.places_of(part.inner)


@dataclass(frozen=True)
class Inside(Indicator):
    """1 for a record in which a condition holds, else 0; one of its columns is present then."""

    condition: RowCondition
    declared: tuple[Column, ...]

    def events(self) -> Mapping[Hashable, Array]:
        sources = [column for column in self.declared if column.name in self.condition.sources]
        return {("within", self.condition, any_present(sources)): np.ones(1)}

    def encode(self, records: Records) -> Array:
        holds: Array = self.condition.holds(Columns(self.declared), records).astype(np.float64)[:, None]
        return holds


@dataclass(frozen=True, eq=False)
class _Others:
    """Records outside a condition, which count as missing: what each has in the quantities (``nothing``, (q,)), and the weights
    (q,) of their part (``outside``, less 1 where all records are public) and of the part ``inside``."""

    nothing: Array
    outside: Array
    inside: Array

    def taken_from(self, quantities: Array, public: bool) -> Array:
        """Quantities (q,) without them; where no feature knows all records, nothing more is to be taken out."""
        return np.asarray(quantities - self.nothing * (float(self.outside @ quantities) + (1.0 if public else 0.0)))

    def left_out_of(self, read: LinearMap) -> LinearMap:
        return read.plus(-self.nothing[:, None], read.combined(self.outside[None]))


@dataclass(frozen=True, eq=False)
class DeclaredStatistic:
    """A statistic of declared columns, as a study asks for it: of all records, or of those in which its condition holds."""

    statistic: Statistic
    columns: Columns

    @property
    def condition(self) -> RowCondition | None:
        return RowCondition(self.statistic.where) if self.statistic.where else None

    @property
    def seen(self) -> Columns:
        """The columns as the statistic sees them: where some records are left out, or count in part, what is missing counts as
        nothing."""
        if self.condition is None and getattr(self.statistic, "weight", None) is None:
            return self.columns
        indicated = [column.model_copy(update={"missing": INDICATOR}) if column.fills_in else column for column in self.columns]
        return Columns(indicated, self.columns.unit)

    @property
    def uses(self) -> tuple[str, ...]:
        """The columns that it names, in fields, formulas and its condition; all of them where it names none."""
        named: set[str] = set()
        for value in self.statistic.agreed_fields().values():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    named |= {text, *(word.strip() for side in text.split("~") for word in side.split("+"))}
        names = [name for name in self.columns.names if name in named]
        if names and self.condition is not None:
            names += [name for name in self.condition.sources if name not in names]
        return tuple(names or self.columns.names)

    @property
    def features(self) -> tuple[Feature, ...]:
        """What has to be released. Raises :class:`InputError` as :meth:`Statistic.features` does, and for a condition that is
        none of these columns."""
        features, beside = self._asked, self._beside
        if self.condition is None:
            return (*features, *beside)
        self.condition.require_of(self.columns)
        for feature in features:
            if feature.complete is None:
                raise InputError(
                    f"{self.statistic.text} cannot tell records in which nothing is present from others. Leave where out."
                )
        within = tuple(self._within(feature) for feature in features)
        return (*within, self._inside) if self.statistic.counts_records else (*within, *beside)

    @property
    def parts(self) -> dict[Feature, float]:
        """The features and which part of the statistic's share each has: alike, unless the statistic says so."""
        features = self.features
        stated = self.statistic.parts if isinstance(self.statistic, Weighable) else ()
        if stated:
            return dict(zip(features, stated, strict=True))
        distinct = dict.fromkeys(features)
        return dict.fromkeys(distinct, 1 / len(distinct))

    @property
    def _asked(self) -> tuple[Feature, ...]:
        """What the statistic reads, whatever its condition."""
        weight = weight_of(self.statistic, self.seen)
        if weight is None or not isinstance(self.statistic, Weighable):
            return self.statistic.features(self.seen)
        return self.statistic.weighted_features(self.seen, weight)

    @property
    def _beside(self) -> tuple[Feature, ...]:
        """What the statistic reads of all records."""
        return self.statistic.beside(self.seen) if isinstance(self.statistic, Weighable) else ()

    @property
    def readings(self) -> tuple[TermReading, ...]:
        """How its terms are read from quantities, as :meth:`Statistic.readings`, with its weights."""
        weight = weight_of(self.statistic, self.seen)
        if weight is None or not isinstance(self.statistic, Weighable):
            return self.statistic.readings(self.seen)
        return self.statistic.weighted_readings(self.seen, weight)

    def _estimated(self, view: Released, records: float) -> Estimates:
        """What the statistic reads; ``records``: how many there are with those outside the condition, NaN where that is not
        known."""
        weight = weight_of(self.statistic, self.seen)
        if weight is None or not isinstance(self.statistic, Weighable):
            return self.statistic.decode(view, self.seen)
        return self.statistic.decode_weighted(view, self.seen, weight, records)

    @property
    def total_share(self) -> float:
        share = self.statistic.total_share(self.seen)
        # Where each row has a share of its own, so has the number of records.
        own = self.statistic.counts_records and self.condition is not None
        return share + self.statistic.share if own else share

    def decode(self, released: Released) -> Estimates:
        """The estimates as they can be; those that depend on who is outside the condition are unknown where nothing tells.

        Here an answer becomes one about these records, whatever shows it or forecasts it.
        """
        estimates = self.as_released(released)
        estimates = replace(possible(estimates, self.statistic.curves_of(estimates)), law=released.law)
        return estimates if released.sampled else estimates.about_these_records()

    def as_released(self, released: Released) -> Estimates:
        """The estimates where noise may have moved them beyond what is possible: without bias."""
        return self.to_predict(released).as_shown()

    def to_predict(self, released: Released) -> Estimates:
        """Also the terms for which no interval holds, which a prediction may use and a report may not."""
        view = self._read(released)
        with decoded_with(released.law):
            estimates = self._estimated(view, released.records)
            if self.condition is not None and view.whole is None:
                estimates = self._without_outsiders(estimates, view)
        return estimates

    def counted(self, estimates: Estimates, released: Released) -> Estimates:
        """Add how many records it is of; where they have weights, that is not known."""
        if getattr(self.statistic, "weight", None) is not None:
            return estimates
        outside = None if self.condition is None else self._outside(released)
        return counted(estimates, self.statistic, self._read(released), self.seen, outside)

    def _read(self, released: Released) -> Released:
        """The released results as the statistic reads them."""
        if self.condition is None:
            return released
        features = self._asked
        places = {feature: released.places[self._within(feature)] for feature in features}
        beside = {feature: released.places[feature] for feature in self._beside}
        if self._place_of_inside(released.places) is not None:
            inside = self._of_inside(released, places)
            return replace(inside, places={**inside.places, **beside})
        return replace(released, places=places | beside, whole=None, counted=False)

    def _outside(self, released: Released) -> tuple[float, float]:
        """How many records are outside, and the standard deviation of the noise in that; NaN where nothing tells."""
        inside = self._place_of_inside(released.places)
        if inside is None or math.isnan(released.part):
            return math.nan, math.nan
        weights = np.zeros(len(released.quantities)) if released.whole is None else released.whole.copy()
        weights[inside] -= 1.0
        part = float(weights @ released.quantities) + (1.0 if released.counted else 0.0)
        return min(max(part, 0.0), 1.0) * released.weight, released.error(weights) * released.weight

    def _without_outsiders(self, estimates: Estimates, view: Released) -> Estimates:
        """Leave out what would be another number if there were twice as many records, all others outside."""
        quantities = view.quantities.copy()
        for feature, own in view.places.items():
            quantities[own] += self._of_nothing(feature)
        twice = replace(view, weight=2 * view.weight, quantities=quantities / 2, noise=view.noise / 2)
        others = self._estimated(twice, view.weight)
        near = _NEAR * np.nan_to_num(estimates.standard_error, posinf=0.0) + _NEAR**2
        moved = ~(np.abs(estimates.value - others.value) <= near + _NEAR * np.abs(estimates.value))
        moved &= ~(np.isnan(estimates.value) & np.isnan(others.value))
        terms = tuple(term for term, depends in zip(estimates.terms, moved.tolist(), strict=True) if depends)
        if not terms:
            return estimates
        text = "records outside the condition look like missing ones here. To know how many, count with the same condition"
        return estimates.without(
            terms, Flag.shared(NOT_TOLD, some_of([term or self.statistic.text for term in terms], 3), text, terms)
        )

    def around(self, around: Around, whole: Array | None) -> Around:
        """Where what the statistic reads may lie; ``whole``: as of :class:`Released`."""
        if self.condition is None:
            return around
        places = {feature: around.places[self._within(feature)] for feature in self._asked}
        if self._place_of_inside(around.places) is None:
            return replace(around, places={**around.places, **places}, of_all=False)
        others = self._others(around.places, places, len(around.offset), whole)
        quantities = around.quantities
        return replace(
            around,
            read=others.left_out_of(around.read),
            offset=others.taken_from(around.offset, whole is None),
            places={**around.places, **places},
            quantities=None if quantities is None else others.taken_from(quantities, whole is None),
            of_all=False,
        )

    def _of_inside(self, released: Released, places: Mapping[Feature, Ints]) -> Released:
        """Leave out those outside, who count as missing: ``whole`` is the part inside, as where counts are private."""
        others = self._others(released.places, places, len(released.quantities), released.whole)
        quantities, read = others.taken_from(released.quantities, released.counted), others.left_out_of(released.read)
        return replace(released, quantities=quantities, read=read, places=places, whole=others.inside, counted=False)

    def _others(
        self, all_places: Mapping[Feature, Ints], places: Mapping[Feature, Ints], size: int, every: Array | None
    ) -> _Others:
        """Those outside; ``every``: weights of the part of the room that is records, (q,); None where they are public, and all
        of it."""
        inside, nothing = np.zeros(size), np.zeros(size)
        inside[self._place_of_inside(all_places)] = 1.0
        for feature, own in places.items():
            nothing[own] = self._of_nothing(feature)
        return _Others(nothing, (-inside if every is None else every - inside), inside)

    def _of_nothing(self, feature: Feature) -> Array:
        """The quantities of a record in which nothing is present, (size,)."""
        empty: dict[str, Array] = {}
        for column in self.seen:
            empty[column.name] = np.array([column.centre if column.numeric else np.nan])
            empty[presence_of(column.name)] = np.zeros(1)
            empty[raw(column.name)] = np.array([np.nan])
        (encoded,) = feature.encode(empty)
        return feature.inverse(1.0, 0.0).times(encoded)

    @property
    def _inside(self) -> Inside:
        condition = self.condition
        assert condition is not None  # noqa: S101
        return Inside(condition, tuple(self.seen))

    def _place_of_inside(self, places: Mapping[Feature, Ints]) -> int | None:
        """Where the part of the records inside is in the quantities, whichever statistic asks for it."""
        counted_here = self._within(AnyPresent(tuple(self.seen[name] for name in self._inside.condition.sources)))
        found = next((feature for feature in (self._inside, counted_here) if feature in places), None)
        return None if found is None else int(places[found][0])

    def _within(self, feature: Feature) -> Feature:
        condition = self.condition
        assert condition is not None  # noqa: S101
        return Within(feature, condition, tuple(self.seen))
