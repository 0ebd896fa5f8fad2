"""All statistics of a study at once: from records to one bounded vector, from the mean of vectors to estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.party import Vector
from quietmean.statistics.answers import Answer
from quietmean.statistics.columns import Columns
from quietmean.statistics.statistic import Array, Feature, Records, Released, Statistic, presence_of


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,) and its public weight, the number of its records.

    ``clamped`` values were moved to the nearest bound, ``missing`` cells held no number: for the eyes of this party only.
    """

    vector: Vector = field(repr=False)
    weight: float
    clamped: int = field(repr=False)
    missing: int = field(repr=False)


@dataclass(frozen=True, eq=False)
class Workload:
    """Statistics of declared columns that are answered from one vector.

    The vector is that of all features, each scaled so that its sensitivity is the square root of its share of the budget: one
    noise level serves all. Sensitivity, under replacement of one unit: the square root of the sum of all shares.
    """

    columns: Columns
    statistics: tuple[Statistic, ...]
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        texts = [statistic.text for statistic in self.statistics]
        for text in texts:
            if texts.count(text) > 1:
                raise InputError(f"statistic {text} is asked for twice: ask once, with a larger share if it matters more")

    @cached_property
    def scales(self) -> dict[Feature, float]:
        """The features of all statistics, each once, and the factor that each has in the vector."""
        shares: dict[Feature, float] = {}
        for statistic in self.statistics:
            for feature in statistic.features(self.columns):
                shares[feature] = shares.get(feature, 0.0) + statistic.share
        return {feature: math.sqrt(share) / feature.sensitivity for feature, share in shares.items()}

    @property
    def dimension(self) -> int:
        """Coordinates of the vector."""
        return sum(feature.size for feature in self.scales)

    @property
    def sensitivity(self) -> float:
        """L2 change of a party's vector when one unit (a record, or all of a party) is replaced."""
        return math.sqrt(sum((scale * feature.sensitivity) ** 2 for feature, scale in self.scales.items()))

    @cached_property
    def domain(self) -> InputDomain:
        """Where the vector of one record, or of one party's mean, lies; its diameter is the sensitivity at most.

        Raises :class:`InputError` for a feature whose domain is wider than its sensitivity.
        """
        return InputDomain.product([_scaled_domain(feature, scale) for feature, scale in self.scales.items()])

    def encode(self, records: Array, *, step: float = 0.0) -> Encoded:
        """A party's vector from its ``records``, shape (rows, columns), in the units of the columns; NaN where one is missing.

        Values outside the bounds are moved to the nearest bound, and what stands for a missing one is fixed: nothing about the
        values decides whether a study goes on. ``step``: that of the plan's grid, to which each unit is rounded before anything
        is added up, so that the sensitivity holds to the last bit; 0 for none. Raises :class:`InputError` without any records.
        """
        if not len(records):
            raise InputError("a party has no records: every party needs at least one, or leave it out")
        inside = self.inside(records)
        features = [feature.encode(inside) * scale for feature, scale in self.scales.items()]
        outside, missing = int(self.outside(records).sum()), int(np.isnan(records).sum())
        if self.unit == PrivacyUnit.RECORD:
            # Whole multiples of a power of two: their sum is exact.
            return Encoded(self._rounded(features, step).sum(axis=0), float(len(records)), outside, missing)
        means = [feature.mean(axis=0, keepdims=True) for feature in features]
        return Encoded(self._rounded(means, step)[0], 1.0, outside, missing)

    def _rounded(self, features: list[Array], step: float) -> Array:
        """The vectors of units, (units, d), from their scaled features, (units, size) each."""
        if not step:
            return np.hstack(features)
        known = zip(self.scales.items(), features, strict=True)
        return np.hstack([feature.to_grid(scaled, scale, step) for (feature, scale), scaled in known])

    def inside(self, records: Array) -> Records:
        """The records as features take them: by column, clamped, with what stands for missing values (NaN) and where they are."""
        found: dict[str, Array] = {}
        for place, column in enumerate(self.columns):
            values = records[:, place]
            found[column.name] = np.clip(np.where(np.isnan(values), column.centre, values), column.low, column.high)
            found[presence_of(column.name)] = (~np.isnan(values)).astype(np.float64)
        return found

    def outside(self, records: Array) -> NDArray[np.bool_]:
        """Which values lie outside their bounds; ``records`` and the result have shape (rows, columns)."""
        low, high = (np.array([getattr(column, side) for column in self.columns]) for side in ("low", "high"))
        outside: NDArray[np.bool_] = (records < low) | (records > high)
        return outside

    def decode(self, mean: Vector, noise: float, weight: float) -> tuple[Answer, ...]:
        """The answers from the mean vector, shape (d,), of total ``weight``; ``noise``: standard deviation on each coordinate."""
        ends = np.cumsum([feature.size for feature in self.scales])
        means = {
            feature: part / scale for (feature, scale), part in zip(self.scales.items(), np.split(mean, ends[:-1]), strict=True)
        }
        released = Released(weight, means, {feature: noise / scale for feature, scale in self.scales.items()})
        return tuple(Answer(one, one.decode(released, self.columns), weight) for one in self.statistics)

    def largest_party_change(self, weights: Array) -> Array:
        """How many times a party's whole data can move its vector compared with one unit: shape (n,)."""
        return weights if self.unit == PrivacyUnit.RECORD else np.ones_like(weights)


def _scaled_domain(feature: Feature, scale: float) -> InputDomain:
    domain = feature.domain
    if domain.size != feature.size or domain.diameter > feature.sensitivity * (1 + 1e-9):
        raise InputError(
            f"{type(feature).__name__} of sensitivity {feature.sensitivity:g} states a domain of diameter {domain.diameter:g} "
            f"and {domain.size} coordinates: a statistic's feature must state the domain of its encodings"
        )
    return domain.times(scale)
