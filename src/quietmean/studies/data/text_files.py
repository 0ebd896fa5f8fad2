"""Tables in text: CSV, TSV and what programs make of them.

The heading says how the records below it are read: what is between cells, and where a record ends. Each record is then read from
itself. One that has too many cells is a record of missing cells, and one that lacks some has them missing.

JSON lines have one object of JSON in each line, and no heading: what an object lacks is missing, and a line that is no object is
a record of missing cells. The first line is a record too, so its bytes decide nothing, and the text is UTF-8.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.cells import LONGEST_CELL, cell_text, plain_name
from quietmean.core.errors import InputError
from quietmean.core.extensions import is_installed
from quietmean.core.readable import count_of
from quietmean.studies.data.location import DELIMITERS, HEADING_LINES, Location
from quietmean.studies.data.table import (
    MOST_RECORD,
    ROWS,
    UTF_8,
    Cells,
    Encoding,
    NoticedRows,
    Notify,
    Pieces,
    Table,
    blocks,
    heading_absent,
    require_distinct,
    unpacked,
)
from quietmean.studies.data.text_records import (
    BLANKS,
    MultilineRecords,
    PlainRecords,
    Record,
    cells_of_plain,
    fields,
    in_order,
    record_of,
)

# The delimiters that are tried, in this order.
_ORDER = ("semicolon", "tab", "comma", "pipe")
# The line that spreadsheets write above a table to declare its delimiter.
_HINT = "sep="
# What is seen of records that do not fit, or fit with a mark that is open; and of those with more cells.
_OTHER_ENDS, _LONG, _OPEN, _MORE_CELLS = "other ends", "long", "open", "more cells"
_BACKSLASH, _SINGLE, _ONE_MORE = "backslash", "single", "one more"
# How ends of lines are called.
_ENDS = {"\r\n": "CR LF", "\n": "LF", "\r": "CR"}
# Bytes of a file in which it is seen that it is not text.
_LOOK = 4096


# The first bytes, in which the heading is searched.
_HEAD = 2**20


@dataclass(frozen=True)
class _Heading:
    """The heading of delimited text.

    ``line``: on which it stands; ``place``: where what is below it begins; ``end``: of it, and so of each record.

    ``closed``: does a delimiter stand behind its last name? Without a ``delimiter`` a record is one cell.
    """

    names: tuple[str, ...]
    delimiter: str
    line: int
    place: int
    end: str
    closed: bool

    @property
    def is_plain(self) -> bool:
        """Can a library split records below it?"""
        return self.delimiter not in ("", BLANKS) and self.end != "\r" and len(self.names) > 1


def read_delimited(location: Location, column_names: Collection[str] | None, tell: Notify) -> Pieces:
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
    reading = _Reading(location, heading, places)
    if location.most_lines:
        texts = _lines(encoding.records(below, heading.end), heading)
        records = MultilineRecords(texts, heading.delimiter, reading.widths, location.most_lines, heading.line + 1)
        yield from reading.one_by_one(iter(records))
    elif encoding.name == UTF_8 and heading.is_plain and is_installed("polars"):
        yield from reading.at_once(encoding, below)
    else:
        yield from reading.one_by_one(_records(encoding.records(below, heading.end), heading, heading.line + 1))
    reading.tell(tell)


class _Reading:
    """Reads the columns at these ``places``, and keeps what the owner of the data should know."""

    def __init__(self, location: Location, heading: _Heading, places: Sequence[int]) -> None:
        self._location, self._heading, self._places = location, heading, places
        self._table = Table(location.name, heading.names, (), lambda index: Cells(()), word="line", delimiter=heading.delimiter)
        self._records = 0
        # What was seen of records that do not fit.
        self._seen = defaultdict[str, NoticedRows](NoticedRows)
        self._has_row_names = location.settings.get("rownames") == "true"
        # Of a usual record.
        self._cells = len(heading.names) + self._has_row_names + heading.closed

    @property
    def widths(self) -> range:
        """How many cells a record may have: a delimiter stands behind the last one where it does in the heading, or none."""
        return range(self._cells - self._heading.closed, self._cells + 1)

    def one_by_one(self, records: Iterator[Record]) -> Pieces:
        while True:
            some = list(itertools.islice(records, ROWS))
            columns = self._columns(some)
            by_place = {place: Cells(column) for place, column in columns.items()}
            yield replace(self._table, lines=[record.line for record in some], take=by_place.__getitem__)
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
        there = records.plain.copy()
        there[~records.plain] = [bool(record) for record in records.others]
        numbers: Any = line + np.flatnonzero(there)
        plain = records.plain[there]
        others = _records(map(encoding.decode, filter(None, records.others)), self._heading, line)
        one_by_one = self._columns(
            record._replace(line=int(number)) for record, number in zip(others, numbers[~plain], strict=True)
        )
        first = 1 if self._has_row_names else 0
        places = [place + first for place in self._places]
        at_once = cells_of_plain(records.block, self._heading.delimiter, self._cells, places)
        self._records += int(plain.sum())
        order = np.where(plain, np.cumsum(plain) - 1, plain.sum() + np.cumsum(~plain) - 1)
        columns: dict[int, Cells] = {place: in_order(at_once[place + first], one_by_one[place], order) for place in self._places}
        return replace(self._table, lines=numbers, take=columns.__getitem__)

    def _columns(self, records: Iterable[Record]) -> dict[int, list[str | None]]:
        """The cells of some records by column."""
        columns: dict[int, list[str | None]] = {place: [] for place in self._places}
        for record in records:
            self._records += 1
            cells = None if record.cells is None else _fitting(record.cells, self._heading, self._location)
            self._look_at(record, cells is not None)
            for place, column in columns.items():
                column.append(cell_text(cells[place][:LONGEST_CELL]) if cells is not None and place < len(cells) else None)
        return columns

    def _look_at(self, record: Record, fits: bool) -> None:
        """What is seen of a record that does not fit, one thing of each."""
        if record.has_ends and not (fits and self._heading.delimiter):
            kinds = [_OTHER_ENDS]
        elif record.is_open:
            kinds = [_OPEN]
        elif record.cells is None:
            kinds = [_LONG]
        elif not fits:
            kinds = [_MORE_CELLS]
            if '\\"' in record.text:
                kinds.append(_BACKSLASH)
            elif any(cell.lstrip()[:1] == "'" for cell in record.cells):
                kinds.append(_SINGLE)
            elif len(record.cells) == len(self._heading.names) + 1:
                kinds.append(_ONE_MORE)
        else:
            return
        for kind in kinds:
            self._seen[kind].add([record.line])

    def tell(self, tell: Notify) -> None:
        """Says how many records do not fit, as it was seen, and what makes each way of writing them right."""
        name, most, end = self._location.name, self._location.most_lines, _ENDS[self._heading.end]
        names, longest = count_of(len(self._heading.names), "name"), f"{MOST_RECORD >> 20} MiB"
        longer = f"If a record has more than {most} lines, say {name}#multiline={8 * most}."
        further = longer if most else f"If the cell goes on in the next line, say {name}#multiline=true."
        for kind, seen, counts, remedy in (
            (_OTHER_ENDS, f"an end of a line that is not {end}, as behind the heading", True, f"Write {end} behind each record."),
            (_LONG, f"more than {longest}", True, "Leave out what is so long."),
            (_OPEN, "a quotation mark that nothing closes", bool(most), f"Close the mark, or write two for one. {further}"),
            (_MORE_CELLS, f"more cells than the heading, which has {names}", True, self._about_more_cells()),
        ):
            if count := self._seen[kind].count:
                has, it_counts = ("has", "It counts") if count == 1 else ("have", "They count")
                missing = f" {it_counts} as missing." if counts else ""
                stand = self._seen[kind].where("line")
                tell(f"{name}: {count_of(count, 'record')} {has} {seen} ({stand}).{missing} {remedy}")

    def _about_more_cells(self) -> str:
        name, seen = self._location.name, {kind: self._seen[kind].count for kind in (_ONE_MORE, _BACKSLASH, _SINGLE)}
        # Where rows have names, most have one cell more.
        if 2 * seen[_ONE_MORE] > self._records and self._location.settings.get("rownames") is None:
            return (
                f"If the first cell is the name of its row, as R writes it, say {name}#rownames=true. If a delimiter stands "
                f"behind the last cell, say {name}#rownames=false."
            )
        between = next((word for word, sign in DELIMITERS.items() if sign == self._heading.delimiter), "delimiter")
        marks = [
            f" {count_of(seen[kind], 'record')} of these {'has' if seen[kind] == 1 else 'have'} {what}."
            for kind, what in (
                (_BACKSLASH, "a backslash before a quotation mark. Write two marks instead"),
                (_SINGLE, "a single quotation mark before a cell. Write a double one"),
            )
            if seen[kind]
        ]
        return f"Put a cell with a {between} in it between double quotation marks.{''.join(marks)}"


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
    # How many names a line has between blanks, and whether the line below it has as many cells.
    between_blanks, by_blanks = 0, False
    for line, (content, end, next_start) in enumerate(encoding.lines(head, len(head) < _HEAD), 1):
        if line > location.skip + HEADING_LINES:
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
                # A single name may be a line of any text: then nothing delimits columns.
                between = delimiter if stated or len(heading) > 1 or delimiter in content else ""
                closed = between not in ("", BLANKS) and content.rstrip(" ").endswith(between)
                return _Heading(heading, between, line, next_start, end, closed)
        widest = widest or max((heading for _, heading in ways), key=len)
        cells = _names_in(content, BLANKS)
        by_blanks = by_blanks or 1 < between_blanks <= len(cells)
        if names is not None and names <= set(cells) and not stated and all(len(heading) <= 1 for _, heading in ways):
            between_blanks = len(cells)
        elif any(cells):
            between_blanks = 0
    if by_blanks:
        raise InputError(
            f"{location.name} has no delimiter between its columns. If blanks are, say {location.name}#delimiter=blanks."
        )
    raise _no_table(encoding.decode(head[:_LOOK]), location) or heading_absent(location.name, names or {""}, widest)


def _no_table(text: str, location: Location) -> InputError | None:
    """Return an error for what cannot be a table at all, by its first characters."""
    start = text.lstrip()
    if not start:
        return InputError(f"{location.name} is empty. Write the names of its columns into its first row.")
    if start[0] == "<":
        return InputError(f"{location.name} is a web page or XML and no table. Save it as CSV.")
    if start[0] in "{[":
        return InputError(
            f"{location.name} is JSON, not a table. Save it with one object a line as {location.path.stem}.jsonl, or as CSV."
        )
    if "\0" in start:
        return InputError(
            f"{location.name} cannot be read as a table, it holds binary data. Give a CSV file, or a format that quietmean knows."
        )
    return None


def _names_in(line: str, delimiter: str) -> tuple[str, ...]:
    """The names of the columns, without empty ones at the end."""
    names = [plain_name(cell_text(cell)) for cell in fields(line, delimiter)[0]]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _records(texts: Iterable[str | None], heading: _Heading, line: int) -> Iterator[Record]:
    """Each record: it ends with its line. ``line``: of the first one; None is one that is too long to be kept.

    An empty line is none, but of a file of one column: there it is how a cell without a value is written.
    """
    for text in _lines(texts, heading):
        if text != "" or len(heading.names) == 1:
            yield record_of(text, heading.delimiter, line)
        line += 1 + (text.count("\n") if text is not None and heading.end == "\r\n" else 0)


def _lines(texts: Iterable[str | None], heading: _Heading) -> Iterator[str | None]:
    """What stands between ends of lines; nothing stands behind the last one."""
    last: str | None = ""
    for place, text in enumerate(texts):
        if place:
            yield last
        # Behind CR, where records end so, LF is of the same end.
        last = text.removeprefix("\n") if text is not None and heading.end == "\r" else text
    if last != "":
        yield last


# What some programs write before the first object.
_MARK, _FIRST = codecs.BOM_UTF8, b"{"


def read_json_lines(location: Location, column_names: Collection[str] | None, tell: Notify) -> Pieces:
    """The named columns of such a file: without names none, as no record decides which there are.

    ``tell`` gets sentences for the owner of the data about a name that is in no record, and about lines that are no object.
    """
    location.only("a file of JSON lines", ())
    names = tuple(sorted({plain_name(name) for name in column_names or ()}))
    read, absent = _objects(location), set(names)
    no_objects = NoticedRows()
    while True:
        numbered = list(itertools.islice(read, ROWS))
        lines = [line for line, _ in numbered]
        no_objects.add(lines, [row for row, (_, record) in enumerate(numbered) if record is None])
        some = [record or {} for _, record in numbered]
        if absent:
            absent.difference_update(*some)
        columns = [Cells([record.get(name) for record in some]) for name in names]
        yield Table(location.name, names, lines, columns.__getitem__, word="line")
        if len(some) < ROWS:
            break
    if no_objects.count:
        are = count_of(no_objects.count, "line is not an object of JSON and counts", "lines are not objects of JSON and count")
        tell(
            f"{location.name}: {are} as missing throughout ({no_objects.where('line')}). Write each record as one "
            "object, in a line of its own."
        )
    for name in sorted(absent):
        tell(f"{location.name}: no record has {name!r}, which counts as missing throughout. Check its name.")


def _objects(location: Location) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The number of each line that is not empty, and its cells by their names; None where it is not an object."""
    chunks = unpacked(location.path, by_name=True)
    head = b""
    while len(head) <= len(_MARK) and (chunk := next(chunks, b"")):
        head += chunk
    below = itertools.chain([head.removeprefix(_MARK) if head.startswith(_MARK + _FIRST) else head], chunks)
    for line, record in enumerate(Encoding(UTF_8, "surrogateescape").records(below, "\n"), 1):
        if record is None or record.strip():
            yield line, None if record is None else _cells_of_object(record)


def _cells_of_object(record: str) -> dict[str, Any] | None:
    try:
        # Numbers with more digits than Python reads are no whole numbers.
        document = json.loads(record, parse_int=_whole)
    # No object, or one that is nested without an end.
    except Exception:
        return None
    return (
        {plain_name(cell_text(name)): _cell_of_object(cell) for name, cell in document.items()}
        if isinstance(document, dict)
        else None
    )


def _whole(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _cell_of_object(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell_text(cell[:LONGEST_CELL])
    return str(cell)[:LONGEST_CELL] if isinstance(cell, list | dict) else cell
