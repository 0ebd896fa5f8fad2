"""Columns that sort records into groups: one with levels, or two of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.columns import Column
from quietmean.statistics.statistic import Records

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Crossed:
    """Two columns with levels as one: each level of the first with all of the second, which runs faster."""

    first: Column
    second: Column

    @property
    def name(self) -> str:
        return f"{self.first.name}:{self.second.name}"

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(f"{one}:{other}" for one in self.first.categories for other in self.second.categories)


Groups = Column | Crossed


def groups_of(records: Records, by: Groups) -> Array:
    """The place of each record's group, shape (rows,); NaN where a level is missing."""
    if isinstance(by, Crossed):
        return records[by.first.name] * len(by.second.categories) + records[by.second.name]
    return records[by.name]
