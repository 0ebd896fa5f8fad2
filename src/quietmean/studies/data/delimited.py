"""Tables in text: CSV, TSV and what programs make of them.

The heading says how the records below it are read: what is between cells, and where a record ends. Each record is then read from
itself. One that has too many cells is a record of missing cells, and one that lacks some has them missing.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quietmean.core.errors import InputError
from quietmean.studies.data.location import DELIMITERS, Location
from quietmean.studies.data.table import Table, heading_absent, of_rows, plain_name
from quietmean.studies.data.text import Tell, cell_text

if TYPE_CHECKING:
    from _csv import Reader

# So far down the names of the columns are looked for, with these delimiters, in this order.
_HEADING_LINES = 50
_ORDER = ("semicolon", "tab", "comma", "pipe")
# What spreadsheets write above a table to say what is between its columns.
_HINT = "sep="
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")


@dataclass(frozen=True)
class _Heading:
    """``line``: on which it stands; ``place``: where what is below it begins; ``end``: of it, and so of each record."""

    names: tuple[str, ...]
    delimiter: str
    line: int
    place: int
    end: str


def read_delimited(text: str, location: Location, wanted: Collection[str], tell: Tell) -> Table:
    """The table in a text. Raises :class:`InputError` if the ``wanted`` columns are named in none of its first lines.

    ``tell`` gets sentences for the owner of the data alone.
    """
    location.only("a text", {"delimiter", "encoding", "multiline", "skip"})
    heading = _find_heading(text, location, {plain_name(name) for name in wanted})
    multiline = location.said.get("multiline") == "true"
    records = (_records_of_lines if multiline else _records)(text[heading.place :], heading)
    width = len(heading.names)
    rows: list[list[str | None]] = []
    lines: list[int] = []
    longer = left_open = 0
    for cells, line, is_open in records:
        while len(cells) > width and not cells[-1].strip():
            # Programs write a delimiter behind the last field, too.
            cells.pop()
        longer, left_open = longer + (len(cells) > width), left_open + is_open
        lacking = width - len(cells)
        rows.append([None] * width if lacking < 0 else [*map(cell_text, cells), *[None] * lacking])
        lines.append(line)
    if longer:
        tell(
            f"{location.name}: {longer} records have more cells than the {width} columns have names, and count as missing; if "
            "rows have names, as R writes them, write them without (row.names = FALSE)"
        )
    if left_open:
        tell(
            f"{location.name}: {left_open} records end within a quotation mark; if cells have several lines, say "
            f"{location.name}#multiline=true"
        )
    return of_rows(location.name, heading.names, rows, lines, word="line", delimiter=heading.delimiter)


def _find_heading(text: str, location: Location, names: set[str]) -> _Heading:
    """The first of the first lines in which all ``names`` stand, with the delimiter that was said, or the first that does.

    Raises :class:`InputError` if there is none; it says which name is absent.
    """
    said = DELIMITERS.get(location.said.get("delimiter", ""))
    delimiters = [said] if said else [DELIMITERS[name] for name in _ORDER]
    widest: tuple[str, ...] = ()
    for line, matched in enumerate(_LINE.finditer(text), 1):
        if line > location.skip + _HEADING_LINES or matched.start() == len(text):
            break
        content = matched[1]
        if line <= location.skip:
            continue
        if not said and content.lower().startswith(_HINT):
            delimiters = [content[len(_HINT) :].rstrip()[:1] or "\t"]
            continue
        ways = [(delimiter, _names_in(content, delimiter)) for delimiter in delimiters]
        for delimiter, found in ways:
            if names <= set(found):
                # A name alone is a line of any text; nothing is between cells then.
                between = "" if len(found) == 1 and not said else delimiter
                return _Heading(found, between, line, matched.end(), matched[2] or "\n")
        widest = widest or max((found for _, found in ways), key=len)
    raise _no_table(text, location) or heading_absent(location.name, names, widest)


def _no_table(text: str, location: Location) -> InputError | None:
    """What is no table at all, by its first signs."""
    start = text[:4096].lstrip()
    if not start:
        return InputError(f"{location.name} is empty: its first row must hold the names of its columns")
    if start[0] == "<":
        return InputError(f"{location.name} is a web page or XML and no table: save it as CSV")
    if start[0] in "{[":
        return InputError(f"{location.name} is JSON and no table: save it as CSV")
    if "\0" in start:
        return InputError(
            f"{location.name} cannot be read as a table, it holds binary data: give a CSV file, or a format that quietmean knows"
        )
    return None


def _names_in(line: str, delimiter: str) -> tuple[str, ...]:
    """Of the columns, without those that have none at the end."""
    names = [plain_name(cell_text(cell)) for cell in _fields(line, delimiter)[0]]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _records(text: str, heading: _Heading) -> Iterator[tuple[list[str], int, bool]]:
    """Cells, line, and whether a quotation mark was left open, of each record but empty lines: it ends with its line."""
    line = heading.line + 1
    for record in text.split(heading.end):
        if record:
            cells, is_open = _fields(record, heading.delimiter)
            yield cells, line, is_open
        line += 1 + (record.count("\n") if heading.end == "\r\n" else 0)


def _records_of_lines(text: str, heading: _Heading) -> Iterator[tuple[list[str], int, bool]]:
    """The same where a cell between quotation marks may have several lines, as its owner said."""
    reader = _reader(text, heading.delimiter)
    while True:
        line = heading.line + 1 + reader.line_num
        try:
            record = next(reader, None)
        except csv.Error:
            # A field that is longer than the library takes.
            record = [""] * (len(heading.names) + 1)
        if record is None:
            return
        if record:
            yield record, line, False


def _fields(record: str, delimiter: str) -> tuple[list[str], bool]:
    """The cells of one record, and whether a quotation mark was left open."""
    if '"' not in record:
        return record.split(delimiter) if delimiter else [record], False
    # An end of line inside belongs to its cell.
    plain = record.replace("\n", " ").replace("\r", " ")
    try:
        cells = next(_reader(plain, delimiter), [])
    except csv.Error:
        return [record], True
    return cells, plain.count('"') % 2 == 1


def _reader(text: str, delimiter: str) -> Reader:
    # Notes of physicians are longer than the module's default allows. Without a delimiter nothing is between cells.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or "\x1f", strict=False)
