"""Tables in text: CSV, TSV and what programs make of them.

The heading says how the records below it are read: what is between cells, and where a record ends. Each record is then read from
itself. One that has too many cells is a record of missing cells, and one that lacks some has them missing.
"""

from __future__ import annotations

import csv
import io
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from quietmean.core.cells import LONGEST_CELL, cell_text, plain_name
from quietmean.core.errors import InputError
from quietmean.core.extras import is_installed
from quietmean.core.readable import count_of
from quietmean.studies.data.location import DELIMITERS, Location
from quietmean.studies.data.plain_records import PlainRecords
from quietmean.studies.data.table import ROWS, Cells, Pieces, Table, heading_absent, require_distinct
from quietmean.studies.data.text import MOST_RECORD, MOST_UNPACKED, UTF_8, Encoding, Tell, blocks, too_large, unpacked

if TYPE_CHECKING:
    from _csv import Reader

# Lines among which the heading is searched, and the delimiters that are tried, in this order.
_HEADING_LINES = 50
_ORDER = ("semicolon", "tab", "comma", "pipe")
# The line that spreadsheets write above a table to declare its delimiter.
_HINT = "sep="
# How ends of lines are called.
_ENDS = {"\r\n": "CR LF", "\n": "LF", "\r": "CR"}
# Bytes of a file in which it is seen that it is not text.
_LOOK = 4096


# Bytes among which the heading is searched.
_HEAD = 2**20


@dataclass(frozen=True)
class _Heading:
    """``line``: on which it stands; ``place``: where what is below it begins; ``end``: of it, and so of each record.

    ``closed``: does a delimiter stand behind its last name?
    """

    names: tuple[str, ...]
    delimiter: str
    line: int
    place: int
    end: str
    closed: bool


# Cells, None for a record that is too long to be kept; number of the line; was a quotation mark left open; and may it be several
# lines, which end otherwise than records do.
_Record: TypeAlias = tuple[list[str] | None, int, bool, bool]


def read_delimited(location: Location, column_names: Collection[str] | None, tell: Tell) -> Pieces:
    """The named columns of a file of text; without names, all that the first line names.

    Raises :class:`InputError` if they are named in none of its first lines. ``tell`` gets sentences for the owner of the data
    alone, after the last piece.
    """
    location.only("a text", {"delimiter", "encoding", "multiline", "rownames", "skip"})
    chunks = unpacked(location.path)
    head = b""
    while len(head) < 2 * _HEAD and (chunk := next(chunks, b"")):
        head += chunk
    encoding, mark = Encoding.of(head, location)
    head = head[mark:]
    names = None if column_names is None else {plain_name(name) for name in column_names}
    heading = _find_heading(encoding, head, location, names)
    below = itertools.chain([head[heading.place :]], chunks)
    places = [index for index, name in enumerate(heading.names) if (name if names is None else name in names)]
    reading = _Reading(location, heading, places, encoding.encode(heading.end) in head[heading.place :])
    if location.settings.get("multiline") == "true":
        yield from reading.one_by_one(_records_of_lines(encoding, below, heading, location))
    elif encoding.name == UTF_8 and heading.delimiter and heading.end != "\r" and is_installed("polars"):
        yield from reading.at_once(encoding, below)
    else:
        yield from reading.one_by_one(_records(encoding.records(below, heading.end), heading, heading.line + 1))
    reading.tell(tell)


class _Reading:
    """Reads the columns at these ``places``, and keeps what the owner of the data should know. ``ended``: does any record end as
    the heading does?"""

    def __init__(self, location: Location, heading: _Heading, places: Sequence[int], ended: bool) -> None:
        self._location, self._heading, self._places, self._ended = location, heading, places, ended
        self._table = Table(location.name, heading.names, (), lambda index: Cells(()), word="line", delimiter=heading.delimiter)
        self._records = self._longer = self._left_open = self._joined = 0
        self._has_row_names = location.settings.get("rownames") == "true"
        # Of a usual record.
        self._cells = len(heading.names) + self._has_row_names + heading.closed

    def one_by_one(self, records: Iterator[_Record]) -> Pieces:
        while True:
            some = list(itertools.islice(records, ROWS))
            columns = self._columns(some)
            by_place = {place: Cells(column) for place, column in columns.items()}
            yield replace(self._table, lines=[line for _, line, *_ in some], take=by_place.__getitem__)
            if len(some) < ROWS:
                return

    def at_once(self, encoding: Encoding, below: Iterable[bytes]) -> Pieces:
        """Plain records by a library, and the others one by one: a piece for each block of the file."""
        heading, line = self._heading, self._heading.line + 1
        for block in blocks(below, encoding.encode(heading.end)):
            records = None
            if block is not None and len(block) <= MOST_RECORD:
                records = PlainRecords.of(block, heading.delimiter, self._cells, heading.closed, heading.end)
            if records is None:
                texts = [None] if block is None else encoding.records([block], heading.end)
                yield from self.one_by_one(_records(texts, heading, line))
            else:
                yield self._piece(encoding, records, line)
            line += 1 if block is None else block.count(b"\n") + 1

    def _piece(self, encoding: Encoding, records: PlainRecords, line: int) -> Table:
        """All records of a block in their order, but empty ones; the first of them is on this ``line``."""
        from quietmean.studies.data.polars_texts import cells_of_plain, in_order

        there = records.plain.copy()
        there[~records.plain] = [bool(record) for record in records.others]
        numbers: Any = line + np.flatnonzero(there)
        others = _records(map(encoding.decode, filter(None, records.others)), self._heading, line)
        one_by_one = self._columns(others)
        first = 1 if self._has_row_names else 0
        places = [place + first for place in self._places]
        at_once = cells_of_plain(records.block, self._heading.delimiter, self._cells, places)
        plain = records.plain[there]
        self._records += int(plain.sum())
        order = np.where(plain, np.cumsum(plain) - 1, plain.sum() + np.cumsum(~plain) - 1)
        columns = {place: Cells(in_order(at_once[place + first], one_by_one[place], order)) for place in self._places}
        return replace(self._table, lines=numbers, take=columns.__getitem__)

    def tell(self, tell: Tell) -> None:
        """Raises :class:`InputError` where all that is below the heading would be one record, as no line ends as it does."""
        name = self._location.name
        if self._joined:
            end, hint = _ENDS[self._heading.end], f"if each line is a record, say {name}#multiline=true"
            if self._records == 1 and not self._ended:
                raise InputError(
                    f"the heading of {name} ends with {end}, and no line below does, so all would be one record: {hint}"
                )
            counts = count_of(self._joined, "record counts", "records count")
            tell(f"{name}: {counts} as missing, of lines that do not end with {end} like the heading, or too long: {hint}")
        if self._longer:
            longer = count_of(self._longer, "record has more cells and counts", "records have more cells and count")
            names = count_of(len(self._heading.names), "name")
            tell(
                f"{name}: {longer} as missing, as the heading has {names}; if the first cell is the name of its row, as R writes "
                f"it, say {name}#rownames=true, and if a delimiter stands behind the last cell, {name}#rownames=false"
            )
        if self._left_open:
            tell(
                f"{name}: {count_of(self._left_open, 'record ends', 'records end')} within a quotation mark; if cells "
                f"have several lines, say {name}#multiline=true"
            )

    def _columns(self, records: Iterable[_Record]) -> dict[int, list[str | None]]:
        """The cells of some records by column."""
        columns: dict[int, list[str | None]] = {place: [] for place in self._places}
        for raw_cells, _, is_open, of_lines in records:
            cells = None if raw_cells is None else _fitting(raw_cells, self._heading, self._location)
            self._records, self._left_open = self._records + 1, self._left_open + is_open
            if of_lines and (cells is None or not self._heading.delimiter):
                self._joined += 1
            else:
                self._longer += cells is None
            for place, column in columns.items():
                column.append(cell_text(cells[place][:LONGEST_CELL]) if cells is not None and place < len(cells) else None)
        return columns


def _fitting(cells: list[str], heading: _Heading, location: Location) -> list[str] | None:
    """The cells below the names; None where they are more.

    Empty ones behind the last fall away, as programs write a delimiter there, too. A single one may also be that of a last
    column, where a row begins with its name: unless the heading ends so, or a setting says it, nobody knows.
    """
    width, row_names = len(heading.names), location.settings.get("rownames")
    if row_names == "true":
        cells = cells[1:]
    elif row_names is None and not heading.closed and len(cells) == width + 1:
        return None
    while len(cells) > width and not cells[-1].strip():
        cells.pop()
    return None if len(cells) > width else cells


def _find_heading(encoding: Encoding, head: bytes, location: Location, names: set[str] | None) -> _Heading:
    """The first of the first lines in which all ``names`` stand, with the delimiter of the settings, or the first that does.

    Without names, the first line with what makes most columns of it. Raises :class:`InputError` if there is none; it says which
    name is absent.
    """
    stated = DELIMITERS.get(location.settings.get("delimiter", ""))
    delimiters = [stated] if stated else [DELIMITERS[name] for name in _ORDER]
    widest: tuple[str, ...] = ()
    for line, (content, end, next_start) in enumerate(encoding.lines(head, len(head) < _HEAD), 1):
        if line > location.skip + _HEADING_LINES:
            break
        if line <= location.skip:
            continue
        if not stated and content.lower().startswith(_HINT):
            delimiters = [content[len(_HINT) :].rstrip()[:1] or "\t"]
            continue
        ways = [(delimiter, _names_in(content, delimiter)) for delimiter in delimiters]
        if names is None and any(any(heading) for _, heading in ways):
            ways = [max(ways, key=lambda way: len(way[1]))]
        for delimiter, heading in ways:
            if any(heading) if names is None else names <= set(heading):
                require_distinct(location.name, heading)
                # A single name may be a line of any text: then there is no delimiter.
                between = "" if len(heading) == 1 and not stated else delimiter
                return _Heading(heading, between, line, next_start, end, bool(between) and content.rstrip().endswith(between))
        widest = widest or max((heading for _, heading in ways), key=len)
    raise _no_table(encoding.decode(head[:_LOOK]), location) or heading_absent(location.name, names or {""}, widest)


def _no_table(text: str, location: Location) -> InputError | None:
    """An error for what is no table at all, by its first characters."""
    start = text.lstrip()
    if not start:
        return InputError(f"{location.name} is empty: its first row must hold the names of its columns")
    if start[0] == "<":
        return InputError(f"{location.name} is a web page or XML and no table: save it as CSV")
    if start[0] in "{[":
        return InputError(
            f"{location.name} is JSON and no table: if each of its lines is an object, call it {location.path.stem}.jsonl, else "
            "save it so, or as CSV"
        )
    if "\0" in start:
        return InputError(
            f"{location.name} cannot be read as a table, it holds binary data: give a CSV file, or a format that quietmean knows"
        )
    return None


def _names_in(line: str, delimiter: str) -> tuple[str, ...]:
    """The names of the columns, without empty ones at the end."""
    names = [plain_name(cell_text(cell)) for cell in _fields(line, delimiter)[0]]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _records(texts: Iterable[str | None], heading: _Heading, line: int) -> Iterator[_Record]:
    """Each record but empty lines: it ends with its line. ``line``: of the first one; None is one that is too long to be kept."""
    for record in texts:
        if record is None:
            yield None, line, False, True
        # Behind CR, where records end so, LF is of the same end.
        elif record := record.removeprefix("\n") if heading.end == "\r" else record:
            cells, is_open = _fields(record, heading.delimiter)
            yield cells, line, is_open, _has_lines(record, heading.delimiter)
        line += 1 + (record.count("\n") if record is not None and heading.end == "\r\n" else 0)


def _records_of_lines(encoding: Encoding, below: Iterable[bytes], heading: _Heading, location: Location) -> Iterator[_Record]:
    """The same where a cell between quotation marks may have several lines, by a setting: all of the text at once."""
    raw = bytearray()
    for chunk in below:
        raw += chunk
        if len(raw) > MOST_UNPACKED:
            raise too_large(location.name)
    reader = _reader(encoding.decode(bytes(raw)), heading.delimiter)
    del raw
    while True:
        line = heading.line + 1 + reader.line_num
        try:
            record = next(reader, None)
        except csv.Error:
            # A field that is longer than the library takes.
            yield None, line, False, True
            continue
        if record is None:
            return
        if record:
            yield record, line, False, False


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


def _has_lines(record: str, delimiter: str) -> bool:
    """Does any end of line stand in it that is not within quotation marks?"""
    if "\n" not in record and "\r" not in record:
        return False
    try:
        return sum(1 for cells in _reader(record, delimiter) if cells) > 1
    except csv.Error:
        return False


def _reader(text: str, delimiter: str) -> Reader:
    # Notes of physicians are longer than the module's default allows. Without a delimiter nothing is between cells.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or "\x1f", strict=False)
