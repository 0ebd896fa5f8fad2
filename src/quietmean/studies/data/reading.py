"""From any source to the declared columns."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.columnar import ARROW, PARQUET
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns
from quietmean.statistics.transforms import Transform
from quietmean.studies.data.cells import floats_of
from quietmean.studies.data.database import read_database
from quietmean.studies.data.delimited import read_delimited
from quietmean.studies.data.frames import read_columnar, table_of_frame
from quietmean.studies.data.location import Location, is_plain
from quietmean.studies.data.numerals import Numerals
from quietmean.studies.data.table import Table, require_column
from quietmean.studies.data.text import MOST_UNPACKED, Tell
from quietmean.studies.data.workbook import EXCEL, OTHER, read_workbook

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

    Source: TypeAlias = Path | str | IntoFrame | NDArray[Any]
else:
    Source: TypeAlias = Any

# The first bytes of each kind of file, whatever its name.
_PARQUET, _ARROW, _SQLITE, _ZIP = b"PAR1", b"ARROW1", b"SQLite format 3\0", b"PK\x03\x04"
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_DUCKDB = slice(8, 12)
# Bytes of a file that are read to see what it is.
_LOOK = 4096
# Endings of binary files; one with other first bytes is damaged.
_BINARY = {".parquet": "Parquet", ".pq": "Parquet", ".feather": "Feather", ".arrow": "Arrow", ".xlsx": "Excel"}


def _nobody(sentence: str) -> None:
    """Where nobody wants to know."""


def read_columns(source: Source, columns: Columns, tell: Tell = _nobody) -> NDArray[np.float64]:
    """The declared columns of all rows as floats, shape (rows, columns), from a file or a data frame.

    ``source``: a path, perhaps with settings (:class:`Location`), a data frame, or an array of numbers that is
    such already. Of numbers, NaN where a cell
    is empty, holds none or one of the codes for missing; dates as days since the public day. Of levels their places, NaN where a
    cell is missing and -1 where it holds none of the declared ones. Transforms are computed. ``tell`` gets sentences for the
    owner of the data alone: which cells were not understood, by line and column.
    Raises :class:`InputError` for what is no table or has no rows, and for a column that is absent or of a type that holds no
    such values. The error contains no cell.
    """
    if isinstance(source, np.ndarray):
        return _checked(source, len(columns))
    wanted = [column.name for column in columns if not column.origin]
    table = read_table(source, wanted, tell)
    return values_of(table, columns, location_of(source), tell)


def _checked(array: NDArray[Any], columns: int) -> NDArray[np.float64]:
    if array.ndim != 2 or array.shape[1] != columns or not len(array) or array.dtype.kind not in "biuf":
        raise InputError(f"the array must hold numbers in {columns} columns, as declared, and a row at least: give such a one")
    return array.astype(np.float64)


def values_of(table: Table, columns: Columns, location: Location, tell: Tell = _nobody) -> NDArray[np.float64]:
    """As :func:`read_columns`, of a table that was read. Raises :class:`InputError` without a column of it, or a row."""
    read = [column for column in columns if not column.origin]
    for column in read:
        require_column(table, column.name)
    if not table.height:
        raise InputError(f"{table.place} has no rows: a party needs at least one record")
    numerals = Numerals.of(location, table.delimiter)
    by_column: dict[str, NDArray[np.float64]] = {}
    for column in columns:
        if column.origin:
            by_column[column.name] = _transformed(column, columns, by_column)
        else:
            by_column[column.name] = floats_of(table, column, numerals, location, tell)
    return np.column_stack(list(by_column.values()))


def location_of(source: Source) -> Location:
    """The location of a source; that of a data frame has no settings."""
    return Location.of(source) if isinstance(source, Path | str) else Location(Path("the data frame"))


def read_table(source: Source, wanted: Collection[str], tell: Tell = _nobody) -> Table:
    """The table with the ``wanted`` columns, by what the file begins with. Raises :class:`InputError` if there is none."""
    if not isinstance(source, Path | str):
        return table_of_frame(source)
    return read_file(Location.of(source), wanted, tell)


def read_file(location: Location, wanted: Collection[str], tell: Tell = _nobody) -> Table:
    """The same of a file with settings. Raises :class:`InputError`, also for one that changes meanwhile."""
    if location.path.is_dir():
        raise InputError(f"{location.path} is a folder and cannot be read as a table: give a file")
    try:
        if not is_plain(location.path):
            raise InputError(f"{location.path} is a pipe or a device and cannot be read as a table: give a file")
        before = _state(location.path)
        table, is_database = _read_file(location, wanted, tell)
        # A database itself reads from one point in time.
        if not is_database and _state(location.path) != before:
            raise InputError(f"{location.name} was changed while it was read: wait until its program has written all of it")
        return table
    except FileNotFoundError:
        raise InputError(f"file {location.path} does not exist: check the path") from None
    except OSError as error:
        raise InputError(f"file {location.path} cannot be read ({error.strerror or 'an input error'}): check it") from None


def _state(path: Path) -> tuple[int, int, int]:
    """A state of a file that differs once it was written to or replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_file(location: Location, wanted: Collection[str], tell: Tell) -> tuple[Table, bool]:
    """And whether it is a database. Its first bytes decide what a file is; then the library for it opens it."""
    with location.path.open("rb") as file:
        first = file.read(_LOOK)
    if first.startswith(_SQLITE):
        return read_database(location, "sqlite", wanted), True
    if first[_DUCKDB] == b"DUCK":
        return read_database(location, "duckdb", wanted), True
    return _read_no_database(location, first, wanted, tell), False


def _read_no_database(location: Location, first: bytes, wanted: Collection[str], tell: Tell) -> Table:
    if first.startswith(_PARQUET):
        return read_columnar(location, PARQUET, wanted)
    if first.startswith(_ARROW):
        return read_columnar(location, ARROW, wanted)
    if first.startswith(_OLD_OFFICE):
        return read_workbook(location, wanted, OTHER)
    if first.startswith(_ZIP):
        return _read_zip(location, wanted)
    kind = _BINARY.get(location.path.suffix.lower())
    if kind is not None and b"\0" in first:
        raise InputError(f"file {location.name} cannot be read as a table: it is no {kind} file, or damaged")
    return read_delimited(location, wanted, tell)


def _read_zip(location: Location, wanted: Collection[str]) -> Table:
    """A workbook, which is an archive, or an archive that is none."""
    try:
        with zipfile.ZipFile(location.path) as archive:
            inside = set(archive.namelist())
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        # A file that was cut off: the reader of workbooks reports it.
        return read_workbook(location, wanted, OTHER)
    if not (any(name.startswith("xl/") for name in inside) or "content.xml" in inside):
        raise InputError(f"{location.name} is a zip archive: unpack it, and give the table in it")
    if size > MOST_UNPACKED:
        raise InputError(
            f"{location.name} unpacks to more than {MOST_UNPACKED >> 30} GiB, the most that is read of a workbook: save the "
            "table as CSV"
        )
    return read_workbook(location, wanted, EXCEL if "xl/workbook.xml" in inside else OTHER)


def _transformed(column: Column, columns: Columns, by_column: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The values of a transform, (rows,), from those of the columns before it; what is no level of these is missing."""
    transform = Transform(column.origin)
    sources = {
        name: by_column[name] if columns[name].numeric else np.where(by_column[name] < 0, np.nan, by_column[name])
        for name in transform.sources
    }
    return transform.values(sources)
