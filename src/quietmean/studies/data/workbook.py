"""Tables in workbooks of Excel and LibreOffice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Table, of_rows, plain_name


def read_workbook(location: Location, wanted: Collection[str]) -> Table:
    """The sheet that was named, or the only one with the ``wanted`` columns; rows are numbered as in the program.

    Raises :class:`InputError` if the file cannot be read, needs a password, or has several such sheets.
    """
    location.only("a workbook", {"sheet", "skip"})
    calamine = import_extra("python_calamine", "excel", f"{location.name} is a workbook, and reading it")
    try:
        book = calamine.CalamineWorkbook.from_path(str(location.path))
        sheets = [(name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in book.sheet_names]
    except calamine.PasswordError:
        raise InputError(f"{location.name} is protected by a password: save it without") from None
    # What the library says may quote a cell.
    except (calamine.CalamineError, OSError, ValueError):
        raise InputError(f"{location.name} cannot be read as a workbook: save it anew as .xlsx, or as CSV") from None
    said = location.said.get("sheet")
    if said is not None:
        chosen = [rows for place, (name, rows) in enumerate(sheets, 1) if said in (name, str(place))]
        if not chosen:
            raise InputError(
                f"{location.name} has no sheet {said!r} among its {len(sheets)}: give its name or its number, from 1"
            )
        return _table(chosen[0], location)
    filled = [rows for _, rows in sheets if any(map(_is_filled, rows))]
    names = {plain_name(name) for name in wanted}
    fitting = [rows for rows in filled if names <= set(_heading(rows, location)[1])]
    if len(fitting) > 1:
        raise InputError(
            f"{len(fitting)} sheets of {location.name} have the columns of the study: say which, {location.name}#sheet=NAME"
        )
    if not filled:
        raise InputError(f"{location.name} is empty: the first row of a sheet must hold the names of its columns")
    return _table((fitting or filled)[0], location)


def _table(rows: list[list[Any]], location: Location) -> Table:
    start, names = _heading(rows, location)
    if not names:
        raise InputError(f"the sheet of {location.name} is empty: its first row must hold the names of its columns")
    below = [[None if cell == "" else cell for cell in row[: len(names)]] for row in rows[start + 1 :]]
    return of_rows(location.name, names, below, range(start + 2, len(rows) + 1))


def _heading(rows: list[list[Any]], location: Location) -> tuple[int, list[str]]:
    """Which row has the names, and these, without columns at the end that have none."""
    start = next((place for place, row in enumerate(rows) if place >= location.skip and _is_filled(row)), len(rows))
    names = [plain_name(cell) for cell in rows[start]] if start < len(rows) else []
    while names and not names[-1]:
        names.pop()
    return start, names


def _is_filled(row: list[Any]) -> bool:
    return any(cell not in (None, "") for cell in row)
