"""Vectors from groups of equal rows, which the engine counted that holds the data: bit for bit those of the rows one by one.

A row's rounded unit is a whole multiple of a power of two, so the sum over rows is that over distinct rows times how many there
are of each. What a feature needs to know of a column is either its cells or between which edges its numbers lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.statistic import Array, Feature, presence_of, raw
from quietmean.statistics.transforms import Transform


class Asked(Protocol):
    """What is known of a workload here: its columns and its features with their scales, and how rows come inside the bounds."""

    @property
    def unit(self) -> PrivacyUnit: ...
    @property
    def hides_count(self) -> bool: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def scales(self) -> Mapping[Feature, float]: ...

    def inside(self, records: Array, /) -> Mapping[str, Array]: ...
    def outside(self, records: Array, /) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class Question:
    """By which ``columns`` rows are grouped: by their cells, or where ``cuts`` has rising edges, by where numbers lie among them.

    Two numbers are in one group if they lie between the same two edges; an edge is in a group of its own.
    """

    columns: tuple[str, ...]
    cuts: tuple[tuple[str, tuple[float, ...]], ...] = ()


class Groups(ABC):
    """Rows of a source as groups; ``len``: how many rows there are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def counted(self, question: Question) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        """A row of each group, (groups, columns), NaN in columns that are not asked for, and how many rows it has, in pieces."""


class _Seen(Mapping[str, Array]):
    """Records that remember which columns a feature looks at."""

    def __init__(self, records: Mapping[str, Array], columns: Columns) -> None:
        self._records, self.names = records, set[str]()
        self._names = {key(one.name): one.name for one in columns for key in (str, raw, presence_of)}

    def __getitem__(self, key: str) -> Array:
        self.names.add(self._names[key])
        return self._records[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def sums_of(workload: Asked, groups: Groups, step: float) -> tuple[Array, int, int, int]:
    """The sum of all rows' vectors, (d,), how many rows there are, values outside their bounds, and missing cells.

    Raises :class:`InputError` where records are not the unit, and without any unless their number is private.
    """
    if workload.unit != PrivacyUnit.RECORD:
        raise InputError(f"groups of rows do not say whose they are, and the unit is {workload.unit}: read the rows instead")
    if not len(groups) and not workload.hides_count:
        raise InputError("a party has no records: every party needs at least one, or leave it out")
    columns = workload.columns
    tried = workload.inside(np.full((1, len(columns)), np.nan))
    totals: list[Array] = []
    # How many values are outside, and missing, by column.
    strange = np.full((2, len(columns)), -1, dtype=np.int64)
    for feature, scale in workload.scales.items():
        total, question = np.zeros(feature.size), question_of(feature, columns, tried)
        seen = np.zeros_like(strange)
        for rows, counts in groups.counted(question):
            scaled = feature.encode(workload.inside(rows)) * scale
            total += counts @ (feature.to_grid(scaled, scale, step) if step else scaled)
            seen += _strange(workload, rows, counts)
        totals.append(total)
        asked = [column.name in question.columns for column in columns]
        strange[:, asked] = seen[:, asked]
    for place, column in enumerate(columns):
        if strange[0, place] < 0:
            # No feature looks at it.
            counted = groups.counted(question_about(column, columns))
            strange[:, place] = sum((_strange(workload, *piece) for piece in counted), np.zeros_like(strange))[:, place]
    outside, missing = strange.sum(axis=1).tolist()
    return np.concatenate(totals), len(groups), outside, missing


def _strange(workload: Asked, rows: Array, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many values are outside their bounds, and how many are missing, by column: (2, columns)."""
    strange: NDArray[np.int64] = np.array([counts @ workload.outside(rows), counts @ np.isnan(rows)], dtype=np.int64)
    return strange


def question_of(feature: Feature, columns: Columns, records: Mapping[str, Array]) -> Question:
    """What has to be known of rows to encode them. ``records``: some, of all columns, which the feature is tried on."""
    # Of each column that it looks at, the edges that numbers are compared with; none where the number itself counts.
    edges: dict[str, tuple[float, ...]] = {}
    for part in feature.looks_at():
        seen, cuts = _Seen(records, columns), part.cuts()
        part.encode(seen)
        for name in seen.names:
            own = cuts.get(name, ())
            edges[name] = own if edges.get(name, own) == own else ()
    needed = _with_sources(set(edges), columns)
    asked = [column for column in columns if column.name in needed]
    cuts = {
        column.name: _with_codes((*edges[column.name], column.low, column.high), column)
        for column in asked
        if edges.get(column.name) and not column.origin
    }
    return Question(tuple(column.name for column in asked), tuple((name, cut) for name, cut in cuts.items() if cut))


def question_about(column: Column, columns: Columns) -> Question:
    """Which values of one of the columns are missing, and which lie outside of its bounds."""
    cut = _with_codes((column.low, column.high), column) if column.numeric and not column.origin else ()
    needed = _with_sources({column.name}, columns)
    return Question(tuple(each.name for each in columns if each.name in needed), ((column.name, cut),) if cut else ())


def _with_codes(edges: tuple[float, ...], column: Column) -> tuple[float, ...]:
    """And the codes for missing, each of which is in a group of its own; none where one of them is no number."""
    try:
        return tuple(sorted({*edges, *map(float, column.missing_codes)}))
    except ValueError:
        return ()


def _with_sources(names: set[str], columns: Columns) -> set[str]:
    """And the columns that transforms are computed from."""
    found = set(names)
    for column in reversed(list(columns)):
        if column.name in found and column.origin:
            found |= set(Transform(column.origin).sources)
    return found
