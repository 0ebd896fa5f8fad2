"""Features of records that count with a weight: a record is a mixture of itself and of one in which nothing is present.

A weight w with the public cap W is the part u = w / W of a record, and what is released is u phi(r) + (1 - u) phi(nothing). That
is in the convex hull of encodings, so that no sensitivity grows: two records are as far apart as two that count in full.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.input_domain import InputDomain
from quietmean.statistics.columns import Column
from quietmean.statistics.features.of_another import OfAnother
from quietmean.statistics.features.presence import Indicator
from quietmean.statistics.statistic import TOTAL, Feature, Records, presence_of, raw

# The factor of what counts with u^2, which variances need; the other one has the rest of the squared sensitivity.
_OF_SQUARES = math.sqrt(0.2)
_FACTORS = (math.sqrt(1 - _OF_SQUARES**2), _OF_SQUARES)


@dataclass(frozen=True)
class PartOfCap(Indicator):
    """The weight of a record over its cap, from 0 to 1; 0 where it has none, or no level of the columns that it ``needs``."""

    weight: Column
    needs: tuple[Column, ...] = ()

    is_whole = False

    def encode(self, records: Records) -> Array:
        parts = records[presence_of(self.weight.name)] * records[self.weight.name] / self.weight.high
        for column in self.needs:
            parts = parts * records[presence_of(column.name)]
        return np.clip(parts, 0.0, 1.0)[:, None]


@dataclass(frozen=True)
class Weighted(OfAnother):
    """A feature of which each record counts for the part u of its weight's cap; with ``squares`` beside it the same with u^2.
    ``needs``: as of :class:`PartOfCap`.

    Quantities: those of the feature with u, then with u^2. The squares of both factors add up to 1, so that the sensitivity is
    that of the feature, which two records with the cap as their weight reach.
    """

    weight: Column
    squares: bool = True
    needs: tuple[Column, ...] = ()

    @property
    def _factors(self) -> tuple[float, ...]:
        return _FACTORS if self.squares else (1.0,)

    @property
    def size(self) -> int:
        return len(self._factors) * self.inner.size

    @property
    def most_nonzero(self) -> int:
        # Each half has numbers of the record and of nothing.
        return min(self.size, 4 * self.inner.most_nonzero)

    @property
    def domain(self) -> InputDomain:
        return InputDomain.product([self.inner.domain.times(factor) for factor in self._factors])

    def encode(self, records: Records) -> Array:
        part, own = PartOfCap(self.weight, self.needs).encode(records), self.inner.encode(records)
        nothing = self.inner.encode(_without_any(records))
        halves = zip(self._factors, (part, part**2), strict=False)
        return np.hstack([factor * (power * own + (1 - power) * nothing) for factor, power in halves])

    def looks_at(self) -> tuple[Feature, ...]:
        return (*self.inner.looks_at(), PartOfCap(self.weight, self.needs))

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        halves = zip(np.hsplit(scaled, len(self._factors)), self._factors, strict=True)
        return np.hstack([self.inner.to_grid(half, scale * factor, step) for half, factor in halves])

    def mixing(self, scale: float, step: float) -> float:
        return max(self.inner.mixing(scale * factor, step) for factor in self._factors)

    def response(self, scale: float, step: float) -> Array:
        response, size = np.zeros((self.size, self.size)), self.inner.size
        for place, factor in enumerate(self._factors):
            half = slice(place * size, (place + 1) * size)
            response[half, half] = factor * self.inner.response(scale * factor, step)
        return response

    def events(self) -> Mapping[Hashable, Array]:
        # What counts for nothing is a record too, but no other event is what others know by the same name.
        return {event: self.of_parts(weights) for event, weights in self.inner.events().items() if event == TOTAL}

    def never_negative(self) -> Array:
        return np.asarray(np.kron(np.eye(len(self._factors)), self.inner.never_negative()), dtype=np.float64)

    @property
    def complete(self) -> Array | None:
        return None if self.inner.complete is None else self.of_parts(self.inner.complete)

    def of_parts(self, weights: Array) -> Array:
        """Weights of what counts with u, (..., size), from those of the feature's quantities."""
        return np.concatenate([weights, np.zeros_like(weights)], axis=-1) if self.squares else weights

    def of_squares(self, weights: Array) -> Array:
        """Weights of what counts with u^2, (..., size), from those of the feature's quantities."""
        return np.concatenate([np.zeros_like(weights), weights], axis=-1)


def _without_any(records: Records) -> Records:
    """As many records in which nothing is present."""
    empty: dict[str, Array] = {}
    for key, values in records.items():
        if key.startswith("\0"):
            empty[key] = np.full(len(values), np.nan if key == raw(key.partition(" ")[2]) else 0.0)
        else:
            empty[key] = values if raw(key) in records else np.full(len(values), np.nan)
    return empty
