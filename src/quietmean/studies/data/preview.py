"""What the owner of the data should see before saying yes, and nobody else: what a study finds in each column of a file.

A person decides by it how the file is to be read. Nothing that takes part in a study does: it would decide how all rows are read
by what stands in some.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.readable import count_of
from quietmean.statistics import Column, Columns
from quietmean.studies.data.cells import is_unclear, kind_of, text_of_cell, understood
from quietmean.studies.data.location import Location
from quietmean.studies.data.reading import Source, location_of, read_at, read_table, values_of
from quietmean.studies.data.spellings import Numerals
from quietmean.studies.data.table import Cells, Table, joined

# The most unreadable texts that are shown; rows at either end; and characters of a cell.
_SPELLINGS, _ROWS, _LONGEST = 5, 3, 40
# Other settings that are tried, each by itself.
_OTHER_WAYS = {"decimal": ("comma", "point"), "dates": ("day-first", "month-first", "excel", "sas", "stata", "unix")}
# And of how records are read, which are tried where a note names them.
_OTHER_RECORDS = {"multiline": ("true",), "rownames": ("true", "false")}


@dataclass(frozen=True)
class ColumnPreview:
    """One declared column: of so many ``records``, how many are ``missing``, lie ``outside`` the bounds, or are not understood.

    What is not understood counts as ``missing``, too. ``unclear``: cells that may be two numbers or two dates. ``spellings``: the
    commonest texts that are not understood, with how often each is there. ``least`` and ``most``: of the values, days as dates.
    """

    name: str
    kind: str
    records: int
    missing: int
    outside: int
    strange: int
    unclear: int
    spellings: tuple[tuple[str, int], ...]
    least: float | str | None = None
    most: float | str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """The least and the most as they are shown; empty without a value."""
        lowest, highest = (
            "" if end is None else end if isinstance(end, str) else f"{end:.6g}" for end in (self.least, self.most)
        )
        return lowest, highest

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "spellings": [list(pair) for pair in self.spellings]}


def holds_texts(source: Source, name: str) -> bool:
    """Do the cells of a column begin with letters, all that are not empty? Raises :class:`InputError` without the column."""
    cells = read_table(source, [name], lambda _: None).column(name)
    texts = [text for cell in cells if (text := text_of_cell(cell))]
    return bool(texts) and all(text[0].isalpha() for text in texts)


@dataclass(frozen=True)
class Preview:
    """How the first rows of a source were understood.

    ``place``: the file. ``first`` and ``last``: cells of the study's columns in these rows, behind their line.

    ``proposed``: settings with which more cells are understood, ``gained`` more. ``notes``: further sentences. ``persons``: whose
    records they are, and how many one has at most, where the site said which column tells it.
    """

    place: str
    records: int
    columns: tuple[ColumnPreview, ...]
    first: tuple[tuple[str, ...], ...]
    last: tuple[tuple[str, ...], ...]
    proposed: Mapping[str, str]
    gained: int
    notes: tuple[str, ...]
    persons: tuple[int, int] | None = None

    @classmethod
    def of(cls, source: Source, columns: Columns) -> Preview:
        """Preview the first rows of a source. Raises :class:`InputError` where the file cannot be read at all."""
        notes: list[str] = []
        read = [column for column in columns if not column.origin]
        location = location_of(source)
        person = location.mapping.person
        column_names = [column.name for column in read] + ([person] if person else [])
        table = read_table(source, column_names, notes.append)
        values = values_of(table, columns, location)
        shown = [_column(table, column, location, values[:, list(columns).index(column)]) for column in read]
        understood = _understood(table, read, location)
        proposed, gained = _proposal(table, read, location, understood)
        for name, choices in _OTHER_RECORDS.items():
            if any(f"#{name}=" in note for note in notes):
                other, more = _other_records(location, read, name, choices, (sum(understood), table.height))
                proposed, gained = {**proposed, **other}, gained + more
        rows = range(table.height)
        first, last = (tuple(_row(table, read, row) for row in part) for part in (rows[:_ROWS], rows[_ROWS:][-_ROWS:]))
        persons = _persons(table.column(person)) if person else None
        return cls(table.place, table.height, tuple(shown), first, last, proposed, gained, tuple(notes), persons)

    @property
    def sentences(self) -> list[str]:
        """Sentences about what needs attention, worst first."""
        numbers = "numbers (three digits after a mark that nobody said to be decimal)"
        unclear = [
            f"column {column.name!r}: {count_of(column.unclear, 'cell')} may be two "
            f"{'dates' if column.kind == 'dates' else numbers}, and {_verb(column.unclear)} as missing"
            for column in self.columns
            if column.unclear
        ]
        strange = [
            f"column {column.name!r}: {count_of(column.strange, 'cell')} not understood, most often "
            + ", ".join(f"{text!r} ({count})" for text, count in column.spellings)
            for column in self.columns
            if column.strange
        ]
        outside = [
            f"column {column.name!r}: {count_of(column.outside, 'cell')} outside the bounds, "
            f"and {_verb(column.outside)} as the nearest bound"
            for column in self.columns
            if column.outside
        ]
        empty = [f"column {column.name!r}: no cell holds a value" for column in self.columns if column.missing == column.records]
        of_persons = []
        if self.persons is not None:
            count, most = self.persons
            of_persons = [
                f"{count_of(self.records, 'record is', 'records are')} of {count_of(count, 'person')}, at most {most:,} of one"
            ]
        return [*empty, *unclear, *strange, *outside, *self.notes, *of_persons]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.place,
            "records": self.records,
            "columns": [column.to_json() for column in self.columns],
            "first": [list(row) for row in self.first],
            "last": [list(row) for row in self.last],
            "proposed": dict(self.proposed),
            "cells_gained": self.gained,
            **({} if self.persons is None else {"persons": self.persons[0], "most_records_of_a_person": self.persons[1]}),
            "sentences": self.sentences,
        }


def _column(table: Table, column: Column, location: Location, values: np.ndarray[Any, np.dtype[np.float64]]) -> ColumnPreview:
    cells, numerals = table.column(column.name), Numerals.of(location, table.delimiter)
    strange = list(map(int, np.flatnonzero(understood(cells, column, numerals, location)[1])))
    texts = [text_of_cell(cells[row]) or "" for row in strange]
    there = values[~np.isnan(values)] if column.numeric else values[values >= 0]
    return ColumnPreview(
        column.name,
        kind_of(column),
        table.height,
        table.height - len(there),
        int(((there < column.low) | (there > column.high)).sum()) if column.numeric else 0,
        len(strange),
        sum(is_unclear(text, column, numerals, location) for text in texts),
        tuple(Counter(_short(text) for text in texts).most_common(_SPELLINGS)),
        *([_end(column, float(there.min())), _end(column, float(there.max()))] if column.numeric and len(there) else []),
    )


def _persons(cells: Cells) -> tuple[int, int]:
    """How many persons these are, and how many records one has at most; an empty cell is a person of its own."""
    counts = Counter(text_of_cell(cell) for cell in cells)
    unknown = counts.pop(None, 0)
    return len(counts) + unknown, max(counts.values(), default=min(unknown, 1))


def _end(column: Column, value: float) -> float | str:
    if not (column.since and math.isfinite(value)):
        return value
    return (datetime.date.fromisoformat(column.since) + datetime.timedelta(days=value)).isoformat()


def _understood(table: Table, columns: Sequence[Column], location: Location) -> list[int]:
    """How many cells of each column hold a value within the bounds, or a declared level."""
    counts = []
    for column in columns:
        values, _ = understood(table.column(column.name), column, Numerals.of(location, table.delimiter), location)
        low, high = (column.low, column.high) if column.numeric else (0.0, np.inf)
        # A missing value is neither true nor false.
        counts.append(int(((values >= low) & (values <= high)).sum()))
    return counts


def _proposal(
    table: Table, columns: Sequence[Column], location: Location, understood: Sequence[int]
) -> tuple[dict[str, str], int]:
    """The settings with which more cells are understood and in no column fewer; and how many more."""
    numeric = [(column, now) for column, now in zip(columns, understood, strict=True) if column.numeric]
    best: dict[str, tuple[int, str]] = {}
    for name, value in ((name, value) for name, values in _OTHER_WAYS.items() for value in values):
        if location.settings.get(name) == value:
            continue
        other = replace(location, settings={**location.settings, name: value})
        # A setting of dates changes no number, and one of numbers no date.
        concerned = [(column, now) for column, now in numeric if (name == "dates") == bool(column.since)]
        after = _understood(table, [column for column, _ in concerned], other)
        gains = [more - now for more, (_, now) in zip(after, concerned, strict=True)]
        if min(gains, default=0) >= 0 and sum(gains) > best.get(name, (0, ""))[0]:
            best[name] = sum(gains), value
    return {name: value for name, (_, value) in best.items()}, sum(gain for gain, _ in best.values())


def _other_records(
    location: Location, columns: Sequence[Column], name: str, choices: Sequence[str], now: tuple[int, int]
) -> tuple[dict[str, str], int]:
    """What to say of records, where a larger part of their cells is understood then; and how many more cells are.

    ``now``: how many cells are understood, and how many records there are.
    """
    best, gained, (understood, height) = {}, 0, now
    for choice in choices:
        other = replace(location, settings={**location.settings, name: choice})
        table = joined(read_at(other, [column.name for column in columns], unit=None), len(columns))
        after = sum(_understood(table, columns, other))
        if after * height > understood * table.height:
            best, gained, understood, height = {name: choice}, after - now[0], after, table.height
    return best, max(gained, 0)


def _row(table: Table, columns: Sequence[Column], row: int) -> tuple[str, ...]:
    cells = (table.column(column.name)[row] for column in columns)
    return f"{table.word} {table.lines[row]}", *(_short(text_of_cell(cell) or "") for cell in cells)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _verb(count: int) -> str:
    return "counts" if count == 1 else "count"
