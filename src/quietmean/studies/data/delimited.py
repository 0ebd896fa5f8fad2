"""Tables in text: CSV, TSV and what programs make of them."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from quietmean.core.errors import InputError
from quietmean.studies.data.location import DELIMITERS, Location
from quietmean.studies.data.table import Table, of_rows, plain_name

if TYPE_CHECKING:
    from _csv import Reader

# What spreadsheets write above a table to say what is between its columns.
_HINT = "sep="


def read_delimited(text: str, location: Location, wanted: Collection[str]) -> Table:
    """The table in a text. What is between its columns is what was said, or what makes a table with the ``wanted`` columns.

    Raises :class:`InputError` for a text that is none, or is a table in two ways; the error names the line and no cell.
    """
    location.only("a text", {"delimiter", "encoding", "skip"})
    if text.lstrip()[:1] == "<":
        raise InputError(f"{location.name} is a web page or XML and no table: save it as CSV")
    lines = io.StringIO(text, newline="").readlines()
    skip, said = location.skip, DELIMITERS.get(location.said.get("delimiter", ""))
    hint = lines[skip] if len(lines) > skip else ""
    if hint.lower().startswith(_HINT):
        said, skip = said or hint[len(_HINT) :].rstrip("\r\n")[:1] or "\t", skip + 1
    rest = "".join(lines[skip:])
    if not rest.strip():
        raise InputError(f"{location.name} is empty: its first row must hold the names of its columns")
    ways = [_Way(rest, one, skip, location.name) for one in ([said] if said else DELIMITERS.values())]
    names = {plain_name(name) for name in wanted}
    fitting = [way for way in ways if names <= set(way.names)]
    if not fitting:
        # The one that divides most is what is meant.
        return max(ways, key=lambda way: len(way.names)).table()
    if len(fitting) == 1:
        return fitting[0].table()
    return _agreed(fitting, location)


@dataclass(frozen=True)
class _Way:
    """A text read with one delimiter; ``skipped`` lines stand above it."""

    text: str
    delimiter: str
    skipped: int
    place: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of its columns, without those that have none at the end."""
        try:
            heading = next((record for record in self._reader() if any(cell.strip() for cell in record)), [])
        except csv.Error:
            return ()
        names = [plain_name(cell) for cell in heading]
        while names and not names[-1]:
            names.pop()
        return tuple(names)

    def table(self) -> Table:
        """Raises :class:`InputError` for a row that has not as many fields as there are columns, and for broken quotes."""
        records, lines = self._records()
        width = len(self.names)
        if not records:
            return of_rows(self.place, self.names, [], [])
        rows = []
        for number, record in zip(lines[1:], records[1:], strict=True):
            # Programs write a delimiter behind the last field, too.
            while len(record) > width and not record[-1].strip():
                record.pop()
            if len(record) != width:
                raise self._uneven(number, len(record), [len(one) for one in records[1:]])
            rows.append(record)
        return of_rows(self.place, self.names, rows, lines[1:], word="line", point=self.delimiter == ",")

    def _uneven(self, line: int, found: int, widths: list[int]) -> InputError:
        width = len(self.names)
        if set(widths) == {width + 1}:
            return InputError(
                f"every row of {self.place} has one field more than the {width} names in its first row: if rows have names, as R "
                "writes them, write them without (row.names = FALSE)"
            )
        return InputError(
            f"line {line} of {self.place} has {found} fields where the first row has {width}: mend that line, and put text that "
            "has the delimiter or an end of line in it between quotation marks"
        )

    def _records(self) -> tuple[list[list[str]], list[int]]:
        """All records and the lines on which they begin; empty lines are none, but for gaps in a table of one column."""
        reader = self._reader()
        records: list[list[str]] = []
        lines: list[int] = []
        while True:
            start = self.skipped + reader.line_num + 1
            try:
                record = next(reader, None)
            except csv.Error as error:
                raise self._broken(start, reader.line_num + self.skipped, str(error)) from None
            if record is None:
                return records, lines
            if not records and not any(cell.strip() for cell in record):
                continue
            if not record:
                if len(self.names) > 1:
                    continue
                record = [""]
            records.append(record)
            lines.append(start)

    def _broken(self, start: int, line: int, error: str) -> InputError:
        if "end of data" in error:
            return InputError(f"the quotation mark in line {start} of {self.place} is never closed: close it")
        return InputError(f"line {line} of {self.place} has a quotation mark inside a quoted field: write it twice there")

    def _reader(self) -> Reader:
        # Notes of physicians are longer than the module's default allows.
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        return csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, strict=True)


def _agreed(ways: list[_Way], location: Location) -> Table:
    """The one table that several delimiters make. Raises :class:`InputError` if they make different ones."""
    found: list[Table] = []
    refused: InputError | None = None
    for way in ways:
        try:
            found.append(way.table())
        except InputError as error:
            refused = refused or error
    if not found and refused is not None:
        raise refused
    widest = max(found, key=lambda table: len(table.names))
    if sum(len(table.names) > 1 for table in found) > 1:
        raise InputError(
            f"{location.name} is a table with different delimiters in different ways: say which is meant, such as "
            f"{location.name}#delimiter=semicolon"
        )
    if len(widest.names) == 1:
        # One column: nothing is between columns, and numbers may have a decimal comma.
        return next((table for table in found if not table.point), widest)
    return widest
