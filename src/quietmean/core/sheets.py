"""Sheets of a workbook, read by a process of its own with bounded memory: ``python -P -m quietmean.core.sheets KIND PATH CELLS``.

Libraries for workbooks make room for whatever a file says it has, and one of them ends its process where there is none. This
module imports nothing of quietmean but what limits memory, for a process that begins quickly.
"""

from __future__ import annotations

import datetime
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final, TypeAlias

import msgspec

from quietmean.core.portability import TooManyCellsError, limit_process

EXCEL: Final = "excel"
OTHER: Final = "other"
# Exit codes of a process that cannot print the sheets, besides 1.
PASSWORD, TOO_LARGE = 3, 4
MOST_MEMORY = 4 * 2**30
MOST_PROCESSOR = 3600

# A row with something in it: its number, from 1, and its cells, each None, a truth value, a number or a text.
Row: TypeAlias = tuple[int, list[Any]]
# Stands for a cell that is damaged.
_STRANGE = "\N{REPLACEMENT CHARACTER}"
_MOST_ROWS, _MOST_COLUMNS = 2**20, 2**14
_COLUMN = re.compile(r"[A-Z]{1,3}")


def packed(kind: str, path: str, max_cells: int) -> bytes:
    """Names and rows of all sheets, packed. Raises :class:`TooManyCellsError`, and whatever a library raises for a file."""
    budget = max_cells
    sheets: list[tuple[str, list[Row]]] = []
    for name, rows in _of_excel(path) if kind == EXCEL else _of_others(path):
        filled: list[Row] = []
        for number, row in rows:
            while row and row[-1] in (None, ""):
                row.pop()
            if row:
                filled.append((number, [None if cell == "" else _plain(cell) for cell in row]))
                budget -= len(row)
                if budget < 0:
                    raise TooManyCellsError
        sheets.append((name, filled))
    return msgspec.msgpack.encode(sheets)


def _plain(cell: Any) -> Any:
    """What can be packed: dates and times as texts such as 2024-01-31."""
    if cell is None or isinstance(cell, str | bool | float):
        return cell
    return cell if isinstance(cell, int) and abs(cell) < 1 << 63 else cell.isoformat() if _has_day(cell) else str(cell)


def _has_day(cell: Any) -> bool:
    return isinstance(cell, datetime.date | datetime.time)


def _of_others(path: str) -> Iterator[tuple[str, Iterable[Row]]]:
    """The sheets of .xls, .xlsb and .ods files."""
    from python_calamine import CalamineWorkbook

    with closing(CalamineWorkbook.from_path(path)) as book:
        for name in book.sheet_names:
            yield name, enumerate(book.get_sheet_by_name(name).to_python(skip_empty_area=False), 1)


def _of_excel(path: str) -> Iterator[tuple[str, Iterable[Row]]]:
    """The sheets of .xlsx and .xlsm files."""
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        # Its warnings quote cells.
        warnings.simplefilter("ignore")
        with closing(load_workbook(path, read_only=True, data_only=True)) as book:
            for sheet in book.worksheets:
                yield sheet.title, _rows_of_excel(book, sheet)


def _rows_of_excel(book: Any, sheet: Any) -> Iterator[Row]:
    """Each row as it stands in the file, cell by cell: one that is damaged is none, and says nothing about others.

    The library's own loop makes the rows that are not there, leaves rows out after one with a larger number, and ends at a cell
    that it cannot read.
    """
    from openpyxl.worksheet._reader import CELL_TAG, DATA_TAG, ROW_TAG, WorkSheetParser
    from openpyxl.xml.functions import iterparse

    with sheet._get_source() as source:
        parser = WorkSheetParser(
            source,
            sheet._shared_strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )
        number, cells, above, row = 0, dict[int, Any](), None, None
        for event, element in iterparse(source, events=("start", "end")):
            if event == "start":
                if element.tag == DATA_TAG:
                    above = element
                elif element.tag == ROW_TAG:
                    number, cells, row = _number(element.get("r"), number), {}, element
                    parser.col_counter = 0
            elif element.tag == CELL_TAG and row is not None:
                column, value = _cell(parser, element)
                if value is not None and 1 <= column <= _MOST_COLUMNS:
                    cells[column] = value
                # Elements that were read are freed: a file may have any number of cells.
                row.clear()
            elif element.tag == ROW_TAG:
                yield number, [cells.get(column) for column in range(1, max(cells, default=0) + 1)]
                row = None
                if above is not None:
                    above.clear()


def _number(stated: str | None, before: int) -> int:
    """The number of a row: as stated where that is possible, else one more than that of the row before it."""
    return (
        int(stated)
        if stated is not None and re.fullmatch("[0-9]{1,7}", stated) and 1 <= int(stated) <= _MOST_ROWS
        else before + 1
    )


def _cell(parser: Any, element: Any) -> tuple[int, Any]:
    """Its column, from 1, and what it holds."""
    counted = parser.col_counter + 1
    try:
        cell = parser.parse_cell(element)
        return cell["column"], cell["value"]
    except Exception:
        letters = _COLUMN.match(element.get("r") or "")
        parser.col_counter = counted
        if letters is not None:
            parser.col_counter = 0
            for letter in letters[0]:
                parser.col_counter = 26 * parser.col_counter + ord(letter) - ord("A") + 1
        return parser.col_counter, _STRANGE


def main(kind: str, path: str, max_cells: int) -> None:
    """What the process does."""
    limit_process(MOST_MEMORY, MOST_PROCESSOR)
    try:
        content = packed(kind, path, max_cells)
    except (MemoryError, TooManyCellsError):
        sys.exit(TOO_LARGE)
    except Exception as error:
        # The library's message is dropped: it may quote a cell.
        sys.exit(PASSWORD if type(error).__name__ == "PasswordError" else 1)
    sys.stdout.buffer.write(content)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
