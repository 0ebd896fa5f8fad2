"""Files that libraries read in a process of their own, which may end or want more memory or time than there is; data frames.

Workbooks, Parquet, Arrow, Feather, SPSS, Stata and SAS. The type of a column may follow from its cells, as where pandas infers
it, so it decides nothing: each cell is read by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Timer
from types import ModuleType
from typing import Any, TypeAlias

from quietmean.core import columnar, foreign, sheets
from quietmean.core.cells import plain_name
from quietmean.core.codec import decode
from quietmean.core.columnar import LENGTH, ROWS, TOO_LARGE, cells_of
from quietmean.core.errors import InputError
from quietmean.core.extensions import command_for, import_extra, is_installed
from quietmean.core.keywords import python_class
from quietmean.studies.data.location import HEADING_LINES, Location
from quietmean.studies.data.table import MOST_CELLS, Cells, Pieces, Table, heading_absent, of_rows, too_many_cells

# The most seconds that the process may take; and the most bytes of one of its pieces.
MOST_SECONDS = 1800.0
_LONGEST = 2**33


class EndedError(Exception):
    """The process ended before it was done: by itself with a ``code``, negative where a signal or the clock ended it."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def pieces_apart(module: ModuleType, arguments: Sequence[str]) -> Iterator[bytes]:
    """What a process that runs the ``module`` writes (:func:`columnar.write`), as it comes. Raises :class:`EndedError`."""
    running = subprocess.Popen(
        _command(module, arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    )
    assert running.stdout is not None  # noqa: S101
    clock = Timer(MOST_SECONDS, running.kill)
    clock.daemon = True
    clock.start()
    try:
        while length := int.from_bytes(_exactly(running, LENGTH), "big"):
            if length > _LONGEST:
                raise EndedError(-1)
            yield _exactly(running, length)
    finally:
        clock.cancel()
        with suppress(OSError):
            running.kill()
        running.stdout.close()
        running.wait()


def _exactly(running: subprocess.Popen[bytes], size: int) -> bytes:
    """Read so many bytes. Raises :class:`EndedError` where fewer come."""
    assert running.stdout is not None  # noqa: S101
    content = running.stdout.read(size)
    if len(content) < size:
        raise EndedError(running.wait() or -1)
    return content


def _command(module: ModuleType, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", module.__name__, *arguments]


def _environment() -> dict[str, str]:
    """The environment of a reading process: nothing there needs threads of linear algebra, whose start is long."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


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
                f"{location.name} has {len(sheets)} sheets and none is called {wanted_sheet!r}. Give its name or number, from 1."
            )
        return _table(chosen[0], location, names)
    filled = [rows for _, rows in sheets if rows]
    # Where its names stand below a title is looked for only if they are in no first row: there may be rows of other tables.
    fitting = [rows for rows in filled if names <= set(_names(rows, _first(rows, location)))]
    fitting = fitting or [rows for rows in filled if _heading(rows, location, names) is not None]
    if len(fitting) > 1:
        raise InputError(
            f"{len(fitting)} sheets of {location.name} have the columns of the study. Say which, {location.name}#sheet=NAME."
        )
    if not filled:
        raise InputError(f"{location.name} is empty. Write the names of its columns into the first row of a sheet.")
    return _table((fitting or filled)[0], location, names)


def _sheets(location: Location) -> Sheets:
    import_extra("python_calamine", "excel", f"{location.name} is a workbook, and reading it")
    try:
        contents = list(pieces_apart(sheets, [str(location.path.absolute()), str(MOST_CELLS)]))
    except EndedError as ended:
        raise too_many_cells(location.name) if ended.code == TOO_LARGE else _unreadable(location) from None
    if contents == [sheets.PASSWORD]:
        raise InputError(f"{location.name} is protected by a password. Save it without.")
    return [decode(content, tuple[str, Rows], lambda reason: _unreadable(location)) for content in contents]


def _table(rows: Rows, location: Location, wanted: set[str]) -> Table:
    found = _heading(rows, location, wanted)
    start = _first(rows, location) if found is None else found
    names = _names(rows, start)
    if not names:
        raise InputError(f"the sheet of {location.name} is empty. Write the names of its columns into its first row.")
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
    return InputError(f"{location.name} cannot be read as a workbook. Save it again as .xlsx, or as CSV.")


def read_foreign(location: Location, column_names: Collection[str] | None, kind: str) -> Pieces:
    """The named columns, or all; codes are codes, whatever labels the file has for them.

    Raises :class:`InputError` if it cannot be read, or its library is not there.
    """
    location.only(f"a file of {kind}", ())
    import_extra("pyreadstat", "foreign", f"{location.name} is a file of {kind}, and reading it")
    return columns_apart(foreign, kind, f"a damaged file of {kind}", location, column_names)


@python_class
@dataclass(frozen=True, eq=False)
class GroupedFrame:
    """A table of Polars, DuckDB, Spark or PostgreSQL whose engine is to count groups of equal rows, instead of handing them over.

    ``data``: what ``polars.scan_parquet``, ``duckdb.table`` or ``spark.read.parquet`` return, or the address of a PostgreSQL
    database as ``--data`` takes it. The unit of the study has to be the record. Statistics of levels and bins need few groups,
    whatever the size; others as many as there are different values, and above a million of them rows are read, a piece at a time.
    """

    data: Any = field(repr=False)


def read_columnar(location: Location, column_names: Collection[str] | None, kind: str) -> Pieces:
    """The named columns of a file of ``kind`` parquet or arrow, or all of them; it may have others of any type.

    Raises :class:`InputError` if it cannot be read, or if no library for it is there.
    """
    location.only(f"a {kind.capitalize()} file", ())
    if not is_installed("narwhals") or not (is_installed("polars") or is_installed("pyarrow")):
        raise InputError(
            f"{location.name} is a {kind.capitalize()} file, and reading it needs the extra 'tables', which is not "
            f"installed. Run {command_for('tables')}."
        )
    return columns_apart(columnar, kind, f"a damaged {kind.capitalize()} file", location, column_names)


def columns_apart(
    module: ModuleType, kind: str, damaged: str, location: Location, column_names: Collection[str] | None
) -> Pieces:
    """Yield the named columns, read by a ``module`` that runs as a process; ``damaged``: what the file may be."""
    names = sorted({plain_name(name) for name in column_names or ()})
    unreadable = InputError(
        f"file {location.name} cannot be read as a table. Check that it is not {damaged}, and that reading it takes "
        f"{columnar.MOST_MEMORY >> 30} GiB of memory and {MOST_SECONDS / 60:g} minutes at most."
    )
    contents = pieces_apart(module, [kind, str(location.path.absolute()), str(MOST_CELLS), *names])
    try:
        heading, places = decode(next(contents), tuple[list[str], list[int]], lambda reason: unreadable)
        if not set(names) <= set(map(plain_name, heading)):
            raise heading_absent(location.name, names, tuple(map(plain_name, heading)))
        table = Table(location.name, tuple(map(plain_name, heading)), (), lambda index: Cells(()))
        row = 1
        for content in contents:
            packed = decode(content, list[tuple[bytes | list[Any], bytes | None]], lambda reason: unreadable)
            columns = dict(zip(places, (Cells(*column) for column in columnar.unpacked(packed)), strict=True))
            height = len(columns[places[0]])
            yield replace(table, lines=range(row, row + height), take=columns.__getitem__)
            row += height
        if row == 1:
            yield table
    except EndedError as ended:
        raise too_many_cells(location.name) if ended.code == columnar.TOO_LARGE else unreadable from None
    except (StopIteration, ValueError):
        raise unreadable from None


def table_of_frame(frame: Any, column_names: Collection[str], source: str = "the data frame") -> Pieces:
    """The named columns of a data frame of any library that narwhals knows. Raises :class:`InputError` for anything else."""
    narwhals = import_extra("narwhals", "tables", "reading a data frame")
    try:
        wrapped = narwhals.from_native(frame)
        wrapped = wrapped.collect() if isinstance(wrapped, narwhals.LazyFrame) else wrapped
        names = tuple(plain_name(name) for name in wrapped.columns)
    except TypeError:
        raise InputError(
            f"Data of type {type(frame).__name__} are not a table. Give a path, or a data frame of pandas, Polars or PyArrow."
        ) from None
    except narwhals.exceptions.DuplicateError:
        raise InputError(f"two columns of {source} have the same name. Give each column a name of its own.") from None
    for start in range(0, max(len(wrapped), 1), ROWS):
        piece = wrapped[start : start + ROWS]
        yield Table(source, names, range(start + 1, start + len(piece) + 1), partial(_cells_in, piece))


def _cells_in(piece: Any, index: int) -> Cells:
    return Cells(cells_of(piece[:, index]))
