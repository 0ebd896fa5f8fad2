"""The interface of a statistic: which features of a record it needs, and how it computes estimates from their means."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.grid import towards_zero
from quietmean.core.input_domain import InputDomain
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.schema import OPEN, Configured, nearest, parameter, parameters_of, require_complete
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimate import HALF_A_RECORD
from quietmean.statistics.estimates import CurveOfTerms, Estimates
from quietmean.statistics.influence_bounds import Around, TermReading
from quietmean.statistics.linear import Block, LinearMap
from quietmean.statistics.names import brief, quoted
from quietmean.statistics.scenario import EXPECT, OF_NUMBERS, SyntheticRecords, expectation_field, require_expected
from quietmean.statistics.tails import Tails

# Columns by name, each of shape (rows,). Numbers lie inside the declared bounds, the middle of them where one is missing; levels
# are their places, NaN where one is missing. Under presence_of(name), 1 where the value is present and 0 where it is missing;
# under raw(name), numbers before they were moved to their bounds, NaN where one is missing.
Records: TypeAlias = Mapping[str, Array]

# The event that every record has.
TOTAL = ("total",)


def presence_of(column: str) -> str:
    """The key in records that says which values of a column are present."""
    return f"\0present {column}"


def raw(column: str) -> str:
    """The key in records of the numbers of a column before they were moved to their bounds."""
    return f"\0raw {column}"


class Feature(ABC):
    """A public bounded function of a record: ``size`` numbers.

    Features are hashable values. Equal ones of several statistics are released once, and their shares of the budget add up.
    What a statistic reads are the feature's *quantities*, which the encoding is a public linear map of.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers the feature has."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest L2 distance of the encodings of two records, whatever they hold: that of replacing a record."""

    @property
    def length(self) -> float:
        """The largest L2 norm of an encoding: the sensitivity where a record is added or removed.

        Raises :class:`InputError` where the feature does not state it.
        """
        raise InputError(f"{type(self).__name__} states no length of encodings, which private counts need. Let count be public.")

    @property
    def most_nonzero(self) -> int:
        """How many numbers of the encoding of a record are not 0, at most; by default all of them."""
        return self.size

    @property
    def l1(self) -> float:
        """At least the largest L1 distance of two encodings, of which twice as many numbers differ; exact for cells and one."""
        return math.sqrt(min(self.size, 2 * self.most_nonzero)) * self.sensitivity

    @property
    def l1_length(self) -> float:
        """At least the largest L1 norm of an encoding; exact as :attr:`l1` is."""
        return math.sqrt(self.most_nonzero) * self.length

    @property
    def is_whole(self) -> bool:
        """Are encodings 0 and 1 alone? Times a factor on a grid, they are on it: rounding each makes no distance longer."""
        return False

    def for_private_count(self) -> Feature:
        """What is released instead where it is private how many records there are: the same quantities, shorter encodings."""
        return self

    # Where a value has the numbers of one record, and not a mean of several: whether they are released with all their products.
    of_single_record: bool = False

    def for_single_record(self, *, of_party: bool) -> Feature:
        """What is released instead where each value is one record's: the same quantities, with numbers that products determine.

        ``of_party``: where it is one party's, whose records features average if they do not say otherwise.
        """
        return self

    @property
    def domain(self) -> InputDomain:
        """Where encodings lie, convex and with the sensitivity as its diameter: by default every number from 0 to 1."""
        return InputDomain.box(self.size, 0.0, 1.0)

    @abstractmethod
    def encode(self, records: Records) -> Array:
        """The feature of each record, shape (rows, size)."""

    def cuts(self) -> Mapping[str, tuple[float, ...]]:
        """Rising edges by column: numbers between the same two are encoded alike. Without any, each is by itself."""
        return {}

    def looks_at(self) -> tuple[Feature, ...]:
        """Features of which it is computed, row by row, and whose columns are all that it needs."""
        return (self,)

    def of_party(self, records: Records) -> Array:
        """The feature of a party that is protected as a whole, shape (1, size): by default the mean of its records'."""
        return np.asarray(self.encode(records).mean(axis=0, keepdims=True))

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """``scale`` times the features of records, (rows, size), on multiples of ``step``; their distances must not grow."""
        # Towards zero: right where the features form boxes, balls or simplices around or at zero. Other domains override this.
        return towards_zero(scaled, step)

    def sums(self, records: Records, weights: Array, scale: float, step: float) -> Array:
        """Weighted sums of ``scale`` times the features, by weights (..., rows), each rounded to multiples of ``step`` but 0."""
        scaled = self.encode(records) * scale
        return np.asarray(weights @ (self.to_grid(scaled, scale, step) if step else scaled))

    def mixing(self, scale: float, step: float) -> float:
        """Which part of each value is replaced by what all have, so that the rounded ones stay mixtures; by default none.

        Raises :class:`InputError` for a grid of ``step`` that is too coarse for it.
        """
        return 0.0

    def response(self, scale: float, step: float) -> Array:
        """The public map (size, size) from quantities to the mean of encodings, rounded for ``scale`` to the grid of ``step``."""
        # By default the quantities are the encodings themselves.
        return np.eye(self.size)

    def inverse(self, scale: float, step: float) -> LinearMap:
        """The map (size, size) from the mean of encodings times ``scale`` to quantities, as :meth:`response` has it."""
        return LinearMap.of_block(Block(np.asarray(np.linalg.inv(self.response(scale, step)) / scale, dtype=np.float64)))

    def events(self) -> Mapping[Hashable, Array]:
        """What quantities say about events that other features know as well: weights (size,) by event.

        The part of the records with an event is the weighted sum of the quantities. Equal events agree in the decoded results,
        and the event ``TOTAL`` has all records.
        """
        return {}

    def never_negative(self) -> Array:
        """Weights (m, size) of sums of quantities of which none is below 0, whatever the records; by default none."""
        return np.zeros((0, self.size))

    @property
    def imputed(self) -> tuple[Column, ...]:
        """The columns of which it counts missing cells as the middle of their bounds."""
        return ()

    @property
    def complete(self) -> Array | None:
        """Weights (size,) of the quantities that make up the part of the records with a value in all columns that it needs.

        Cells that are filled in have one. None where nothing tells it.
        """
        return None

    def complete_in(self, by: str) -> Array | None:
        """The weights of :attr:`complete` for each level of a column, (levels, size); None where it does not tell them apart."""
        return None

    def family(self) -> Hashable:
        """Features of one family are released as one (:meth:`joined`); None for a feature by itself."""
        return None

    @classmethod
    def joined(cls, features: Mapping[Any, float]) -> Feature:
        """One feature instead of several of a family, from their shares of the budget; it has the factor 1 in the vector.

        Its squared sensitivity is at most the sum of the shares.
        """
        raise TypeError(f"{cls.__name__} has a family but joins nothing")

    def included_in(self, other: Feature) -> bool:
        """Are its quantities some of those of another feature, instead of both of which that one alone is released?"""
        return False

    def places_of(self, part: Any) -> Ints:
        """Where the quantities of a feature that it is released for are in these, shape (part.size,): by default all of them."""
        return np.arange(self.size)


@dataclass(frozen=True, eq=False)
class Released:
    """The released results: quantities of features, per record, with noise.

    ``weight``: the public number of records, or of parties if they are the unit. ``quantities``: of all features, one after the
    other, shape (q,); ``read``: what they have of each coordinate of a mean vector, (q, d); ``noise``: the standard deviation on
    each of these; ``places``: where each feature's quantities are.

    Where not all of ``weight`` is ``counted``, it is the public room for records, most of which may be empty, or some of the
    records lie outside a condition. ``whole`` then weighs the quantities, (q,), that make up the part of it that counts; None
    where no feature knows that part, and nor does anybody. A statistic reads :attr:`records`, or divides by a quantity, but
    never takes all of ``weight`` for records. ``least``: the least number of records that is more than rounding; where parties
    count once, parts of them may be small. ``sampled``: are answers about more than these records? Else no sampling is counted.
    ``law``: of the noise of each coordinate of a mean vector, None for normal noise.
    """

    weight: float
    quantities: Array
    read: LinearMap = field(repr=False)
    noise: float
    places: Mapping[Feature, Ints]
    whole: Array | None = None
    counted: bool = True
    least: float = HALF_A_RECORD
    sampled: bool = True
    law: NoiseLaw | None = None

    @property
    def part(self) -> float:
        """The part of ``weight`` that counts: 1 if all does, else an estimate above 0, or NaN where it is not known."""
        if self.counted:
            return 1.0
        if self.whole is None:
            return math.nan
        return min(max(float(self.whole @ self.quantities), 1 / self.weight), 1.0)

    @property
    def records(self) -> float:
        """How many records count, or parties if they are the unit: public, or an estimate; NaN where it is not known."""
        return self.weight * self.part

    @property
    def records_error(self) -> float:
        """The standard deviation of the noise in :attr:`records`; 0 where these are public, NaN where they are not known."""
        if self.counted:
            return 0.0
        if self.whole is None:
            return math.nan
        return self.weight * self.error(self.whole)

    def error(self, weights: Array) -> float:
        """The standard deviation of the noise in a weighted sum of all quantities, by weights (q,)."""
        places = np.flatnonzero(weights)
        return self._error(weights[places], places)

    def _error(self, weights: Array, places: Ints) -> float:
        return self.noise * float(np.linalg.norm(self.read.reached(weights, places)[0]))

    def mean(self, feature: Feature) -> Array:
        """The quantities of a feature, shape (size,): means over all of ``weight``, with noise."""
        return self.quantities[self.places[feature]]

    def weighted(self, feature: Feature, weights: Array) -> tuple[float, float]:
        """A weighted sum of quantities with weights (size,), and its standard deviation."""
        return float(weights @ self.mean(feature)), self._error(weights, self.places[feature])

    def tails(self, feature: Feature, weights: Array) -> Tails:
        """How far the noise of a weighted sum of quantities reaches, with weights (size,)."""
        own = Tails.of(self.law)
        return own if own.normal else Tails.of(self.law, self.read.reached(weights, self.places[feature])[0])

    def tails_of_each(self, feature: Feature) -> list[Tails]:
        """How far the noise of each quantity of a feature reaches."""
        return [self.tails(feature, weights) for weights in np.eye(feature.size)]

    def sums(self, feature: Feature, weights: Array) -> Released:
        """Take weighted sums of a feature's quantities in their place, by weights (sums, size)."""
        used = np.flatnonzero(weights.any(axis=0))
        sums, columns = self.read.reached(weights[:, used], self.places[feature][used])
        return replace(
            self,
            quantities=weights @ self.mean(feature),
            read=LinearMap.of_block(Block(sums), columns, self.read.shape[1]),
            places={feature: np.arange(len(weights))},
            whole=None,
            counted=False,
        )

    def covariance(self, feature: Feature, other: Feature | None = None) -> Array:
        """The covariance of the noise in :meth:`mean`, shape (size, size); or with that of another feature."""
        return self.covariance_at(self.places[feature], self.places[feature if other is None else other])

    def covariance_at(self, places: Ints, others: Ints) -> Array:
        """The covariance of the noise in quantities at these places with that in others, (places, others)."""
        return np.asarray(self.noise**2 * self.read.gram(places, others))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Statistic(Configured, ABC):
    """A question about declared columns: a frozen value whose fields are its parameters.

    In a study file it is a table ``[[statistic]]`` with ``kind`` and the fields; on the command line ``kind(value, name=value)``,
    where the fields ``by_place`` need no name.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    by_place: ClassVar[tuple[str, ...]] = ()
    # Does the last of them take all values that are left? They are a list, each between commas.
    takes_all: ClassVar[bool] = False
    # Do records whose columns are independent of each other tell nothing of what it asks?
    asks_for_relations: ClassVar[bool] = False
    # Does it hold for one row a person only: of times to an event, of scores against an outcome, of ranks?
    one_row: ClassVar[bool] = False

    # Does it say how many records there are in all? Of those in which a condition holds that is then released as well.
    counts_records: ClassVar[bool] = False

    # What ``expect`` may name beside what all statistics know.
    expects: ClassVar[tuple[str, ...]] = ()
    # The headline's value under the null hypothesis, where the answer has no test of its own.
    null: ClassVar[float | None] = None

    share: float = parameter(
        1.0, help="share of the privacy budget, relative to other statistics", above=0, remedy="choose a finite number > 0"
    )
    where: str = parameter(
        "",
        help="a condition such as age >= 50 and sex == 'f': records in which it does not hold are left out",
        written=lambda value: bool(value.where),
    )
    # For planning only: no answer and nothing that parties agree on depends on it.
    expect: tuple[tuple[str, float], ...] = expectation_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expect:
            require_expected(f"statistic {self.name}", dict(self.expect), self.known_expectations)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Read a statistic from the entries of a study file besides ``kind``.

        Raises :class:`InputError` for unknown and missing ones.
        """
        keys = [field.key for field in parameters_of(cls).values()]
        for name in (name for name in raw if name not in keys):
            raise InputError(f"statistic {cls.name} has no field {name!r}{nearest(name, keys)}. Choose one of {', '.join(keys)}.")
        require_complete(statistic := cls.read(raw))
        return statistic

    @classmethod
    def meant_in_words(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        """What a text on the command line or in Python means beside what it says, as entries of a study file.

        A file that does not say so keeps its older meaning.
        """
        return {}

    def describe(self) -> dict[str, Any]:
        return {"kind": self.name, **super().describe()}

    @property
    def text(self) -> str:
        """The name of the statistic in reports: as on the command line, without its share and what it expects."""
        fields = self.describe()
        by_place = [brief(fields[name], name) for name in self.by_place if name in fields]
        if self.takes_all and self.by_place[-1] in fields:
            by_place[-1:] = map(quoted, fields[self.by_place[-1]])
        meant = self.meant_in_words(fields)
        named = [
            f"{field.key}={brief(field.to_json(getattr(self, name)), field.key)}"
            for name, field in parameters_of(type(self)).items()
            if field.key in (*fields, *meant) and field.key not in (*self.by_place, "share", EXPECT)
            if field.default is OPEN or getattr(self, name) != meant.get(field.key, field.default)
        ]
        return f"{self.name}({', '.join([*by_place, *named])})"

    @abstractmethod
    def features(self, columns: Columns) -> tuple[Feature, ...]:
        """The features of a record that have to be released; they share the statistic's part of the budget equally.

        Raises :class:`InputError` for columns that are not declared, or of another kind.
        """

    @property
    def subject(self) -> str | None:
        """The column that an expected mean, deviation or median is of."""
        return getattr(self, "column", None)

    @property
    def known_expectations(self) -> tuple[str, ...]:
        """What ``expect`` may name."""
        return ("missing", *(OF_NUMBERS if self.subject is not None else ()), *self.expects)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        """Relates the columns of made-up records as the question asks, with what is expected. Before a study, for its plan."""

    def agreed_fields(self) -> dict[str, Any]:
        """What parties agree on: the statistic as in a study file, without what is for planning only."""
        return {name: value for name, value in self.describe().items() if name != EXPECT}

    def total_share(self, columns: Columns) -> float:
        """The share of all its features together: :attr:`share`, unless the statistic is of many rows that each have one."""
        return self.share

    def terms_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        """The terms that depend on a column; none means all of them."""
        return ()

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        """How its terms are read from quantities where that is linear, or a ratio of what is linear; by default of none."""
        return ()

    def moved(self, around: Around, columns: Columns) -> Mapping[str, float]:
        """How far terms that are not read so move at most where quantities move ``around`` a result; others by their range."""
        return {}

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        """The terms that never fall, or never rise, one after the other, whatever the data; by default none."""
        return ()

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        """The terms that are values of a column, such as its mean: days, of one with dates. By default none."""
        return ()

    def compared(self, columns: Columns) -> Mapping[str, str]:
        """By term, or group of terms, who is compared with whom (:mod:`~quietmean.statistics.compared`); by default nobody."""
        return {}

    @abstractmethod
    def decode(self, released: Released, columns: Columns) -> Estimates:
        """The estimates from the quantities of these features: public post-processing, which says what noise hides.

        ``released``: the noisy totals of the features, in their order, and the weight of all. One estimate a term, in the
        units of its column.
        """


def require_records(statistic: Statistic, columns: Columns) -> None:
    """Raises :class:`InputError` where a whole party is the unit: a sum over records would need a bound on their number."""
    if columns.unit == PrivacyUnit.PARTY:
        raise InputError(
            f"{statistic.text} adds up records, but the unit is party, where each party counts once. Ask for a mean or a "
            "proportion, or protect records with unit record."
        )
