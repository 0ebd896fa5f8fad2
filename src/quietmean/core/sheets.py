"""Sheets of a workbook, read by a process of its own: ``python -P -m quietmean.core.sheets PATH CELLS``.

The library makes room for whatever a file says it has, and ends its process where there is none (:mod:`quietmean.core.columnar`).
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeAlias

import msgspec

from quietmean.core.cells import STRANGE
from quietmean.core.columnar import anyway, run
from quietmean.core.lazy import python_calamine
from quietmean.core.portability import TooManyCellsError

# What is written instead of sheets where these are protected by a password.
PASSWORD = b"password"
# A row with something in it: its number, from 1, and its cells, each None, a truth value, a number or a text.
Row: TypeAlias = tuple[int, list[Any]]


def pieces(path: str, max_cells: int) -> Iterator[bytes]:
    """Yield the name and the rows of each sheet, packed.

    Raises :class:`TooManyCellsError`, and whatever the library raises for a file.
    """
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
    except python_calamine.PasswordError:
        yield PASSWORD
        return
    for name in (sheet.name for sheet in book.sheets_metadata if sheet.typ == python_calamine.SheetTypeEnum.WorkSheet):
        filled: list[Row] = []
        for number, row in enumerate(_rows(book.get_sheet_by_name(name)), 1):
            while row and row[-1] == "":
                row.pop()
            if row:
                filled.append((number, [None if cell == "" else _plain(cell) for cell in row]))
                max_cells -= len(row)
                if max_cells < 0:
                    raise TooManyCellsError
        yield msgspec.msgpack.encode((name, filled))


def _rows(sheet: Any) -> Iterator[list[Any]]:
    """Yield the rows from the first on; one with a time that Python cannot hold has damaged cells, and ends no other."""
    rows = iter(sheet.iter_rows())
    while (row := anyway(lambda: next(rows, ()))) != ():
        yield [STRANGE] * sheet.width if row is None else row


def _plain(cell: Any) -> Any:
    """Return what can be packed: dates and times as texts such as 2024-01-31."""
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, datetime.timedelta) else cell


if __name__ == "__main__":
    run(partial(pieces, sys.argv[1], int(sys.argv[2])))
