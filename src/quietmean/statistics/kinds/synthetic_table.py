"""Tables of all columns and of pairs of them, from which rows are made up that are like the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.fields import names_field, require_names, usual_bins_field
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.kinds.counts import counts
from quietmean.statistics.names import quoted, split, unquoted
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

_USUAL_BINS = 10
# Without a list, all pairs of up to so many columns; of more, each column with the one before it.
_ALL_PAIRS = 10
# Released counts are kept to this part of a record, so that everybody's are the same.
_DIGITS = 3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SyntheticTable(Statistic):
    """How many records each cell has, of tables of every column, and of each of the ``pairs`` of columns.

    Numbers are cut as in :class:`~quietmean.statistics.kinds.counts.Histogram`. Terms are ``sex:f`` and ``sex:f smoker:yes``.
    Without ``pairs``: all pairs of ten columns or fewer, and of more each column with the one before it. Every table has a whole
    ``share``. ``summary`` has what :mod:`quietmean.studies.outcome.synthetic` makes rows of.
    """

    name = "synthetic-table"
    summary = "tables of columns and pairs, to make up rows that are like the records"
    by_place = ("columns",)
    takes_all = True
    counts_records = True

    columns: tuple[str, ...] = names_field("the columns, by default all that are declared", "columns")
    pairs: tuple[str, ...] = names_field("pairs of columns, such as sex:smoker, by default all of ten columns or fewer", "pairs")
    bins: int | None = usual_bins_field(_USUAL_BINS)

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return self.tables(columns)

    def total_share(self, columns: Columns) -> float:
        return self.share * len(self.features(columns))

    def tables(self, columns: Columns) -> tuple[CellIndicators, ...]:
        """The tables of all columns in their order, then those of the pairs."""
        names = self._names(columns)
        axes = [Axis.of(columns[name], None, self.bins, _USUAL_BINS) for name in names]
        alone = (CellIndicators((axis,)) for axis in axes)
        return (*alone, *(CellIndicators((axes[first], axes[second])) for first, second in self._places(names)))

    def _names(self, columns: Columns) -> tuple[str, ...]:
        names = self.columns or columns.names
        require_names(self.text, names, 2)
        return names

    def _places(self, names: tuple[str, ...]) -> list[tuple[int, int]]:
        """Which columns each pair is of, the first one first."""
        if not self.pairs:
            places = range(len(names))
            return list(combinations(places, 2) if len(names) <= _ALL_PAIRS else pairwise(places))
        found: list[tuple[int, int]] = []
        for text in self.pairs:
            parts = [unquoted(part) for part in split(text, ":")]
            if len(parts) != 2 or parts[0] == parts[1]:
                raise InputError(f"{text!r} is not a pair of columns. Write for example pairs={names[0]}:{names[1]}.")
            for part in parts:
                if part not in names:
                    listed = ", ".join(names)
                    raise InputError(
                        f"pair {text!r} names {part!r}, which the table has not{nearest(part, names)}. Choose of {listed}."
                    )
            first, second = sorted(names.index(part) for part in parts)
            if (first, second) in found:
                raise InputError(f"pair {text!r} is named twice. Name it once.")
            found.append((first, second))
        return found

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        return tuple(
            TermReading(term, table, cell, adds_up=True)
            for table in self.tables(columns)
            for term, cell in zip(_terms(table), np.eye(table.size), strict=True)
        )

    def decode(self, released: Released, columns: Columns) -> Estimates:
        tables = self.tables(columns)
        parts = [counts(released, table, _terms(table)) for table in tables]
        entries = tuple(entry for part in parts for entry in part.entries)
        summary = {
            "columns": [_axis_json(table.axes[0]) for table in tables if len(table.axes) == 1],
            "pairs": [[tables.index(CellIndicators((axis,))) for axis in table.axes] for table in tables if len(table.axes) == 2],
            "released": [np.round(released.mean(table) * released.weight, _DIGITS).tolist() for table in tables],
            "noise": [_error(released, table) for table in tables],
        }
        n = np.tile([float(np.rint(released.records)), released.records_error], (len(entries), 1))
        flags = tuple(flag for part in parts for flag in part.flags)
        return replace(parts[0], entries=entries, flags=flags, summary=summary, n=n)


def _error(released: Released, table: CellIndicators) -> float:
    """The standard deviation of the noise in a cell of a table, in records, in the mean over its cells."""
    return float(np.sqrt(max(np.diag(released.covariance(table)).mean(), 0.0)) * released.weight)


def _terms(table: CellIndicators) -> tuple[str, ...]:
    """The names of the cells; no two are the same, whatever columns and levels are called."""
    labels = [[f"{quoted(axis.column.name, ': ')}:{_label(label)}" for label in axis.labels] for axis in table.axes]
    return tuple(" ".join(each) for each in _all_of(labels))


def _label(label: str) -> str:
    return f"`{label}`" if ":" in label else label


def _all_of(labels: list[list[str]]) -> list[tuple[str, ...]]:
    """One label of each list, the last list running fastest."""
    cells: list[tuple[str, ...]] = [()]
    for own in labels:
        cells = [(*cell, label) for cell in cells for label in own]
    return cells


def _axis_json(axis: Axis) -> dict[str, Any]:
    """An axis as :func:`axis_of` reads it, with nothing of the column but what its cells need."""
    column = axis.column
    if not column.numeric:
        return {"name": column.name, "levels": list(column.categories)}
    more = {**({"since": column.since} if column.since else {}), **({"whole": True} if column.whole else {})}
    return {"name": column.name, "low": column.low, "high": column.high, **more, "cut": list(axis.edges)}


def axis_of(document: Mapping[str, Any]) -> Axis:
    """The axis of an entry of the summary's ``columns``."""
    raw = dict(document)
    edges = tuple(raw.pop("cut", ()))
    return Axis(Column.model_validate(raw), edges)
