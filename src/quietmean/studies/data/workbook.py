"""Tables in workbooks of Excel: .xlsx, .xlsm, .xlsb and .xls."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from quietmean.core import sheets
from quietmean.core.cells import plain_name
from quietmean.core.codec import decode
from quietmean.core.columnar import TOO_LARGE
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.studies.data.apart import EndedError, pieces_apart
from quietmean.studies.data.location import HEADING_LINES, Location
from quietmean.studies.data.table import MOST_CELLS, Pieces, Table, of_rows, too_many_cells

# The rows of a sheet with something in them: their numbers, from 1, and their cells.
Rows: TypeAlias = list[tuple[int, list[Any]]]
Sheets: TypeAlias = list[tuple[str, Rows]]


def read_workbook(location: Location, column_names: Collection[str] | None) -> Pieces:
    """Yield the sheet that was named, or the only one with the named columns; rows are numbered as in the program.

    Raises :class:`InputError` if the file cannot be read, needs a password, or has several such sheets.
    """
    yield _chosen(location, column_names or ())


def _chosen(location: Location, column_names: Collection[str]) -> Table:
    location.only("a workbook", {"sheet", "skip"})
    sheets = _sheets(location)
    names = {plain_name(name) for name in column_names}
    wanted_sheet = location.settings.get("sheet")
    if wanted_sheet is not None:
        chosen = [rows for number, (name, rows) in enumerate(sheets, 1) if wanted_sheet in (name, str(number))]
        if not chosen:
            raise InputError(
                f"{location.name} has {len(sheets)} sheets and none is called {wanted_sheet!r}: give its name or number, from 1"
            )
        return _table(chosen[0], location, names)
    filled = [rows for _, rows in sheets if rows]
    # Where its names stand below a title is looked for only if they are in no first row: there may be rows of other tables.
    fitting = [rows for rows in filled if names <= set(_names(rows, _first(rows, location)))]
    fitting = fitting or [rows for rows in filled if _heading(rows, location, names) is not None]
    if len(fitting) > 1:
        raise InputError(
            f"{len(fitting)} sheets of {location.name} have the columns of the study: say which, {location.name}#sheet=NAME"
        )
    if not filled:
        raise InputError(f"{location.name} is empty: the first row of a sheet must hold the names of its columns")
    return _table((fitting or filled)[0], location, names)


def _sheets(location: Location) -> Sheets:
    import_extra("python_calamine", "excel", f"{location.name} is a workbook, and reading it")
    try:
        contents = list(pieces_apart(sheets, [str(location.path.absolute()), str(MOST_CELLS)]))
    except EndedError as ended:
        raise too_many_cells(location.name) if ended.code == TOO_LARGE else _unreadable(location) from None
    if contents == [sheets.PASSWORD]:
        raise InputError(f"{location.name} is protected by a password: save it without")
    return [decode(content, tuple[str, Rows], lambda reason: _unreadable(location)) for content in contents]


def _table(rows: Rows, location: Location, wanted: set[str]) -> Table:
    found = _heading(rows, location, wanted)
    start = _first(rows, location) if found is None else found
    names = _names(rows, start)
    if not names:
        raise InputError(f"the sheet of {location.name} is empty: its first row must hold the names of its columns")
    width = len(names)
    below = [(number, (cells + [None] * (width - len(cells)))[:width]) for number, cells in rows[start + 1 :]]
    # What stands beside the table only does not belong to it.
    records = [(number, cells) for number, cells in below if any(cell is not None for cell in cells)]
    return of_rows(location.name, names, [cells for _, cells in records], [number for number, _ in records])


def _first(rows: Rows, location: Location) -> int:
    """The place of the first row that is not skipped."""
    return next((at for at, (number, _) in enumerate(rows) if number > location.skip), len(rows))


def _heading(rows: Rows, location: Location, wanted: set[str]) -> int | None:
    """The place of the first row with all ``wanted`` names, of as many rows as of a text; the first row where none is wanted."""
    last = location.skip + HEADING_LINES
    for place in range(_first(rows, location), len(rows)):
        if rows[place][0] > last:
            break
        if wanted <= set(_names(rows, place)):
            return place
    return None


def _names(rows: Rows, place: int) -> list[str]:
    """The names in a row, without columns at the end that have none; nothing behind the last row."""
    names = [plain_name(cell) for cell in rows[place][1]] if place < len(rows) else []
    while names and not names[-1]:
        names.pop()
    return names


def _unreadable(location: Location) -> InputError:
    return InputError(f"{location.name} cannot be read as a workbook: save it anew as .xlsx, or as CSV")
