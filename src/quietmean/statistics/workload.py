"""All statistics of a study at once: from records to one bounded vector, from the mean of vectors to estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.statistics.answers import Answer
from quietmean.statistics.columns import Columns
from quietmean.statistics.statistic import Array, Feature, Released, Statistic


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,), its public weight, and how many of its numbers were clipped."""

    vector: Vector
    weight: float
    clipped: int


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

    def encode(
        self, records: Array, *, clip: bool = False, row_names: NDArray[np.int64] | None = None, step: float = 0.0
    ) -> Encoded:
        """A party's vector from its ``records``, shape (rows, columns), in the units of the columns.

        ``clip`` moves values outside the bounds to the nearest bound. ``row_names``: the numbers of the rows for error messages,
        shape (rows,). ``step``: that of the plan's grid, to which each unit is rounded before anything is added up, so that the
        sensitivity holds to the last bit; 0 for none. Raises :class:`InputError` if there are no records, or for a value outside
        the bounds without ``clip``.
        """
        if not len(records):
            raise InputError("a party has no records: every party needs at least one, or leave it out")
        outside = self.outside(records)
        if outside.any() and not clip:
            row, place = (int(index[0]) for index in np.nonzero(outside))
            column, number = list(self.columns)[place], int(row_names[row]) if row_names is not None else row + 1
            raise InputError(
                f"row {number}, column {column.name!r} is {records[row, place]:g}, outside the bounds "
                f"{column.low:g} to {column.high:g}: mend it, widen --bounds or pass --clip"
            )
        inside = {column.name: np.clip(records[:, place], column.low, column.high) for place, column in enumerate(self.columns)}
        features = [feature.encode(inside) * scale for feature, scale in self.scales.items()]
        if self.unit == PrivacyUnit.RECORD:
            # Whole multiples of a power of two: their sum is exact.
            return Encoded(self._rounded(features, step).sum(axis=0), float(len(records)), int(outside.sum()))
        means = [feature.mean(axis=0, keepdims=True) for feature in features]
        return Encoded(self._rounded(means, step)[0], 1.0, int(outside.sum()))

    def _rounded(self, features: list[Array], step: float) -> Array:
        """The vectors of units, (units, d), from their scaled features, (units, size) each."""
        if not step:
            return np.hstack(features)
        known = zip(self.scales.items(), features, strict=True)
        return np.hstack([feature.to_grid(scaled, scale, step) for (feature, scale), scaled in known])

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
