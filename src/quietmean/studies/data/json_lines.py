"""JSON lines: a text with one object of JSON in each line, which is one record.

Nothing is a header, so no name is refused for being in none of the objects: what an object lacks is missing. A line that is no
object is a record of missing cells. Each line is read by itself: the first one is a record too, so its bytes decide nothing, and
the text is UTF-8, as the standard of JSON has it.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Collection, Iterator
from typing import Any

from quietmean.core.cells import LONGEST_CELL, cell_text, plain_name
from quietmean.core.readable import count_of
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import ROWS, Cells, NoticedRows, Pieces, Table
from quietmean.studies.data.text import UTF_8, Encoding, Notify, unpacked

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
            f"{location.name}: {are} as missing throughout ({no_objects.where('line')}): write each record as one "
            "object, in a line of its own"
        )
    for name in sorted(absent):
        tell(f"{location.name}: no record has {name!r}, which counts as missing throughout: check its name")


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
    return {plain_name(cell_text(name)): _cell_of_object(cell) for name, cell in document.items()} if isinstance(document, dict) else None


def _whole(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _cell_of_object(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell_text(cell[:LONGEST_CELL])
    return str(cell)[:LONGEST_CELL] if isinstance(cell, list | dict) else cell
