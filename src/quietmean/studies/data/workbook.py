"""Tables in workbooks of Excel and LibreOffice: of the cells that are there, however far away one of them stands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any, TypeAlias

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.core.portability import limit_memory
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import MOST_CELLS, Table, of_rows, plain_name, too_many_cells

# The rows of a sheet with something in them: their numbers, from 1, and their cells.
Rows: TypeAlias = list[tuple[int, list[Any]]]
Sheets: TypeAlias = list[tuple[str, Rows]]
# Of a process that reads a file whose library makes room for all cells up to the farthest one.
_MOST_MEMORY = 4 * 2**30
_PASSWORD = 3
_READ_OTHER = "import sys; from quietmean.studies.data.workbook import print_sheets; print_sheets(sys.argv[1])"


def read_workbook(location: Location, wanted: Collection[str], sheets_of: Callable[[Location], Sheets]) -> Table:
    """The sheet that was named, or the only one with the ``wanted`` columns; rows are numbered as in the program.

    Raises :class:`InputError` if the file cannot be read, needs a password, or has several such sheets.
    """
    location.only("a workbook", {"sheet", "skip"})
    sheets = sheets_of(location)
    said = location.said.get("sheet")
    if said is not None:
        chosen = [rows for place, (name, rows) in enumerate(sheets, 1) if said in (name, str(place))]
        if not chosen:
            raise InputError(
                f"{location.name} has no sheet {said!r} among its {len(sheets)}: give its name or its number, from 1"
            )
        return _table(chosen[0], location)
    filled = [rows for _, rows in sheets if rows]
    names = {plain_name(name) for name in wanted}
    fitting = [rows for rows in filled if names <= set(_heading(rows, location)[1])]
    if len(fitting) > 1:
        raise InputError(
            f"{len(fitting)} sheets of {location.name} have the columns of the study: say which, {location.name}#sheet=NAME"
        )
    if not filled:
        raise InputError(f"{location.name} is empty: the first row of a sheet must hold the names of its columns")
    return _table((fitting or filled)[0], location)


def sheets_of_excel(location: Location) -> Sheets:
    """Of an .xlsx or .xlsm, cell by cell."""
    openpyxl = import_extra("openpyxl", "excel", f"{location.name} is a workbook, and reading it")
    try:
        with closing(openpyxl.load_workbook(location.path, read_only=True, data_only=True)) as book:
            return [(sheet.title, _filled(_cells(sheet), location)) for sheet in book.worksheets]
    except InputError:
        raise
    # A damaged file may raise anything, and what the library says may quote a cell.
    except Exception:
        raise _unreadable(location) from None


def sheets_of_others(location: Location) -> Sheets:
    """Of .xls, .xlsb and .ods, read by a process of its own with bounded memory: its library makes room for every cell up to the
    last one, and ends the process where there is no room."""
    import_extra("python_calamine", "excel", f"{location.name} is a workbook, and reading it")
    command = [sys.executable, "-c", _READ_OTHER, str(location.path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == _PASSWORD:
        raise InputError(f"{location.name} is protected by a password: save it without")
    if done.returncode:
        raise _unreadable(location)
    sheets = decode(done.stdout, list[tuple[str, list[list[Any]]]], lambda reason: _unreadable(location))
    return [(name, _filled(enumerate(rows, 1), location)) for name, rows in sheets]


def print_sheets(path: str) -> None:
    """What a process of its own prints: names and rows of all sheets. Dates are texts such as 2024-01-31."""
    limit_memory(_MOST_MEMORY)
    calamine = import_extra("python_calamine", "excel", "reading a workbook")
    try:
        book = calamine.CalamineWorkbook.from_path(path)
    except calamine.PasswordError:
        sys.exit(_PASSWORD)
    sheets = [(name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in book.sheet_names]
    sys.stdout.buffer.write(msgspec.msgpack.encode(sheets))


def _cells(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    # What the file says of its own size may be anything.
    sheet.reset_dimensions()
    yield from ((place, list(row)) for place, row in enumerate(sheet.iter_rows(values_only=True), 1))


def _filled(rows: Any, location: Location) -> Rows:
    """The rows in which a cell holds something. Raises :class:`InputError` for more cells than are read."""
    filled: Rows = []
    cells = 0
    for place, row in rows:
        while row and row[-1] in (None, ""):
            row.pop()
        if row:
            filled.append((place, [None if cell == "" else cell for cell in row]))
            cells += len(row)
            if cells > MOST_CELLS:
                raise too_many_cells(location.name)
    return filled


def _table(rows: Rows, location: Location) -> Table:
    start, names = _heading(rows, location)
    if not names:
        raise InputError(f"the sheet of {location.name} is empty: its first row must hold the names of its columns")
    width = len(names)
    below = [(place, (cells + [None] * (width - len(cells)))[:width]) for place, cells in rows[start + 1 :]]
    # What stands beside the table only is no record of it.
    records = [(place, cells) for place, cells in below if any(cell is not None for cell in cells)]
    return of_rows(location.name, names, [cells for _, cells in records], [place for place, _ in records])


def _heading(rows: Rows, location: Location) -> tuple[int, list[str]]:
    """Which row has the names, and these, without columns at the end that have none."""
    start = next((at for at, (place, _) in enumerate(rows) if place > location.skip), len(rows))
    names = [plain_name(cell) for cell in rows[start][1]] if start < len(rows) else []
    while names and not names[-1]:
        names.pop()
    return start, names


def _unreadable(location: Location) -> InputError:
    return InputError(f"{location.name} cannot be read as a workbook: save it anew as .xlsx, or as CSV")
