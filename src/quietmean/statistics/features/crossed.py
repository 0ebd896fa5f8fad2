"""Columns that sort records into groups: one with levels, or two of them at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Column
from quietmean.statistics.statistic import TOTAL, Records


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
        return tuple(f"{category}:{other}" for category in self.first.categories for other in self.second.categories)


Groups = Column | Crossed


def complete_records(names: Iterable[str], by: Groups | None = None) -> Hashable:
    """The event of records that have a value in all of the named columns, and a level in those of the groups."""
    levels = () if by is None else (by.first.name, by.second.name) if isinstance(by, Crossed) else (by.name,)
    demanded = frozenset((*names, *levels))
    return ("complete", demanded) if demanded else TOTAL


def complete_in_groups(by: Groups | None, name: str, block: int) -> Array | None:
    """Weights (levels, size) of the first of the ``block`` quantities of each group, for each level of the named column."""
    if isinstance(by, Crossed) and name == by.first.name:
        levels = np.kron(np.eye(len(by.first.categories)), np.ones(len(by.second.categories)))
    elif by is not None and name == by.name:
        levels = np.eye(len(by.categories))
    else:
        return None
    weights: Array = np.kron(levels, np.eye(block)[0])
    return weights


def groups_of(records: Records, by: Groups) -> Array:
    """The place of each record's group, shape (rows,); NaN where a level is missing."""
    if isinstance(by, Crossed):
        return records[by.first.name] * len(by.second.categories) + records[by.second.name]
    return records[by.name]
