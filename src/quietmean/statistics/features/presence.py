"""One number of a record: whether something holds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Column
from quietmean.statistics.features.block import ColumnBlock, complete_records
from quietmean.statistics.statistic import TOTAL, Feature, Records, presence_of


def any_present(columns: Sequence[Column]) -> Hashable:
    """The event of a record with a value in any of the columns: of every record where missing cells of one are filled in."""
    if any(column.fills_in for column in columns):
        return TOTAL
    names = frozenset(column.name for column in columns)
    return complete_records(names) if len(names) == 1 else ("any", names)


class Indicator(Feature):
    """1 for a record in which something holds, else 0."""

    size = 1
    sensitivity = 1.0
    length = 1.0
    is_whole = True

    def response(self, scale: float, step: float) -> Array:
        return np.eye(1) * (np.floor(scale / step) * step / scale if step else 1.0)


@dataclass(frozen=True)
class AnyPresent(Indicator):
    """1 for a record with a value in any of the columns, else 0: in which a condition on these columns can hold.

    Of one column a block says the same, beside its mean; both are released as the block.
    """

    declared: tuple[Column, ...]

    @property
    def complete(self) -> Array:
        return np.ones(1)

    @property
    def imputed(self) -> tuple[Column, ...]:
        return tuple(column for column in self.declared if column.fills_in)

    def cuts(self) -> dict[str, tuple[float, ...]]:
        return {column.name: (column.centre,) for column in self.declared if column.numeric}

    def events(self) -> Mapping[Hashable, Array]:
        return {any_present(self.declared): np.ones(1)}

    def included_in(self, other: Feature) -> bool:
        if not isinstance(other, ColumnBlock) or other.by is not None or other.own_mean:
            return False
        return self.declared == (other.column,)

    def encode(self, records: Records) -> Array:
        present = [records[presence_of(column.name)] for column in self.declared]
        some: Array = np.stack(present).max(axis=0)[:, None]
        return np.ones_like(some) if self.imputed else some
