"""Vectors from groups of equal rows, which the engine counted that holds the data: bit for bit those of the rows one by one.

A row's rounded unit is a whole multiple of a power of two, so the sum over rows is that over distinct rows times how many there
are of each. What a feature needs to know of a column is either its cells or between which edges its numbers lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.cells import in_single
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.statistic import Feature, presence_of, raw
from quietmean.statistics.transforms import Transform

# Rows that are encoded at a time.
_ROWS = 4096


class Asked(Protocol):
    """What is known of a workload here: its columns and its features with their scales, and how rows come inside the bounds."""

    @property
    def unit(self) -> PrivacyUnit: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def scales(self) -> Mapping[Feature, float]: ...

    def inside(self, records: Array, /) -> Mapping[str, Array]: ...
    def outside(self, records: Array, /) -> Mask: ...


@dataclass(frozen=True)
class Question:
    """By which ``columns`` rows are grouped: by their cells, or where ``cuts`` has rising edges, by where numbers lie between
    them.

    Two numbers are in one group if they lie between the same two edges; an edge is in a group of its own.
    """

    columns: tuple[str, ...]
    cuts: tuple[tuple[str, tuple[float, ...]], ...] = ()


class Groups(ABC):
    """Rows of a source as groups; ``len``: how many rows there are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def at_once(self) -> AbstractContextManager[None]:
        """The context in which all questions are about the rows of one moment, where a source can."""

    @abstractmethod
    def counted(self, question: Question) -> Iterator[tuple[Array, Ints]] | None:
        """A row of each group, (groups, columns), NaN in columns that are not asked for, and how many rows it has, in pieces.

        None where there are too many groups to be worth it: their rows are read then, as what the cells are decides it.
        """

    @abstractmethod
    def rows(self) -> Iterator[Array]:
        """All rows, (rows, columns), in pieces."""


class _Seen(Mapping[str, Array]):
    """Records that remember which columns a feature looks at."""

    def __init__(self, records: Mapping[str, Array], columns: Columns) -> None:
        self._records, self.names = records, set[str]()
        self._names = {key(column.name): column.name for column in columns for key in (str, raw, presence_of)}

    def __getitem__(self, key: str) -> Array:
        self.names.add(self._names[key])
        return self._records[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def sums_of(workload: Asked, groups: Groups, step: float) -> tuple[Array, int, int, int]:
    """The sum of all rows' vectors, (d,), how many rows there are, values outside their bounds, and missing cells.

    Raises :class:`InputError` where records are not the unit, and where the source has other rows meanwhile.
    """
    if workload.unit != PrivacyUnit.RECORD:
        raise InputError(f"groups of rows do not say whose they are, and the unit is {workload.unit}: read the rows instead")
    sums = _Sums(workload, groups, step)
    with groups.at_once():
        sums.by_groups()
        if sums.left or not sums.notes_by_groups():
            sums.by_rows()
    outside, missing = sums.strange.sum(axis=1).tolist()
    return np.concatenate(list(sums.totals.values())), len(groups), outside, missing


class _Sums:
    """The sums of features over rows that a source has grouped.

    ``totals``: of each feature; ``left``: features that need too many groups, and whose rows have to be read.

    ``strange``: how many values are outside, and missing, by column, (2, columns); -1 where that is not known yet.
    """

    def __init__(self, workload: Asked, groups: Groups, step: float) -> None:
        self._workload, self._groups, self._step = workload, groups, step
        self.totals = {feature: np.zeros(feature.size) for feature in workload.scales}
        self.left: list[Feature] = []
        self.strange = np.full((2, len(workload.columns)), -1, dtype=np.int64)

    def by_groups(self) -> None:
        columns = self._workload.columns
        tried = self._workload.inside(np.full((1, len(columns)), np.nan))
        by_question: dict[Question, list[Feature]] = {}
        for feature in self.totals:
            by_question.setdefault(question_of(feature, columns, tried), []).append(feature)
        for question, features in by_question.items():
            if not self._counted(question, features):
                self.left += features

    def notes_by_groups(self) -> bool:
        """Whether the notes on columns that no feature looks at could be made of groups."""
        columns = self._workload.columns
        unseen = [column for place, column in enumerate(columns) if self.strange[0, place] < 0]
        return all(self._counted(question_about(column, columns), []) for column in unseen)

    def by_rows(self) -> None:
        """What is left, and all notes."""
        seen, count = np.zeros_like(self.strange), 0
        for rows in self._groups.rows():
            ones = np.ones(len(rows), dtype=np.int64)
            self._add(rows, ones, self.left)
            seen += _strange(self._workload, rows, ones)
            count += len(rows)
        self._require_all(count)
        self.strange = seen

    def _counted(self, question: Question, features: list[Feature]) -> bool:
        pieces = self._groups.counted(question)
        if pieces is None:
            return False
        seen, count = np.zeros_like(self.strange), 0
        for rows, counts in pieces:
            self._add(rows, counts, features)
            seen += _strange(self._workload, rows, counts)
            count += int(counts.sum())
        self._require_all(count)
        counted = [column.name in question.columns for column in self._workload.columns]
        self.strange[:, counted] = seen[:, counted]
        return True

    def _add(self, rows: Array, counts: Ints, features: list[Feature]) -> None:
        # So few at a time that memory does not grow with the table.
        for start in range(0, len(rows) if features else 0, _ROWS):
            inside, here = self._workload.inside(rows[start : start + _ROWS]), counts[start : start + _ROWS]
            for feature in features:
                scale = self._workload.scales[feature]
                scaled = feature.encode(inside) * scale
                self.totals[feature] += here @ (feature.to_grid(scaled, scale, self._step) if self._step else scaled)

    def _require_all(self, count: int) -> None:
        if count != len(self._groups):
            raise InputError(
                "the data were changed while their rows were counted: wait until their program has written all of them"
            )


def _strange(workload: Asked, rows: Array, counts: Ints) -> Ints:
    """How many values are outside their bounds, and how many are missing, by column: (2, columns)."""
    strange: Ints = np.array([counts @ workload.outside(rows), counts @ np.isnan(rows)], dtype=np.int64)
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
    questioned = [column for column in columns if column.name in needed]
    cuts = {
        column.name: _with_codes((*edges[column.name], column.low, column.high), column)
        for column in questioned
        if edges.get(column.name) and not column.origin
    }
    return Question(tuple(column.name for column in questioned), tuple((name, cut) for name, cut in cuts.items() if cut))


def question_about(column: Column, columns: Columns) -> Question:
    """Which values of one of the columns are missing, and which lie outside of its bounds."""
    cut = _with_codes((column.low, column.high), column) if column.numeric and not column.origin else ()
    needed = _with_sources({column.name}, columns)
    return Question(tuple(each.name for each in columns if each.name in needed), ((column.name, cut),) if cut else ())


def _with_codes(edges: tuple[float, ...], column: Column) -> tuple[float, ...]:
    """Add the codes for missing, each of which is in a group of its own; none where one of them is not a number."""
    try:
        codes = [float(code) for code in column.missing_codes]
        return tuple(sorted({*edges, *codes, *map(in_single, codes)}))
    except ValueError:
        return ()


def _with_sources(names: set[str], columns: Columns) -> set[str]:
    """The names of columns, with those that their transforms are computed from."""
    needed = set(names)
    for column in reversed(list(columns)):
        if column.name in needed and column.origin:
            needed |= set(Transform(column.origin).sources)
    return needed
