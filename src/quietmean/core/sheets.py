"""Sheets of a workbook, read by a process of its own with bounded memory: ``python -P -m quietmean.core.sheets PATH CELLS``.

The library makes room for whatever a file says it has, and ends its process where there is none. This module imports nothing of
quietmean but what limits memory, for a process that begins quickly.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from quietmean.core.portability import TooManyCellsError, limit_process

# Exit codes of a process that cannot print the sheets, besides 1.
PASSWORD, TOO_LARGE = 3, 4
MOST_MEMORY = 4 * 2**30
MOST_PROCESSOR = 3600

# A row with something in it: its number, from 1, and its cells, each None, a truth value, a number or a text.
Row: TypeAlias = tuple[int, list[Any]]
# Stands for a cell that is damaged.
_STRANGE = "\N{REPLACEMENT CHARACTER}"


def packed(path: str, max_cells: int) -> bytes:
    """Return names and rows of all sheets, packed.

    Raises :class:`TooManyCellsError`, and whatever the library raises for a file.
    """
    from python_calamine import CalamineWorkbook, SheetTypeEnum

    budget = max_cells
    sheets: list[tuple[str, list[Row]]] = []
    with CalamineWorkbook.from_path(path) as book:
        for name in (sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet):
            filled: list[Row] = []
            for number, row in enumerate(_rows(book.get_sheet_by_name(name)), 1):
                while row and row[-1] == "":
                    row.pop()
                if row:
                    filled.append((number, [None if cell == "" else _plain(cell) for cell in row]))
                    budget -= len(row)
                    if budget < 0:
                        raise TooManyCellsError
            sheets.append((name, filled))
    return msgspec.msgpack.encode(sheets)


def _rows(sheet: Any) -> Iterator[list[Any]]:
    """Yield the rows from the first on; one with a time that Python cannot hold has damaged cells, and ends no other."""
    rows = iter(sheet.iter_rows())
    while True:
        try:
            row = next(rows, None)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        # A panic of the library is no Exception.
        except BaseException:
            row = [_STRANGE] * sheet.width
        if row is None:
            return
        yield row


def _plain(cell: Any) -> Any:
    """Return what can be packed: dates and times as texts such as 2024-01-31."""
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, datetime.timedelta) else cell


def main(path: str, max_cells: int) -> None:
    """Print the sheets, as the process does."""
    limit_process(MOST_MEMORY, MOST_PROCESSOR)
    try:
        content = packed(path, max_cells)
    except (MemoryError, TooManyCellsError):
        sys.exit(TOO_LARGE)
    except Exception as error:
        # The library's message is dropped: it may quote a cell.
        sys.exit(PASSWORD if type(error).__name__ == "PasswordError" else 1)
    sys.stdout.buffer.write(content)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
