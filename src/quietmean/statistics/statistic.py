"""The interface of a statistic: which features of a record it needs, and how it computes estimates from their means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.grid import towards_zero
from quietmean.core.input_domain import InputDomain
from quietmean.core.schema import OPEN, Configured, nearest, parameter, parameters_of
from quietmean.statistics.columns import Columns

Array = NDArray[np.float64]
# Columns by name, each of shape (rows,), with all values inside the declared bounds: the middle of them where one is missing.
# Under presence_of(name), 1 where the value is present and 0 where it is missing.
Records: TypeAlias = Mapping[str, Array]

# The term of a statistic that is one number.
WHOLE = ""


def presence_of(column: str) -> str:
    """The key in records that says which values of a column are present."""
    return f"present({column})"


class Feature(ABC):
    """A public bounded function of a record: ``size`` numbers.

    Features are hashable values. Equal ones of several statistics are released once, and their shares of the budget add up.
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
    def domain(self) -> InputDomain:
        """Where encodings lie, convex and with the sensitivity as its diameter: by default every number from 0 to 1."""
        return InputDomain.box(self.size, 0.0, 1.0)

    @abstractmethod
    def encode(self, records: Records) -> Array:
        """The feature of each record, shape (rows, size)."""

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """``scale`` times the features of records, (rows, size), rounded to multiples of ``step``; their distances must not grow.

        Towards zero: right where the features form boxes, balls or simplices around or at zero. Other domains override this.
        """
        return towards_zero(scaled, step)


@dataclass(frozen=True, eq=False)
class Released:
    """The released results: means of features with noise.

    ``weight``: the public number of records, or of parties if they are the unit. ``means``: of each feature, shape (size,).
    ``noises``: of each feature, the standard deviation of the privacy noise on its coordinates, which is independent.
    """

    weight: float
    means: Mapping[Feature, Array]
    noises: Mapping[Feature, float]

    def mean(self, feature: Feature) -> Array:
        """The mean of a feature over all records, shape (size,), with noise."""
        return self.means[feature]

    def noise(self, feature: Feature) -> float:
        """Standard deviation of the noise on each coordinate of :meth:`mean`."""
        return self.noises[feature]


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimates of a statistic, one entry per term: arrays of shape (terms,), in the units of the data.

    ``standard_error`` is that of the privacy noise. ``low`` and ``high``: what the term can be at the least and at the most,
    whatever the data. A statistic that is one number has the single term ``""``.
    """

    terms: tuple[str, ...]
    value: Array
    standard_error: Array
    low: Array
    high: Array

    @classmethod
    def number(cls, value: float, standard_error: float, low: float, high: float) -> Self:
        """The estimates of a statistic that is one number."""
        return cls((WHOLE,), *(np.array([entry]) for entry in (value, standard_error, low, high)))

    def by_term(self, values: Array) -> Any:
        """Plain JSON data of ``values``, shape (terms,): a number, or an object by term."""
        if self.terms == (WHOLE,):
            return float(values[0])
        return dict(zip(self.terms, values.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Statistic(Configured, ABC):
    """A question about declared columns: a frozen value whose fields are its parameters.

    In a study file it is a table ``[[statistic]]`` with ``kind`` and the fields; on the command line ``kind(value, name=value)``,
    where the fields ``by_place`` need no name.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    by_place: ClassVar[tuple[str, ...]] = ()

    share: float = parameter(
        1.0, help="share of the privacy budget, relative to other statistics", above=0, remedy="a share is a finite number > 0"
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """From the entries of a study file besides ``kind``. Raises :class:`InputError` for unknown and missing ones."""
        known = [one.key for one in parameters_of(cls).values()]
        for name in raw:
            if name not in known:
                raise InputError(f"statistic {cls.name} has no field {name!r}{nearest(name, known)}: it has {', '.join(known)}")
        found = cls.read(raw)
        found.require_complete()
        return found

    def describe(self) -> dict[str, Any]:
        return {"kind": self.name, **super().describe()}

    @property
    def text(self) -> str:
        """The name of the statistic in reports: as on the command line, without its share."""
        given = self.describe()
        by_place = [_brief(given[name]) for name in self.by_place if name in given]
        named = [
            f"{one.key}={_brief(given[one.key])}"
            for name, one in parameters_of(type(self)).items()
            if one.key in given and one.key not in (*self.by_place, "share")
            if one.default is OPEN or getattr(self, name) != one.default
        ]
        return f"{self.name}({', '.join([*by_place, *named])})"

    @abstractmethod
    def features(self, columns: Columns) -> tuple[Feature, ...]:
        """The features of a record that have to be released. Raises :class:`InputError` for columns that are not declared."""

    @abstractmethod
    def decode(self, released: Released, columns: Columns) -> Estimates:
        """The estimates from the means of these features: public post-processing."""


def _brief(value: Any) -> str:
    """A field as short as it can be read back from."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
